//! How one value of a case is taken, and what the executor must know of a case.

use serde::{Deserialize, Serialize};

/// What stands in the parameters of a case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// Server settings, `name=value`, besides [`COMMON`].
    pub settings: Vec<String>,
    /// `shared_buffers` in bytes; among the settings too.
    pub shared_buffers_bytes: u64,
    /// What is run.
    pub work: Work,
    /// Where the data are when it begins.
    pub cache: Cache,
    /// Whether the data are others afterwards.
    pub changes_data: bool,
    /// A query that must answer `t` when the case is over.
    pub check: Option<String>,
    /// Bytes that the server's processes and the files that they read may take up in memory
    /// together (control group).
    pub memory_limit_bytes: Option<u64>,
}

/// Settings of all cases: nothing happens by itself while a value is taken.
pub const COMMON: [&str; 5] = [
    "max_wal_size=8GB",
    "checkpoint_timeout=1h",
    "jit=off",
    "max_parallel_workers_per_gather=0",
    "max_parallel_maintenance_workers=0",
];

/// One value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Work {
    /// pgbench with these arguments, in transactions a second.
    Pgbench {
        /// Without database and `--random-seed`.
        arguments: Vec<String>,
        /// A script of its own for `-f`.
        script: Option<String>,
    },
    /// Statements, in seconds.
    Sql {
        /// Run before, not timed.
        before: Vec<String>,
        /// Timed, each by itself, and added up.
        timed: Vec<String>,
    },
    /// `pgbench -i` into a database of its own, in seconds.
    Init {
        /// `-s`.
        scale: u32,
    },
}

/// Where the data are when a value is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cache {
    /// All read once before, so that shared_buffers hold what they can and the OS cache the rest.
    Warm,
    /// Nothing in the OS cache: dropped before each value, and looked at.
    Cold,
    /// As it comes: the case writes.
    Any,
    /// The OS cache is limited to less than the data.
    Limited,
}

impl Cache {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Warm => {
                "all read once before: shared_buffers hold what they can, the OS cache all"
            }
            Self::Cold => "OS cache dropped before each value",
            Self::Any => "as the load leaves it",
            Self::Limited => "OS cache smaller than the data",
        }
    }
}
