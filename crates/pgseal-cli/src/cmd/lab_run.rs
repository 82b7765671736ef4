//! Running experiments and writing reports.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pgseal_lab::executor::Stderr;
use pgseal_lab::report::{self, Entry};
use pgseal_lab::session::{self, Request};
use pgseal_lab::{Experiment, LabError, experiments, store};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use super::lab::ReportArgs;
use crate::error::CliError;
use crate::out::Out;
use crate::{bindir, exit, library};

/// How an experiment is run.
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// Short: under two minutes on two cores; the same as --profile quick
    #[arg(long, conflicts_with = "profile")]
    quick: bool,
    /// How much is measured: tiny, quick, full, or a file that ends in .toml
    #[arg(long, value_name = "NAME|FILE", default_value = "full")]
    profile: String,
    /// Where the results go
    #[arg(long, short, value_name = "DIR", default_value = "pgseal-lab")]
    output: PathBuf,
    /// Go on with a run that was interrupted
    #[arg(long)]
    resume: bool,
    /// Rounds that count
    #[arg(long, value_name = "N")]
    rounds: Option<u32>,
    /// Only these cases; CASE* for all that begin so
    #[arg(long, value_name = "CASE", value_delimiter = ',')]
    only: Vec<String>,
    /// Change a parameter of the profile
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Print the results and all that follows from them as JSON
    #[arg(long)]
    json: bool,
    /// Directory of the PostgreSQL programs; default: the newest here
    #[arg(long, value_name = "DIR")]
    bindir: Option<PathBuf>,
    /// Where the throw-away clusters go; default: TMPDIR, else /tmp
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
    /// CPUs of what is measured, as taskset -c takes them
    #[arg(long, value_name = "LIST")]
    cpus: Option<String>,
}

/// `pgseal lab EXPERIMENT`.
pub fn one(name: &str, args: &RunArgs) -> Result<u8, CliError> {
    let experiment = experiments::named(name)
        .ok_or_else(|| LabError::Usage(format!("{name}: there is no such experiment")))?;
    let interrupted = stop_on_signals()?;
    let entry = measure(&*experiment, &request(args)?, &interrupted)?;
    print(&[entry], args.json)?;
    eprintln!("lab: report: {}", args.output.join(name).join(report::HTML).display());
    Ok(exit::SOUND)
}

/// `pgseal lab all`: an experiment that fails is told, and the others are measured all the same.
pub fn all(args: &RunArgs) -> Result<u8, CliError> {
    let interrupted = stop_on_signals()?;
    let request = request(args)?;
    let mut entries = Vec::new();
    let mut failed = None;
    for experiment in experiments::all() {
        eprintln!("lab: {}: {}", experiment.name(), experiment.title());
        match measure(&*experiment, &request, &interrupted) {
            Ok(entry) => entries.push(entry),
            Err(error @ CliError::Lab(LabError::Interrupted { .. })) => return Err(error),
            Err(error) => {
                crate::out::complain(&format!("{}: {error}", experiment.name()));
                failed = Some((experiment.name(), exit::code_of(&error)));
            }
        }
        if !entries.is_empty() {
            report::write_summary(&args.output, &entries)?;
        }
    }
    print(&entries, args.json)?;
    if !entries.is_empty() {
        eprintln!("lab: report: {}", args.output.join(report::HTML).display());
    }
    match failed {
        None => Ok(exit::SOUND),
        Some((name, code)) => {
            crate::out::complain(&format!(
                "{name} did not come to its end (see above); the others did: when it is mended, go \
                 on with \"pgseal lab {name}\", then \"pgseal lab report\""
            ));
            Ok(code)
        }
    }
}

/// `pgseal lab report`.
pub fn report(args: &ReportArgs) -> Result<u8, CliError> {
    let mut entries = Vec::new();
    for dir in report::directories(&args.dir)? {
        let entry = Entry::read(&dir)?;
        report::write_entry(&dir, &entry)?;
        entries.push(entry);
    }
    // Of a single experiment's directory there is no page over it.
    let single = args.dir.join(store::RESULTS).exists();
    let summary = if single {
        args.dir.join(report::HTML)
    } else {
        report::write_summary(&args.dir, &entries)?
    };
    print(&entries, args.json)?;
    eprintln!("lab: report: {}", summary.display());
    Ok(exit::SOUND)
}

fn request(args: &RunArgs) -> Result<Request, CliError> {
    let bindir = match &args.bindir {
        Some(dir) => Some(dir.clone()),
        None => bindir::initdb(None).ok().and_then(|path| path.parent().map(Path::to_owned)),
    };
    Ok(Request {
        profile: if args.quick { "quick".to_owned() } else { args.profile.clone() },
        set: args.set.clone(),
        rounds: args.rounds,
        only: args.only.clone(),
        resume: args.resume,
        output: args.output.clone(),
        work: args.work.clone(),
        pgseal: library::program()?,
        // What is missing here is missed, and named, where a cluster is to be sealed.
        library: library::library().ok(),
        guard: guard(bindir.as_deref()),
        bindir,
        cpus: args.cpus.clone(),
        limit: None,
    })
}

/// The guard module, if it is not where the server looks for its modules.
fn guard(bindir: Option<&Path>) -> Option<PathBuf> {
    let dir = bindir?;
    let major = bindir::major_of(&dir.join("initdb")).ok()?;
    let pkglibdir = bindir::ask_pg_config(&dir.join("pg_config"), "--pkglibdir");
    let guard = PathBuf::from(library::guard(&major, pkglibdir.as_deref()).ok()?);
    guard.is_absolute().then_some(guard)
}

fn measure(
    experiment: &dyn Experiment,
    request: &Request,
    interrupted: &AtomicBool,
) -> Result<Entry, CliError> {
    let results = session::run(experiment, request, &Stderr, interrupted)?;
    Ok(Entry::of(experiment, results))
}

/// The first signal ends the run after the step at hand, servers stopped and files removed; the
/// second one ends the program.
pub fn stop_on_signals() -> Result<Arc<AtomicBool>, CliError> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let code = i32::from(exit::INTERRUPTED);
        flag::register_conditional_shutdown(signal, code, Arc::clone(&interrupted))
            .and_then(|_| flag::register(signal, Arc::clone(&interrupted)))
            .map_err(CliError::io(Path::new("signals"), "ask for them"))?;
    }
    Ok(interrupted)
}

fn print(entries: &[Entry], json: bool) -> Result<(), CliError> {
    let mut out = Out::new();
    for entry in entries {
        if json {
            out.write_all(&report::json_of(entry)?)?;
        } else {
            writeln!(out, "{}", report::text_of(entry))?;
        }
    }
    out.flush()?;
    Ok(())
}
