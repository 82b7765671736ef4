//! Finds out which versions, suites and groups a server accepts, by offering them.

use std::time::Duration;

use rustls::crypto::SecureRandom;
use serde::Serialize;

use crate::answer::{self, Answer, Choice};
use crate::conninfo::Target;
use crate::error::TlsError;
use crate::groups::{self, GROUPS};
use crate::hello::Offer;
use crate::suites::{self, Exchange, SUITES, Suite};
use crate::version::Version;
use crate::wire;

/// Probes one server.
#[derive(Debug, Clone)]
pub struct Prober<'a> {
    target: &'a Target,
    timeout: Duration,
}

/// Everything that a server accepts.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Accepted {
    /// Versions, oldest first.
    pub versions: Vec<Version>,
    /// OpenSSL's names of the accepted suites of TLS 1.3, in the server's order.
    pub tls13_suites: Vec<String>,
    /// OpenSSL's names of the accepted suites of the newest version before 1.3, in the server's
    /// order.
    pub tls12_suites: Vec<String>,
    /// OpenSSL's names of the accepted groups, in the server's order.
    pub groups: Vec<String>,
    /// Smallest prime of a finite-field exchange (DHE), in bits.
    pub dh_bits: Option<u32>,
    /// The certificates (DER) that a handshake before TLS 1.3 showed.
    #[serde(skip)]
    pub certificates: Vec<Vec<u8>>,
}

impl<'a> Prober<'a> {
    /// A prober for the server at `target`, which waits for each answer at most `timeout`.
    pub fn new(target: &'a Target, timeout: Duration) -> Prober<'a> {
        Prober { target, timeout }
    }

    /// Offers one version with these suites and groups on a new connection. Returns `None` if the
    /// server has no TLS.
    ///
    /// # Errors
    /// If the server cannot be reached, or is not PostgreSQL.
    pub fn offer(
        &self,
        version: Version,
        suites: &[u16],
        groups: &[u16],
    ) -> Result<Option<Answer>, TlsError> {
        let mut stream = wire::connect(self.target, self.timeout)?;
        if !wire::request_tls(&mut stream, self.target)? {
            return Ok(None);
        }
        let is_name = self.target.host.parse::<std::net::IpAddr>().is_err();
        let offer = Offer {
            version,
            suites: suites.to_vec(),
            groups: groups.to_vec(),
            server_name: is_name.then(|| self.target.host.clone()),
        };
        let unreachable = |source| TlsError::Unreachable {
            address: self.target.address(),
            action: "offer TLS",
            source,
        };
        let mut random = [0; 32];
        let provider: &dyn SecureRandom =
            rustls::crypto::aws_lc_rs::default_provider().secure_random;
        provider.fill(&mut random).map_err(|_| unreachable(std::io::Error::other("no random")))?;
        std::io::Write::write_all(&mut stream, &offer.record(&random)).map_err(unreachable)?;
        answer::read(&mut stream).map(Some).map_err(unreachable)
    }

    /// What the server chooses from an offer; `None` if it refuses.
    fn choice(
        &self,
        version: Version,
        suites: &[u16],
        groups: &[u16],
    ) -> Result<Option<Choice>, TlsError> {
        match self.offer(version, suites, groups)? {
            // An answer with an older version than was offered counts as a refusal.
            Some(Answer::Takes(choice)) if choice.version == version => Ok(Some(*choice)),
            _ => Ok(None),
        }
    }

    /// Whether the server has TLS at all.
    ///
    /// # Errors
    /// If the server cannot be reached, or is not PostgreSQL.
    pub fn has_tls(&self) -> Result<bool, TlsError> {
        let mut stream = wire::connect(self.target, self.timeout)?;
        wire::request_tls(&mut stream, self.target)
    }

    /// Finds everything that the server accepts. Makes a connection for each accepted version,
    /// suite and group, and one more for each list.
    ///
    /// # Errors
    /// If the server cannot be reached, or is not PostgreSQL.
    pub fn accepted(&self) -> Result<Accepted, TlsError> {
        let mut accepted = Accepted::default();
        for version in Version::ALL {
            if let Some(choice) = self.choice(version, &suites_of(version), &all_groups())? {
                accepted.versions.push(version);
                accepted.certificates.extend(choice.certificates);
            }
        }
        if accepted.versions.contains(&Version::Tls13) {
            for choice in self.suites(Version::Tls13)? {
                accepted.tls13_suites.push(suites::name_of(choice.suite));
            }
        }
        let older = accepted.versions.iter().filter(|version| **version != Version::Tls13).max();
        if let Some(version) = older {
            for choice in self.suites(*version)? {
                accepted.tls12_suites.push(suites::name_of(choice.suite));
                let smaller = [accepted.dh_bits, choice.dh_bits].into_iter().flatten().min();
                accepted.dh_bits = smaller;
            }
        }
        if let Some(version) = accepted.versions.iter().max() {
            let groups = self.groups(*version)?;
            accepted.groups = groups.into_iter().map(groups::name_of).collect();
        }
        Ok(accepted)
    }

    /// The suites that the server accepts, in the order in which it chooses them.
    ///
    /// # Errors
    /// If the server cannot be reached, or is not PostgreSQL.
    pub fn suites(&self, version: Version) -> Result<Vec<Choice>, TlsError> {
        let mut left = suites_of(version);
        let mut found = Vec::new();
        while let Some(choice) = self.choice(version, &left, &all_groups())? {
            // A server that chooses a suite that was not offered must not keep this loop running.
            let before = left.len();
            left.retain(|suite| *suite != choice.suite);
            if left.len() == before {
                break;
            }
            found.push(choice);
        }
        Ok(found)
    }

    /// The groups that the server accepts, in the order in which it chooses them.
    ///
    /// # Errors
    /// If the server cannot be reached, or is not PostgreSQL.
    pub fn groups(&self, version: Version) -> Result<Vec<u16>, TlsError> {
        let suites: Vec<u16> = match version {
            Version::Tls13 => suites_of(version),
            _ => SUITES.iter().filter(|s| s.exchange == Exchange::Ecdhe).map(|s| s.id).collect(),
        };
        let mut left = all_groups();
        let mut found = Vec::new();
        while let Some(group) = self.choice(version, &suites, &left)?.and_then(|c| c.group) {
            let before = left.len();
            left.retain(|other| *other != group);
            if left.len() == before {
                break;
            }
            found.push(group);
        }
        Ok(found)
    }
}

fn all_groups() -> Vec<u16> {
    GROUPS.iter().map(|group| group.id).collect()
}

fn suites_of(version: Version) -> Vec<u16> {
    let fits = |suite: &&Suite| (suite.exchange == Exchange::Tls13) == (version == Version::Tls13);
    SUITES.iter().filter(fits).map(|suite| suite.id).collect()
}
