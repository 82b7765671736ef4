//! Sends lines to the daemon of the system's log.

use std::io::{self, Write};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::time::Duration;

use pgseal_keys::audit::{Entry, Outcome};
use rustix::io::Errno;

/// How long a daemon that takes nothing is waited for: a start of the server must not hang on it.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The facility "authpriv".
const FACILITY: u32 = 10;

/// The severity: "warning" for what was not done, else "notice".
fn severity(entry: &Entry) -> u32 {
    match entry.outcome {
        Outcome::Begun | Outcome::Done => 5,
        Outcome::Refused | Outcome::Failed => 4,
    }
}

/// Sends a line as `syslog(3)` does, but without a time: the daemon adds its own, and the line has
/// one.
pub fn syslog(path: &Path, entry: &Entry) -> io::Result<()> {
    let line = entry.line().map_err(io::Error::other)?;
    let priority = FACILITY * 8 + severity(entry);
    let message = format!("<{priority}>pgseal[{}]: {line}", entry.pid);
    match datagram(path, message.as_bytes()) {
        // Some daemons listen for streams, in which a zero ends a message.
        Err(error) if error.raw_os_error() == Some(Errno::PROTOTYPE.raw_os_error()) => {
            let mut stream = UnixStream::connect(path)?;
            stream.set_write_timeout(Some(TIMEOUT))?;
            stream.write_all(message.as_bytes())?;
            stream.write_all(b"\0")
        }
        result => result,
    }
}

/// Sends a line to the journal, with fields to search for.
pub fn journald(path: &Path, entry: &Entry) -> io::Result<()> {
    let line = entry.line().map_err(io::Error::other)?;
    let outcome = match entry.outcome {
        Outcome::Begun => "begun",
        Outcome::Done => "done",
        Outcome::Refused => "refused",
        Outcome::Failed => "failed",
    };
    // A field's text has no newline: the line is JSON, and the others are pgseal's own words.
    let mut fields = format!(
        "MESSAGE={line}\nPRIORITY={}\nSYSLOG_FACILITY={FACILITY}\nSYSLOG_IDENTIFIER=pgseal\n\
         PGSEAL_EVENT={}\nPGSEAL_OUTCOME={outcome}\n",
        severity(entry),
        entry.event,
    );
    if let Some(cluster) = &entry.cluster {
        fields += &format!("PGSEAL_CLUSTER={cluster}\n");
    }
    datagram(path, fields.as_bytes())
}

/// Whether a daemon listens there. Sends nothing.
///
/// # Errors
/// Why it cannot be reached.
pub fn listens(path: &Path) -> io::Result<()> {
    match UnixDatagram::unbound()?.connect(path) {
        Err(error) if error.raw_os_error() == Some(Errno::PROTOTYPE.raw_os_error()) => {
            UnixStream::connect(path).map(drop)
        }
        result => result,
    }
}

fn datagram(path: &Path, message: &[u8]) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(TIMEOUT))?;
    socket.send_to(message, path).map(|_| ())
}
