//! TLS between PostgreSQL and its clients: certificates, settings and rules that
//! `pgseal tls init` sets up, and the questions by which `pgseal tls check` finds out what a server
//! really negotiates.
//!
//! Nothing of this depends on the OpenSSL of the machine: what a server accepts is seen from its
//! answers to hand-made offers ([`hello`], [`answer`], [`probe`]), since a library would not offer
//! what has to be asked about; the one whole handshake, the chain and the certificates are the work
//! of rustls, webpki and rcgen.
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
