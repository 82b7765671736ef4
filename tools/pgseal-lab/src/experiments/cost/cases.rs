//! What is measured, and the aim of each.

use super::goal::Goal;
use super::load::Load;

/// How one value is taken.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sample {
    /// Statements, timed by psql; the first list is run before, not timed.
    Sql(&'static [&'static str], &'static [&'static str]),
    /// Slices of a steady load, with as many sessions.
    Steady(Load, u32),
    /// `pgbench -i` into a database of its own.
    Init,
}

/// One case, before the sizes of a profile.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measure {
    /// For `--only`.
    pub name: &'static str,
    /// For people.
    pub what: &'static str,
    /// Server settings besides those of all cases.
    pub settings: &'static [&'static str],
    /// One value.
    pub sample: Sample,
    /// The aim.
    pub goal: Goal,
    /// Where the data are while it is measured.
    pub cache: &'static str,
}

const AT_MOST_1_10: Goal = Goal::TimeAtMost { gcm: 1.10, other: 1.10 };
const BIG: &[&str] = &["shared_buffers=1GB"];

/// All of them, those that change the data last.
pub const MEASURES: &[Measure] = &[
    Measure {
        name: "select-memory",
        what: "reads by key, all in shared_buffers",
        settings: BIG,
        sample: Sample::Steady(Load::Select, 4),
        goal: Goal::RateInNoise,
        cache: "all in shared_buffers after a warm-up",
    },
    Measure {
        name: "scan",
        what: "sequential scan, 16 MB of buffers",
        // The heap, page by page, through the ring of the scan.
        settings: &[
            "shared_buffers=16MB",
            "max_parallel_workers_per_gather=0",
            "enable_indexonlyscan=off",
        ],
        sample: Sample::Steady(Load::Scan, 1),
        goal: Goal::TimeAtMost { gcm: 1.18, other: 1.13 },
        cache: "all in the OS cache, next to nothing in shared_buffers",
    },
    Measure {
        name: "select-64mb",
        what: "reads by key, 64 MB of buffers",
        settings: &["shared_buffers=64MB"],
        sample: Sample::Steady(Load::Select, 4),
        goal: Goal::RateAtLeast(0.94),
        cache: "all in the OS cache, 64 MB in shared_buffers",
    },
    Measure {
        name: "connect",
        what: "new connections, a read in each",
        settings: BIG,
        sample: Sample::Steady(Load::Connect, 1),
        goal: Goal::RateAtLeast(0.95),
        cache: "all in shared_buffers after a warm-up",
    },
    Measure {
        name: "tpcb",
        what: "TPC-B, 4 clients",
        settings: BIG,
        sample: Sample::Steady(Load::Tpcb, 4),
        goal: Goal::RateAtLeast(0.97),
        cache: "all in shared_buffers after a warm-up; WAL synced at each commit",
    },
    Measure {
        name: "insert",
        what: "INSERT of a row, 8 clients",
        settings: BIG,
        sample: Sample::Steady(Load::Insert, 8),
        goal: Goal::RateAtLeast(0.95),
        cache: "all in shared_buffers; WAL synced at each commit",
    },
    Measure {
        name: "vacuum",
        what: "VACUUM after UPDATE of a fifth",
        settings: &["shared_buffers=128MB"],
        sample: Sample::Sql(
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
    Measure {
        name: "vacuum-full",
        what: "VACUUM FULL",
        settings: &["shared_buffers=128MB"],
        sample: Sample::Sql(&["CHECKPOINT"], &["VACUUM FULL pgbench_accounts"]),
        goal: AT_MOST_1_10,
        cache: "all in the OS cache",
    },
    Measure {
        name: "ctas",
        what: "CREATE TABLE AS, CHECKPOINT",
        settings: &["shared_buffers=128MB"],
        sample: Sample::Sql(
            &["DROP TABLE IF EXISTS copied", "CHECKPOINT"],
            &["CREATE TABLE copied AS SELECT * FROM pgbench_accounts", "CHECKPOINT"],
        ),
        goal: AT_MOST_1_10,
        cache: "all in the OS cache; written and synced",
    },
    Measure {
        name: "init",
        what: "pgbench -i",
        settings: &["shared_buffers=128MB"],
        sample: Sample::Init,
        goal: AT_MOST_1_10,
        cache: "written; nothing read",
    },
];
