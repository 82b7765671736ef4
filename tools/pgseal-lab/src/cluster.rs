//! Throw-away clusters to measure on: `pgseal-cluster` with the programs of a context.

pub use pgseal_cluster::{
    Account, Answer, Cluster, ClusterError, NewCluster, Outcome, Patience, Programs, SUPERUSER,
    Server, Session, Stop, Target, Tools, free_port, install,
};

use crate::context::Context;
use crate::error::LabError;

/// The programs of a context. If this process runs as root, the programs of pgseal are first copied
/// into the context's working directory.
///
/// # Errors
/// When a program of PostgreSQL is missing, or one cannot be copied.
pub fn tools_of(context: &Context) -> Result<Tools, LabError> {
    let tools = Tools::with(&context.bindir, &context.pgseal, context.account.clone())?;
    let tools = tools.pinned_to(context.cpus.as_deref());
    if tools.account.is_none() {
        return Ok(tools);
    }
    let programs = Programs {
        pgseal: context.pgseal.clone(),
        library: context.library.clone(),
        guard: context.guard.clone(),
    };
    Ok(tools.stage(&programs, &context.work_dir.join("bin"))?)
}
