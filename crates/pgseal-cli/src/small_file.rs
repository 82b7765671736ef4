//! Reads small text files of a data directory, which an attacker may have written, and removes
//! files.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use pgseal_keys::open_regular;

use crate::error::CliError;

/// The longest file that is read, in bytes.
pub const MAX_LEN: u64 = 1 << 20;

/// The bytes of a regular file of at most [`MAX_LEN`]. No other kind of file is opened.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] for a FIFO, a device or a directory,
/// [`io::ErrorKind::FileTooLarge`]; those of the file system.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_up_to(path, MAX_LEN)
}

/// Removes a file, if it exists.
///
/// # Errors
/// [`CliError::Io`].
pub fn remove_if_there(path: &Path) -> Result<(), CliError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(CliError::io(path, "remove the file")(error))
        }
        _ => Ok(()),
    }
}

/// As [`read`], with another limit, in bytes.
///
/// # Errors
/// Those of [`read`].
pub fn read_up_to(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        let text = format!("it is longer than {} MiB", limit >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    Ok(bytes)
}

/// As [`read`], as text.
///
/// # Errors
/// Those of [`read`]; [`io::ErrorKind::InvalidData`] if the text is not UTF-8.
pub fn read_text(path: &Path) -> io::Result<String> {
    String::from_utf8(read(path)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
}
