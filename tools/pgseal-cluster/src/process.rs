//! Processes by process number, and what a data directory says about its server.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

use crate::patience::Patience;

/// The postmaster of a data directory: the process in its lock file, if that process works in the
/// directory.
pub fn postmaster(data: &Path) -> Option<u32> {
    let text = fs::read_to_string(data.join("postmaster.pid")).ok()?;
    let pid: u32 = text.lines().next()?.trim().parse().ok()?;
    works_in(pid, data).then_some(pid)
}

/// Whether the postmaster with this process number has written to its lock file that it accepts
/// connections (line 8).
pub fn is_ready(data: &Path, pid: u32) -> bool {
    let text = fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
    let mut lines = text.lines();
    lines.next() == Some(&pid.to_string())
        && matches!(lines.nth(6).map(str::trim), Some("ready" | "standby"))
}

/// All processes whose working directory is a data directory: the postmaster and its children.
pub fn all_in(data: &Path) -> Vec<u32> {
    all().filter(|pid| works_in(*pid, data)).collect()
}

/// The numbers of all processes.
pub(crate) fn all() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn works_in(pid: u32, data: &Path) -> bool {
    let cwd = fs::read_link(format!("/proc/{pid}/cwd")).ok();
    cwd.is_some() && cwd == data.canonicalize().ok()
}

/// Sends a signal; does nothing if the process has ended.
pub fn send(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // The process may have ended meanwhile; that is no error.
        let _ = kill_process(pid, signal);
    }
}

/// When a process started, in ticks since the start of the system; `None`: there is none.
pub fn start_of(pid: u32) -> Option<u64> {
    number_in(&stat_of(pid), 22)
}

/// The line of `/proc/PID/stat` (proc(5)); empty if the process has ended.
pub(crate) fn stat_of(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default()
}

/// A field of such a line, which counts them from 1; those before the third are not told.
fn field_of(stat: &str, field: usize) -> Option<&str> {
    // The second field, the name, may hold blanks and parentheses.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(field.checked_sub(3)?)
}

/// The same, as a number.
pub(crate) fn number_in(stat: &str, field: usize) -> Option<u64> {
    field_of(stat, field)?.parse().ok()
}

/// Whether a signal has stopped the process (state T of proc(5)), or it has ended.
pub fn is_stopped(pid: u32) -> bool {
    let stat = stat_of(pid);
    field_of(&stat, 3).is_none_or(|state| matches!(state, "T" | "t" | "Z" | "X"))
}

/// The process and its children.
pub fn with_children(parent: u32) -> Vec<u32> {
    let is_child = |pid: &u32| number_in(&stat_of(*pid), 4) == Some(parent.into());
    std::iter::once(parent).chain(all().filter(is_child)).collect()
}

/// Waits until no process works in the directory and all processes in `pids` are reaped: a new
/// postmaster would take a zombie for a running server. `false`: some remain.
pub fn wait_until_gone(data: &Path, pids: &[u32], patience: Patience) -> bool {
    let is_there = |pid: &u32| Path::new(&format!("/proc/{pid}")).exists();
    patience.wait_until(|| all_in(data).is_empty() && !pids.iter().any(is_there))
}
