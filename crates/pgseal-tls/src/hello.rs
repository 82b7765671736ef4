//! Writes a ClientHello that offers exactly what is being probed (RFC 8446 4.1.2, RFC 5246
//! 7.4.1.2).
//!
//! A TLS library cannot write it, because libraries refuse to offer what must be probed: TLS 1.0,
//! RSA key exchange, unknown groups. The handshake is never completed: the server's first answer
//! shows what it would accept. In TLS 1.3 the ClientHello contains no key share, so that the server
//! must name the group and the suite in a HelloRetryRequest (RFC 8446 4.1.4).

use crate::version::Version;

/// What a ClientHello offers.
#[derive(Debug, Clone)]
pub struct Offer {
    /// The only version.
    pub version: Version,
    /// Code points of suites, preferred first.
    pub suites: Vec<u16>,
    /// Code points of groups, preferred first.
    pub groups: Vec<u16>,
    /// The name in the extension server_name; `None` for addresses.
    pub server_name: Option<String>,
}

/// TLS_EMPTY_RENEGOTIATION_INFO_SCSV (RFC 5746 3.3).
const RENEGOTIATION_SCSV: u16 = 0x00ff;

/// The signature algorithms that are offered: all that a server may use, since they are not probed.
const SIGNATURES: [u16; 19] = [
    0x0403, 0x0503, 0x0603, 0x0807, 0x0808, 0x0804, 0x0805, 0x0806, 0x0809, 0x080a, 0x080b, 0x0904,
    0x0905, 0x0906, 0x0401, 0x0501, 0x0601, 0x0203, 0x0201,
];

/// Appends what `body` writes, preceded by its length in 1, 2 or 3 bytes.
fn with_length(out: &mut Vec<u8>, bytes: usize, body: impl FnOnce(&mut Vec<u8>)) {
    let mut inner = Vec::new();
    body(&mut inner);
    let length = u32::try_from(inner.len()).unwrap_or(u32::MAX).to_be_bytes();
    out.extend(length.iter().skip(4 - bytes));
    out.extend(inner);
}

fn number(out: &mut Vec<u8>, value: u16) {
    out.extend(value.to_be_bytes());
}

fn list(out: &mut Vec<u8>, values: &[u16]) {
    with_length(out, 2, |out| values.iter().for_each(|value| number(out, *value)));
}

fn extension(out: &mut Vec<u8>, kind: u16, body: impl FnOnce(&mut Vec<u8>)) {
    number(out, kind);
    with_length(out, 2, body);
}

impl Offer {
    /// The record with the ClientHello. `random` need not be secret, since no key is derived from
    /// it.
    pub fn record(&self, random: &[u8; 32]) -> Vec<u8> {
        let mut out = vec![22];
        // RFC 8446 5.1: an initial ClientHello may say 0x0301 here.
        number(&mut out, 0x0301);
        with_length(&mut out, 2, |out| {
            out.push(1);
            with_length(out, 3, |out| self.body(out, random));
        });
        out
    }

    fn body(&self, out: &mut Vec<u8>, random: &[u8; 32]) {
        number(out, self.version.code().min(Version::Tls12.code()));
        out.extend(random);
        // RFC 8446 D.4: middleboxes expect a session id.
        let session: &[u8] = if self.version == Version::Tls13 { random } else { &[] };
        with_length(out, 1, |out| out.extend(session));
        let mut suites = self.suites.clone();
        if self.version != Version::Tls13 {
            suites.push(RENEGOTIATION_SCSV);
        }
        list(out, &suites);
        out.extend([1, 0]);
        with_length(out, 2, |out| self.extensions(out));
    }

    fn extensions(&self, out: &mut Vec<u8>) {
        if let Some(name) = &self.server_name {
            extension(out, 0, |out| {
                with_length(out, 2, |out| {
                    out.push(0);
                    with_length(out, 2, |out| out.extend(name.as_bytes()));
                });
            });
        }
        if !self.groups.is_empty() {
            extension(out, 10, |out| list(out, &self.groups));
        }
        extension(out, 11, |out| out.extend([1, 0]));
        if self.version.code() >= Version::Tls12.code() {
            extension(out, 13, |out| list(out, &SIGNATURES));
        }
        if self.version == Version::Tls13 {
            extension(out, 43, |out| with_length(out, 1, |out| number(out, self.version.code())));
            // psk_dhe_ke: some servers require this extension.
            extension(out, 45, |out| out.extend([1, 1]));
            extension(out, 51, |out| list(out, &[]));
        } else {
            // extended_master_secret (RFC 7627)
            extension(out, 23, |_| {});
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_add_up() {
        let offer = Offer {
            version: Version::Tls13,
            suites: vec![0x1301],
            groups: vec![0x001d],
            server_name: Some("db.example".to_owned()),
        };
        let record = offer.record(&[7; 32]);
        let length = usize::from(u16::from_be_bytes([record[3], record[4]]));
        assert_eq!(record.len(), 5 + length);
        assert_eq!(&record[5..9], &[1, 0, record[7], record[8]]);
        let inner = usize::from(u16::from_be_bytes([record[7], record[8]]));
        assert_eq!(inner, length - 4);
        // version, random, session id, one suite, no compression, the rest are extensions
        let at = 9 + 2 + 32 + 33 + 4 + 2;
        let extensions = usize::from(u16::from_be_bytes([record[at], record[at + 1]]));
        assert_eq!(record.len(), at + 2 + extensions);
    }
}
