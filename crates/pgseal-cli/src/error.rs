//! The errors of the program, by whose fault they are.

use std::io;
use std::path::{Path, PathBuf};

use pgseal_convert::ConvertError;
use pgseal_core::SealError;
use pgseal_keys::KeyError;
use pgseal_tls::TlsError;

/// An error of the program. Each text says what is wrong, with which file, and what to do next.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The command line is wrong.
    #[error("{0}")]
    Usage(String),
    /// The path does not exist.
    #[error("{}: there is no such file or directory; check the path", path.display())]
    NoSuchFile {
        /// The path.
        path: PathBuf,
    },
    /// There is no key policy, or it has no rule.
    #[error(
        "{}: there is no rule in it, or no such file; write one with: pgseal key policy --set \
         NAME=VALUE",
        path.display()
    )]
    NoPolicy {
        /// The file.
        path: PathBuf,
    },
    /// The path is not a data directory.
    #[error("{}: not a PostgreSQL data directory: {why}; {remedy}", path.display())]
    NotDataDir {
        /// The path.
        path: PathBuf,
        /// What is missing.
        why: &'static str,
        /// What to do next.
        remedy: &'static str,
    },
    /// The data directory or file is plain.
    #[error("{}: not sealed; {remedy}", path.display())]
    NotSealed {
        /// The path.
        path: PathBuf,
        /// What to do next.
        remedy: &'static str,
    },
    /// Something exists already and is not changed.
    #[error("{}: {what}; {remedy}", path.display())]
    Exists {
        /// The path.
        path: PathBuf,
        /// What exists.
        what: &'static str,
        /// What to do next.
        remedy: &'static str,
    },
    /// An error about keys.
    #[error(transparent)]
    Key(KeyError),
    /// The library or the guard module was not found.
    #[error("{0}")]
    NoLibrary(String),
    /// A program of PostgreSQL was not found.
    #[error(
        "{name}: no such program in PATH or beside pg_config; install PostgreSQL, give the \
         program's path, or put its directory into PATH"
    )]
    NoCommand {
        /// The name of the program.
        name: String,
    },
    /// The program `pgseal-lab` was not found.
    #[error("{}: {}", path.display(), lab_remedy(*variable))]
    NoLab {
        /// Where it was looked for.
        path: PathBuf,
        /// Whether the variable `PGSEAL_LAB` gave this path.
        variable: bool,
    },
    /// The settings do not allow sealing.
    #[error("{0}")]
    Settings(String),
    /// A conversion was interrupted and must be finished first.
    #[error(
        "{}: pgseal {command} was interrupted here, and some files are sealed and some are not; \
         run \"pgseal {command} {}\" again: it goes on where it stopped",
        path.display(),
        path.display()
    )]
    Unfinished {
        /// The data directory.
        path: PathBuf,
        /// The command that was interrupted.
        command: &'static str,
    },
    /// The data directory cannot be converted now: its state does not allow it.
    #[error("{0}")]
    NotNow(String),
    /// Something in the data directory is damaged; nothing was changed.
    #[error("{0}")]
    Damaged(String),
    /// An error of a conversion.
    #[error(transparent)]
    Convert(ConvertError),
    /// The operating system refused something.
    #[error("{}: cannot {action}: {source}{}", path.display(), hint(source))]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What pgseal tried to do.
        action: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// TLS cannot be set up or checked.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A sealed file is damaged, or its key is not known.
    #[error("{}: {source}; {}", path.display(), seal_remedy(source))]
    Sealed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: SealError,
    },
    /// A use of a key cannot be recorded, and has to be.
    #[error(
        "the audit trail: {what}; it is required here, so no key is used that is not recorded: mend \
         it, and see whether it works with: pgseal audit test"
    )]
    Audit {
        /// Which destination refuses, and why.
        what: String,
    },
    /// Standard output cannot be written.
    #[error("standard output: {0}; check where the output goes")]
    Output(#[from] io::Error),
}

impl From<KeyError> for CliError {
    fn from(error: KeyError) -> CliError {
        match error {
            KeyError::Io { path, action, source } => CliError::Io { path, action, source },
            error => CliError::Key(error),
        }
    }
}

impl From<ConvertError> for CliError {
    fn from(error: ConvertError) -> CliError {
        match error {
            ConvertError::Io { path, action, source } => CliError::Io { path, action, source },
            ConvertError::Sealed { path, source } => CliError::Sealed { path, source },
            error => CliError::Convert(error),
        }
    }
}

impl CliError {
    /// For `map_err`: the operating system refused `action` on `path`.
    pub fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> CliError {
        let path = path.to_owned();
        move |source| match source.kind() {
            io::ErrorKind::NotFound => CliError::NoSuchFile { path },
            _ => CliError::Io { path, action, source },
        }
    }

    /// For `map_err`: a sealed file could not be read.
    pub fn sealed(path: &Path) -> impl FnOnce(SealError) -> CliError {
        let path = path.to_owned();
        move |source| match source {
            SealError::Io(source) => CliError::Io { path, action: "read", source },
            source => CliError::Sealed { path, source },
        }
    }
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; run pgseal as the owner of the data directory (usually the user postgres)"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; make room on the disk and try again"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "; mount the file system for writing (mount -o remount,rw), or work on a copy"
        }
        io::ErrorKind::InvalidInput => "; put a regular file in its place, or check the path",
        io::ErrorKind::IsADirectory => "; give the file, not a directory",
        io::ErrorKind::NotADirectory => "; a part of the path is a file: check the path",
        io::ErrorKind::InvalidData => "; check that it is the file that is meant",
        io::ErrorKind::FileTooLarge => {
            "; check the limit on file sizes, and that it is the right file"
        }
        io::ErrorKind::StaleNetworkFileHandle | io::ErrorKind::TimedOut => {
            "; see whether the file server is there"
        }
        _ => "; see the system's log if this is a disk error",
    }
}

fn lab_remedy(variable: bool) -> &'static str {
    if variable {
        "there is no such program; PGSEAL_LAB must be the absolute path of pgseal-lab, or unset"
    } else {
        "there is no such program; install the package pgseal-lab (Debian), or run \"make install\" \
         in the source tree"
    }
}

fn seal_remedy(error: &SealError) -> &'static str {
    match error {
        SealError::KeyUnknown { .. } => "give the keyring of its cluster with --keyring",
        SealError::BlockDamaged(_) | SealError::BlockOlder(_) | SealError::Header(_) => {
            "take the file from a backup; \"pgseal verify\" lists all damage"
        }
        _ => "please report this as a bug of pgseal",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_refusal_has_its_own_next_step() {
        let says = |errno: i32| {
            let source = io::Error::from_raw_os_error(errno);
            CliError::Io { path: "/srv/x".into(), action: "write the file", source }.to_string()
        };
        // EROFS, EACCES, ENOSPC, EDQUOT, EISDIR, ENOTDIR; EIO.
        for (errno, words) in [
            (30, "Read-only file system (os error 30); mount the file system for writing"),
            (13, "run pgseal as the owner"),
            (28, "make room"),
            (122, "make room"),
            (21, "give the file, not a directory"),
            (20, "a part of the path is a file"),
            (5, "see the system's log"),
        ] {
            assert!(says(errno).contains(words), "{}", says(errno));
        }
        let source = io::Error::from_raw_os_error(30);
        let key = KeyError::Io { path: "/srv/x".into(), action: "write the keyring", source };
        assert!(CliError::from(key).to_string().contains("mount -o remount,rw"));
    }
}
