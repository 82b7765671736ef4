//! Checks the options for initdb itself: some are refused, some suites need others.

use std::ffi::OsString;

use pgseal_core::Suite;

use crate::error::CliError;

/// The first version in which initdb switches data checksums on by itself.
const CHECKSUMS_BY_DEFAULT: u32 = 18;

/// Refuses the options that name the data directory: pgseal gives them itself.
pub fn refuse_directory(options: &[OsString]) -> Result<(), CliError> {
    for option in texts(options) {
        if option.starts_with("-D") || option == "--pgdata" || option.starts_with("--pgdata=") {
            return Err(CliError::Usage(format!(
                "initdb: {option} behind --: give the directory before the --, \
                 as in: pgseal initdb -k -K PROVIDER DIR -- ..."
            )));
        }
    }
    Ok(())
}

/// Why the new server writes a full-page image when only hint bits of a page change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HintBits {
    /// It need not: no page of the suite is torn.
    NotNeeded,
    /// Because it has data checksums.
    Checksums,
    /// Because `wal_log_hints` is on; that line must be in its configuration.
    WalLogHints,
}

/// What initdb is told about data checksums, by pgseal's own options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// `-k`.
    On,
    /// `--no-data-checksums`.
    Off,
    /// Nothing: what the options for initdb say, or the default of the major version.
    Default,
}

/// How the new server will have full-page images of every page that a crash can tear. Refuses a
/// ctr suite without data checksums, and settings that are off and must not be.
pub fn hint_bits(
    suite: Suite,
    asked: Asked,
    options: &[OsString],
    major: &str,
) -> Result<HintBits, CliError> {
    if !suite.needs_full_page_images() {
        return Ok(HintBits::NotNeeded);
    }
    let checksums = if asked == Asked::Off || has(options, &OFF) {
        false
    } else {
        asked == Asked::On || on_by_default(major) || has(options, &ON)
    };
    if let Some(setting) = switched_off("full_page_writes", options) {
        return Err(CliError::Settings(format!(
            "initdb: {suite} needs full_page_writes = on; leave {setting} out, \
             or use --suite aes-256-xts"
        )));
    }
    if checksums {
        return Ok(HintBits::Checksums);
    }
    if suite.needs_data_checksums() {
        return Err(CliError::Settings(format!(
            "initdb: {suite} needs data checksums; use -k, or --suite aes-256-gcm"
        )));
    }
    if let Some(setting) = switched_off("wal_log_hints", options) {
        return Err(CliError::Settings(format!(
            "initdb: {suite} without data checksums needs wal_log_hints = on; leave {setting} out, \
             or use -k, or --suite aes-256-xts"
        )));
    }
    Ok(HintBits::WalLogHints)
}

/// initdb's options for data checksums, and against them.
const ON: [&str; 2] = ["-k", "--data-checksums"];
const OFF: [&str; 1] = ["--no-data-checksums"];

/// Whether the options for initdb say whether there are data checksums.
pub fn name_checksums(options: &[OsString]) -> bool {
    has(options, &ON) || has(options, &OFF)
}

fn has(options: &[OsString], wanted: &[&str]) -> bool {
    texts(options).any(|option| wanted.contains(&option.as_str()))
}

/// Whether initdb of this major version switches data checksums on by itself.
pub fn on_by_default(major: &str) -> bool {
    major.parse::<u32>().is_ok_and(|major| major >= CHECKSUMS_BY_DEFAULT)
}

/// The option that switches a setting off (`-c NAME=off`), without quotes and spaces.
fn switched_off(name: &str, options: &[OsString]) -> Option<String> {
    texts(options).map(|option| option.replace([' ', '\''], "").to_lowercase()).find(|text| {
        let value = text.rsplit_once(name).and_then(|(_, rest)| rest.strip_prefix('='));
        value.is_some_and(|value| matches!(value, "off" | "false" | "no" | "0" | "f" | "n"))
    })
}

/// Whether initdb was told to keep its files after a failure.
pub fn no_clean(options: &[OsString]) -> bool {
    texts(options).any(|option| option == "-n" || option == "--no-clean")
}

fn texts(options: &[OsString]) -> impl Iterator<Item = String> + '_ {
    options.iter().map(|option| option.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(suite: Suite, asked: Asked, options: &[&str], major: &str) -> Option<HintBits> {
        let options: Vec<OsString> = options.iter().map(OsString::from).collect();
        hint_bits(suite, asked, &options, major).ok()
    }

    #[test]
    fn gcm_has_checksums_or_wal_log_hints() {
        let gcm = |asked, options: &[&str], major| check(Suite::Aes256Gcm, asked, options, major);
        for (asked, options, major) in [
            (Asked::On, &[][..], "15"),
            (Asked::Default, &["-k"], "15"),
            (Asked::Default, &["--data-checksums"], "17"),
            (Asked::Default, &[], "18"),
        ] {
            assert_eq!(gcm(asked, options, major), Some(HintBits::Checksums));
        }
        for (asked, options, major) in [
            (Asked::Default, &[][..], "15"),
            (Asked::Off, &[], "18"),
            (Asked::Default, &["--no-data-checksums"], "18"),
            (Asked::Off, &["-c", "wal_log_hints=on"], "17"),
        ] {
            assert_eq!(gcm(asked, options, major), Some(HintBits::WalLogHints));
        }
        assert_eq!(gcm(Asked::Off, &["-c", "wal_log_hints = off"], "18"), None);
    }

    #[test]
    fn ctr_wants_checksums_and_xts_nothing() {
        assert_eq!(check(Suite::Aes192Ctr, Asked::Default, &[], "15"), None);
        assert_eq!(check(Suite::Aes192Ctr, Asked::Off, &[], "18"), None);
        let ctr = check(Suite::Aes192Ctr, Asked::Default, &[], "18");
        assert_eq!(ctr, Some(HintBits::Checksums));
        for suite in [Suite::Aes128Xts, Suite::Aes256Xts] {
            assert_eq!(check(suite, Asked::Off, &[], "18"), Some(HintBits::NotNeeded));
        }
    }

    #[test]
    fn full_page_writes_stay_on() {
        for setting in ["full_page_writes=off", "full_page_writes = 'FALSE'"] {
            assert_eq!(check(Suite::Aes256Gcm, Asked::On, &["-c", setting], "16"), None);
            assert!(check(Suite::Aes256Xts, Asked::On, &["-c", setting], "16").is_some());
        }
        let on = check(Suite::Aes256Gcm, Asked::On, &["-c", "full_page_writes=on"], "16");
        assert_eq!(on, Some(HintBits::Checksums));
    }

    #[test]
    fn the_directory_is_given_to_pgseal() {
        for option in ["-D", "-D/x", "--pgdata", "--pgdata=/x"] {
            assert!(refuse_directory(&[option.into()]).is_err());
        }
        assert!(refuse_directory(&["--locale=C".into()]).is_ok());
    }
}
