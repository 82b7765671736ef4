//! Collects the facts about a server from which [`crate::judge`] derives findings.

use std::time::Duration;

use serde::Serialize;

use crate::certificate::{self, Certificate, Trust};
use crate::conninfo::Target;
use crate::error::TlsError;
use crate::handshake::{self, Negotiated};
use crate::probe::{Accepted, Prober};
use crate::wire::{self, Plain};

/// The facts about a server.
#[derive(Debug, Clone, Serialize)]
pub struct Facts {
    /// Host name or address in the connection string.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Whether the server has TLS at all.
    pub tls: bool,
    /// How the server reacts to a login without TLS by this user to this database.
    pub plain: Plain,
    /// The user of that login.
    pub user: String,
    /// The database of that login.
    pub dbname: String,
    /// What a current client and the server agree on.
    pub negotiated: Option<Negotiated>,
    /// Why a current client and the server do not agree.
    pub not_negotiated: Option<String>,
    /// Everything that the server accepts.
    pub accepted: Accepted,
    /// The server's certificate.
    pub certificate: Option<Certificate>,
    /// Whether the certificate is trusted.
    pub trust: Trust,
}

/// Examines a server with about fifty short connections, none of which logs in.
///
/// # Errors
/// If the server cannot be reached, is not PostgreSQL, or the trusted certificates cannot be read.
pub fn examine(target: &Target, timeout: Duration) -> Result<Facts, TlsError> {
    let prober = Prober::new(target, timeout);
    let tls = prober.has_tls()?;
    let plain = wire::try_plain(target, timeout)?;
    let mut facts = Facts {
        host: target.host.clone(),
        port: target.port,
        tls,
        plain,
        user: target.user.clone(),
        dbname: target.dbname.clone(),
        negotiated: None,
        not_negotiated: None,
        accepted: Accepted::default(),
        certificate: None,
        trust: Trust::Unchecked,
    };
    if !tls {
        return Ok(facts);
    }
    facts.accepted = prober.accepted()?;
    match handshake::negotiate(target, timeout)? {
        Ok(negotiated) => facts.negotiated = Some(negotiated),
        Err(why) => facts.not_negotiated = Some(why),
    }
    let shown = facts.negotiated.as_ref().map(|negotiated| &negotiated.certificates);
    let chain = shown.filter(|chain| !chain.is_empty()).unwrap_or(&facts.accepted.certificates);
    facts.certificate = chain.first().and_then(|der| Certificate::parse(der));
    facts.trust = certificate::trust(chain, target.root.as_ref())?;
    Ok(facts)
}
