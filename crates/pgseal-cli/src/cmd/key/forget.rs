//! `pgseal key forget`: removes retired data keys that no file uses any more.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use pgseal_convert::tree;
use pgseal_core::header::Header;
use pgseal_core::{FileKind, Generation, KeyringId, Suite, Suites};
use pgseal_keys::{GenerationState, Keyring, keyring_path, update};
use pgseal_pgdata::Policy;
use serde::Serialize;

use crate::datadir::{DataDir, expect_whole};
use crate::error::CliError;
use crate::given_dir::GivenPath;
use crate::keyring_place::KeyringPlace;
use crate::keys::{self, PresentKey};
use crate::locks::{OwnLock, refuse_running};
use crate::out::Out;
use crate::scan::{self, Root, Scan, Seen};
use crate::{audit, exit, records};

/// Remove retired data keys and older suites that no file of the data directory has, for ever
///
/// After a rekey or a renewal, when no backup and no archived WAL from before is kept any more.
/// Files of an older suite (pgseal key renew --suite) are refused from then on.
/// For a keyring of sealed columns: removes every older data key; before, run
/// pgseal.change_provider() in each database that has such columns.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    path: GivenPath,
    #[command(flatten)]
    key: PresentKey,
    /// No backup and no archived WAL that shall ever be read is sealed with them
    #[arg(long)]
    no_backup_has_them: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The retired generations.
#[derive(Debug, Default, Serialize)]
struct Done {
    /// Those that files of the data directory have.
    kept: Vec<u32>,
    removed: Vec<u32>,
    /// Older suites that files of the data directory have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    kept_suites: Vec<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    removed_suites: Vec<&'static str>,
}

impl Done {
    /// What could go, for people; `None`: nothing.
    fn unused(&self) -> Option<String> {
        let parts = [
            (!self.removed.is_empty()).then(|| list(&self.removed)),
            (!self.removed_suites.is_empty())
                .then(|| format!("suite {}", self.removed_suites.join(", "))),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

/// What the files of the data directory have.
struct Used {
    generations: BTreeSet<u32>,
    /// The newest suite, and the older ones that are needed.
    suites: Suites,
}

pub fn run(args: &Args) -> Result<u8, CliError> {
    match KeyringPlace::open(&args.path.path("key forget")?)? {
        KeyringPlace::DataDir(dir) => forget_unused(args, &dir),
        place @ KeyringPlace::File(_) => forget_older(args, &place),
    }
}

/// Removes the older data keys of a keyring of sealed columns. Which of them a column key in a
/// database still needs, only that database can tell.
fn forget_older(args: &Args, place: &KeyringPlace) -> Result<u8, CliError> {
    let keyring = place.load()?;
    let path = keyring.path().display().to_string();
    let retired = keyring.summary().generations;
    let retired = retired.iter().filter(|entry| entry.state == GenerationState::Retired);
    let removed: Vec<u32> = retired.map(|entry| entry.generation).collect();
    let done = Done { removed, ..Done::default() };
    let unused = done.unused();
    if let Some(unused) = &unused {
        if !args.no_backup_has_them {
            return Err(CliError::Usage(format!(
                "key forget: {path}: {unused} could go. Column keys that are still under it can then \
                 never be opened again: first run, in each database, SELECT \
                 pgseal.change_provider('keyring:{path}'). If no dump and no backup from before is \
                 left, add --no-backup-has-them"
            )));
        }
        let kek = keys::kek(&keyring, args.key.provider.as_deref())?;
        audit::detail(unused.clone());
        let numbers: Vec<Generation> = done.removed.iter().copied().map(Generation).collect();
        place.change(|keyring| keyring.forget_generations(&kek, &numbers).map(|_| ()))?;
    }
    let mut out = Out::new();
    match unused {
        _ if args.json => out.json(&done)?,
        Some(unused) => writeln!(out, "Removed: {unused}.")?,
        None => writeln!(out, "There is no retired data key that could go.")?,
    }
    out.flush()?;
    Ok(exit::SOUND)
}

fn forget_unused(args: &Args, dir: &DataDir) -> Result<u8, CliError> {
    let _lock = OwnLock::take(&dir.root)?;
    let keyring = keys::own_keyring(dir)?;
    let used = used(dir, &keyring)?;
    let retired = keyring.summary().generations;
    let retired = retired.iter().filter(|entry| entry.state == GenerationState::Retired);
    let (kept, removed): (Vec<u32>, Vec<u32>) =
        retired.map(|entry| entry.generation).partition(|number| used.generations.contains(number));
    let is_kept = |suite: &Suite| used.suites.all().any(|kept| kept == *suite);
    let (kept_suites, removed_suites): (Vec<Suite>, Vec<Suite>) =
        keyring.suites().older().partition(is_kept);
    let names = |suites: Vec<Suite>| suites.into_iter().map(Suite::name).collect();
    let (kept_suites, removed_suites) = (names(kept_suites), names(removed_suites));
    let done = Done { kept, removed, kept_suites, removed_suites };
    let unused = done.unused();
    let mut out = Out::new();
    if args.json && unused.is_none() {
        out.json(&done)?;
        out.flush()?;
        return Ok(exit::SOUND);
    }
    if !done.kept.is_empty() && !args.json {
        let needed = list(&done.kept);
        writeln!(out, "Kept: {needed}, which files of the data directory have (pgseal rekey).")?;
    }
    if !done.kept_suites.is_empty() && !args.json {
        let suites = done.kept_suites.join(", ");
        writeln!(out, "Kept: suite {suites}, which files have (pgseal reseal --rewrite).")?;
    }
    let Some(unused) = unused else {
        writeln!(out, "There is no retired data key that could go.")?;
        out.flush()?;
        return Ok(exit::SOUND);
    };
    if !args.no_backup_has_them {
        out.flush()?;
        return Err(CliError::Usage(format!(
            "key forget: {unused} could go: no file of the data directory has them. Every backup and \
             all archived WAL sealed with them can never be read again; if there are none left, add \
             --no-backup-has-them"
        )));
    }
    let kek = keys::kek(&keyring, args.key.provider.as_deref())?;
    audit::detail(unused.clone());
    let numbers: Vec<Generation> = done.removed.iter().copied().map(Generation).collect();
    update(&keyring_path(&dir.root), |keyring| {
        // The keyring is locked now. Check again: the files may have changed before.
        if let Err(error) = still_unused(dir, keyring, &used, &done.removed) {
            return Ok(Err(error));
        }
        // Files of pgseal's own are sealed with a data key, too.
        if let Err(error) = records::seal_anew(&dir.root, &keyring.unlock(&kek)?) {
            return Ok(Err(error));
        }
        keyring.set_suites(&kek, used.suites)?;
        keyring.forget_generations(&kek, &numbers).map(Ok)
    })??;
    if args.json {
        out.json(&done)?;
    } else {
        writeln!(out, "Removed: {unused}.")?;
    }
    out.flush()?;
    Ok(exit::SOUND)
}

/// The generations and the suites that files of a stopped server's data directory use. Refuses a
/// directory with files whose header cannot be read.
fn used(dir: &DataDir, keyring: &Keyring) -> Result<Used, CliError> {
    refuse_running(dir)?;
    expect_whole(&dir.root)?;
    let scan = scan::scan(&dir.root, Root::DataDir);
    if let Some((path, why)) = hidden(&scan).or_else(|| absent(dir)) {
        return Err(CliError::NotNow(format!(
            "{}: {why}, so it cannot be told which data keys are needed; mend or remove it, then run \
             the same command again",
            dir.root.join(path).display()
        )));
    }
    refuse_running(dir)?;
    let sealed = scan.headers().filter(|header| header.keyring_id == keyring.id());
    let generations = sealed.map(|header| header.generation.0).collect();
    Ok(Used { generations, suites: used_suites(&scan, keyring.id(), keyring.suites()) })
}

/// The suites without those that no file has.
fn used_suites(scan: &Scan, keyring: KeyringId, suites: Suites) -> Suites {
    // A cluster of a suite has files of other kinds, too, with the length of key of that suite.
    let makes = |suite: Suite, header: &Header| {
        FileKind::ALL.into_iter().any(|kind| suite.for_kind(kind) == (header.suite, header.layout))
    };
    let older: Vec<&Header> =
        scan.of_older_suite(keyring, suites.newest()).map(|(_, header)| header).collect();
    let needed = suites.older().filter(|suite| older.iter().any(|header| makes(*suite, header)));
    needed.fold(suites.newest().into(), Suites::with_older)
}

/// Refuses to go on if files have one of the unused generations by now, or if a suite was changed.
fn still_unused(
    dir: &DataDir,
    keyring: &Keyring,
    before: &Used,
    unused: &[u32],
) -> Result<(), CliError> {
    let now = used(dir, keyring)?;
    if now.suites == before.suites && !unused.iter().any(|number| now.generations.contains(number))
    {
        return Ok(());
    }
    Err(CliError::NotNow(format!(
        "{}: files with one of these appeared meanwhile; nothing was removed, run the same command \
         again",
        dir.root.display()
    )))
}

/// The first file or directory whose generation cannot be read.
fn hidden(scan: &Scan) -> Option<(PathBuf, String)> {
    if let Some((path, why)) = scan.closed.first() {
        return Some((path.clone(), format!("not readable ({why})")));
    }
    let followed =
        |rel: &Path| rel.components().count() == 1 || rel.parent() == Some(Path::new("pg_tblspc"));
    if let Some((rel, _)) = scan.outside.iter().find(|(rel, _)| !followed(rel)) {
        return Some((rel.clone(), "a link to a directory, which is not looked into".to_owned()));
    }
    scan.entries.iter().find_map(|entry| {
        let why = match &entry.seen {
            Seen::Unreadable(why) => format!("not readable ({why})"),
            Seen::BadHeader(why) => format!("its header is damaged ({why})"),
            Seen::HeaderLost { .. } => "its header is lost".to_owned(),
            // An administrator's link in the place of a file that is never sealed.
            Seen::Dangling(_)
                if matches!(entry.class.policy(), Policy::Plain(_))
                    && !entry.rel.starts_with("pg_tblspc") =>
            {
                return None;
            }
            Seen::Dangling(target) => format!("a link that leads nowhere ({})", target.display()),
            Seen::Gone => "it vanished while it was looked at".to_owned(),
            Seen::Special if fs::symlink_metadata(&entry.path).is_ok_and(|meta| !meta.is_dir()) => {
                return None;
            }
            Seen::Special => "a directory that is nested too deep".to_owned(),
            Seen::Sealed(_) | Seen::Empty | Seen::Plain => return None,
        };
        Some((entry.rel.clone(), why))
    })
}

/// A WAL directory or tablespace that seems not to be mounted: it is empty.
fn absent(dir: &DataDir) -> Option<(PathBuf, String)> {
    if !tree::holds_wal(&dir.root.join("pg_wal")) {
        return Some(("pg_wal".into(), "it holds no WAL (is it mounted?)".to_owned()));
    }
    let prefix = format!("PG_{}_", dir.major.as_deref().unwrap_or_default());
    let spaces = match fs::read_dir(dir.root.join("pg_tblspc")) {
        Ok(spaces) => spaces,
        Err(error) => return Some(("pg_tblspc".into(), format!("not readable ({error})"))),
    };
    let mut paths = spaces.flatten().map(|item| item.path());
    let path = paths.find(|path| !tree::holds_version(path, &prefix))?;
    let rel = path.strip_prefix(&dir.root).unwrap_or(&path).to_owned();
    Some((rel, format!("a tablespace without a directory {prefix}* (is it mounted?)")))
}

fn list(numbers: &[u32]) -> String {
    let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
    format!("generation {}", numbers.join(", "))
}
