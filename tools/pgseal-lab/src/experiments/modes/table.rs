//! The algorithms of study 2's `openssl speed` table, with their current names in OpenSSL.

use std::rc::Rc;

use super::system::{CipherSpec, Style, System, cipher, digest, hmac, ige};
use super::work::{Work, WorkError};

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The name that the study prints.
    pub name: &'static str,
    /// The call of libcrypto that runs the algorithm.
    pub call: Call,
}

/// The call of libcrypto that runs an algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// A digest, by its EVP name.
    Digest(&'static str),
    /// HMAC with a digest, by the digest's EVP name.
    Hmac(&'static str),
    /// A cipher: its EVP name, bytes of key, bytes of IV.
    Cipher(&'static str, usize, usize),
    /// AES-IGE, bits of the key.
    Ige(u16),
}

const fn entry(name: &'static str, call: Call) -> Entry {
    Entry { name, call }
}

/// The study's rows in its order, then the rows that `openssl speed` printed at that time and the
/// study's table omits.
pub const ENTRIES: [Entry; 24] = [
    entry("md2", Call::Digest("MD2")),
    entry("md4", Call::Digest("MD4")),
    entry("md5", Call::Digest("MD5")),
    entry("hmac(md5)", Call::Hmac("MD5")),
    entry("sha1", Call::Digest("SHA1")),
    entry("rmd160", Call::Digest("RIPEMD160")),
    entry("rc4", Call::Cipher("RC4", 16, 0)),
    entry("des cbc", Call::Cipher("DES-CBC", 8, 8)),
    entry("des ede3", Call::Cipher("DES-EDE3-CBC", 24, 8)),
    entry("rc2 cbc", Call::Cipher("RC2-CBC", 16, 8)),
    entry("blowfish cbc", Call::Cipher("BF-CBC", 16, 8)),
    entry("cast cbc", Call::Cipher("CAST5-CBC", 16, 8)),
    entry("aes-128 cbc", Call::Cipher("AES-128-CBC", 16, 16)),
    entry("aes-192 cbc", Call::Cipher("AES-192-CBC", 24, 16)),
    entry("aes-256 cbc", Call::Cipher("AES-256-CBC", 32, 16)),
    entry("sha256", Call::Digest("SHA256")),
    entry("sha512", Call::Digest("SHA512")),
    entry("aes-128 ige", Call::Ige(128)),
    entry("aes-192 ige", Call::Ige(192)),
    entry("aes-256 ige", Call::Ige(256)),
    entry("idea cbc", Call::Cipher("IDEA-CBC", 16, 8)),
    entry("seed cbc", Call::Cipher("SEED-CBC", 16, 16)),
    entry("camellia-128 cbc", Call::Cipher("CAMELLIA-128-CBC", 16, 16)),
    entry("camellia-256 cbc", Call::Cipher("CAMELLIA-256-CBC", 32, 16)),
];

/// The row of this name.
pub fn named(name: &str) -> Option<Entry> {
    ENTRIES.into_iter().find(|entry| entry.name == name)
}

/// Prepares a row for measurement with messages of `bytes`, as `openssl speed` does: digests hash
/// each message separately, ciphers treat all messages as parts of one endless message.
pub fn work(system: &Rc<System>, entry: Entry, bytes: usize) -> Result<Box<dyn Work>, WorkError> {
    match entry.call {
        Call::Digest(name) => digest(system, name, bytes),
        Call::Hmac(name) => hmac(system, name, bytes),
        Call::Ige(bits) => ige(system, bits, bytes),
        Call::Cipher(name, key_len, iv_len) => cipher(
            system,
            &CipherSpec {
                name: name.to_owned(),
                key_len,
                iv_len,
                aead: false,
                encrypt: true,
                bytes,
                style: Style::Endless,
            },
        ),
    }
}

impl Entry {
    /// The row's part of a case's identifier: `aes-128-cbc`, `hmac-md5`.
    pub fn id(self) -> String {
        let letters = self.name.replace(['(', ' '], "-");
        letters.replace(')', "")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_study_s_table_is_covered() {
        let study = include_str!("../../../published/openssl_speed_2013.csv");
        for line in study.lines().skip(1) {
            let name = line.split(',').next().unwrap();
            assert!(named(name).is_some(), "{name}");
        }
        assert_eq!(named("hmac(md5)").map(Entry::id).as_deref(), Some("hmac-md5"));
    }
}
