//! `pg_upgrade` copies, links and moves files from one data directory into another, some of them
//! through `cp`, which sees sealed bytes: sealed files arrive with their old headers. So both
//! directories must be sealed with the same keyring. This is checked before pg_upgrade does
//! anything.

use core::ffi::c_int;

use crate::keys::load;
use crate::os::log;
use crate::os::sys;
use crate::place::datadir::{self, Root, absolute, join, sealed_root, shown};
use crate::place::program::{self, Role};

const NEW_FOR_OLD: &str = "make the new one with \"pgseal initdb --keyring-of OLD NEW\"";

/// Ends a `pg_upgrade` whose result would be plain or unreadable.
pub fn check_program() {
    if program::role() != Role::Upgrade {
        return;
    }
    let arguments = program::arguments();
    if let Err(text) = check(&arguments) {
        log::line(format_args!("FATAL: pg_upgrade: {text}"));
        // SAFETY: ends the process before it has done anything.
        unsafe { libc::_exit(1) };
    }
}

fn check(arguments: &[Vec<u8>]) -> Result<(), String> {
    if asks_for_help(arguments) {
        return Ok(());
    }
    let (Some(old), Some(new)) = directories(arguments) else {
        return Err("which data directories? give each of them in an option of its own, \
            -d OLD and -D NEW (or --old-datadir and --new-datadir, written out)"
            .to_owned());
    };
    let (old, new) = (absolute(&old), absolute(&new));
    for dir in [&old, &new] {
        let has = |name| sys::c_path(&join(dir, name)).is_ok_and(|path| sys::stat(&path).is_some());
        if has(b"postgresql.conf") && !has(b"PG_VERSION") {
            return Err(format!(
                "\"{}\" has only the configuration; name the data directory itself, and the \
                 configuration with -o or -O \"-c config_file=...\"",
                shown(dir)
            ));
        }
    }
    match (sealed_root(&old), sealed_root(&new)) {
        (None, None) => Ok(()),
        (Some(old), Some(new)) => match same_keyring(old, new) {
            Ok(true) => Ok(()),
            Ok(false) => {
                Err(format!("the two data directories have different keyrings; {NEW_FOR_OLD}"))
            }
            Err(_) => Err("the keys cannot be had; see the message above".to_owned()),
        },
        (Some(_), None) => Err(format!(
            "the old data directory is sealed and the new one is not, so rows would be written \
             plain; {NEW_FOR_OLD}. Plain rows are to be had afterwards, by \
             \"PGSEAL_UNSEALED_COPY=yes pgseal run -- pg_basebackup\" or a dump"
        )),
        (None, Some(_)) => Err("the new data directory is sealed and the old one is not; upgrade \
            into a plain one and seal that (docs/convert.md), or seal the old one first"
            .to_owned()),
    }
}

fn asks_for_help(arguments: &[Vec<u8>]) -> bool {
    let first = arguments.get(1).map(Vec::as_slice);
    matches!(first, None | Some(b"--help" | b"-?" | b"--version" | b"-V"))
}

/// The old and the new data directory, from the options or else from the environment.
fn directories(arguments: &[Vec<u8>]) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    let (mut old, mut new) = (sys::env(c"PGDATAOLD"), sys::env(c"PGDATANEW"));
    let mut rest = arguments.iter().skip(1);
    while let Some(argument) = rest.next() {
        if let Some(value) = program::value_of(argument, b"-d", b"--old-datadir") {
            old = value.or_else(|| rest.next().cloned());
        } else if let Some(value) = program::value_of(argument, b"-D", b"--new-datadir") {
            new = value.or_else(|| rest.next().cloned());
        }
    }
    (old, new)
}

fn same_keyring(old: &Root, new: &Root) -> Result<bool, c_int> {
    Ok(load::of(old)?.keyring_id == load::of(new)?.keyring_id)
}

/// Called before `pg_upgrade` creates a file outside every sealed data directory. Fails if the name
/// begins with a digit, which makes it a relation file and no log or script: the file would be
/// plain, because the sealed data directory is not the one named to pg_upgrade.
pub fn check_creation(path: &[u8]) -> Result<(), c_int> {
    let relation = datadir::base_name(path).first().is_some_and(u8::is_ascii_digit);
    if relation && datadir::has_met_a_root() {
        log::line(format_args!(
            "ERROR: pg_upgrade would write \"{}\" plain, outside the sealed data directory; {NEW_FOR_OLD}",
            shown(path)
        ));
        return Err(libc::EACCES);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> (Option<String>, Option<String>) {
        let arguments: Vec<Vec<u8>> =
            line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        let text = |bytes: Option<Vec<u8>>| bytes.map(|b| String::from_utf8_lossy(&b).into_owned());
        let (old, new) = directories(&arguments);
        (text(old), text(new))
    }

    #[test]
    fn both_directories_are_found_in_every_spelling() {
        let both = (Some("old".to_owned()), Some("new".to_owned()));
        for line in [
            "pg_upgrade -b x -B y -d old -D new --link",
            "pg_upgrade -dold -Dnew",
            "pg_upgrade --old-datadir old --new-datadir=new -k",
        ] {
            assert_eq!(of(line), both, "{line}");
        }
    }

    #[test]
    fn directories_that_are_not_found_are_not_taken_for_plain_ones() {
        let check = |line: &str| {
            let words: Vec<Vec<u8>> =
                line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
            check(&words)
        };
        assert!(check("pg_upgrade --help").is_ok());
        assert!(check("pg_upgrade").is_ok());
        // An abbreviated long option, and an option letter behind another one: getopt_long accepts
        // both.
        for line in ["pg_upgrade --old-data old -D new", "pg_upgrade -vd old -D new"] {
            assert!(check(line).is_err_and(|text| text.starts_with("which data directories?")));
        }
    }
}
