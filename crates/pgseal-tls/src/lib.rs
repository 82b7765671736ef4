//! TLS between PostgreSQL and its clients: the certificates, settings and rules that
//! `pgseal tls init` makes, and the probes by which `pgseal tls check` finds out what a server
//! accepts.
//!
//! Nothing here depends on the OpenSSL of the machine. The probes are ClientHello messages that
//! this crate writes itself ([`hello`], [`answer`], [`probe`]), because a TLS library refuses to
//! offer the old versions and ciphers that have to be probed. rustls makes the one complete
//! handshake, webpki verifies the certificate chain, and rcgen makes certificates.
#![forbid(unsafe_code)]

pub mod answer;
pub mod authority;
pub mod certificate;
pub mod check;
pub mod conninfo;
pub mod error;
pub mod files;
pub mod groups;
pub mod handshake;
pub mod hba;
pub mod hello;
pub mod judge;
pub mod probe;
pub mod settings;
pub mod setup;
pub mod suites;
pub mod version;
pub mod wire;

pub use error::TlsError;
