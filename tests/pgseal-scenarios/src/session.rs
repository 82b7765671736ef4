//! A connection that stays open: psql, spoken to through pipes.

use std::io::{BufRead, BufReader, PipeReader, Write};
use std::process::{Child, ChildStdin, Command};

/// An open psql. Ends when it is dropped.
#[derive(Debug)]
pub struct Session {
    child: Child,
    stdin: Option<ChildStdin>,
    output: BufReader<PipeReader>,
    count: u64,
}

impl Session {
    /// Starts the command, a psql with its options.
    pub(crate) fn open(mut command: Command) -> Session {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        command.stdin(std::process::Stdio::piped());
        command.stdout(writer.try_clone().expect("a descriptor")).stderr(writer);
        let mut child = command.spawn().expect("psql runs");
        let stdin = child.stdin.take();
        // The command holds the writing end; without it the reader sees the end of psql.
        drop(command);
        Session { child, stdin, output: BufReader::new(reader), count: 0 }
    }

    /// Runs SQL and returns all that psql said. `None`: the connection or psql is gone.
    pub fn run(&mut self, sql: &str) -> Option<String> {
        self.count += 1;
        let end = format!("<<done {}>>", self.count);
        let stdin = self.stdin.as_mut()?;
        writeln!(stdin, "{sql};\n\\echo '{end}'").ok()?;
        stdin.flush().ok()?;
        let mut text = String::new();
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if line.trim_end() == end {
                return Some(text.trim_end().to_owned());
            }
            text.push_str(&line);
        }
    }

    /// Runs SQL that must succeed.
    ///
    /// # Panics
    /// With what psql said.
    #[track_caller]
    pub fn sql(&mut self, sql: &str) -> String {
        let said = self.run(sql).unwrap_or_else(|| panic!("the connection is gone: {sql}"));
        assert!(!said.contains("ERROR:") && !said.contains("FATAL:"), "{sql}\n{said}");
        said
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // psql ends when its input ends, but not in the middle of a query.
        self.stdin = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
