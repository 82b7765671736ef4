//! `pgseal advise`: settings, from what was measured.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pgseal_lab::advise::{self, Site};
use pgseal_lab::executor::Stderr;
use pgseal_lab::experiments::modes::Modes;
use pgseal_lab::report::{self, Entry};
use pgseal_lab::runner::Limit;
use pgseal_lab::session::{self, Request};
use pgseal_lab::{Environment, LabError};
use pgseal_tls::settings::{has_aes_instructions, has_ml_kem};

use super::lab_run::stop_on_signals;
use crate::error::CliError;
use crate::out::Out;
use crate::{bindir, exit, library};

const LONG: &str = "\
Recommend settings from what was measured on this machine.

Reads the results of \"pgseal lab\" below DIR and recommends suite and key length for the instance, \
shared_buffers against the data's size, TLS ciphers, certificate and key-exchange groups, and what to \
seal by column; each with the figures it rests on and what to paste. Where the figures do not decide, \
it says so and names the default.

Without --results it measures the bare ciphers and signatures for half a minute at most. They say nothing about \
queries: \"pgseal lab all\" does.";

/// No round begins that would not be over by then.
const MEASURE: Duration = Duration::from_secs(30);

const EXAMPLES: &str = "\
Examples:
  pgseal advise
  pgseal lab all --quick --output ~/lab && pgseal advise --results ~/lab --data-size 20GB";

/// Recommend settings from what was measured on this machine
#[derive(Debug, clap::Args)]
#[command(long_about = LONG, after_help = EXAMPLES)]
pub struct Args {
    /// The --output of "pgseal lab", or one experiment's directory in it
    #[arg(long, value_name = "DIR")]
    results: Option<PathBuf>,
    /// Size of the data in use, or of all data: 800MB, 20GB
    #[arg(long, value_name = "SIZE", value_parser = size)]
    data_size: Option<u64>,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
    /// Directory of the PostgreSQL programs; default: the newest here
    #[arg(long, value_name = "DIR")]
    bindir: Option<PathBuf>,
}

/// `20GB` in bytes: PostgreSQL's units, in powers of 1024; none: bytes.
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

/// Runs it.
pub fn run(args: &Args) -> Result<u8, CliError> {
    let postgres = postgres(args.bindir.as_deref())?;
    let entries = match &args.results {
        Some(dir) => {
            let read = |dir: PathBuf| Entry::read(&dir);
            report::directories(dir)?.into_iter().map(read).collect::<Result<Vec<_>, _>>()?
        }
        None => vec![measure(postgres.as_deref())?],
    };
    let site = site(postgres.as_deref(), args.data_size);
    let advice = advise::advise(&entries, &site);
    let mut out = Out::new();
    if args.json {
        out.json(&advice)?;
    } else {
        out.write_all(advise::text_of(&advice).as_bytes())?;
    }
    out.flush()?;
    Ok(exit::SOUND)
}

/// The server, if there is one; one that was asked for must be there.
fn postgres(dir: Option<&Path>) -> Result<Option<PathBuf>, CliError> {
    match dir {
        Some(dir) => bindir::find(dir.join("postgres").as_os_str(), None).map(Some),
        None => Ok(bindir::find(OsStr::new("postgres"), None).ok()),
    }
}

/// The bare ciphers and signatures; nothing is kept.
fn measure(postgres: Option<&Path>) -> Result<Entry, CliError> {
    let limit = Limit::from_now(MEASURE);
    let interrupted = stop_on_signals()?;
    let output = std::env::temp_dir().join(format!("pgseal-advise-{}", std::process::id()));
    let request = Request {
        profile: "advise".to_owned(),
        output: output.clone(),
        bindir: postgres.and_then(Path::parent).map(Path::to_owned),
        pgseal: library::program()?,
        limit: Some(limit),
        ..Request::default()
    };
    eprintln!("advise: no --results: measuring the bare ciphers for half a minute at most");
    let results = session::run(&Modes, &request, &Stderr, &interrupted);
    // Also after an error: there is nothing in it that is not in the results.
    let removed = std::fs::remove_dir_all(&output);
    let results = results?;
    removed.map_err(LabError::io(&output, "remove the results"))?;
    Ok(Entry::of(&Modes, results))
}

fn site(postgres: Option<&Path>, data_bytes: Option<u64>) -> Site {
    let here = Environment::look(&std::env::temp_dir(), None);
    let major = postgres.and_then(|program| bindir::major_of(program).ok());
    Site {
        cpu_model: here.cpu_model,
        memory_bytes: here.memory_bytes,
        aes: has_aes_instructions(),
        postgres_major: major.and_then(|major| major.parse().ok()),
        ml_kem: postgres.and_then(has_ml_kem).unwrap_or(false),
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
