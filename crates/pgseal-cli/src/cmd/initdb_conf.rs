//! The guard module in postgresql.conf.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;

use crate::error::CliError;

const COMMENT: &str = "\
# Added by pgseal: this data directory is sealed. The guard module refuses to start the server
# without libpgseal.so, which would take the sealed files for damaged ones. Keep it first.";

/// Appends the setting, with what the file already names behind the guard.
pub fn add_guard(path: &Path, guard: &str) -> Result<(), CliError> {
    let text = fs::read_to_string(path).map_err(CliError::io(path, "read the configuration"))?;
    let others = last_setting(&text).unwrap_or_default();
    let value = if others.is_empty() { guard.to_owned() } else { format!("{guard},{others}") };
    let mut file = OpenOptions::new()
        .append(true)
        .open(path)
        .map_err(CliError::io(path, "write the configuration"))?;
    let break_before = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    let added = format!("{break_before}\n{COMMENT}\nshared_preload_libraries = '{value}'\n");
    file.write_all(added.as_bytes())
        .and_then(|()| file.sync_all())
        .map_err(CliError::io(path, "write the configuration"))?;
    // So that the name and the length of the file survive a crash together.
    if let Some(dir) = path.parent() {
        File::open(dir)
            .and_then(|dir| dir.sync_all())
            .map_err(CliError::io(dir, "sync the directory"))?;
    }
    Ok(())
}

/// The value of the last `shared_preload_libraries` in the file: the one that counts.
fn last_setting(text: &str) -> Option<String> {
    text.lines().rev().find_map(|line| {
        let line = line.trim_start();
        let name = "shared_preload_libraries";
        let (head, rest) = line.split_at_checked(name.len())?;
        if !head.eq_ignore_ascii_case(name) {
            return None;
        }
        let value = rest.trim_start();
        let value = value.strip_prefix('=').unwrap_or(value).trim_start();
        let value = match value.strip_prefix('\'') {
            Some(quoted) => quoted.split('\'').next().unwrap_or(""),
            None => value.split(['#', ' ', '\t']).next().unwrap_or(""),
        };
        Some(value.trim().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(before: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("postgresql.conf");
        fs::write(&path, before).unwrap();
        add_guard(&path, "pgseal_guard").unwrap();
        last_setting(&fs::read_to_string(path).unwrap()).unwrap()
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
