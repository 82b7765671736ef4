//! The files of a conversion: which have to be written anew, what stands in the way, and whether
//! the disk has room for the replacements.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use pgseal_convert::engine::{self, Job, Task};
use pgseal_convert::plan::{Action, awaits_archiving};
use pgseal_convert::room::{self, Replacement};
use pgseal_convert::{Disk, Found, Operation, Tree, tree};

use super::report::{Report, Verdict};
use crate::error::CliError;
use crate::{out, rewrite};

/// The most files that an error names.
const SHOWN: usize = 20;

/// Finds all files and reads their headers. Refuses a data directory with a part that cannot be
/// read or converted.
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

/// The same, but collects all problems in the report.
pub fn check(
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
    writable(report, root, &tree.dirs, &tasks);
    report.set_left_alone(&tasks);
    let (count, bytes) = work(&tasks);
    let text = format!("{} to write anew, {}", out::count(count, "file"), out::human_bytes(bytes));
    report.check("files", Verdict::Ok, text);
    Ok(tasks)
}

/// Checks that every directory with a file to convert, and the data directory itself, can be
/// written: a read-only file system, a missing right or an immutable file would stop a conversion
/// half-way.
fn writable(report: &mut Report, root: &Path, dirs: &[PathBuf], tasks: &[Task]) {
    let before = report.checks.len();
    let holds_work: BTreeSet<&Path> = tasks
        .iter()
        .filter(|task| is_converted(task))
        .filter_map(|task| task.item.path.parent())
        .chain([root])
        .collect();
    for dir in dirs.iter().map(PathBuf::as_path).filter(|dir| holds_work.contains(dir)) {
        if let Err(error) = rewrite::may_write(dir) {
            not_writable(report, dir, &error);
        }
    }
    for task in tasks.iter().filter(|task| is_converted(task)) {
        // Another file takes its place, so the right to write to this one is not needed.
        match rewrite::may_write(&task.item.path) {
            Err(error) if error.kind() != io::ErrorKind::PermissionDenied => {
                not_writable(report, &task.item.path, &error);
            }
            Err(error) if rewrite::is_immutable(&error) => {
                not_writable(report, &task.item.path, &error);
            }
            _ => {}
        }
    }
    let found = report.checks.len() - before;
    if found > SHOWN {
        report.checks.truncate(before + SHOWN);
        let more = out::count((found - SHOWN) as u64, "more path");
        report.check("writing", Verdict::State, format!("and {more}"));
    }
}

fn not_writable(report: &mut Report, path: &Path, error: &io::Error) {
    let remedy = match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => {
            "mount the file system for writing (mount -o remount,rw)"
        }
        _ if rewrite::is_immutable(error) => "take the attribute away (chattr -i)",
        _ => "give its owner the right to write (chmod u+w)",
    };
    let text = format!("{}: cannot be written: {error}; {remedy}", path.display());
    report.check("writing", Verdict::State, text);
}

/// Refuses a data directory with a part that cannot be read.
fn refuse_problems(tree: &Tree) -> Result<(), CliError> {
    match tree.problems.first() {
        None => Ok(()),
        Some(problem) => {
            Err(CliError::NotNow(format!("{}: {}", problem.rel.display(), problem.what)))
        }
    }
}

/// Refuses files that cannot be converted: they would stay in the old form.
fn refuse_impossible(tasks: &[Task]) -> Result<(), CliError> {
    let lines = tasks.iter().filter_map(|task| match &task.action {
        Action::Impossible(what) => Some(format!("{}: {what}", task.item.name())),
        _ => None,
    });
    refuse_damaged(lines.collect(), "nothing was converted by this run; then run the same command")
}

/// Refuses to end a conversion that left files in their old form.
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

/// The number of files to convert, and their plain bytes.
pub fn work(tasks: &[Task]) -> (u64, u64) {
    let converted = tasks.iter().filter(|task| is_converted(task));
    converted.fold((0, 0), |(count, bytes), task| (count + 1, bytes + task.plain_len))
}

fn is_converted(task: &Task) -> bool {
    matches!(task.action, Action::Convert(_))
}

/// Checks the free space. Returns how many files can be converted at once.
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
