//! Runs a program for a limited time.

use std::io::{self, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use zeroize::Zeroizing;

/// The longest output that is read, in bytes.
const MAX_LEN: usize = 16 * 1024;
const PAUSE: Duration = Duration::from_millis(2);

/// What a program left.
pub(crate) struct Output {
    /// How it ended.
    pub status: ExitStatus,
    /// Standard output, which may be a key.
    pub text: Zeroizing<Vec<u8>>,
    /// Standard error.
    pub log: String,
}

/// Why there is no output.
pub(crate) enum Lost {
    /// It did not end before the deadline, and was killed.
    TooSlow,
    /// It could not be run.
    Io(io::Error),
}

/// Runs a program with this standard input, which must fit into a pipe (at most 4096 bytes).
pub(crate) fn run(command: &mut Command, input: &[u8], deadline: Instant) -> Result<Output, Lost> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(Lost::Io)?;
    let (Some(mut stdin), Some(stdout), Some(stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        stop(&mut child);
        return Err(Lost::Io(io::Error::other("it has no pipes")));
    };
    let (text, log) = (reader(stdout), reader(stderr));
    // An error means that the program has closed its input: its status says why.
    let _ = stdin.write_all(input);
    drop(stdin);
    let left = || deadline.saturating_duration_since(Instant::now());
    let (Ok(text), Ok(log)) = (text.recv_timeout(left()), log.recv_timeout(left())) else {
        stop(&mut child);
        return Err(Lost::TooSlow);
    };
    let status = loop {
        match child.try_wait().map_err(Lost::Io)? {
            Some(status) => break status,
            None if left().is_zero() => {
                stop(&mut child);
                return Err(Lost::TooSlow);
            }
            None => thread::sleep(PAUSE),
        }
    };
    let log = String::from_utf8_lossy(&log.map_err(Lost::Io)?).into_owned();
    Ok(Output { status, text: text.map_err(Lost::Io)?, log })
}

/// Reads a pipe in a thread, because such a read has no time limit.
fn reader(pipe: impl Read + Send + 'static) -> Receiver<io::Result<Zeroizing<Vec<u8>>>> {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        // The buffer never grows: a reallocation would leave a copy that is not wiped.
        let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_LEN + 64));
        let limit = u64::try_from(MAX_LEN).unwrap_or(u64::MAX);
        let read = pipe.take(limit).read_to_end(&mut bytes);
        // Nobody listens any more after the deadline.
        let _ = send.send(read.map(|_| bytes));
    });
    receive
}

fn stop(child: &mut Child) {
    // These calls fail if the child has ended by itself, which is fine.
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, input: &[u8], limit: Duration) -> Result<Output, Lost> {
        run(Command::new("/bin/sh").args(["-c", script]), input, Instant::now() + limit)
    }

    #[test]
    fn input_and_output_of_a_program() {
        let minute = Duration::from_secs(60);
        let output = shell("cat; echo why >&2; exit 3", b"secret", minute);
        assert!(output.is_ok_and(|output| {
            output.status.code() == Some(3) && *output.text == b"secret" && output.log == "why\n"
        }));
        // It does not read its input, and writes more than is read.
        assert!(shell("exit 0", b"x", minute).is_ok_and(|output| output.status.success()));
        let much = shell("head -c 100000 /dev/zero", b"", minute);
        assert!(much.is_ok_and(|output| output.text.len() == MAX_LEN));
    }

    #[test]
    fn a_program_that_hangs_is_killed() {
        for script in ["exec sleep 600", "exec >&- 2>&-; exec sleep 600"] {
            let lost = shell(script, b"", Duration::from_millis(200));
            assert!(matches!(lost, Err(Lost::TooSlow)), "{script}");
        }
    }
}
