//! A temporary btrfs file system for a test, with snapshots and clones.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A mounted btrfs in an image file; dropping it unmounts and removes it. Needs root.
#[derive(Debug)]
pub struct Btrfs(PathBuf);

impl Btrfs {
    /// Creates a btrfs and mounts it at a new directory, owned by the servers' user.
    ///
    /// # Panics
    /// When a step fails; the text names the command that installs what is missing.
    #[must_use]
    pub fn mount(at: &Path) -> Btrfs {
        let image = at.with_extension("img");
        let script = "command -v mkfs.btrfs >/dev/null || \
                      { echo 'mkfs.btrfs is missing: scripts/setup.sh scenarios' >&2; exit 1; }; \
                      truncate -s 2G \"$1\"; mkfs.btrfs -q \"$1\"; mkdir -p \"$2\"; \
                      mount -o loop \"$1\" \"$2\"; chown postgres: \"$2\"; chmod 0755 \"$2\"";
        run(script, &[&image, at]);
        Btrfs(at.to_owned())
    }

    /// The mount point.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Btrfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        let _ = fs::remove_file(self.0.with_extension("img"));
    }
}

/// Whether a file shares disk blocks with another file.
///
/// # Panics
/// When the extents of the file cannot be listed.
#[must_use]
pub fn is_shared(path: &Path) -> bool {
    let script = "PATH=$PATH:/usr/sbin; command -v filefrag >/dev/null || \
                  { echo 'filefrag is missing: scripts/setup.sh scenarios' >&2; exit 1; }; \
                  filefrag -sv \"$1\"";
    run(script, &[path]).contains("shared")
}

/// Runs a shell script as the user of the tests and returns its output.
///
/// # Panics
/// When the script fails.
#[track_caller]
pub fn run(script: &str, words: &[&Path]) -> String {
    let output = Command::new("bash").args(["-euc", script, "bash"]).args(words).output();
    let output = output.expect("bash runs");
    assert!(output.status.success(), "{script}\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
