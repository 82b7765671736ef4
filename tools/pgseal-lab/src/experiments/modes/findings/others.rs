//! Findings about core cycles and about study 2's table.

use super::{beside, library, list};
use crate::exhibits::Finding;
use crate::experiments::modes::algorithm::Mode;
use crate::experiments::modes::figures::{At, Figures};
use crate::experiments::modes::published::{Study, key};
use crate::experiments::modes::table;
use crate::report::format::{quantity, significant};

pub fn cycles(figures: &Figures<'_>) -> Vec<Finding> {
    let one = |(mode, bits, arm): (Mode, u16, &str)| {
        let at = At::page(mode, bits, arm);
        let value = significant(figures.per_cycle(at)?);
        let title = at.algorithm.title();
        Some(Finding::new(format!(
            "{title} encrypts {value} bytes per core cycle ({}).",
            library(arm)
        )))
    };
    let all: Vec<Finding> = [
        (Mode::Gcm, 256, "aws-lc"),
        (Mode::Xts, 256, "aws-lc"),
        (Mode::Ctr, 256, "openssl"),
        (Mode::Ctr, 128, "openssl"),
    ]
    .into_iter()
    .filter_map(one)
    .collect();
    let theirs =
        "1.25 bytes per cycle for a prototype with AES instructions on a Haswell core (study 3).";
    beside(all, Some(theirs.to_owned()))
}

pub fn old_algorithms(figures: &Figures<'_>) -> Vec<Finding> {
    let case = |entry: &table::Entry| format!("speed.{}", entry.id());
    let asked: Vec<table::Entry> = table::ENTRIES
        .into_iter()
        .filter(|entry| figures.results.plan.case(&case(entry)).is_some())
        .collect();
    let (here, gone): (Vec<table::Entry>, Vec<table::Entry>) =
        asked.into_iter().partition(|entry| figures.named(&case(entry), "openssl", "").is_some());
    if here.is_empty() && gone.is_empty() {
        return Vec::new();
    }
    let names = |entries: &[table::Entry]| -> Vec<String> {
        entries.iter().map(|entry| entry.name.to_owned()).collect()
    };
    let legacy: Vec<table::Entry> = here
        .iter()
        .copied()
        .filter(|entry| figures.fact(&case(entry), "openssl", "provider") == Some("legacy"))
        .collect();
    let mut all = vec![Finding::new(format!(
        "This OpenSSL still has {} algorithms of the second study's table and its day.",
        here.len()
    ))];
    if !legacy.is_empty() {
        let names = list(&names(&legacy));
        all.push(Finding::new(format!("Only through its legacy provider: {names}.")));
    }
    if !gone.is_empty() {
        all.push(Finding::new(format!("It does not have {}.", list(&names(&gone)))));
    }
    all
}

pub fn signatures(figures: &Figures<'_>, study: &Study) -> Vec<Finding> {
    let rate = |case: &str| figures.named(case, "openssl", "");
    let mut all = Vec::new();
    if let (Some(rsa), Some(ecdsa)) = (rate("sign.rsa-2048"), rate("sign.ecdsa-256")) {
        all.push(Finding::new(format!(
            "One core signs {} with ECDSA P-256, {} times as often as with RSA-2048.",
            quantity(ecdsa, "1/s"),
            significant(ecdsa / rsa)
        )));
    }
    for (case, name) in [("sign.rsa-2048", "RSA-2048"), ("sign.rsa-4096", "RSA-4096")] {
        if let Some(rate) = rate(case) {
            let text = format!("One core signs {} with {name}.", quantity(rate, "1/s"));
            all.push(Finding::new(text));
        }
    }
    let theirs =
        study.sign(key("rsa", 2048)).map(|rate| format!("{rate:.0} RSA-2048 signatures a second."));
    beside(all, theirs)
}
