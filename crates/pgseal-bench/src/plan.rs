//! `run`: the whole benchmark, on clusters of its own.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use pgseal_lab::Environment;
use pgseal_lab::cluster::{Cluster, Outcome, SUPERUSER, Server, Tools};
use pgseal_lab::stats::SplitMix64;
use serde::Serialize;

use crate::cases::{CASES, Case, Work};
use crate::error::BenchError;
use crate::report::{AGAIN, Arm, CaseResult, PLAIN, Sample, judge, table};

const DATABASE: &str = "bench";

/// Measure what sealing costs: plain, plain again and sealed clusters, interleaved
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory of the PostgreSQL programs
    #[arg(long)]
    bindir: PathBuf,
    /// The program pgseal
    #[arg(long)]
    pgseal: PathBuf,
    /// An empty directory for the clusters
    #[arg(long)]
    work: PathBuf,
    /// Where the file of results goes
    #[arg(long)]
    output: PathBuf,
    /// Small and short: shows that it runs; its figures mean little
    #[arg(long)]
    quick: bool,
    /// Only these cases
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Suites to measure
    #[arg(long, value_delimiter = ',', default_value = "aes-256-gcm,aes-256-xts")]
    suites: Vec<String>,
    /// Rounds that count; default 11, with --quick 3
    #[arg(long)]
    rounds: Option<usize>,
    /// CPUs of server and client together, as taskset -c takes them; none: not pinned
    #[arg(long)]
    cpus: Option<String>,
    /// Print the results as JSON instead of the table
    #[arg(long)]
    json: bool,
}

/// Sizes.
#[derive(Debug, Clone, Copy, Serialize)]
struct Plan {
    rounds: usize,
    /// pgbench scale of the data; 20 is 2 million rows, about 300 MB.
    scale: u32,
    /// pgbench scale of the case `init`.
    init_scale: u32,
    /// Seconds of a run of pgbench.
    seconds: u32,
}

#[derive(Debug, Serialize)]
struct File<'a> {
    machine: &'a Environment,
    plan: Plan,
    cpus: &'a Option<String>,
    common: [&'static str; 4],
    cases: &'a [CaseResult],
}

const COMMON: [&str; 4] = [
    "data checksums on in every arm",
    "autovacuum=off max_wal_size=8GB checkpoint_timeout=1h jit=off, else initdb's",
    "servers of all arms run, the ones not measured are idle; sync before each run",
    "one run of each arm before the first round, not counted; a random order in each round",
];

const SETTINGS: [&str; 3] = ["max_wal_size=8GB", "checkpoint_timeout=1h", "jit=off"];

struct Running {
    cluster: Cluster,
    server: Server,
}

/// Runs it.
pub fn run(args: &Args) -> Result<(), BenchError> {
    let cpus = args.cpus.as_deref().filter(|cpus| *cpus != "none");
    let tools = Tools::new(&args.bindir, &args.pgseal)?.pinned_to(cpus);
    let cases = chosen(&args.only)?;
    let plan = if args.quick {
        Plan { rounds: args.rounds.unwrap_or(3), scale: 2, init_scale: 1, seconds: 1 }
    } else {
        Plan { rounds: args.rounds.unwrap_or(11), scale: 20, init_scale: 10, seconds: 5 }
    };
    let machine = Environment::look(&args.work, Some(&tools.bindir));
    let name = format!("bench-{}.json", machine.time_unix_s);
    fs::create_dir_all(&args.output).map_err(BenchError::io(&args.output))?;
    let path = args.output.join(name);

    let mut clusters = Vec::new();
    for (name, suite) in [(PLAIN, None), (AGAIN, None)]
        .into_iter()
        .chain(args.suites.iter().map(|suite| (suite.as_str(), Some(suite.as_str()))))
    {
        eprintln!("bench: cluster {name}");
        let cluster = Cluster::create(&tools, &args.work, name, suite)?;
        let server = cluster.start(&tools, &SETTINGS)?;
        let make = [format!("CREATE DATABASE {DATABASE}"), "CREATE DATABASE init".to_owned()];
        server.target(&tools, SUPERUSER).sql(&make)?;
        server.target(&tools, DATABASE).init(plan.scale)?;
        server.stop()?;
        clusters.push(cluster);
    }
    let mut results = Vec::new();
    let mut random = SplitMix64(machine.time_unix_s);
    for case in cases {
        let mut running = Vec::new();
        for cluster in clusters {
            let settings: Vec<_> = SETTINGS.iter().chain(case.settings).copied().collect();
            let server = cluster.start(&tools, &settings)?;
            running.push(Running { cluster, server });
        }
        results.push(measure(&tools, case, plan, &running, &mut random)?);
        clusters = running.into_iter().map(|running| running.cluster).collect();
        // After each case, so that an interrupted run leaves what it has.
        let file =
            File { machine: &machine, plan, cpus: &tools.cpus, common: COMMON, cases: &results };
        let text = serde_json::to_vec_pretty(&file).unwrap_or_default();
        fs::write(&path, text).map_err(BenchError::io(&path))?;
    }
    if args.json {
        print!("{}", fs::read_to_string(&path).map_err(BenchError::io(&path))?);
    } else {
        print_machine(&machine, plan, &tools);
        print!("{}", table(&results));
    }
    eprintln!("bench: raw samples in {}", path.display());
    Ok(())
}

fn chosen(only: &[String]) -> Result<Vec<&'static Case>, BenchError> {
    if let Some(name) = only.iter().find(|name| CASES.iter().all(|case| case.name != **name)) {
        let names: Vec<_> = CASES.iter().map(|case| case.name).collect();
        let names = names.join(" ");
        return Err(BenchError::Usage(format!("no case '{name}'; there are: {names}")));
    }
    let wanted = |case: &&Case| only.is_empty() || only.iter().any(|name| name == case.name);
    Ok(CASES.iter().filter(wanted).collect())
}

fn measure(
    tools: &Tools,
    case: &Case,
    plan: Plan,
    running: &[Running],
    random: &mut SplitMix64,
) -> Result<CaseResult, BenchError> {
    let mut arms: Vec<Arm> = running
        .iter()
        .map(|running| Arm { name: running.cluster.name.clone(), samples: Vec::new() })
        .collect();
    for round in 0..=plan.rounds {
        eprintln!(
            "bench: {}: {}",
            case.name,
            match round {
                0 => "warm-up".to_owned(),
                round => format!("round {round} of {}", plan.rounds),
            }
        );
        let mut order: Vec<usize> = (0..running.len()).collect();
        random.shuffle(&mut order);
        for (place, at) in order.into_iter().enumerate() {
            let (Some(one), Some(arm)) = (running.get(at), arms.get_mut(at)) else { continue };
            let (outcome, cpu_seconds) = sample(tools, case, plan, one, round)?;
            if let Some(round) = round.checked_sub(1) {
                arm.samples.push(Sample {
                    round,
                    place,
                    value: outcome.value,
                    cpu_seconds_per_operation: cpu_seconds / outcome.operations.max(1.0),
                });
            }
        }
    }
    Ok(judge(case, arms))
}

/// One sample and the CPU seconds that the server used for it.
fn sample(
    tools: &Tools,
    case: &Case,
    plan: Plan,
    running: &Running,
    round: usize,
) -> Result<(Outcome, f64), BenchError> {
    let bench = running.server.target(tools, DATABASE);
    if let Work::Sql(before, _) = case.work
        && !before.is_empty()
    {
        bench.sql(before)?;
    }
    if round == 0 && matches!(case.work, Work::Pgbench(_)) {
        // All pages once, into the OS cache and, where they fit, into shared_buffers.
        bench.sql(&[
            "SELECT sum(abalance) FROM (SELECT * FROM pgbench_accounts ORDER BY aid) all_rows",
        ])?;
    }
    settle()?;
    let before = running.server.cpu_seconds();
    let outcome = match case.work {
        Work::Sql(_, timed) => bench.sql(timed)?,
        Work::Init => running.server.target(tools, "init").init(plan.init_scale)?,
        Work::Pgbench(arguments) => {
            let mut arguments: Vec<String> = arguments.iter().copied().map(str::to_owned).collect();
            // The same keys in every arm of a round.
            arguments.push(format!("--random-seed={}", round + 1));
            arguments.push(format!("--time={}", plan.seconds));
            bench.pgbench(&arguments)?
        }
    };
    // A backend's time counts as the postmaster's child's once it has been waited for.
    std::thread::sleep(std::time::Duration::from_millis(50));
    Ok((outcome, running.server.cpu_seconds() - before))
}

/// Has the kernel write what others left in its cache: it would do so while this one is measured.
fn settle() -> Result<(), BenchError> {
    let program = Path::new("sync");
    let done = Command::new(program).status().map_err(BenchError::io(program))?;
    if done.success() {
        Ok(())
    } else {
        Err(BenchError::io(program)(io::Error::other(done.to_string())))
    }
}

fn print_machine(machine: &Environment, plan: Plan, tools: &Tools) {
    println!("{}, {} CPUs ({})", machine.cpu_model, machine.cpus, machine.cpu_flags.join(" "));
    println!("{}; {}; {}", machine.kernel, machine.file_system, machine.postgresql.join(", "));
    let cpus = tools.cpus.as_ref().map_or("not pinned".to_owned(), |cpus| format!("CPU {cpus}"));
    println!(
        "pgbench scale {}, {} rounds, server and client: {cpus}; load before {}\n",
        plan.scale, plan.rounds, machine.load_before
    );
}
