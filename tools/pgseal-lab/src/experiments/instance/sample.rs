//! Takes one sample of one arm.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::arms::{ArmCluster, DATABASE, INIT_DATABASE, TableFiles};
use super::figures::beyond_limit;
use super::work::{Cache, Spec, Work};
use crate::cluster::{Outcome, Patience, SUPERUSER, Target, Tools};
use crate::error::LabError;
use crate::executor::{Observation, Step};
use crate::warning::Warning;

/// A wait for backends to end after they have reported their statistics; this CPU time counts, too.
const AFTER_THE_END: Duration = Duration::from_millis(60);
/// Longest wait for all backends to end, and for the OS cache to be empty.
const GONE: Patience = Patience::every(Duration::from_millis(100), 60);
const COLD: Patience = Patience::every(Duration::from_millis(100), 6);
/// Share of the big table in the OS cache: at most the first counts as cold, at least the second as
/// warm.
const COLD_SHARE: f64 = 0.01;
const WARM_SHARE: f64 = 0.99;
/// Shorter runs are dominated by their start and end.
const LEAST_RUN_S: f64 = 1.0;
const LEAST_STATEMENT_S: f64 = 0.05;
/// pgbench has one thread; from this CPU usage on (out of 1) pgbench counts as the limit.
const BUSY_CLIENT: f64 = 0.9;

/// Takes a sample.
pub fn take(
    tools: &Tools,
    arm: &ArmCluster,
    step: &Step<'_>,
    spec: &Spec,
    script: Option<&Path>,
) -> Result<Observation, LabError> {
    let mut seen = Observation::default();
    let lab = arm.target(tools, DATABASE)?;
    if let Work::Sql { before, .. } = &spec.work
        && !before.is_empty()
    {
        lab.sql(before)?;
    }
    let database = match spec.work {
        Work::Init { .. } => INIT_DATABASE,
        _ => DATABASE,
    };
    let files = arm.table_files(tools)?;
    let data_bytes = data_bytes(&lab)?;
    // Queries go to another database, so that they are not counted.
    let aside = arm.target(tools, SUPERUSER)?;
    all_gone(&aside, database)?;
    let counted = Counters::read(&aside, database)?;
    if spec.cache == Cache::Cold {
        drop_cached(arm, &files)?;
    }
    if matches!(spec.cache, Cache::Cold | Cache::Warm) {
        prove(&files, step, spec.cache, &mut seen);
    }
    let server = arm.server()?;
    let (begin, cpu) = (Instant::now(), server.cpu_seconds());
    let outcome = run(tools, arm, step, spec, script)?;
    let elapsed_s = begin.elapsed().as_secs_f64();
    all_gone(&aside, database)?;
    sleep(AFTER_THE_END);
    let server_cpu_s = server.cpu_seconds() - cpu;
    let done = Counters::read(&aside, database)?;
    let operations = outcome.operations.max(1.0);
    seen.value = outcome.value;
    let mut put = |name: &str, value: f64| {
        seen.extra.insert(name.to_owned(), value);
    };
    put("server_cpu_s_per_op", server_cpu_s / operations);
    put("client_cpu_s_per_op", outcome.client_cpu_s / operations);
    put("blocks_read_per_op", (done.blocks_read - counted.blocks_read).max(0.0) / operations);
    put("blocks_hit_per_op", (done.blocks_hit - counted.blocks_hit).max(0.0) / operations);
    put("wal_bytes_per_op", (done.wal_bytes - counted.wal_bytes).max(0.0) / operations);
    put("data_bytes", data_bytes);
    put("shared_buffers_bytes", spec.shared_buffers_bytes as f64);
    if let (Cache::Limited, Some(limit_bytes)) = (spec.cache, spec.memory_limit_bytes) {
        match files.resident() {
            Ok(resident) => put("os_cache_share", resident.share()),
            Err(why) => seen.warnings.push(unproved(step, why)),
        }
        if !beyond_limit(data_bytes, limit_bytes) {
            seen.warnings.push(unproved(step, fits(data_bytes, limit_bytes)));
        }
    }
    seen.facts.insert("storage".to_owned(), arm.proof.clone());
    let (step_s, least_s) = match spec.work {
        Work::Pgbench { .. } => (elapsed_s, LEAST_RUN_S),
        _ => (outcome.value, LEAST_STATEMENT_S),
    };
    if step_s < least_s {
        seen.warnings.push(Warning::TooShort { case: step.case.id.clone(), step_s, least_s });
    }
    if matches!(spec.work, Work::Pgbench { .. }) && outcome.client_cpu_s > elapsed_s * BUSY_CLIENT {
        let client_share = outcome.client_cpu_s / (outcome.client_cpu_s + server_cpu_s);
        seen.warnings.push(Warning::ClientBound {
            case: step.case.id.clone(),
            arm: step.arm.id.clone(),
            client_share,
        });
    }
    Ok(seen)
}

fn run(
    tools: &Tools,
    arm: &ArmCluster,
    step: &Step<'_>,
    spec: &Spec,
    script: Option<&Path>,
) -> Result<Outcome, LabError> {
    let outcome = match &spec.work {
        Work::Sql { timed, .. } => arm.target(tools, DATABASE)?.sql(timed)?,
        Work::Init { scale } => arm.target(tools, INIT_DATABASE)?.init(*scale)?,
        Work::Pgbench { arguments, .. } => {
            let mut arguments = arguments.clone();
            // All arms of a round use the same keys.
            let round = u64::from(step.round) + if step.warmup { 1_000_000 } else { 0 };
            arguments.push(format!("--random-seed={}", step.plan.seed.wrapping_add(round)));
            if let Some(script) = script {
                arguments.push(format!("--file={}", script.display()));
            }
            arm.target(tools, DATABASE)?.pgbench(&arguments)?
        }
    };
    Ok(outcome)
}

/// Waits until a database has no backends: a backend reports its statistics when it ends.
fn all_gone(aside: &Target<'_>, database: &str) -> Result<(), LabError> {
    let query = format!("SELECT count(*) FROM pg_stat_activity WHERE datname = '{database}'");
    let mut there = String::new();
    let gone = GONE.wait_for(|| match aside.rows(&query) {
        Ok(count) => {
            there = count;
            (there == "0").then_some(Ok(()))
        }
        Err(error) => Some(Err(error.into())),
    });
    gone.unwrap_or_else(|| {
        Err(LabError::Broken {
            what: format!("backends of {database}"),
            expected: "none once its clients have ended".to_owned(),
            found: there,
        })
    })
}

/// Empties the OS cache. The kernel keeps pages in use, so this is repeated.
fn drop_cached(arm: &ArmCluster, files: &TableFiles) -> Result<(), LabError> {
    let is_cold = || files.resident().is_ok_and(|resident| resident.share() <= COLD_SHARE);
    let dropped = COLD.wait_for(|| match arm.drop_cached() {
        Ok(()) => is_cold().then_some(Ok(())),
        Err(error) => Some(Err(error)),
    });
    dropped.unwrap_or(Ok(()))
}

/// Measures the OS cache right before the sample.
fn prove(files: &TableFiles, step: &Step<'_>, cache: Cache, seen: &mut Observation) {
    match files.resident() {
        Err(why) => seen.warnings.push(unproved(step, why)),
        Ok(resident) => {
            let share = resident.share();
            seen.extra.insert("os_cache_share".to_owned(), share);
            let as_said = match cache {
                Cache::Cold => share <= COLD_SHARE,
                _ => share >= WARM_SHARE,
            };
            let text = format!("{:.0} % of the table in the OS cache (fincore)", share * 100.0);
            if !as_said {
                seen.warnings.push(unproved(step, format!("{}: {text}", step.arm.id)));
            }
            seen.facts.insert("cache".to_owned(), text);
        }
    }
}

fn unproved(step: &Step<'_>, why: String) -> Warning {
    Warning::CacheStateUnproved { case: step.case.id.clone(), why }
}

/// The warning that the memory limit of a case proves nothing.
fn fits(data_bytes: f64, limit_bytes: u64) -> String {
    const MB: f64 = 1048576.0;
    format!(
        "the data ({:.0} MB) fit into the limit of {:.0} MB and may have been in memory all the time; \
         use a larger scale or a smaller memory_limit_mb",
        data_bytes / MB,
        limit_bytes as f64 / MB
    )
}

/// The server's counters.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Counters {
    blocks_read: f64,
    blocks_hit: f64,
    wal_bytes: f64,
}

/// Size of all tables with their indexes.
fn data_bytes(target: &Target<'_>) -> Result<f64, LabError> {
    let query = "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' AND \
                 relnamespace = 'public'::regnamespace";
    let found = target.rows(query)?.parse();
    let wanted = "a number".to_owned();
    found.map_err(|_| LabError::Output { command: query.to_owned(), wanted })
}

impl Counters {
    fn read(target: &Target<'_>, database: &str) -> Result<Self, LabError> {
        let query = format!(
            "SELECT blks_read, blks_hit, pg_current_wal_insert_lsn() - '0/0'::pg_lsn FROM \
             pg_stat_database WHERE datname = '{database}'"
        );
        let row = target.rows(&query)?;
        let numbers: Vec<f64> = row.split('|').filter_map(|text| text.parse().ok()).collect();
        match numbers[..] {
            [blocks_read, blocks_hit, wal_bytes] => Ok(Self { blocks_read, blocks_hit, wal_bytes }),
            _ => Err(LabError::Output { command: query, wanted: "three numbers".to_owned() }),
        }
    }
}
