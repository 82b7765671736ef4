//! Runs a program for its output, with a time limit.

use std::io::{self, Read};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// How long a program of PostgreSQL may take to answer a question. A FIFO in the place of a
/// configuration file makes it wait for ever.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest output that is read, in bytes.
const MAX_ANSWER_LEN: u64 = 1 << 20;

/// As [`Command::output`], but stops the program after [`TIMEOUT`].
pub fn output(command: &mut Command) -> io::Result<Output> {
    output_within(command, TIMEOUT)
}

/// As [`Command::output`], but stops the program after this time.
pub fn output_within(command: &mut Command, timeout: Duration) -> io::Result<Output> {
    let deadline = Instant::now() + timeout;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let (stdout, stderr) = (read(child.stdout.take()), read(child.stderr.take()));
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() >= deadline {
            // If the program has just ended, there is nothing to stop.
            let _ = child.kill();
            let _ = child.wait();
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("it did not answer within {} s and was stopped", timeout.as_secs_f32()),
            ));
        }
        thread::sleep(Duration::from_millis(2));
    };
    // A grandchild may keep the pipes open.
    let rest = || deadline.saturating_duration_since(Instant::now());
    let stdout = stdout.recv_timeout(rest()).unwrap_or_default();
    let stderr = stderr.recv_timeout(rest()).unwrap_or_default();
    Ok(Output { status, stdout, stderr })
}

fn read(from: Option<impl Read + Send + 'static>) -> mpsc::Receiver<Vec<u8>> {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(from) = from {
            // After an error, what was read before it is the answer.
            let _ = from.take(MAX_ANSWER_LEN).read_to_end(&mut bytes);
        }
        // The receiver may have given up.
        let _ = send.send(bytes);
    });
    receive
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> io::Result<Output> {
        output_within(Command::new("sh").args(["-c", script]), Duration::from_secs(1))
    }

    #[test]
    fn answers_are_read_and_nobody_waits_for_ever() {
        let said = sh("echo out; echo err >&2; exit 3").unwrap();
        assert_eq!((said.stdout, said.stderr), (b"out\n".to_vec(), b"err\n".to_vec()));
        assert_eq!(said.status.code(), Some(3));
        assert_eq!(sh("exec sleep 60").unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
