//! Takes the samples.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use super::arms::Wanted;
use super::client::{Bench, Running};
use super::cpus::{self, Shares};
use super::ground::Ground;
use super::plan::Work;
use super::proof;
use crate::cluster::{Server, Target, Tools, free_port, tools_of};
use crate::context::Context;
use crate::error::LabError;
use crate::executor::{Executor, Observation, Progress, Step};
use crate::plan::{Case, Plan};
use crate::warning::Warning;

/// From this CPU usage on (out of 1) a side counts as the limit.
const BUSY: f64 = 0.9;
/// How often pgbench is run until one of its connections is seen.
const ATTEMPTS: u32 = 10;

/// Runs pgbench.
#[derive(Debug)]
pub struct Runs {
    server_tools: Tools,
    client_tools: Tools,
    shares: Shares,
    work_dir: PathBuf,
    rows: u32,
    threads: u32,
    clients: u32,
    pgbench: Vec<String>,
    ground: Option<Ground>,
    warned: BTreeSet<(String, String)>,
}

impl Runs {
    /// The runs of a plan.
    ///
    /// # Errors
    /// When a program of PostgreSQL is missing.
    pub fn new(plan: &Plan, context: &Context) -> Result<Self, LabError> {
        let tools = tools_of(context)?;
        let shares = Shares::of(context.cpus.as_deref());
        Ok(Self {
            server_tools: tools.clone().pinned_to(cpus::list(&shares.server).as_deref()),
            client_tools: tools.pinned_to(cpus::list(&shares.client).as_deref()),
            shares,
            work_dir: context.work_dir.clone(),
            rows: plan.required("rows")?,
            threads: plan.required("threads")?,
            clients: plan.required("clients")?,
            pgbench: plan.required("pgbench")?,
            ground: None,
            warned: BTreeSet::new(),
        })
    }

    fn script_file(&self, case: &Case) -> PathBuf {
        self.work_dir.join(format!("{}.sql", case.id))
    }

    /// Runs pgbench over TCP and checks meanwhile what was negotiated. A run in which no connection
    /// was seen, because it was short or the machine stalled, is discarded and repeated.
    fn bench(
        &self,
        step: &Step<'_>,
        server: &Server,
        wanted: Option<&Wanted>,
    ) -> Result<(Bench, BTreeMap<String, String>), LabError> {
        let what = format!("{}, {}", step.case.id, step.arm.id);
        for _ in 0..ATTEMPTS {
            if let (bench, Some(facts)) = self.bench_once(step, server, wanted, &what)? {
                return Ok((bench, facts));
            }
        }
        Err(LabError::Broken {
            what: format!("{what}: pg_stat_ssl"),
            expected: "connections of pgbench".to_owned(),
            found: format!("none in {ATTEMPTS} runs: they were too short"),
        })
    }

    fn bench_once(
        &self,
        step: &Step<'_>,
        server: &Server,
        wanted: Option<&Wanted>,
        what: &str,
    ) -> Result<(Bench, Option<BTreeMap<String, String>>), LabError> {
        let tcp = Target {
            tools: &self.client_tools,
            host: "127.0.0.1".as_ref(),
            port: server.port(),
            database: "postgres",
            user: crate::cluster::SUPERUSER,
        };
        let mode = if wanted.is_some() { "require" } else { "disable" };
        let mut command = tcp.client("pgbench");
        command.env("PGSSLMODE", mode).env("PGGSSENCMODE", "disable").arg("-n");
        command.arg("-f").arg(self.script_file(step.case)).args(&self.pgbench);
        let connect = step.case.required::<Work>("work")?.connect;
        if connect {
            command.arg("-C");
        }
        command.arg("postgres");
        let mut running = Running::start(&mut command, server.cpu_seconds())?;
        let socket = server.target(&self.client_tools, "postgres");
        let mut facts: Option<BTreeMap<String, String>> = None;
        let mut wait = Duration::from_millis(30);
        loop {
            sleep(wait);
            if !running.runs() {
                break;
            }
            facts = proof::seen(&socket, wanted, what)?.or(facts);
            let seen = facts.as_ref().and_then(|facts| facts.get("connections_seen"));
            let seen = seen.and_then(|seen| seen.parse::<u32>().ok()).unwrap_or(0);
            if connect && seen > 0 {
                break;
            }
            if !connect && seen >= self.clients {
                // All clients have connected: from here on CPU time is that of the queries only.
                running.mark(server.cpu_seconds());
                break;
            }
            wait = Duration::from_millis(100);
        }
        let bench =
            running.finish(|| server.cpu_seconds()).map_err(|error| not_shared(error, wanted))?;
        Ok((bench, facts))
    }

    /// The warning that the client was the limit, once per case and arm.
    fn client_bound(&mut self, step: &Step<'_>, busy: &Busy) -> Option<Warning> {
        let is = busy.client >= BUSY && busy.server < BUSY;
        let id = (step.case.id.clone(), step.arm.id.clone());
        (is && !step.warmup && self.warned.insert(id)).then(|| Warning::ClientBound {
            case: step.case.id.clone(),
            arm: step.arm.id.clone(),
            client_share: busy.client_share,
        })
    }
}

/// Turns a failed handshake into `Missing`: the client's OpenSSL lacks what the arm needs.
fn not_shared(error: LabError, wanted: Option<&Wanted>) -> LabError {
    match (error, wanted) {
        (LabError::Program { said, .. }, Some(wanted)) if said.contains("SSL error") => {
            LabError::missing(
                format!("{}, {}", wanted.suite, wanted.group),
                format!("the client says: {said}"),
                "the OpenSSL of the client does not have it",
            )
        }
        (error, _) => error,
    }
}

/// The CPU usage of both sides, out of 1.
struct Busy {
    client: f64,
    server: f64,
    client_share: f64,
}

impl Busy {
    fn of(runs: &Runs, bench: &Bench) -> Self {
        let client_cpus = runs.shares.client.len().max(1).min(runs.threads as usize);
        let server_cpus = runs.shares.server.len().max(1);
        let (client, server) = (bench.client_cpu_s_per_op, bench.server_cpu_s_per_op);
        Self {
            client: client * bench.tps / client_cpus as f64,
            server: server * bench.tps / server_cpus as f64,
            client_share: client / (client + server),
        }
    }
}

impl Executor for Runs {
    fn begin_case(&mut self, _: &Plan, case: &Case, say: &dyn Progress) -> Result<(), LabError> {
        if self.ground.is_none() {
            if !self.shares.apart() {
                say.say("one CPU: server and client share it");
            }
            say.say(&format!("loading {} rows", self.rows));
            let port = free_port()?;
            let root = &self.work_dir;
            self.ground = Some(Ground::create(&self.server_tools, root, port, self.rows)?);
        }
        let work: Work = case.required("work")?;
        let path = self.script_file(case);
        fs::write(&path, work.script).map_err(LabError::io(&path, "write the script"))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644))
            .map_err(LabError::io(&path, "set the mode of the script"))
    }

    fn run(&mut self, step: &Step<'_>) -> Result<Observation, LabError> {
        let wanted = Wanted::of(step.arm)?;
        let Some(ground) = &self.ground else {
            return Err(LabError::Usage(format!("case {} was not begun", step.case.id)));
        };
        let server = ground.start(&self.server_tools, wanted.as_ref())?;
        let what = format!("{}, {}", step.case.id, step.arm.id);
        let offers = match &wanted {
            Some(wanted) => {
                let socket = server.target(&self.client_tools, "postgres");
                proof::offers(&socket, ground.port(), wanted, &what)?
            }
            None => BTreeMap::new(),
        };
        let (bench, mut facts) = self.bench(step, &server, wanted.as_ref())?;
        server.stop()?;
        facts.extend(offers);
        facts.insert("cpus_server".to_owned(), cpus::list(&self.shares.server).unwrap_or_default());
        facts.insert("cpus_client".to_owned(), cpus::list(&self.shares.client).unwrap_or_default());
        let busy = Busy::of(self, &bench);
        let extra = [
            ("client_cpu_s_per_op", bench.client_cpu_s_per_op),
            ("server_cpu_s_per_op", bench.server_cpu_s_per_op),
            ("client_busy_share", busy.client),
            ("server_busy_share", busy.server),
        ];
        Ok(Observation {
            value: bench.tps,
            extra: extra.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            facts,
            warnings: self.client_bound(step, &busy).into_iter().collect(),
        })
    }

    fn end_case(&mut self, _: &Plan, _: &Case) -> Result<(), LabError> {
        Ok(())
    }
}
