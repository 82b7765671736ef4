//! One run of pgbench: its throughput and its CPU time.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::context::shown;
use crate::error::LabError;

/// The result of one run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bench {
    /// Transactions per second. The initial connection time is excluded, unless each transaction
    /// has its own connection.
    pub tps: f64,
    /// CPU seconds of pgbench, user and system, per transaction.
    pub client_cpu_s_per_op: f64,
    /// CPU seconds of the server per transaction.
    pub server_cpu_s_per_op: f64,
}

/// Time and CPU time at the start of the measurement.
#[derive(Debug, Clone, Copy)]
struct Mark {
    when: Instant,
    client_cpu_s: f64,
    server_cpu_s: f64,
}

/// A running pgbench; dropping it kills pgbench.
#[derive(Debug)]
pub struct Running {
    child: Child,
    command: String,
    start: Mark,
    mark: Option<Mark>,
}

impl Running {
    /// Starts pgbench; `server_cpu_s` is the server's CPU time so far.
    ///
    /// # Errors
    /// When pgbench cannot be started.
    pub fn start(command: &mut Command, server_cpu_s: f64) -> Result<Self, LabError> {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let program = Path::new(command.get_program()).to_owned();
        let child = command.spawn().map_err(LabError::io(&program, "run the program"))?;
        let start = Mark { when: Instant::now(), client_cpu_s: 0.0, server_cpu_s };
        Ok(Self { child, command: shown(command), start, mark: None })
    }

    /// State and CPU seconds of the process. This works also after the process has ended, since
    /// only [`Running::finish`] waits for it.
    fn look(&self) -> Option<(char, f64)> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).ok()?;
        let (state, ticks) = state_and_ticks(&stat)?;
        Some((state, ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
    }

    /// Whether pgbench is still running.
    pub fn runs(&self) -> bool {
        self.look().is_some_and(|(state, _)| state != 'Z')
    }

    /// Starts counting CPU time now; `server_cpu_s` is the server's CPU time so far.
    pub fn mark(&mut self, server_cpu_s: f64) {
        let client_cpu_s = self.look().map_or(0.0, |(_, seconds)| seconds);
        self.mark = Some(Mark { when: Instant::now(), client_cpu_s, server_cpu_s });
    }

    /// Waits for the end of pgbench. `server_cpu_s` returns the server's CPU time so far.
    ///
    /// # Errors
    /// With the output of pgbench, if it failed.
    pub fn finish(mut self, server_cpu_s: impl Fn() -> f64) -> Result<Bench, LabError> {
        let client_cpu_s = loop {
            match self.look() {
                Some(('Z', seconds)) => break seconds,
                Some(_) => sleep(Duration::from_millis(5)),
                None => break f64::NAN,
            }
        };
        let ended = Instant::now();
        let program = Path::new("pgbench");
        let status = self.child.wait().map_err(LabError::io(program, "wait for its end"))?;
        let (mut out, mut err) = (String::new(), String::new());
        if let (Some(stdout), Some(stderr)) = (&mut self.child.stdout, &mut self.child.stderr) {
            stdout.read_to_string(&mut out).map_err(LabError::io(program, "read its output"))?;
            stderr.read_to_string(&mut err).map_err(LabError::io(program, "read its output"))?;
        }
        if !status.success() {
            let last: Vec<&str> = err.lines().rev().take(3).collect();
            let said = format!("{status}: {}", last.join("; "));
            return Err(LabError::Program { command: self.command.clone(), said });
        }
        let missing = |wanted: &str| LabError::Output {
            command: self.command.clone(),
            wanted: wanted.to_owned(),
        };
        let tps = number_after(&out, "tps = ").ok_or_else(|| missing("tps"))?;
        let all = number_after(&out, "number of transactions actually processed: ")
            .ok_or_else(|| missing("number of transactions"))?;
        // The CPU time of the last backends is counted after the postmaster has waited for them.
        sleep(Duration::from_millis(50));
        let from = self.mark.unwrap_or(self.start);
        // The number of transactions since the mark is estimated from the throughput; without a
        // mark, all transactions count.
        let since = tps * ended.duration_since(from.when).as_secs_f64();
        let operations = if self.mark.is_some() { since } else { all }.max(1.0);
        Ok(Bench {
            tps,
            client_cpu_s_per_op: (client_cpu_s - from.client_cpu_s) / operations,
            server_cpu_s_per_op: (server_cpu_s() - from.server_cpu_s) / operations,
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            // The process may have ended meanwhile.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Process state, and ticks of user and system time, from a line of `/proc/PID/stat` (proc(5)).
fn state_and_ticks(stat: &str) -> Option<(char, u64)> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some((fields.first()?.chars().next()?, ticks(11)? + ticks(12)?))
}

fn number_after(text: &str, label: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(label))?;
    rest.split([' ', '/']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_and_cpu_time_are_read_past_a_name_with_parentheses() {
        let stat = "7 (pg) b) Z 5 7 7 0 -1 4194304 1 2 3 4 100 20 3000 400 20 0 1 0 9";
        assert_eq!(state_and_ticks(stat), Some(('Z', 120)));
        assert_eq!(state_and_ticks("7 (cut"), None);
    }

    #[test]
    fn a_program_that_ends_leaves_its_cpu_time_and_its_words() {
        let script = "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; \
                      echo 'number of transactions actually processed: 8/9'; echo 'tps = 2.5 (x)'";
        let start = |script: &str| Running::start(Command::new("sh").args(["-c", script]), 3.0);
        let bench = start(script).unwrap().finish(|| 5.0).unwrap();
        assert_eq!((bench.tps, bench.server_cpu_s_per_op), (2.5, 0.25));
        assert!(bench.client_cpu_s_per_op > 0.0, "{bench:?}");
        // This script runs until its standard input ends. With 10 transactions a second, the time
        // since the mark determines the number of transactions.
        let script =
            "read end; echo 'tps = 10'; echo 'number of transactions actually processed: 9'";
        let mut waits = Command::new("sh");
        let mut marked =
            Running::start(waits.args(["-c", script]).stdin(Stdio::piped()), 3.0).unwrap();
        let before = Instant::now();
        marked.mark(4.0);
        let since = Instant::now();
        sleep(Duration::from_millis(200));
        let least_s = since.elapsed().as_secs_f64();
        drop(marked.child.stdin.take());
        let bench = marked.finish(|| 8.0).unwrap();
        let most_s = before.elapsed().as_secs_f64();
        let seconds = 4.0 / bench.server_cpu_s_per_op / 10.0;
        assert!((least_s - 1e-6..=most_s + 1e-6).contains(&seconds), "{bench:?} {most_s}");
        let error = start("echo no >&2; exit 3").unwrap().finish(|| 0.0).unwrap_err().to_string();
        assert!(error.contains("no"), "{error}");
    }
}
