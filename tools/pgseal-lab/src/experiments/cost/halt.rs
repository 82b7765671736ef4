//! Stops and continues a whole server, and sees to it that none stays stopped.
//!
//! A stopped server does nothing: no checkpoint, no writer, no session. When this process ends for
//! any reason, also by signal 9, a process of its own continues and ends the servers
//! ([`Guardian`]).

use std::io::{BufRead, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use pgseal_cluster::process::{is_stopped, send, start_of, with_children};
use pgseal_cluster::{Patience, Signal};

use crate::context::Context;
use crate::error::LabError;

/// Longest wait for all processes of a server to stop; one that writes to the disk stops after
/// that.
const STOPPED: Patience = Patience::every(Duration::from_millis(2), 60);

/// Stops the postmaster and all its children, and waits until they have stopped.
///
/// # Errors
/// [`LabError::Broken`] if one does not stop.
pub fn stop(postmaster: u32) -> Result<(), LabError> {
    // A child that was forked before the postmaster stopped is found by the next look.
    let stopped = STOPPED.wait_until(|| {
        let running: Vec<u32> =
            with_children(postmaster).into_iter().filter(|pid| !is_stopped(*pid)).collect();
        running.iter().for_each(|pid| send(*pid, Signal::STOP));
        running.is_empty()
    });
    if stopped {
        return Ok(());
    }
    Err(LabError::Broken {
        what: format!("the server with process number {postmaster}"),
        expected: "that all its processes stop".to_owned(),
        found: "one that runs on".to_owned(),
    })
}

/// Continues the postmaster and all its children.
pub fn go_on(postmaster: u32) {
    for pid in with_children(postmaster) {
        send(pid, Signal::CONT);
    }
}

/// Whether every process of the server is stopped.
pub fn all_stopped(postmaster: u32) -> bool {
    with_children(postmaster).into_iter().all(is_stopped)
}

/// A process that continues and ends the servers if this process cannot.
#[derive(Debug)]
pub struct Guardian {
    child: Child,
    input: Option<ChildStdin>,
}

impl Guardian {
    /// Starts it, in a process group of its own, so that Ctrl-C does not reach it.
    ///
    /// # Errors
    /// When the program `pgseal-lab` cannot be run.
    pub fn start(context: &Context) -> Result<Self, LabError> {
        let mut command = Command::new(&context.lab);
        command.args(["child", super::NAME]).current_dir("/").process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(LabError::io(&context.lab, "run the program"))?;
        let input = child.stdin.take();
        Ok(Self { child, input })
    }

    /// Watches over a server from now on.
    ///
    /// # Errors
    /// When the guardian has ended.
    pub fn watch(&mut self, postmaster: u32) -> Result<(), LabError> {
        let Some(input) = &mut self.input else { return Ok(()) };
        let line = format!("{postmaster} {}\n", start_of(postmaster).unwrap_or(0));
        let written = input.write_all(line.as_bytes()).and_then(|()| input.flush());
        written.map_err(LabError::io(Path::new("the guardian"), "talk to the process"))
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        // It ends when its input does.
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

/// The work of the guardian: reads servers until the input ends, which it does when the process
/// that writes it does, and then ends those that are still there.
pub fn guard(input: impl BufRead) {
    let mut watched: Vec<(u32, u64)> = Vec::new();
    for line in input.lines() {
        let Ok(line) = line else { break };
        let mut words = line.split(' ');
        let mut next = || words.next()?.parse::<u64>().ok();
        if let (Some(pid), Some(start)) = (next(), next())
            && let Ok(pid) = u32::try_from(pid)
        {
            watched.push((pid, start));
        }
    }
    for (pid, start) in watched {
        // Another process may have this number by now.
        if start_of(pid) == Some(start) {
            send(pid, Signal::INT);
            go_on(pid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shell that runs a child, in place of a server. SIGINT ends it also if the tests were
    /// started with the signal ignored, as a shell without job control starts background jobs.
    fn parent() -> Child {
        let mut command = Command::new("env");
        command.args(["--default-signal=INT", "sh", "-c", "sleep 60 & wait"]);
        command.stdin(Stdio::null()).spawn().unwrap()
    }

    fn with_child(parent: &Child) -> Vec<u32> {
        let two = || Some(with_children(parent.id())).filter(|pids| pids.len() == 2);
        Patience::seconds(20).wait_for(two).unwrap()
    }

    #[test]
    fn parent_and_child_stop_and_go_on() {
        let mut shell = parent();
        let pids = with_child(&shell);
        stop(shell.id()).unwrap();
        assert!(all_stopped(shell.id()) && pids.iter().all(|pid| is_stopped(*pid)));
        go_on(shell.id());
        assert!(Patience::seconds(20).wait_until(|| pids.iter().all(|pid| !is_stopped(*pid))));
        pids.iter().rev().for_each(|pid| send(*pid, Signal::KILL));
        shell.wait().unwrap();
    }

    #[test]
    fn the_guardian_continues_and_ends_what_is_left_and_nobody_else() {
        let (mut left, mut other) = (parent(), parent());
        let (pids, others) = (with_child(&left), with_child(&other));
        stop(left.id()).unwrap();
        let start = start_of(left.id()).unwrap();
        // The second number belongs to a process that started at another time.
        let text = format!("{} {start}\n{} 1\nnonsense\n", left.id(), other.id());
        guard(text.as_bytes());
        // The shell ends by SIGINT once it is continued.
        let ended = Patience::seconds(20).wait_for(|| left.try_wait().unwrap());
        assert!(ended.is_some_and(|status| !status.success()), "{ended:?}");
        assert!(other.try_wait().unwrap().is_none());
        assert!(pids.iter().skip(1).all(|pid| !is_stopped(*pid)));
        for pid in pids.iter().chain(&others).skip(1) {
            send(*pid, Signal::KILL);
        }
        other.wait().unwrap();
    }
}
