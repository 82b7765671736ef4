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

/// Refuses a gcm or ctr suite without data checksums and full-page writes: its torn pages are
/// repaired from full-page images, which exist for every page only with data checksums.
pub fn check_checksums(
    suite: Suite,
    asked_for: bool,
    options: &[OsString],
    major: &str,
) -> Result<(), CliError> {
    if !suite.needs_full_page_images() {
        return Ok(());
    }
    let has = |wanted: &[&str]| texts(options).any(|option| wanted.contains(&option.as_str()));
    if has(&["--no-data-checksums"]) {
        return Err(CliError::Settings(format!(
            "initdb: {suite} needs data checksums; leave --no-data-checksums out, \
             or use --suite aes-256-xts"
        )));
    }
    let settings: Vec<String> =
        texts(options).map(|option| option.replace([' ', '\''], "").to_lowercase()).collect();
    let off = |text: &&String| {
        let value = text.rsplit_once("full_page_writes=").map(|(_, value)| value);
        value.is_some_and(|value| matches!(value, "off" | "false" | "no" | "0" | "f" | "n"))
    };
    if let Some(setting) = settings.iter().find(off) {
        return Err(CliError::Settings(format!(
            "initdb: {suite} needs full_page_writes = on; leave {setting} out, \
             or use --suite aes-256-xts"
        )));
    }
    let by_default = major.parse::<u32>().is_ok_and(|major| major >= CHECKSUMS_BY_DEFAULT);
    if asked_for || by_default || has(&["-k", "--data-checksums"]) {
        return Ok(());
    }
    Err(CliError::Settings(format!(
        "initdb: {suite} needs data checksums, and PostgreSQL {major} has them off by default; \
         add -k, or use --suite aes-256-xts"
    )))
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

    fn check(suite: Suite, k: bool, options: &[&str], major: &str) -> Result<(), CliError> {
        let options: Vec<OsString> = options.iter().map(OsString::from).collect();
        check_checksums(suite, k, &options, major)
    }

    #[test]
    fn gcm_and_ctr_want_checksums() {
        for suite in [Suite::Aes256Gcm, Suite::Aes192Ctr] {
            assert!(check(suite, false, &[], "15").is_err());
            assert!(check(suite, true, &[], "15").is_ok());
            assert!(check(suite, false, &["-k"], "15").is_ok());
            assert!(check(suite, false, &["--data-checksums"], "17").is_ok());
            assert!(check(suite, false, &[], "18").is_ok());
            assert!(check(suite, false, &["--no-data-checksums"], "18").is_err());
        }
        assert!(check(Suite::Aes256Xts, false, &["--no-data-checksums"], "18").is_ok());
        assert!(check(Suite::Aes128Xts, false, &[], "15").is_ok());
    }

    #[test]
    fn full_page_writes_stay_on() {
        for setting in ["full_page_writes=off", "full_page_writes = 'FALSE'"] {
            assert!(check(Suite::Aes256Gcm, true, &["-c", setting], "16").is_err(), "{setting}");
            assert!(check(Suite::Aes256Xts, true, &["-c", setting], "16").is_ok());
        }
        assert!(check(Suite::Aes256Gcm, true, &["-c", "full_page_writes=on"], "16").is_ok());
    }

    #[test]
    fn the_directory_is_given_to_pgseal() {
        for option in ["-D", "-D/x", "--pgdata", "--pgdata=/x"] {
            assert!(refuse_directory(&[option.into()]).is_err());
        }
        assert!(refuse_directory(&["--locale=C".into()]).is_ok());
    }
}
