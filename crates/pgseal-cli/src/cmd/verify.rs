//! `pgseal verify`: authenticates every block of every file.
//!
//! `file` checks one file, `subset` says which content of it, `gaps` finds what is missing in an
//! archive, `report` collects the findings and prints them.

mod file;
mod gaps;
mod progress;
mod report;
mod subset;

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use indicatif::ProgressBar;
use pgseal_core::{KeySet, Scratch};
use pgseal_keys::KEYRING_DIR;
use pgseal_keys::config_record::CONFIG_RECORD_FILE;
use pgseal_keys::control::CONTROL_FILE;
use pgseal_keys::manifest::MANIFEST_FILE;

use self::file::Checked;
use self::progress::Progress;
use self::report::Report;
use self::subset::Subset;
use crate::datadir::DataDir;
use crate::error::CliError;
use crate::given_dir::GivenDir;
use crate::keys::{self, KeyOptions};
use crate::manifest::{self, Known};
use crate::out::{self, Out};
use crate::relation_names::RelationNames;
use crate::scan::{self, Entry, Root};
use crate::{config_record, control_record, exit, memory};

const EXAMPLES: &str = "\
Examples:
  pgseal verify /srv/postgres/data
  pgseal verify --quiet /backup/base && echo sound
  pgseal verify --sample 5% /srv/postgres/data
  pgseal verify --keyring /backup/base/pgseal/keyring /backup/wal
  pgseal verify --json DIR | jq '.findings[] | select(.failure)'

Exit status: 0 all is sound, 1 damage found, 40 something could not be read; others: pgseal --help.
Damage in files that PostgreSQL rebuilds by itself (visibility and free space maps, files in the making)
is named and does not count as damage: a power cut leaves such. docs/damage.md says what to do.

With --sample or --since the header, place and length of every file are still checked. Whoever writes
the storage may set times back: --since is for speed, and no substitute for checking everything.

Only gcm suites authenticate blocks. Of files in xts and ctr (WAL always is in xts) the header is
authenticated and every block read, no more. An older copy of a file, a truncated or a missing one
is noticed if the server was shut down cleanly, by the manifest of that shutdown, and in a backup of
pg_basebackup that no server has used yet. In an archive of WAL, segments that are missing between
the first and the last one are named. Of a locked configuration the record is authenticated; pgseal
config status compares the files with it.";

/// Authenticate every block of every sealed file
///
/// Works on a data directory, on a copy or base backup of one, and, with --keyring, on a directory
/// of archived WAL. A server may run: what it changes meanwhile is read again.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    dir: GivenDir,
    #[command(flatten)]
    keys: KeyOptions,
    /// Threads
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: Option<u16>,
    /// Check only a random part of the content, as 5%; another part each time
    #[arg(long, value_name = "PERCENT", value_parser = subset::parse_sample)]
    sample: Option<f64>,
    /// Check only the content of files changed since: 36h, 7d, a day or time in UTC, or "last": the
    /// last sound check of this directory that this machine remembers
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Continue the check that was stopped (Ctrl-C, SIGTERM, a crash of this machine): files that
    /// it found sound, and that nobody changed since, are not read again
    #[arg(long = "continue", conflicts_with_all = ["sample", "since"])]
    continues: bool,
    /// List every zero block and every finding
    #[arg(long)]
    list: bool,
    /// Print failures only
    #[arg(short, long)]
    quiet: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<u8, CliError> {
    let (dir, kind) = open(args)?;
    dir.expect_whole()?;
    let began = pgseal_keys::now()?;
    let mut scan = scan::scan(&dir.root, kind);
    let keyring = keys::keyring_of(&dir, &args.keys, || scan.headers().next().is_some())?;
    scan.expect_keyring(&keyring)?;
    let keys = keyring.unlock(&keys::kek(&keyring, args.keys.provider.as_deref())?)?;
    let is_live = kind == Root::DataDir && dir.server_pid().is_some();

    let known = match (kind, is_live) {
        (Root::Archive, _) => None,
        (Root::DataDir, true) => Some(Known::Nothing("a server runs".to_owned())),
        (Root::DataDir, false) => Some(manifest::read(&dir.root, &keys)?),
    };
    let differences = match &known {
        Some(Known::Whole(manifest)) => manifest::compare(&dir.root, &scan, manifest)?,
        _ => Vec::new(),
    };

    let memory = memory::of(keyring.id());
    let since = args.since.as_deref();
    let since = since.map(|text| subset::parse_since(text, &dir.root, &memory)).transpose()?;
    let subset = Subset::new(args.sample, since);
    let progress = match subset.shown() {
        None => Progress::new(keyring.id(), &dir.root, &began, args.continues)?,
        Some(_) => None,
    };
    let bar = progress_bar(scan.sealed_bytes(), args.quiet || args.json);
    let jobs = args
        .jobs
        .map_or_else(|| thread::available_parallelism().map_or(1, usize::from), usize::from);
    let entries = std::mem::take(&mut scan.entries);
    let gaps = if kind == Root::Archive { gaps::find(&entries) } else { Vec::new() };
    let total = entries.len();
    let checked = check_all(entries, &keys, &subset, progress.as_ref(), is_live, jobs, &bar);
    bar.finish_and_clear();
    if let Some(progress) = progress.as_ref().filter(|progress| progress.is_stopped()) {
        let done = progress.save()?;
        out::complain(&format!(
            "{}: stopped; {done} of {total} files are done. With --continue the same command goes on \
             from there",
            dir.root.display()
        ));
        return Ok(exit::INTERRUPTED);
    }

    let mut report = Report::new(dir.root.display().to_string(), keyring.id().to_string(), is_live);
    for (entry, checked) in &checked {
        report.add(entry, checked);
    }
    if kind == Root::DataDir {
        let record = config_record::valid(&dir.root, &keys);
        let locked = record.unwrap_or_else(|error| Err(error.to_string()));
        let name = format!("{KEYRING_DIR}/{CONFIG_RECORD_FILE}");
        report.add_config_record(name, locked.map(|record| record.is_some()));
    }
    if kind == Root::DataDir
        && !is_live
        && let Ok(known) = control_record::read(&dir.root, &keys)
        && let Some(why) = known.refused
    {
        report.add_bad_control_record(format!("{KEYRING_DIR}/{CONTROL_FILE}"), &why);
    }
    let name = format!("{KEYRING_DIR}/{MANIFEST_FILE}");
    match known {
        Some(Known::Whole(manifest)) => report.add_manifest(&manifest, differences),
        Some(Known::Nothing(why)) => report.add_no_manifest(name, why, false),
        Some(Known::Refused(why)) => report.add_no_manifest(name, why, true),
        None => {}
    }
    for gap in &gaps {
        report.add_gap(gap);
    }
    for (path, why) in &scan.closed {
        report.add_closed(path.display().to_string(), why);
    }
    if kind == Root::DataDir {
        report.add_relations(&mut RelationNames::new(&dir.root, &keys));
    }
    report.part = subset.shown();
    let is_sound = report.exit_code() == exit::SOUND;
    // A part that is sound says nothing about the rest; a part that is not does.
    if report.part.is_none() || !is_sound {
        let began = progress.as_ref().map_or(began, Progress::began);
        memory::checked(keyring.id(), &dir.root, "verify", &began, is_sound);
    }
    if let Some(progress) = &progress {
        progress.forget();
    }
    let mut out = Out::new();
    if args.json {
        out.json(&report)?;
    } else {
        report.print(&mut out, args.list, args.quiet)?;
    }
    out.flush()?;
    Ok(report.exit_code())
}

/// Opens the directory, and says whether it is a data directory or an archive of WAL.
fn open(args: &Args) -> Result<(DataDir, Root), CliError> {
    match DataDir::open(&args.dir.path("verify")?) {
        Ok(dir) => Ok((dir, Root::DataDir)),
        Err(CliError::NotDataDir { path, .. }) if path.is_dir() => {
            if args.keys.keyring.is_some() {
                return Ok((DataDir { root: path, major: None, conversion: None }, Root::Archive));
            }
            Err(CliError::NotDataDir {
                path,
                why: "there is no PG_VERSION in it",
                remedy: "give a data directory, or for a WAL archive its keyring (--keyring FILE)",
            })
        }
        Err(error) => Err(error),
    }
}

fn progress_bar(bytes: u64, is_hidden: bool) -> ProgressBar {
    let form = "{bar:40} {percent:>3} %  {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
    out::progress_bar(bytes, is_hidden, form)
}

/// Checks all files in several threads; the results are in the order of the files.
fn check_all(
    entries: Vec<Entry>,
    keys: &KeySet,
    subset: &Subset,
    progress: Option<&Progress>,
    is_live: bool,
    jobs: usize,
    bar: &ProgressBar,
) -> Vec<(Entry, Checked)> {
    let next = AtomicUsize::new(0);
    let places: Vec<Mutex<(Entry, Checked)>> =
        entries.into_iter().map(|entry| Mutex::new((entry, Checked::default()))).collect();
    let work = || {
        let mut scratch = Scratch::new();
        let mut passed = |bytes| bar.inc(bytes);
        while let Some(place) = places.get(next.fetch_add(1, Ordering::Relaxed)) {
            if progress.is_some_and(Progress::is_stopped) {
                break;
            }
            let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
            let (entry, checked) = &mut *place;
            if progress.is_some_and(|progress| progress.is_done(entry)) {
                checked.was_done = true;
                passed(entry.len);
                continue;
            }
            let before = progress.and_then(|_| progress::identity(entry));
            *checked = file::check(entry, keys, subset, is_live, &mut scratch, &mut passed);
            if let Some(progress) = progress.filter(|_| checked.is_sound()) {
                progress.add(entry, before);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..jobs.min(places.len()).max(1) {
            // With fewer threads it is only slower.
            let _ = thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    places
        .into_iter()
        .map(|place| place.into_inner().unwrap_or_else(PoisonError::into_inner))
        .collect()
}
