//! Clusters to measure, plain and sealed, and their servers.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::error::BenchError;

/// Longest wait for a server to start or stop.
const PATIENCE: Duration = Duration::from_secs(60);

/// The programs in use.
#[derive(Debug, Clone)]
pub struct Tools {
    /// Directory of the PostgreSQL programs, the same for every arm.
    pub bindir: PathBuf,
    /// The program `pgseal`.
    pub pgseal: PathBuf,
    /// CPUs of server and client, as `taskset -c` takes them; `None`: not pinned.
    pub cpus: Option<String>,
}

impl Tools {
    /// A program of PostgreSQL, pinned.
    pub fn command(&self, program: &str) -> Command {
        self.pinned(&self.bindir.join(program))
    }

    fn pinned(&self, program: &Path) -> Command {
        match &self.cpus {
            None => Command::new(program),
            Some(cpus) => {
                let mut command = Command::new("taskset");
                command.args(["-c", cpus]).arg(program);
                command
            }
        }
    }
}

/// Runs a program to its end and returns what it wrote to standard output.
pub fn output_of(command: &mut Command) -> Result<String, BenchError> {
    let shown = shown(command);
    let output =
        command.stdin(Stdio::null()).output().map_err(BenchError::io(Path::new(&shown)))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(BenchError::Program { command: shown, said: format!("{}: {said}", output.status) })
}

/// The command as people would type it.
pub fn shown(command: &Command) -> String {
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect();
    words.join(" ")
}

/// One data directory.
#[derive(Debug)]
pub struct Cluster {
    /// What the tables call it.
    pub name: String,
    /// Its data directory.
    pub data: PathBuf,
    /// Where its socket is.
    pub socket: PathBuf,
    sealed: bool,
    log: PathBuf,
}

impl Cluster {
    /// Makes a cluster below `root`, sealed if a suite is named. Data checksums are on in either.
    pub fn create(
        tools: &Tools,
        root: &Path,
        name: &str,
        suite: Option<&str>,
    ) -> Result<Self, BenchError> {
        let data = root.join(name);
        let socket = root.join(format!("s-{name}"));
        fs::create_dir(&socket).map_err(BenchError::io(&socket))?;
        let options = ["--no-sync", "-A", "trust", "-U", "postgres", "--locale=C"];
        let mut command = match suite {
            None => {
                let mut command = Command::new(tools.bindir.join("initdb"));
                command.arg("-k").arg("-D").arg(&data).args(options);
                command
            }
            Some(suite) => {
                let key = root.join("key");
                if !key.exists() {
                    output_of(Command::new(&tools.pgseal).args(["key", "new", "-o"]).arg(&key))?;
                }
                let mut command = Command::new(&tools.pgseal);
                command.args(["initdb", "-k", "--suite", suite, "-K"]);
                command.arg(format!("file:{}", key.display())).arg("--bindir").arg(&tools.bindir);
                command.arg("-D").arg(&data).arg("--").args(options);
                command
            }
        };
        output_of(&mut command)?;
        let log = root.join(format!("{name}.log"));
        Ok(Self { name: name.to_owned(), data, socket, sealed: suite.is_some(), log })
    }

    /// Starts a server as a child of this process, on its Unix socket only.
    pub fn start(&self, tools: &Tools, settings: &[&str]) -> Result<Server, BenchError> {
        let postgres = tools.bindir.join("postgres");
        let mut command = if self.sealed {
            let mut command = tools.pinned(&tools.pgseal);
            command.args(["run", "--"]).arg(&postgres);
            command
        } else {
            tools.pinned(&postgres)
        };
        command.arg("-D").arg(&self.data).arg("-k").arg(&self.socket);
        for setting in ["listen_addresses=", "autovacuum=off"].iter().chain(settings) {
            command.args(["-c", setting]);
        }
        let log = File::options()
            .create(true)
            .append(true)
            .open(&self.log)
            .map_err(BenchError::io(&self.log))?;
        let errors = log.try_clone().map_err(BenchError::io(&self.log))?;
        let shown = shown(&command);
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        let child = command.spawn().map_err(BenchError::io(&postgres))?;
        let mut server = Server { child };
        let begin = Instant::now();
        loop {
            let mut ready = Command::new(tools.bindir.join("pg_isready"));
            ready.arg("-q").arg("-h").arg(&self.socket);
            if ready.status().is_ok_and(|status| status.success()) {
                return Ok(server);
            }
            let ended = server.child.try_wait().is_ok_and(|status| status.is_some());
            if ended || begin.elapsed() > PATIENCE {
                let log = fs::read_to_string(&self.log).unwrap_or_default();
                let last = log.lines().rev().take(5).collect::<Vec<_>>();
                let said = last.into_iter().rev().collect::<Vec<_>>().join("\n");
                return Err(BenchError::Program { command: shown, said });
            }
            sleep(Duration::from_millis(50));
        }
    }
}

/// A running server; it is stopped when this goes away.
#[derive(Debug)]
pub struct Server {
    child: Child,
}

impl Server {
    /// CPU time in seconds that the server's processes, ended ones too, have used so far.
    pub fn cpu_seconds(&self) -> f64 {
        let postmaster = self.child.id();
        let ticks: u64 = fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
            .filter_map(|pid| {
                let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
                ticks_of(&stat, pid == postmaster, postmaster)
            })
            .sum();
        ticks as f64 / rustix::param::clock_ticks_per_second() as f64
    }
}

/// CPU ticks in a line of `/proc/PID/stat` (proc(5)) if it is the postmaster's, then with those of
/// its ended children, or one of its children's.
fn ticks_of(stat: &str, is_postmaster: bool, postmaster: u32) -> Option<u64> {
    // The second field, the name, may hold blanks and parentheses.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    if is_postmaster {
        return Some(number(14)? + number(15)? + number(16)? + number(17)?);
    }
    (number(4)? == u64::from(postmaster)).then_some(number(14)? + number(15)?)
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        for signal in [Signal::INT, Signal::QUIT, Signal::KILL] {
            if let Some(pid) = pid
                && !matches!(self.child.try_wait(), Ok(Some(_)))
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

#[cfg(test)]
mod tests {
    use super::ticks_of;

    #[test]
    fn ticks_of_the_postmaster_and_of_its_children_and_of_nobody_else() {
        let stat = "7 (postgres: a) b) S 5 7 7 0 -1 4194304 1 2 3 4 100 20 3000 400 20 0 1 0 9";
        assert_eq!(ticks_of(stat, true, 7), Some(3520));
        assert_eq!(ticks_of(stat, false, 5), Some(120));
        assert_eq!(ticks_of(stat, false, 6), None);
        assert_eq!(ticks_of("7 (cut", true, 7), None);
    }
}
