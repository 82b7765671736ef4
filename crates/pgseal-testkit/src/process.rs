//! Servers by their process numbers.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The postmaster of a data directory: the process in its lock file, if it works there.
pub(crate) fn postmaster(data: &Path) -> Option<i32> {
    let text = fs::read_to_string(data.join("postmaster.pid")).ok()?;
    let pid: i32 = text.lines().next()?.trim().parse().ok()?;
    works_in(pid, data).then_some(pid)
}

/// All processes that work in a data directory: the postmaster and its children.
pub(crate) fn all_in(data: &Path) -> Vec<i32> {
    let Ok(listing) = fs::read_dir("/proc") else { return Vec::new() };
    listing
        .filter_map(|item| item.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| works_in(*pid, data))
        .collect()
}

fn works_in(pid: i32, data: &Path) -> bool {
    let cwd = fs::read_link(format!("/proc/{pid}/cwd")).ok();
    cwd.is_some() && cwd == data.canonicalize().ok()
}

pub(crate) fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        // It may be gone already, and that is what is wanted.
        let _ = kill_process(pid, signal);
    }
}

/// Waits until no process works in the directory any more and those in `pids` are reaped: a new
/// postmaster takes a zombie for a server that is still there. `false` after the time.
pub(crate) fn wait_until_gone(data: &Path, pids: &[i32], time: Duration) -> bool {
    let end = Instant::now() + time;
    let is_there = |pid: &i32| Path::new(&format!("/proc/{pid}")).exists();
    while !all_in(data).is_empty() || pids.iter().any(is_there) {
        if Instant::now() > end {
            return false;
        }
        thread::sleep(Duration::from_millis(20));
    }
    true
}
