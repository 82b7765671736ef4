//! The arms: no TLS, suites, certificates, groups.

use std::collections::BTreeMap;

use pgseal_tls::authority::KeyKind;
use pgseal_tls::suites::{self, Exchange};
use pgseal_tls::version::Version;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::error::LabError;
use crate::plan::{Arm, Plan};

/// Id of the baseline.
pub const PLAIN: &str = "plain";
/// Id of the second measurement of the baseline.
pub const AGAIN: &str = "plain-again";
/// The suite with which certificates and groups are compared.
pub const USUAL_SUITE: &str = "TLS_AES_256_GCM_SHA384";
/// The group with which suites and certificates are compared; every version has it.
pub const USUAL_GROUP: &str = "prime256v1";
/// The certificate with which suites are compared, as in the study.
pub const USUAL_KEY: KeyKind = KeyKind::Rsa2048;
/// The certificate with which groups are compared.
pub const GROUPS_KEY: KeyKind = KeyKind::EcdsaP256;

/// What an arm with TLS negotiates; its attribute `tls`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// `TLSv1.2` or `TLSv1.3`.
    pub version: String,
    /// OpenSSL's name of the suite.
    pub suite: String,
    /// `rsa-2048`, ...
    pub certificate: String,
    /// OpenSSL's name of the key-exchange group.
    pub group: String,
}

impl Wanted {
    /// What an arm must negotiate; none: no TLS.
    ///
    /// # Errors
    ///
    /// [`LabError::Plan`] for an arm of another experiment.
    pub fn of(arm: &Arm) -> Result<Option<Self>, LabError> {
        arm.attribute("tls")
    }

    /// What each arm with TLS must negotiate, by the arm's id.
    ///
    /// # Errors
    ///
    /// As [`Wanted::of`].
    pub fn by_arm(plan: &Plan) -> Result<BTreeMap<String, Self>, LabError> {
        let mut all = BTreeMap::new();
        for arm in &plan.arms {
            if let Some(wanted) = Self::of(arm)? {
                all.insert(arm.id.clone(), wanted);
            }
        }
        Ok(all)
    }

    /// Whether the key exchange uses the group.
    pub fn uses_group(&self) -> bool {
        let exchange = suites::by_name(&self.suite).map(|suite| suite.exchange);
        matches!(exchange, Some(Exchange::Tls13 | Exchange::Ecdhe))
    }
}

fn arm(id: &str, title: String, again: bool, tls: Option<Wanted>) -> Arm {
    let attributes: BTreeMap<String, Value> =
        tls.into_iter().map(|wanted| ("tls".to_owned(), json!(wanted))).collect();
    Arm { id: id.to_owned(), title, again, attributes }
}

/// The arm without TLS, and its second measurement.
pub fn plain() -> [Arm; 2] {
    [
        arm(PLAIN, "no TLS (hostnossl)".to_owned(), false, None),
        arm(AGAIN, "no TLS, once more (A/A)".to_owned(), true, None),
    ]
}

/// The arm of a suite, with the usual certificate that fits the suite.
///
/// # Errors
/// For an unknown suite.
pub fn suite(name: &str) -> Result<Arm, LabError> {
    let known = suites::by_name(name)
        .ok_or_else(|| LabError::Usage(format!("{name}: OpenSSL has no suite of this name")))?;
    let (version, note) = match known.exchange {
        Exchange::Tls13 => (Version::Tls13, ""),
        Exchange::Rsa => (Version::Tls12, ", no forward secrecy"),
        _ => (Version::Tls12, ""),
    };
    let key = if name.contains("ECDSA") { KeyKind::EcdsaP256 } else { USUAL_KEY };
    let wanted = Wanted {
        version: version.name().to_owned(),
        suite: name.to_owned(),
        certificate: key.name().to_owned(),
        group: USUAL_GROUP.to_owned(),
    };
    let title = format!("{name} ({}{note})", version.name());
    Ok(arm(name, title, false, Some(wanted)))
}

/// The arm of a certificate, with the usual suite and group. The certificate with which suites are
/// compared shares the arm of the usual suite.
///
/// # Errors
/// For a kind of key that pgseal cannot make.
pub fn certificate(name: &str) -> Result<Arm, LabError> {
    let key = KeyKind::by_name(name).ok_or_else(|| {
        let known = KeyKind::ALL.map(KeyKind::name).join(", ");
        LabError::Usage(format!("{name}: no kind of key that is known here: {known}"))
    })?;
    if key == USUAL_KEY {
        return suite(USUAL_SUITE);
    }
    let title = format!("certificate {name} ({USUAL_SUITE}, {USUAL_GROUP})");
    Ok(arm(name, title, false, Some(usual(key, USUAL_GROUP))))
}

/// The arm of a group, with the usual suite. The usual group shares the arm of its certificate.
///
/// # Errors
/// Never; returns a `Result` like the other functions.
pub fn group(name: &str) -> Result<Arm, LabError> {
    if name == USUAL_GROUP {
        return certificate(GROUPS_KEY.name());
    }
    let title = format!("group {name} ({USUAL_SUITE}, {})", GROUPS_KEY.name());
    Ok(arm(name, title, false, Some(usual(GROUPS_KEY, name))))
}

fn usual(key: KeyKind, group: &str) -> Wanted {
    Wanted {
        version: Version::Tls13.name().to_owned(),
        suite: USUAL_SUITE.to_owned(),
        certificate: key.name().to_owned(),
        group: group.to_owned(),
    }
}
