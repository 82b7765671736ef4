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

/// A difference below this share does not matter in practice.
const SMALL: f64 = 0.05;

/// All findings that the data allow.
pub fn findings(figures: &Figures<'_>) -> Vec<Finding> {
    let study = Study::read();
    [
        authenticated(figures),
        which_mode(figures, &study),
        aes_instructions(figures, &study),
        vaes(figures),
        comparisons::key_length(figures, &study),
        comparisons::unit(figures, &study),
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

fn list(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// Gives the first finding what the study found.
fn beside(mut all: Vec<Finding>, study: Option<String>) -> Vec<Finding> {
    if let Some(first) = all.first_mut() {
        first.study = study;
    }
    all
}

/// `2.14 times as fast`, or in percent of the time.
fn faster(rate: f64) -> String {
    match rate {
        1.5.. => format!("{} times as fast", significant(rate)),
        _ => format!("{:.0} % faster", (rate - 1.0) * 100.0),
    }
}

/// Microseconds for a page.
pub fn page_us(figures: &Figures<'_>, at: At<'_>) -> Option<f64> {
    Some(PAGE_BYTES as f64 / figures.rate(at)? * 1e6)
}

/// The library of an arm.
pub fn library(arm: &str) -> &'static str {
    if arm.starts_with("aws-lc") { "AWS-LC" } else { "OpenSSL" }
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

fn which_mode(figures: &Figures<'_>, study: &Study) -> Vec<Finding> {
    let ranked = ranking(figures, "openssl");
    let rate = |rate: f64| quantity(rate, "bytes/s");
    let mut all = Vec::new();
    if let Some((first, speed)) = ranked.first() {
        let but = match first.mode {
            Mode::Ecb => ", but must not be used, as equal blocks stay equal",
            _ => " (OpenSSL, one core)",
        };
        let text = format!("{} encrypts a page fastest, at {}{but}.", first.title(), rate(*speed));
        all.push(Finding::new(text));
    }
    if let [_, (next, speed), ..] = ranked.as_slice() {
        let text = format!("{} is next, at {} (OpenSSL, one core).", next.title(), rate(*speed));
        all.push(Finding::new(text));
    }
    if let [_, _, .., (last, speed)] = ranked.as_slice() {
        let text =
            format!("{} is the slowest, at {} (OpenSSL, one core).", last.title(), rate(*speed));
        all.push(Finding::new(text));
    }
    let theirs: Vec<String> = study
        .page_ranking()
        .into_iter()
        .map(|(mode, speed)| format!("{} {}", mode.title(), rate(speed)))
        .collect();
    let theirs = format!(
        "{} with 128-bit keys; it calls ECB the fastest and not to be used, and recommends CTR.",
        list(&theirs)
    );
    beside(all, Some(theirs))
}

fn authenticated(figures: &Figures<'_>) -> Vec<Finding> {
    let arm = if figures.has_arm("aws-lc") { "aws-lc" } else { "openssl" };
    let at = |mode| At::page(mode, 256, arm);
    let title = |mode| Algorithm { mode, key_bits: 256 }.title();
    let micros = |mode| Some(format!("{} us", significant(page_us(figures, at(mode))?)));
    let mut all = Vec::new();
    if let Some(compared) = figures.difference(at(Mode::Gcm), at(Mode::Ctr))
        && let Some(time) = micros(Mode::Gcm)
    {
        let (rate, ctr) = (compared.ratio.value, title(Mode::Ctr));
        let against = match (compared.differs, rate > 1.0) {
            (true, true) => format!("{} times as fast as {ctr}", significant(rate)),
            (true, false) => format!("{} times as long as {ctr}", significant(1.0 / rate)),
            (false, _) => format!("against {ctr} {}", compared.cost.words()),
        };
        let text = match compared.differs {
            true => format!("{} costs {time} a page, {against}.", title(Mode::Gcm)),
            false => format!("{} {against}.", title(Mode::Gcm)),
        };
        all.push(Finding::new(text));
    }
    for mode in [Mode::Ctr, Mode::Xts, Mode::GcmSiv, Mode::ChaCha20Poly1305] {
        if let Some(time) = micros(mode) {
            let text = format!("{} costs {time} a page ({}).", title(mode), library(arm));
            all.push(Finding::new(text));
        }
    }
    all
}

/// A ratio for each algorithm, the smallest first.
fn sorted(
    figures: &Figures<'_>,
    compare: impl Fn(Algorithm) -> Option<Compared>,
) -> Vec<(Algorithm, Compared)> {
    let mut found: Vec<(Algorithm, Compared)> =
        figures.algorithms().into_iter().filter_map(|a| Some((a, compare(a)?))).collect();
    found.sort_by(|(_, one), (_, other)| one.ratio.value.total_cmp(&other.ratio.value));
    found
}

fn aes_instructions(figures: &Figures<'_>, study: &Study) -> Vec<Finding> {
    let mut all = Vec::new();
    for arm in ["aws-lc", "openssl"] {
        let without = format!("{arm}-noaes");
        let worth = |a: Algorithm| {
            let at = At::page(a.mode, a.key_bits, arm);
            (a.mode != Mode::ChaCha20Poly1305)
                .then(|| figures.difference(at, at.arm(&without)))
                .flatten()
        };
        let found = sorted(figures, worth);
        let mut say = |of: Option<&(Algorithm, Compared)>, words: &str| {
            let Some((algorithm, found)) = of else { return };
            all.push(Finding::new(format!(
                "The CPU's AES instructions make {} {} ({}, {words}).",
                algorithm.title(),
                faster(found.ratio.value),
                library(arm)
            )));
        };
        say(found.last(), "the most");
        say(found.first().filter(|_| found.len() > 1), "the least");
    }
    let chacha = At::page(Mode::ChaCha20Poly1305, 256, "aws-lc-noaes");
    let gcm = At::page(Mode::Gcm, 256, "aws-lc-noaes");
    if let Some(found) = figures.difference(chacha, gcm).filter(|found| found.differs) {
        all.push(Finding::new(format!(
            "Without AES instructions ChaCha20-Poly1305 is {} times as fast as AES-256-GCM.",
            significant(found.ratio.value)
        )));
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
    beside(all, theirs)
}

fn vaes(figures: &Figures<'_>) -> Vec<Finding> {
    let mut measured = false;
    let mut all = Vec::new();
    for arm in ["aws-lc", "openssl"] {
        let without = format!("{arm}-novaes");
        for a in figures.algorithms() {
            let at = At::page(a.mode, a.key_bits, arm);
            let Some(found) = figures.difference(at, at.arm(&without)) else { continue };
            measured = true;
            if found.differs && found.ratio.value > 1.0 + SMALL && a.key_bits == 256 {
                all.push(Finding::new(format!(
                    "VAES (wide AES instructions) makes {} {} ({}).",
                    a.title(),
                    faster(found.ratio.value),
                    library(arm)
                )));
            }
        }
    }
    if measured && all.is_empty() {
        let text = format!(
            "VAES (wide AES instructions) makes no mode with a long key more than {:.0} % faster.",
            SMALL * 100.0
        );
        all.push(Finding::new(text));
    }
    all
}
