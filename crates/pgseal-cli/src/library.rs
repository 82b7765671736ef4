//! Finds the preloaded library and the guard module, and sets the variables that load the library.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::CliError;

const LIBRARY: &str = "libpgseal.so";
const GUARD: &str = "pgseal_guard.so";

/// The running program, with links resolved.
pub fn program() -> Result<PathBuf, CliError> {
    let path =
        env::current_exe().map_err(CliError::io(Path::new("pgseal"), "find this program"))?;
    Ok(path.canonicalize().unwrap_or(path))
}

/// The library: that of `PGSEAL_LIBRARY`, else beside the program, else in `../lib/pgseal` from it.
pub fn library() -> Result<PathBuf, CliError> {
    let program = program()?;
    let dir = program.parent().unwrap_or(Path::new("/"));
    let path = match env::var_os("PGSEAL_LIBRARY").filter(|path| !path.is_empty()) {
        Some(path) => existing(&[PathBuf::from(&path)]).ok_or_else(|| {
            CliError::NoLibrary(format!(
                "{}: there is no library; PGSEAL_LIBRARY must name {LIBRARY}, or be unset",
                Path::new(&path).display()
            ))
        })?,
        None => existing(&[dir.join(LIBRARY), dir.join("../lib/pgseal").join(LIBRARY)])
            .ok_or_else(|| {
                CliError::NoLibrary(format!(
                    "{}: {LIBRARY} is neither beside this program nor in ../lib/pgseal; \
                         install it (make install), or set PGSEAL_LIBRARY to its path",
                    program.display()
                ))
            })?,
    };
    // The dynamic linker splits LD_PRELOAD at these characters, which cannot be quoted.
    if path.as_os_str().as_encoded_bytes().iter().any(|byte| matches!(byte, b' ' | b':')) {
        return Err(CliError::NoLibrary(format!(
            "{}: a path with a space or colon cannot be preloaded; install pgseal elsewhere",
            path.display()
        )));
    }
    Ok(path)
}

/// The guard module for `shared_preload_libraries`: `pgseal_guard` if it is in the server's library
/// directory, else an absolute path.
pub fn guard(major: &str, pkglibdir: Option<&Path>) -> Result<String, CliError> {
    if let Some(path) = env::var_os("PGSEAL_GUARD_MODULE").filter(|path| !path.is_empty()) {
        let path = existing(&[PathBuf::from(&path)]).ok_or_else(|| {
            CliError::NoLibrary(format!(
                "{}: there is no guard module; PGSEAL_GUARD_MODULE must name {GUARD}, or be unset",
                Path::new(&path).display()
            ))
        })?;
        return as_setting(&path);
    }
    if pkglibdir.is_some_and(|dir| dir.join(GUARD).is_file()) {
        return Ok("pgseal_guard".to_owned());
    }
    let program = program()?;
    let dir = program.parent().unwrap_or(Path::new("/"));
    let places = [
        dir.join(GUARD),
        dir.join("../lib/pgseal/guard").join(major).join(GUARD),
        // of the source tree: target/guard/MAJOR, then server/guard/ itself, from target/PROFILE
        dir.join("../guard").join(major).join(GUARD),
        dir.join("../../server/guard").join(GUARD),
    ];
    match existing(&places) {
        Some(path) => as_setting(&path),
        None => Err(CliError::NoLibrary(format!(
            "{}: no {GUARD} for PostgreSQL {major} was found; without it a sealed cluster could be \
             started unprotected: install it (make install), or set PGSEAL_GUARD_MODULE to its path",
            program.display()
        ))),
    }
}

fn as_setting(path: &Path) -> Result<String, CliError> {
    let text = path.to_str().filter(|text| !text.contains(['\'', '"', ',', '\n', '\\']));
    text.map(str::to_owned).ok_or_else(|| {
        CliError::NoLibrary(format!(
            "{}: this path cannot stand in postgresql.conf; install pgseal elsewhere",
            path.display()
        ))
    })
}

/// The first of these files that is there.
pub fn existing(places: &[PathBuf]) -> Option<PathBuf> {
    places.iter().find(|path| path.is_file()).and_then(|path| path.canonicalize().ok())
}

/// `LD_PRELOAD` with the library first, once, and the entries that were there before behind it.
pub fn preload(library: &Path, before: Option<OsString>) -> OsString {
    let mut value = library.as_os_str().to_owned();
    let before = before.unwrap_or_default();
    let others = before
        .as_encoded_bytes()
        .split(|byte| matches!(byte, b' ' | b':' | b'\t'))
        .filter(|entry| !entry.is_empty() && *entry != library.as_os_str().as_encoded_bytes());
    for entry in others {
        value.push(":");
        value.push(String::from_utf8_lossy(entry).as_ref());
    }
    value
}

/// Sets `LD_PRELOAD` and `PGSEAL_HELPER` for a command.
pub fn set(command: &mut Command, library: &Path) -> Result<(), CliError> {
    command.env("LD_PRELOAD", preload(library, env::var_os("LD_PRELOAD")));
    if env::var_os("PGSEAL_HELPER").is_none() {
        command.env("PGSEAL_HELPER", program()?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_comes_first_and_only_once() {
        let library = Path::new("/l/libpgseal.so");
        let shown = |before: Option<&str>| preload(library, before.map(OsString::from));
        assert_eq!(shown(None), "/l/libpgseal.so");
        assert_eq!(shown(Some("")), "/l/libpgseal.so");
        assert_eq!(shown(Some("/j/jemalloc.so")), "/l/libpgseal.so:/j/jemalloc.so");
        assert_eq!(shown(Some("/a.so /l/libpgseal.so:/b.so")), "/l/libpgseal.so:/a.so:/b.so");
    }
}
