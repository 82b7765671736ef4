//! `pgseal advise`: what the measured figures say about how to set things up.
//!
//! Each recommendation names the figures it rests on and what to paste. Where the figures do not
//! decide, because they were not taken or differ by no more than noise, it says so; the
//! recommendation then is pgseal's default, and is called that.

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

/// Version of the JSON.
pub const SCHEMA: &str = "pgseal-advice/1";

/// All recommendations.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// What it rests on.
    pub sources: Vec<Source>,
    /// What is to be known before one believes any of it.
    pub cautions: Vec<String>,
    /// One for each topic, also where nothing was measured.
    pub recommendations: Vec<Recommendation>,
}

/// Results that were read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Source {
    /// Name of the experiment.
    pub experiment: String,
    /// Name of its profile.
    pub profile: String,
    /// Rounds.
    pub rounds: u32,
    /// Start, in seconds since 1970.
    pub started_unix_s: u64,
    /// The CPU.
    pub cpu_model: String,
    /// Hash of its plan.
    pub plan_hash: String,
}

/// What is recommended for one topic.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Recommendation {
    /// What it is about.
    pub topic: Topic,
    /// How sure.
    pub basis: Basis,
    /// The recommendation.
    pub text: String,
    /// The figures it rests on, and what speaks against it.
    pub reasons: Vec<Reason>,
    /// What to paste.
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
    /// What to seal by column and what not.
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
    /// The figures are of the bare ciphers; what share they have of a server's work was not
    /// measured.
    Estimated,
    /// It was measured, and the choices differ by no more than noise, or by too little to matter: the
    /// default stands.
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

/// A figure, in words, and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// With the number in it.
    pub text: String,
    /// `EXPERIMENT CASE, ...`; empty for what is no figure.
    pub source: String,
}

impl Reason {
    /// A figure.
    pub fn of(text: impl Into<String>, source: impl Into<String>) -> Reason {
        Reason { text: text.into(), source: source.into() }
    }

    /// Something to know that is no figure.
    pub fn note(text: impl Into<String>) -> Reason {
        Reason::of(text, "")
    }
}

/// Lines to paste.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Paste {
    /// `shell`, `postgresql.conf`, `psql`.
    pub to: &'static str,
    /// The lines.
    pub text: String,
}

impl Paste {
    /// For a shell.
    pub fn shell(text: impl Into<String>) -> Paste {
        Paste { to: "shell", text: text.into() }
    }

    /// For `postgresql.conf`.
    pub fn conf(text: impl Into<String>) -> Paste {
        Paste { to: "postgresql.conf", text: text.into() }
    }
}

/// The machine that the advice is for.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Site {
    /// Model of its CPU.
    pub cpu_model: String,
    /// Bytes of its memory.
    pub memory_bytes: u64,
    /// Whether its CPU has AES instructions.
    pub aes: bool,
    /// Major version of its PostgreSQL, if there is one.
    pub postgres_major: Option<u32>,
    /// Whether that one's OpenSSL has X25519MLKEM768.
    pub ml_kem: bool,
    /// Bytes of the data that the server is for, if known.
    pub data_bytes: Option<u64>,
}

/// What the results of any experiments say.
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
        // A run that was given so much time is not to go on.
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
