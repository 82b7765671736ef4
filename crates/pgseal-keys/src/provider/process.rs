//! Waits for a child process and its output, for a limited time.

use std::io::{self, Read};
use std::process::{Child, ExitStatus};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use zeroize::Zeroizing;

/// How a child ended.
pub(super) enum Ended {
    /// The child has ended. The output has at most one byte more than was allowed.
    Finished(io::Result<Zeroizing<Vec<u8>>>, ExitStatus),
    /// The child did not end, or did not close its output, before the deadline. It was killed.
    TooSlow,
    /// The operating system does not tell how the child ended.
    Lost(io::Error),
}

/// Reads up to `limit` + 1 bytes of standard output, which must be a pipe, and waits for the end.
pub(super) fn finish(mut child: Child, limit: usize, deadline: Instant) -> Ended {
    let Some(output) = child.stdout.take() else {
        return Ended::Lost(io::Error::other("its output is no pipe"));
    };
    // A thread reads the pipe, because such a read has no time limit. After the deadline the thread
    // is abandoned: a grandchild may hold the pipe open.
    let (send, receive) = mpsc::channel();
    thread::spawn(move || send.send(read_all(output, limit)));
    let Ok(text) = receive.recv_timeout(deadline.saturating_duration_since(Instant::now())) else {
        stop(&mut child);
        return Ended::TooSlow;
    };
    match wait(&mut child, deadline) {
        Ok(Some(status)) => Ended::Finished(text, status),
        Ok(None) => {
            stop(&mut child);
            Ended::TooSlow
        }
        Err(err) => Ended::Lost(err),
    }
}

/// Reads at most one byte more than is allowed, into a buffer that never grows.
fn read_all(output: impl Read, limit: usize) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut text = Zeroizing::new(Vec::with_capacity(limit + 64));
    output.take(u64::try_from(limit + 1).unwrap_or(u64::MAX)).read_to_end(&mut text)?;
    Ok(text)
}

fn wait(child: &mut Child, deadline: Instant) -> io::Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Kills the child, and its whole process group if it was started as the leader of one.
fn stop(child: &mut Child) {
    // These calls fail if the child has ended by itself, or leads no group, which is fine.
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    let _ = child.kill();
    let _ = child.wait();
}
