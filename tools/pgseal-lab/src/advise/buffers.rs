//! Recommends `shared_buffers` for the size of the data.

use super::evidence::{Evidence, effect, words};
use super::{Basis, Paste, Reason, Recommendation, Site, Topic};
use crate::cost::Cost;
use crate::plan::Case;
use crate::report::Entry;

const MB: f64 = 1048576.0;
/// Share of the memory that PostgreSQL's manual (19.4.1) calls a reasonable starting value.
const START_SHARE: f64 = 0.25;
/// Share of the memory above which PostgreSQL's manual (19.4.1) expects no further gain.
const MOST_SHARE: f64 = 0.40;

/// One size of `shared_buffers` in the sweep.
struct Size {
    case: String,
    buffers_bytes: f64,
    data_bytes: f64,
    effect: Cost,
}

impl Size {
    fn data_to_buffers(&self) -> f64 {
        self.data_bytes / self.buffers_bytes
    }
}

/// Uses the sweep over `shared_buffers` with the recommended suite.
pub fn shared_buffers(evidence: &Evidence<'_>, site: &Site, suite: &str) -> Recommendation {
    let start = site.memory_bytes as f64 * START_SHARE;
    let Some((suite, sizes)) = evidence.entry("instance").and_then(|entry| sweep(entry, suite))
    else {
        let note = "Sealed or plain, a page that stays in shared_buffers is deciphered once. Run \"pgseal \
                    lab instance\" to see from which size on sealing costs nothing.";
        return recommend(
            Basis::NotMeasured,
            format!("Give shared_buffers a quarter of the memory: {}.", megabytes(start)),
            vec![Reason::note(note)],
            start,
        );
    };
    let mut reasons: Vec<Reason> = sizes
        .iter()
        .map(|size| {
            Reason::of(
                format!(
                    "{} of shared_buffers, data {:.1} times as large: {}.",
                    megabytes(size.buffers_bytes),
                    size.data_to_buffers(),
                    words(&size.effect)
                ),
                format!("instance {}, arm {suite}", size.case),
            )
        })
        .collect();
    // The smallest size at which, as at all larger sizes, there is no difference.
    let from = sizes.iter().rev().take_while(|size| !size.effect.differs()).last();
    let Some(free) = from else {
        return recommend(
            Basis::Measured,
            format!(
                "Sealing costs something at every size measured, down to {} with the largest; give \
                 shared_buffers what the memory allows: {}.",
                sizes.last().map(|size| words(&size.effect)).unwrap_or_default(),
                megabytes(start)
            ),
            reasons,
            start,
        );
    };
    if sizes.iter().all(|size| !size.effect.differs()) {
        return recommend(
            Basis::Undecided,
            format!(
                "No size measured shows a cost beyond the noise, so the figures do not ask for more \
                 than usual: {}.",
                megabytes(start)
            ),
            reasons,
            start,
        );
    }
    let ratio = free.data_to_buffers();
    let most = site.memory_bytes as f64 * MOST_SHARE;
    let (wanted, text) = match site.data_bytes {
        Some(data) => {
            let wanted = data as f64 / ratio;
            let fits = most <= 0.0 || wanted <= most;
            let value = if fits { wanted } else { most };
            let why = if fits {
                format!("for {} of data in use", megabytes(data as f64))
            } else {
                format!(
                    "two fifths of the memory; {} would be needed for {} of data in use, so sealing will \
                     cost something",
                    megabytes(wanted),
                    megabytes(data as f64)
                )
            };
            (value, format!("Give shared_buffers {}: {why}.", megabytes(value)))
        }
        None => (
            start,
            format!(
                "Give shared_buffers {}, a quarter of the memory: data in use up to {} then cost nothing \
                 measurable to seal. Say how much there is with --data-size.",
                megabytes(start),
                megabytes(start * ratio)
            ),
        ),
    };
    reasons.push(Reason::note(format!(
        "From {} on, with data {ratio:.1} times as large, there is no difference between sealed and plain.",
        megabytes(free.buffers_bytes)
    )));
    recommend(Basis::Measured, text, reasons, wanted)
}

fn recommend(basis: Basis, text: String, reasons: Vec<Reason>, bytes: f64) -> Recommendation {
    let mut paste = Vec::new();
    if bytes >= MB {
        paste.push(Paste::conf(format!("shared_buffers = '{:.0}MB'", (bytes / MB).ceil())));
    }
    Recommendation { topic: Topic::SharedBuffers, basis, text, reasons, paste }
}

fn megabytes(bytes: f64) -> String {
    if bytes >= 10.0 * 1024.0 * MB {
        format!("{:.0} GB", bytes / MB / 1024.0)
    } else {
        format!("{:.0} MB", bytes / MB)
    }
}

/// The sizes at which the suite was measured, in ascending order; the sizes of another suite if
/// this one was measured at fewer than two sizes.
fn sweep<'a>(entry: &'a Entry, suite: &'a str) -> Option<(&'a str, Vec<Size>)> {
    let of = |suite: &str| -> Vec<Size> {
        let cases = entry.results.plan.cases.iter().filter(|case| case.id.starts_with("select-"));
        let mut sizes: Vec<Size> = cases.filter_map(|case| size(entry, case, suite)).collect();
        sizes.sort_by(|one, other| one.buffers_bytes.total_cmp(&other.buffers_bytes));
        sizes
    };
    let others = entry.results.plan.arms.iter().filter(|arm| arm.attributes.contains_key("suite"));
    std::iter::once(suite)
        .chain(others.map(|arm| arm.id.as_str()))
        .map(|suite| (suite, of(suite)))
        .find(|(_, sizes)| sizes.len() > 1)
}

fn size(entry: &Entry, case: &Case, suite: &str) -> Option<Size> {
    let plain = entry.results.plan.arms.first()?;
    let figures = &entry.analysis.arm(&case.id, &plain.id)?.extra;
    Some(Size {
        case: case.id.clone(),
        buffers_bytes: figures.get("shared_buffers_bytes").copied()?,
        data_bytes: figures.get("data_bytes").copied()?,
        effect: effect(entry, case, suite, &plain.id)?,
    })
}
