//! Limits on the processes of a server.

use std::path::Path;
use std::process::Command;

use crate::programs::as_server_user;

/// The same command, run by a shell that first lowers the limit on the size of files.
#[must_use]
pub fn with_file_limit(command: &Command, kib: u64) -> Command {
    // A process over the limit gets SIGXFSZ, which PostgreSQL ignores, and then EFBIG.
    through_shell(command, &format!("ulimit -f {kib}; trap '' XFSZ"))
}

/// The same command, run by a shell that first runs `first`.
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

/// Sets the soft and hard limit on the address space of a server process.
///
/// # Panics
/// When the limit cannot be set.
pub fn limit_address_space(pid: &str, bytes: u64) {
    let mut prlimit = as_server_user(Path::new("prlimit"));
    let status = prlimit.args(["--pid", pid, &format!("--as={bytes}")]).status();
    assert!(status.is_ok_and(|status| status.success()), "prlimit --pid {pid} --as={bytes}");
}
