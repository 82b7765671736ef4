//! `pgseal helper places`: where `pgseal-lab` finds PostgreSQL, the library and the guard module.

use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::CliError;
use crate::out::Out;
use crate::{bindir, library};

/// The answer, as JSON. What was not found is `null`; the command that needs it says what to do.
#[derive(Debug, serde::Serialize)]
struct Places {
    /// Directory of PostgreSQL's programs.
    bindir: Option<PathBuf>,
    /// Its major version.
    major: Option<u32>,
    /// `libpgseal.so`.
    library: Option<PathBuf>,
    /// `pgseal_guard.so` for this PostgreSQL, if it is not where the server looks for its modules.
    guard: Option<PathBuf>,
}

/// Prints them, for the PostgreSQL in `given`, else for the newest one.
pub fn run(given: Option<&Path>) -> Result<(), CliError> {
    let bindir = match given {
        Some(dir) => Some(dir.to_owned()),
        None => bindir::initdb(None).ok().and_then(|path| path.parent().map(Path::to_owned)),
    };
    let major = bindir.as_deref().and_then(|dir| bindir::major_of(&dir.join("initdb")).ok());
    let guard = bindir.as_deref().zip(major.as_deref()).and_then(|(dir, major)| guard(dir, major));
    let major = major.and_then(|major| major.parse().ok());
    let mut out = Out::new();
    out.json(&Places { bindir, major, library: library::library().ok(), guard })?;
    out.flush()?;
    Ok(())
}

fn guard(bindir: &Path, major: &str) -> Option<PathBuf> {
    let pkglibdir = bindir::ask_pg_config(&bindir.join("pg_config"), "--pkglibdir");
    let guard = PathBuf::from(library::guard(major, pkglibdir.as_deref()).ok()?);
    guard.is_absolute().then_some(guard)
}
