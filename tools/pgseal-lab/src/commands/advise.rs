//! `pgseal-lab advise`: recommends settings from measured figures.

use std::path::PathBuf;
use std::time::Duration;

use pgseal_lab::advise::{self, Site};
use pgseal_lab::executor::Stderr;
use pgseal_lab::experiments::modes::Modes;
use pgseal_lab::report::{self, Entry};
use pgseal_lab::runner::Limit;
use pgseal_lab::session::{self, Request};
use pgseal_lab::{Environment, LabError};
use pgseal_tls::settings::{has_aes_instructions, has_ml_kem};

use super::programs::{ProgramArgs, Programs};
use super::run::stop_on_signals;
use crate::exit;
use crate::output::{print, print_json};

const LONG: &str = "\
Recommend settings from what was measured on this machine.

Reads the results of \"pgseal-lab\" below DIR and recommends suite and key length for the instance, \
shared_buffers against the data's size, TLS ciphers, certificate and key-exchange groups, and what to \
seal by column; each with the figures it rests on and what to paste. Where the figures do not decide, \
it says so and names the default.

Without --results it measures the bare ciphers and signatures for half a minute at most. They say nothing about \
queries: \"pgseal-lab all\" does.";

/// Time limit of the measurement. A round that would exceed the limit does not start.
const MEASURE: Duration = Duration::from_secs(30);

const EXAMPLES: &str = "\
Examples:
  pgseal-lab advise
  pgseal-lab all --quick --output ~/lab && pgseal-lab advise --results ~/lab --data-size 20GB";

/// Recommend settings from what was measured on this machine
#[derive(Debug, clap::Args)]
#[command(long_about = LONG, after_help = EXAMPLES)]
pub struct AdviseArgs {
    /// The --output of a run, or one experiment's directory in it
    #[arg(long, value_name = "DIR")]
    results: Option<PathBuf>,
    /// Size of the data in use, or of all data: 800MB, 20GB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    data_size: Option<u64>,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    programs: ProgramArgs,
}

/// Parses a size such as `20GB`. The units are PostgreSQL's, in powers of 1024; no unit: bytes.
fn size(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim() {
        "" | "B" => 0,
        "kB" | "KB" => 10,
        "MB" => 20,
        "GB" => 30,
        "TB" => 40,
        _ => return Err("units are B, kB, MB, GB and TB".to_owned()),
    };
    let number: u64 = number.parse().map_err(|_| "want a number and a unit: 20GB".to_owned())?;
    match number.checked_mul(1 << shift) {
        Some(bytes) if bytes > 0 => Ok(bytes),
        _ => Err("too large, or nothing".to_owned()),
    }
}

pub fn run(args: &AdviseArgs) -> Result<u8, LabError> {
    let programs = Programs::find(&args.programs)?;
    let entries = match &args.results {
        Some(dir) => {
            let read = |dir: PathBuf| Entry::read(&dir);
            report::directories(dir)?.into_iter().map(read).collect::<Result<Vec<_>, _>>()?
        }
        None => vec![measure(&programs)?],
    };
    let site = site(&programs, args.data_size);
    let advice = advise::advise(&entries, &site)?;
    if args.json {
        print_json(&advice)?;
    } else {
        print(advise::text_of(&advice))?;
    }
    Ok(exit::SOUND)
}

/// Measures the bare ciphers and signatures; leaves no files.
fn measure(programs: &Programs) -> Result<Entry, LabError> {
    let limit = Limit::from_now(MEASURE);
    let interrupted = stop_on_signals()?;
    let output = std::env::temp_dir().join(format!("pgseal-advise-{}", std::process::id()));
    let request = Request {
        profile: "advise".to_owned(),
        output: output.clone(),
        limit: Some(limit),
        ..programs.request()
    };
    eprintln!("advise: no --results: measuring the bare ciphers for half a minute at most");
    let results = session::run(&Modes, &request, &Stderr, &interrupted);
    // Removed after an error too: an unfinished measurement is of no use.
    let removed = std::fs::remove_dir_all(&output);
    let results = results?;
    removed.map_err(LabError::io(&output, "remove the results"))?;
    Entry::of(&Modes, results)
}

fn site(programs: &Programs, data_bytes: Option<u64>) -> Site {
    let here = Environment::look(&std::env::temp_dir(), None);
    Site {
        cpu_model: here.cpu_model,
        memory_bytes: here.memory_bytes,
        aes: has_aes_instructions(),
        postgres_major: programs.major(),
        ml_kem: programs.postgres().is_some_and(|path| has_ml_kem(&path).unwrap_or(false)),
        data_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_are_read_as_postgresql_reads_them() {
        assert_eq!(size("20GB"), Ok(20 << 30));
        assert_eq!(size("8192"), Ok(8192));
        assert_eq!(size("64 MB"), Ok(64 << 20));
        for wrong in ["", "GB", "0MB", "20 furlongs", "99999999999TB", "-1GB"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
