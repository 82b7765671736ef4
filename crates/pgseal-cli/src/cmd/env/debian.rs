//! The file `environment` of a cluster of postgresql-common, from which `pg_ctlcluster` takes the
//! environment of the server.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::datadir::DataDir;
use crate::error::CliError;
use crate::{cluster, rewrite, small_file};

/// The library, which stands in front of what else is preloaded.
const PRELOAD: &str = "LD_PRELOAD";

/// The file of the cluster that has this data directory.
///
/// # Errors
/// When there is no such cluster.
pub fn file_of(dir: &DataDir) -> Result<PathBuf, CliError> {
    let major = dir.major.as_deref().unwrap_or_default();
    match cluster::debian_config(&dir.root, major) {
        Some(config) => Ok(config.with_file_name("environment")),
        None => Err(CliError::NotNow(format!(
            "{}: no cluster below {} has this data directory; \"pg_createcluster {major} NAME -d {}\" \
             makes one, and --print prints the lines",
            dir.root.display(),
            cluster::debian_config_root().join(major).display(),
            dir.root.display()
        ))),
    }
}

/// Brings the variables into the file. Returns whether it was changed.
///
/// # Errors
/// When the file cannot be read or written.
pub fn write(path: &Path, variables: &[(&str, String)]) -> Result<bool, CliError> {
    let old = match small_file::read_text(path) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(CliError::io(path, "read the cluster's environment")(error)),
    };
    let new = merged(old.as_deref().unwrap_or_default(), variables);
    match old {
        Some(old) if old == new => Ok(false),
        Some(_) => rewrite::replace(path, &new).map(|()| true),
        None => {
            let mut options = OpenOptions::new();
            let file = options.write(true).create_new(true).mode(0o644).open(path);
            let written = file.and_then(|mut file| {
                file.write_all(new.as_bytes())?;
                file.sync_all()
            });
            written.map_err(CliError::io(path, "make the cluster's environment"))?;
            Ok(true)
        }
    }
}

/// One line of the file. A quote inside is doubled (PgCommon.pm, `read_conf_file`).
pub fn line(name: &str, value: &str) -> String {
    format!("{name} = '{}'", value.replace('\'', "''"))
}

/// The text with each variable once: where it stood, else at the end. Other lines stay.
fn merged(text: &str, variables: &[(&str, String)]) -> String {
    let mut done = vec![false; variables.len()];
    let mut lines: Vec<String> = Vec::new();
    for old in text.lines() {
        let found = name_and_value(old).and_then(|(name, value)| {
            let at = variables.iter().position(|(wanted, _)| *wanted == name)?;
            Some((at, value))
        });
        let Some((at, value)) = found else {
            lines.push(old.to_owned());
            continue;
        };
        let (Some((name, wanted)), Some(done)) = (variables.get(at), done.get_mut(at)) else {
            continue;
        };
        // The last of two lines would count: the second one goes.
        if !std::mem::replace(done, true) {
            let wanted = with_other_libraries(name, wanted, &value);
            lines.push(if wanted == value { old.to_owned() } else { line(name, &wanted) });
        }
    }
    for ((name, value), _) in variables.iter().zip(done).filter(|(_, done)| !done) {
        lines.push(line(name, value));
    }
    lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect()
}

/// What else is preloaded stays, behind the library.
fn with_other_libraries(name: &str, wanted: &str, old: &str) -> String {
    if name != PRELOAD {
        return wanted.to_owned();
    }
    let own = Path::new(wanted).file_name();
    let others =
        old.split([':', ' ']).filter(|path| !path.is_empty() && Path::new(path).file_name() != own);
    std::iter::once(wanted).chain(others).collect::<Vec<_>>().join(":")
}

/// The name and the value of a line; `None` for comments and empty lines.
fn name_and_value(line: &str) -> Option<(&str, String)> {
    let line = line.trim_start();
    let end = line.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(line.len());
    let (name, rest) = line.split_at_checked(end).filter(|(name, _)| !name.is_empty())?;
    let rest = rest.trim_start();
    let rest = rest.strip_prefix('=').unwrap_or(rest).trim_start();
    let Some(quoted) = rest.strip_prefix('\'') else {
        return Some((name, rest.split(['#', ' ', '\t']).next().unwrap_or_default().to_owned()));
    };
    let mut value = String::new();
    let mut chars = quoted.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '\'' && chars.next_if_eq(&'\'').is_none() {
            break;
        }
        value.push(c);
    }
    Some((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables() -> Vec<(&'static str, String)> {
        vec![
            ("LD_PRELOAD", "/usr/lib/pgseal/libpgseal.so".to_owned()),
            ("PGSEAL_KEYRING_ID", "00ff".to_owned()),
        ]
    }

    #[test]
    fn a_second_run_changes_nothing() {
        let before =
            "# environment\nLANG = 'C'  # mine\nPGSEAL_KEYRING_ID=old\nPGSEAL_KEYRING_ID = 'x'";
        let once = merged(before, &variables());
        assert_eq!(
            once,
            "# environment\nLANG = 'C'  # mine\nPGSEAL_KEYRING_ID = '00ff'\n\
             LD_PRELOAD = '/usr/lib/pgseal/libpgseal.so'\n"
        );
        assert_eq!(merged(&once, &variables()), once);
    }

    #[test]
    fn another_library_stays_behind_that_of_pgseal() {
        let before = "LD_PRELOAD = '/old/libpgseal.so:/usr/lib/libjemalloc.so.2'\n";
        let once = merged(before, &variables());
        let first = once.lines().next().unwrap();
        let both = "/usr/lib/pgseal/libpgseal.so:/usr/lib/libjemalloc.so.2";
        assert_eq!(first, format!("LD_PRELOAD = '{both}'"));
        assert_eq!(merged(&once, &variables()), once);
    }

    #[test]
    fn quotes_are_read_as_they_are_written() {
        let value = "command:cat 'a b' # no comment";
        assert_eq!(name_and_value(&line("X", value)), Some(("X", value.to_owned())));
        assert_eq!(name_and_value("X=plain # comment"), Some(("X", "plain".to_owned())));
        assert_eq!(name_and_value("  # X = 'y'"), None);
    }
}
