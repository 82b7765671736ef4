//! Recommends TLS ciphers, certificate and groups.

use pgseal_tls::settings::{Abilities, FIRST_WITH_GROUPS, quoted, recommended};
use pgseal_tls::version::Version;

use super::evidence::{Evidence, arms_in, effect, words};
use super::{Basis, Paste, Reason, Recommendation, Site, Topic};
use crate::cost::Cost;
use crate::experiments::modes::algorithm::Mode;
use crate::experiments::modes::figures::{At, Figures};
use crate::plan::{Arm, Case};
use crate::report::Entry;
use crate::report::format::{quantity, significant};

const GCM_256: &str = "TLS_AES_256_GCM_SHA384";
const CHACHA: &str = "TLS_CHACHA20_POLY1305_SHA256";
const HYBRID: &str = "X25519MLKEM768";
/// TLS 1.3 suites that current servers and clients support.
const SUITES: [&str; 3] = [GCM_256, "TLS_AES_128_GCM_SHA256", CHACHA];

/// A member of an arm's attribute `tls`.
fn member(arm: &Arm, name: &str) -> Option<String> {
    Some(arm.attributes.get("tls")?.get(name)?.as_str()?.to_owned())
}

fn case<'a>(entry: &'a Entry, id: &str) -> Option<&'a Case> {
    entry.results.plan.case(id)
}

/// Effect of an arm against the plan's first arm, which has no TLS.
fn cost(entry: &Entry, case: &Case, arm: &str) -> Option<Cost> {
    let plain = entry.results.plan.arms.first()?;
    effect(entry, case, arm, &plain.id)
}

fn settings(site: &Site, aes_first: bool, wanted: &[&str]) -> (Vec<Paste>, Option<Reason>) {
    let Some(major) = site.postgres_major else {
        let note = "No PostgreSQL was found here, so nothing to paste: the settings depend on its \
                    version (give --bindir).";
        return (Vec::new(), Some(Reason::note(note)));
    };
    let abilities = Abilities { major, ml_kem: site.ml_kem, aes: aes_first };
    let lines: Vec<String> = recommended(abilities, Version::Tls12)
        .into_iter()
        .filter(|setting| wanted.contains(&setting.name))
        .map(|setting| format!("{} = {}", setting.name, quoted(&setting.value)))
        .collect();
    (vec![Paste::conf(lines.join("\n"))], None)
}

/// TLS versions and ciphers.
pub fn ciphers(evidence: &Evidence<'_>, site: &Site) -> Recommendation {
    let mut reasons = Vec::new();
    let order = evidence
        .entry("tls")
        .and_then(|entry| order_of_servers(entry, &mut reasons))
        .or_else(|| evidence.modes().and_then(|figures| order_of_ciphers(figures, &mut reasons)));
    let (basis, aes_first) = match order {
        Some(found) => found,
        None => (Basis::NotMeasured, site.aes),
    };
    let text = match (basis, aes_first) {
        (Basis::NotMeasured, true) => {
            "AES-GCM before ChaCha20-Poly1305, as this CPU has AES instructions"
        }
        (Basis::NotMeasured, false) => {
            "ChaCha20-Poly1305 before AES-GCM, as this CPU has no AES instructions"
        }
        (Basis::Undecided, _) => {
            "AES-GCM and ChaCha20-Poly1305 differ by no more than noise; AES-GCM first, as usual"
        }
        (_, true) => "AES-GCM before ChaCha20-Poly1305, which is slower here",
        (_, false) => "ChaCha20-Poly1305 before AES-GCM, which is slower here",
    };
    let names = [
        "ssl",
        "ssl_min_protocol_version",
        "ssl_prefer_server_ciphers",
        "ssl_ciphers",
        "ssl_tls13_ciphers",
    ];
    let (mut paste, lost) = settings(site, aes_first, &names);
    reasons.extend(lost);
    if site.postgres_major.is_some_and(|major| major < FIRST_WITH_GROUPS) {
        reasons.push(Reason::note(
            "The order of TLS 1.3 suites can be set from PostgreSQL 18 on; before, OpenSSL's own order \
             holds, which begins with AES-256-GCM.",
        ));
    }
    paste.push(Paste::shell(
        "pgseal tls init DIR    # or all of it at once, certificates and rules too",
    ));
    Recommendation {
        topic: Topic::TlsCiphers,
        basis,
        text: format!("TLS 1.2 and 1.3 with authenticated ciphers alone: {text}."),
        reasons,
        paste,
    }
}

/// Uses figures of servers: the cost of TLS as reasons; returns whether AES-GCM comes first.
fn order_of_servers(entry: &Entry, reasons: &mut Vec<Reason>) -> Option<(Basis, bool)> {
    let mut verdicts = Vec::new();
    for case in &entry.results.plan.cases {
        let measured: Vec<&Arm> = arms_in(entry, case);
        for suite in SUITES {
            let Some(arm) = measured.iter().find(|arm| arm.id == suite) else { continue };
            if let Some(found) = cost(entry, case, &arm.id) {
                let source = format!("tls {}, arm {suite}", case.id);
                let text = format!("{suite} against no TLS, {}: {}.", case.title, words(&found));
                reasons.push(Reason::of(text, source));
            }
        }
        if let Some(found) = effect(entry, case, CHACHA, GCM_256) {
            verdicts.push(found);
            reasons.push(Reason::of(
                format!("{CHACHA} against {GCM_256}, {}: {}.", case.title, words(&found)),
                format!("tls {}", case.id),
            ));
        }
    }
    if verdicts.is_empty() {
        return None;
    }
    // The largest difference decides; usually the case that transfers the most bytes has it.
    let most = verdicts
        .iter()
        .filter(|found| found.differs())
        .max_by(|one, other| one.times.ln().abs().total_cmp(&other.times.ln().abs()));
    Some(match most {
        None => (Basis::Undecided, true),
        Some(found) => (Basis::Measured, found.times > 1.0),
    })
}

/// As [`order_of_servers`], from the bare ciphers of the system's OpenSSL, which PostgreSQL uses.
fn order_of_ciphers(figures: &Figures<'_>, reasons: &mut Vec<Reason>) -> Option<(Basis, bool)> {
    let at = |mode, bits| At::page(mode, bits, "openssl");
    let (gcm, chacha) = (at(Mode::Gcm, 256), at(Mode::ChaCha20Poly1305, 256));
    let found = figures.difference(gcm, chacha)?;
    for (name, at) in
        [("AES-256-GCM", gcm), ("AES-128-GCM", at(Mode::Gcm, 128)), ("ChaCha20-Poly1305", chacha)]
    {
        let small = figures.sizes.iter().copied().min().unwrap_or(at.bytes);
        if let Some((page, few)) = figures.rate(at).zip(figures.rate(at.bytes(small))) {
            reasons.push(Reason::of(
                format!(
                    "{name}: {} in records of 8192 bytes; {} ns for {small} bytes.",
                    quantity(page, "bytes/s"),
                    significant(small as f64 / few * 1e9)
                ),
                format!("modes {}, arm openssl", at.algorithm),
            ));
        }
    }
    reasons.push(Reason::note(
        "What TLS costs a query only \"pgseal lab tls\" says; small results pay for round trips and calls, \
         not for ciphers.",
    ));
    Some(match found.differs {
        true => (Basis::Estimated, found.ratio.value > 1.0),
        false => (Basis::Undecided, true),
    })
}

/// The server's certificate.
pub fn certificate(evidence: &Evidence<'_>) -> Recommendation {
    let mut reasons = Vec::new();
    let found = evidence
        .entry("tls")
        .and_then(|entry| keys_of_servers(entry, &mut reasons))
        .or_else(|| evidence.modes().and_then(|figures| keys_alone(figures, &mut reasons)));
    let (basis, ecdsa) = found.unwrap_or((Basis::NotMeasured, true));
    if let Some(entry) = evidence.entry("tls") {
        reasons.extend(pooling(entry));
    }
    let (key, text) = match (basis, ecdsa) {
        (Basis::Undecided, _) => (
            "ecdsa-p256",
            "An ECDSA P-256 certificate; no difference to RSA beyond the noise was measured, but it is as \
             strong as RSA-3072 and smaller",
        ),
        (_, true) => {
            ("ecdsa-p256", "An ECDSA P-256 certificate: as strong as RSA-3072, and the cheapest")
        }
        (_, false) => ("rsa-2048", "An RSA-2048 certificate, which was faster here"),
    };
    Recommendation {
        topic: Topic::Certificate,
        basis,
        text: format!("{text}."),
        reasons,
        paste: vec![Paste::shell(format!("pgseal tls init --key {key} DIR"))],
    }
}

/// The case with a new connection for each transaction.
fn connecting(entry: &Entry) -> Option<&Case> {
    case(entry, "row-connect")
}

/// Compares each certificate with ECDSA P-256, with a new connection for each transaction. Returns
/// whether ECDSA is recommended.
fn keys_of_servers(entry: &Entry, reasons: &mut Vec<Reason>) -> Option<(Basis, bool)> {
    let case = connecting(entry)?;
    let arms = arms_in(entry, case);
    let ecdsa = arms.iter().find(|arm| arm.id == "ecdsa-p256")?;
    let same = |arm: &&&Arm| {
        ["suite", "group", "version"].iter().all(|name| member(arm, name) == member(ecdsa, name))
            && member(arm, "certificate") != member(ecdsa, "certificate")
    };
    let mut found = Vec::new();
    for arm in arms.iter().filter(same) {
        let Some(effect) = effect(entry, case, &arm.id, &ecdsa.id) else { continue };
        let name = member(arm, "certificate").unwrap_or_default();
        let text = format!("A connection with {name} against ECDSA P-256: {}.", words(&effect));
        reasons
            .push(Reason::of(text, format!("tls {}, arms {} and {}", case.id, arm.id, ecdsa.id)));
        found.push(effect);
    }
    let sure: Vec<&Cost> = found.iter().filter(|effect| effect.differs()).collect();
    match (found.is_empty(), sure.is_empty()) {
        (true, _) => None,
        (false, true) => Some((Basis::Undecided, true)),
        (false, false) => Some((Basis::Measured, sure.iter().any(|effect| effect.times > 1.0))),
    }
}

/// As [`keys_of_servers`], from the bare signatures of the system's OpenSSL.
fn keys_alone(figures: &Figures<'_>, reasons: &mut Vec<Reason>) -> Option<(Basis, bool)> {
    let ecdsa = figures.named("sign.ecdsa-256", "openssl", "")?;
    let mut basis = None;
    for key in ["rsa-2048", "rsa-3072", "rsa-4096"] {
        let case = format!("sign.{key}");
        let Some(rsa) = figures.named(&case, "openssl", "") else { continue };
        let found = figures.named_difference("sign.ecdsa-256", &case)?;
        let against = words(&found.cost);
        reasons.push(Reason::of(
            format!(
                "One core signs {} with ECDSA P-256 and {} with {key}: {against} for ECDSA.",
                quantity(ecdsa, "1/s"),
                quantity(rsa, "1/s"),
            ),
            format!("modes sign.ecdsa-256, {case}"),
        ));
        // The shortest RSA key measured decides, because it signs fastest.
        basis.get_or_insert(match found.differs {
            true => (Basis::Estimated, found.ratio.value > 1.0),
            false => (Basis::Undecided, true),
        });
    }
    basis
}

/// The cost of a new TLS connection, as a reason to use a connection pool.
fn pooling(entry: &Entry) -> Option<Reason> {
    let case = connecting(entry)?;
    let arms = arms_in(entry, case);
    let arm = arms.iter().find(|arm| arm.id == "ecdsa-p256").or(arms.first())?;
    let found = cost(entry, case, &arm.id)?;
    Some(Reason::of(
        format!(
            "A new connection with TLS for each transaction against one without TLS: {}; PostgreSQL resumes \
             no sessions, so keep connections in a pool.",
            words(&found)
        ),
        format!("tls {}, arm {}", case.id, arm.id),
    ))
}

/// Key-exchange groups.
pub fn groups(evidence: &Evidence<'_>, site: &Site) -> Recommendation {
    let mut reasons = Vec::new();
    let costs = evidence.entry("tls").and_then(|entry| group_costs(entry, &mut reasons));
    let (paste, lost) = settings(site, site.aes, &["ssl_groups", "ssl_ecdh_curve"]);
    reasons.extend(lost);
    let can = site.postgres_major.is_some_and(|major| major >= FIRST_WITH_GROUPS);
    let text = match (can, site.ml_kem) {
        (true, true) => {
            "The post-quantum hybrid X25519MLKEM768 first: what is recorded today stays closed to the \
             quantum computer of tomorrow; PostgreSQL 18's default leaves it out."
        }
        (true, false) => "X25519 first, then prime256v1; this OpenSSL has no ML-KEM (3.5 has).",
        (false, _) => {
            "prime256v1: PostgreSQL before 18 takes one curve only, so no post-quantum group; move to 18 \
             with OpenSSL 3.5 if what you send must stay secret for decades."
        }
    };
    let basis = match costs {
        None => Basis::NotMeasured,
        Some(true) => Basis::Measured,
        Some(false) => Basis::Undecided,
    };
    Recommendation { topic: Topic::Groups, basis, text: text.to_owned(), reasons, paste }
}

/// Compares each group with the group of the arm `ecdsa-p256`; all else is equal. Returns whether
/// any group differs; none if no other group was measured.
fn group_costs(entry: &Entry, reasons: &mut Vec<Reason>) -> Option<bool> {
    let case = connecting(entry)?;
    let arms = arms_in(entry, case);
    let usual = arms.iter().find(|arm| arm.id == "ecdsa-p256")?;
    let same = |arm: &&&Arm| {
        ["suite", "certificate", "version"]
            .iter()
            .all(|name| member(arm, name) == member(usual, name))
            && member(arm, "group") != member(usual, "group")
    };
    let base = member(usual, "group").unwrap_or_default();
    let mut any = None;
    for arm in arms.iter().filter(same) {
        let Some(found) = effect(entry, case, &arm.id, &usual.id) else { continue };
        let name = member(arm, "group").unwrap_or_default();
        let text = format!("A connection with {name} against {base}: {}.", words(&found));
        reasons
            .push(Reason::of(text, format!("tls {}, arms {} and {}", case.id, arm.id, usual.id)));
        any = Some(any.unwrap_or(false) || found.differs());
    }
    let lost = entry
        .results
        .missing
        .iter()
        .find(|m| m.case == case.id && m.arm.as_deref() == Some(HYBRID));
    if let Some(lost) = lost {
        let text = format!("{HYBRID} could not be measured: {}.", lost.why);
        reasons.push(Reason::of(text, format!("tls {}", case.id)));
    }
    any
}
