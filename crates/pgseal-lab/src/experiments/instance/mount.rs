//! gocryptfs: a file system that encrypts whole directories, in user space; the peer of sealing.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::cache::files_below;
use crate::cluster::Tools;
use crate::error::LabError;

const REMEDY: &str = "install gocryptfs and fuse3, and run this where /dev/fuse may be opened (as root in \
                      a container)";
const PATIENCE: Duration = Duration::from_secs(20);

/// A mounted directory; unmounted when this goes away.
#[derive(Debug)]
pub struct Mount {
    child: Child,
    /// What programs see.
    pub plain: PathBuf,
    /// What lies on disk.
    pub cipher: PathBuf,
}

impl Mount {
    /// Makes an encrypted directory below `root` and mounts it for the user of the servers.
    ///
    /// # Errors
    /// [`LabError::Missing`] where there is no gocryptfs or it does not mount.
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
        // Of the server's user too when root mounts.
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
        let begin = Instant::now();
        while !is_mounted(&mount.plain) {
            let ended = matches!(mount.child.try_wait(), Ok(Some(_)));
            if ended || begin.elapsed() > PATIENCE {
                let said = fs::read_to_string(&log).unwrap_or_default();
                return Err(missing(said.lines().next().unwrap_or("it does not mount").to_owned()));
            }
            sleep(Duration::from_millis(20));
        }
        tools.give(&mount.plain)?;
        Ok(mount)
    }
}

/// Of gocryptfs's file format: a header, and a nonce and a tag for each block.
const HEADER_BYTES: u64 = 18;
const BLOCK_BYTES: u64 = 4096;
const OVERHEAD_BYTES: u64 = 32;

impl Mount {
    /// The files on disk behind these files of the mount. Their names tell nothing, so all that have
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
        let begin = Instant::now();
        while is_mounted(&self.plain) && begin.elapsed() < PATIENCE {
            // It refuses while a file is open; the server may be on its way out.
            if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
                let _ = kill_process(pid, Signal::INT);
            }
            sleep(Duration::from_millis(50));
        }
        if is_mounted(&self.plain) {
            let mut lazy = Command::new("fusermount3");
            lazy.args(["-u", "-z"]).arg(&self.plain).stdin(Stdio::null());
            // Nothing more can be done than say so: the directory then stays.
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
