//! Recommends suite and key length of the instance.

use super::evidence::{Evidence, effect, mean, time, words};
use super::{Basis, Paste, Reason, Recommendation, Topic};
use crate::cost::Cost;
use crate::experiments::modes::algorithm::Mode;
use crate::experiments::modes::figures::{At, Figures};
use crate::experiments::modes::plan::PAGE_BYTES;
use crate::plan::Arm;
use crate::report::Entry;

/// pgseal's own default: authenticated, long keys.
pub const DEFAULT: &str = "aes-256-gcm";
/// Share of the time that an unauthenticated suite must save over all cases to be recommended.
const WORTH_NO_TAGS: f64 = 0.20;
/// Share of the time that 128-bit keys must save over all cases to be recommended.
const WORTH_SHORT_KEYS: f64 = 0.10;
/// Microseconds per page with the bare cipher above which the CPU seems to lack AES instructions.
const SLOW_PAGE_US: f64 = 5.0;

/// The recommendation and the suite it names.
pub struct Chosen {
    /// Id of the suite, for example `aes-256-gcm`.
    pub id: String,
    /// The recommendation.
    pub recommendation: Recommendation,
}

/// Uses figures of whole servers if there are any, else those of the bare ciphers.
pub fn suite(evidence: &Evidence<'_>) -> Chosen {
    if let Some(entry) = evidence.entry("instance")
        && let Some(chosen) = from_servers(entry)
    {
        return chosen;
    }
    if let Some(figures) = evidence.modes()
        && let Some(chosen) = from_ciphers(figures)
    {
        return chosen;
    }
    let note = "Run \"pgseal lab instance\": only it says what a suite costs your queries.";
    chosen(DEFAULT, Basis::NotMeasured, "the default".to_owned(), vec![Reason::note(note)])
}

fn chosen(id: &str, basis: Basis, why: String, mut reasons: Vec<Reason>) -> Chosen {
    reasons.push(Reason::note(
        "GCM authenticates each page; XTS and CTR do not: a changed page is then garbage instead of an \
         error. The suite is chosen once, when the cluster is made.",
    ));
    Chosen {
        id: id.to_owned(),
        recommendation: Recommendation {
            topic: Topic::Suite,
            basis,
            text: format!("Seal the instance with {id}: {why}."),
            reasons,
            paste: vec![Paste::shell(format!(
                "pgseal initdb -k --suite {id} -K file:/etc/pgseal/main.key -D DIR"
            ))],
        },
    }
}

/// Effects of one arm against another, each with its case, for all cases that measured both arms.
fn against(entry: &Entry, arm: &str, other: &str) -> Vec<(String, Cost)> {
    let cases = entry.results.plan.cases.iter();
    cases
        .filter_map(|case| Some((case.id.clone(), effect(entry, case, arm, other)?)))
        .filter(|(_, effect)| effect.times.is_finite())
        .collect()
}

fn effects(pairs: &[(String, Cost)]) -> Vec<Cost> {
    pairs.iter().map(|(_, effect)| *effect).collect()
}

fn from_servers(entry: &Entry) -> Option<Chosen> {
    let plain = entry.results.plan.arms.first()?.id.clone();
    let suites: Vec<&Arm> = entry
        .results
        .plan
        .arms
        .iter()
        .filter(|arm| arm.attributes.contains_key("suite"))
        .filter(|arm| !against(entry, &arm.id, &plain).is_empty())
        .collect();
    let start = suites.iter().find(|arm| arm.id == DEFAULT).or(suites.first())?;
    let mut reasons = vec![cost_of(entry, &start.id, &plain)?];
    let mut best = start.id.clone();
    let mut basis = Basis::Undecided;
    let mut why = "authenticated, with the longest key".to_owned();
    for other in suites.iter().filter(|other| other.id != start.id) {
        let pairs = against(entry, &start.id, &other.id);
        let Some(slower) = mean(&effects(&pairs)) else { continue };
        let beyond = pairs.iter().filter(|(_, effect)| effect.differs()).count();
        reasons.push(Reason::of(
            format!(
                "Against {} {} takes {} in the geometric mean of {} cases; in {beyond} of them the \
                 difference is more than noise.",
                other.id,
                start.id,
                time(slower),
                pairs.len()
            ),
            format!("instance, arms {} and {}", start.id, other.id),
        ));
        if beyond > 0 && basis == Basis::Undecided {
            basis = Basis::Measured;
        }
        let least =
            if shorter_keys(&start.id, &other.id) { WORTH_SHORT_KEYS } else { WORTH_NO_TAGS };
        let known = against(entry, &best, &other.id);
        let better = mean(&effects(&known)).is_some_and(|slower| slower > 1.0);
        if beyond * 2 > pairs.len() && slower > 1.0 + least && better {
            best.clone_from(&other.id);
            why = format!(
                "{} would take {}, more than the {:.0} % that are the limit for giving up {}",
                start.id,
                time(slower),
                least * 100.0,
                if shorter_keys(&start.id, &other.id) { "256-bit keys" } else { "authentication" }
            );
        }
    }
    if best != start.id {
        reasons.extend(cost_of(entry, &best, &plain));
    }
    if suites.len() == 1 {
        basis = Basis::Undecided;
        reasons.push(Reason::note("No other suite was measured; profile full has more."));
    }
    Some(chosen(&best, basis, why, reasons))
}

/// Whether `short` is the mode of `long` with a 128-bit key.
fn shorter_keys(long: &str, short: &str) -> bool {
    long.replace("256", "128") == short
}

fn cost_of(entry: &Entry, suite: &str, plain: &str) -> Option<Reason> {
    let pairs = against(entry, suite, plain);
    let (worst_case, worst) =
        pairs.iter().max_by(|(_, one), (_, other)| one.times.total_cmp(&other.times))?;
    let free = pairs.iter().filter(|(_, effect)| !effect.differs()).count();
    Some(Reason::of(
        format!(
            "Against a plain server {suite} takes {} in the geometric mean of {} cases, in {free} of them \
             not distinguishable from plain; most in {worst_case}: {}.",
            time(mean(&effects(&pairs))?),
            pairs.len(),
            words(worst)
        ),
        format!("instance, arms {suite} and {plain}"),
    ))
}

fn from_ciphers(figures: &Figures<'_>) -> Option<Chosen> {
    let micros = |mode, bits| {
        let page = At::page(mode, bits, "aws-lc");
        let both = [page, page.decrypt()].map(|at| figures.rate(at));
        let [seal, open] = both.map(|rate| rate.map(|rate| PAGE_BYTES as f64 / rate * 1e6));
        Some((seal?, open?))
    };
    let (seal, open) = micros(Mode::Gcm, 256)?;
    let mut reasons = vec![Reason::of(
        format!(
            "AES-256-GCM seals a page in {seal:.2} us and opens it in {open:.2} us of one core: what each \
             page written or read costs at least."
        ),
        "modes aes-256-gcm, arm aws-lc",
    )];
    for (name, mode, bits) in [
        ("AES-128-GCM", Mode::Gcm, 128),
        ("AES-256-XTS", Mode::Xts, 256),
        ("AES-256-CTR", Mode::Ctr, 256),
        ("AES-128-CTR", Mode::Ctr, 128),
    ] {
        let Some((other_seal, other_open)) = micros(mode, bits) else { continue };
        let at = At::page(mode, bits, "aws-lc").decrypt();
        let gcm = At::page(Mode::Gcm, 256, "aws-lc").decrypt();
        let verdict =
            figures.difference(at, gcm).map(|found| words(&found.cost)).unwrap_or_default();
        reasons.push(Reason::of(
            format!(
                "{name}: {other_seal:.2} us and {other_open:.2} us; opening, against AES-256-GCM: {verdict}."
            ),
            format!("modes aes-{bits}-{}, arm aws-lc", mode.id()),
        ));
    }
    if seal.max(open) > SLOW_PAGE_US {
        reasons.push(Reason::note(
            "That is slow: this CPU lacks AES instructions, or they are hidden from this virtual machine. \
             Ask for a CPU type that passes them on.",
        ));
    }
    reasons.push(Reason::note(
        "What share that is of your queries only \"pgseal lab instance\" says.",
    ));
    let why = "authenticated, with the longest key; the bare ciphers give no reason against it";
    Some(chosen(DEFAULT, Basis::Estimated, why.to_owned(), reasons))
}
