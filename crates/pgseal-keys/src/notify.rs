//! Tells systemd why a service is not ready yet: `sd_notify(3)`, to the socket that `NOTIFY_SOCKET`
//! names. The helper of a starting server inherits the variable.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Says in the status of the service why it waits, and that it goes on for at least `more`.
pub(crate) fn waiting(why: &str, more: Duration) {
    // One line: a newline would begin another field.
    let why: String = why.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    send(&format!("STATUS={why}\nEXTEND_TIMEOUT_USEC={}", more.as_micros()));
}

/// Takes the status back.
pub(crate) fn no_longer_waiting() {
    send("STATUS=");
}

fn send(text: &str) {
    let Some(name) = env::var_os("NOTIFY_SOCKET") else { return };
    // Nobody may be listening, and a start does not depend on it.
    let _ = send_to(&name, text.as_bytes());
}

fn send_to(name: &OsStr, message: &[u8]) -> io::Result<()> {
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(Duration::from_secs(1)))?;
    socket.send_to_addr(message, &address).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_has_a_path_or_an_abstract_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let name = format!("pgseal-notify-{}", std::process::id());
        let abstract_address = SocketAddr::from_abstract_name(&name).unwrap();
        for (socket, name) in [
            (UnixDatagram::bind(&path).unwrap(), path.clone().into_os_string()),
            (UnixDatagram::bind_addr(&abstract_address).unwrap(), format!("@{name}").into()),
        ] {
            send_to(&name, b"STATUS=x").unwrap();
            let mut bytes = [0; 64];
            let len = socket.recv(&mut bytes).unwrap();
            assert_eq!(&bytes[..len], b"STATUS=x");
        }
        assert!(send_to(OsStr::new("/nowhere/at/all"), b"x").is_err());
    }
}
