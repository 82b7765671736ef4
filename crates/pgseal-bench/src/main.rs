//! Helper of `scripts/demo.sh` and `scripts/bench.sh`: test data, and what sealing costs.
#![forbid(unsafe_code)]

mod cases;
mod cost;
mod error;
mod plan;
mod report;

use std::io::{self, BufWriter};
use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use pgseal_lab::tpch;

use crate::error::BenchError;

#[derive(Debug, Parser)]
#[command(name = "pgseal-bench", version, about = "Test data, and what sealing costs")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write a TPC-H database as a script for psql, rows inline
    Tpch {
        /// Scale factor; 1 is about 1 GB
        #[arg(long, default_value_t = 0.01)]
        scale: f64,
    },
    Cost(cost::Args),
    Run(plan::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Tpch { scale } => {
            let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
            tpch::write_sql(&mut out, scale)
                .and_then(|()| io::Write::flush(&mut out))
                .map_err(BenchError::io(Path::new("standard output")))
        }
        Command::Cost(args) => cost::run(&args),
        Command::Run(args) => plan::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pgseal-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
