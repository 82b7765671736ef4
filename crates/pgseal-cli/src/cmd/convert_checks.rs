//! What is checked before the first change.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use pgseal_convert::engine::{self, Job, Task};
use pgseal_convert::plan::{Action, awaits_archiving};
use pgseal_convert::room::{self, Replacement};
use pgseal_convert::{Disk, Facts, Found, Operation, Tree, tree};
use pgseal_core::Suite;

use super::convert_cluster::{self as cluster, ControlData};
use super::convert_report::{Report, Verdict};
use crate::datadir::DataDir;
use crate::error::CliError;
use crate::library;
use crate::out;

/// Versions of PostgreSQL whose files are known.
const MAJORS: std::ops::RangeInclusive<u32> = 15..=19;

/// Files that an error names.
const SHOWN: usize = 20;

/// Where PostgreSQL is, and what it says.
#[derive(Clone, Debug)]
pub struct Ground {
    /// Its programs.
    pub bindir: PathBuf,
    /// What the control file says.
    pub facts: Facts,
    /// The configuration file.
    pub config_file: PathBuf,
    /// What `shared_preload_libraries` shall name.
    pub guard: Option<String>,
}

/// Who we are, which version it is, whether it is stopped, and its settings.
pub fn ground(
    report: &mut Report,
    dir: &DataDir,
    operation: Operation,
    suite: Option<Suite>,
    bindir: Option<&Path>,
    config_file: Option<&Path>,
) -> Result<Ground, CliError> {
    owner(&dir.root)?;
    let major = dir.major.clone().unwrap_or_default();
    if !major.parse::<u32>().is_ok_and(|major| MAJORS.contains(&major)) {
        return Err(CliError::NotNow(format!(
            "{}: a data directory of PostgreSQL {major}; pgseal knows the files of {} to {}",
            dir.root.display(),
            MAJORS.start(),
            MAJORS.end()
        )));
    }
    cluster::refuse_running(dir)?;
    let bindir = crate::bindir::of_major(bindir, &major, &dir.root)?;
    let control = ControlData::read(&bindir, &dir.root)?;
    state(report, dir, &control);
    let Some(config_file) = cluster::config_file(config_file, &dir.root, &major)? else {
        return Err(CliError::Usage(format!(
            "{}: there is no postgresql.conf in it; give the server's with --config-file FILE",
            dir.root.display()
        )));
    };
    let mut guard = None;
    if operation == Operation::Encrypt {
        library::library()?;
        let pg_config = bindir.join("pg_config");
        let pkglibdir = crate::bindir::ask_pg_config(&pg_config, "--pkglibdir");
        guard = Some(library::guard(&major, pkglibdir.as_deref())?);
    }
    if let Some(suite) = suite {
        settings(report, &bindir, dir, &config_file, &control, suite);
    }
    Ok(Ground { bindir, facts: control.facts, config_file, guard })
}

/// New files must belong to whom the old ones belong, and all must be readable.
fn owner(root: &Path) -> Result<(), CliError> {
    let meta = fs::metadata(root).map_err(CliError::io(root, "look at the directory"))?;
    if meta.uid() == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    Err(CliError::NotNow(format!(
        "{}: it belongs to user {}; run pgseal as that user, for example: runuser -u postgres -- pgseal ...",
        root.display(),
        meta.uid()
    )))
}

fn state(report: &mut Report, dir: &DataDir, control: &ControlData) {
    let major = dir.major.as_deref().unwrap_or_default();
    let shown = dir.root.display();
    if control.is_clean() {
        report.check("cluster", Verdict::Ok, format!("PostgreSQL {major}, {}", control.state));
    } else {
        report.check(
            "cluster",
            Verdict::State,
            format!(
                "it was not shut down cleanly (\"{}\"); start the server, let it recover, and stop it: \
                 pg_ctl -D {shown} -m fast stop",
                control.state
            ),
        );
    }
    if control.block_len != 8192 {
        let text = format!("pages of {} bytes; pgseal knows those of 8192 only", control.block_len);
        report.check("cluster", Verdict::State, text);
    }
}

/// The guard module refuses the same at the start of the server; better to know it before.
fn settings(
    report: &mut Report,
    bindir: &Path,
    dir: &DataDir,
    config_file: &Path,
    control: &ControlData,
    suite: Suite,
) {
    let get = |name| cluster::setting(bindir, &dir.root, config_file, name);
    let before = report.checks.len();
    let Some(full_page_writes) = get("full_page_writes") else {
        let text = "the server's configuration could not be read with \"postgres -C\"; the guard \
                    module will check it when the server starts";
        return report.check("settings", Verdict::Note, text);
    };
    if suite.needs_full_page_images() && full_page_writes != "on" {
        let text =
            format!("{suite} needs full_page_writes = on; set it, or use --suite aes-256-xts");
        report.check("settings", Verdict::Settings, text);
    }
    if suite.needs_full_page_images() && !control.facts.checksums {
        let text = format!(
            "{suite} needs data checksums, and they are off; switch them on first ({}pg_checksums \
             --enable -D {}), or use --suite aes-256-xts",
            if dir.keyring().exists() { "pgseal run -- " } else { "" },
            dir.root.display()
        );
        report.check("settings", Verdict::Settings, text);
    }
    if get("io_method").is_some_and(|method| !matches!(method.as_str(), "sync" | "worker")) {
        report.check("settings", Verdict::Settings, "set io_method = worker in postgresql.conf");
    }
    if get("dynamic_shared_memory_type").is_some_and(|kind| kind == "mmap") {
        let text = "set dynamic_shared_memory_type = posix in postgresql.conf";
        report.check("settings", Verdict::Settings, text);
    }
    if report.checks.len() == before {
        let checksums = if control.facts.checksums { "on" } else { "off" };
        let text = format!(
            "data checksums {checksums}, full_page_writes {full_page_writes}: fit for {suite}"
        );
        report.check("settings", Verdict::Ok, text);
    }
}

/// Every file by its name and head. Refuses a data directory of which a part cannot be seen or cannot be
/// brought to the new form.
pub fn look(
    job: &Job<'_, Disk>,
    root: &Path,
    version_dir: &str,
) -> Result<(Tree, Vec<Task>), CliError> {
    let mut tree = tree::walk(root, version_dir);
    refuse_problems(&tree)?;
    let tasks = engine::plan(job, std::mem::take(&mut tree.items))?;
    refuse_impossible(&tasks)?;
    Ok((tree, tasks))
}

/// The same, with everything that stands in the way in the report.
pub fn files(
    report: &mut Report,
    job: &Job<'_, Disk>,
    root: &Path,
    version_dir: &str,
) -> Result<Vec<Task>, CliError> {
    let tree = tree::walk(root, version_dir);
    for problem in &tree.problems {
        let text = format!("{}: {}", problem.rel.display(), problem.what);
        report.check("files", Verdict::State, text);
    }
    for (link, target) in &tree.links {
        let text = format!("{} is a link to {}: followed", link.display(), target.display());
        report.check("links", Verdict::Ok, text);
    }
    let waiting = tree.items.iter().filter(|item| awaits_archiving(&item.rel)).count();
    if waiting > 0 {
        let text = format!(
            "{} waiting for archive_command; to have the WAL from before in its old form, let the \
             server archive them first",
            if waiting == 1 {
                "1 WAL segment is".to_owned()
            } else {
                format!("{waiting} WAL segments are")
            }
        );
        report.check("archive", Verdict::Note, text);
    }
    let tasks = engine::plan(job, tree.items)?;
    for task in &tasks {
        if let Action::Impossible(what) = &task.action {
            report.check("files", Verdict::Damage, format!("{}: {what}", task.item.name()));
        }
    }
    let linked = tasks.iter().filter(|task| is_converted(task) && task.item.links > 1).count();
    if linked > 0 {
        let text = format!(
            "{} other names elsewhere (pg_upgrade --link, a backup made of links), which keep the \
             old content",
            if linked == 1 { "1 file has".to_owned() } else { format!("{linked} files have") }
        );
        report.check("links", Verdict::Note, text);
    }
    report.set_left_alone(&tasks);
    let (count, bytes) = work(&tasks);
    let text = format!("{} to write anew, {}", out::count(count, "file"), out::human_bytes(bytes));
    report.check("files", Verdict::Ok, text);
    Ok(tasks)
}

/// Refuses a data directory of which a part cannot be seen.
fn refuse_problems(tree: &Tree) -> Result<(), CliError> {
    match tree.problems.first() {
        None => Ok(()),
        Some(problem) => {
            Err(CliError::NotNow(format!("{}: {}", problem.rel.display(), problem.what)))
        }
    }
}

/// Refuses files that cannot be brought to the new form: they would stay in the old one.
fn refuse_impossible(tasks: &[Task]) -> Result<(), CliError> {
    let lines = tasks.iter().filter_map(|task| match &task.action {
        Action::Impossible(what) => Some(format!("{}: {what}", task.item.name())),
        _ => None,
    });
    refuse_damaged(lines.collect(), "nothing was converted by this run; then run the same command")
}

/// Refuses the end of a conversion that had to leave files in their old form.
pub fn refuse_left(found: &[Found], operation: Operation) -> Result<(), CliError> {
    let lines = found.iter().filter_map(|found| {
        let text = found.text.as_ref()?;
        Some(format!("{}: {text}; restore it, or move it away", found.file))
    });
    let next = format!("all other files are done; then run: pgseal {}", operation.name());
    refuse_damaged(lines.collect(), &next)
}

fn refuse_damaged(mut lines: Vec<String>, next: &str) -> Result<(), CliError> {
    if lines.is_empty() {
        return Ok(());
    }
    let more = lines.len().saturating_sub(SHOWN);
    lines.truncate(SHOWN);
    if more > 0 {
        lines.push(format!("and {}", out::count(more as u64, "more file")));
    }
    Err(CliError::Damaged(format!("{}\n{next} again", lines.join("\n"))))
}

/// Files that will be written anew, and their plain bytes.
pub fn work(tasks: &[Task]) -> (u64, u64) {
    let converted = tasks.iter().filter(|task| is_converted(task));
    converted.fold((0, 0), |(count, bytes), task| (count + 1, bytes + task.plain_len))
}

fn is_converted(task: &Task) -> bool {
    matches!(task.action, Action::Convert(_))
}

/// Whether there is room, and for how many files at once.
pub fn room(report: &mut Report, tasks: &[Task], jobs: usize) -> Result<usize, CliError> {
    let mut free: BTreeMap<u64, (u64, PathBuf)> = BTreeMap::new();
    let mut replacements = Vec::new();
    for task in tasks {
        let Action::Convert(form) = task.action else { continue };
        let item = &task.item;
        if let std::collections::btree_map::Entry::Vacant(place) = free.entry(item.dev) {
            let dir = item.path.parent().unwrap_or(Path::new("/")).to_owned();
            let bytes = room::free(&dir).map_err(CliError::io(&dir, "ask for free room"))?;
            place.insert((bytes, dir));
        }
        replacements.push(Replacement {
            dev: item.dev,
            old_len: item.len,
            new_len: form.len_on_disk(task.plain_len),
            frees_old: item.links <= 1,
        });
    }
    let fits = |needed: &BTreeMap<u64, u64>| {
        needed.iter().all(|(dev, bytes)| free.get(dev).is_some_and(|(free, _)| free >= bytes))
    };
    let jobs = (1..=jobs.max(1)).rev().find(|jobs| fits(&room::needed(&replacements, *jobs)));
    for (dev, bytes) in room::needed(&replacements, jobs.unwrap_or(1)) {
        let Some((free, dir)) = free.get(&dev) else { continue };
        let (needed, have) = (out::human_bytes(bytes), out::human_bytes(*free));
        let text = format!("{needed} needed, {have} free on the file system of {}", dir.display());
        if *free >= bytes {
            report.check("room", Verdict::Ok, text);
        } else {
            report.check("room", Verdict::State, format!("{text}; make room"));
        }
    }
    Ok(jobs.unwrap_or(1))
}
