//! One run of a conversion, and its options: checks, barrier, conversion of the files, end.

use std::io;
use std::path::PathBuf;
use std::thread;
use std::time::Instant;

use indicatif::ProgressBar;
use pgseal_convert::engine::{self, Job};
use pgseal_convert::plan::Plan;
use pgseal_convert::{Control, Disk, Facts, Journal, Operation, Outcome, Phase, Target, barrier};
use pgseal_core::{KeySet, Suite};
use pgseal_keys::{Keyring, keyring_path};

use super::cluster::{self, Cluster};
use super::report::{Report, Verdict};
use super::{files, keyring};
use crate::datadir::DataDir;
use crate::error::CliError;
use crate::given_dir::GivenDir;
use crate::locks::{OwnLock, ServerLock};
use crate::manifest::{self, Known};
use crate::out::Out;
use crate::scan::{self, Root};
use crate::{bindir, guard_conf, keys, library, out, rewrite, small_file};

/// The options of all conversions.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    pub dir: GivenDir,
    /// Only check whether it can be done, every page included; change nothing
    #[arg(long, conflicts_with = "skip_check")]
    pub check: bool,
    /// Do not read everything before the first change. Damage that is met on the way is reported
    /// at the end (exit status 1)
    #[arg(long)]
    pub skip_check: bool,
    /// Go on although pages are damaged. They stay pages that PostgreSQL reports as damaged
    #[arg(long)]
    pub keep_damaged: bool,
    /// Threads; default: one for each processor
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub jobs: Option<u16>,
    /// Where the programs of PostgreSQL are, if not in PATH or where Debian has them
    #[arg(long, value_name = "DIR")]
    pub bindir: Option<PathBuf>,
    /// The server's postgresql.conf, if it is neither in the data directory nor where Debian has it
    #[arg(long, value_name = "FILE")]
    pub config_file: Option<PathBuf>,
    /// Print errors only
    #[arg(short, long)]
    pub quiet: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// One run of a conversion.
pub struct Run<'a> {
    /// Its options.
    pub options: &'a Options,
    /// The data directory.
    pub dir: DataDir,
    /// The report, which is printed at the end.
    pub report: Report,
    operation: Operation,
    control: Control,
    _lock: OwnLock,
}

impl<'a> Run<'a> {
    /// Locks and opens the data directory. If an earlier run was interrupted before its first file,
    /// its changes are undone.
    pub fn open(options: &'a Options, operation: Operation) -> Result<Run<'a>, CliError> {
        let given = options.dir.path(operation.name())?;
        let root = std::path::absolute(&given).map_err(CliError::io(&given, "resolve the path"))?;
        let mut dir = DataDir::open(&root)?;
        let lock = OwnLock::take(&root)?;
        // Open it again: another run may have ended between the first opening and the lock.
        dir = DataDir::open(&dir.root)?;
        let control = Control::default();
        for signal in
            [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP]
        {
            signal_hook::flag::register(signal, control.flag())?;
        }
        if let Some(journal) = dir.conversion.take_if(|journal| journal.phase == Phase::Prepare) {
            if options.check {
                let command = journal.operation.name();
                return Err(CliError::Unfinished { path: root, command });
            }
            keyring::undo_keyring(&root, &journal)?;
            barrier::undo(&Disk, &root, &journal, &control)?;
        }
        let shown = dir.root.display().to_string();
        let report = Report::new(operation.name(), shown, options.check);
        Ok(Run { options, dir, report, operation, control, _lock: lock })
    }

    /// The interrupted conversion to resume, if there is one. `takes_over` says which other
    /// operations this one may take over.
    pub fn unfinished(
        &mut self,
        takes_over: impl Fn(Operation) -> bool,
    ) -> Result<Option<Journal>, CliError> {
        let Some(journal) = self.dir.conversion.clone() else { return Ok(None) };
        let same = journal.operation == self.operation;
        if !same && (journal.phase == Phase::Finish || !takes_over(journal.operation)) {
            self.dir.expect_whole()?;
        }
        if self.options.check {
            return Err(CliError::Unfinished {
                path: self.dir.root.clone(),
                command: journal.operation.name(),
            });
        }
        self.report.resumed = true;
        Ok(Some(journal))
    }

    /// Refuses to resume with another suite than that of the interrupted conversion.
    pub fn expect_suite(&self, journal: &Journal, asked: Option<Suite>) -> Result<(), CliError> {
        match (asked, journal.suite()) {
            (Some(asked), Some(begun)) if asked != begun => Err(CliError::Usage(format!(
                "{}: it was begun with --suite {begun}; finish it so, then change it with: pgseal \
                 rekey --suite {asked} DIR",
                self.operation.name()
            ))),
            _ => Ok(()),
        }
    }

    /// The keyring, unlocked.
    pub fn unlock(&self, provider: Option<&str>) -> Result<(Keyring, KeySet), CliError> {
        let keyring = Keyring::load(&keyring_path(&self.dir.root))?;
        let keys = keyring.unlock(&keys::kek(&keyring, provider)?)?;
        Ok((keyring, keys))
    }

    fn jobs(&self) -> usize {
        let all = || thread::available_parallelism().map_or(1, usize::from);
        self.options.jobs.map_or_else(all, usize::from)
    }

    /// Starts a conversion. `make_keys` is called after all checks have passed; it makes or changes
    /// the keyring and returns the keys and the target of the new files. Returns an exit status if
    /// the run ends here, else `None`.
    pub fn begin(
        &mut self,
        suite: Option<Suite>,
        keys: &KeySet,
        target: Target,
        make_keys: impl FnOnce() -> Result<(KeySet, Target), CliError>,
    ) -> Result<Option<u8>, CliError> {
        let options = self.options;
        if self.operation != Operation::Rekey {
            // This file is changed in the last step: find out now whether that is possible.
            guard_conf::sets_preload(&self.dir.root.join("postgresql.auto.conf"))?;
        }
        let cluster = cluster::check(
            &mut self.report,
            &self.dir,
            self.operation,
            suite,
            options.bindir.as_deref(),
            options.config_file.as_deref(),
        )?;
        if self.operation != Operation::Rekey
            && let Err(error) = rewrite::expect_replaceable(&cluster.config_file)
        {
            self.report.check("writing", Verdict::State, error.to_string());
        }
        let text = small_file::read_text(&self.dir.root.join("PG_VERSION"))
            .map_err(CliError::io(&self.dir.root, "read PG_VERSION"))?;
        let config = cluster.config_file.clone();
        let mut journal = Journal::new(self.operation, text, suite, cluster.facts, config);
        journal.keyring = keys.keyring_id.to_string();
        if self.operation != Operation::Encrypt {
            journal.generation_before = keys.active().0;
        }
        self.check_manifest(keys)?;
        self.check_files(&journal, keys, target)?;
        if options.check || self.report.worst() > Verdict::Note {
            return self.finish_report().map(Some);
        }
        let lock = ServerLock::take(&self.dir)?;
        if !crate::cluster::control_data(&cluster.bindir, &self.dir.root)?.is_clean() {
            return Err(CliError::NotNow(format!(
                "{}: a server ran on it meanwhile; run the same command again",
                self.dir.root.display()
            )));
        }
        // Files may have changed since they were checked.
        let job = job(&self.control, keys, target, cluster.facts);
        let (_, tasks) = files::look(&job, &self.dir.root, &journal.version_dir())?;
        engine::empty_without_header(&Disk, &tasks)?;
        self.start(&mut journal, make_keys, lock, &cluster)?;
        Ok(None)
    }

    /// Compares the files of a sealed data directory with its manifest: a conversion would turn an
    /// older copy of a file into a new one that nobody can tell from a right one.
    fn check_manifest(&mut self, keys: &KeySet) -> Result<(), CliError> {
        if self.operation == Operation::Encrypt {
            return Ok(());
        }
        let root = &self.dir.root;
        let (verdict, text) = match manifest::read(root, keys)? {
            Known::Whole(manifest) => {
                let differences =
                    manifest::compare(root, &scan::scan(root, Root::DataDir), &manifest)?;
                match differences.first() {
                    None => {
                        (Verdict::Ok, format!("complete and current as of {}", manifest.date()))
                    }
                    Some((file, difference)) => (
                        Verdict::Damage,
                        format!(
                            "{}, of which {file}: {difference}; \"pgseal manifest check\" lists them",
                            out::count(differences.len() as u64, "difference")
                        ),
                    ),
                }
            }
            Known::Nothing(why) => (Verdict::Note, why),
            Known::Refused(why) => (
                Verdict::Damage,
                format!("{why}; if the files are as you want them: pgseal manifest write"),
            ),
        };
        self.report.check("manifest", verdict, text);
        Ok(())
    }

    /// Checks the header of every file and, unless the options say otherwise, every page.
    fn check_files(
        &mut self,
        journal: &Journal,
        keys: &KeySet,
        target: Target,
    ) -> Result<(), CliError> {
        let mut job = job(&self.control, keys, target, journal.facts);
        job.jobs = self.jobs();
        let version_dir = journal.version_dir();
        let tasks = files::check(&mut self.report, &job, &self.dir.root, &version_dir)?;
        files::room(&mut self.report, &tasks, job.jobs)?;
        let stopped = self.report.worst() > Verdict::Note;
        if self.options.skip_check || (stopped && !self.options.check) {
            return Ok(());
        }
        let bar = self.bar("checking", files::work(&tasks).1);
        let progress = |bytes| bar.inc(bytes);
        job.progress = &progress;
        let outcome = engine::check(&job, &tasks);
        bar.finish_and_clear();
        self.judge(&outcome?);
        Ok(())
    }

    fn judge(&mut self, outcome: &Outcome) {
        if outcome.found.is_empty() {
            let text = format!("{} read, all sound", out::human_bytes(outcome.bytes));
            return self.report.check("pages", Verdict::Ok, text);
        }
        self.report.add_damage(&outcome.found);
        let count = out::count(outcome.found.len() as u64, "file");
        let lost = outcome.found.iter().filter(|found| found.text.is_some()).count();
        if lost > 0 {
            let lost = out::count(lost as u64, "file");
            let text = format!(
                "{count} with damage, listed below, of which {lost} cannot be read at all, so that \
                 --keep-damaged cannot take them along: restore them, or move them away"
            );
            return self.report.check("pages", Verdict::Damage, text);
        }
        if self.options.keep_damaged {
            let text = format!("{count} with damage, kept as it is");
            return self.report.check("pages", Verdict::Note, text);
        }
        let text = format!(
            "{count} with damage, listed below; restore them, or take them along as they are with \
             --keep-damaged: PostgreSQL goes on reporting the pages as damaged"
        );
        self.report.check("pages", Verdict::Damage, text);
    }

    /// Converts a whole data directory.
    fn start(
        &mut self,
        journal: &mut Journal,
        make_keys: impl FnOnce() -> Result<(KeySet, Target), CliError>,
        lock: ServerLock,
        cluster: &Cluster,
    ) -> Result<(), CliError> {
        let root = &self.dir.root.clone();
        keyring::make_dir(root)?;
        let (keys, target) = barrier::begin(&Disk, root, journal, &self.control, make_keys)?;
        drop(lock);
        self.convert(journal, &keys, target)?;
        self.end(journal, cluster.guard.as_deref())
    }

    /// Resumes an interrupted conversion.
    pub fn resume(
        &mut self,
        mut journal: Journal,
        target: impl FnOnce(&Run<'_>, &Journal) -> Result<(KeySet, Target), CliError>,
    ) -> Result<(), CliError> {
        let root = self.dir.root.clone();
        ServerLock::remove_stale(&self.dir)?;
        if journal.phase == Phase::Convert {
            let (keys, target) = target(self, &journal)?;
            if journal.operation != self.operation {
                journal.operation = self.operation;
                let is_sealed = self.operation != Operation::Decrypt;
                journal.suite =
                    if is_sealed { keys.suite().name().to_owned() } else { String::new() };
                journal.store(&Disk, &root, &self.control)?;
                barrier::raise(&Disk, &root, &journal, &self.control)?;
            }
            self.convert(&mut journal, &keys, target)?;
        }
        let guard = match self.operation {
            Operation::Encrypt => Some(self.guard(&journal)?),
            _ => None,
        };
        self.end(&journal, guard.as_deref())
    }

    fn guard(&self, journal: &Journal) -> Result<String, CliError> {
        let bindir =
            bindir::of_major(self.options.bindir.as_deref(), journal.major(), &self.dir.root)?;
        let pkglibdir = bindir::ask_pg_config(&bindir.join("pg_config"), "--pkglibdir");
        library::guard(journal.major(), pkglibdir.as_deref())
    }

    /// Converts all files, and records that all are done.
    fn convert(
        &mut self,
        journal: &mut Journal,
        keys: &KeySet,
        target: Target,
    ) -> Result<(), CliError> {
        let root = self.dir.root.clone();
        keyring::forget_kept_keyring(&root)?;
        let mut job = job(&self.control, keys, target, journal.facts);
        let (found, mut tasks) = files::look(&job, &root, &journal.version_dir())?;
        engine::clean(&Disk, &found.leftovers)?;
        // The largest first: if there is no room for one of them, the run fails early.
        tasks.sort_by_key(|task| std::cmp::Reverse(task.plain_len));
        let before = self.report.checks.len();
        let jobs = self.jobs();
        job.jobs = files::room(&mut self.report, &tasks, jobs)?;
        if let Some(short) = self.report.checks[before..].iter().find(|c| c.verdict > Verdict::Note)
        {
            return Err(CliError::NotNow(format!("{}: {}", root.display(), short.text)));
        }
        self.report.jobs = job.jobs;
        self.report.set_left_alone(&tasks);
        let bar = self.bar(self.operation.name(), files::work(&tasks).1);
        let progress = |bytes| bar.inc(bytes);
        job.progress = &progress;
        let start = Instant::now();
        let outcome = engine::run(&job, &tasks, &found.dirs);
        bar.finish_and_clear();
        let outcome = outcome?;
        self.report.seconds = start.elapsed().as_secs_f64();
        (self.report.files, self.report.plain_bytes) = (outcome.files, outcome.bytes);
        self.report.removed = outcome.removed;
        files::refuse_left(&outcome.found, self.operation)?;
        let is_known =
            self.options.keep_damaged && !self.options.skip_check && !self.report.resumed;
        if !is_known {
            self.report.add_damage(&outcome.found);
        }
        if self.operation != Operation::Decrypt {
            let scan = scan::scan(&root, Root::DataDir);
            manifest::write(&root, &scan, keys)?;
        }
        barrier::advance(&Disk, &root, journal, Phase::Finish, &self.control)?;
        Ok(())
    }

    /// Changes the configuration and ends the barrier, so that a server can start again.
    fn end(&mut self, journal: &Journal, guard: Option<&str>) -> Result<(), CliError> {
        let root = &self.dir.root;
        let auto = root.join("postgresql.auto.conf");
        match (self.operation, guard) {
            (Operation::Encrypt, Some(guard)) => {
                guard_conf::add(&self.config_file(journal)?, guard)?;
                // postgresql.auto.conf overrides postgresql.conf.
                if guard_conf::sets_preload(&auto)? {
                    guard_conf::add(&auto, guard)?;
                }
            }
            (Operation::Decrypt, _) => {
                guard_conf::remove(&self.config_file(journal)?)?;
                if guard_conf::sets_preload(&auto)? {
                    guard_conf::remove(&auto)?;
                }
                keyring::retire_keyring(root)?;
            }
            _ => {}
        }
        barrier::end(&Disk, root, journal, &self.control)?;
        self.report.done = true;
        Ok(())
    }

    /// The configuration file to change. The journal names it, but an attacker could have written
    /// the journal: the file must also be found again, or be named on the command line.
    fn config_file(&self, journal: &Journal) -> Result<PathBuf, CliError> {
        let given = self.options.config_file.as_deref();
        let found = crate::cluster::config_file(given, &self.dir.root, journal.major())?;
        match found {
            Some(path) if given.is_some() || path == journal.config_file => Ok(path),
            _ => Err(CliError::NotNow(format!(
                "{}: pgseal/conversion names {} as the server's configuration file, which is not the \
                 one of this data directory; run the same command again with --config-file FILE",
                self.dir.root.display(),
                journal.config_file.display()
            ))),
        }
    }

    /// Prints the report and gives the exit status.
    pub fn finish_report(&self) -> Result<u8, CliError> {
        let mut out = Out::new();
        if self.options.json {
            out.json(&self.report)?;
        } else {
            self.report.print(&mut out, self.options.quiet)?;
        }
        io::Write::flush(&mut out)?;
        Ok(self.report.exit_code())
    }

    fn bar(&self, what: &'static str, bytes: u64) -> ProgressBar {
        let is_hidden = self.options.quiet || self.options.json;
        let form =
            "{msg} {bar:32} {percent:>3} %  {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
        let bar = out::progress_bar(bytes, is_hidden, form);
        bar.set_message(what);
        bar
    }
}

/// A job for one thread, without progress.
fn job<'a>(control: &'a Control, keys: &'a KeySet, target: Target, facts: Facts) -> Job<'a, Disk> {
    let plan = Plan {
        target,
        keyring_id: keys.keyring_id,
        checksums: facts.checksums,
        segment_pages: facts.segment_pages,
    };
    Job { media: &Disk, keys, plan, control, jobs: 1, progress: &|_| {} }
}
