//! The guard module in the server's configuration.

use std::fs;
use std::io;
use std::path::Path;

use crate::error::CliError;
use crate::{conf_text, rewrite, small_file};

/// Adds the guard module before the modules that a configuration file preloads, unless it is there.
/// Returns whether the file was changed.
pub fn add(path: &Path, guard: &str) -> Result<bool, CliError> {
    let text = read(path)?;
    match conf_text::with_guard(&text, guard) {
        Some(text) => rewrite::replace(path, &text).map(|()| true),
        None => Ok(false),
    }
}

/// Switches `wal_log_hints` on in a configuration file, unless it is on there.
pub fn log_hints(path: &Path) -> Result<(), CliError> {
    match conf_text::with_log_hints(&read(path)?) {
        Some(text) => rewrite::replace(path, &text),
        None => Ok(()),
    }
}

/// Takes the guard module out of a configuration file; the rest stays as it is.
pub fn remove(path: &Path) -> Result<(), CliError> {
    let text = read(path)?;
    let without = conf_text::without_guard(&text);
    if without == text {
        return Ok(());
    }
    rewrite::replace(path, &without)
}

/// Whether `postgresql.auto.conf` sets `shared_preload_libraries`. The server makes it as a regular
/// file; a link is refused, since pgseal would write to another file through it.
pub fn sets_preload(path: &Path) -> Result<bool, CliError> {
    if fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink()) {
        return Err(CliError::NotNow(format!(
            "{}: it is a link, which no server makes; put the file itself there, then run the same \
             command again",
            path.display()
        )));
    }
    match small_file::read_text(path) {
        Ok(text) => Ok(conf_text::preloaded(&text).is_some()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(CliError::io(path, "read the configuration")(error)),
    }
}

fn read(path: &Path) -> Result<String, CliError> {
    small_file::read_text(path).map_err(CliError::io(path, "read the configuration"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(before: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("postgresql.conf");
        fs::write(&path, before).unwrap();
        add(&path, "pgseal_guard").unwrap();
        let added = fs::read_to_string(&path).unwrap();
        // Adding it again changes nothing, and removing it restores the text.
        add(&path, "/usr/lib/pgseal_guard.so").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), added);
        remove(&path).unwrap();
        let newline = if before.is_empty() || before.ends_with('\n') { "" } else { "\n" };
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{before}{newline}"));
        conf_text::preloaded(&added).unwrap()
    }

    #[test]
    fn the_guard_is_added_to_an_untouched_file() {
        assert_eq!(
            after("#shared_preload_libraries = ''\t# (change requires restart)\n"),
            "pgseal_guard"
        );
        assert_eq!(after("work_mem = 4MB"), "pgseal_guard");
        assert_eq!(after(""), "pgseal_guard");
    }

    #[test]
    fn a_link_in_the_place_of_the_servers_own_file_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (auto, victim) = (dir.path().join("postgresql.auto.conf"), dir.path().join("victim"));
        fs::write(&victim, "shared_preload_libraries = 'x'\n").unwrap();
        std::os::unix::fs::symlink(&victim, &auto).unwrap();
        let error = sets_preload(&auto).unwrap_err();
        assert!(error.to_string().contains("it is a link"), "{error}");
        fs::remove_file(&auto).unwrap();
        assert!(!sets_preload(&auto).unwrap());
        fs::rename(&victim, &auto).unwrap();
        assert!(sets_preload(&auto).unwrap());
    }

    #[test]
    fn what_was_preloaded_stays() {
        assert_eq!(
            after("shared_preload_libraries = 'pg_stat_statements, auto_explain' # x\n"),
            "pgseal_guard,pg_stat_statements, auto_explain"
        );
        assert_eq!(
            after("Shared_Preload_Libraries auto_explain # x\n"),
            "pgseal_guard,auto_explain"
        );
        assert_eq!(after("shared_preload_libraries = ''\n"), "pgseal_guard");
    }
}
