//! Runs one experiment from the request to the reports.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::context::{Context, ordinary_account};
use crate::environment::Environment;
use crate::error::LabError;
use crate::executor::Progress;
use crate::experiments::Experiment;
use crate::plan::Plan;
use crate::profile::Profile;
use crate::quiet;
use crate::report;
use crate::report::format::{clock, duration};
use crate::results::Results;
use crate::runner::{Limit, Run};

/// How much longer a run takes than its steps: making clusters and loading data.
const WITH_PREPARATION: f64 = 1.25;
/// How long the use of the machine by other programs is looked at before the first step.
const LOOK: Duration = Duration::from_millis(500);

/// The options of a run.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// `tiny`, `quick`, `full`, or a file.
    pub profile: String,
    /// Changes of the profile's parameters, `NAME=VALUE`.
    pub set: Vec<String>,
    /// Rounds, if not the profile's.
    pub rounds: Option<u32>,
    /// Ids of the cases to measure; empty: all.
    pub only: Vec<String>,
    /// Go on with an interrupted run.
    pub resume: bool,
    /// The directory in which `EXPERIMENT` is created for the results.
    pub output: PathBuf,
    /// The directory in which the working directory is created; none: `TMPDIR`, else `/tmp`.
    pub work: Option<PathBuf>,
    /// Directory of the PostgreSQL programs; none: there is no PostgreSQL.
    pub bindir: Option<PathBuf>,
    /// The program `pgseal`.
    pub pgseal: PathBuf,
    /// The program `pgseal-lab`, for child processes.
    pub lab: PathBuf,
    /// `libpgseal.so`; none: `pgseal` finds the library itself.
    pub library: Option<PathBuf>,
    /// `pgseal_guard.so`; none: the server or `pgseal` finds the module itself.
    pub guard: Option<PathBuf>,
    /// CPUs of the measured programs.
    pub cpus: Option<String>,
    /// Wait until other programs leave the machine alone, as long as this at most.
    pub wait_quiet: Option<Duration>,
    /// Time limit of the run; only for experiments with an interleaved plan.
    pub limit: Option<Limit>,
}

/// Runs an experiment and writes its reports after every case.
///
/// # Errors
///
/// Errors of profile, plan, executor and output; the samples taken so far are kept on disk.
pub fn run(
    experiment: &dyn Experiment,
    request: &Request,
    progress: &dyn Progress,
    interrupted: &AtomicBool,
) -> Result<Results, LabError> {
    let profile = profile_of(experiment, request)?;
    if experiment.needs_postgres() && request.bindir.is_none() {
        return Err(LabError::Usage(format!(
            "{}: no PostgreSQL server found; install one, or give its programs' directory with \
             --bindir",
            experiment.name()
        )));
    }
    let account = if experiment.needs_postgres() { ordinary_account()? } else { None };
    let above = request.work.clone().unwrap_or_else(std::env::temp_dir);
    // A short prefix: the path of a socket below this directory must fit into 107 bytes.
    let work = tempfile::Builder::new()
        .prefix("lab-")
        .tempdir_in(&above)
        .map_err(LabError::io(&above, "make the working directory"))?;
    let owned = |path: &Path| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))?;
        account.as_ref().map_or(Ok(()), |to| chown(path, Some(to.uid), Some(to.gid)))
    };
    owned(work.path()).map_err(LabError::io(work.path(), "hand over the working directory"))?;
    if let Some(patience) = request.wait_quiet {
        quiet::wait(patience, progress, interrupted)?;
    }
    let mut environment = Environment::look(work.path(), request.bindir.as_deref());
    environment.others_before = quiet::others(LOOK);
    let plan = plan_of(experiment, request, &profile, &environment)?;
    let output = request.output.join(experiment.name());
    let context = Context {
        bindir: request.bindir.clone().unwrap_or_default(),
        pgseal: request.pgseal.clone(),
        lab: request.lab.clone(),
        library: request.library.clone(),
        guard: request.guard.clone(),
        work_dir: work.path().to_owned(),
        output_dir: output.clone(),
        cpus: request.cpus.clone(),
        account,
    };
    let mut executor = experiment.executor(&plan, &context)?;
    let mut after_case = |dir: &Path, results: &Results| report::write(experiment, dir, results);
    let run = Run {
        plan: &plan,
        environment: &environment,
        command: &command_of(experiment, request),
        output: &output,
        resume: request.resume,
        limit: request.limit,
        progress,
        interrupted,
        after_case: &mut after_case,
    };
    run.walk(&mut *executor)
}

/// About how long an experiment takes, with what has to be made before the first step.
///
/// # Errors
///
/// Errors of profile and plan.
pub fn estimate_s(experiment: &dyn Experiment, request: &Request) -> Result<f64, LabError> {
    let profile = profile_of(experiment, request)?;
    let above = request.work.clone().unwrap_or_else(std::env::temp_dir);
    let machine = Environment::look(&above, None);
    let plan = plan_of(experiment, request, &profile, &machine)?;
    Ok(plan.estimate_s() * WITH_PREPARATION)
}

/// About how long a profile of an experiment takes on two cores; for the help.
pub fn usual_s(experiment: &dyn Experiment, profile: &str) -> Option<f64> {
    let machine = Environment { cpus: 2, memory_bytes: 8 << 30, ..Environment::default() };
    let profile = Profile::load(experiment, profile).ok()?;
    Some(experiment.plan(&profile, &machine).ok()?.estimate_s() * WITH_PREPARATION)
}

/// How far a run over several experiments is.
#[derive(Debug)]
pub struct Course {
    estimates: Vec<f64>,
    done: usize,
    taken_s: f64,
}

impl Course {
    /// At the beginning; with the estimate of each experiment in seconds.
    pub fn new(estimates: &[f64]) -> Course {
        Course { estimates: estimates.to_vec(), done: 0, taken_s: 0.0 }
    }

    /// `2 of 5: tls, about 13 min; all will be done at about 14:32 UTC`.
    pub fn line(&self, name: &str, now_unix_s: u64) -> String {
        let (before, after) = self.estimates.split_at(self.done.min(self.estimates.len()));
        // The experiments so far tell how fast this machine is, unless they were too short for
        // that.
        let estimated: f64 = before.iter().sum();
        let pace = if estimated >= 60.0 { self.taken_s / estimated } else { 1.0 };
        let this = after.first().copied().unwrap_or(0.0) * pace;
        let end = now_unix_s + (after.iter().sum::<f64>() * pace).round() as u64;
        format!(
            "{} of {}: {name}, about {}; all will be done at about {}",
            self.done + 1,
            self.estimates.len(),
            duration(this),
            clock(end)
        )
    }

    /// An experiment is over.
    pub fn done(&mut self, taken_s: f64) {
        self.done += 1;
        self.taken_s += taken_s;
    }
}

/// The profile with the changes of the request.
///
/// # Errors
///
/// Errors of [`Profile::load`] and [`Profile::set`].
pub fn profile_of(experiment: &dyn Experiment, request: &Request) -> Result<Profile, LabError> {
    let mut profile = Profile::load(experiment, &request.profile)?;
    for assignment in &request.set {
        profile.set(assignment)?;
    }
    if let Some(rounds) = request.rounds {
        if rounds == 0 {
            return Err(LabError::Usage("--rounds must be 1 or more".to_owned()));
        }
        profile.rounds = rounds;
    }
    Ok(profile)
}

fn plan_of(
    experiment: &dyn Experiment,
    request: &Request,
    profile: &Profile,
    environment: &Environment,
) -> Result<Plan, LabError> {
    let mut plan = experiment.plan(profile, environment)?;
    if let Some(rounds) = request.rounds {
        for case in &mut plan.cases {
            case.rounds = case.rounds.map(|_| rounds);
        }
    }
    only(&mut plan, &request.only)?;
    Ok(plan)
}

/// Keeps only the cases with these ids; an id that ends in `*` is a prefix.
fn only(plan: &mut Plan, wanted: &[String]) -> Result<(), LabError> {
    if wanted.is_empty() {
        return Ok(());
    }
    let fits = |id: &str, want: &str| match want.strip_suffix('*') {
        Some(begin) => id.starts_with(begin),
        None => id == want,
    };
    if let Some(lost) = wanted.iter().find(|want| !plan.cases.iter().any(|c| fits(&c.id, want))) {
        let ids: Vec<&str> = plan.cases.iter().map(|case| case.id.as_str()).collect();
        return Err(LabError::Usage(format!(
            "--only {lost}: there is no such case; there are: {}",
            ids.join(" ")
        )));
    }
    plan.cases.retain(|case| wanted.iter().any(|want| fits(&case.id, want)));
    Ok(())
}

/// The command line that repeats this measurement.
fn command_of(experiment: &dyn Experiment, request: &Request) -> String {
    let mut words = vec!["pgseal lab".to_owned(), experiment.name().to_owned()];
    words.push(format!("--profile {}", quoted(&request.profile)));
    words.extend(request.rounds.map(|rounds| format!("--rounds {rounds}")));
    if !request.only.is_empty() {
        words.push(format!("--only {}", quoted(&request.only.join(","))));
    }
    words.extend(request.set.iter().map(|set| format!("--set {}", quoted(set))));
    words.extend(request.cpus.iter().map(|cpus| format!("--cpus {}", quoted(cpus))));
    words.join(" ")
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,=:%@+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_over_all_says_where_it_is_and_when_it_ends() {
        let mut course = Course::new(&[120.0, 600.0, 300.0]);
        let noon = 12 * 3600;
        let line = course.line("modes", noon);
        assert_eq!(line, "1 of 3: modes, about 2 min; all will be done at about 12:17 UTC");
        // This machine takes twice as long.
        course.done(240.0);
        let line = course.line("tls", noon + 240);
        assert_eq!(line, "2 of 3: tls, about 20 min; all will be done at about 12:34 UTC");
    }

    #[test]
    fn only_takes_names_and_beginnings_and_refuses_what_is_not_there() {
        let mut plan = crate::mock::plan(3);
        only(&mut plan, &["ra*".to_owned()]).unwrap();
        assert_eq!(plan.cases.iter().map(|c| c.id.as_str()).collect::<Vec<_>>(), ["rate"]);
        let error = only(&mut plan, &["time".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("time") && error.contains("rate"), "{error}");
    }

    #[test]
    fn words_survive_a_shell() {
        assert_eq!(quoted("a-b=1"), "a-b=1");
        assert_eq!(quoted("it's *"), r"'it'\''s *'");
    }
}
