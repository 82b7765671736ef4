//! What a case measures, as the executor reads it from the plan.

use serde::{Deserialize, Serialize};

/// The parameters of a case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// Server settings, `name=value`, besides [`COMMON`].
    pub settings: Vec<String>,
    /// `shared_buffers` in bytes; also among the settings.
    pub shared_buffers_bytes: u64,
    /// What is measured.
    pub work: Work,
    /// Where the data are when a measurement begins.
    pub cache: Cache,
    /// Whether the case changes the data.
    pub changes_data: bool,
    /// A query that must return `t` at the end of the case.
    pub check: Option<String>,
    /// Limit on the memory of the server's processes together with the OS cache of the files that
    /// they read (control group).
    pub memory_limit_bytes: Option<u64>,
}

/// Settings of all cases: no background activity during a measurement.
pub const COMMON: [&str; 5] = [
    "max_wal_size=8GB",
    "checkpoint_timeout=1h",
    "jit=off",
    "max_parallel_workers_per_gather=0",
    "max_parallel_maintenance_workers=0",
];

/// One measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Work {
    /// pgbench, in transactions per second.
    Pgbench {
        /// The arguments, without database and `--random-seed`.
        arguments: Vec<String>,
        /// A custom script for `-f`.
        script: Option<String>,
    },
    /// SQL statements, in seconds.
    Sql {
        /// Statements that run before and are not timed.
        before: Vec<String>,
        /// Statements that are timed separately; the times are added.
        timed: Vec<String>,
    },
    /// `pgbench -i` into a separate database, in seconds.
    Init {
        /// `-s`.
        scale: u32,
    },
}

/// Where the data are when a measurement begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cache {
    /// All data are read once before, so that they are in shared_buffers as far as they fit, else
    /// in the OS cache.
    Warm,
    /// The OS cache is emptied before each measurement, and this is checked.
    Cold,
    /// Not controlled, since the case writes.
    Any,
    /// The OS cache is limited to less than the size of the data.
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
