//! A client of a server on a Unix socket, as small as can be: what it uses of the CPU is measured
//! along with the server. It speaks PostgreSQL's protocol 3.0, simple queries only, as pgbench
//! does.

use std::io::{self, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// The longest message that is taken; more is an error of the peer.
const LONGEST: usize = 1 << 24;

/// An open session.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
    /// What is sent, and after that what is received.
    message: Vec<u8>,
}

impl Client {
    /// Connects to the socket `.s.PGSQL.PORT` in a directory; the server must trust the user.
    ///
    /// # Errors
    /// The server's message, or why there is none.
    pub fn connect(directory: &Path, port: u16, user: &str, database: &str) -> io::Result<Self> {
        let stream = UnixStream::connect(directory.join(format!(".s.PGSQL.{port}")))?;
        let mut client = Self { stream: BufReader::new(stream), message: Vec::new() };
        let body = format!("user\0{user}\0database\0{database}\0\0");
        let mut start =
            u32::try_from(body.len() + 8).map_err(io::Error::other)?.to_be_bytes().to_vec();
        start.extend(196_608_u32.to_be_bytes());
        start.extend(body.as_bytes());
        client.stream.get_mut().write_all(&start)?;
        client.until_ready()?;
        Ok(client)
    }

    /// Runs a statement and returns the number in its command tag (`MOVE 5`, `INSERT 0 1`); 0 if it
    /// has none.
    ///
    /// # Errors
    /// The server's message, or why there is none.
    pub fn run(&mut self, statement: &str) -> io::Result<u64> {
        self.message.clear();
        self.message.push(b'Q');
        let len = u32::try_from(statement.len() + 5).map_err(io::Error::other)?;
        self.message.extend(len.to_be_bytes());
        self.message.extend(statement.as_bytes());
        self.message.push(0);
        self.stream.get_mut().write_all(&self.message)?;
        self.until_ready()
    }

    /// Ends the session as a client should.
    ///
    /// # Errors
    /// If the server has gone.
    pub fn close(mut self) -> io::Result<()> {
        self.stream.get_mut().write_all(&[b'X', 0, 0, 0, 4])
    }

    /// Reads messages to ReadyForQuery; the number in the last command tag.
    fn until_ready(&mut self) -> io::Result<u64> {
        let mut number = 0;
        let mut failed = None;
        loop {
            let mut head = [0; 5];
            if let Err(error) = self.stream.read_exact(&mut head) {
                // The server says why it ends a session before it does.
                return Err(failed.unwrap_or(error));
            }
            let [kind, a, b, c, d] = head;
            let len = u32::from_be_bytes([a, b, c, d]) as usize;
            let body = len.checked_sub(4).filter(|body| *body <= LONGEST);
            let body = body.ok_or_else(|| io::Error::other("a message of an impossible length"))?;
            self.message.resize(body, 0);
            self.stream.read_exact(&mut self.message)?;
            match kind {
                b'Z' => return failed.map_or(Ok(number), Err),
                b'C' => number = number_of(&self.message),
                b'E' => failed = Some(io::Error::other(message_of(&self.message))),
                b'R' if self.message != [0; 4] => {
                    return Err(io::Error::other("the server does not trust the user"));
                }
                _ => {}
            }
        }
    }
}

/// The last word of a command tag, as a number.
fn number_of(tag: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(tag);
    let last = text.trim_end_matches('\0').rsplit(' ').next().and_then(|word| word.parse().ok());
    last.unwrap_or(0)
}

/// The field M of an ErrorResponse.
fn message_of(body: &[u8]) -> String {
    let fields = body.split(|byte| *byte == 0);
    let message =
        fields.filter_map(|field| field.strip_prefix(b"M")).next().unwrap_or(b"no message");
    String::from_utf8_lossy(message).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_and_errors_as_the_server_sends_them() {
        assert_eq!(number_of(b"MOVE 10000\0"), 10_000);
        assert_eq!(number_of(b"INSERT 0 1\0"), 1);
        assert_eq!(number_of(b"BEGIN\0"), 0);
        assert_eq!(message_of(b"SERROR\0C42P01\0Mno such table\0\0"), "no such table");
        assert_eq!(message_of(b""), "no message");
    }
}
