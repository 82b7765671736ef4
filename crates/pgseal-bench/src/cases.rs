//! What is measured, and the target of each.

use serde::Serialize;

/// How a result is judged.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Goal {
    /// Time against the plain server: at most this ratio for gcm, and this one for xts and ctr.
    TimeAtMost {
        /// `aes-256-gcm` and `aes-128-gcm`.
        gcm: f64,
        /// The suites that do not authenticate.
        other: f64,
    },
    /// Throughput against the plain server: at least this ratio.
    RateAtLeast(f64),
    /// Throughput: no difference beyond the noise of plain against plain.
    RateInNoise,
}

impl Goal {
    /// Whether more is better.
    pub fn is_rate(self) -> bool {
        !matches!(self, Self::TimeAtMost { .. })
    }
}

/// How one sample is taken.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Work {
    /// Statements, timed by psql; the first list is run before, not timed.
    Sql(&'static [&'static str], &'static [&'static str]),
    /// pgbench with these arguments, for the seconds of the plan.
    Pgbench(&'static [&'static str]),
    /// `pgbench -i` into a database of its own.
    Init,
}

/// One line of the table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Case {
    /// For `--only`.
    pub name: &'static str,
    /// For people.
    pub what: &'static str,
    /// Server settings besides those of all cases.
    pub settings: &'static [&'static str],
    /// The sample.
    pub work: Work,
    /// The judgement.
    pub goal: Goal,
    /// Where the data are while it is measured.
    pub cache: &'static str,
}

const COUNT: &str = "SELECT count(*) FROM pgbench_accounts";
const AT_MOST_1_10: Goal = Goal::TimeAtMost { gcm: 1.10, other: 1.10 };
const BIG: &[&str] = &["shared_buffers=1GB"];

/// All of them, those that change the data last.
pub const CASES: &[Case] = &[
    Case {
        name: "select-memory",
        what: "pgbench -S, all in shared_buffers",
        settings: BIG,
        work: Work::Pgbench(&["-S", "-c", "4", "-j", "1"]),
        goal: Goal::RateInNoise,
        cache: "all in shared_buffers after a warm-up",
    },
    Case {
        name: "scan",
        what: "sequential scan, 16 MB of buffers",
        // The heap, page by page, through the ring of the scan.
        settings: &[
            "shared_buffers=16MB",
            "max_parallel_workers_per_gather=0",
            "enable_indexonlyscan=off",
        ],
        work: Work::Sql(&[], &[COUNT, COUNT, COUNT, COUNT, COUNT]),
        goal: Goal::TimeAtMost { gcm: 1.18, other: 1.13 },
        cache: "all in the OS cache, next to nothing in shared_buffers",
    },
    Case {
        name: "select-64mb",
        what: "pgbench -S, 64 MB of buffers",
        settings: &["shared_buffers=64MB"],
        work: Work::Pgbench(&["-S", "-c", "4", "-j", "1"]),
        goal: Goal::RateAtLeast(0.94),
        cache: "all in the OS cache, 64 MB in shared_buffers",
    },
    Case {
        name: "connect",
        what: "pgbench -C -S, new connections",
        settings: BIG,
        work: Work::Pgbench(&["-C", "-S", "-c", "1", "-j", "1"]),
        goal: Goal::RateAtLeast(0.95),
        cache: "all in shared_buffers after a warm-up",
    },
    Case {
        name: "tpcb",
        what: "pgbench TPC-B, 4 clients",
        settings: BIG,
        work: Work::Pgbench(&["-c", "4", "-j", "1"]),
        goal: Goal::RateAtLeast(0.97),
        cache: "all in shared_buffers after a warm-up; WAL synced at each commit",
    },
    Case {
        name: "vacuum",
        what: "VACUUM after UPDATE of a fifth",
        settings: &["shared_buffers=128MB"],
        work: Work::Sql(
            &[
                // What the last VACUUM left free decides how much the next one has to do.
                "VACUUM FULL pgbench_accounts",
                "UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid % 5 = 0",
                "CHECKPOINT",
            ],
            &["VACUUM pgbench_accounts"],
        ),
        goal: AT_MOST_1_10,
        cache: "all in the OS cache",
    },
    Case {
        name: "vacuum-full",
        what: "VACUUM FULL",
        settings: &["shared_buffers=128MB"],
        work: Work::Sql(&["CHECKPOINT"], &["VACUUM FULL pgbench_accounts"]),
        goal: AT_MOST_1_10,
        cache: "all in the OS cache",
    },
    Case {
        name: "ctas",
        what: "CREATE TABLE AS, CHECKPOINT",
        settings: &["shared_buffers=128MB"],
        work: Work::Sql(
            &["DROP TABLE IF EXISTS copied", "CHECKPOINT"],
            &["CREATE TABLE copied AS SELECT * FROM pgbench_accounts", "CHECKPOINT"],
        ),
        goal: AT_MOST_1_10,
        cache: "all in the OS cache; written and synced",
    },
    Case {
        name: "init",
        what: "pgbench -i",
        settings: &["shared_buffers=128MB"],
        work: Work::Init,
        goal: AT_MOST_1_10,
        cache: "written; nothing read",
    },
];
