//! Versions of the protocol.

use serde::Serialize;

/// A version of TLS, oldest first. SSL 3.0 is not probed: current OpenSSL does not implement it,
/// and PostgreSQL has refused it since 9.4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Version {
    /// RFC 2246, deprecated by RFC 8996.
    #[serde(rename = "TLSv1")]
    Tls10,
    /// RFC 4346, deprecated by RFC 8996.
    #[serde(rename = "TLSv1.1")]
    Tls11,
    /// RFC 5246.
    #[serde(rename = "TLSv1.2")]
    Tls12,
    /// RFC 8446.
    #[serde(rename = "TLSv1.3")]
    Tls13,
}

impl Version {
    /// All of them, oldest first.
    pub const ALL: [Version; 4] = [Version::Tls10, Version::Tls11, Version::Tls12, Version::Tls13];

    /// The number on the wire.
    pub const fn code(self) -> u16 {
        match self {
            Version::Tls10 => 0x0301,
            Version::Tls11 => 0x0302,
            Version::Tls12 => 0x0303,
            Version::Tls13 => 0x0304,
        }
    }

    /// The name that PostgreSQL's settings and `pg_stat_ssl` use.
    pub const fn name(self) -> &'static str {
        match self {
            Version::Tls10 => "TLSv1",
            Version::Tls11 => "TLSv1.1",
            Version::Tls12 => "TLSv1.2",
            Version::Tls13 => "TLSv1.3",
        }
    }

    /// The version with this number.
    pub fn by_code(code: u16) -> Option<Version> {
        Version::ALL.into_iter().find(|version| version.code() == code)
    }

    /// The version with this name.
    pub fn by_name(name: &str) -> Option<Version> {
        Version::ALL.into_iter().find(|version| version.name() == name)
    }
}
