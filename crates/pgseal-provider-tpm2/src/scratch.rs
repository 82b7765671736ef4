//! The directory through which tpm2-tools pass objects to each other.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use pgseal_plugin::{Failure, Fault, random};

/// Nothing in it is secret: public areas, private areas that the TPM encrypted, and contexts that
/// it encrypted. Memory comes first, because then nothing of it reaches a disk.
const PLACES: [&str; 2] = ["/dev/shm", "/tmp"];

/// A new directory that only this user can enter. Removed on drop.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Result<Scratch, Failure<'static>> {
        let mut bytes = [0; 8];
        random(&mut bytes)?;
        let name = format!("pgseal-tpm2-{:016x}", u64::from_be_bytes(bytes));
        let mut why = String::new();
        for place in PLACES {
            let path = Path::new(place).join(&name);
            // It fails if anything of this name is there, also a link.
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Scratch(path)),
                Err(error) => why = format!("{place}: {error}"),
            }
        }
        Err(Failure::new(Fault::Unavailable, format!("no directory for temporary files: {why}")))
    }

    /// The path of a file in the directory.
    pub(crate) fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // If this fails, encrypted objects stay there until the next boot.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_private_directory_that_does_not_stay() {
        let scratch = Scratch::new().unwrap();
        let path = scratch.0.clone();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o700);
        fs::write(scratch.file("a"), "x").unwrap();
        drop(scratch);
        assert!(!path.exists());
    }
}
