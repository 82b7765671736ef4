//! Client programs, run once each: psql, pgbench, `pgbench -i`.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde::Serialize;

use crate::command::{output_of, shown};
use crate::error::ClusterError;
use crate::session::Session;
use crate::tools::Tools;

/// The result of one run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Outcome {
    /// Seconds, or transactions a second.
    pub value: f64,
    /// The divisor for CPU time per operation: the number of transactions, or 1.
    pub operations: f64,
    /// CPU seconds, user and system, of the client program.
    pub client_cpu_s: f64,
}

/// A database to measure.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// Programs and CPUs.
    pub tools: &'a Tools,
    /// Directory of the server's socket, or the name or address of its host.
    pub host: &'a Path,
    /// The server's port.
    pub port: u16,
    /// Name of the database.
    pub database: &'a str,
    /// Role that connects.
    pub user: &'a str,
}

impl Target<'_> {
    /// A client program with the options for server and role; the caller adds the database.
    pub fn client(&self, program: &str) -> Command {
        let mut command = self.tools.command(program);
        command.arg("-h").arg(self.host).args(["-p", &self.port.to_string(), "-U", self.user]);
        command
    }

    /// A psql session that stays open, so that timings of statements exclude the start of a
    /// program.
    ///
    /// # Errors
    /// When psql cannot connect.
    pub fn session(&self) -> Result<Session, ClusterError> {
        Session::open(self)
    }

    /// Runs each statement in a transaction of its own and returns the sum of psql's timings.
    ///
    /// # Errors
    /// With the output of psql.
    pub fn sql<S: AsRef<str>>(&self, statements: &[S]) -> Result<Outcome, ClusterError> {
        let mut command = self.client("psql");
        command.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", self.database]);
        command.args(["-c", "\\timing on"]);
        for statement in statements {
            command.args(["-c", statement.as_ref()]);
        }
        let before = children_cpu_seconds();
        let text = output_of(&mut command)?;
        let seconds: Option<f64> = (!statements.is_empty())
            .then(|| text.lines().filter_map(seconds_in).collect::<Vec<_>>())
            .filter(|times| times.len() == statements.len())
            .map(|times| times.iter().sum());
        let missing =
            || ClusterError::Output { command: shown(&command), wanted: "Time: line".to_owned() };
        let client_cpu_s = children_cpu_seconds() - before;
        Ok(Outcome { value: seconds.ok_or_else(missing)?, operations: 1.0, client_cpu_s })
    }

    /// Runs a client program whose output goes nowhere, and times it.
    ///
    /// # Errors
    /// With what the program wrote to its standard error.
    pub fn timed(&self, command: &mut Command) -> Result<Outcome, ClusterError> {
        let before = children_cpu_seconds();
        let begun = Instant::now();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let program = Path::new(command.get_program()).to_owned();
        let done = command.output().map_err(ClusterError::io(&program, "run the program"))?;
        let value = begun.elapsed().as_secs_f64();
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            return Err(ClusterError::Program { command: shown(command), said });
        }
        let client_cpu_s = children_cpu_seconds() - before;
        Ok(Outcome { value, operations: 1.0, client_cpu_s })
    }

    /// Runs a statement and returns its rows: unaligned, `|` between the columns, no headings.
    ///
    /// # Errors
    /// With the output of psql.
    pub fn rows(&self, statement: &str) -> Result<String, ClusterError> {
        let mut command = self.client("psql");
        command.args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-d", self.database]);
        Ok(output_of(command.args(["-c", statement]))?.trim_end().to_owned())
    }

    /// Runs pgbench and returns its transactions per second, without the initial connection time
    /// (with `-C`, all connection times count).
    ///
    /// # Errors
    /// With the output of pgbench.
    pub fn pgbench<S: AsRef<str>>(&self, arguments: &[S]) -> Result<Outcome, ClusterError> {
        let mut command = self.client("pgbench");
        command.arg("-n").args(arguments.iter().map(AsRef::as_ref)).arg(self.database);
        let before = children_cpu_seconds();
        let text = output_of(&mut command)?;
        let client_cpu_s = children_cpu_seconds() - before;
        let missing = |wanted: &str| ClusterError::Output {
            command: shown(&command),
            wanted: wanted.to_owned(),
        };
        let value = number_after(&text, "tps = ").ok_or_else(|| missing("tps"))?;
        let operations = number_after(&text, "number of transactions actually processed: ")
            .ok_or_else(|| missing("number of transactions"))?;
        Ok(Outcome { value, operations, client_cpu_s })
    }

    /// Runs `pgbench -i` and returns the seconds of the whole run.
    ///
    /// # Errors
    /// With the output of pgbench.
    pub fn init(&self, scale: u32) -> Result<Outcome, ClusterError> {
        let before = children_cpu_seconds();
        let begin = Instant::now();
        let mut command = self.client("pgbench");
        output_of(command.args(["-i", "-q", "-s", &scale.to_string(), self.database]))?;
        let value = begin.elapsed().as_secs_f64();
        Ok(Outcome { value, operations: 1.0, client_cpu_s: children_cpu_seconds() - before })
    }
}

/// CPU seconds of all children of this process that have ended and been waited for; NaN if the
/// system does not report them. If one client program runs at a time, the difference before and
/// after is its CPU time.
pub(crate) fn children_cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    children_ticks(&stat)
        .map_or(f64::NAN, |ticks| ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Fields 16 and 17 of `/proc/PID/stat` (proc(5)).
fn children_ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(13);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

/// Parses psql's line `Time: 1234.567 ms (00:01.235)`; the result is in seconds.
pub(crate) fn seconds_in(line: &str) -> Option<f64> {
    let (number, _) = line.strip_prefix("Time: ")?.split_once(" ms")?;
    Some(number.parse::<f64>().ok()? / 1000.0)
}

fn number_after(text: &str, label: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(label))?;
    let number = rest.split([' ', '/']).next()?;
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_psql_and_pgbench_print() {
        assert_eq!(seconds_in("Time: 1500.250 ms (00:01.500)"), Some(1.500_25));
        assert_eq!(seconds_in("Time: 0.250 ms"), Some(0.000_25));
        assert_eq!(seconds_in(" count "), None);
        let text = "number of transactions actually processed: 8123/9000\n\
                    tps = 812.300000 (without initial connection time)\n";
        assert_eq!(number_after(text, "tps = "), Some(812.3));
        let processed = "number of transactions actually processed: ";
        assert_eq!(number_after(text, processed), Some(8123.0));
    }

    #[test]
    fn cpu_time_of_children_that_ended() {
        let stat = "7 (a) b) S 5 7 7 0 -1 4194304 1 2 3 4 100 20 3000 400 20 0 1 0 9";
        assert_eq!(children_ticks(stat), Some(3400));
        assert!(children_cpu_seconds() >= 0.0);
    }
}
