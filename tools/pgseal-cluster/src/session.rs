//! A psql that stays open: timings exclude the start of a program and of a connection.

use std::io::{self, BufRead, BufReader, BufWriter, PipeReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::time::Instant;

use crate::client::Target;
use crate::client::seconds_in;
use crate::error::ClusterError;

/// Marks the end of an answer; no table contains this text.
const END: &str = "pgseal-lab-end-of-answer-8f2c6d";

/// How many characters of a statement an error shows.
const LONGEST_STATEMENT: usize = 200;

/// The result of a statement.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The rows: unaligned, `|` between the columns, no headings, a newline after each row.
    pub rows: String,
    /// Seconds from psql's `\timing`.
    pub seconds: f64,
    /// Seconds from sending the statement to the end of its answer, measured in this process.
    pub wall_seconds: f64,
}

/// An open connection; dropping it closes the connection.
#[derive(Debug)]
pub struct Session {
    child: Child,
    input: Option<BufWriter<ChildStdin>>,
    output: BufReader<PipeReader>,
}

impl Session {
    pub(crate) fn open(target: &Target<'_>) -> Result<Self, ClusterError> {
        let psql = || Path::new("psql");
        // Errors and answers share one pipe, so that they arrive in order and no pipe blocks.
        let (output, writer) = io::pipe().map_err(ClusterError::io(psql(), "run the program"))?;
        let errors = writer.try_clone().map_err(ClusterError::io(psql(), "run the program"))?;
        let mut command = target.client("psql");
        command.args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-d", target.database]);
        command.env("PGOPTIONS", "-c client_min_messages=error");
        command.stdin(Stdio::piped()).stdout(writer).stderr(errors);
        let mut child = command.spawn().map_err(ClusterError::io(psql(), "run the program"))?;
        // Closes this process's copies of the pipe's write end; otherwise the end of psql would go
        // unnoticed.
        drop(command);
        let input = child.stdin.take().map(|pipe| BufWriter::with_capacity(1 << 16, pipe));
        let mut session = Self { child, input, output: BufReader::new(output) };
        session.script("SELECT 1 WHERE false")?;
        Ok(session)
    }

    /// Runs one statement (no `;` needed) and returns its rows and time.
    ///
    /// # Errors
    /// With the output of the server; the session is then closed.
    pub fn query(&mut self, statement: &str) -> Result<Answer, ClusterError> {
        let begin = Instant::now();
        self.send("\\timing on\n", statement);
        let mut rows = self.answer(statement)?;
        let wall_seconds = begin.elapsed().as_secs_f64();
        // psql prints the timing after the rows.
        let line = rows.trim_end().rfind('\n').map_or(0, |at| at + 1);
        let seconds = rows.get(line..).map(str::trim_end).and_then(seconds_in);
        let wanted = "Time: line".to_owned();
        let seconds =
            seconds.ok_or_else(|| ClusterError::Output { command: "psql".to_owned(), wanted })?;
        rows.truncate(line);
        Ok(Answer { rows, seconds, wall_seconds })
    }

    /// Runs statements, separated by `;`, whose rows are ignored; returns the seconds until the
    /// last statement is done.
    ///
    /// # Errors
    /// With the output of the server; the session is then closed.
    pub fn script(&mut self, statements: &str) -> Result<f64, ClusterError> {
        let begin = Instant::now();
        self.send("\\timing off\n", statements);
        self.answer(statements)?;
        Ok(begin.elapsed().as_secs_f64())
    }

    /// Runs the statements that a producer writes, each ended with `;` and without result rows
    /// (INSERTs, for example). Returns the seconds until the last statement is done, including the
    /// producer's own time. The producer may stop early between two statements, for example at a
    /// time budget.
    ///
    /// # Errors
    /// With the output of the server, or the producer's error.
    pub fn feed<F>(&mut self, producer: F) -> Result<f64, ClusterError>
    where
        F: FnOnce(&mut dyn Write) -> io::Result<()>,
    {
        let begin = Instant::now();
        self.write(b"\\timing off\n")?;
        let fed = match &mut self.input {
            Some(input) => producer(input),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        };
        self.finish(fed, "statements of a producer", "\n;\n")?;
        Ok(begin.elapsed().as_secs_f64())
    }

    /// Runs `COPY ... FROM STDIN` with the lines that a producer writes (text or CSV format, each
    /// ended with a newline, none of them `\.`). Returns the seconds until COPY is done, including
    /// the producer's own time.
    ///
    /// # Errors
    /// With the output of the server, or the producer's error.
    pub fn copy_in<F>(&mut self, copy: &str, producer: F) -> Result<f64, ClusterError>
    where
        F: FnOnce(&mut dyn Write) -> io::Result<()>,
    {
        let begin = Instant::now();
        self.write(format!("\\timing off\n{copy};\n").as_bytes())?;
        let fed = match &mut self.input {
            Some(input) => producer(input),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        };
        self.finish(fed, copy, "\\.\n")?;
        Ok(begin.elapsed().as_secs_f64())
    }

    /// Ends the input of a producer. If the pipe is broken, the output of psql is the error.
    fn finish(
        &mut self,
        fed: io::Result<()>,
        statement: &str,
        end: &str,
    ) -> Result<(), ClusterError> {
        let broken = matches!(&fed, Err(error) if error.kind() == io::ErrorKind::BrokenPipe);
        if let (Err(error), false) = (fed, broken) {
            return Err(ClusterError::io(Path::new("the producer of rows"), "go on")(error));
        }
        let ended =
            self.write(format!("{end}\\echo {END}\n").as_bytes()).and_then(|()| self.flush());
        self.answer(statement)?;
        ended
    }

    fn send(&mut self, before: &str, statement: &str) {
        let statement = statement.trim_end().trim_end_matches(';');
        let text = format!("{before}{statement}\n;\n\\echo {END}\n");
        // If psql has ended, this write fails, but reading the answer reports why psql ended.
        let _ = self.write(text.as_bytes()).and_then(|()| self.flush());
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), ClusterError> {
        let written = match &mut self.input {
            Some(input) => input.write_all(bytes),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        };
        written.map_err(ClusterError::io(Path::new("psql"), "talk to the program"))
    }

    fn flush(&mut self) -> Result<(), ClusterError> {
        let flushed = self.input.as_mut().map_or(Ok(()), Write::flush);
        flushed.map_err(ClusterError::io(Path::new("psql"), "talk to the program"))
    }

    /// Reads until the end mark.
    fn answer(&mut self, statement: &str) -> Result<String, ClusterError> {
        let mut text = Vec::new();
        loop {
            let from = text.len();
            let read = self.output.read_until(b'\n', &mut text);
            if read.map_err(ClusterError::io(Path::new("psql"), "talk to the program"))? == 0 {
                let statement: String = statement.chars().take(LONGEST_STATEMENT).collect();
                let said = String::from_utf8_lossy(&text).into_owned();
                return Err(ClusterError::Program { command: format!("psql: {statement}"), said });
            }
            if text.get(from..).is_some_and(|line| line.trim_ascii_end() == END.as_bytes()) {
                text.truncate(from);
                return Ok(String::from_utf8_lossy(&text).into_owned());
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // psql ends when its input ends; its remaining output is discarded.
        drop(self.input.take());
        let _ = io::copy(&mut self.output.by_ref(), &mut io::sink());
        let _ = self.child.wait();
    }
}
