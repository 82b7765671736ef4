//! psql that stays open: statements are timed without the start of a program or a connection.

use std::io::{self, BufRead, BufReader, BufWriter, PipeReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::time::Instant;

use super::Target;
use super::client::seconds_in;
use crate::error::LabError;

/// Ends the answer of a statement; no table holds it.
const END: &str = "pgseal-lab-end-of-answer-8f2c6d";

/// Characters of a statement that an error shows.
const LONGEST_STATEMENT: usize = 200;

/// What a statement gave.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Its rows: unaligned, `|` between the columns, no headings, each line ended.
    pub rows: String,
    /// Seconds that psql waited for it (`\timing`).
    pub seconds: f64,
    /// Seconds from sending the statement to the end of its answer, here.
    pub wall_seconds: f64,
}

/// A connection. It ends when this is dropped.
#[derive(Debug)]
pub struct Session {
    child: Child,
    input: Option<BufWriter<ChildStdin>>,
    output: BufReader<PipeReader>,
}

impl Session {
    pub(super) fn open(target: &Target<'_>) -> Result<Self, LabError> {
        let psql = || Path::new("psql");
        // Errors come where answers come, so that they are read in order and nothing blocks.
        let (output, writer) = io::pipe().map_err(LabError::io(psql(), "run the program"))?;
        let errors = writer.try_clone().map_err(LabError::io(psql(), "run the program"))?;
        let mut command = target.client("psql");
        command.args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-d", target.database]);
        command.env("PGOPTIONS", "-c client_min_messages=error");
        command.stdin(Stdio::piped()).stdout(writer).stderr(errors);
        let mut child = command.spawn().map_err(LabError::io(psql(), "run the program"))?;
        // Closes our copies of the writing ends, or the end of psql would not be seen.
        drop(command);
        let input = child.stdin.take().map(|pipe| BufWriter::with_capacity(1 << 16, pipe));
        let mut session = Self { child, input, output: BufReader::new(output) };
        session.script("SELECT 1 WHERE false")?;
        Ok(session)
    }

    /// Runs one statement (no `;` needed) and returns its rows and time.
    ///
    /// # Errors
    /// With what the server said; the session is then over.
    pub fn query(&mut self, statement: &str) -> Result<Answer, LabError> {
        let begin = Instant::now();
        self.send("\\timing on\n", statement);
        let mut rows = self.answer(statement)?;
        let wall_seconds = begin.elapsed().as_secs_f64();
        // psql prints it after the rows.
        let line = rows.trim_end().rfind('\n').map_or(0, |at| at + 1);
        let seconds = rows.get(line..).map(str::trim_end).and_then(seconds_in);
        let wanted = "Time: line".to_owned();
        let seconds =
            seconds.ok_or_else(|| LabError::Output { command: "psql".to_owned(), wanted })?;
        rows.truncate(line);
        Ok(Answer { rows, seconds, wall_seconds })
    }

    /// Runs statements with `;` between them, that return no rows worth having; returns the seconds
    /// until the last one is done.
    ///
    /// # Errors
    /// With what the server said; the session is then over.
    pub fn script(&mut self, statements: &str) -> Result<f64, LabError> {
        let begin = Instant::now();
        self.send("\\timing off\n", statements);
        self.answer(statements)?;
        Ok(begin.elapsed().as_secs_f64())
    }

    /// Runs what a producer writes: statements, each ended with `;`, that return no rows (INSERTs, say).
    /// Returns the seconds until the last one is done, the producer's own time among them. The
    /// producer may stop early, at a time budget for one, between two statements.
    ///
    /// # Errors
    /// With what the server said, or the producer's own error.
    pub fn feed<F>(&mut self, producer: F) -> Result<f64, LabError>
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
    /// ended with a newline, none of them `\.`). Returns the seconds until it is done, the
    /// producer's own time among them.
    ///
    /// # Errors
    /// With what the server said, or the producer's own error.
    pub fn copy_in<F>(&mut self, copy: &str, producer: F) -> Result<f64, LabError>
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

    /// The end of what a producer wrote. If the pipe broke, what psql said comes first.
    fn finish(&mut self, fed: io::Result<()>, statement: &str, end: &str) -> Result<(), LabError> {
        let broken = matches!(&fed, Err(error) if error.kind() == io::ErrorKind::BrokenPipe);
        if let (Err(error), false) = (fed, broken) {
            return Err(LabError::io(Path::new("the producer of rows"), "go on")(error));
        }
        let ended =
            self.write(format!("{end}\\echo {END}\n").as_bytes()).and_then(|()| self.flush());
        self.answer(statement)?;
        ended
    }

    fn send(&mut self, before: &str, statement: &str) {
        let statement = statement.trim_end().trim_end_matches(';');
        let text = format!("{before}{statement}\n;\n\\echo {END}\n");
        // If psql is gone, its last words say why: the answer fails with them.
        let _ = self.write(text.as_bytes()).and_then(|()| self.flush());
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), LabError> {
        let written = match &mut self.input {
            Some(input) => input.write_all(bytes),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        };
        written.map_err(LabError::io(Path::new("psql"), "talk to the program"))
    }

    fn flush(&mut self) -> Result<(), LabError> {
        let flushed = self.input.as_mut().map_or(Ok(()), Write::flush);
        flushed.map_err(LabError::io(Path::new("psql"), "talk to the program"))
    }

    /// Reads until the mark.
    fn answer(&mut self, statement: &str) -> Result<String, LabError> {
        let mut text = Vec::new();
        loop {
            let from = text.len();
            let read = self.output.read_until(b'\n', &mut text);
            if read.map_err(LabError::io(Path::new("psql"), "talk to the program"))? == 0 {
                let statement: String = statement.chars().take(LONGEST_STATEMENT).collect();
                let said = String::from_utf8_lossy(&text).into_owned();
                return Err(LabError::Program { command: format!("psql: {statement}"), said });
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
        // The end of its input is the end of psql; what it still says goes nowhere.
        drop(self.input.take());
        let _ = io::copy(&mut self.output.by_ref(), &mut io::sink());
        let _ = self.child.wait();
    }
}
