//! Reads the heads of all files, then checks or replaces the files, several at the same time.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use pgseal_core::broken::{self, Order};
use pgseal_core::header::{self, Kind};
use pgseal_core::storage::Storage;
use pgseal_core::verify::BlockRange;
use pgseal_core::{KeySet, SealError, SealedLen, SealedOff, geometry};
use pgseal_pgdata::Misplaced;

use crate::control::Control;
use crate::copy::{Buffers, Copied, Form, Sink, Source, copy};
use crate::error::ConvertError;
use crate::files::{parent, with_suffix};
use crate::media::Media;
use crate::plan::{Action, Plan};
use crate::tree::Item;

/// A file and the action for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// The file.
    pub item: Item,
    /// The action.
    pub action: Action,
    /// The plain length of the file.
    pub plain_len: u64,
}

/// Damage in a file, or a reason why the file was not converted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The file, by its path inside the data directory.
    pub file: String,
    /// Blocks that do not authenticate or that PostgreSQL would not accept.
    pub blocks: Vec<BlockRange>,
    /// What is wrong with the file as a whole, if something is.
    pub text: Option<String>,
}

/// The result of a conversion or a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Number of files that were replaced or, in a check, read.
    pub files: u64,
    /// The plain bytes of these files.
    pub bytes: u64,
    /// Number of files that were removed: temporary files, and damaged ones that PostgreSQL
    /// rebuilds.
    pub removed: u64,
    /// Damage.
    pub found: Vec<Found>,
}

/// What all threads share.
pub struct Job<'a, M> {
    /// The file system.
    pub media: &'a M,
    /// The data keys.
    pub keys: &'a KeySet,
    /// What the data directory is converted to.
    pub plan: Plan,
    /// Whether to go on or to stop.
    pub control: &'a Control,
    /// Number of threads.
    pub jobs: usize,
    /// Called with the number of plain bytes that were just processed.
    pub progress: &'a (dyn Fn(u64) + Sync),
}

/// Reads the heads of files and decides what is to be done with each.
///
/// # Errors
/// The error of the first file that cannot be read or whose header is not valid.
pub fn plan<M: Media>(job: &Job<'_, M>, items: Vec<Item>) -> Result<Vec<Task>, ConvertError> {
    items.into_iter().map(|item| look(job, item)).collect()
}

fn look<M: Media>(job: &Job<'_, M>, item: Item) -> Result<Task, ConvertError> {
    job.control.step()?;
    let failed = |error| ConvertError::io(&item.path, "read the file")(error);
    let file = job.media.open(&item.path).map_err(failed)?;
    let mut start = [0; geometry::HEAD_LEN as usize];
    let got = file.read_at(&mut start, SealedOff(0)).map_err(failed)?;
    let head = match header::classify(&start[..got]) {
        Ok(head) => head,
        Err(_) if is_rebuilt(&item) => {
            return Ok(Task { item, action: Action::Remove, plain_len: 0 });
        }
        Err(error) => {
            let action = Action::Impossible(format!("{error}; restore it from a backup"));
            return Ok(Task { item, action, plain_len: 0 });
        }
    };
    let plain_len = match &head {
        Kind::Sealed(header) => geometry::plain_len(header.layout, SealedLen(item.len)).0,
        Kind::NoHeader | Kind::Plain => item.len,
    };
    let action = match &head {
        Kind::Sealed(header)
            if header.keyring_id == job.keys.keyring_id
                && !header.generation.is_ephemeral()
                && job.keys.get(header.generation).is_none() =>
        {
            Action::Impossible(format!(
                "sealed with generation {}, which the keyring does not have; put the right keyring back",
                header.generation
            ))
        }
        head => job.plan.action(&item, head),
    };
    Ok(Task { item, action, plain_len })
}

/// Reads every file that is to be converted to its end, and changes nothing.
///
/// # Errors
/// Errors of reading the files. Damage is not an error: the outcome lists it.
pub fn check<M: Media>(job: &Job<'_, M>, tasks: &[Task]) -> Result<Outcome, ConvertError> {
    on_threads(job, tasks, |task, buffers| {
        let Action::Convert(_) = task.action else { return Ok(Outcome::default()) };
        let path = &task.item.path;
        let from = job.media.open(path).map_err(ConvertError::io(path, "open the file"))?;
        let outcome = transfer(job, task, &from, &Sink::Nowhere, buffers)?;
        // The conversion will remove the file, so its damage does not matter.
        let is_removed = !outcome.found.is_empty() && is_rebuilt(&task.item);
        Ok(if is_removed { Outcome::default() } else { outcome })
    })
}

/// Whether damage in the file is harmless, because PostgreSQL rebuilds the file.
fn is_rebuilt(item: &Item) -> bool {
    item.class.is_rebuilt(item.rel.as_os_str().as_bytes())
}

/// Converts every file. All renames are durable when this returns.
///
/// # Errors
/// The first error. The other threads then stop between two steps, and each file has either the
/// whole old form or the whole new form.
pub fn run<M: Media>(
    job: &Job<'_, M>,
    tasks: &[Task],
    dirs: &[std::path::PathBuf],
) -> Result<Outcome, ConvertError> {
    let outcome = on_threads(job, tasks, |task, buffers| match task.action {
        Action::Convert(form) => replace(job, task, form, buffers),
        Action::Remove => {
            job.control.step()?;
            let path = &task.item.path;
            job.media.remove(path).map_err(ConvertError::io(path, "remove the file"))?;
            Ok(Outcome { removed: 1, ..Outcome::default() })
        }
        Action::Empty | Action::Done | Action::Foreign | Action::Impossible(_) => {
            Ok(Outcome::default())
        }
    })?;
    for dir in dirs {
        job.control.step()?;
        job.media.sync_dir(dir).map_err(ConvertError::io(dir, "sync the directory"))?;
    }
    Ok(outcome)
}

/// Writes the new file beside the old one and renames it over the old one.
fn replace<M: Media>(
    job: &Job<'_, M>,
    task: &Task,
    form: Form,
    buffers: &mut Buffers,
) -> Result<Outcome, ConvertError> {
    let path = &task.item.path;
    let new = with_suffix(path);
    let from = job.media.open(path).map_err(ConvertError::io(path, "open the file"))?;
    job.control.step()?;
    job.media.remove(&new).map_err(ConvertError::io(&new, "remove what a stopped run left"))?;
    let to = job.media.create(&new, path).map_err(ConvertError::io(&new, "make the file"))?;
    let written = transfer(job, task, &from, &Sink::File(&to, form), buffers).and_then(|outcome| {
        if !outcome.found.is_empty() && is_rebuilt(&task.item) {
            job.media.remove(&new).map_err(ConvertError::io(&new, "remove the file"))?;
            job.control.step()?;
            job.media.remove(path).map_err(ConvertError::io(path, "remove the file"))?;
            return Ok(Outcome { removed: 1, ..Outcome::default() });
        }
        if outcome.found.iter().all(|found| found.text.is_none()) {
            job.control.step()?;
            if !broken::is(Order::ConvertedUnsynced) {
                to.sync().map_err(ConvertError::io(&new, "sync the file"))?;
            }
            job.control.step()?;
            job.media.rename(&new, path).map_err(ConvertError::io(path, "replace the file"))?;
        } else {
            job.media.remove(&new).map_err(ConvertError::io(&new, "remove the file"))?;
        }
        Ok(outcome)
    });
    if written.is_err() {
        // Frees the space, in case the disk is full. If this fails, the next run removes the file.
        let _ = job.media.remove(&new);
    }
    written
}

fn transfer<M: Media>(
    job: &Job<'_, M>,
    task: &Task,
    from: &M::File,
    sink: &Sink<'_, M::File>,
    buffers: &mut Buffers,
) -> Result<Outcome, ConvertError> {
    let rule = job.plan.page_rule(&task.item);
    let mut progress = |bytes| {
        (job.progress)(bytes);
        job.control.step().map_err(|_| Failure::Stopped)
    };
    let copied = Source::look(from, job.keys).map_err(Failure::from).and_then(|mut source| {
        // A file found in the place of another file must not be converted: the new file would be
        // bound to this place and would pass for the other one.
        if let Source::Sealed(file) = &source
            && let header = file.header()
            && let Some(why) = task.item.class.misplaced(task.item.place(), header.suite, header)
        {
            return Err(Failure::Misplaced(Box::new(why)));
        }
        copy(&mut source, from, sink, job.keys, rule, buffers, &mut progress)
    });
    match copied {
        Ok(Copied { plain_len, damaged }) => {
            let mut outcome = Outcome { files: 1, bytes: plain_len, ..Outcome::default() };
            if !damaged.is_empty() {
                let blocks = damaged.ranges().to_vec();
                // Damage inside of pages stays visible to PostgreSQL. In other files it would not.
                let text = rule.is_none().then(|| "does not authenticate".to_owned());
                outcome.found.push(Found { file: task.item.name(), blocks, text });
            }
            Ok(outcome)
        }
        Err(Failure::Stopped) => Err(ConvertError::Stopped),
        Err(Failure::Seal(error @ (SealError::BlockDamaged(_) | SealError::Header(_)))) => {
            let text = Some(format!("{error}; left as it is"));
            let found = Found { file: task.item.name(), blocks: Vec::new(), text };
            Ok(Outcome { found: vec![found], ..Outcome::default() })
        }
        Err(Failure::Misplaced(why)) => {
            let text = format!("{why}; left as it is, restore the right one");
            let found = Found { file: task.item.name(), blocks: Vec::new(), text: Some(text) };
            Ok(Outcome { found: vec![found], ..Outcome::default() })
        }
        Err(Failure::Seal(error)) => {
            let action = match sink {
                Sink::Nowhere => "read the file",
                Sink::File(..) => "write the file anew",
            };
            Err(ConvertError::sealed(&task.item.path, action)(error))
        }
    }
}

/// Why a copy ended early.
enum Failure {
    Stopped,
    Misplaced(Box<Misplaced>),
    Seal(SealError),
}

impl From<SealError> for Failure {
    fn from(error: SealError) -> Failure {
        Failure::Seal(error)
    }
}

/// Runs `work` for each task on several threads, which take the tasks in their order.
fn on_threads<M: Media>(
    job: &Job<'_, M>,
    tasks: &[Task],
    work: impl Fn(&Task, &mut Buffers) -> Result<Outcome, ConvertError> + Sync,
) -> Result<Outcome, ConvertError> {
    let next = AtomicUsize::new(0);
    let total = Mutex::new((Outcome::default(), None));
    let worker = || {
        let mut buffers = Buffers::default();
        while let Some(task) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
            let result = work(task, &mut buffers);
            let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
            match result {
                Ok(outcome) => total.0.add(outcome),
                Err(error) => {
                    // Only the first error is kept: later ones only say that a thread was stopped.
                    total.1.get_or_insert(error);
                    next.store(tasks.len(), Ordering::Relaxed);
                    job.control.stop();
                    return;
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..job.jobs.min(tasks.len()).max(1) {
            // If a thread cannot be started, the others do its work.
            let _ = thread::Builder::new().spawn_scoped(scope, worker);
        }
        worker();
    });
    let (mut outcome, error) = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcome.found.sort_by(|a, b| a.file.cmp(&b.file));
    error.map_or(Ok(outcome), Err)
}

impl Outcome {
    fn add(&mut self, other: Outcome) {
        self.files += other.files;
        self.bytes += other.bytes;
        self.removed += other.removed;
        self.found.extend(other.found);
    }
}

/// Removes the unfinished new files that a stopped run left.
///
/// # Errors
/// Errors of the file system.
pub fn clean<M: Media>(media: &M, leftovers: &[std::path::PathBuf]) -> Result<(), ConvertError> {
    for path in leftovers {
        media.remove(path).map_err(ConvertError::io(path, "remove what a stopped run left"))?;
    }
    Ok(())
}

/// Makes files empty whose header never reached the disk: pgseal reads such a file as empty, but a
/// plain server would not. Reads each file once more before the change.
///
/// # Errors
/// Errors of the file system; an error for a file that has content by now.
pub fn empty_without_header<M: Media>(media: &M, tasks: &[Task]) -> Result<(), ConvertError> {
    let tasks = tasks.iter().filter(|task| task.action == Action::Empty);
    tasks.map(|task| &*task.item.path).try_for_each(|path| empty(media, path))
}

fn empty<M: Media>(media: &M, path: &Path) -> Result<(), ConvertError> {
    let failed = |error| ConvertError::io(path, "read the file")(error);
    let old = media.open(path).map_err(failed)?;
    let mut start = [0; geometry::HEADER_LEN as usize];
    let got = old.read_at(&mut start, SealedOff(0)).map_err(failed)?;
    let (head, behind) = start[..got].split_at(got.min(geometry::HEAD_LEN as usize));
    let has_no_header = matches!(header::classify(head), Ok(Kind::NoHeader))
        && behind.iter().all(|byte| *byte == 0);
    if !has_no_header || old.len().map_err(failed)?.0 > geometry::HEADER_LEN {
        let text =
            "it has content now; is a server running? Stop it and run the same command again";
        let source = std::io::Error::other(text);
        return Err(ConvertError::io(path, "take the file for an empty one")(source));
    }
    let new = with_suffix(path);
    media.remove(&new).map_err(ConvertError::io(&new, "remove what a stopped run left"))?;
    let file = media.create(&new, path).map_err(ConvertError::io(&new, "make the file"))?;
    file.sync().map_err(ConvertError::io(&new, "sync the file"))?;
    media.rename(&new, path).map_err(ConvertError::io(path, "replace the file"))?;
    media.sync_dir(parent(path)).map_err(ConvertError::io(path, "sync the directory"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test ends where a step fails")]
mod tests {
    use super::*;
    use crate::Disk;

    #[test]
    fn only_files_of_zeros_no_longer_than_a_header_are_emptied() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("16384");
        let mut late = vec![0; 8192];
        late[4000] = 1;
        for (content, is_empty) in [
            (vec![0; 8192], true),
            (vec![0; 100], true),
            (vec![0; 8193], false),
            (late, false),
            (b"rows".to_vec(), false),
        ] {
            std::fs::write(&path, &content).unwrap();
            assert_eq!(empty(&Disk, &path).is_ok(), is_empty);
            let left = if is_empty { Vec::new() } else { content };
            assert_eq!(std::fs::read(&path).unwrap(), left);
        }
    }
}
