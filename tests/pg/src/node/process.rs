//! Servers as processes: limits, signals, waiting.

use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::programs::as_server_user;

/// The same command through a shell that lowers the limit on the size of files first.
#[must_use]
pub fn with_file_limit(command: &Command, kib: u64) -> Command {
    // A process over the limit gets SIGXFSZ, which PostgreSQL ignores, and then EFBIG.
    through_shell(command, &format!("ulimit -f {kib}; trap '' XFSZ"))
}

/// The same command through a shell that runs `first`.
pub(super) fn through_shell(command: &Command, first: &str) -> Command {
    let mut limited = as_server_user(Path::new("/bin/bash"));
    limited.args(["-c", &format!("{first}; exec \"$0\" \"$@\"")]);
    limited.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        limited.current_dir(dir);
    }
    limited
}

/// Limits the address space of a process of the server, whose user may do that: a soft and hard
/// limit.
///
/// # Panics
/// When the limit cannot be set.
pub fn limit_address_space(pid: &str, bytes: u64) {
    let mut prlimit = as_server_user(Path::new("prlimit"));
    let status = prlimit.args(["--pid", pid, &format!("--as={bytes}")]).status();
    assert!(status.is_ok_and(|status| status.success()), "prlimit --pid {pid} --as={bytes}");
}

pub(super) fn send(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // It may have ended by itself, which is what was wanted.
        let _ = kill_process(pid, signal);
    }
}

pub(super) fn wait(child: &mut Child) -> Option<std::process::ExitStatus> {
    patiently(|| child.try_wait().ok().flatten())
}

/// Asks again and again, for a minute and a half or longer: looks are counted, so that a machine
/// that stands still for a while ends nothing.
pub(super) fn patiently<T>(mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    for _ in 0..4500 {
        let answer = ask();
        if answer.is_some() {
            return answer;
        }
        thread::sleep(Duration::from_millis(20));
    }
    None
}
