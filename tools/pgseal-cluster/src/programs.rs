//! The programs of pgseal, and copies of them that every user can run.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::output_of;
use crate::error::ClusterError;

/// The paths of the programs that create and run a sealed cluster.
#[derive(Debug, Clone)]
pub struct Programs {
    /// The program `pgseal`.
    pub pgseal: PathBuf,
    /// `libpgseal.so`; `None`: `pgseal` finds the library itself.
    pub library: Option<PathBuf>,
    /// `pgseal_guard.so` for the PostgreSQL in use; `None`: `pgseal` finds the module itself.
    pub guard: Option<PathBuf>,
}

impl Programs {
    /// Copies the programs into one directory that every user can read: the source tree may be
    /// unreadable for the user of the servers.
    ///
    /// # Errors
    /// When a program cannot be copied.
    pub fn copy_to(&self, dir: &Path) -> Result<Self, ClusterError> {
        fs::create_dir_all(dir).map_err(ClusterError::io(dir, "make the directory"))?;
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755))
            .map_err(ClusterError::io(dir, "open the directory to every user"))?;
        let copy = |from: &Path, name: &str| -> Result<PathBuf, ClusterError> {
            let to = dir.join(name);
            // install(1) refuses to copy a file onto itself.
            if full(from) != full(&to) {
                install(from, &to)?;
            }
            Ok(to)
        };
        let copy_some = |from: &Option<PathBuf>, name: &str| {
            from.as_deref().map(|from| copy(from, name)).transpose()
        };
        Ok(Self {
            pgseal: copy(&self.pgseal, "pgseal")?,
            library: copy_some(&self.library, "libpgseal.so")?,
            guard: copy_some(&self.guard, "pgseal_guard.so")?,
        })
    }
}

/// Copies a program, with mode 0755, in a separate process. If this process had the copy open for
/// writing, a child that another thread starts at that moment would inherit the open file until its
/// `exec`, and running the copy would fail with `ETXTBSY`.
///
/// # Errors
/// With the output of install(1).
pub fn install(from: &Path, to: &Path) -> Result<(), ClusterError> {
    output_of(Command::new("install").args(["-m", "0755"]).arg(from).arg(to)).map(drop)
}

/// The path with symbolic links resolved, if it exists.
pub(crate) fn full(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}
