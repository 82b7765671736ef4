//! Derives findings, the weaknesses of a server, from facts. No input or output.

use serde::Serialize;

use crate::certificate::Trust;
use crate::check::Facts;
use crate::groups::GROUPS;
use crate::suites::{self, Cipher, Exchange};
use crate::version::Version;
use crate::wire::Plain;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The connection is secure today, but should be improved.
    Warning,
    /// An attacker on the network can read or impersonate the server, or clients cannot connect.
    Critical,
}

/// One weakness.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// A code for monitoring, the same in all versions of pgseal.
    pub code: &'static str,
    /// How bad the weakness is.
    pub severity: Severity,
    /// What is weak, in words.
    pub what: String,
    /// What to do.
    pub remedy: String,
}

/// All codes, for `--ignore`.
pub const CODES: [&str; 19] = [
    "no-tls",
    "plain-accepted",
    "plain-unknown",
    "old-version",
    "no-tls13",
    "rsa-key-exchange",
    "anonymous-suite",
    "broken-cipher",
    "weak-dh",
    "no-post-quantum",
    "no-handshake",
    "weak-key",
    "weak-signature",
    "expired",
    "not-yet-valid",
    "expiring",
    "host-mismatch",
    "self-signed",
    "untrusted",
];

const DAY_S: i64 = 86_400;

/// Smallest prime of a finite-field exchange, in bits (SP 800-56A revision 3, table 25).
const SMALLEST_DH_BITS: u32 = 2048;

struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, severity: Severity, code: &'static str, what: String, remedy: &str) {
        self.0.push(Finding { code, severity, what, remedy: remedy.to_owned() });
    }
}

/// The findings, critical ones first. `now_unix_s` is the time in seconds since 1970. A certificate
/// that expires within `warn_days` days is a finding.
pub fn judge(facts: &Facts, now_unix_s: i64, warn_days: u32) -> Vec<Finding> {
    let mut found = Findings(Vec::new());
    judge_plain(facts, &mut found);
    if facts.tls {
        judge_protocol(facts, &mut found);
        judge_suites(facts, &mut found);
        judge_certificate(facts, now_unix_s, warn_days, &mut found);
    } else {
        found.add(
            Severity::Critical,
            "no-tls",
            "the server has no TLS".to_owned(),
            "\"pgseal tls init\" sets it up",
        );
    }
    found.0.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    found.0
}

fn judge_plain(facts: &Facts, found: &mut Findings) {
    let (user, dbname) = (&facts.user, &facts.dbname);
    match &facts.plain {
        Plain::Refused { .. } => {}
        Plain::Accepted { method } => {
            let danger = match *method {
                "password" => ", with the password readable on the way",
                "trust" => ", without any password",
                _ => "",
            };
            found.add(
                Severity::Critical,
                "plain-accepted",
                format!(
                    "connections without TLS are let in (user {user}, database {dbname}, method \
                     {method}{danger})"
                ),
                "in pg_hba.conf, \"hostssl\" instead of \"host\"; \"pgseal tls init\" does it",
            );
        }
        Plain::Unknown { message } => found.add(
            Severity::Warning,
            "plain-unknown",
            format!("whether connections without TLS are let in could not be seen: {message}"),
            "try again, with a user and database that exist",
        ),
    }
}

fn judge_protocol(facts: &Facts, found: &mut Findings) {
    let versions = &facts.accepted.versions;
    let old: Vec<&str> =
        versions.iter().filter(|v| **v < Version::Tls12).map(|v| v.name()).collect();
    if !old.is_empty() {
        found.add(
            Severity::Critical,
            "old-version",
            format!("{} accepted (RFC 8996 forbids it)", old.join(" and ")),
            "ssl_min_protocol_version = 'TLSv1.2'",
        );
    }
    if let Some(why) = &facts.not_negotiated {
        found.add(
            Severity::Critical,
            "no-handshake",
            format!("a client of today cannot agree with the server: {why}"),
            "see the server's log; check ssl_ciphers, the protocol versions and the key",
        );
    }
    if !versions.contains(&Version::Tls13) {
        found.add(
            Severity::Warning,
            "no-tls13",
            "TLS 1.3 is not offered".to_owned(),
            "ssl_max_protocol_version = '' (and OpenSSL 1.1.1 or newer)",
        );
        return;
    }
    let accepted = &facts.accepted.groups;
    let safe = |name: &String| GROUPS.iter().any(|g| g.name == name.as_str() && g.post_quantum);
    if !accepted.iter().any(safe) {
        found.add(
            Severity::Warning,
            "no-post-quantum",
            format!(
                "no post-quantum key exchange (the server has {}): what is recorded today can be \
                 read once there are quantum computers",
                accepted.join(", ")
            ),
            "PostgreSQL 18 with OpenSSL 3.5: ssl_groups = 'X25519MLKEM768:X25519:prime256v1'; \
             before, PostgreSQL cannot have it (--ignore no-post-quantum)",
        );
    }
}

fn judge_suites(facts: &Facts, found: &mut Findings) {
    let all: Vec<_> =
        facts.accepted.tls12_suites.iter().filter_map(|name| suites::by_name(name)).collect();
    let mut group = |wanted: &dyn Fn(&suites::Suite) -> bool, severity, code, words: &str| {
        let names: Vec<&str> =
            all.iter().filter(|suite| wanted(suite)).map(|suite| suite.name).collect();
        if let Some(first) = names.first() {
            let more = match names.len() - 1 {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            found.add(
                severity,
                code,
                format!("{words} ({first}{more})"),
                "ssl_ciphers = 'ECDHE+AESGCM:ECDHE+CHACHA20'",
            );
        }
    };
    group(
        &|suite| suite.exchange == Exchange::Rsa,
        Severity::Warning,
        "rsa-key-exchange",
        "key exchange by RSA accepted: who gets the server's key later reads what was recorded",
    );
    group(
        &|suite| suite.exchange == Exchange::Anonymous,
        Severity::Critical,
        "anonymous-suite",
        "suites without a certificate accepted",
    );
    group(
        &|suite| matches!(suite.cipher, Cipher::Rc4 | Cipher::TripleDes | Cipher::Null),
        Severity::Critical,
        "broken-cipher",
        "broken ciphers accepted",
    );
    if let Some(bits) = facts.accepted.dh_bits.filter(|bits| *bits < SMALLEST_DH_BITS) {
        found.add(
            Severity::Critical,
            "weak-dh",
            format!("key exchange with a {bits}-bit prime accepted"),
            "ssl_dh_params_file = '', or a prime of 2048 bits",
        );
    }
}

fn judge_certificate(facts: &Facts, now_unix_s: i64, warn_days: u32, found: &mut Findings) {
    let renew = "\"pgseal tls init\" makes a new one";
    let Some(certificate) = &facts.certificate else { return };
    if certificate.key_is_weak() {
        let what = format!("the certificate's key is weak: {} bits", certificate.key_bits);
        found.add(Severity::Critical, "weak-key", what, renew);
    }
    if certificate.signature_is_weak() {
        let what = format!("the certificate's signature is weak: {}", certificate.signature);
        found.add(Severity::Critical, "weak-signature", what, renew);
    }
    let left_s = certificate.not_after_unix_s - now_unix_s;
    if left_s < 0 {
        let what = format!("the certificate has expired {} days ago", -left_s / DAY_S);
        found.add(Severity::Critical, "expired", what, renew);
    } else if left_s < i64::from(warn_days) * DAY_S {
        let what = format!("the certificate expires in {} days", left_s / DAY_S);
        found.add(Severity::Warning, "expiring", what, renew);
    }
    if certificate.not_before_unix_s > now_unix_s {
        found.add(
            Severity::Critical,
            "not-yet-valid",
            "the certificate is not valid yet".to_owned(),
            "check the clocks of server and client",
        );
    }
    if !certificate.is_for(&facts.host) {
        found.add(
            Severity::Critical,
            "host-mismatch",
            format!(
                "the certificate is for {}, not for {}: sslmode=verify-full fails",
                if certificate.names.is_empty() {
                    "nobody".to_owned()
                } else {
                    certificate.names.join(", ")
                },
                facts.host
            ),
            "\"pgseal tls init --host NAME\" makes one for this name",
        );
    }
    if certificate.self_signed {
        found.add(
            Severity::Warning,
            "self-signed",
            "the certificate is signed by itself: clients must hold this very file, and it cannot \
             be renewed without touching all of them"
                .to_owned(),
            "\"pgseal tls init\" makes a private CA and a certificate from it",
        );
    }
    match &facts.trust {
        Trust::Trusted { .. } => {}
        Trust::Distrusted { root, why } => found.add(
            Severity::Critical,
            "untrusted",
            format!("the certificate does not lead to one in {}: {why}", root.display()),
            "give the CA's certificate with sslrootcert=FILE",
        ),
        Trust::Unchecked => found.add(
            Severity::Warning,
            "untrusted",
            "who signed the certificate was not checked: no sslrootcert".to_owned(),
            "give the CA's certificate with sslrootcert=FILE",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificate::Certificate;
    use crate::handshake::Negotiated;
    use crate::probe::Accepted;

    const NOW: i64 = 1_800_000_000;

    fn sound() -> Facts {
        let strings = |all: &[&str]| all.iter().map(|s| (*s).to_owned()).collect();
        Facts {
            host: "db".to_owned(),
            port: 5432,
            tls: true,
            plain: Plain::Refused { message: String::new() },
            user: "u".to_owned(),
            dbname: "d".to_owned(),
            negotiated: Some(Negotiated {
                version: "TLSv1.3".to_owned(),
                suite: "TLS_AES_256_GCM_SHA384".to_owned(),
                group: Some("X25519MLKEM768".to_owned()),
                certificates: Vec::new(),
            }),
            not_negotiated: None,
            accepted: Accepted {
                versions: vec![Version::Tls12, Version::Tls13],
                tls13_suites: strings(&["TLS_AES_256_GCM_SHA384"]),
                tls12_suites: strings(&["ECDHE-RSA-AES128-GCM-SHA256"]),
                groups: strings(&["X25519MLKEM768", "X25519"]),
                dh_bits: None,
                certificates: Vec::new(),
            },
            certificate: Some(Certificate {
                subject: "CN=db".to_owned(),
                issuer: "CN=ca".to_owned(),
                key: "RSA".to_owned(),
                key_bits: 2048,
                signature: "RSA with SHA256".to_owned(),
                names: strings(&["db"]),
                not_before_unix_s: NOW - DAY_S,
                not_after_unix_s: NOW + 100 * DAY_S,
                self_signed: false,
            }),
            trust: Trust::Trusted { root: "ca.crt".into() },
        }
    }

    #[track_caller]
    fn finds(change: impl FnOnce(&mut Facts), want: &[(&str, Severity)]) {
        let mut facts = sound();
        change(&mut facts);
        let found = judge(&facts, NOW, 30);
        let codes: Vec<_> = found.iter().map(|f| (f.code, f.severity)).collect();
        assert_eq!(codes, want, "{found:?}");
        assert!(codes.iter().all(|(code, _)| CODES.contains(code)));
    }

    #[test]
    fn each_weakness_has_its_finding_and_a_sound_server_none() {
        use Severity::{Critical, Warning};
        fn certificate(facts: &mut Facts) -> &mut Certificate {
            facts.certificate.as_mut().unwrap()
        }
        finds(|_| {}, &[]);
        finds(|f| f.tls = false, &[("no-tls", Critical)]);
        finds(
            |f| f.plain = Plain::Accepted { method: "password" },
            &[("plain-accepted", Critical)],
        );
        finds(
            |f| f.plain = Plain::Unknown { message: String::new() },
            &[("plain-unknown", Warning)],
        );
        finds(|f| f.accepted.versions.insert(0, Version::Tls11), &[("old-version", Critical)]);
        finds(|f| f.accepted.versions.truncate(1), &[("no-tls13", Warning)]);
        finds(|f| f.accepted.groups.truncate(0), &[("no-post-quantum", Warning)]);
        finds(|f| f.accepted.dh_bits = Some(1024), &[("weak-dh", Critical)]);
        for (suite, code, severity) in [
            ("AES128-SHA", "rsa-key-exchange", Warning),
            ("ADH-AES256-SHA", "anonymous-suite", Critical),
            ("ECDHE-RSA-DES-CBC3-SHA", "broken-cipher", Critical),
        ] {
            finds(|f| f.accepted.tls12_suites.push(suite.to_owned()), &[(code, severity)]);
        }
        finds(|f| certificate(f).key_bits = 1024, &[("weak-key", Critical)]);
        finds(
            |f| certificate(f).signature = "RSA with SHA1".into(),
            &[("weak-signature", Critical)],
        );
        finds(|f| certificate(f).not_after_unix_s = NOW - 1, &[("expired", Critical)]);
        finds(|f| certificate(f).not_after_unix_s = NOW + DAY_S, &[("expiring", Warning)]);
        finds(|f| certificate(f).not_before_unix_s = NOW + 1, &[("not-yet-valid", Critical)]);
        finds(|f| f.host = "other".to_owned(), &[("host-mismatch", Critical)]);
        finds(|f| certificate(f).self_signed = true, &[("self-signed", Warning)]);
        finds(|f| f.trust = Trust::Unchecked, &[("untrusted", Warning)]);
        let distrusted = Trust::Distrusted { root: "ca.crt".into(), why: String::new() };
        finds(|f| f.trust = distrusted, &[("untrusted", Critical)]);
        finds(|f| f.not_negotiated = Some(String::new()), &[("no-handshake", Critical)]);
    }

    #[test]
    fn critical_findings_come_first() {
        let mut facts = sound();
        facts.accepted.groups.clear();
        facts.host = "other".to_owned();
        let codes: Vec<_> = judge(&facts, NOW, 30).into_iter().map(|f| f.code).collect();
        assert_eq!(codes, ["host-mismatch", "no-post-quantum"]);
    }
}
