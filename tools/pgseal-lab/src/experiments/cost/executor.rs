//! Clusters, servers and values of a run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use super::plan::spec_of;
use crate::cluster::{Tools, tools_of};
use crate::context::{Context, output_of};
use crate::error::LabError;
use crate::executor::{Executor, Observation, Progress, Step};
use crate::experiments::instance::arms::{ArmCluster, DATABASE, INIT_DATABASE};
use crate::experiments::instance::work::Work;
use crate::plan::{Case, Plan};

/// A backend's CPU time counts as the postmaster's child's once the postmaster has waited for it.
const AFTER_THE_END: Duration = Duration::from_millis(50);

/// Measures with all servers running; those that are not measured are idle.
#[derive(Debug)]
pub struct CostExecutor {
    tools: Tools,
    root: PathBuf,
    scale: u32,
    arms: BTreeMap<String, ArmCluster>,
}

impl CostExecutor {
    /// With clusters below the context's working directory.
    ///
    /// # Errors
    /// When a program of PostgreSQL is missing.
    pub fn new(plan: &Plan, context: &Context) -> Result<Self, LabError> {
        Ok(Self {
            tools: tools_of(context)?,
            root: context.work_dir.clone(),
            scale: plan.required("scale")?,
            arms: BTreeMap::new(),
        })
    }

    fn arm(&self, id: &str) -> Result<&ArmCluster, LabError> {
        self.arms.get(id).ok_or_else(|| LabError::Broken {
            what: format!("arm {id}"),
            expected: "a cluster".to_owned(),
            found: "none".to_owned(),
        })
    }
}

impl Executor for CostExecutor {
    fn begin_case(&mut self, plan: &Plan, case: &Case, say: &dyn Progress) -> Result<(), LabError> {
        let spec = spec_of(case)?;
        for arm in plan.arms_of(case) {
            if !self.arms.contains_key(&arm.id) {
                say.say(&format!("cluster {}: {}", arm.id, arm.title));
                let made = ArmCluster::make(&self.tools, &self.root, arm, self.scale)?;
                self.arms.insert(arm.id.clone(), made);
            }
            let Some(made) = self.arms.get_mut(&arm.id) else { continue };
            made.start(&self.tools, &spec.settings, None)?;
            if matches!(spec.work, Work::Pgbench { .. }) {
                // All pages once, into the OS cache and, where they fit, into shared_buffers.
                made.read_all(&self.tools)?;
            }
        }
        Ok(())
    }

    fn run(&mut self, step: &Step<'_>) -> Result<Observation, LabError> {
        let made = self.arm(&step.arm.id)?;
        let spec = spec_of(step.case)?;
        let lab = made.target(&self.tools, DATABASE)?;
        if let Work::Sql { before, .. } = &spec.work
            && !before.is_empty()
        {
            lab.sql(before)?;
        }
        // What other arms left in the kernel's cache is written now, not while this one is measured.
        output_of(&mut Command::new(Path::new("sync")))?;
        let server = made.server()?;
        let before = server.cpu_seconds();
        let outcome = match &spec.work {
            Work::Sql { timed, .. } => lab.sql(timed)?,
            Work::Init { scale } => made.target(&self.tools, INIT_DATABASE)?.init(*scale)?,
            Work::Pgbench { arguments, .. } => {
                let mut arguments = arguments.clone();
                // The same keys in every arm of a round.
                let round = step.round + if step.warmup { 1_000_000 } else { 1 };
                arguments.push(format!("--random-seed={round}"));
                lab.pgbench(&arguments)?
            }
        };
        sleep(AFTER_THE_END);
        let operations = outcome.operations.max(1.0);
        let mut seen = Observation::of(outcome.value);
        seen.extra = BTreeMap::from([
            ("server_cpu_s_per_op".to_owned(), (server.cpu_seconds() - before) / operations),
            ("client_cpu_s_per_op".to_owned(), outcome.client_cpu_s / operations),
        ]);
        seen.facts.insert("storage".to_owned(), made.proof.clone());
        Ok(seen)
    }

    fn end_case(&mut self, plan: &Plan, case: &Case) -> Result<(), LabError> {
        let mut stopped = Ok(());
        for arm in plan.arms_of(case) {
            if let Some(made) = self.arms.get_mut(&arm.id) {
                // The others are stopped all the same.
                stopped = stopped.and(made.stop());
            }
        }
        stopped
    }
}
