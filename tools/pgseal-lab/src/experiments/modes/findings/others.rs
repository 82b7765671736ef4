//! Findings about core cycles and about study 2's table.

use super::{library, list};
use crate::exhibits::Finding;
use crate::experiments::modes::algorithm::Mode;
use crate::experiments::modes::figures::{At, Figures};
use crate::experiments::modes::published::{Study, key};
use crate::experiments::modes::table;
use crate::report::format::{quantity, significant};

pub fn cycles(figures: &Figures<'_>) -> Option<Finding> {
    let mut parts = Vec::new();
    for (mode, bits, arm) in [
        (Mode::Ctr, 128, "openssl"),
        (Mode::Ctr, 256, "openssl"),
        (Mode::Xts, 256, "aws-lc"),
        (Mode::Gcm, 256, "openssl"),
        (Mode::Gcm, 256, "aws-lc"),
        (Mode::Gcm, 256, "aws-lc-noaes"),
    ] {
        let at = At::page(mode, bits, arm);
        if let Some(value) = figures.per_cycle(at) {
            let without = if arm.ends_with("-noaes") { ", no AES instructions" } else { "" };
            let title = at.algorithm.title();
            parts.push(format!("{title} {} ({}{without})", significant(value), library(arm)));
        }
    }
    let source = figures.cycles_from()?;
    if parts.is_empty() {
        return None;
    }
    let text = format!(
        "Bytes per core cycle, encrypting a page: {}. Cycles are from {source}.",
        list(&parts)
    );
    Some(Finding::with_study(
        text,
        "1.25 bytes per cycle for a prototype with AES instructions on a Haswell core (study 3).",
    ))
}

pub fn old_algorithms(figures: &Figures<'_>) -> Option<Finding> {
    let case = |entry: &table::Entry| format!("speed.{}", entry.id());
    let asked: Vec<table::Entry> = table::ENTRIES
        .into_iter()
        .filter(|entry| figures.results.plan.case(&case(entry)).is_some())
        .collect();
    let (here, gone): (Vec<table::Entry>, Vec<table::Entry>) =
        asked.into_iter().partition(|entry| figures.named(&case(entry), "openssl", "").is_some());
    if here.is_empty() && gone.is_empty() {
        return None;
    }
    let names = |entries: &[table::Entry]| -> Vec<String> {
        entries.iter().map(|entry| entry.name.to_owned()).collect()
    };
    let legacy: Vec<table::Entry> = here
        .iter()
        .copied()
        .filter(|entry| figures.fact(&case(entry), "openssl", "provider") == Some("legacy"))
        .collect();
    let mut text = format!(
        "Of {} algorithms of the 2013 table and its day {} are still in this OpenSSL",
        here.len() + gone.len(),
        here.len()
    );
    if !legacy.is_empty() {
        text.push_str(&format!(", {} only through the legacy provider", list(&names(&legacy))));
    }
    if !gone.is_empty() {
        text.push_str(&format!("; missing: {}", list(&names(&gone))));
    }
    text.push('.');
    Some(Finding::new(text))
}

pub fn signatures(figures: &Figures<'_>, study: &Study) -> Option<Finding> {
    let rate = |case: &str| figures.named(case, "openssl", "");
    let (rsa, ecdsa) = (rate("sign.rsa-2048")?, rate("sign.ecdsa-256")?);
    let mut text = format!(
        "A server's certificate: one core makes {} ECDSA P-256 signatures and {} RSA-2048 signatures a \
         second, {} times",
        quantity(ecdsa, "1/s"),
        quantity(rsa, "1/s"),
        significant(ecdsa / rsa)
    );
    if let Some(long) = rate("sign.rsa-4096") {
        text.push_str(&format!("; RSA-4096 {}", quantity(long, "1/s")));
    }
    text.push('.');
    let theirs =
        study.sign(key("rsa", 2048)).map(|rate| format!("{rate:.0} RSA-2048 signatures a second."));
    Some(Finding { text, study: theirs })
}
