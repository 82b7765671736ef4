//! One measurement: a script through psql, or a run of pgbench.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use serde::Serialize;

use crate::error::BenchError;
use crate::server::{Tools, output_of, shown};

/// What one run gave.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Outcome {
    /// Seconds, or transactions a second.
    pub value: f64,
    /// What the CPU time is divided by: transactions, or 1.
    pub operations: f64,
}

/// A database to measure.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// Programs and CPUs.
    pub tools: &'a Tools,
    /// Directory of the server's socket.
    pub socket: &'a Path,
    /// Name of the database.
    pub database: &'a str,
    /// Role that connects.
    pub user: &'a str,
}

impl Target<'_> {
    fn client(&self, program: &str) -> Command {
        let mut command = self.tools.command(program);
        command.arg("-h").arg(self.socket).args(["-U", self.user]);
        command.env_remove("PGHOST").env_remove("PGPORT").env_remove("PGOPTIONS");
        command
    }

    /// Runs statements, each in a transaction of its own, and adds up the seconds that psql waited.
    pub fn sql(&self, statements: &[String]) -> Result<Outcome, BenchError> {
        let mut command = self.client("psql");
        command.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", self.database]);
        command.args(["-c", "\\timing on"]);
        for statement in statements {
            command.args(["-c", statement]);
        }
        let text = output_of(&mut command)?;
        let seconds: Option<f64> = (!statements.is_empty())
            .then(|| text.lines().filter_map(seconds_in).collect::<Vec<_>>())
            .filter(|times| times.len() == statements.len())
            .map(|times| times.iter().sum());
        let missing = || BenchError::Output { command: shown(&command), wanted: "Time: line" };
        Ok(Outcome { value: seconds.ok_or_else(missing)?, operations: 1.0 })
    }

    /// Runs pgbench and returns its transactions a second.
    pub fn pgbench(&self, arguments: &[String]) -> Result<Outcome, BenchError> {
        let mut command = self.client("pgbench");
        command.arg("-n").args(arguments).arg(self.database);
        let text = output_of(&mut command)?;
        let missing = |wanted| BenchError::Output { command: shown(&command), wanted };
        let value = number_after(&text, "tps = ").ok_or_else(|| missing("tps"))?;
        let operations = number_after(&text, "number of transactions actually processed: ")
            .ok_or_else(|| missing("number of transactions"))?;
        Ok(Outcome { value, operations })
    }

    /// Runs `pgbench -i` and returns its seconds, from start to end.
    pub fn init(&self, scale: u32) -> Result<Outcome, BenchError> {
        let begin = Instant::now();
        let mut command = self.client("pgbench");
        output_of(command.args(["-i", "-q", "-s", &scale.to_string(), self.database]))?;
        Ok(Outcome { value: begin.elapsed().as_secs_f64(), operations: 1.0 })
    }
}

/// `Time: 1234.567 ms (00:01.235)` of psql, in seconds.
fn seconds_in(line: &str) -> Option<f64> {
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
}
