//! `pgseal advise`: recommends settings from measured figures.
//!
//! Each recommendation names its figures and the lines to paste. If figures were not measured, or
//! differ by no more than the noise, the recommendation says so and gives pgseal's default.

mod buffers;
mod columns;
mod evidence;
mod instance;
mod text;
mod tls;

use serde::Serialize;

pub use self::evidence::Evidence;
pub use self::text::text_of;
use crate::analysis::NOISY_PERCENT;
use crate::error::LabError;
use crate::report::Entry;
use crate::warning::Warning;

/// Version of the JSON schema.
pub const SCHEMA: &str = "pgseal-advice/1";

/// All recommendations.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The results that the recommendations rest on.
    pub sources: Vec<Source>,
    /// Reasons to trust the recommendations less.
    pub cautions: Vec<String>,
    /// One for each topic, even if nothing was measured for the topic.
    pub recommendations: Vec<Recommendation>,
}

/// The results of one experiment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Source {
    /// Name of the experiment.
    pub experiment: String,
    /// Name of the profile.
    pub profile: String,
    /// Number of rounds measured.
    pub rounds: u32,
    /// Start, in seconds since 1970.
    pub started_unix_s: u64,
    /// The CPU.
    pub cpu_model: String,
    /// Hash of the plan.
    pub plan_hash: String,
}

/// The recommendation for one topic.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Recommendation {
    /// The topic.
    pub topic: Topic,
    /// How well the figures support the recommendation.
    pub basis: Basis,
    /// The recommendation in words.
    pub text: String,
    /// The figures for and against the recommendation.
    pub reasons: Vec<Reason>,
    /// Lines to paste.
    pub paste: Vec<Paste>,
}

/// What a recommendation is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Topic {
    /// Suite and key length of the instance.
    Suite,
    /// `shared_buffers` against the size of the data.
    SharedBuffers,
    /// TLS versions and ciphers.
    TlsCiphers,
    /// The server's certificate.
    Certificate,
    /// Key-exchange groups.
    Groups,
    /// Which columns to seal.
    Columns,
}

impl Topic {
    /// Heading.
    pub fn title(self) -> &'static str {
        match self {
            Topic::Suite => "Suite and key length of the instance",
            Topic::SharedBuffers => "shared_buffers",
            Topic::TlsCiphers => "TLS ciphers",
            Topic::Certificate => "Server certificate",
            Topic::Groups => "Key-exchange groups",
            Topic::Columns => "Columns",
        }
    }
}

/// What a recommendation rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// The figures decide.
    Measured,
    /// The figures are of the bare ciphers; the ciphers' share of a server's work was not measured.
    Estimated,
    /// The measured choices differ by no more than noise, or by too little to matter: the default.
    Undecided,
    /// Not measured: the default.
    NotMeasured,
}

impl Basis {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Basis::Measured => "measured",
            Basis::Estimated => "estimated from the bare ciphers",
            Basis::Undecided => "the figures do not decide; the default",
            Basis::NotMeasured => "not measured; the default",
        }
    }
}

/// A figure in words, and its source; or a note.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// The sentence, including the number.
    pub text: String,
    /// `EXPERIMENT CASE, ...`; empty for a note.
    pub source: String,
}

impl Reason {
    /// A figure.
    pub fn of(text: impl Into<String>, source: impl Into<String>) -> Reason {
        Reason { text: text.into(), source: source.into() }
    }

    /// A note: a reason without a figure.
    pub fn note(text: impl Into<String>) -> Reason {
        Reason::of(text, "")
    }
}

/// Lines to paste.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Paste {
    /// Where to paste the lines: `shell`, `postgresql.conf`, `psql`.
    pub to: &'static str,
    /// The lines.
    pub text: String,
}

impl Paste {
    /// Lines for a shell.
    pub fn shell(text: impl Into<String>) -> Paste {
        Paste { to: "shell", text: text.into() }
    }

    /// Lines for `postgresql.conf`.
    pub fn conf(text: impl Into<String>) -> Paste {
        Paste { to: "postgresql.conf", text: text.into() }
    }
}

/// The machine that the recommendations are for.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Site {
    /// Model of the CPU.
    pub cpu_model: String,
    /// Size of the memory in bytes.
    pub memory_bytes: u64,
    /// Whether the CPU has AES instructions.
    pub aes: bool,
    /// Major version of the PostgreSQL found; none: no PostgreSQL.
    pub postgres_major: Option<u32>,
    /// Whether that PostgreSQL's OpenSSL has X25519MLKEM768.
    pub ml_kem: bool,
    /// Size of the server's data in bytes, if known.
    pub data_bytes: Option<u64>,
}

/// Recommends settings from the results of any number of experiments.
///
/// # Errors
///
/// [`LabError::Plan`] for results whose plan their experiment does not understand.
pub fn advise(entries: &[Entry], site: &Site) -> Result<Advice, LabError> {
    let evidence = Evidence::of(entries)?;
    let suite = instance::suite(&evidence);
    let recommendations = vec![
        suite.recommendation,
        buffers::shared_buffers(&evidence, site, &suite.id),
        tls::ciphers(&evidence, site),
        tls::certificate(&evidence),
        tls::groups(&evidence, site),
        columns::columns(&evidence),
    ];
    Ok(Advice {
        schema: SCHEMA,
        sources: entries.iter().map(source_of).collect(),
        cautions: cautions(entries, site),
        recommendations,
    })
}

fn source_of(entry: &Entry) -> Source {
    let results = &entry.results;
    Source {
        experiment: results.experiment.clone(),
        profile: results.plan.profile.clone(),
        rounds: results.rounds_done(),
        started_unix_s: results.started_unix_s,
        cpu_model: results.environment.cpu_model.clone(),
        plan_hash: results.plan_hash.clone(),
    }
}

fn cautions(entries: &[Entry], site: &Site) -> Vec<String> {
    let mut all = Vec::new();
    for entry in entries {
        let (name, results) = (&entry.results.experiment, &entry.results);
        let model = &results.environment.cpu_model;
        if !site.cpu_model.is_empty() && *model != site.cpu_model {
            all.push(format!(
                "{name} was measured on another CPU ({model}; this one: {}): measure again here.",
                site.cpu_model
            ));
        }
        // A run that its time limit ended need not be resumed.
        if !results.finished && results.stopped_after().is_none() {
            all.push(format!("{name} is not finished: go on with --resume."));
        }
        if results.plan.profile == "tiny" {
            all.push(format!("{name} was run in the profile tiny, which is no measurement."));
        }
        all.extend(noise(entry));
        let plain = |warning: &&Warning| !matches!(warning, Warning::NoisyMachine { .. });
        let warnings = results.warnings.iter().chain(&entry.analysis.warnings).filter(plain);
        all.extend(warnings.map(|warning| format!("{name}: {}", warning.text())));
    }
    all
}

/// All noisy cases of a run in one sentence.
fn noise(entry: &Entry) -> Option<String> {
    let noisy = entry.analysis.warnings.iter().filter_map(|warning| match warning {
        Warning::NoisyMachine { case, floor_percent, .. } => Some((case, *floor_percent)),
        _ => None,
    });
    let noisy: Vec<(&String, f64)> = noisy.collect();
    let (case, worst) = noisy.iter().max_by(|(_, one), (_, other)| one.total_cmp(other))?;
    Some(format!(
        "{}: noisy machine: in {} of {} cases the baseline measured twice spreads over more than \
         {NOISY_PERCENT:.0} %, most in {case}: {worst:.0} %. Differences within that are called none; \
         measure again while nothing else runs.",
        entry.results.experiment,
        noisy.len(),
        entry.analysis.cases.len()
    ))
}
