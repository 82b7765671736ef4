//! Cipher suites: their code points (IANA's TLS registry) and OpenSSL's names, which PostgreSQL
//! uses.

use serde::Serialize;

/// How the session key is agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Exchange {
    /// TLS 1.3: always ephemeral, in a group that is negotiated separately.
    Tls13,
    /// Ephemeral elliptic curves.
    Ecdhe,
    /// Ephemeral finite field.
    Dhe,
    /// The client encrypts the secret with the certificate's key: no forward secrecy.
    Rsa,
    /// Ephemeral, without a certificate: a machine in the middle is not noticed.
    Anonymous,
}

/// How records are protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cipher {
    /// Authenticated encryption: GCM, CCM, ChaCha20-Poly1305.
    Aead,
    /// A 128-bit block cipher in CBC mode with HMAC.
    Cbc,
    /// Triple DES: 64-bit blocks (CVE-2016-2183).
    TripleDes,
    /// RC4 (RFC 7465 forbids it).
    Rc4,
    /// Not encrypted at all.
    Null,
}

/// One cipher suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Suite {
    /// Code point.
    pub id: u16,
    /// OpenSSL's name.
    pub name: &'static str,
    /// Key exchange.
    pub exchange: Exchange,
    /// Protection of records.
    pub cipher: Cipher,
}

const fn suite(id: u16, name: &'static str, exchange: Exchange, cipher: Cipher) -> Suite {
    Suite { id, name, exchange, cipher }
}

/// All suites except those with pre-shared keys, which PostgreSQL does not support.
pub const SUITES: &[Suite] = &[
    suite(0x1302, "TLS_AES_256_GCM_SHA384", Exchange::Tls13, Cipher::Aead),
    suite(0x1303, "TLS_CHACHA20_POLY1305_SHA256", Exchange::Tls13, Cipher::Aead),
    suite(0x1301, "TLS_AES_128_GCM_SHA256", Exchange::Tls13, Cipher::Aead),
    suite(0xc02c, "ECDHE-ECDSA-AES256-GCM-SHA384", Exchange::Ecdhe, Cipher::Aead),
    suite(0xc030, "ECDHE-RSA-AES256-GCM-SHA384", Exchange::Ecdhe, Cipher::Aead),
    suite(0x009f, "DHE-RSA-AES256-GCM-SHA384", Exchange::Dhe, Cipher::Aead),
    suite(0xcca9, "ECDHE-ECDSA-CHACHA20-POLY1305", Exchange::Ecdhe, Cipher::Aead),
    suite(0xcca8, "ECDHE-RSA-CHACHA20-POLY1305", Exchange::Ecdhe, Cipher::Aead),
    suite(0xccaa, "DHE-RSA-CHACHA20-POLY1305", Exchange::Dhe, Cipher::Aead),
    suite(0xc0af, "ECDHE-ECDSA-AES256-CCM8", Exchange::Ecdhe, Cipher::Aead),
    suite(0xc0ad, "ECDHE-ECDSA-AES256-CCM", Exchange::Ecdhe, Cipher::Aead),
    suite(0xc0a3, "DHE-RSA-AES256-CCM8", Exchange::Dhe, Cipher::Aead),
    suite(0xc09f, "DHE-RSA-AES256-CCM", Exchange::Dhe, Cipher::Aead),
    suite(0xc05d, "ECDHE-ECDSA-ARIA256-GCM-SHA384", Exchange::Ecdhe, Cipher::Aead),
    suite(0xc061, "ECDHE-ARIA256-GCM-SHA384", Exchange::Ecdhe, Cipher::Aead),
    suite(0xc053, "DHE-RSA-ARIA256-GCM-SHA384", Exchange::Dhe, Cipher::Aead),
    suite(0x00a7, "ADH-AES256-GCM-SHA384", Exchange::Anonymous, Cipher::Aead),
    suite(0xc02b, "ECDHE-ECDSA-AES128-GCM-SHA256", Exchange::Ecdhe, Cipher::Aead),
    suite(0xc02f, "ECDHE-RSA-AES128-GCM-SHA256", Exchange::Ecdhe, Cipher::Aead),
    suite(0x009e, "DHE-RSA-AES128-GCM-SHA256", Exchange::Dhe, Cipher::Aead),
    suite(0xc0ae, "ECDHE-ECDSA-AES128-CCM8", Exchange::Ecdhe, Cipher::Aead),
    suite(0xc0ac, "ECDHE-ECDSA-AES128-CCM", Exchange::Ecdhe, Cipher::Aead),
    suite(0xc0a2, "DHE-RSA-AES128-CCM8", Exchange::Dhe, Cipher::Aead),
    suite(0xc09e, "DHE-RSA-AES128-CCM", Exchange::Dhe, Cipher::Aead),
    suite(0xc05c, "ECDHE-ECDSA-ARIA128-GCM-SHA256", Exchange::Ecdhe, Cipher::Aead),
    suite(0xc060, "ECDHE-ARIA128-GCM-SHA256", Exchange::Ecdhe, Cipher::Aead),
    suite(0xc052, "DHE-RSA-ARIA128-GCM-SHA256", Exchange::Dhe, Cipher::Aead),
    suite(0x00a6, "ADH-AES128-GCM-SHA256", Exchange::Anonymous, Cipher::Aead),
    suite(0xc024, "ECDHE-ECDSA-AES256-SHA384", Exchange::Ecdhe, Cipher::Cbc),
    suite(0xc028, "ECDHE-RSA-AES256-SHA384", Exchange::Ecdhe, Cipher::Cbc),
    suite(0x006b, "DHE-RSA-AES256-SHA256", Exchange::Dhe, Cipher::Cbc),
    suite(0xc073, "ECDHE-ECDSA-CAMELLIA256-SHA384", Exchange::Ecdhe, Cipher::Cbc),
    suite(0xc077, "ECDHE-RSA-CAMELLIA256-SHA384", Exchange::Ecdhe, Cipher::Cbc),
    suite(0x00c4, "DHE-RSA-CAMELLIA256-SHA256", Exchange::Dhe, Cipher::Cbc),
    suite(0x006d, "ADH-AES256-SHA256", Exchange::Anonymous, Cipher::Cbc),
    suite(0x00c5, "ADH-CAMELLIA256-SHA256", Exchange::Anonymous, Cipher::Cbc),
    suite(0xc023, "ECDHE-ECDSA-AES128-SHA256", Exchange::Ecdhe, Cipher::Cbc),
    suite(0xc027, "ECDHE-RSA-AES128-SHA256", Exchange::Ecdhe, Cipher::Cbc),
    suite(0x0067, "DHE-RSA-AES128-SHA256", Exchange::Dhe, Cipher::Cbc),
    suite(0xc072, "ECDHE-ECDSA-CAMELLIA128-SHA256", Exchange::Ecdhe, Cipher::Cbc),
    suite(0xc076, "ECDHE-RSA-CAMELLIA128-SHA256", Exchange::Ecdhe, Cipher::Cbc),
    suite(0x00be, "DHE-RSA-CAMELLIA128-SHA256", Exchange::Dhe, Cipher::Cbc),
    suite(0x006c, "ADH-AES128-SHA256", Exchange::Anonymous, Cipher::Cbc),
    suite(0x00bf, "ADH-CAMELLIA128-SHA256", Exchange::Anonymous, Cipher::Cbc),
    suite(0xc00a, "ECDHE-ECDSA-AES256-SHA", Exchange::Ecdhe, Cipher::Cbc),
    suite(0xc014, "ECDHE-RSA-AES256-SHA", Exchange::Ecdhe, Cipher::Cbc),
    suite(0x0039, "DHE-RSA-AES256-SHA", Exchange::Dhe, Cipher::Cbc),
    suite(0x0088, "DHE-RSA-CAMELLIA256-SHA", Exchange::Dhe, Cipher::Cbc),
    suite(0xc019, "AECDH-AES256-SHA", Exchange::Anonymous, Cipher::Cbc),
    suite(0x003a, "ADH-AES256-SHA", Exchange::Anonymous, Cipher::Cbc),
    suite(0x0089, "ADH-CAMELLIA256-SHA", Exchange::Anonymous, Cipher::Cbc),
    suite(0xc009, "ECDHE-ECDSA-AES128-SHA", Exchange::Ecdhe, Cipher::Cbc),
    suite(0xc013, "ECDHE-RSA-AES128-SHA", Exchange::Ecdhe, Cipher::Cbc),
    suite(0x0033, "DHE-RSA-AES128-SHA", Exchange::Dhe, Cipher::Cbc),
    suite(0x0045, "DHE-RSA-CAMELLIA128-SHA", Exchange::Dhe, Cipher::Cbc),
    suite(0xc018, "AECDH-AES128-SHA", Exchange::Anonymous, Cipher::Cbc),
    suite(0x0034, "ADH-AES128-SHA", Exchange::Anonymous, Cipher::Cbc),
    suite(0x0046, "ADH-CAMELLIA128-SHA", Exchange::Anonymous, Cipher::Cbc),
    suite(0x009d, "AES256-GCM-SHA384", Exchange::Rsa, Cipher::Aead),
    suite(0xc0a1, "AES256-CCM8", Exchange::Rsa, Cipher::Aead),
    suite(0xc09d, "AES256-CCM", Exchange::Rsa, Cipher::Aead),
    suite(0xc051, "ARIA256-GCM-SHA384", Exchange::Rsa, Cipher::Aead),
    suite(0x009c, "AES128-GCM-SHA256", Exchange::Rsa, Cipher::Aead),
    suite(0xc0a0, "AES128-CCM8", Exchange::Rsa, Cipher::Aead),
    suite(0xc09c, "AES128-CCM", Exchange::Rsa, Cipher::Aead),
    suite(0xc050, "ARIA128-GCM-SHA256", Exchange::Rsa, Cipher::Aead),
    suite(0x003d, "AES256-SHA256", Exchange::Rsa, Cipher::Cbc),
    suite(0x00c0, "CAMELLIA256-SHA256", Exchange::Rsa, Cipher::Cbc),
    suite(0x003c, "AES128-SHA256", Exchange::Rsa, Cipher::Cbc),
    suite(0x00ba, "CAMELLIA128-SHA256", Exchange::Rsa, Cipher::Cbc),
    suite(0x0035, "AES256-SHA", Exchange::Rsa, Cipher::Cbc),
    suite(0x0084, "CAMELLIA256-SHA", Exchange::Rsa, Cipher::Cbc),
    suite(0x002f, "AES128-SHA", Exchange::Rsa, Cipher::Cbc),
    suite(0x0041, "CAMELLIA128-SHA", Exchange::Rsa, Cipher::Cbc),
    suite(0xc006, "ECDHE-ECDSA-NULL-SHA", Exchange::Ecdhe, Cipher::Null),
    suite(0xc010, "ECDHE-RSA-NULL-SHA", Exchange::Ecdhe, Cipher::Null),
    suite(0xc015, "AECDH-NULL-SHA", Exchange::Anonymous, Cipher::Null),
    suite(0x003b, "NULL-SHA256", Exchange::Rsa, Cipher::Null),
    suite(0x0002, "NULL-SHA", Exchange::Rsa, Cipher::Null),
    suite(0x0001, "NULL-MD5", Exchange::Rsa, Cipher::Null),
    suite(0xc007, "ECDHE-ECDSA-RC4-SHA", Exchange::Ecdhe, Cipher::Rc4),
    suite(0xc011, "ECDHE-RSA-RC4-SHA", Exchange::Ecdhe, Cipher::Rc4),
    suite(0x0005, "RC4-SHA", Exchange::Rsa, Cipher::Rc4),
    suite(0x0004, "RC4-MD5", Exchange::Rsa, Cipher::Rc4),
    suite(0xc008, "ECDHE-ECDSA-DES-CBC3-SHA", Exchange::Ecdhe, Cipher::TripleDes),
    suite(0xc012, "ECDHE-RSA-DES-CBC3-SHA", Exchange::Ecdhe, Cipher::TripleDes),
    suite(0x0016, "DHE-RSA-DES-CBC3-SHA", Exchange::Dhe, Cipher::TripleDes),
    suite(0x000a, "DES-CBC3-SHA", Exchange::Rsa, Cipher::TripleDes),
    suite(0xc017, "AECDH-DES-CBC3-SHA", Exchange::Anonymous, Cipher::TripleDes),
    suite(0x001b, "ADH-DES-CBC3-SHA", Exchange::Anonymous, Cipher::TripleDes),
    suite(0x0018, "ADH-RC4-MD5", Exchange::Anonymous, Cipher::Rc4),
    suite(0xc016, "AECDH-RC4-SHA", Exchange::Anonymous, Cipher::Rc4),
    suite(0x1304, "TLS_AES_128_CCM_SHA256", Exchange::Tls13, Cipher::Aead),
    suite(0x1305, "TLS_AES_128_CCM_8_SHA256", Exchange::Tls13, Cipher::Aead),
    suite(0x0007, "IDEA-CBC-SHA", Exchange::Rsa, Cipher::Cbc),
    suite(0x0096, "SEED-SHA", Exchange::Rsa, Cipher::Cbc),
    suite(0x009a, "DHE-RSA-SEED-SHA", Exchange::Dhe, Cipher::Cbc),
];

/// The suite with this code point.
pub fn by_id(id: u16) -> Option<&'static Suite> {
    SUITES.iter().find(|suite| suite.id == id)
}

/// The suite with this OpenSSL name.
pub fn by_name(name: &str) -> Option<&'static Suite> {
    SUITES.iter().find(|suite| suite.name == name)
}

/// OpenSSL's name, or the code point in hexadecimal digits.
pub fn name_of(id: u16) -> String {
    by_id(id).map_or_else(|| format!("{id:#06x}"), |suite| suite.name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_points_and_names_are_unique() {
        for (place, suite) in SUITES.iter().enumerate() {
            assert_eq!(by_id(suite.id), Some(suite));
            assert_eq!(SUITES.iter().position(|other| other.name == suite.name), Some(place));
        }
    }

    #[test]
    fn the_registry_s_code_points() {
        let id = |name| by_name(name).map(|suite| suite.id);
        // RFC 8446 B.4, RFC 5246 A.5, RFC 5289 3.2, RFC 7905 2
        assert_eq!(id("TLS_AES_128_GCM_SHA256"), Some(0x1301));
        assert_eq!(id("AES128-SHA"), Some(0x002f));
        assert_eq!(id("DHE-RSA-AES256-SHA"), Some(0x0039));
        assert_eq!(id("RC4-SHA"), Some(0x0005));
        assert_eq!(id("ECDHE-RSA-AES128-GCM-SHA256"), Some(0xc02f));
        assert_eq!(id("ECDHE-ECDSA-CHACHA20-POLY1305"), Some(0xcca9));
        assert_eq!(name_of(0xfefe), "0xfefe");
    }
}
