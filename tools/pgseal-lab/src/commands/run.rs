//! `pgseal-lab EXPERIMENT` and `pgseal-lab all`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pgseal_lab::executor::Stderr;
use pgseal_lab::report::{self, Entry};
use pgseal_lab::results::Because;
use pgseal_lab::session::{self, Course, Request};
use pgseal_lab::{Experiment, LabError, experiments};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use super::blocks::BlockArgs;
use super::programs::{ProgramArgs, Programs};
use super::report::print_entries;
use crate::exit;
use crate::output::complain;

/// How an experiment is run.
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// Short; the same as --profile quick
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
    /// Print every case, what is missing, and all warnings
    #[arg(long, short)]
    verbose: bool,
    /// Wait before each experiment until other programs leave the machine alone; give up after
    /// MINUTES
    #[arg(long, value_name = "MINUTES", num_args = 0..=1, default_missing_value = "60", require_equals = true)]
    wait_quiet: Option<u64>,
    #[command(flatten)]
    programs: ProgramArgs,
    /// Where the throw-away clusters go; default: TMPDIR, else /tmp
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
    /// CPUs of what is measured, as taskset -c takes them
    #[arg(long, value_name = "LIST")]
    cpus: Option<String>,
}

/// The experiment of this name.
///
/// # Errors
///
/// [`LabError::Usage`] if there is none.
pub fn named(name: &str) -> Result<Box<dyn Experiment>, LabError> {
    experiments::named(name)
        .ok_or_else(|| LabError::Usage(format!("{name}: there is no such experiment")))
}

/// `pgseal-lab EXPERIMENT`.
///
/// The exit status says whether the intervals became as narrow as asked.
pub fn one(name: &str, args: &RunArgs, blocks: &BlockArgs) -> Result<u8, LabError> {
    let experiment = named(name)?;
    let interrupted = stop_on_signals()?;
    let mut request = request(args)?;
    blocks.apply(&mut request);
    let entry = measure(&*experiment, &request, &interrupted)?;
    let undecided = entry.results.ends.iter().any(|end| end.because == Because::TimeUp);
    print_entries(&[entry], args.json, args.verbose)?;
    eprintln!("lab: report: {}", args.output.join(name).join(report::HTML).display());
    Ok(if undecided { exit::UNDECIDED } else { exit::SOUND })
}

/// `pgseal-lab all`. If an experiment fails, the command prints the error and measures the others.
pub fn all(args: &RunArgs) -> Result<u8, LabError> {
    let interrupted = stop_on_signals()?;
    let request = request(args)?;
    let mut entries = Vec::new();
    let mut failed = None;
    let experiments = experiments::all();
    let estimates: Vec<f64> = experiments
        .iter()
        .map(|experiment| session::estimate_s(&**experiment, &request))
        .collect::<Result<_, _>>()?;
    let mut course = Course::new(&estimates);
    for experiment in experiments {
        eprintln!("lab: {}", course.line(experiment.name(), now_unix_s()));
        let begin = Instant::now();
        let measured = measure(&*experiment, &request, &interrupted);
        course.done(begin.elapsed().as_secs_f64());
        match measured {
            Ok(entry) => entries.push(entry),
            Err(error @ (LabError::Interrupted { .. } | LabError::Stopped)) => return Err(error),
            Err(error) => {
                complain(&format!("{}: {error}", experiment.name()));
                failed = Some((experiment.name(), exit::code_of(&error)));
            }
        }
        if !entries.is_empty() {
            report::write_summary(&args.output, &entries)?;
        }
    }
    print_entries(&entries, args.json, args.verbose)?;
    if !entries.is_empty() {
        eprintln!("lab: report: {}", args.output.join(report::HTML).display());
    }
    match failed {
        None => Ok(exit::SOUND),
        Some((name, code)) => {
            complain(&format!(
                "{name} failed (see above), the others did not: repair the cause, run \"pgseal lab \
                 {name}\", then \"pgseal lab report\""
            ));
            Ok(code)
        }
    }
}

fn now_unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn request(args: &RunArgs) -> Result<Request, LabError> {
    Ok(Request {
        profile: if args.quick { "quick".to_owned() } else { args.profile.clone() },
        set: args.set.clone(),
        rounds: args.rounds,
        only: args.only.clone(),
        resume: args.resume,
        output: args.output.clone(),
        work: args.work.clone(),
        cpus: args.cpus.clone(),
        wait_quiet: args.wait_quiet.map(|minutes| Duration::from_secs(minutes * 60)),
        ..Programs::find(&args.programs)?.request()
    })
}

fn measure(
    experiment: &dyn Experiment,
    request: &Request,
    interrupted: &AtomicBool,
) -> Result<Entry, LabError> {
    let results = session::run(experiment, request, &Stderr, interrupted)?;
    Entry::of(experiment, results)
}

/// On the first signal the run ends after the current step, stops its servers and removes its
/// files. The second signal ends the program at once.
pub fn stop_on_signals() -> Result<Arc<AtomicBool>, LabError> {
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let code = i32::from(exit::INTERRUPTED);
        flag::register_conditional_shutdown(signal, code, Arc::clone(&interrupted))
            .and_then(|_| flag::register(signal, Arc::clone(&interrupted)))
            .map_err(LabError::io(Path::new("signals"), "set the handlers"))?;
    }
    Ok(interrupted)
}
