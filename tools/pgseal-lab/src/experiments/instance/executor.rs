//! Manages clusters, servers and samples of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use super::arms::{ArmCluster, DATABASE};
use super::plan::{Sizes, spec_of};
use super::work::{Cache, Spec, Work};
use super::{proof, sample};
use crate::cluster::{Tools, tools_of};
use crate::context::Context;
use crate::error::LabError;
use crate::executor::{Executor, Observation, Progress, Step};
use crate::plan::{Case, Plan};
use crate::warning::Warning;

/// The executor of this experiment.
#[derive(Debug)]
pub struct InstanceExecutor {
    tools: Tools,
    root: PathBuf,
    arms: BTreeMap<String, Made>,
    script: Option<PathBuf>,
    /// The warnings given so far: one per case and arm is enough.
    warned: BTreeSet<String>,
}

/// An arm's cluster, or the reason why there is none.
type Made = Result<ArmCluster, Lacking>;

#[derive(Debug, Clone)]
struct Lacking {
    what: String,
    why: String,
    remedy: String,
}

impl Lacking {
    fn error(&self) -> LabError {
        LabError::missing(&self.what, &self.why, &self.remedy)
    }
}

impl InstanceExecutor {
    /// An executor with clusters below the context's working directory.
    ///
    /// # Errors
    /// When a program of PostgreSQL is missing.
    pub fn new(context: &Context) -> Result<Self, LabError> {
        Ok(Self {
            tools: tools_of(context)?,
            root: context.work_dir.clone(),
            arms: BTreeMap::new(),
            script: None,
            warned: BTreeSet::new(),
        })
    }

    /// Creates the clusters of a case that do not exist yet.
    fn make(&mut self, plan: &Plan, case: &Case, say: &dyn Progress) -> Result<(), LabError> {
        let scale = scale(plan)?;
        for arm in plan.arms_of(case) {
            if self.arms.contains_key(&arm.id) {
                continue;
            }
            say.say(&format!("cluster {}: {}", arm.id, arm.title));
            let made = match ArmCluster::make(&self.tools, &self.root, arm, scale) {
                Ok(cluster) => Ok(cluster),
                Err(LabError::Missing { what, why, remedy }) => Err(Lacking { what, why, remedy }),
                Err(error) => return Err(error),
            };
            self.arms.insert(arm.id.clone(), made);
        }
        Ok(())
    }

    /// Starts the servers of a case and compares their data.
    fn start(&mut self, plan: &Plan, case: &Case, spec: &Spec) -> Result<(), LabError> {
        let scale = scale(plan)?;
        let mut answer: Option<String> = None;
        for arm in plan.arms_of(case) {
            let Some(Ok(made)) = self.arms.get_mut(&arm.id) else { continue };
            made.clean(&self.tools, scale)?;
            made.start(&self.tools, &spec.settings, spec.memory_limit_bytes)?;
            let found = made.target(&self.tools, DATABASE)?.rows(proof::ANSWER)?;
            let expected = answer.get_or_insert_with(|| found.clone());
            if *expected != found {
                return Err(LabError::Broken {
                    what: format!("{}: rows of arm {}", case.id, arm.id),
                    expected: expected.clone(),
                    found,
                });
            }
            if matches!(spec.cache, Cache::Warm | Cache::Limited) {
                made.read_all(&self.tools)?;
            }
        }
        Ok(())
    }

    /// Writes the script of a case to a file that pgbench can read.
    fn write_script(&mut self, case: &Case, work: &Work) -> Result<(), LabError> {
        self.script = None;
        if let Work::Pgbench { script: Some(text), .. } = work {
            let path = self.root.join(format!("{}.sql", case.id));
            fs::write(&path, format!("{text}\n"))
                .map_err(LabError::io(&path, "write the script"))?;
            self.tools.give(&path)?;
            self.script = Some(path);
        }
        Ok(())
    }

    fn check(&self, plan: &Plan, case: &Case, spec: &Spec) -> Result<(), LabError> {
        let Some(query) = &spec.check else { return Ok(()) };
        for arm in plan.arms_of(case) {
            let Some(Ok(made)) = self.arms.get(&arm.id) else { continue };
            let found = made.target(&self.tools, DATABASE)?.rows(query)?;
            if found != "t" {
                let what = format!("{}, arm {}: {query}", case.id, arm.id);
                return Err(LabError::Broken { what, expected: "t".to_owned(), found });
            }
        }
        Ok(())
    }

    fn stop(&mut self, plan: &Plan, case: &Case, changed: bool) -> Result<(), LabError> {
        let mut stopped = Ok(());
        for arm in plan.arms_of(case) {
            if let Some(Ok(made)) = self.arms.get_mut(&arm.id) {
                // Stops the other servers even after an error.
                stopped = stopped.and(made.stop());
                made.dirty |= changed;
            }
        }
        stopped
    }
}

impl Executor for InstanceExecutor {
    fn begin_case(&mut self, plan: &Plan, case: &Case, say: &dyn Progress) -> Result<(), LabError> {
        let spec = spec_of(case)?;
        self.make(plan, case, say)?;
        self.write_script(case, &spec.work)?;
        self.start(plan, case, &spec)
    }

    fn run(&mut self, step: &Step<'_>) -> Result<Observation, LabError> {
        let made = self.arms.get(&step.arm.id).ok_or_else(|| LabError::Broken {
            what: step.case.id.clone(),
            expected: format!("a cluster of arm {}", step.arm.id),
            found: "none".to_owned(),
        })?;
        let made = made.as_ref().map_err(Lacking::error)?;
        let spec = spec_of(step.case)?;
        let mut seen = sample::take(&self.tools, made, step, &spec, self.script.as_deref())?;
        let warned = &mut self.warned;
        seen.warnings.retain(|warning| {
            let again = match warning {
                Warning::ClientBound { case, arm, .. } => format!("client {case} {arm}"),
                other => format!("{} {}", other.kind(), step.case.id),
            };
            !step.warmup && warned.insert(again)
        });
        Ok(seen)
    }

    fn end_case(&mut self, plan: &Plan, case: &Case) -> Result<(), LabError> {
        let spec = spec_of(case)?;
        let running = self.arms.values().flatten().any(|made| made.server.is_some());
        let checked = if running { self.check(plan, case, &spec) } else { Ok(()) };
        let stopped = self.stop(plan, case, spec.changes_data);
        checked.and(stopped)
    }
}

fn scale(plan: &Plan) -> Result<u32, LabError> {
    Ok(plan.typed_parameters::<Sizes>()?.scale)
}
