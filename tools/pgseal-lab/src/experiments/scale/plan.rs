//! From a profile to series of cases.

use serde::{Deserialize, Serialize};

use crate::environment::Environment;
use crate::error::LabError;
use crate::experiments::cost::load::Load;
use crate::experiments::cost::plan::{Slices, Spec, Work, wrong};
use crate::plan::{Better, Case, Plan, value_of};
use crate::profile::Profile;

/// The parameters of a profile. A series without values is left out.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sizes {
    /// `pgbench -s` of the data; 20 is 2 million rows, about 300 MB.
    pub scale: u32,
    /// The part of a slice that counts, in milliseconds.
    pub slice_ms: u64,
    /// The part before it, which does not.
    pub settle_ms: u64,
    /// The widest interval of a case that ends before its time is up, in percent.
    pub until_percent: f64,
    /// The time for each case, in seconds.
    pub max_s: f64,
    /// The fewest blocks of slices.
    pub least_blocks: u32,
    /// The suites to measure.
    pub suites: Vec<String>,
    /// Whether to measure a plain server on gocryptfs, too.
    #[serde(default)]
    pub gocryptfs: bool,
    /// Sessions that read by key.
    pub readers: Vec<u32>,
    /// Sessions of TPC-B.
    pub writers: Vec<u32>,
    /// Sessions that insert rows.
    pub inserters: Vec<u32>,
    /// Parallel workers of a scan.
    pub workers: Vec<u32>,
    /// I/O workers of PostgreSQL 18 for a scan.
    pub io_workers: Vec<u32>,
    /// What a checkpoint has to write, in MB.
    pub dirty_mb: Vec<u32>,
    /// The server's memory with its OS cache, in percent of the data.
    pub memory_percent: Vec<u32>,
    /// Tables of the database, at a restart.
    pub tables: Vec<u32>,
    /// Whether to measure backup, restart, recovery, INSERT, COPY and CREATE INDEX.
    pub operations: bool,
}

/// Where a case is in the report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Place {
    /// The series: a chart.
    pub series: String,
    /// The position on the axis; none: the case is one of several labels.
    pub x: Option<f64>,
}

/// A series of cases.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Series {
    /// The beginning of its cases' names.
    pub name: &'static str,
    /// Heading of its chart.
    pub title: &'static str,
    /// What the axis counts, and its unit.
    pub axis: (&'static str, &'static str),
}

/// All series, those that change the data last.
pub const SERIES: [Series; 9] = [
    Series {
        name: "readers",
        title: "Reads by key, all in shared_buffers",
        axis: ("sessions", ""),
    },
    Series { name: "memory", title: "Reads by key, little memory", axis: ("memory", "% of data") },
    Series { name: "workers", title: "Parallel scan", axis: ("workers", "") },
    Series { name: "io-workers", title: "Scan with I/O workers", axis: ("I/O workers", "") },
    Series { name: "writers", title: "TPC-B", axis: ("sessions", "") },
    Series { name: "inserters", title: "INSERT of a row", axis: ("sessions", "") },
    Series { name: "dirty", title: "Checkpoint", axis: ("written", "MB") },
    Series { name: "operations", title: "Whole operations", axis: ("operation", "") },
    Series { name: "tables", title: "Restart", axis: ("tables", "") },
];

const BIG: &str = "shared_buffers=1GB";
const SMALL: &str = "shared_buffers=16MB";
const MIDDLE: &str = "shared_buffers=128MB";
const NO_WORKERS: &str = "max_parallel_workers_per_gather=0";
/// Bytes of `pgbench_accounts` and its index for each unit of the scale.
const BYTES_OF_SCALE: u64 = 15_500_000;
/// Rows of `pgbench_accounts` for each unit of the scale, and in 1 MB of its pages.
const ROWS_OF_SCALE: u32 = 100_000;
const ROWS_OF_MB: u32 = 7_808;
/// Memory of a server besides its data.
const OWN_BYTES: u64 = 64 << 20;

impl Sizes {
    fn slices(&self) -> Slices<'_> {
        Slices {
            slice_ms: self.slice_ms,
            settle_ms: self.settle_ms,
            until_percent: self.until_percent,
            max_s: self.max_s,
            least_blocks: self.least_blocks,
            suites: &self.suites,
            gocryptfs: self.gocryptfs,
        }
    }
}

/// The plan of a profile.
pub fn plan(profile: &Profile, machine: &Environment) -> Result<Plan, LabError> {
    let sizes: Sizes = profile.parameters()?;
    sizes.slices().check(profile)?;
    let dirty_rows = |mb: &u32| u64::from(*mb) * u64::from(ROWS_OF_MB);
    let rows = u64::from(sizes.scale) * u64::from(ROWS_OF_SCALE);
    if let Some(mb) = sizes.dirty_mb.iter().find(|mb| dirty_rows(mb) > rows) {
        let what = format!("dirty_mb: {mb} is more than all data; choose a larger scale");
        return wrong(profile, &what);
    }
    let has_io_workers = machine.postgresql.iter().filter_map(|text| major(text)).max() >= Some(18);
    let cases = SERIES.into_iter().filter(|series| series.name != "io-workers" || has_io_workers);
    let cases: Vec<Case> =
        cases.flat_map(|series| cases_of(series, &sizes)).collect::<Result<_, _>>()?;
    if cases.is_empty() {
        return wrong(profile, "every series is empty");
    }
    Ok(sizes.slices().plan(super::NAME, profile, cases))
}

/// The major version in what `postgres --version` says.
fn major(text: &str) -> Option<u32> {
    let version =
        text.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    version?.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// The place of a case.
///
/// # Errors
/// [`LabError::Plan`] for a case of another experiment.
pub fn place_of(case: &Case) -> Result<Place, LabError> {
    case.required("place")
}

fn cases_of(series: Series, sizes: &Sizes) -> Vec<Result<Case, LabError>> {
    let list = |values: &[u32], spec: &dyn Fn(u32) -> (Vec<String>, Work, String, Option<u64>)| {
        let case = |value: &u32| {
            let (id, x) = (format!("{}-{value}", series.name), Some(f64::from(*value)));
            case(series, id, x, spec(*value), sizes)
        };
        values.iter().map(case).collect::<Vec<_>>()
    };
    let owned = |list: &[&str]| -> Vec<String> { list.iter().map(|s| (*s).to_owned()).collect() };
    let steady = |load, clients, settings: &[&str], cache: &str| {
        (owned(settings), Work::Steady { load, clients }, cache.to_owned(), None)
    };
    let warm = "all in shared_buffers after a warm-up";
    match series.name {
        "readers" => list(&sizes.readers, &|n| steady(Load::Select, n, &[BIG], warm)),
        "writers" => {
            let cache = "all in shared_buffers after a warm-up; WAL synced at each commit";
            list(&sizes.writers, &|n| steady(Load::Tpcb, n, &[BIG], cache))
        }
        "inserters" => {
            let cache = "all in shared_buffers; WAL synced at each commit";
            list(&sizes.inserters, &|n| steady(Load::Insert, n, &[BIG], cache))
        }
        "memory" => list(&sizes.memory_percent, &|percent| {
            let data = u64::from(sizes.scale) * BYTES_OF_SCALE;
            let limit = data * u64::from(percent) / 100 + OWN_BYTES;
            let work = Work::Steady { load: Load::Select, clients: 4 };
            let cache = "as much in the OS cache as the memory of a control group allows";
            (owned(&[SMALL]), work, cache.to_owned(), Some(limit))
        }),
        "workers" => list(&sizes.workers, &|workers| {
            let before =
                vec![format!("ALTER TABLE pgbench_accounts SET (parallel_workers = {workers})")];
            let timed = owned(&["SELECT sum(abalance) FROM pgbench_accounts"]);
            let settings = [
                SMALL,
                "max_parallel_workers_per_gather=8",
                "max_parallel_workers=16",
                "max_worker_processes=24",
                "min_parallel_table_scan_size=0",
            ];
            let cache = "all in the OS cache".to_owned();
            (owned(&settings), Work::Sql { before, timed }, cache, None)
        }),
        "io-workers" => list(&sizes.io_workers, &|workers| {
            let io_workers = format!("io_workers={workers}");
            let settings = [SMALL, NO_WORKERS, "io_method=worker", &io_workers];
            steady(Load::Scan, 1, &settings, "all in the OS cache")
        }),
        "dirty" => list(&sizes.dirty_mb, &|mb| {
            let rows = u64::from(mb) * u64::from(ROWS_OF_MB);
            let before = vec![
                "DROP TABLE IF EXISTS changed".to_owned(),
                "CREATE TABLE changed (LIKE pgbench_accounts)".to_owned(),
                "CHECKPOINT".to_owned(),
                format!("INSERT INTO changed SELECT * FROM pgbench_accounts LIMIT {rows}"),
            ];
            let timed = owned(&["CHECKPOINT"]);
            let cache = "changed in shared_buffers; written and synced".to_owned();
            (owned(&[BIG]), Work::Sql { before, timed }, cache, None)
        }),
        "tables" => list(&sizes.tables, &|tables| {
            let before = vec![make_tables(tables)];
            let cache = "in shared_buffers before, in the OS cache after".to_owned();
            (owned(&[MIDDLE]), Work::Restart { before }, cache, None)
        }),
        "operations" if sizes.operations => operations()
            .into_iter()
            .map(|(name, work, cache)| {
                let spec = (owned(&[MIDDLE]), work, cache.to_owned(), None);
                case(series, name.to_owned(), None, spec, sizes)
            })
            .collect(),
        _ => Vec::new(),
    }
}

/// What is measured as a whole.
fn operations() -> Vec<(&'static str, Work, &'static str)> {
    let sql = |before: &[&str], timed: &[&str]| {
        let owned = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect();
        Work::Sql { before: owned(before), timed: owned(timed) }
    };
    let anew = ["DROP TABLE IF EXISTS changed", "CREATE TABLE changed (LIKE pgbench_accounts)"];
    let update = "UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid % 10 = 0";
    vec![
        ("backup", Work::Backup, "read from the OS cache"),
        ("copy-out", sql(&[], &["COPY pgbench_accounts TO '/dev/null'"]), "all in the OS cache"),
        (
            "insert-select",
            sql(
                &[anew[0], anew[1], "CHECKPOINT"],
                &["INSERT INTO changed SELECT * FROM pgbench_accounts", "CHECKPOINT"],
            ),
            "all in the OS cache; written and synced",
        ),
        (
            "create-index",
            sql(
                &["DROP INDEX IF EXISTS by_balance", "CHECKPOINT"],
                &["CREATE INDEX by_balance ON pgbench_accounts (abalance, aid)"],
            ),
            "all in the OS cache; written",
        ),
        (
            "restart",
            Work::Restart { before: vec![update.to_owned()] },
            "a tenth of the rows changed since the last checkpoint",
        ),
        (
            "recovery",
            Work::Recovery { before: vec!["CHECKPOINT".to_owned(), update.to_owned()] },
            "the WAL of a change of a tenth of the rows, in the OS cache",
        ),
    ]
}

/// Makes tables until the database has so many of them, in transactions whose locks have room in a
/// server's table of locks.
fn make_tables(tables: u32) -> String {
    format!(
        "DO $$ BEGIN FOR i IN 1..{tables} LOOP \
           IF to_regclass('lab_table_' || i) IS NULL THEN \
             EXECUTE format('CREATE TABLE lab_table_%s AS SELECT %s AS a', i, i); \
           END IF; IF i % 1000 = 0 THEN COMMIT; END IF; END LOOP; END $$"
    )
}

fn case(
    series: Series,
    id: String,
    x: Option<f64>,
    (settings, work, cache, memory_limit_bytes): (Vec<String>, Work, String, Option<u64>),
    sizes: &Sizes,
) -> Result<Case, LabError> {
    let better = match &work {
        Work::Steady { load, .. } if *load != Load::Scan => Better::Higher,
        _ => Better::Lower,
    };
    let title = match x {
        Some(x) => format!("{}: {} {x}{}", series.title, series.axis.0, series.axis.1),
        None => id.clone(),
    };
    let spec = Spec { settings, work, cache, goal: None, memory_limit_bytes };
    let run_s = f64::from(sizes.scale) / 10.0 * 0.6 + 0.5;
    let mut case = sizes.slices().case((id, title), better, &spec, run_s)?;
    let place = Place { series: series.name.to_owned(), x };
    case.parameters.insert("place".to_owned(), value_of("place", &place)?);
    Ok(case)
}
