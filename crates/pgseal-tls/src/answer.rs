//! Reads the server's first flight, which shows what the server chose (RFC 8446 4.1.3, RFC 5246
//! 7.4).

use std::io::Read;

use crate::suites::{self, Exchange};
use crate::version::Version;

/// What the server chose from an offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The version.
    pub version: Version,
    /// The suite's code point.
    pub suite: u16,
    /// The code point of the group, if the suite needs a group and the answer contains it.
    pub group: Option<u16>,
    /// Bits of the prime of a finite-field exchange.
    pub dh_bits: Option<u32>,
    /// The certificates (DER), the server's own first; none in TLS 1.3, which encrypts them.
    pub certificates: Vec<Vec<u8>>,
}

/// The server's answer to an offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The server accepts the offer.
    Takes(Box<Choice>),
    /// The server refuses with this alert (RFC 8446 6).
    Refuses(u8),
    /// The server closes the connection, or its answer is not TLS.
    Closes,
}

/// The most bytes that are read: more than any first flight has.
const LONGEST_FLIGHT_BYTES: usize = 1 << 18;

/// A reader of big-endian fields. Each read returns `None` if too few bytes are left.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(head)
    }

    /// A number of 1 to 3 bytes.
    fn number(&mut self, bytes: usize) -> Option<usize> {
        Some(self.take(bytes)?.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)))
    }

    fn code(&mut self) -> Option<u16> {
        u16::try_from(self.number(2)?).ok()
    }

    /// The bytes that follow a length of `bytes` bytes.
    fn block(&mut self, bytes: usize) -> Option<Fields<'a>> {
        let length = self.number(bytes)?;
        self.take(length).map(Fields)
    }
}

/// Reads as much of the server's first flight as is needed.
///
/// # Errors
/// Those of reading, unless the server has closed the connection.
pub fn read(stream: &mut impl Read) -> std::io::Result<Answer> {
    let mut handshake = Vec::new();
    let mut choice: Option<Choice> = None;
    let mut done = 0;
    while handshake.len() < LONGEST_FLIGHT_BYTES {
        let mut head = [0; 5];
        if let Some(end) = ended(stream.read_exact(&mut head))? {
            return Ok(choice.map_or(end, |choice| Answer::Takes(Box::new(choice))));
        }
        let mut body = vec![0; usize::from(u16::from_be_bytes([head[3], head[4]]))];
        if let Some(end) = ended(stream.read_exact(&mut body))? {
            return Ok(end);
        }
        match head[0] {
            21 => return Ok(Answer::Refuses(body.get(1).copied().unwrap_or_default())),
            22 => handshake.extend(body),
            _ => return Ok(choice.map_or(Answer::Closes, |done| Answer::Takes(Box::new(done)))),
        }
        while let Some((kind, message, next)) = message(&handshake, done) {
            done = next;
            match (kind, choice.as_mut()) {
                (2, _) => {
                    let Some(seen) = server_hello(message) else { return Ok(Answer::Closes) };
                    if seen.version == Version::Tls13 {
                        return Ok(Answer::Takes(Box::new(seen)));
                    }
                    choice = Some(seen);
                }
                (11, Some(choice)) => choice.certificates = certificates(message),
                (12, Some(choice)) => key_exchange(message, choice),
                (14, Some(_)) => {
                    return Ok(choice.map_or(Answer::Closes, |done| Answer::Takes(Box::new(done))));
                }
                _ => {}
            }
        }
    }
    Ok(Answer::Closes)
}

/// A closed connection as an answer; other errors remain errors.
fn ended(result: std::io::Result<()>) -> std::io::Result<Option<Answer>> {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    match result {
        Ok(()) => Ok(None),
        Err(error) => match error.kind() {
            UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe => {
                Ok(Some(Answer::Closes))
            }
            _ => Err(error),
        },
    }
}

/// The next complete handshake message: its kind, its body, and the offset of the message after it.
fn message(handshake: &[u8], from: usize) -> Option<(u8, &[u8], usize)> {
    let mut fields = Fields(handshake.get(from..)?);
    let kind = *fields.take(1)?.first()?;
    let body = fields.block(3)?.0;
    Some((kind, body, from + 4 + body.len()))
}

fn server_hello(body: &[u8]) -> Option<Choice> {
    let mut fields = Fields(body);
    let mut version = fields.code()?;
    fields.take(32)?;
    fields.block(1)?;
    let suite = fields.code()?;
    fields.take(1)?;
    let mut group = None;
    if let Some(mut extensions) = fields.block(2) {
        while let (Some(kind), Some(mut body)) = (extensions.code(), extensions.block(2)) {
            match kind {
                43 => version = body.code()?,
                // A HelloRetryRequest contains only the group, a ServerHello the group and then a
                // key.
                51 => group = Some(body.code()?),
                _ => {}
            }
        }
    }
    let version = Version::by_code(version)?;
    Some(Choice { version, suite, group, dh_bits: None, certificates: Vec::new() })
}

fn certificates(body: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    if let Some(mut list) = Fields(body).block(3) {
        while let Some(certificate) = list.block(3) {
            all.push(certificate.0.to_vec());
        }
    }
    all
}

/// ServerKeyExchange: the curve (RFC 8422 5.4) or the prime (RFC 5246 7.4.3).
fn key_exchange(body: &[u8], choice: &mut Choice) {
    let mut fields = Fields(body);
    match suites::by_id(choice.suite).map(|suite| (suite.exchange, suite.name)) {
        Some((Exchange::Dhe, _)) => choice.dh_bits = fields.block(2).map(|p| bits_of(p.0)),
        Some((Exchange::Anonymous, name)) if name.starts_with("ADH") => {
            choice.dh_bits = fields.block(2).map(|p| bits_of(p.0));
        }
        Some((Exchange::Ecdhe | Exchange::Anonymous, _)) => {
            const NAMED_CURVE: usize = 3;
            if fields.number(1) == Some(NAMED_CURVE) {
                choice.group = fields.code();
            }
        }
        _ => {}
    }
}

/// Bits of a big-endian number.
pub(crate) fn bits_of(number: &[u8]) -> u32 {
    let rest: Vec<&u8> = number.iter().skip_while(|byte| **byte == 0).collect();
    let bits = u32::try_from(rest.len()).unwrap_or(u32::MAX).saturating_mul(8);
    bits.saturating_sub(rest.first().map_or(0, |byte| byte.leading_zeros()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, body: &[u8]) -> Vec<u8> {
        let mut out = vec![kind, 3, 3];
        out.extend(u16::try_from(body.len()).unwrap().to_be_bytes());
        out.extend(body);
        out
    }

    fn retry() -> Vec<u8> {
        let mut body = vec![3, 3];
        body.extend([0x5a; 32]);
        body.extend([0, 0x13, 0x02, 0]);
        body.extend([0, 12, 0, 43, 0, 2, 3, 4, 0, 51, 0, 2, 0x11, 0xec]);
        let mut message = vec![2, 0, 0, u8::try_from(body.len()).unwrap()];
        message.extend(body);
        message
    }

    #[test]
    fn a_retry_request_names_version_suite_and_group() {
        let Answer::Takes(choice) = read(&mut record(22, &retry()).as_slice()).unwrap() else {
            panic!()
        };
        assert_eq!((choice.version, choice.suite), (Version::Tls13, 0x1302));
        assert_eq!(choice.group, Some(0x11ec));
    }

    #[test]
    fn a_message_in_several_records_is_put_together() {
        let whole = retry();
        let (one, two) = whole.split_at(11);
        let bytes = [record(22, one), record(22, two)].concat();
        assert!(matches!(read(&mut bytes.as_slice()).unwrap(), Answer::Takes(_)));
    }

    #[test]
    fn alerts_ends_and_nonsense_are_answers() {
        assert_eq!(read(&mut record(21, &[2, 70]).as_slice()).unwrap(), Answer::Refuses(70));
        assert_eq!(read(&mut [].as_slice()).unwrap(), Answer::Closes);
        assert_eq!(read(&mut record(22, &retry())[..40].as_ref()).unwrap(), Answer::Closes);
        for cut in 4..retry().len() {
            // A truncated message never makes the reader panic.
            let _ = read(&mut record(22, &retry()[..cut]).as_slice()).unwrap();
        }
        assert_eq!(read(&mut b"HTTP/1.1 400 Bad Request\r\n".as_slice()).unwrap(), Answer::Closes);
    }

    #[test]
    fn bits_are_counted_without_leading_zeros() {
        assert_eq!(bits_of(&[0, 0x80, 0]), 16);
        assert_eq!(bits_of(&[1]), 1);
        assert_eq!(bits_of(&[0]), 0);
    }
}
