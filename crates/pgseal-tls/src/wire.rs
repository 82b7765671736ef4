//! The first messages of PostgreSQL's protocol (documentation, "Message Formats"): the request for
//! TLS, and a start without it.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use serde::Serialize;

use crate::conninfo::Target;
use crate::error::TlsError;

/// SSLRequest's code.
const SSL_REQUEST: u32 = 80_877_103;
/// Protocol 3.0.
const PROTOCOL_3: u32 = 196_608;

/// What a server does with somebody who asks to log in without TLS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "answer")]
pub enum Plain {
    /// It goes on with authentication by this method.
    Accepted {
        /// As `pg_hba.conf` calls it.
        method: &'static str,
    },
    /// Its rules (`pg_hba.conf`) do not let this user in without TLS.
    Refused {
        /// Its words.
        message: String,
    },
    /// It fails for another reason, so that nothing is known.
    Unknown {
        /// SQLSTATE and its words.
        message: String,
    },
}

/// A TCP connection to the server.
///
/// # Errors
/// [`TlsError::Unreachable`].
pub fn connect(target: &Target, timeout: Duration) -> Result<TcpStream, TlsError> {
    let unreachable =
        |action| move |source| TlsError::Unreachable { address: target.address(), action, source };
    let addresses = (target.connect_to(), target.port)
        .to_socket_addrs()
        .map_err(unreachable("look the name up"))?;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => {
                stream.set_read_timeout(Some(timeout)).map_err(unreachable("set a time limit"))?;
                stream.set_write_timeout(Some(timeout)).map_err(unreachable("set a time limit"))?;
                stream.set_nodelay(true).map_err(unreachable("set an option"))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(unreachable("connect")(last))
}

/// Asks for TLS. Returns `false` if the server has no TLS.
///
/// # Errors
/// [`TlsError::Unreachable`], [`TlsError::NotPostgres`].
pub fn request_tls(stream: &mut TcpStream, target: &Target) -> Result<bool, TlsError> {
    let unreachable =
        |source| TlsError::Unreachable { address: target.address(), action: "ask for TLS", source };
    let mut request = 8u32.to_be_bytes().to_vec();
    request.extend(SSL_REQUEST.to_be_bytes());
    stream.write_all(&request).map_err(unreachable)?;
    let mut answer = [0];
    stream.read_exact(&mut answer).map_err(unreachable)?;
    match answer[0] {
        b'S' => Ok(true),
        b'N' => Ok(false),
        // An error message, for example "too many clients".
        b'E' => {
            let (code, message) = error_fields(&rest_of_message(stream).map_err(unreachable)?);
            Err(TlsError::NotPostgres {
                address: target.address(),
                what: format!("it refuses every connection: {code} {message}"),
            })
        }
        other => Err(TlsError::NotPostgres {
            address: target.address(),
            what: format!("it answers the request for TLS with the byte {other:#04x}"),
        }),
    }
}

/// Asks to log in without TLS, and returns the server's reaction. Sends no password.
///
/// # Errors
/// [`TlsError::Unreachable`], [`TlsError::NotPostgres`].
pub fn try_plain(target: &Target, timeout: Duration) -> Result<Plain, TlsError> {
    let unreachable = |source| TlsError::Unreachable {
        address: target.address(),
        action: "ask for a connection without TLS",
        source,
    };
    let mut stream = connect(target, timeout)?;
    let mut body = PROTOCOL_3.to_be_bytes().to_vec();
    for word in ["user", &target.user, "database", &target.dbname] {
        body.extend(word.bytes().filter(|byte| *byte != 0));
        body.push(0);
    }
    body.push(0);
    let length = u32::try_from(body.len() + 4).unwrap_or(u32::MAX);
    let message = [length.to_be_bytes().as_slice(), &body].concat();
    stream.write_all(&message).map_err(unreachable)?;
    let mut kind = [0];
    stream.read_exact(&mut kind).map_err(unreachable)?;
    let body = rest_of_message(&mut stream).map_err(unreachable)?;
    match kind[0] {
        b'R' => Ok(Plain::Accepted { method: method(&body) }),
        b'E' => {
            let (code, message) = error_fields(&body);
            // invalid_authorization_specification before any authentication request: a rule of
            // pg_hba.conf rejects the connection.
            if code == "28000" {
                Ok(Plain::Refused { message })
            } else {
                Ok(Plain::Unknown { message: format!("{code} {message}") })
            }
        }
        other => Err(TlsError::NotPostgres {
            address: target.address(),
            what: format!("it answers a start-up message with the byte {other:#04x}"),
        }),
    }
}

fn rest_of_message(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    const LONGEST_BYTES: usize = 1 << 16;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    let mut body = vec![0; length.saturating_sub(4).min(LONGEST_BYTES)];
    stream.read_exact(&mut body)?;
    Ok(body)
}

/// SQLSTATE and message of an ErrorResponse.
fn error_fields(body: &[u8]) -> (String, String) {
    let field = |kind: u8| {
        body.split(|byte| *byte == 0)
            .find_map(|field| field.split_first().filter(|(first, _)| **first == kind))
            .map(|(_, text)| String::from_utf8_lossy(text).into_owned())
            .unwrap_or_default()
    };
    (field(b'C'), field(b'M'))
}

/// The authentication method of an authentication request, as `pg_hba.conf` names it.
fn method(body: &[u8]) -> &'static str {
    match body.get(..4).and_then(|code| code.try_into().ok()).map(u32::from_be_bytes) {
        Some(0) => "trust",
        Some(3) => "password",
        Some(5) => "md5",
        Some(7) => "gss",
        Some(9) => "sspi",
        Some(10) => "scram-sha-256",
        _ => "unknown",
    }
}
