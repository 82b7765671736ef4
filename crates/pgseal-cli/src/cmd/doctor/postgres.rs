//! Checks of the server: version, processes, library.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pgseal_core::capacity::{WATCHED_GB, gb_of};
use pgseal_pgdata::Class;

use super::context::Context;
use super::verdict::{Verdict, fail, ok, skip, warn};
use crate::library;
use crate::proc;

/// The bytes before the version in the file of the library.
const MARK: &[u8] = b"pgseal-library-version:";
const OWN_VERSION: &str = env!("CARGO_PKG_VERSION");

pub fn version(context: &Context) -> Verdict {
    let Some(major) = &context.dir.major else { return fail("there is no PG_VERSION") };
    judge_version(major)
}

fn judge_version(major: &str) -> Verdict {
    match major.parse::<u32>() {
        Ok(15..=18) => ok(format!("PostgreSQL {major}")),
        Ok(19) => warn("PostgreSQL 19: tested as far as its release candidate goes"),
        _ => fail(format!("PostgreSQL {major}: pgseal was never tested with it")),
    }
}

pub fn server(context: &Context) -> Verdict {
    let Some(pid) = context.server_pid else {
        return ok("no server runs; what only a running one shows is skipped");
    };
    if proc::read(pid, "maps").is_none() {
        return warn(format!("process {pid}, which this user may not look at"));
    }
    ok(format!("process {pid} and {} children", context.processes.len().saturating_sub(1)))
}

pub fn library(_: &Context) -> Verdict {
    match library::library() {
        Ok(path) => ok(path.display().to_string()),
        Err(error) => fail(error.to_string()),
    }
}

pub fn library_version(context: &Context) -> Verdict {
    if let Some(pid) = context.server_pid
        && let Some((path, replaced)) =
            proc::read(pid, "maps").as_deref().and_then(proc::mapped_library)
    {
        if replaced {
            let path = path.display();
            return warn(format!("{path} was replaced after the server had started with it"));
        }
        return compare(&path);
    }
    match library::library() {
        Ok(path) => compare(&path),
        Err(_) => skip("there is no library"),
    }
}

fn compare(path: &Path) -> Verdict {
    let Ok(bytes) = fs::read(path) else {
        return skip(format!("{} cannot be read", path.display()));
    };
    judge_library(path, mark(&bytes).as_deref())
}

fn judge_library(path: &Path, version: Option<&str>) -> Verdict {
    let path = path.display();
    match version {
        Some(OWN_VERSION) => ok(format!("{path}: {OWN_VERSION}")),
        Some(other) => fail(format!("{path}: {other}, and the program is {OWN_VERSION}")),
        None => fail(format!("{path}: names no version; it is older than 0.1.0, or not pgseal's")),
    }
}

/// The version in the bytes of a library.
fn mark(bytes: &[u8]) -> Option<String> {
    let at = bytes.windows(MARK.len()).position(|window| window == MARK)? + MARK.len();
    let version = bytes.get(at..)?.split(|byte| *byte == 0).next()?;
    String::from_utf8(version.to_vec()).ok()
}

pub fn library_loaded(context: &Context) -> Verdict {
    if context.server_pid.is_none() {
        return skip("no server runs");
    }
    let read = |pid| proc::read(pid, "maps");
    let has_none = |text: &String| proc::mapped_library(text).is_none();
    // The maps of a process that is ending may be read in part: read again, then they are empty.
    let look = |pid| read(pid).filter(|text| !has_none(text)).or_else(|| read(pid));
    let maps: Vec<(u32, Option<String>)> =
        context.processes.iter().map(|pid| (*pid, look(*pid))).collect();
    judge_loaded(&maps)
}

/// `maps`: those of each process, if they could be read; a process that has ended has none.
fn judge_loaded(maps: &[(u32, Option<String>)]) -> Verdict {
    let read: Vec<(u32, &String)> =
        maps.iter().filter_map(|(pid, text)| Some((*pid, text.as_ref()?))).collect();
    // A process that is ending has empty maps.
    let live = read.iter().filter(|(_, text)| !text.is_empty());
    let bare: Vec<String> = live
        .clone()
        .filter(|(_, text)| proc::mapped_library(text).is_none())
        .map(|(pid, _)| pid.to_string())
        .collect();
    match (live.count(), bare.is_empty()) {
        (0, _) => skip("this user may not look at the server's processes"),
        (count, true) => ok(format!("in all {count} processes")),
        (_, false) => fail(format!("not in process {}", bare.join(", "))),
    }
}

/// Starts the program with the library, which audits it first.
pub fn audit(context: &Context) -> Verdict {
    let (Some(postgres), Ok(library)) = (&context.postgres, library::library()) else {
        return skip("the program postgres or the library was not found");
    };
    let mut command = Command::new(postgres);
    command.arg("--version").env("LD_PRELOAD", library::preload(&library, None));
    let output = crate::child::output(&mut command);
    match output {
        Ok(output) if output.status.success() => {
            let printed = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            ok(format!("{}: {printed}", postgres.display()))
        }
        Ok(output) => {
            let printed = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            fail(format!("{}: {printed}", postgres.display()))
        }
        Err(error) => skip(format!("{}: {error}", postgres.display())),
    }
}

/// Judges the environment of the running server.
fn of_server(context: &Context, judge: impl FnOnce(&[u8]) -> Verdict) -> Verdict {
    let Some(pid) = context.server_pid else { return skip("no server runs") };
    match fs::read(format!("/proc/{pid}/environ")) {
        Ok(environ) => judge(&environ),
        Err(error) => skip(format!("the server's environment: {error}")),
    }
}

pub fn environment(context: &Context) -> Verdict {
    of_server(context, judge_environment)
}

fn judge_environment(environ: &[u8]) -> Verdict {
    let mut saw = Vec::new();
    if let Some(names) = proc::variable(environ, "PGSEAL_PROGRAMS") {
        saw.push(format!("PGSEAL_PROGRAMS lets {names} see plain content"));
    }
    if proc::variable(environ, "PGSEAL_UNSEALED_COPY").as_deref() == Some("yes") {
        saw.push("PGSEAL_UNSEALED_COPY lets pg_basebackup write plain copies".to_owned());
    }
    let pinned = match proc::variable(environ, "PGSEAL_KEYRING_ID") {
        Some(_) => "the server serves no other cluster (PGSEAL_KEYRING_ID)",
        None => "PGSEAL_KEYRING_ID is not set: it would serve another cluster's directory, too",
    };
    match saw.is_empty() {
        true => ok(format!("only PostgreSQL's own programs see plain content; {pinned}")),
        false => warn(format!("{}; {pinned}", saw.join("; "))),
    }
}

pub fn anchor(context: &Context) -> Verdict {
    of_server(context, judge_anchor)
}

fn judge_anchor(environ: &[u8]) -> Verdict {
    match proc::variable(environ, "PGSEAL_ANCHOR") {
        // What stands behind the colon may hold secrets.
        Some(store) => ok(format!(
            "the anchor is in a store of the kind {}:",
            store.split(':').next().unwrap_or_default()
        )),
        None => skip("PGSEAL_ANCHOR is not set: an older copy of the whole directory would start"),
    }
}

pub fn accelerators(context: &Context) -> Verdict {
    of_server(context, judge_accelerators)
}

fn judge_accelerators(environ: &[u8]) -> Verdict {
    match proc::variable(environ, "PGSEAL_ACCELERATORS").as_deref() {
        Some("off") => {
            warn("PGSEAL_ACCELERATORS=off: each tag is read and written by a call of its own")
        }
        _ => ok("the accelerators are on"),
    }
}

pub fn watched_pages(context: &Context) -> Verdict {
    let is_relation = |class: Class| matches!(class, Class::Relation { temporary: false, .. });
    let entries = context.scan.entries.iter().filter(|entry| is_relation(entry.class));
    let relations_len = entries.map(|entry| entry.len).sum();
    of_server(context, |environ| judge_watched_pages(environ, relations_len))
}

/// `relations_len`: the sealed length of all files of relations, in bytes.
fn judge_watched_pages(environ: &[u8], relations_len: u64) -> Verdict {
    let set = proc::variable(environ, "PGSEAL_WATCHED_GB");
    let gib = set.and_then(|text| gb_of(text.as_bytes())).unwrap_or(WATCHED_GB);
    let relations_gib = relations_len.div_ceil(1 << 30);
    if gib == 0 {
        warn(
            "PGSEAL_WATCHED_GB=0: neither an older page with its tag nor a file that was cut is noticed while the server runs",
        )
    } else if relations_gib > gib {
        warn(format!(
            "the relations have {relations_gib} GiB, the versions of {gib} GiB of pages are remembered: older pages of the rest may not be noticed while the server runs"
        ))
    } else {
        ok(format!("the versions of {gib} GiB of pages, and the relations are smaller"))
    }
}

pub fn modules(context: &Context) -> Verdict {
    of_server(context, judge_modules)
}

fn judge_modules(environ: &[u8]) -> Verdict {
    match proc::variable(environ, "PGSEAL_ALLOW_MODULES") {
        None => ok("no module is let in unseen"),
        Some(names) => warn(format!(
            "PGSEAL_ALLOW_MODULES lets in {names}, whatever file calls they make; the server's log says which"
        )),
    }
}

/// Whether the server's environment switches the guard module off.
pub fn guard_is_off(context: &Context) -> bool {
    let environ = context.server_pid.and_then(|pid| fs::read(format!("/proc/{pid}/environ")).ok());
    environ
        .is_some_and(|environ| proc::variable(&environ, "PGSEAL_GUARD").as_deref() == Some("off"))
}

/// The name of a program, for `shared_preload_libraries`.
pub fn file_stem(path: &str) -> String {
    let path = PathBuf::from(path.trim().trim_matches('"'));
    path.file_stem().and_then(OsStr::to_str).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::verdict::State;
    use super::*;

    #[test]
    fn watched_pages_are_judged() {
        const GIB: u64 = 1 << 30;
        let of = |environ: &str, len| judge_watched_pages(environ.as_bytes(), len);
        assert_eq!(of("A=b\0", 16 * GIB).state, State::Ok);
        let more = of("A=b\0", 16 * GIB + 1);
        assert!(more.state == State::Warn && more.saw.contains("17 GiB"), "{more:?}");
        // The server rounds up to a power of two, and takes what cannot be read as not set.
        assert_eq!(of("PGSEAL_WATCHED_GB=17\0", 32 * GIB).state, State::Ok);
        assert_eq!(of("PGSEAL_WATCHED_GB=2\0", 3 * GIB).state, State::Warn);
        assert_eq!(of("PGSEAL_WATCHED_GB=lots\0", 16 * GIB).state, State::Ok);
        assert_eq!(of("PGSEAL_WATCHED_GB=18446744073709551615\0", 17 * GIB).state, State::Warn);
        let none = of("PGSEAL_WATCHED_GB=0\0", 0);
        assert!(none.state == State::Warn && none.saw.contains("PGSEAL_WATCHED_GB=0"), "{none:?}");
    }

    #[test]
    fn versions_are_judged() {
        assert_eq!(judge_version("15").state, State::Ok);
        assert_eq!(judge_version("19").state, State::Warn);
        for bad in ["14", "9.6", "20", ""] {
            assert_eq!(judge_version(bad).state, State::Fail, "{bad}");
        }
    }

    #[test]
    fn a_process_without_the_library_is_named() {
        let with = || Some("1-2 r-xp 0 0:0 7 /l/libpgseal.so\n".to_owned());
        let without = || Some("1-2 r-xp 0 0:0 7 /bin/postgres\n".to_owned());
        assert_eq!(judge_loaded(&[(1, with()), (2, with())]).state, State::Ok);
        let verdict = judge_loaded(&[(1, with()), (2, without()), (3, None)]);
        assert_eq!((verdict.state, verdict.saw.as_str()), (State::Fail, "not in process 2"));
        assert_eq!(judge_loaded(&[(1, None)]).state, State::Skipped);
        assert_eq!(judge_loaded(&[(1, with()), (2, Some(String::new()))]).state, State::Ok);
    }

    #[test]
    fn the_version_of_a_library_is_found() {
        let bytes = [b"xx\0pgseal-library-version:", OWN_VERSION.as_bytes(), b"\0yy"].concat();
        assert_eq!(mark(&bytes).as_deref(), Some(OWN_VERSION));
        assert_eq!(mark(b"nothing"), None);
        let path = Path::new("/l");
        assert_eq!(judge_library(path, Some(OWN_VERSION)).state, State::Ok);
        assert_eq!(judge_library(path, Some("0.0.9")).state, State::Fail);
        assert_eq!(judge_library(path, None).state, State::Fail);
    }

    #[test]
    fn variables_that_open_doors_are_named() {
        assert_eq!(judge_environment(b"A=1\0").state, State::Ok);
        let verdict = judge_environment(b"PGSEAL_PROGRAMS=tar\0PGSEAL_UNSEALED_COPY=yes\0");
        assert_eq!(verdict.state, State::Warn);
        assert!(verdict.saw.contains("tar") && verdict.saw.contains("pg_basebackup"));
        assert!(verdict.saw.contains("is not set"), "{}", verdict.saw);
        assert!(judge_environment(b"PGSEAL_KEYRING_ID=aa\0").saw.contains("no other cluster"));
        for (environ, state) in [
            (&b"A=1\0"[..], State::Ok),
            (b"PGSEAL_ACCELERATORS=on\0", State::Ok),
            (b"A=1\0PGSEAL_ACCELERATORS=off\0", State::Warn),
        ] {
            assert_eq!(judge_accelerators(environ).state, state);
        }
        assert_eq!(judge_modules(b"A=1\0").state, State::Ok);
        let verdict = judge_modules(b"PGSEAL_ALLOW_MODULES=plx.so\0");
        assert_eq!(verdict.state, State::Warn);
        assert!(verdict.saw.contains("plx.so"));
    }
}
