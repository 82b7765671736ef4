//! A control group that limits the memory of a server together with the OS cache of its files.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::LabError;

/// The directory of control groups (cgroups(7)).
const ROOT: &str = "/sys/fs/cgroup";

/// A new control group; dropping it removes the group, once its processes have ended.
#[derive(Debug)]
pub struct MemoryGroup {
    dir: PathBuf,
}

impl MemoryGroup {
    /// Makes a group with a limit.
    ///
    /// # Errors
    /// [`LabError::Missing`] if this system or user cannot create such a group.
    pub fn make(name: &str, limit_bytes: u64) -> Result<Self, LabError> {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let mut why = "there is no control group file system".to_owned();
        for (parent, file) in places(Path::new(ROOT), &groups) {
            let dir = parent.join(format!("pgseal-lab-{}-{name}", std::process::id()));
            let made = fs::create_dir(&dir).map(|()| Self { dir: dir.clone() });
            let limited = made.and_then(|group| {
                fs::write(group.dir.join(file), limit_bytes.to_string()).map(|()| group)
            });
            match limited {
                Ok(group) => return Ok(group),
                Err(error) => why = format!("{}: {error}", dir.join(file).display()),
            }
        }
        let remedy =
            "run this as root, or in a scope of systemd that delegates the memory controller";
        Err(LabError::missing("a limit of the OS cache (memory control group)", why, remedy))
    }

    /// Moves processes into the group. Memory that they and their children allocate from now on
    /// counts.
    pub fn take(&self, pids: &[u32]) -> Result<(), LabError> {
        let procs = self.dir.join("cgroup.procs");
        for pid in pids {
            // A process that has ended meanwhile needs no limit.
            match fs::write(&procs, pid.to_string()) {
                Err(error) if error.raw_os_error() != Some(ESRCH) => {
                    return Err(LabError::io(&procs, "put a process into the group")(error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

const ESRCH: i32 = 3;

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        for _ in 0..50 {
            if fs::remove_dir(&self.dir).is_ok() {
                return;
            }
            // The last process may still be ending.
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

/// Directories to try, each with the name of its limit file: version 1 below our own group and at
/// the root; version 2 beside our own group, because a version 2 group that has processes cannot
/// have limited groups below it.
fn places(root: &Path, groups: &str) -> Vec<(PathBuf, &'static str)> {
    let mut places = Vec::new();
    let below = |base: &Path, path: &str| base.join(path.trim_start_matches('/'));
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next(), fields.next(), fields.next());
        match (controllers, path) {
            (Some("memory"), Some(path)) => {
                let base = root.join("memory");
                places.push((below(&base, path), "memory.limit_in_bytes"));
                places.push((base, "memory.limit_in_bytes"));
            }
            (Some(""), Some(path)) => {
                let own = below(root, path);
                places.push((own.parent().unwrap_or(root).to_owned(), "memory.max"));
                places.push((own, "memory.max"));
            }
            _ => {}
        }
    }
    places.retain(|(dir, _)| dir.starts_with(root) && dir.is_dir());
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_both_versions_are_found_where_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir_all(root.join("memory/a/b")).unwrap();
        fs::create_dir_all(root.join("user.slice/me.scope")).unwrap();
        let v1 = places(root, "4:memory:/a/b\n3:cpuset:/\n");
        let dirs: Vec<_> = v1.iter().map(|(dir, _)| dir.clone()).collect();
        assert_eq!(dirs, [root.join("memory/a/b"), root.join("memory")]);
        let v2 = places(root, "0::/user.slice/me.scope\n");
        assert_eq!(v2.first(), Some(&(root.join("user.slice"), "memory.max")));
        assert!(places(root, "").is_empty());
    }
}
