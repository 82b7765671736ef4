//! Where the programs of plugins are: in one directory, which nobody but root and the current user
//! can write. They are never looked for in `PATH` or in a data directory.

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::bad_uri;
use crate::error::KeyError;
use crate::files::expect_private;

/// The environment variable that names another directory than `../lib/pgseal/providers` from the
/// program `pgseal`. It gives no new power: somebody who can set a program's environment can also
/// set `PGSEAL_PROVIDER`, to a command.
pub const PROVIDERS_DIR: &str = "PGSEAL_PROVIDERS_DIR";

/// What the names of the programs begin with.
const PREFIX: &str = "pgseal-provider-";

/// Why nobody else may write a plugin.
const WHY: &str = "a plugin handles keys";

/// The directory of the plugins. It need not exist.
///
/// # Errors
/// [`KeyError::Io`] if this program cannot be found.
pub fn directory() -> Result<PathBuf, KeyError> {
    if let Some(dir) = env::var_os(PROVIDERS_DIR).filter(|dir| !dir.is_empty()) {
        return std::path::absolute(&dir)
            .map_err(|error| KeyError::io(Path::new(&dir), "resolve the path", error));
    }
    let program = env::current_exe()
        .and_then(fs::canonicalize)
        .map_err(|error| KeyError::io(Path::new("pgseal"), "find this program", error))?;
    let prefix = program.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
    Ok(prefix.join("lib/pgseal/providers"))
}

/// The names of the plugins that are installed, sorted. Nothing is checked or run.
///
/// # Errors
/// [`KeyError::Io`] if the directory exists and cannot be read.
pub fn installed() -> Result<Vec<String>, KeyError> {
    let dir = directory()?;
    let listing = match fs::read_dir(&dir) {
        Ok(listing) => listing,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(KeyError::io(&dir, "read the directory of plugins", error)),
    };
    let name = |item: fs::DirEntry| {
        let name = item.file_name().to_str()?.strip_prefix(PREFIX)?.to_owned();
        pgseal_plugin::is_name(&name).then_some(name)
    };
    let mut names: Vec<String> = listing.flatten().filter_map(name).collect();
    names.sort();
    Ok(names)
}

/// The program of the plugin with this name. `uri` is for messages. The program must not lie in
/// `datadir`.
pub(super) fn program(name: &str, uri: &str, datadir: Option<&Path>) -> Result<PathBuf, KeyError> {
    let dir = directory()?;
    let file = format!("{PREFIX}{name}");
    let missing = || {
        bad_uri(
            uri,
            format!(
                "there is no {file} in {}; install that plugin, or give env:NAME, file:PATH, \
                 command:SHELL COMMAND or passphrase:",
                dir.display()
            ),
        )
    };
    let stat = |path: &Path| {
        fs::symlink_metadata(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => missing(),
            _ => KeyError::io(path, "look for the plugin", error),
        })
    };
    let real = dir.canonicalize().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => missing(),
        _ => KeyError::io(&dir, "look for the directory of plugins", error),
    })?;
    let path = real.join(&file);
    let meta = stat(&path)?;
    let insecure = |what: &str, remedy: &str| KeyError::Insecure {
        path: path.clone(),
        what: what.to_owned(),
        remedy: remedy.to_owned(),
    };
    if !meta.is_file() {
        return Err(insecure(
            "the plugin is not a regular file, or a link",
            "put the program itself there",
        ));
    }
    if let Some(datadir) = datadir.and_then(|datadir| datadir.canonicalize().ok())
        && real.starts_with(&datadir)
    {
        return Err(insecure(
            "the plugin lies in the data directory, whose writer could write it",
            "install it elsewhere",
        ));
    }
    expect_private(&path, &meta, WHY)?;
    for above in real.ancestors() {
        expect_private(above, &stat(above)?, WHY)?;
    }
    if meta.mode() & 0o111 == 0 {
        return Err(insecure("the plugin is not executable", "chmod +x it"));
    }
    Ok(path)
}
