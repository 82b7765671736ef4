//! `cost`: a quick comparison of two running servers, one plain and one sealed, for the demo.

use std::path::{Path, PathBuf};

use pgseal_lab::LabError;
use pgseal_lab::cluster::{Outcome, SUPERUSER, Target, Tools};
use pgseal_lab::stats::{Ratio, SplitMix64, ratio};

use crate::error::BenchError;

/// Compare two running servers that hold the same data
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory of the PostgreSQL programs
    #[arg(long)]
    bindir: PathBuf,
    /// Socket directory of the plain server
    #[arg(long)]
    plain: PathBuf,
    /// Socket directory of the sealed server
    #[arg(long)]
    sealed: PathBuf,
    /// Database, with the tables of pgbench and TPC-H
    #[arg(long, default_value = "demo")]
    database: String,
    /// Role that connects
    #[arg(long, default_value = SUPERUSER)]
    user: String,
    /// Rounds
    #[arg(long, default_value_t = 7)]
    rounds: usize,
}

/// The plain server is measured twice in each round: the difference is noise.
const ARMS: [&str; 3] = ["plain", "plain again", "sealed"];

type Sample = fn(&Target<'_>, u64) -> Result<Outcome, LabError>;

/// Name and sample.
const MEASURES: [(&str, Sample); 3] = [
    ("scan of lineitem, time", scan),
    ("pgbench -S, throughput", |target, seed| pgbench(target, seed, &["-S"])),
    ("pgbench TPC-B, throughput", |target, seed| pgbench(target, seed, &[])),
];

/// Runs it.
pub fn run(args: &Args) -> Result<(), BenchError> {
    let tools = Tools::new(&args.bindir, Path::new(""))?;
    let mut random = SplitMix64(u64::from(std::process::id()));
    println!(
        "{:28} {:>8} {:>18} {:>20}",
        "sealed / plain", "ratio", "95 % interval", "plain / plain"
    );
    for (name, sample) in MEASURES {
        let mut samples: [Vec<f64>; 3] = Default::default();
        for round in 0..=args.rounds {
            let mut order = [0, 1, 2];
            random.shuffle(&mut order);
            for arm in order {
                let socket = if ARMS[arm] == "sealed" { &args.sealed } else { &args.plain };
                let target = Target {
                    tools: &tools,
                    host: socket,
                    port: 5432,
                    database: &args.database,
                    user: &args.user,
                };
                let outcome = sample(&target, round as u64 + 1)?;
                // The first round warms the caches.
                if round > 0 {
                    samples[arm].push(outcome.value);
                }
            }
        }
        let [plain, again, sealed] = &samples;
        let (cost, noise) = (ratio(sealed, plain), ratio(again, plain));
        let interval = |r: Ratio| format!("{:.2} to {:.2}", r.low, r.high);
        println!("{name:28} {:>8.2} {:>18} {:>20}", cost.value, interval(cost), interval(noise));
    }
    Ok(())
}

fn scan(target: &Target<'_>, _seed: u64) -> Result<Outcome, LabError> {
    let query = "SELECT sum(l_extendedprice * l_discount) FROM lineitem WHERE l_quantity < 24";
    target.sql(&[query.to_owned(), query.to_owned()])
}

fn pgbench(target: &Target<'_>, seed: u64, more: &[&str]) -> Result<Outcome, LabError> {
    let mut arguments: Vec<String> = more.iter().map(|text| (*text).to_owned()).collect();
    arguments.extend(["-c", "2", "-T", "1"].map(str::to_owned));
    arguments.push(format!("--random-seed={seed}"));
    target.pgbench(&arguments)
}
