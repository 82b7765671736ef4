//! The OS cache of a directory's files: emptied with posix_fadvise(2), measured with fincore(1).

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{Advice, fadvise};

use crate::error::LabError;

/// How much of some files is in the OS cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resident {
    /// Bytes in the cache.
    pub bytes: u64,
    /// Total size of the files in bytes.
    pub of_bytes: u64,
}

impl Resident {
    /// The cached share of the files, from 0 to 1.
    pub fn share(self) -> f64 {
        if self.of_bytes == 0 { 0.0 } else { self.bytes as f64 / self.of_bytes as f64 }
    }
}

/// All files below a directory.
pub fn files_below(dir: &Path) -> Result<Vec<PathBuf>, LabError> {
    let mut files = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).map_err(LabError::io(&dir, "list the directory"))? {
            let entry = entry.map_err(LabError::io(&dir, "list the directory"))?;
            let kind =
                entry.file_type().map_err(LabError::io(&entry.path(), "look at the file"))?;
            if kind.is_dir() {
                dirs.push(entry.path());
            } else if kind.is_file() {
                files.push(entry.path());
            }
        }
    }
    Ok(files)
}

/// Asks the kernel to drop the cached pages of these files. Dirty pages stay in the cache, so make
/// a checkpoint first.
pub fn drop_cached(files: &[PathBuf]) -> Result<(), LabError> {
    for path in files {
        match File::open(path) {
            Ok(file) => fadvise(&file, 0, None, Advice::DontNeed)
                .map_err(|error| LabError::io(path, "drop it from the OS cache")(error.into()))?,
            // The server may remove files meanwhile.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(LabError::io(path, "open the file")(error)),
        }
    }
    Ok(())
}

/// How much of these files is in the OS cache; an error text if this cannot be measured.
pub fn resident(files: &[PathBuf]) -> Result<Resident, String> {
    let mut all = Resident::default();
    for some in files.chunks(500) {
        let mut fincore = Command::new("fincore");
        fincore.args(["--bytes", "--noheadings", "--raw", "--output", "RES,SIZE"]).args(some);
        let output = fincore.stdin(Stdio::null()).output().map_err(|error| {
            format!("fincore: {error}; install it (Debian: util-linux-extra, or util-linux)")
        })?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let lines = text.lines().filter_map(numbers).collect::<Vec<_>>();
        if lines.len() != some.len() {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(format!("fincore named {} of {} files: {said}", lines.len(), some.len()));
        }
        for (bytes, of_bytes) in lines {
            // The last page extends beyond the end of its file.
            all.bytes += bytes.min(of_bytes);
            all.of_bytes += of_bytes;
        }
    }
    Ok(all)
}

fn numbers(line: &str) -> Option<(u64, u64)> {
    let (resident, size) = line.trim().split_once(' ')?;
    Some((resident.trim().parse().ok()?, size.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_file_is_resident_until_it_is_dropped() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = dir.path().join("sub/file");
        fs::create_dir(dir.path().join("sub")).unwrap();
        fs::write(&path, vec![7u8; 1_000_000]).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
        let files = files_below(dir.path()).unwrap();
        assert_eq!(files, [path]);
        let warm = resident(&files).unwrap();
        assert_eq!((warm.of_bytes, warm.share()), (1_000_000, 1.0));
        // The kernel keeps pages in use for a while.
        let is_cold = || {
            drop_cached(&files).unwrap();
            resident(&files).unwrap() == Resident { bytes: 0, of_bytes: 1_000_000 }
        };
        let wait = || std::thread::sleep(std::time::Duration::from_millis(100));
        assert!((0..600).any(|_| is_cold() || {
            wait();
            false
        }));
    }
}
