//! Clusters, servers and values of a run: one arm works at a time, the servers of the others are
//! stopped as a whole.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::counters::{Counters, FIGURES};
use super::floor::seconds_per_page;
use super::halt::{self, Guardian};
use super::load::{Load, Place, Sessions};
use super::plan::{Spec, Work, spec_of};
use crate::cluster::{SUPERUSER, Server, Tools, tools_of};
use crate::context::{Context, output_of};
use crate::error::LabError;
use crate::executor::{Executor, Observation, Progress, Step};
use crate::experiments::instance::arms::{ArmCluster, DATABASE, INIT_DATABASE};
use crate::experiments::tls::cpus;
use crate::plan::{Case, Plan};

/// A backend's CPU time counts as the postmaster's child's once the postmaster has waited for it.
const AFTER_THE_END: Duration = Duration::from_millis(50);
/// Longest slice in which nothing was done.
const LONGEST: Duration = Duration::from_secs(60);
/// Rows for which a scan's time is given.
pub const ROWS_OF_VALUE: f64 = 1e6;

/// Measures with all servers up and all but one of them stopped.
#[derive(Debug)]
pub struct CostExecutor {
    tools: Tools,
    root: PathBuf,
    scale: u32,
    slice: Duration,
    settle: Duration,
    cpus: Vec<usize>,
    arms: BTreeMap<String, Working>,
    guardian: Guardian,
}

/// An arm with its server and sessions.
#[derive(Debug)]
struct Working {
    sessions: Option<Sessions>,
    counters: Option<Counters>,
    cluster: ArmCluster,
}

/// What a server has used and done so far.
#[derive(Debug, Clone)]
struct Reading {
    cpu_s: f64,
    bytes: Option<u64>,
    counted: Option<Vec<u64>>,
    done: u64,
    /// Processor time of this process, in which the sessions run.
    client_cpu_s: f64,
    at: Instant,
}

impl Working {
    fn postmaster(&self) -> Option<u32> {
        self.cluster.server.as_ref().map(Server::postmaster)
    }

    fn go_on(&self) {
        if let Some(pid) = self.postmaster() {
            halt::go_on(pid);
        }
    }

    fn halt(&self) -> Result<(), LabError> {
        self.postmaster().map_or(Ok(()), halt::stop)
    }

    fn done(&self) -> u64 {
        self.sessions.as_ref().map_or(0, Sessions::done)
    }

    /// Always in the same order, so that what reading takes is in no difference of two readings.
    fn read(&mut self) -> Result<Reading, LabError> {
        let server = self.cluster.server()?;
        let (cpu_s, bytes) = (server.cpu_seconds(), server.bytes_moved());
        let counted = self.counters.as_mut().and_then(Counters::read);
        let client_cpu_s = client_cpu_s();
        Ok(Reading { cpu_s, bytes, counted, done: self.done(), client_cpu_s, at: Instant::now() })
    }

    /// Ends sessions and server.
    fn end(&mut self) -> Result<(), LabError> {
        self.go_on();
        let ended = self.sessions.take().map_or(Ok(()), Sessions::end);
        self.counters = None;
        ended.and(self.cluster.stop())
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        // Sessions and server end only if the server runs.
        self.go_on();
        drop(self.sessions.take());
    }
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
            slice: Duration::from_millis(plan.required("slice_ms")?),
            settle: Duration::from_millis(plan.required("settle_ms")?),
            cpus: context.cpus.as_deref().map(cpus::parse).unwrap_or_default(),
            arms: BTreeMap::new(),
            guardian: Guardian::start(context)?,
        })
    }

    fn arm(&mut self, id: &str) -> Result<&mut Working, LabError> {
        self.arms.get_mut(id).ok_or_else(|| LabError::Broken {
            what: format!("arm {id}"),
            expected: "a cluster".to_owned(),
            found: "none".to_owned(),
        })
    }

    /// What the sessions of the other arms have done so far.
    fn done_by_others(&self, id: &str) -> u64 {
        self.arms.iter().filter(|(other, _)| *other != id).map(|(_, other)| other.done()).sum()
    }

    /// Whether nothing but this arm has run.
    fn others_stopped(&self, id: &str) -> Result<(), LabError> {
        let others = self.arms.iter().filter(|(other, _)| *other != id);
        let runs = |other: &Working| other.postmaster().is_some_and(|pid| !halt::all_stopped(pid));
        match others.into_iter().find(|(_, other)| runs(other)) {
            None => Ok(()),
            Some((other, _)) => Err(LabError::Broken {
                what: format!("{id}, measured alone"),
                expected: format!("that {other} is stopped"),
                found: "a process of it that runs; something continued it".to_owned(),
            }),
        }
    }

    /// A slice: the part after the settling counts.
    fn slice(&mut self, id: &str, load: Load) -> Result<Observation, LabError> {
        let (slice, settle) = (self.slice, self.settle);
        self.arm(id)?.go_on();
        sleep(settle);
        let others_before = self.done_by_others(id);
        let working = self.arm(id)?;
        let before = working.read()?;
        sleep(slice);
        while working.done() == before.done && before.at.elapsed() < LONGEST {
            if let Some(sessions) = &working.sessions {
                sessions.check()?;
            }
            sleep(Duration::from_millis(1));
        }
        let after = working.read()?;
        let others_work = self.done_by_others(id) - others_before;
        self.others_stopped(id)?;
        let working = self.arm(id)?;
        working.halt()?;
        if let Some(sessions) = &working.sessions {
            sessions.check()?;
        }
        let done = (after.done - before.done) as f64;
        if done == 0.0 {
            return Err(LabError::Broken {
                what: format!("{id}, a slice"),
                expected: "some work within a minute".to_owned(),
                found: "none".to_owned(),
            });
        }
        let wall_s = after.at.duration_since(before.at).as_secs_f64();
        let value = match load {
            Load::Scan => wall_s / done * ROWS_OF_VALUE,
            _ => done / wall_s,
        };
        let mut seen = observed(value, wall_s, done, &before, &after);
        seen.extra.insert("work_of_stopped_arms".to_owned(), others_work as f64);
        let client_cpu_s = (after.client_cpu_s - before.client_cpu_s) / done;
        seen.extra.insert("client_cpu_s_per_op".to_owned(), client_cpu_s);
        Ok(seen)
    }

    /// A whole run; nothing of another arm runs meanwhile.
    fn whole(&mut self, step: &Step<'_>, spec: &Spec) -> Result<Observation, LabError> {
        let tools = self.tools.clone();
        let working = self.arm(&step.arm.id)?;
        working.go_on();
        let lab = working.cluster.target(&tools, DATABASE)?;
        if let Work::Sql { before, .. } = &spec.work
            && !before.is_empty()
        {
            lab.sql(before)?;
        }
        // What other arms left in the kernel's cache is written now, not while this one is
        // measured.
        output_of(&mut Command::new(Path::new("sync")))?;
        let before = working.read()?;
        let outcome = match &spec.work {
            Work::Sql { timed, .. } => working.cluster.target(&tools, DATABASE)?.sql(timed)?,
            Work::Init { scale } => working.cluster.target(&tools, INIT_DATABASE)?.init(*scale)?,
            Work::Backup => {
                let target = working.cluster.target(&tools, DATABASE)?;
                let mut command = target.client("pg_basebackup");
                command.args(["-D", "-", "-F", "t", "-X", "none", "-c", "fast"]);
                target.timed(&mut command)?
            }
            Work::Steady { .. } | Work::Restart { .. } | Work::Recovery { .. } => {
                return Err(not_whole(step.case));
            }
        };
        sleep(AFTER_THE_END);
        let after = working.read()?;
        self.others_stopped(&step.arm.id)?;
        self.arm(&step.arm.id)?.halt()?;
        Ok(observed(outcome.value, outcome.value, 1.0, &before, &after))
    }

    /// Stops or kills the server and starts it again.
    fn start_again(&mut self, id: &str, spec: &Spec) -> Result<Observation, LabError> {
        let tools = self.tools.clone();
        let working = self.arm(id)?;
        working.go_on();
        if let Work::Restart { before } | Work::Recovery { before } = &spec.work
            && !before.is_empty()
        {
            working.cluster.target(&tools, DATABASE)?.sql(before)?;
        }
        output_of(&mut Command::new(Path::new("sync")))?;
        working.counters = None;
        let mut begun = Instant::now();
        if let (Work::Recovery { .. }, Some(server)) = (&spec.work, working.cluster.server.take()) {
            server.kill9()?;
            begun = Instant::now();
        } else {
            working.cluster.stop()?;
        }
        working.cluster.start(&tools, &spec.settings, spec.memory_limit_bytes)?;
        let took_s = begun.elapsed().as_secs_f64();
        let postmaster = working.cluster.server()?.postmaster();
        self.guardian.watch(postmaster)?;
        self.others_stopped(id)?;
        self.arm(id)?.halt()?;
        let mut seen = Observation::of(took_s);
        seen.extra.insert("wall_s_per_op".to_owned(), took_s);
        Ok(seen)
    }

    fn begin_arm(&mut self, id: &str, spec: &Spec) -> Result<(), LabError> {
        let Some(working) = self.arms.get_mut(id) else { return Ok(()) };
        working.cluster.start(&self.tools, &spec.settings, spec.memory_limit_bytes)?;
        let server = working.cluster.server()?;
        self.guardian.watch(server.postmaster())?;
        if let Work::Steady { load, clients } = spec.work {
            // All pages once, into the OS cache and, where they fit, into shared_buffers.
            working.cluster.read_all(&self.tools)?;
            let place = Place {
                socket: server.socket().to_owned(),
                port: server.port(),
                user: SUPERUSER.to_owned(),
                database: DATABASE.to_owned(),
                scale: self.scale,
                cpus: self.cpus.clone(),
            };
            working.sessions = Some(Sessions::start(load, clients, &place)?);
        }
        working.halt()?;
        let processes = working.cluster.server()?.processes();
        working.counters = Counters::open(&processes);
        Ok(())
    }
}

impl Executor for CostExecutor {
    fn begin_case(&mut self, plan: &Plan, case: &Case, say: &dyn Progress) -> Result<(), LabError> {
        let spec = spec_of(case)?;
        for arm in plan.arms_of(case) {
            if !self.arms.contains_key(&arm.id) {
                say.say(&format!("cluster {}: {}", arm.id, arm.title));
                let cluster = ArmCluster::make(&self.tools, &self.root, arm, self.scale)?;
                self.arms
                    .insert(arm.id.clone(), Working { sessions: None, counters: None, cluster });
            }
            self.begin_arm(&arm.id, &spec)?;
        }
        Ok(())
    }

    fn run(&mut self, step: &Step<'_>) -> Result<Observation, LabError> {
        let spec = spec_of(step.case)?;
        // The floor of a sealed arm, while all servers are stopped.
        let suite: Option<String> = step.arm.attribute("suite")?;
        let floor = suite.map(|suite| seconds_per_page(&suite, &self.cpus)).transpose()?.flatten();
        let mut seen = match spec.work {
            Work::Steady { load, .. } => self.slice(&step.arm.id, load)?,
            Work::Restart { .. } | Work::Recovery { .. } => {
                self.start_again(&step.arm.id, &spec)?
            }
            _ => self.whole(step, &spec)?,
        };
        seen.extra.extend(floor.map(|floor| ("cipher_s_per_page".to_owned(), floor)));
        let proof = &self.arm(&step.arm.id)?.cluster.proof;
        seen.facts.insert("storage".to_owned(), proof.clone());
        Ok(seen)
    }

    fn end_case(&mut self, plan: &Plan, case: &Case) -> Result<(), LabError> {
        let mut stopped = Ok(());
        for arm in plan.arms_of(case) {
            if let Some(working) = self.arms.get_mut(&arm.id) {
                // The others are stopped all the same.
                stopped = stopped.and(working.end());
            }
        }
        stopped
    }
}

fn observed(value: f64, wall_s: f64, done: f64, before: &Reading, after: &Reading) -> Observation {
    let mut seen = Observation::of(value);
    seen.extra.insert("server_cpu_s_per_op".to_owned(), (after.cpu_s - before.cpu_s) / done);
    seen.extra.insert("wall_s_per_op".to_owned(), wall_s / done);
    if let (Some(before), Some(after)) = (before.bytes, after.bytes) {
        let bytes = after.saturating_sub(before) as f64 / done;
        seen.extra.insert("file_bytes_per_op".to_owned(), bytes);
    }
    if let (Some(before), Some(after)) = (&before.counted, &after.counted) {
        for ((name, _), (before, after)) in FIGURES.iter().zip(before.iter().zip(after)) {
            // Some virtual machines have counters that never count.
            let counted = after.saturating_sub(*before);
            if counted > 0 {
                seen.extra.insert((*name).to_owned(), counted as f64 / done);
            }
        }
    }
    seen
}

/// Processor time of this process.
fn client_cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn not_whole(case: &Case) -> LabError {
    LabError::Broken {
        what: case.id.clone(),
        expected: "a case of whole runs".to_owned(),
        found: "one of slices".to_owned(),
    }
}
