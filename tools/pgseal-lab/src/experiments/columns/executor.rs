//! Takes the samples.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::answers::Rows;
use super::load::{Load, Loaded};
use super::place::{Place, Question};
use super::plan::{Parameters, Work};
use super::scenario::{self, Home, Micro};
use super::{database, micro, size};
use crate::cluster::{Cluster, Server, Tools, tools_of};
use crate::context::{Context, output_of};
use crate::error::LabError;
use crate::executor::{Executor, Observation, Progress, Step};
use crate::plan::{Case, Plan};
use crate::tpch::{TABLES, Volume};
use crate::warning::Warning;

/// The client's share of the CPU time from which the client counts as the limit.
const CLIENT_LIMIT: f64 = 0.5;
/// The least CPU seconds for a meaningful share: CPU time is counted in hundredths of a second.
const LEAST_CPU_S: f64 = 1.0;
/// How many tables a warm-up loads: region, nation, supplier.
const WARMUP_TABLES: usize = 3;
/// Looks up an order whose key exists: of every 32 numbers, the first 8 are used (TPC-H, clause
/// 4.2.3).
const LOOKUP: &str = "\
\\set n random(1, :orders - 8)
\\set id (:n / 8) * 32 + :n % 8
SELECT o_totalprice FROM orders WHERE o_orderkey = :id;
";

/// A server and its cluster.
struct Running {
    cluster: Cluster,
    server: Server,
}

/// The executor of this experiment.
pub struct ColumnsExecutor {
    parameters: Parameters,
    tools: Tools,
    root: PathBuf,
    total: Volume,
    /// The key file for sealed columns; none: no scenario needs it.
    column_key: Option<PathBuf>,
    servers: BTreeMap<Home, Running>,
    /// Databases that hold all rows.
    loaded: BTreeSet<String>,
    /// Databases with the table of the microbenchmark.
    filled: BTreeSet<String>,
    /// Answers of the baseline, by case.
    answers: BTreeMap<String, Rows>,
}

impl ColumnsExecutor {
    /// An executor that has not started anything yet.
    ///
    /// # Errors
    ///
    /// [`LabError::Plan`] for a plan of another experiment; other errors if a program or directory
    /// is missing.
    pub fn new(plan: &Plan, context: &Context) -> Result<Self, LabError> {
        let parameters: Parameters = plan.typed_parameters()?;
        let tools = tools_of(context)?;
        let root = context.work_dir.join("columns");
        fs::create_dir_all(&root).map_err(LabError::io(&root, "make the directory"))?;
        tools.give(&root)?;
        let total = Volume::of(parameters.scale);
        let mut seals = false;
        for arm in &plan.arms {
            let id: String = arm.required("scenario")?;
            seals |= scenario::named(&id).is_some_and(|scenario| scenario.needs_column_key());
        }
        let column_key = if seals {
            let key = root.join("column-key");
            output_of(tools.program(&tools.pgseal).args(["key", "new", "-o"]).arg(&key))?;
            Some(key)
        } else {
            None
        };
        Ok(Self {
            parameters,
            tools,
            root,
            total,
            column_key,
            servers: BTreeMap::new(),
            loaded: BTreeSet::new(),
            filled: BTreeSet::new(),
            answers: BTreeMap::new(),
        })
    }

    fn start(&mut self, home: Home) -> Result<(), LabError> {
        if self.servers.contains_key(&home) {
            return Ok(());
        }
        let (name, suite) = match home {
            Home::Plain => ("plain", None),
            Home::Sealed => ("sealed", Some(self.parameters.suite.as_str())),
        };
        let cluster = Cluster::create(&self.tools, &self.root, name, suite)?;
        // Checkpoints are made between the steps, not during them.
        let mut settings = vec!["max_wal_size=64GB".to_owned(), "checkpoint_timeout=1d".to_owned()];
        settings.extend(self.parameters.settings.iter().cloned());
        if let (Home::Plain, Some(key)) = (home, &self.column_key) {
            settings.push(format!("pgseal.provider=file:{}", key.display()));
            settings.push(format!("pgseal.helper={}", self.tools.pgseal.display()));
        }
        let server = cluster.start(&self.tools, &settings)?;
        self.servers.insert(home, Running { cluster, server });
        Ok(())
    }

    fn home(&self, home: Home) -> Result<&Running, LabError> {
        self.servers.get(&home).ok_or_else(|| LabError::Broken {
            what: format!("the server of {home:?}"),
            expected: "running".to_owned(),
            found: "not started".to_owned(),
        })
    }

    fn load(&mut self, at: &Place, copy: bool, warmup: bool) -> Result<Observation, LabError> {
        self.loaded.remove(&at.database);
        let home = self.home(at.scenario.home())?;
        let server = home.server.target(&self.tools, "postgres");
        let target = home.server.target(&self.tools, &at.database);
        database::create(&server, &target, at.scenario.as_ref(), at.keys)?;
        server.session()?.script("CHECKPOINT")?;
        let budget = match at.scenario.id() {
            "pgp" => self.parameters.pgp_budget_s,
            _ => self.parameters.load_budget_s,
        };
        let load = Load {
            scenario: at.scenario.as_ref(),
            scale: self.parameters.scale,
            total: self.total,
            copy,
            bulk_bytes: self.parameters.bulk_bytes,
            budget: Some(Duration::from_secs_f64(budget)),
            tables: if warmup { WARMUP_TABLES } else { TABLES.len() },
        };
        let (server_cpu_s, client_cpu_s) = (home.server.cpu_seconds(), own_cpu_s());
        let mut session = target.session()?;
        let loaded = load.run(&mut session)?;
        let server_cpu_s = home.server.cpu_seconds() - server_cpu_s;
        drop(session);
        let client_cpu_s = own_cpu_s() - client_cpu_s;
        let mut seen = self.observed(&loaded);
        seen.extra.insert("server_cpu_s".to_owned(), server_cpu_s);
        seen.extra.insert("client_cpu_s".to_owned(), client_cpu_s);
        let cpu_s = client_cpu_s + server_cpu_s;
        let client_share = client_cpu_s / cpu_s.max(1e-9);
        if client_share > CLIENT_LIMIT && cpu_s > LEAST_CPU_S && !warmup {
            let (case, arm) = (at.case.clone(), at.arm.clone());
            seen.warnings.push(Warning::ClientBound { case, arm, client_share });
        }
        if loaded.stopped {
            let (case, arm) = (at.case.clone(), at.arm.clone());
            let measured_share = loaded.share(self.total);
            seen.warnings.push(Warning::Extrapolated { case, arm, measured_share });
        } else if !warmup {
            self.finish_load(at, &mut seen)?;
        }
        Ok(seen)
    }

    fn observed(&self, loaded: &Loaded) -> Observation {
        let mut seen = Observation::of(loaded.extrapolated_s(self.total));
        let mut extra = |name: &str, value: f64| seen.extra.insert(name.to_owned(), value);
        extra("measured_s", loaded.seconds);
        extra("measured_share", loaded.share(self.total));
        extra("rows", loaded.volume.rows as f64);
        extra("volume_bytes", loaded.volume.bytes as f64);
        extra("total_volume_bytes", self.total.bytes as f64);
        for (place, seconds) in loaded.twentieths_s.iter().enumerate() {
            extra(&format!("at_{:03}_percent_s", (place + 1) * 5), *seconds);
        }
        seen
    }

    /// Checks the number of rows and prepares the database for queries.
    fn finish_load(&mut self, at: &Place, seen: &mut Observation) -> Result<(), LabError> {
        let home = self.home(at.scenario.home())?;
        let mut session = home.server.target(&self.tools, &at.database).session()?;
        let counts: Vec<_> = TABLES
            .iter()
            .map(|table| format!("(SELECT count(*) FROM data.{})", table.name))
            .collect();
        let answer = session.query(&format!("SELECT {}", counts.join(" + ")))?;
        let rows = answer.rows.trim().to_owned();
        if rows != self.total.rows.to_string() {
            return Err(LabError::Broken {
                what: format!("rows of {}", at.database),
                expected: self.total.rows.to_string(),
                found: rows,
            });
        }
        session.script("VACUUM ANALYZE")?;
        session.script("CHECKPOINT")?;
        seen.facts.insert("rows_counted".to_owned(), rows);
        self.loaded.insert(at.database.clone());
        Ok(())
    }

    /// Loads the database with COPY, without a budget, unless it is loaded already.
    fn ensure(&mut self, at: &Place) -> Result<(), LabError> {
        if self.loaded.contains(&at.database) {
            return Ok(());
        }
        let budget = self.parameters.load_budget_s;
        self.parameters.load_budget_s = f64::from(u32::MAX);
        let loaded = self.load(at, true, false);
        self.parameters.load_budget_s = budget;
        loaded.map(drop)
    }

    fn query(
        &mut self,
        step: &Step<'_>,
        at: &Place,
        query: &Question,
    ) -> Result<Observation, LabError> {
        self.ensure(at)?;
        if !self.answers.contains_key(&at.case) {
            let baseline = step.plan.baseline_of(step.case).unwrap_or(step.arm);
            let first = Place::new(step.case, baseline)?;
            self.ensure(&first)?;
            let (_, rows) = self.ask(&first, query)?;
            self.answers.insert(at.case.clone(), rows);
        }
        let (seconds, rows) = self.ask(at, query)?;
        if let Some(difference) =
            self.answers.get(&at.case).and_then(|first| first.difference(&rows))
        {
            return Err(LabError::Broken {
                what: format!("the answer of {} in {}", at.case, at.arm),
                expected: "the answer of the plain tables".to_owned(),
                found: difference,
            });
        }
        let mut seen = Observation::of(seconds);
        seen.extra.insert("answer_rows".to_owned(), rows.len() as f64);
        seen.facts.insert("answer_sha256".to_owned(), rows.digest());
        Ok(seen)
    }

    /// Runs a query in a new connection, so that all session caches start empty.
    fn ask(&self, at: &Place, query: &Question) -> Result<(f64, Rows), LabError> {
        let home = self.home(at.scenario.home())?;
        let mut session = home.server.target(&self.tools, &at.database).session()?;
        let budget_s = self.parameters.query_budget_s;
        session.script(&format!("SET statement_timeout = {:.0}", budget_s * 1000.0))?;
        for statement in &query.before {
            session.script(statement)?;
        }
        let answer = session.query(&query.select).map_err(|error| {
            let text = error.to_string();
            if text.contains("canceling statement due to statement timeout") {
                return LabError::missing(
                    format!("{} in {}", at.case, at.arm),
                    format!("no answer within the budget of {budget_s} s"),
                    "a larger query_budget_s measures it",
                );
            }
            error.into()
        })?;
        for statement in &query.after {
            session.script(statement)?;
        }
        Ok((answer.seconds, Rows::new(&answer.rows, &query.ordered_by)))
    }

    fn lookup(&mut self, at: &Place) -> Result<Observation, LabError> {
        self.ensure(at)?;
        let home = self.home(at.scenario.home())?;
        let target = home.server.target(&self.tools, &at.database);
        let script = self.root.join("lookup.sql");
        fs::write(&script, LOOKUP).map_err(LabError::io(&script, "write the script"))?;
        self.tools.give(&script)?;
        let orders = target.rows("SELECT count(*) FROM data.orders")?;
        let outcome = target.pgbench(&[
            "-M".to_owned(),
            "prepared".to_owned(),
            "-D".to_owned(),
            format!("orders={}", orders.trim()),
            "-f".to_owned(),
            script.display().to_string(),
            "-T".to_owned(),
            self.parameters.lookup_s.to_string(),
        ])?;
        let mut seen = Observation::of(outcome.value);
        let per_op = outcome.client_cpu_s / outcome.operations.max(1.0);
        seen.extra.insert("client_cpu_s_per_op".to_owned(), per_op);
        Ok(seen)
    }

    fn micro(&mut self, at: &Place, what: usize) -> Result<Observation, LabError> {
        let rows = self.parameters.micro_rows;
        let name = format!("micro_{}", at.database);
        let home = self.home(at.scenario.home())?;
        let target = home.server.target(&self.tools, &name);
        if !self.filled.contains(&name) {
            let server = home.server.target(&self.tools, "postgres");
            database::create(&server, &target, at.scenario.as_ref(), false)?;
            if let Some(sql) = at.scenario.micro() {
                micro::fill(&target, &sql, rows)?;
            }
        }
        let what = Micro::ALL.get(what).copied().unwrap_or(Micro::EncryptInt8);
        let seen = micro::measure(&target, at.scenario.as_ref(), what, rows)?;
        self.filled.insert(name);
        Ok(seen)
    }
}

impl Executor for ColumnsExecutor {
    fn begin_case(&mut self, plan: &Plan, case: &Case, say: &dyn Progress) -> Result<(), LabError> {
        let homes: BTreeSet<Home> = plan
            .arms_of(case)
            .map(|arm| Ok(Place::new(case, arm)?.scenario.home()))
            .collect::<Result<_, LabError>>()?;
        for home in homes {
            if !self.servers.contains_key(&home) {
                say.say(&format!("starting the {home:?} server"));
            }
            self.start(home)?;
        }
        // Drops the databases that no later case needs, to free space.
        let later = plan.cases.iter().skip_while(|other| other.id != case.id);
        let needed = later
            .flat_map(|case| plan.arms_of(case).map(|arm| Ok(Place::new(case, arm)?.database)))
            .collect::<Result<BTreeSet<String>, LabError>>()?;
        for name in self.loaded.clone().difference(&needed) {
            for home in self.servers.values() {
                database::drop(&home.server.target(&self.tools, "postgres"), name)?;
            }
            self.loaded.remove(name);
        }
        Ok(())
    }

    fn run(&mut self, step: &Step<'_>) -> Result<Observation, LabError> {
        let at = Place::new(step.case, step.arm)?;
        match Work::of(step.case)? {
            Work::Load { copy } => self.load(&at, copy, step.warmup),
            Work::Size => {
                self.ensure(&at)?;
                let home = self.home(at.scenario.home())?;
                let target = home.server.target(&self.tools, &at.database);
                size::measure(&target, &home.cluster.data, at.scenario.home() == Home::Sealed)
            }
            Work::Query { number } => {
                let query = Question::of(number, self.parameters.scale)?;
                self.query(step, &at, &query)
            }
            Work::Join => self.query(step, &at, &Question::join()),
            Work::Lookup => self.lookup(&at),
            Work::Micro { what } => self.micro(&at, what),
        }
    }

    fn end_case(&mut self, _plan: &Plan, _case: &Case) -> Result<(), LabError> {
        // The servers keep running for the next case and stop when this executor is dropped.
        Ok(())
    }
}

/// CPU seconds of this process, which generates the rows, and of its ended children such as psql.
fn own_cpu_s() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks = |stat: &str| -> Option<u64> {
        let (_, rest) = stat.rsplit_once(')')?;
        rest.split_ascii_whitespace().skip(11).take(4).map(|field| field.parse::<u64>().ok()).sum()
    };
    ticks(&stat).unwrap_or(0) as f64 / rustix::param::clock_ticks_per_second() as f64
}
