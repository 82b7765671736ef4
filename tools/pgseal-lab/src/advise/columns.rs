//! Recommends which columns to seal.

use super::evidence::{Evidence, arms_in, effect, mean, words};
use super::{Basis, Paste, Reason, Recommendation, Topic};
use crate::cost::{Cost, change};
use crate::experiments::modes::algorithm::Mode;
use crate::experiments::modes::figures::{At, Figures};
use crate::plan::Arm;
use crate::report::Entry;
use crate::report::format::significant;

/// Id of the arm with plain columns on a sealed server.
const SEALED_INSTANCE: &str = "sealed-instance";
/// Slowdown from which look-ups and joins over sealed keys are called lost.
const KEYS_LOST: f64 = 2.0;

/// The costs of an arm compared with plain columns.
struct Costs<'a> {
    arm: &'a Arm,
    queries: Vec<Cost>,
    load: Option<Cost>,
    size: Option<Cost>,
    keys: Vec<(String, Cost)>,
}

impl Costs<'_> {
    fn of<'a>(entry: &'a Entry, arm: &'a Arm) -> Option<Costs<'a>> {
        let plan = &entry.results.plan;
        let plain = plan.arms.first()?;
        let one = |id: &str| effect(entry, plan.case(id)?, &arm.id, &plain.id);
        let mut queries = Vec::new();
        let mut keys = Vec::new();
        for case in &plan.cases {
            let Some(found) = effect(entry, case, &arm.id, &plain.id) else { continue };
            if is_query(&case.id) {
                queries.push(found);
            } else if case.id == "join-keys" || case.id == "lookup-keys" {
                keys.push((case.title.clone(), found));
            }
        }
        let load = one("copy").or_else(|| one("insert"));
        let size = one("size");
        let any = !queries.is_empty() || load.is_some() || size.is_some();
        any.then_some(Costs { arm, queries, load, size, keys })
    }

    /// `time of queries +12.0 % (...), time to load 3.10 times, bytes on disk +60.0 %`.
    fn words(&self) -> String {
        let times = |name: &str, value: f64| format!("{name} {}", change(value));
        let mut parts = Vec::new();
        if let Some(slower) = mean(&self.queries) {
            parts.push(format!(
                "{} (geometric mean of {}, {} of them not distinguishable from plain)",
                times("time of queries", slower),
                self.queries.len(),
                self.queries.iter().filter(|effect| !effect.differs()).count()
            ));
        }
        parts.extend(self.load.map(|effect| times("time to load", effect.times)));
        parts.extend(self.size.map(|effect| times("bytes on disk", effect.times)));
        parts.join(", ")
    }

    fn slowdown(&self) -> f64 {
        mean(&self.queries).or(self.load.map(|effect| effect.times)).unwrap_or(f64::INFINITY)
    }
}

/// Whether a case is a TPC-H query: `q1`, `q22-keys`.
fn is_query(id: &str) -> bool {
    let number = id.strip_prefix('q').map(|rest| rest.trim_end_matches("-keys"));
    number.is_some_and(|number| number.parse::<u32>().is_ok())
}

/// Uses the columns experiment, else the cost of one cipher call.
pub fn columns(evidence: &Evidence<'_>) -> Recommendation {
    let general = "Seal by column only what must stay hidden from those who may log in to the database or \
                   read its dumps; against stolen disks, snapshots and backups the sealed instance is \
                   enough";
    if let Some(entry) = evidence.entry("columns")
        && let Some(found) = from_servers(entry, general)
    {
        return found;
    }
    let mut reasons = Vec::new();
    let mut basis = Basis::NotMeasured;
    if let Some(reason) = evidence.modes().and_then(|figures| value_cost(figures)) {
        reasons.push(reason);
        basis = Basis::Estimated;
    }
    reasons.push(Reason::note(
        "Run \"pgseal lab columns\" for load, size and queries of each way to do it.",
    ));
    let text = format!("{general}.");
    Recommendation { topic: Topic::Columns, basis, text, reasons, paste: Vec::new() }
}

fn from_servers(entry: &Entry, general: &str) -> Option<Recommendation> {
    let mut measured: Vec<&Arm> = Vec::new();
    for case in &entry.results.plan.cases {
        for arm in arms_in(entry, case) {
            if !measured.iter().any(|known| known.id == arm.id) {
                measured.push(arm);
            }
        }
    }
    let mut all: Vec<Costs<'_>> =
        measured.into_iter().filter_map(|arm| Costs::of(entry, arm)).collect();
    all.sort_by(|one, other| one.slowdown().total_cmp(&other.slowdown()));
    let sealed = all.iter().find(|costs| costs.arm.id == SEALED_INSTANCE);
    let by_column: Vec<&Costs<'_>> =
        all.iter().filter(|costs| costs.arm.id != SEALED_INSTANCE).collect();
    let best = by_column.first()?;
    let mut reasons = Vec::new();
    for costs in sealed.into_iter().chain(by_column.iter().copied()) {
        let source = format!("columns, arm {}", costs.arm.id);
        reasons.push(Reason::of(format!("{}: {}.", costs.arm.title, costs.words()), source));
    }
    let lost: Vec<&(String, Cost)> =
        best.keys.iter().filter(|(_, effect)| effect.times >= KEYS_LOST).collect();
    for (title, found) in &best.keys {
        reasons.push(Reason::of(
            format!("{title}, {}: {}.", best.arm.title, words(found)),
            format!("columns, arm {}", best.arm.id),
        ));
    }
    for missing in entry.results.missing.iter().filter(|missing| missing.case == "copy") {
        let arm = missing.arm.clone().unwrap_or_default();
        reasons.push(Reason::of(format!("{arm} was not measured: {}.", missing.why), "columns"));
    }
    let measured: Vec<String> =
        best.keys.iter().map(|(title, cost)| format!("{title} {}", words(cost))).collect();
    let measured = measured.join(", ");
    let keys = match (best.keys.is_empty(), lost.is_empty()) {
        (true, _) => "; look-ups over sealed keys were not measured".to_owned(),
        (false, true) => {
            format!(
                "; primary and foreign keys may be sealed: look-ups over sealed keys: {measured}"
            )
        }
        (false, false) => format!(
            "; leave primary and foreign keys and what you filter or sort by plain: look-ups over sealed \
             keys: {measured}"
        ),
    };
    let differs = best.queries.iter().chain(&best.load).any(Cost::differs);
    let basis = if differs { Basis::Measured } else { Basis::Undecided };
    let text = format!(
        "{general}. The cheapest way measured is {}: {}{keys}.",
        best.arm.title,
        best.words()
    );
    let extension = if best.arm.title.contains("pgcrypto") { "pgcrypto" } else { "pgseal" };
    let paste = vec![Paste { to: "psql", text: format!("CREATE EXTENSION {extension};") }];
    Some(Recommendation { topic: Topic::Columns, basis, text, reasons, paste })
}

/// The least cost of one value, from the bare ciphers.
fn value_cost(figures: &Figures<'_>) -> Option<Reason> {
    let smallest = figures.sizes.iter().copied().min()?;
    let nanos = |mode, arm| {
        let rate = figures.rate(At::page(mode, 256, arm).bytes(smallest))?;
        Some(smallest as f64 / rate * 1e9)
    };
    let each = nanos(Mode::Cbc, "openssl-setup")?;
    let kept = nanos(Mode::GcmSiv, "aws-lc").or_else(|| nanos(Mode::Gcm, "aws-lc"))?;
    Some(Reason::of(
        format!(
            "One value of {smallest} bytes costs {} ns with a context set up for each call, as pgcrypto does \
             it, so a scan of a million rows {} s a column at least; with a kept key {} ns.",
            significant(each),
            significant(each * 1e-3),
            significant(kept)
        ),
        "modes aes-256-cbc, arm openssl-setup; aes-256-gcm-siv, arm aws-lc",
    ))
}
