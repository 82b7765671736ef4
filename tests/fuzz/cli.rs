//! The bodies of the fuzz targets for the program's own parsers: of small files in a data
//! directory, and of the settings that it changes in a configuration file. The unit tests of
//! `pgseal-cli` run them on a stable toolchain.
//!
//! pgseal does not parse `postmaster.opts`: it asks the kernel for the options of a server.
//!
//! A crate that includes this file must have the program's modules `conf_text`, `control_data`,
//! `proc` and `server_files` at its root.

#![allow(clippy::unwrap_used)]

use crate::control_data::ControlData;
use crate::proc;
use crate::{conf_text, server_files};

/// Parses any bytes as `postmaster.pid`, as `PG_VERSION`, and as the files of a process in `/proc`.
/// An accepted version is not a path, and an accepted process number is a number.
pub fn server_files(data: &[u8]) {
    let options = proc::options(data);
    assert!(options.iter().all(|word| !word.is_empty() && !word.contains('\0')));
    assert!(options.len() <= data.len());
    assert!(!proc::variable(data, "PGSEAL_PROGRAMS").is_some_and(|value| value.is_empty()));
    let Ok(text) = core::str::from_utf8(data) else { return };
    if let Some(pid) = server_files::pid_of(text) {
        let first = text.lines().next().unwrap().trim();
        assert_eq!(first.trim_start_matches(['+', '-', '0']), shown(pid));
        assert!(pid <= 1 << 31);
    }
    if server_files::is_major(text) {
        assert!(text.len() <= 8 && !text.contains('/') && !text.contains(".."));
        assert!(text.starts_with(|first: char| first.is_ascii_digit()));
    }
    if let Some((path, _)) = proc::mapped_library(text) {
        assert!(path.is_absolute() && path.ends_with("libpgseal.so"));
    }
    let _ = (proc::soft_limit(text, "Max core file size"), proc::key_memory(text));
    let _ = proc::parent(text);
    assert!(proc::swaps(text).iter().all(|(name, kind)| !name.is_empty() && !kind.is_empty()));
}

/// A number without its leading zeros.
fn shown(pid: u32) -> String {
    if pid == 0 { String::new() } else { pid.to_string() }
}

/// Parses any text as the output of `pg_controldata`. The text contains the parsed numbers.
pub fn control(data: &[u8]) {
    let Ok(text) = core::str::from_utf8(data) else { return };
    let Some(control) = ControlData::parse(text) else { return };
    for number in [control.block_len, control.checksum_version, control.facts.catalog_version] {
        assert!(number == 0 || text.contains(&number.to_string()));
    }
    assert!(text.contains(&control.state));
    assert_eq!(control.facts.checksums, control.checksum_version == 1);
    assert!(!control.is_clean() || text.contains("shut down"));
    let _ = control.full_page_writes;
}

/// Edits any text as `postgresql.conf`: the guard module is added once to the preloaded libraries,
/// and removing it restores the text.
pub fn conf(data: &[u8]) {
    let Ok(text) = core::str::from_utf8(data) else { return };
    if let Some(dir) = conf_text::data_directory(text) {
        assert!(text.contains(dir) && !dir.contains(['\'', '\n']));
    }
    let before = conf_text::preloaded(text);
    let without = conf_text::without_guard(text);
    assert_eq!(conf_text::without_guard(&without), without, "once is enough");
    let Some(with) = conf_text::with_guard(text, "pgseal_guard") else {
        assert!(before.unwrap().contains("pgseal_guard"));
        return;
    };
    assert!(with.starts_with(text));
    assert_eq!(conf_text::with_guard(&with, "/usr/lib/pgseal_guard.so"), None);
    let after = conf_text::preloaded(&with).unwrap();
    let others = before.unwrap_or_default();
    match others.as_str() {
        "" => assert_eq!(after, "pgseal_guard"),
        others => assert_eq!(after, format!("pgseal_guard,{others}")),
    }
    // An earlier, overridden setting may have named the guard module before.
    if without == text {
        let newline = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        assert_eq!(conf_text::without_guard(&with), format!("{text}{newline}"));
    }
}
