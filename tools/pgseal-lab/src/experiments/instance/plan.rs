//! Turns a profile into arms and cases.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::work::{Cache, Spec, Work};
use crate::environment::Environment;
use crate::error::LabError;
use crate::plan::{Arm, Better, Case, Plan, value_of};
use crate::profile::Profile;

/// Id of the plain arm.
pub const PLAIN: &str = "plain";
/// Id of the second measurement of the plain arm.
pub const AGAIN: &str = "plain-again";
/// Id of the arm on a gocryptfs mount.
pub const GOCRYPTFS: &str = "gocryptfs";
/// Behind the id of an arm: the same without data checksums.
const WITHOUT_CHECKSUMS: &str = "-without-checksums";
/// Id of a plain arm without data checksums.
pub const PLAIN_WITHOUT_CHECKSUMS: &str = "plain-without-checksums";
/// Prefix of the ids of the sweep's cases.
pub const SELECT: &str = "select-";

/// Share of the memory that the shared_buffers of all arms may use together.
const MEMORY_SHARE: f64 = 0.6;
/// From this number of rounds on, a profile is for measurements and not only a smoke test.
const LEAST_ROUNDS: u32 = 3;
const MB: u64 = 1 << 20;

/// The parameters of a profile.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sizes {
    /// `pgbench -s` of the data; 10 is 1 million rows, about 150 MB.
    pub scale: u32,
    /// `pgbench -s` of the case `init`.
    pub init_scale: u32,
    /// `pgbench -c`.
    pub clients: u32,
    /// `pgbench -T`; 0: use `transactions` instead.
    pub seconds: u32,
    /// `pgbench -t`, where `seconds` is 0.
    #[serde(default)]
    pub transactions: u32,
    /// `shared_buffers` of the sweep, in MB.
    pub buffers_mb: Vec<u64>,
    /// Suites that take every case.
    pub suites: Vec<String>,
    /// Suites that take only the cases in `more_suites_in`.
    #[serde(default)]
    pub more_suites: Vec<String>,
    /// Ids of the cases that `more_suites` take.
    #[serde(default)]
    pub more_suites_in: Vec<String>,
    /// Whether to measure a plain server on gocryptfs, too.
    pub gocryptfs: bool,
    /// Cases besides the sweep.
    pub cases: Vec<String>,
    /// Memory limit of server and OS cache together in the case `beyond-memory`, in MB.
    pub memory_limit_mb: u64,
}

/// The plan of a profile on this machine.
pub fn plan(profile: &Profile, machine: &Environment) -> Result<Plan, LabError> {
    let sizes: Sizes = profile.parameters()?;
    let suites = sizes.suites.iter().chain(&sizes.more_suites);
    let arms = arms(suites, sizes.gocryptfs);
    let mut cases = Vec::new();
    for mb in &sizes.buffers_mb {
        cases.push(sweep(&sizes, *mb)?);
    }
    for id in &sizes.cases {
        let case = other(&sizes, id)?.ok_or_else(|| {
            let known = OTHERS.join(", ");
            LabError::Usage(format!("profile {}: no case '{id}'; there are: {known}", profile.name))
        })?;
        cases.push(case);
    }
    for case in &mut cases {
        // These cases are short, so they get more rounds.
        if case.id.starts_with("scan-") && profile.rounds >= LEAST_ROUNDS {
            case.rounds = Some(profile.rounds * 2);
        }
        let more = sizes.more_suites_in.contains(&case.id);
        let limited = spec_of(case)?.memory_limit_bytes.is_some();
        let takes = |arm: &&Arm| {
            (more || !sizes.more_suites.contains(&arm.id)) && !(limited && arm.id == GOCRYPTFS)
        };
        case.arms = arms.iter().filter(takes).map(|arm| arm.id.clone()).collect();
    }
    if let Some(lost) = sizes.more_suites_in.iter().find(|id| cases.iter().all(|c| c.id != **id)) {
        let text = format!("profile {}: more_suites_in: there is no case '{lost}'", profile.name);
        return Err(LabError::Usage(text));
    }
    fits(&cases, machine)?;
    let parameters = profile.parameters.clone();
    Ok(Plan {
        experiment: super::NAME.to_owned(),
        profile: profile.name.clone(),
        arms,
        cases,
        rounds: profile.rounds,
        warmups: profile.warmups,
        seed: profile.seed,
        parameters,
    })
}

/// Reads the parameters of a case.
///
/// # Errors
///
/// [`LabError::Plan`] for a case of another experiment.
pub fn spec_of(case: &Case) -> Result<Spec, LabError> {
    case.required("spec")
}

/// The plain arm, its second measurement, one arm for each suite, and optionally the plain arm on
/// gocryptfs. With `-without-checksums` behind its name, a suite, or `plain`, has no data
/// checksums.
pub fn arms<'a>(suites: impl Iterator<Item = &'a String>, gocryptfs: bool) -> Vec<Arm> {
    let arm = |id: &str, title: &str, attribute: Option<(&str, &str)>| {
        let has_checksums = !id.ends_with(WITHOUT_CHECKSUMS);
        let text = attribute.map(|(name, value)| (name.to_owned(), Value::from(value)));
        let checksums = (!has_checksums).then(|| ("data_checksums".to_owned(), false.into()));
        Arm {
            id: id.to_owned(),
            title: format!("{title}{}", if has_checksums { "" } else { ", no checksums" }),
            again: id == AGAIN,
            attributes: text.into_iter().chain(checksums).collect(),
        }
    };
    let mut arms = vec![arm(PLAIN, "plain", None), arm(AGAIN, "plain, a second cluster", None)];
    for id in suites {
        arms.push(match id.strip_suffix(WITHOUT_CHECKSUMS).unwrap_or(id) {
            PLAIN => arm(id, "plain", None),
            suite => arm(id, &format!("sealed, {suite}"), Some(("suite", suite))),
        });
    }
    if gocryptfs {
        let title = "plain on gocryptfs (FUSE)";
        arms.push(arm(GOCRYPTFS, title, Some(("file_system", GOCRYPTFS))));
    }
    arms
}

/// Checks that the shared_buffers of all servers of a case fit into memory together; otherwise the
/// machine would swap.
fn fits(cases: &[Case], machine: &Environment) -> Result<(), LabError> {
    for case in cases {
        let buffers = spec_of(case)?.shared_buffers_bytes;
        let all = buffers * case.arms.len() as u64;
        if machine.memory_bytes > 0 && all as f64 > machine.memory_bytes as f64 * MEMORY_SHARE {
            return Err(LabError::Usage(format!(
                "{}: {} servers with {} MB of shared_buffers each do not fit into {} MB of memory; \
                 lower buffers_mb or leave out suites (--set, or a profile of your own)",
                case.id,
                case.arms.len(),
                buffers / MB,
                machine.memory_bytes / MB
            )));
        }
    }
    Ok(())
}

fn sweep(sizes: &Sizes, mb: u64) -> Result<Case, LabError> {
    let mut arguments = vec!["-S".to_owned()];
    arguments.extend(load(sizes));
    Draft {
        title: format!("pgbench -S, {} clients, shared_buffers {mb} MB", sizes.clients),
        work: Work::Pgbench { arguments, script: None },
        buffers_mb: mb,
        // As in the study.
        settings: vec!["synchronous_commit=off"],
        cache: Cache::Warm,
        estimate_s: run_s(sizes),
        ..Draft::default()
    }
    .case(&format!("{SELECT}{mb}mb"))
}

/// pgbench's options for clients and duration.
fn load(sizes: &Sizes) -> Vec<String> {
    let length = match sizes.seconds {
        0 => format!("--transactions={}", sizes.transactions.max(1)),
        seconds => format!("--time={seconds}"),
    };
    vec![format!("--client={}", sizes.clients), "--jobs=1".to_owned(), length]
}

fn run_s(sizes: &Sizes) -> f64 {
    f64::from(sizes.seconds) + 0.3
}

/// The ids of the cases outside the sweep.
pub const OTHERS: [&str; 12] = [
    "scan-warm",
    "scan-cold",
    "churn",
    "beyond-memory",
    "index",
    "vacuum-full",
    "tpcb",
    "tpcb-async",
    "wal-commits",
    "wal-commits-async",
    "wal-full-pages",
    "init",
];

#[derive(Debug)]
struct Draft {
    title: String,
    work: Work,
    buffers_mb: u64,
    settings: Vec<&'static str>,
    cache: Cache,
    changes_data: bool,
    check: Option<String>,
    memory_limit_bytes: Option<u64>,
    estimate_s: f64,
}

impl Default for Draft {
    fn default() -> Self {
        Self {
            title: String::new(),
            work: Work::Init { scale: 1 },
            buffers_mb: 128,
            settings: Vec::new(),
            cache: Cache::Any,
            changes_data: false,
            check: None,
            memory_limit_bytes: None,
            estimate_s: 1.0,
        }
    }
}

impl Draft {
    fn case(self, id: &str) -> Result<Case, LabError> {
        let rate = matches!(self.work, Work::Pgbench { .. });
        let mut settings = vec![format!("shared_buffers={}MB", self.buffers_mb)];
        settings.extend(self.settings.into_iter().map(str::to_owned));
        let spec = Spec {
            settings,
            shared_buffers_bytes: self.buffers_mb * MB,
            work: self.work,
            cache: self.cache,
            changes_data: self.changes_data,
            check: self.check,
            memory_limit_bytes: self.memory_limit_bytes,
        };
        let spec = value_of("spec", &spec)?;
        Ok(Case {
            id: id.to_owned(),
            title: self.title,
            unit: if rate { "1/s" } else { "s" }.to_owned(),
            better: if rate { Better::Higher } else { Better::Lower },
            arms: Vec::new(),
            baseline: Some(PLAIN.to_owned()),
            parameters: BTreeMap::from([("spec".to_owned(), spec)]),
            rounds: None,
            estimate_s: self.estimate_s,
        })
    }
}

fn other(sizes: &Sizes, id: &str) -> Result<Option<Case>, LabError> {
    // Estimated seconds to read or write all data once.
    let pass = 0.02 * f64::from(sizes.scale);
    let rows = u64::from(sizes.scale) * 100_000;
    let pgbench = |more: &[&str], script: Option<&str>| {
        let mut arguments: Vec<String> = more.iter().map(|text| (*text).to_owned()).collect();
        arguments.extend(load(sizes));
        Work::Pgbench { arguments, script: script.map(str::to_owned) }
    };
    let sql = |before: &[&str], timed: &[&str]| {
        let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        Work::Sql { before: owned(before), timed: owned(timed) }
    };
    const COUNT: &str = "SELECT count(*) FROM pgbench_accounts";
    const COMMIT: &str =
        "INSERT INTO lab_commits (client, words) VALUES (:client_id, repeat('x', 100));";
    const BALANCED: &str = "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) \
         FROM pgbench_history) AND (SELECT sum(tbalance) FROM pgbench_tellers) = (SELECT sum(delta) \
         FROM pgbench_history) AND (SELECT sum(bbalance) FROM pgbench_branches) = (SELECT sum(delta) \
         FROM pgbench_history)";
    let writes = |title: &str, work: Work| Draft {
        title: title.to_owned(),
        work,
        changes_data: true,
        estimate_s: run_s(sizes),
        ..Draft::default()
    };
    let scan = |title: &str, cache: Cache| Draft {
        title: title.to_owned(),
        work: sql(&[], &[COUNT]),
        // Minimal, so that all pages come from the OS cache or from disk.
        buffers_mb: 2,
        settings: vec!["enable_indexonlyscan=off"],
        cache,
        estimate_s: pass + 0.2,
        ..Draft::default()
    };
    let draft = match id {
        "scan-warm" => scan("sequential scan, warm OS cache", Cache::Warm),
        "scan-cold" => scan("sequential scan, cold OS cache", Cache::Cold),
        "churn" => Draft {
            title: "pgbench -S -C, a connection for each transaction".to_owned(),
            work: pgbench(&["-S", "-C"], None),
            cache: Cache::Warm,
            estimate_s: run_s(sizes),
            ..Draft::default()
        },
        "beyond-memory" => Draft {
            title: "pgbench -S, data larger than shared_buffers and OS cache".to_owned(),
            work: pgbench(&["-S"], None),
            buffers_mb: 16,
            cache: Cache::Limited,
            memory_limit_bytes: Some(sizes.memory_limit_mb * MB),
            estimate_s: run_s(sizes),
            ..Draft::default()
        },
        "index" => Draft {
            title: "CREATE INDEX, sorted through temporary files".to_owned(),
            work: sql(
                &["DROP INDEX IF EXISTS lab_index", "CHECKPOINT"],
                &["CREATE INDEX lab_index ON pgbench_accounts (abalance, aid)"],
            ),
            settings: vec!["maintenance_work_mem=4MB"],
            cache: Cache::Warm,
            changes_data: true,
            check: Some(format!(
                "SET enable_seqscan = off; SELECT count(*) = {rows} FROM pgbench_accounts WHERE \
                 abalance = 0 AND aid > 0"
            )),
            estimate_s: pass * 3.0 + 0.2,
            ..Draft::default()
        },
        "vacuum-full" => Draft {
            title: "VACUUM FULL".to_owned(),
            work: sql(&["CHECKPOINT"], &["VACUUM FULL pgbench_accounts"]),
            cache: Cache::Warm,
            changes_data: true,
            check: Some(format!("SELECT count(*) = {rows} FROM pgbench_accounts")),
            estimate_s: pass * 5.0 + 0.2,
            ..Draft::default()
        },
        "tpcb" => Draft {
            check: Some(BALANCED.to_owned()),
            buffers_mb: 256,
            cache: Cache::Warm,
            ..writes("pgbench TPC-B, WAL synced at each commit", pgbench(&[], None))
        },
        "tpcb-async" => Draft {
            check: Some(BALANCED.to_owned()),
            buffers_mb: 256,
            settings: vec!["synchronous_commit=off"],
            cache: Cache::Warm,
            ..writes("pgbench TPC-B, synchronous_commit off", pgbench(&[], None))
        },
        "wal-commits" => {
            writes("many small commits, WAL synced at each", pgbench(&[], Some(COMMIT)))
        }
        "wal-commits-async" => Draft {
            settings: vec!["synchronous_commit=off"],
            ..writes("many small commits, synchronous_commit off", pgbench(&[], Some(COMMIT)))
        },
        "wal-full-pages" => Draft {
            cache: Cache::Warm,
            estimate_s: pass * 5.0 + 0.3,
            // Updates one of about 61 rows on each page, right after a checkpoint.
            ..writes(
                "full-page images: every page changed after a checkpoint",
                sql(
                    &["VACUUM pgbench_accounts", "CHECKPOINT"],
                    &["UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid % 61 = 0"],
                ),
            )
        },
        "init" => Draft {
            title: format!("pgbench -i -s {}", sizes.init_scale),
            work: Work::Init { scale: sizes.init_scale },
            estimate_s: 0.15 * f64::from(sizes.init_scale) + 0.3,
            ..Draft::default()
        },
        _ => return Ok(None),
    };
    draft.case(id).map(Some)
}
