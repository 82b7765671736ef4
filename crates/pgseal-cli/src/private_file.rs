//! Makes files that only their owner may read: keys, escrow copies.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::error::CliError;

/// Makes a file of mode 0600 with these parts as its content, and syncs it. `kind` has the words
/// for messages.
///
/// # Errors
/// [`CliError::Exists`]: a file is never overwritten. After any other error the file is removed, so
/// that nobody takes a part for the whole.
pub fn write_new(path: &Path, kind: &Kind, parts: &[&[u8]]) -> Result<(), CliError> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let file = opened.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            CliError::Exists { path: path.to_owned(), what: kind.exists, remedy: kind.remedy }
        }
        _ => CliError::io(path, kind.make)(error),
    })?;
    let written = write(file, parts);
    if written.is_err() {
        // The error below is reported whether the file can be removed or not.
        let _ = fs::remove_file(path);
    }
    written.map_err(CliError::io(path, kind.write))
}

fn write(mut file: File, parts: &[&[u8]]) -> io::Result<()> {
    parts.iter().try_for_each(|part| file.write_all(part))?;
    file.sync_all()
}

/// What kind of file it is, in words for messages.
pub struct Kind {
    /// The message about an existing file.
    pub exists: &'static str,
    /// What to do about an existing file.
    pub remedy: &'static str,
    /// "make the ..."
    pub make: &'static str,
    /// "write the ..."
    pub write: &'static str,
}

/// A key.
pub const KEY: Kind = Kind {
    exists: "there is a file already, and a key is never overwritten",
    remedy: "if it is the key that you mean, use it (-K file:PATH); for a new one choose another name",
    make: "make the key file",
    write: "write the key file",
};

/// An escrow copy of a keyring.
pub const ESCROW_COPY: Kind = Kind {
    exists: "there is a file already, and an escrow copy is never overwritten",
    remedy: "\"pgseal key check DIR --escrow FILE\" says whether it is a copy with all keys in use; for \
             a new one choose another name",
    make: "make the file",
    write: "write the escrow copy",
};
