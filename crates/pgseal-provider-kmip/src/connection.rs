//! A connection to the store: TCP, TLS with a client certificate, one request after the other.
//!
//! What is sent and received is wiped here. The buffers of rustls are not: they live as long as the
//! process, which is one request of pgseal, and which leaves no core dump.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pgseal_plugin::tls::Trust;
use pgseal_plugin::{Failure, Fault, configuration, tls};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use zeroize::Zeroizing;

use crate::failures::{not_understood, of_connection};
use crate::message::{MAX_ANSWER_LEN, RESPONSE_MESSAGE};
use crate::ttlv::{HEADER_LEN, structure_header};
use crate::uri::Uri;

/// How long all requests of a run may take. pgseal stops the plugin after 15 s.
const ALL: Duration = Duration::from_secs(10);
/// How long a connection to one address may take to be made.
const CONNECT: Duration = Duration::from_secs(4);

/// A socket whose calls end in time.
struct Timed {
    socket: TcpStream,
    end: Instant,
}

impl Timed {
    fn left(&self) -> io::Result<Duration> {
        match self.end.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(ErrorKind::TimedOut.into()),
            left => Ok(left),
        }
    }
}

impl Read for Timed {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(Some(self.left()?))?;
        self.socket.read(bytes)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(Some(self.left()?))?;
        self.socket.write(bytes)
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.socket.set_write_timeout(Some(self.left()?))?;
        self.socket.write_vectored(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

/// A connection.
pub(crate) struct Connection {
    stream: StreamOwned<ClientConnection, Timed>,
    address: String,
}

impl Connection {
    /// Connects, and lets each side see the certificate of the other.
    pub(crate) fn open(uri: &Uri) -> Result<Connection, Failure<'static>> {
        let address = uri.address.to_string();
        let trust = Trust::read(uri.ca.as_deref(), Some(&uri.certificate))?;
        let name = ServerName::try_from(uri.address.host.clone())
            .map_err(|_| configuration(format!("{address}: no name of a host")))?;
        let mut client = ClientConnection::new(Arc::new(trust.for_rustls()?), name)
            .map_err(|error| tls::failure(&error, &address))?;
        let end = Instant::now() + ALL;
        let mut socket = Timed { socket: connect(uri, &address, end)?, end };
        while client.is_handshaking() {
            if let Err(error) = client.complete_io(&mut socket) {
                return Err(broken(&mut client, &mut socket, &error, &address));
            }
        }
        Ok(Connection { stream: StreamOwned::new(client, socket), address })
    }

    /// The address of the store.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Sends a request, and returns the content of the Response Message.
    pub(crate) fn exchange(
        &mut self,
        request: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, Failure<'static>> {
        self.stream
            .write_all(request)
            .and_then(|()| self.stream.flush())
            .map_err(|error| self.broken(&error))?;
        let mut header = [0; HEADER_LEN];
        self.read(&mut header)?;
        let len = match structure_header(header) {
            Some((RESPONSE_MESSAGE, len)) if len <= MAX_ANSWER_LEN => len,
            _ => return Err(not_understood(&self.address)),
        };
        let mut content = Zeroizing::new(vec![0; len]);
        self.read(&mut content)?;
        Ok(content)
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<(), Failure<'static>> {
        self.stream.read_exact(bytes).map_err(|error| self.broken(&error))
    }

    fn broken(&mut self, error: &io::Error) -> Failure<'static> {
        let StreamOwned { conn, sock } = &mut self.stream;
        broken(conn, sock, error, &self.address)
    }
}

/// Why the connection broke. A store that does not accept the client certificate sends an alert and
/// closes. The client may still be writing then (with TLS 1.3, the store judges the certificate
/// when the handshake has ended for the client), and gets the error of the socket first. The alert,
/// which says more, was received before.
fn broken(
    client: &mut ClientConnection,
    socket: &mut Timed,
    error: &io::Error,
    address: &str,
) -> Failure<'static> {
    if tls::inside(error).is_none() {
        while client.read_tls(socket).is_ok_and(|len| len > 0) {
            if let Err(alert) = client.process_new_packets() {
                return tls::failure(&alert, address);
            }
        }
    }
    of_connection(error, address)
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The store may be gone; then nobody waits for the end.
        self.stream.conn.send_close_notify();
        let _ = self.stream.flush();
    }
}

/// Connects to the first address of the host that answers.
fn connect(uri: &Uri, address: &str, end: Instant) -> Result<TcpStream, Failure<'static>> {
    let unavailable = |what: String| Failure::new(Fault::Unavailable, format!("{address}: {what}"));
    let found = (uri.address.host.as_str(), uri.address.port)
        .to_socket_addrs()
        .map_err(|error| unavailable(format!("the name of the host is not found: {error}")))?;
    let mut last = None;
    for one in found {
        let left = end.saturating_duration_since(Instant::now()).min(CONNECT);
        if left.is_zero() {
            break;
        }
        match TcpStream::connect_timeout(&one, left) {
            Ok(socket) => {
                // Requests are short, and each one waits for its answer.
                let _ = socket.set_nodelay(true);
                return Ok(socket);
            }
            Err(error) => last = Some(error),
        }
    }
    Err(last.map_or_else(
        || unavailable("the host has no address".to_owned()),
        |error| of_connection(&error, address),
    ))
}
