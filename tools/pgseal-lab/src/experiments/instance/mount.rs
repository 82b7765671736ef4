//! gocryptfs: a user-space file system that encrypts whole directories; compared with pgseal.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use pgseal_cluster::Signal;
use pgseal_cluster::process::send;

use super::cache::files_below;
use crate::cluster::{Patience, Tools};
use crate::error::LabError;

const REMEDY: &str = "install gocryptfs and fuse3, and run this where /dev/fuse may be opened (as root in \
                      a container)";
/// Longest wait for the file system to be mounted or unmounted.
const MOUNTED: Patience = Patience::seconds(20);

/// A mounted directory; dropping it unmounts it.
#[derive(Debug)]
pub struct Mount {
    child: Child,
    /// The directory with plain files, which programs use.
    pub plain: PathBuf,
    /// The directory with the encrypted files.
    pub cipher: PathBuf,
}

impl Mount {
    /// Creates an encrypted directory below `root` and mounts it for the user of the servers.
    ///
    /// # Errors
    /// [`LabError::Missing`] if gocryptfs is not installed or cannot mount.
    pub fn make(tools: &Tools, root: &Path) -> Result<Self, LabError> {
        let (plain, cipher) = (root.join("g"), root.join("g-cipher"));
        for dir in [&plain, &cipher] {
            fs::create_dir(dir).map_err(LabError::io(dir, "make the directory"))?;
            tools.give(dir)?;
        }
        let password = root.join("g-password");
        fs::write(&password, "of no worth\n").map_err(LabError::io(&password, "write the file"))?;
        tools.give(&password)?;
        let missing = |why: String| LabError::missing("gocryptfs", why, REMEDY);
        let mut init = tools.helper(&["gocryptfs".as_ref()]);
        init.args(["-init", "-q", "-scryptn", "10", "-passfile"]).arg(&password).arg(&cipher);
        let output = init.output().map_err(|error| missing(error.to_string()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(missing(format!("gocryptfs -init: {}", said.trim())));
        }
        // When root mounts, the server's user must own the directory, too.
        tools.give(&cipher)?;
        let log = root.join("g.log");
        let file = fs::File::create(&log).map_err(LabError::io(&log, "write the log"))?;
        let mut words: Vec<&OsStr> =
            ["gocryptfs", "-fg", "-q", "-nosyslog"].map(OsStr::new).to_vec();
        if tools.account.is_some() {
            words.push("-allow_other".as_ref());
        }
        let mut mount = tools.helper(&words);
        mount.arg("-passfile").arg(&password).arg(&cipher).arg(&plain);
        let errors = file.try_clone().map_err(LabError::io(&log, "write the log"))?;
        let child = mount
            .stdout(file)
            .stderr(errors)
            .spawn()
            .map_err(LabError::io(Path::new("gocryptfs"), "run the program"))?;
        let mut mount = Self { child, plain, cipher };
        let there = MOUNTED.wait_for(|| {
            let there = is_mounted(&mount.plain);
            let ended = matches!(mount.child.try_wait(), Ok(Some(_)));
            (there || ended).then_some(there)
        });
        if there != Some(true) {
            let said = fs::read_to_string(&log).unwrap_or_default();
            return Err(missing(said.lines().next().unwrap_or("it does not mount").to_owned()));
        }
        tools.give(&mount.plain)?;
        Ok(mount)
    }
}

/// gocryptfs's file format: a header, and a nonce and a tag for each block.
const HEADER_BYTES: u64 = 18;
const BLOCK_BYTES: u64 = 4096;
const OVERHEAD_BYTES: u64 = 32;

impl Mount {
    /// The encrypted files of these files. Encrypted names cannot be mapped back, so all files with
    /// the right size count.
    pub fn behind(&self, seen: &[PathBuf]) -> Result<Vec<PathBuf>, LabError> {
        let size = |path: &Path| {
            let metadata = fs::metadata(path).map_err(LabError::io(path, "look at the file"));
            metadata.map(|metadata| metadata.len())
        };
        let mut sizes = Vec::new();
        for path in seen {
            sizes.push(stored_bytes(size(path)?));
        }
        let mut behind = files_below(&self.cipher)?;
        behind.retain(|path| size(path).is_ok_and(|bytes| sizes.contains(&bytes)));
        Ok(behind)
    }
}

fn stored_bytes(plain_bytes: u64) -> u64 {
    match plain_bytes {
        0 => 0,
        bytes => HEADER_BYTES + bytes + bytes.div_ceil(BLOCK_BYTES) * OVERHEAD_BYTES,
    }
}

fn is_mounted(dir: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let dir = dir.to_string_lossy();
    mounts.lines().any(|line| line.split(' ').nth(1) == Some(&dir))
}

impl Drop for Mount {
    fn drop(&mut self) {
        let gone = MOUNTED.wait_until(|| {
            let there = is_mounted(&self.plain);
            if there {
                // gocryptfs refuses while a file is open; the server may still be ending.
                send(self.child.id(), Signal::INT);
            }
            !there
        });
        if !gone {
            let mut lazy = Command::new("fusermount3");
            lazy.args(["-u", "-z"]).arg(&self.plain).stdin(Stdio::null());
            // If this fails too, the directory stays mounted.
            let _ = lazy.status();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_file_and_a_page_as_gocryptfs_stores_them() {
        // "hi\n" was seen to take 53 bytes.
        assert_eq!((stored_bytes(3), stored_bytes(0)), (53, 0));
        assert_eq!(stored_bytes(8192), 18 + 8192 + 64);
    }
}
