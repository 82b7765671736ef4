//! What `scripts/demo.sh` asks of the lab, through the hidden `pgseal lab child cost`: the data of a
//! TPC-H database, and a quick comparison of two running servers that hold it.

use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::cluster::{Outcome, SUPERUSER, Target, Tools};
use crate::error::LabError;
use crate::stats::{Ratio, SplitMix64, ratio};
use crate::tpch;

const USAGE: &str = "cost: want \"tpch --scale FACTOR\" or \"compare --bindir DIR --plain SOCKET-DIR \
                     --sealed SOCKET-DIR --rounds N\"";

/// The plain server is measured twice in each round: the difference is noise.
const ARMS: [&str; 3] = ["plain", "plain again", "sealed"];
const DATABASE: &str = "demo";

type Sample = fn(&Target<'_>, u64) -> Result<Outcome, LabError>;

/// Name and sample.
const MEASURES: [(&str, Sample); 3] = [
    ("scan of lineitem, time", scan),
    ("pgbench -S, throughput", |target, seed| pgbench(target, seed, &["-S"])),
    ("pgbench TPC-B, throughput", |target, seed| pgbench(target, seed, &[])),
];

/// Runs what the arguments name.
pub fn run(arguments: &[OsString]) -> Result<(), LabError> {
    let usage = || LabError::Usage(USAGE.to_owned());
    let words: Vec<&str> = arguments.iter().filter_map(|word| word.to_str()).collect();
    if words.len() != arguments.len() {
        return Err(usage());
    }
    match words[..] {
        ["tpch", "--scale", scale] => tpch_script(scale.parse().map_err(|_| usage())?),
        [
            "compare",
            "--bindir",
            bindir,
            "--plain",
            plain,
            "--sealed",
            sealed,
            "--rounds",
            rounds,
        ] => {
            let sockets = [plain, plain, sealed].map(PathBuf::from);
            let rounds = rounds.parse().ok().filter(|rounds| *rounds > 0).ok_or_else(usage)?;
            compare(Path::new(bindir), &sockets, rounds)
        }
        _ => Err(usage()),
    }
}

/// A TPC-H database as a script for psql, rows inline; scale 1 is about 1 GB.
fn tpch_script(scale: f64) -> Result<(), LabError> {
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    tpch::write_sql(&mut out, scale)
        .and_then(|()| out.flush())
        .map_err(LabError::io(Path::new("standard output"), "write the script"))
}

/// Compares two running servers that hold the same data.
fn compare(bindir: &Path, sockets: &[PathBuf; 3], rounds: usize) -> Result<(), LabError> {
    let tools = Tools::new(bindir, Path::new(""))?;
    let mut random = SplitMix64(u64::from(std::process::id()));
    let mut lines = format!(
        "{:28} {:>8} {:>18} {:>20}\n",
        "sealed / plain", "ratio", "95 % interval", "plain / plain"
    );
    for (name, sample) in MEASURES {
        let mut samples: [Vec<f64>; ARMS.len()] = Default::default();
        for round in 0..=rounds {
            let mut order = [0, 1, 2];
            random.shuffle(&mut order);
            for arm in order {
                let (tools, user, database) = (&tools, SUPERUSER, DATABASE);
                let target = Target { tools, host: &sockets[arm], port: 5432, database, user };
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
        lines += &format!(
            "{name:28} {:>8.2} {:>18} {:>20}\n",
            cost.value,
            interval(cost),
            interval(noise)
        );
    }
    io::stdout()
        .write_all(lines.as_bytes())
        .map_err(LabError::io(Path::new("standard output"), "write the comparison"))
}

fn scan(target: &Target<'_>, _seed: u64) -> Result<Outcome, LabError> {
    let query = "SELECT sum(l_extendedprice * l_discount) FROM lineitem WHERE l_quantity < 24";
    Ok(target.sql(&[query, query])?)
}

fn pgbench(target: &Target<'_>, seed: u64, more: &[&str]) -> Result<Outcome, LabError> {
    let mut arguments: Vec<String> = more.iter().map(|text| (*text).to_owned()).collect();
    arguments.extend(["-c", "2", "-T", "1"].map(str::to_owned));
    arguments.push(format!("--random-seed={seed}"));
    Ok(target.pgbench(&arguments)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_that_are_not_known_are_refused_with_the_usage() {
        for words in [
            &["tpch"][..],
            &["tpch", "--scale", "much"],
            &["compare", "--bindir", "b", "--plain", "p", "--sealed", "s", "--rounds", "0"],
            &[],
        ] {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            let error = run(&words).unwrap_err().to_string();
            assert!(error.contains("tpch --scale FACTOR"), "{error}");
        }
    }
}
