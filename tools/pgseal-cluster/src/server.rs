//! A running server, a direct child of this process.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::Signal;

use crate::client::Target;
use crate::cluster::SUPERUSER;
use crate::command::shown;
use crate::error::{ClusterError, last_lines};
use crate::patience::Patience;
use crate::process::{all, all_in, is_ready, number_in, send, stat_of, with_children};
use crate::tools::Tools;

/// Longest wait for a server to start.
const START: Patience = Patience::seconds(120);
/// Longest wait for a server to stop, including the shutdown checkpoint.
const STOP: Patience = Patience::seconds(300);
/// Longest wait for the children of a killed postmaster to end.
const KILLED: Patience = Patience::seconds(90);
/// How often a sum over all processes is repeated before an inconsistent one is accepted.
const LOOKS: u32 = 100;

/// How a server is stopped; the modes of pg_ctl.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stop {
    /// Waits until all clients have disconnected.
    Smart,
    /// Disconnects the clients and makes a checkpoint.
    #[default]
    Fast,
    /// Disconnects the clients; the next start recovers from the WAL.
    Immediate,
}

impl Stop {
    /// The signal that tells the postmaster to stop in this mode.
    pub fn signal(self) -> Signal {
        match self {
            Self::Smart => Signal::TERM,
            Self::Fast => Signal::INT,
            Self::Immediate => Signal::QUIT,
        }
    }
}

/// A running server; dropping it stops the server.
#[derive(Debug)]
pub struct Server {
    child: Child,
    data: PathBuf,
    log: PathBuf,
    /// The length of the log before this start.
    log_start: usize,
    at_drop: Stop,
    socket: PathBuf,
    port: u16,
}

impl Server {
    /// Runs a command that becomes the postmaster of `data`, with its output in `log`, and waits
    /// until the server accepts connections.
    ///
    /// # Errors
    /// [`ClusterError::Start`] with the log, when the server ends or does not become ready.
    pub fn launch(command: Command, data: &Path, log: &Path) -> Result<Self, ClusterError> {
        let shown = shown(&command);
        let mut server = Self::spawn(command, data, log)?;
        let pid = server.postmaster();
        let started = START.wait_for(|| {
            let ended = server.has_ended();
            (ended || is_ready(&server.data, pid)).then_some(!ended)
        });
        match started {
            Some(true) => Ok(server),
            other => {
                let ended = other.is_some();
                if !ended {
                    server.at_drop = Stop::Immediate;
                }
                Err(ClusterError::Start { command: shown, log: server.log(), ended })
            }
        }
    }

    /// Like [`Server::launch`], without waiting.
    ///
    /// # Errors
    /// When the program cannot be run.
    pub fn spawn(mut command: Command, data: &Path, log: &Path) -> Result<Self, ClusterError> {
        let log_start = fs::metadata(log).map_or(0, |meta| meta.len());
        let open = || File::options().create(true).append(true).open(log);
        let file = open().map_err(ClusterError::io(log, "write the log"))?;
        let errors = file.try_clone().map_err(ClusterError::io(log, "write the log"))?;
        command.stdin(Stdio::null()).stdout(file).stderr(errors);
        let program = PathBuf::from(command.get_program());
        let child = command.spawn().map_err(ClusterError::io(&program, "run the program"))?;
        Ok(Self {
            child,
            data: data.to_owned(),
            log: log.to_owned(),
            log_start: usize::try_from(log_start).unwrap_or(0),
            at_drop: Stop::default(),
            socket: PathBuf::new(),
            port: 0,
        })
    }

    /// Sets the socket directory and the port of the server.
    #[must_use]
    pub fn listening(mut self, socket: &Path, port: u16) -> Self {
        (self.socket, self.port) = (socket.to_owned(), port);
        self
    }

    /// Sets how the server is stopped on drop; the default is fast.
    #[must_use]
    pub fn at_drop(mut self, mode: Stop) -> Self {
        self.at_drop = mode;
        self
    }

    /// The directory of the server's Unix socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The number in the socket's name; also the TCP port if the server listens on TCP.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What the server has logged since this start.
    pub fn log(&self) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(bytes.get(self.log_start..).unwrap_or_default()).into_owned()
    }

    /// The process number of the postmaster.
    pub fn postmaster(&self) -> u32 {
        self.child.id()
    }

    /// The process numbers of the postmaster and of its children.
    pub fn processes(&self) -> Vec<u32> {
        with_children(self.child.id())
    }

    /// A database of this server, over its Unix socket, as the superuser.
    pub fn target<'a>(&'a self, tools: &'a Tools, database: &'a str) -> Target<'a> {
        Target { tools, host: &self.socket, port: self.port, database, user: SUPERUSER }
    }

    /// CPU seconds that the server's processes have used so far, including processes that have
    /// ended.
    pub fn cpu_seconds(&self) -> f64 {
        let ended = || ended_ticks_of(&stat_of(self.child.id()));
        let (mut before, mut seconds) = (ended(), self.running_seconds());
        for _ in 0..LOOKS {
            // A child that was waited for while the processes were read may be missing from the
            // sum.
            let after = ended();
            if after == before {
                break;
            }
            (before, seconds) = (after, self.running_seconds());
        }
        seconds + seconds_of(before.unwrap_or(0))
    }

    /// Bytes that the server's processes have read from and written to files and pipes so far, with
    /// those that have ended (`/proc/PID/io`); none if the kernel does not tell.
    pub fn bytes_moved(&self) -> Option<u64> {
        let moved = |pid: &u32| {
            let text = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
            let number = |name: &str| -> Option<u64> {
                text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
            };
            Some(number("rchar:")? + number("wchar:")?)
        };
        // A child may end meanwhile; its bytes are then the postmaster's.
        let postmaster: u64 = moved(&self.child.id())?;
        Some(postmaster + self.processes().iter().skip(1).filter_map(moved).sum::<u64>())
    }

    /// CPU seconds of the processes that have not ended.
    fn running_seconds(&self) -> f64 {
        let postmaster = self.child.id();
        all()
            .filter_map(|pid| {
                let ticks = ticks_of(&stat_of(pid), pid == postmaster, postmaster)?;
                Some(nanoseconds_of(pid).map_or_else(|| seconds_of(ticks), |ns| ns as f64 / 1e9))
            })
            .sum()
    }

    /// Whether the postmaster has ended.
    pub fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// Stops the server (fast mode) and waits for its end.
    ///
    /// # Errors
    /// When the server does not end in time or does not end cleanly.
    pub fn stop(self) -> Result<(), ClusterError> {
        self.stop_with(Stop::Fast)
    }

    /// Stops the server in this mode and waits for its end.
    ///
    /// # Errors
    /// When the server does not end in time, or does not end cleanly except in immediate mode.
    pub fn stop_with(mut self, mode: Stop) -> Result<(), ClusterError> {
        if !self.has_ended() {
            send(self.child.id(), mode.signal());
        }
        let said = match self.wait(STOP) {
            Some(status) if status.success() || mode == Stop::Immediate => return Ok(()),
            Some(status) => status.to_string(),
            None => "it does not end".to_owned(),
        };
        let command = format!("the server of {}", self.data.display());
        let said = format!("{said}\n{}", last_lines(&self.log()));
        Err(ClusterError::Program { command, said })
    }

    /// Kills the postmaster with signal 9 and waits until its children have ended.
    ///
    /// # Errors
    /// When a child does not end.
    pub fn kill9(mut self) -> Result<(), ClusterError> {
        // Both calls fail only if the child has ended and has been waited for already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if KILLED.wait_until(|| all_in(&self.data).is_empty()) {
            return Ok(());
        }
        let command = format!("the killed server of {}", self.data.display());
        Err(ClusterError::Program { command, said: "children of it stay".to_owned() })
    }

    fn wait(&mut self, patience: Patience) -> Option<ExitStatus> {
        patience.wait_for(|| self.child.try_wait().ok().flatten())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let harder = [self.at_drop, Stop::Immediate];
        for signal in harder.map(Stop::signal).into_iter().chain([Signal::KILL]) {
            if self.has_ended() {
                return;
            }
            send(self.child.id(), signal);
            if self.wait(STOP).is_some() {
                return;
            }
        }
    }
}

/// The text of `/proc/PID/stat`; empty if there is no such process.
fn seconds_of(ticks: u64) -> f64 {
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// Nanoseconds that a process of one thread has run on a CPU; `None`: this kernel does not count
/// them. A tick is 10 ms, which is much for a short measurement.
fn nanoseconds_of(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
    text.split_ascii_whitespace().next()?.parse().ok().filter(|ns| *ns > 0)
}

/// CPU ticks from a line of `/proc/PID/stat` (proc(5)): of the postmaster or of one of its running
/// children. `None` for other processes.
fn ticks_of(stat: &str, is_postmaster: bool, postmaster: u32) -> Option<u64> {
    let number = |field| number_in(stat, field);
    if is_postmaster {
        return Some(number(14)? + number(15)?);
    }
    (number(4)? == u64::from(postmaster)).then_some(number(14)? + number(15)?)
}

/// CPU ticks of the children that have ended and been waited for.
fn ended_ticks_of(stat: &str) -> Option<u64> {
    Some(number_in(stat, 16)? + number_in(stat, 17)?)
}

#[cfg(test)]
mod tests {
    use super::{ended_ticks_of, ticks_of};

    #[test]
    fn ticks_of_the_postmaster_and_of_its_children_and_of_nobody_else() {
        let stat = "7 (postgres: a) b) S 5 7 7 0 -1 4194304 1 2 3 4 100 20 3000 400 20 0 1 0 9";
        assert_eq!(ticks_of(stat, true, 7), Some(120));
        assert_eq!(ended_ticks_of(stat), Some(3400));
        assert_eq!(ticks_of(stat, false, 5), Some(120));
        assert_eq!(ticks_of(stat, false, 6), None);
        assert_eq!(ticks_of("7 (cut", true, 7), None);
    }
}
