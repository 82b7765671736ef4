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
use crate::error::LabError;
use crate::report::Entry;
use crate::warning::Warning;

/// First version of PostgreSQL with the setting `io_method`.
const FIRST_WITH_IO_METHOD: u32 = 18;

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
    /// All lines for `postgresql.conf`.
    pub conf: Vec<String>,
    /// All commands.
    pub commands: Vec<String>,
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
    /// The experiment that decides it.
    fn experiment(self) -> &'static str {
        match self {
            Topic::Suite | Topic::SharedBuffers => "instance",
            Topic::TlsCiphers | Topic::Certificate | Topic::Groups => "tls",
            Topic::Columns => "columns",
        }
    }

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
    /// Measured, but on a machine too noisy to tell, or in one round: the default.
    Unmeasurable,
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
            Basis::Unmeasurable => "cannot be told from these figures; the default",
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
    let mut recommendations = vec![
        suite.recommendation,
        buffers::shared_buffers(&evidence, site, &suite.id),
        tls::ciphers(&evidence, site),
        tls::certificate(&evidence),
        tls::groups(&evidence, site),
        columns::columns(&evidence),
    ];
    for one in &mut recommendations {
        if let Some(why) = evidence.unfit(one.topic.experiment())
            && matches!(one.basis, Basis::NotMeasured | Basis::Estimated)
        {
            one.reasons.insert(0, Reason::note(why));
            if one.basis == Basis::NotMeasured {
                one.basis = Basis::Unmeasurable;
            }
        }
    }
    Ok(Advice {
        schema: SCHEMA,
        sources: entries.iter().map(source_of).collect(),
        cautions: cautions(entries, site),
        conf: conf(&recommendations, site),
        commands: commands(&recommendations),
        recommendations,
    })
}

/// The lines for `postgresql.conf`, those that a sealed server needs included.
fn conf(recommendations: &[Recommendation], site: &Site) -> Vec<String> {
    let pasted = recommendations.iter().flat_map(|one| &one.paste);
    let mut lines: Vec<String> = pasted
        .filter(|paste| paste.to == "postgresql.conf")
        .flat_map(|paste| paste.text.lines().map(str::to_owned))
        .collect();
    lines.push("full_page_writes = on".to_owned());
    lines.push("fsync = on".to_owned());
    if site.postgres_major.is_some_and(|major| major >= FIRST_WITH_IO_METHOD) {
        lines.push("io_method = worker".to_owned());
    }
    lines
}

/// The commands, in the order in which they are run.
fn commands(recommendations: &[Recommendation]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for paste in recommendations.iter().flat_map(|one| &one.paste) {
        let line = match paste.to {
            "shell" => paste.text.clone(),
            "psql" => format!("psql -c '{}'", paste.text.trim_end_matches(';')),
            _ => continue,
        };
        // One line for each command: the one that names the key.
        let line = line.split(" #").next().unwrap_or_default().trim_end().to_owned();
        let command = |line: &str| line.split(' ').take(3).collect::<Vec<_>>().join(" ");
        match all.iter_mut().find(|known| command(known) == command(&line)) {
            Some(known) if line.contains("--key") => *known = line,
            Some(_) => {}
            None => all.push(line),
        }
    }
    all.push("pgseal run -- pg_ctl -D DIR restart".to_owned());
    all.push("pgseal doctor DIR".to_owned());
    all
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
        all.extend(extrapolated(entry));
        let single = |warning: &&Warning| {
            !matches!(warning, Warning::NoisyMachine { .. } | Warning::Extrapolated { .. })
        };
        let warnings = results.warnings.iter().chain(&entry.analysis.warnings).filter(single);
        all.extend(folded(name, warnings));
    }
    all
}

/// Warnings in words; of many of one kind the first, and how many more there are.
fn folded<'a>(name: &str, warnings: impl Iterator<Item = &'a Warning>) -> Vec<String> {
    let mut kinds: Vec<(&str, String, usize)> = Vec::new();
    for warning in warnings {
        match kinds.iter_mut().find(|(kind, ..)| *kind == warning.kind()) {
            Some((.., more)) => *more += 1,
            None => kinds.push((warning.kind(), warning.text(), 0)),
        }
    }
    let words = |(_, text, more): (&str, String, usize)| match more {
        0 => format!("{name}: {text}"),
        more => format!("{name}: {text} And {more} more of this kind."),
    };
    kinds.into_iter().map(words).collect()
}

/// All extrapolated figures of a run in one sentence.
fn extrapolated(entry: &Entry) -> Option<String> {
    let all = entry.results.warnings.iter().chain(&entry.analysis.warnings);
    let mut places: Vec<String> = all
        .filter_map(|warning| match warning {
            Warning::Extrapolated { case, arm, .. } => Some(format!("{arm} in {case}")),
            _ => None,
        })
        .collect();
    places.sort();
    places.dedup();
    let first = places.first()?;
    let name = &entry.results.experiment;
    Some(match places.len() {
        1 => format!("{name}: {first} is extrapolated from a part."),
        many => {
            format!("{name}: {many} figures are extrapolated from a part: {}.", places.join(", "))
        }
    })
}

/// The noise of a run in one line.
fn noise(entry: &Entry) -> Option<String> {
    let noise = entry.analysis.noise().filter(|noise| noise.noisy > 0)?;
    Some(format!("{}: {}", entry.results.experiment, noise.line()))
}
