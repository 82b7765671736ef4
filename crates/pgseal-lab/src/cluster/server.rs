//! A running server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::{SUPERUSER, Target, Tools};
use crate::error::LabError;

/// Longest wait for a server to stop: a checkpoint of all it holds.
const PATIENCE: Duration = Duration::from_secs(300);
/// Looks at all processes before a sum is taken as it is.
const LOOKS: u32 = 100;

/// A running server; it is stopped when this goes away.
#[derive(Debug)]
pub struct Server {
    child: Child,
    socket: PathBuf,
    port: u16,
}

impl Server {
    pub(super) fn new(child: Child, socket: PathBuf, port: u16) -> Self {
        Self { child, socket, port }
    }

    /// The directory of its Unix socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The number in the socket's name; its TCP port too if it listens there.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process number of the postmaster.
    pub fn postmaster(&self) -> u32 {
        self.child.id()
    }

    /// The process numbers of the postmaster and of its children.
    pub fn processes(&self) -> Vec<u32> {
        let postmaster = self.child.id();
        let is_child = |pid: &u32| ticks_of(&stat_of(*pid), false, postmaster).is_some();
        std::iter::once(postmaster).chain(all_processes().filter(is_child)).collect()
    }

    /// A database of this server, over its Unix socket, as the superuser.
    pub fn target<'a>(&'a self, tools: &'a Tools, database: &'a str) -> Target<'a> {
        Target { tools, host: &self.socket, port: self.port, database, user: SUPERUSER }
    }

    /// CPU time in seconds that the server's processes, ended ones too, have used so far.
    pub fn cpu_seconds(&self) -> f64 {
        let ended = || ended_ticks_of(&stat_of(self.child.id()));
        let (mut before, mut ticks) = (ended(), self.ticks());
        for _ in 0..LOOKS {
            // What was waited for in between was seen in neither place.
            let after = ended();
            if after == before {
                break;
            }
            (before, ticks) = (after, self.ticks());
        }
        ticks as f64 / rustix::param::clock_ticks_per_second() as f64
    }

    fn ticks(&self) -> u64 {
        let postmaster = self.child.id();
        all_processes()
            .filter_map(|pid| ticks_of(&stat_of(pid), pid == postmaster, postmaster))
            .sum()
    }

    /// Stops it (fast: connections are cut, a checkpoint is made) and waits for its end.
    ///
    /// # Errors
    /// When it stays, or does not end cleanly.
    pub fn stop(mut self) -> Result<(), LabError> {
        self.end();
        let command = format!("the server of {}", self.socket.display());
        match self.child.try_wait() {
            Ok(Some(status)) if status.success() => Ok(()),
            Ok(Some(status)) => Err(LabError::Program { command, said: status.to_string() }),
            Ok(None) => Err(LabError::Program { command, said: "it does not end".to_owned() }),
            Err(error) => Err(LabError::io(&self.socket, "wait for its server")(error)),
        }
    }

    pub(super) fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    fn end(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        for signal in [Signal::INT, Signal::QUIT, Signal::KILL] {
            if let Some(pid) = pid
                && !self.has_ended()
            {
                // It may have ended in between.
                let _ = kill_process(pid, signal);
            }
            let begin = Instant::now();
            while begin.elapsed() < PATIENCE {
                if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                    return;
                }
                sleep(Duration::from_millis(20));
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// `/proc/PID/stat`, or nothing if there is no such process.
fn stat_of(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default()
}

fn all_processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// CPU ticks in a line of `/proc/PID/stat` (proc(5)) if it is the postmaster's, then with those of
/// its ended children, or one of its children's.
fn ticks_of(stat: &str, is_postmaster: bool, postmaster: u32) -> Option<u64> {
    let number = |field| number_in(stat, field);
    if is_postmaster {
        return Some(number(14)? + number(15)? + ended_ticks_of(stat)?);
    }
    (number(4)? == u64::from(postmaster)).then_some(number(14)? + number(15)?)
}

/// Those of the children that ended and were waited for.
fn ended_ticks_of(stat: &str) -> Option<u64> {
    Some(number_in(stat, 16)? + number_in(stat, 17)?)
}

/// A field of `/proc/PID/stat`, counted from 1 as proc(5) does.
fn number_in(stat: &str, field: usize) -> Option<u64> {
    // The second field, the name, may hold blanks and parentheses.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(field.checked_sub(3)?)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{ended_ticks_of, ticks_of};

    #[test]
    fn ticks_of_the_postmaster_and_of_its_children_and_of_nobody_else() {
        let stat = "7 (postgres: a) b) S 5 7 7 0 -1 4194304 1 2 3 4 100 20 3000 400 20 0 1 0 9";
        assert_eq!(ticks_of(stat, true, 7), Some(3520));
        assert_eq!(ended_ticks_of(stat), Some(3400));
        assert_eq!(ticks_of(stat, false, 5), Some(120));
        assert_eq!(ticks_of(stat, false, 6), None);
        assert_eq!(ticks_of("7 (cut", true, 7), None);
    }
}
