//! The findings in words, with all numbers computed from the data, and beside each the finding of
//! the studies, computed from their published figures.

mod comparisons;
mod others;

use super::algorithm::{Algorithm, Mode};
use super::figures::{At, Compared, Figures};
use super::plan::PAGE_BYTES;
use super::published::Study;
use crate::exhibits::Finding;
use crate::report::format::{quantity, significant};

/// All findings that the data allow.
pub fn findings(figures: &Figures<'_>) -> Vec<Finding> {
    let study = Study::read();
    [
        which_mode(figures, &study),
        authenticated(figures),
        aes_instructions(figures, &study),
        vaes(figures),
        comparisons::unit(figures, &study),
        comparisons::key_length(figures, &study),
        comparisons::decrypting(figures, &study),
        comparisons::set_up(figures),
        comparisons::libraries(figures),
        others::cycles(figures),
        others::old_algorithms(figures),
        others::signatures(figures, &study),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// `1.45 times`, `-12 %`.
fn change(ratio: f64) -> String {
    if ratio >= 1.5 {
        format!("{} times", significant(ratio))
    } else {
        format!("{:+.0} %", (ratio - 1.0) * 100.0)
    }
}

fn list(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// The modes by the speed of encrypting a page with each mode's shortest key, fastest first.
fn ranking(figures: &Figures<'_>, arm: &str) -> Vec<(Algorithm, f64)> {
    let shortest = |mode: Mode| {
        let of = |a: &Algorithm| a.mode == mode;
        figures.algorithms().into_iter().filter(of).min_by_key(|a| a.key_bits)
    };
    let mut ranked: Vec<(Algorithm, f64)> = Mode::ALL
        .into_iter()
        .filter_map(shortest)
        .filter_map(|a| Some((a, figures.rate(At::page(a.mode, a.key_bits, arm))?)))
        .collect();
    ranked.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    ranked
}

fn which_mode(figures: &Figures<'_>, study: &Study) -> Option<Finding> {
    let said = |(algorithm, rate): &(Algorithm, f64)| {
        format!("{} {}", algorithm.title(), quantity(*rate, "bytes/s"))
    };
    let openssl = ranking(figures, "openssl");
    let first = openssl.first()?;
    let mut text = format!(
        "Which mode: a page of {PAGE_BYTES} bytes is encrypted fastest with {}",
        said(first)
    );
    if first.0.mode == Mode::Ecb {
        text.push_str(", which must not be used, as equal blocks stay equal");
    }
    let rest: Vec<String> = openssl.iter().skip(1).map(said).collect();
    text.push_str(&format!("; then {} (OpenSSL, one core).", list(&rest)));
    let theirs: Vec<String> = study
        .page_ranking()
        .into_iter()
        .map(|(mode, rate)| format!("{} {}", mode.title(), quantity(rate, "bytes/s")))
        .collect();
    let theirs = format!(
        "{} with 128-bit keys; it calls ECB the fastest and not to be used, and recommends CTR.",
        list(&theirs)
    );
    Some(Finding::with_study(text, theirs))
}

fn authenticated(figures: &Figures<'_>) -> Option<Finding> {
    let arm = if figures.has_arm("aws-lc") { "aws-lc" } else { "openssl" };
    let at = |mode| At::page(mode, 256, arm);
    let compared = figures.difference(at(Mode::Gcm), at(Mode::Ctr))?;
    let micros = |mode| {
        let rate = figures.rate(at(mode))?;
        Some(format!("{} us", significant(PAGE_BYTES as f64 / rate * 1e6)))
    };
    let verdict = if compared.differs {
        format!("{} of CTR's speed", significant(compared.ratio.value))
    } else {
        "no difference to CTR".to_owned()
    };
    let mut text = format!(
        "What authentication costs: a page takes {} with AES-256-CTR and {} with AES-256-GCM, {verdict}",
        micros(Mode::Ctr)?,
        micros(Mode::Gcm)?
    );
    for mode in [Mode::Xts, Mode::GcmSiv, Mode::ChaCha20Poly1305] {
        if let Some(time) = micros(mode) {
            text.push_str(&format!("; {time} with {}", Algorithm { mode, key_bits: 256 }.title()));
        }
    }
    text.push_str(&format!(" ({}).", library(arm)));
    Some(Finding::new(text))
}

fn library(arm: &str) -> &'static str {
    if arm.starts_with("aws-lc") { "AWS-LC" } else { "OpenSSL" }
}

/// A ratio for each algorithm, sorted, and in words the smallest and the largest ratio.
fn range(
    figures: &Figures<'_>,
    compare: impl Fn(Algorithm) -> Option<Compared>,
) -> Option<(Vec<(Algorithm, Compared)>, String)> {
    let mut found: Vec<(Algorithm, Compared)> =
        figures.algorithms().into_iter().filter_map(|a| Some((a, compare(a)?))).collect();
    found.sort_by(|(_, one), (_, other)| one.ratio.value.total_cmp(&other.ratio.value));
    let ((least, low), (most, high)) = (found.first()?, found.last()?);
    let words = if found.len() == 1 {
        format!("{} times with {}", significant(low.ratio.value), least.title())
    } else {
        format!(
            "between {} times with {} and {} times with {}",
            significant(low.ratio.value),
            least.title(),
            significant(high.ratio.value),
            most.title()
        )
    };
    Some((found, words))
}

fn aes_instructions(figures: &Figures<'_>, study: &Study) -> Option<Finding> {
    let mut parts = Vec::new();
    for arm in ["openssl", "aws-lc"] {
        let without = format!("{arm}-noaes");
        let worth = |a: Algorithm| {
            let at = At::page(a.mode, a.key_bits, arm);
            (a.mode != Mode::ChaCha20Poly1305)
                .then(|| figures.difference(at, at.arm(&without)))
                .flatten()
        };
        if let Some((_, words)) = range(figures, worth) {
            parts.push(format!("{words} in {}", library(arm)));
        }
    }
    if parts.is_empty() {
        return None;
    }
    let mut text =
        format!("The CPU's AES instructions make encrypting a page faster: {}.", parts.join("; "));
    let chacha = At::page(Mode::ChaCha20Poly1305, 256, "aws-lc-noaes");
    let gcm = At::page(Mode::Gcm, 256, "aws-lc-noaes");
    if let Some(found) = figures.difference(chacha, gcm).filter(|found| found.differs) {
        text.push_str(&format!(
            " Without them ChaCha20-Poly1305 runs at {} times the speed of AES-256-GCM.",
            significant(found.ratio.value)
        ));
    }
    let theirs = study.aes_worth().map(|(low, high)| {
        format!(
            "between {} times with {} and {} times with {}, encrypting {PAGE_BYTES} bytes; \"up to ten \
             times\" in its words.",
            significant(low.1),
            low.0.title(),
            significant(high.1),
            high.0.title()
        )
    });
    Some(Finding { text, study: theirs })
}

fn vaes(figures: &Figures<'_>) -> Option<Finding> {
    let mut parts = Vec::new();
    let mut measured = false;
    for arm in ["openssl", "aws-lc"] {
        let without = format!("{arm}-novaes");
        let mut gains = Vec::new();
        for a in figures.algorithms() {
            let at = At::page(a.mode, a.key_bits, arm);
            let Some(found) = figures.difference(at, at.arm(&without)) else { continue };
            measured = true;
            if found.differs && found.ratio.value > 1.05 {
                gains.push(format!("{} {}", a.title(), change(found.ratio.value)));
            }
        }
        if !gains.is_empty() {
            parts.push(format!("in {}: {}", library(arm), list(&gains)));
        }
    }
    let text = match (measured, parts.is_empty()) {
        (false, _) => return None,
        (true, true) => {
            "VAES (AES on 256 and 512 bits at once): no mode is more than 5 % faster with it, in \
             either library."
                .to_owned()
        }
        (true, false) => format!(
            "VAES (AES on 256 and 512 bits at once) makes encrypting a page faster {}; all others stay \
             within 5 % or the noise.",
            parts.join("; ")
        ),
    };
    Some(Finding::new(text))
}
