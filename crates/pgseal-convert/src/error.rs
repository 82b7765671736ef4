//! Errors of a conversion, one variant for each cause.

use std::io;
use std::path::{Path, PathBuf};

use pgseal_core::SealError;

/// An error of a conversion. Each file then has the whole old form or the whole new form, and the
/// same command continues where it stopped.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// The operating system refused something.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// A sealed file could not be read or written.
    #[error("{}: {source}", path.display())]
    Sealed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: SealError,
    },
    /// The journal of a conversion cannot be understood.
    #[error(
        "{}: {what}; put a copy of it back, or restore the data directory from a backup",
        path.display()
    )]
    Journal {
        /// The journal.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// Stopped by a signal, or by a test.
    #[error("stopped before the end; run the same command again to go on")]
    Stopped,
    /// Another program converts the same directory.
    #[error("{}: another pgseal converts this data directory; wait for it", path.display())]
    Locked {
        /// The data directory.
        path: PathBuf,
    },
}

impl ConvertError {
    /// For `map_err`: the operating system refused `action` on `path`.
    pub fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> ConvertError {
        let path = path.to_owned();
        move |source| ConvertError::Io { path, action, source }
    }

    /// For `map_err`: a sealed file failed.
    pub fn sealed(path: &Path, action: &'static str) -> impl FnOnce(SealError) -> ConvertError {
        let path = path.to_owned();
        move |source| match source {
            SealError::Io(source) => ConvertError::Io { path, action, source },
            source => ConvertError::Sealed { path, source },
        }
    }
}
