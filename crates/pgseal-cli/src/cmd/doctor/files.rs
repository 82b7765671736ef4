//! Checks of the files of the data directory.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use pgseal_convert::{Journal, Operation, Phase};
use pgseal_core::{Suite, usage};
use pgseal_keys::renewal_path;
use pgseal_pgdata::Class;

use super::context::Context;
use super::verdict::{Verdict, fail, ok, skip, warn};
use crate::out::count;
use crate::scan::{Entry, Seen};

/// How many names are shown.
const SHOWN: usize = 3;

pub fn permissions(context: &Context) -> Verdict {
    let own = context.dir.keyring().parent().map(Path::to_owned).unwrap_or_default();
    let mut paths: Vec<(PathBuf, u32)> =
        vec![(context.dir.root.clone(), 0o027), (own.clone(), 0o077)];
    if let Ok(listing) = fs::read_dir(&own) {
        paths.extend(listing.flatten().map(|item| (item.path(), 0o077)));
    }
    let owner = fs::metadata(&context.dir.root).map(|meta| meta.uid());
    let mut wrong = Vec::new();
    for (path, mask) in paths {
        let Ok(meta) = fs::metadata(&path) else { continue };
        let mode = meta.permissions().mode() & 0o7777;
        if mode & mask != 0 {
            wrong.push(format!("{} has mode {mode:04o}", path.display()));
        }
        if owner.as_ref().is_ok_and(|owner| *owner != meta.uid()) {
            wrong.push(format!("{} belongs to user {}", path.display(), meta.uid()));
        }
    }
    match wrong.is_empty() {
        true => ok("only the owner"),
        false => fail(wrong.join("; ")),
    }
}

pub fn configuration(context: &Context) -> Verdict {
    let locked = context.keyring.as_ref().is_some_and(|keyring| keyring.config_lock().is_some());
    let inside = context.dir.root.join("postgresql.conf").exists();
    match (locked, inside) {
        (true, _) => ok("locked; pgseal config status DIR compares it with the record"),
        (false, false) => ok("postgresql.conf lies outside, which is the better way; \
             postgresql.auto.conf and signal files do not, and pgseal config lock DIR locks them"),
        (false, true) => warn("it lies in the data directory and is not locked"),
    }
}

/// The command that finishes the conversion.
fn command_of(journal: &Journal, dir: &Path) -> String {
    let yes = if journal.operation == Operation::Decrypt { " --yes-write-plain" } else { "" };
    format!("pgseal {}{yes} {}", journal.operation.name(), dir.display())
}

pub fn conversion(context: &Context) -> Verdict {
    let Some(journal) = &context.dir.conversion else { return ok("none is unfinished") };
    let (name, next) = (journal.operation.name(), command_of(journal, &context.dir.root));
    if context.is_converting {
        return warn(format!("pgseal {name} is at work just now; no server starts until its end"));
    }
    let how_far = match journal.phase {
        Phase::Prepare => "before it changed a file",
        Phase::Convert => {
            "with some files sealed and some plain or under another key, and no server starts"
        }
        Phase::Finish => "with all files done, and no server starts",
    };
    fail(format!("pgseal {name} was interrupted {how_far}; go on with: {next}"))
}

pub fn renewal(context: &Context) -> Verdict {
    let root = &context.dir.root;
    let path = renewal_path(root);
    let is_there = |path: &Path| fs::symlink_metadata(path).is_ok();
    let finish = format!("pgseal key renew --finish {}", root.display());
    if is_there(&path) {
        return warn(format!(
            "a data key waits for the server to read its configuration; if no pgseal key renew runs: {finish}"
        ));
    }
    if is_there(&path.with_extension("refused")) {
        return warn(format!(
            "the server did not take a data key, its log says why; when the cause is gone: {finish}"
        ));
    }
    ok("none waits")
}

/// The verdict of a check that makes no sense during a conversion; `None` if there is none.
pub fn unfinished(context: &Context) -> Option<Verdict> {
    let journal = context.dir.conversion.as_ref()?;
    Some(skip(format!("pgseal {} is unfinished", journal.operation.name())))
}

fn names(entries: &[&Entry]) -> String {
    let shown: Vec<String> = entries.iter().take(SHOWN).map(|entry| entry.name()).collect();
    let more = if entries.len() > SHOWN { ", ..." } else { "" };
    format!("{}{more}", shown.join(", "))
}

pub fn plain(context: &Context) -> Verdict {
    if let Some(verdict) = unfinished(context) {
        return verdict;
    }
    let plain = |entry: &&Entry| matches!(entry.seen, Seen::Plain) && entry.should_be_sealed();
    let all: Vec<&Entry> = context.scan.entries.iter().filter(plain).collect();
    let (accepted, wrong): (Vec<&Entry>, Vec<&Entry>) =
        all.into_iter().partition(|entry| entry.may_be_plain());
    let files = |entries: &[&Entry]| count(entries.len() as u64, "plain file");
    if !wrong.is_empty() {
        return fail(format!("{}: {}", files(&wrong), names(&wrong)));
    }
    if !accepted.is_empty() {
        let (files, names) = (files(&accepted), names(&accepted));
        return warn(format!("{files} where others than the server may have put one: {names}"));
    }
    let sealed = context.scan.headers().count() as u64;
    ok(format!("{}, none plain that should be", count(sealed, "sealed file")))
}

pub fn file_keys(context: &Context) -> Verdict {
    let two = context.scan.with_two_keys().count() as u64;
    let resealing =
        if two > 0 { format!("; {} with two keys", count(two, "file")) } else { String::new() };
    let Some((entry, writes)) = context.scan.most_used_key() else {
        return ok(format!("no key with a limit has sealed 65536 writes{resealing}"));
    };
    let saw = format!("{} has about {writes} writes under its key{resealing}", entry.name());
    match writes {
        // PostgreSQL makes these anew when it has no more use for them.
        _ if entry.class == Class::Wal && writes < usage::LIMIT => ok(saw),
        ..usage::DUE => ok(saw),
        usage::DUE..usage::LIMIT => warn(saw),
        _ => fail(saw),
    }
}

pub fn suite(context: &Context) -> Verdict {
    let Some(keyring) = &context.keyring else { return skip("the keyring is missing") };
    let older: Vec<&Entry> = context
        .scan
        .of_older_suite(keyring.id(), keyring.suite())
        .map(|(entry, _)| entry)
        .collect();
    let names: Vec<&str> = keyring.suites().older().map(Suite::name).collect();
    match (older.first(), names.is_empty()) {
        (Some(first), _) => warn(format!(
            "{} in an older suite, {} among them; new ones get {}",
            count(older.len() as u64, "file"),
            first.name(),
            keyring.suite()
        )),
        (None, false) => ok(format!(
            "every file has {}; files in {} would be accepted until pgseal key forget",
            keyring.suite(),
            names.join(", ")
        )),
        (None, true) => ok(keyring.suite().name()),
    }
}

pub fn unreadable(context: &Context) -> Verdict {
    let mut wrong: Vec<String> = Vec::new();
    for (path, why) in &context.scan.closed {
        wrong.push(format!("{}: {why}", path.display()));
    }
    for entry in &context.scan.entries {
        match &entry.seen {
            Seen::Unreadable(why) => wrong.push(format!("{}: {why}", entry.name())),
            Seen::Dangling(target) => {
                wrong.push(format!("{} leads to {}", entry.name(), target.display()));
            }
            _ => {}
        }
    }
    let links = context.scan.outside.len() as u64;
    match wrong.len() {
        0 => ok(format!("{} to other directories", count(links, "link"))),
        more => {
            wrong.truncate(SHOWN);
            fail(format!("{}: {}", count(more as u64, "path"), wrong.join("; ")))
        }
    }
}

pub fn file_system(context: &Context) -> Verdict {
    let outside = context.scan.outside.iter().map(|(_, target)| target.as_path());
    let mut seen = Vec::new();
    let mut worst = None;
    for path in std::iter::once(context.dir.root.as_path()).chain(outside) {
        let Ok(found) = rustix::fs::statfs(path) else { continue };
        let kind = u64::try_from(found.f_type).unwrap_or(0);
        let (name, remark) = kind_of(kind);
        if !seen.contains(&name) {
            seen.push(name);
        }
        if let Some(remark) = remark {
            worst = Some(format!("{} is on {name}: {remark}", path.display()));
        }
    }
    match (worst, seen.is_empty()) {
        (Some(worst), _) => warn(worst),
        (None, true) => skip("the kernel does not say"),
        (None, false) => ok(seen.join(", ")),
    }
}

/// The name of a file system by its magic number (`statfs(2)`), and its problem, if it has one.
fn kind_of(magic: u64) -> (&'static str, Option<&'static str>) {
    match magic {
        0xEF53 => ("ext4", None),
        0x5846_5342 => ("XFS", None),
        0x9123_683E => ("btrfs", None),
        0x2FC1_2FC1 => ("ZFS", None),
        0xF2F5_2010 => ("f2fs", None),
        0x6969 => ("NFS", Some("a server that goes away hangs or damages PostgreSQL")),
        0xFE53_4D42 | 0xFF53_4D42 | 0x517B => ("SMB", Some("PostgreSQL does not support it")),
        0x6573_5546 => ("FUSE", Some("what fsync means there is up to its program")),
        0x794C_7630 => ("overlay", Some("it goes away with its container; mount a volume")),
        0x0102_1994 => ("tmpfs", Some("it is memory, and may be swapped out")),
        _ => ("a file system that is not known", Some("nobody has tried it with pgseal")),
    }
}

#[cfg(test)]
mod tests {
    use super::kind_of;

    #[test]
    fn file_systems_are_known_by_number() {
        assert_eq!(kind_of(0xEF53), ("ext4", None));
        assert!(kind_of(0x6969).1.is_some() && kind_of(0x794C_7630).1.is_some());
        assert!(kind_of(1).1.is_some());
    }
}
