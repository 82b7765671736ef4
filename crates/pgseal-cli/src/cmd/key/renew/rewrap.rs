//! Wraps the file keys in the headers of a data directory under the active data key.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use pgseal_core::geometry::HEAD_LEN;
use pgseal_core::header::{self, Kind};
use pgseal_core::random::LibraryRandom;
use pgseal_core::{Generation, KeySet};
use rustix::fs::{FlockOperation, OFlags};

use crate::error::CliError;
use crate::out;
use crate::scan::{self, Root, Scan, Seen};

/// How often all files are looked at: files may appear under the older key until the last process
/// of the server that has opened an empty one has written to it.
const PASSES: usize = 5;

/// What was done to the files.
#[derive(Debug, Default)]
pub struct Outcome {
    /// How many headers were written.
    pub files: u64,
    /// Files that keep an older data key, and why.
    pub left: Vec<(PathBuf, String)>,
}

/// Wraps the file key of each file anew that has an older data key, until there is none.
///
/// # Errors
/// [`CliError::Io`] if a file system does not sync.
pub fn all(root: &Path, keys: &KeySet, shows_progress: bool) -> Result<Outcome, CliError> {
    let mut outcome = Outcome::default();
    for _ in 0..PASSES {
        let scan = scan::scan(root, Root::DataDir);
        outcome.left = closed(&scan);
        let older = older(&scan, keys);
        let form = "{pos}/{len} files  {bar:30}  {eta} left";
        let bar = out::progress_bar(older.len() as u64, !shows_progress, form);
        let mut written = 0;
        for (path, rel) in older {
            bar.inc(1);
            match one(&path, keys) {
                Ok(true) => written += 1,
                Ok(false) => {}
                Err(why) => outcome.left.push((rel, why)),
            }
        }
        bar.finish_and_clear();
        outcome.files += written;
        if written == 0 {
            sync(root, &scan)?;
            break;
        }
    }
    Ok(outcome)
}

/// The sealed files of this cluster with an older data key: path, and path in the data directory.
fn older(scan: &Scan, keys: &KeySet) -> Vec<(PathBuf, PathBuf)> {
    let is_older =
        |generation: Generation| !generation.is_ephemeral() && generation < keys.active();
    let older = scan.entries.iter().filter(|entry| match &entry.seen {
        Seen::Sealed(header) => header.keyring_id == keys.keyring_id && is_older(header.generation),
        _ => false,
    });
    older.map(|entry| (entry.path.clone(), entry.rel.clone())).collect()
}

/// The directories and files that could not be read: their data key is not known.
fn closed(scan: &Scan) -> Vec<(PathBuf, String)> {
    let files = scan.entries.iter().filter_map(|entry| match &entry.seen {
        Seen::Unreadable(why) | Seen::BadHeader(why) => Some((entry.rel.clone(), why.clone())),
        _ => None,
    });
    scan.closed.iter().cloned().chain(files).collect()
}

/// Wraps the file key of one file anew. Returns whether the header was written: not if the file is
/// gone, or has the active data key by now.
fn one(path: &Path, keys: &KeySet) -> Result<bool, String> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let flags = i32::try_from(flags.bits()).unwrap_or(0);
    let file = match OpenOptions::new().read(true).write(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error.to_string()),
    };
    // The lock under which the library writes headers; it ends when the file is closed.
    lock(&file).map_err(|error| error.to_string())?;
    let mut head = [0; HEAD_LEN as usize];
    match file.read_exact_at(&mut head, 0) {
        Ok(()) => {}
        // Emptied meanwhile.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
        Err(error) => return Err(error.to_string()),
    }
    let header = match header::classify(&head).map_err(|error| error.to_string())? {
        Kind::Sealed(header) if header.generation != keys.active() => header,
        _ => return Ok(false),
    };
    let renewed = header::rewrap(&head, &header, keys, &LibraryRandom::new());
    let renewed = renewed.map_err(|error| error.to_string())?;
    // One sector: a crash leaves the old head or the new one, and the keyring has both data keys.
    file.write_all_at(&renewed, 0).map_err(|error| error.to_string())?;
    Ok(true)
}

fn lock(file: &File) -> io::Result<()> {
    loop {
        match rustix::fs::fcntl_lock(file, FlockOperation::LockExclusive) {
            Err(rustix::io::Errno::INTR) => {}
            done => return Ok(done?),
        }
    }
}

/// Syncs the file systems of the data directory, of the WAL and of the tablespaces.
fn sync(root: &Path, scan: &Scan) -> Result<(), CliError> {
    for dir in [root].into_iter().chain(scan.outside.iter().map(|(_, target)| target.as_path())) {
        let failed = CliError::io(dir, "sync the file system");
        match File::open(dir).and_then(|dir| Ok(rustix::fs::syncfs(dir)?)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
    }
    Ok(())
}
