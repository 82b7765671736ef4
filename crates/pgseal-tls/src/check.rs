//! What a server negotiates, all of it: the facts that [`crate::judge`] judges.

use std::time::Duration;

use serde::Serialize;

use crate::certificate::{self, Certificate, Trust};
use crate::conninfo::Target;
use crate::error::TlsError;
use crate::handshake::{self, Negotiated};
use crate::probe::{Accepted, Prober};
use crate::wire::{self, Plain};

/// What was found out about a server.
#[derive(Debug, Clone, Serialize)]
pub struct Facts {
    /// Host name or address that was asked for.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Whether the server has TLS at all.
    pub tls: bool,
    /// What becomes of a connection without TLS, for this user and database.
    pub plain: Plain,
    /// The user who asked for it.
    pub user: String,
    /// The database.
    pub dbname: String,
    /// What a client of today and the server agree on.
    pub negotiated: Option<Negotiated>,
    /// Why they do not.
    pub not_negotiated: Option<String>,
    /// All that the server takes.
    pub accepted: Accepted,
    /// Its certificate.
    pub certificate: Option<Certificate>,
    /// Whether that is trusted.
    pub trust: Trust,
}

/// Asks the server all questions: some fifty short connections, none of which logs in.
///
/// # Errors
/// When the server cannot be reached, is none, or the trusted certificates cannot be read.
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
