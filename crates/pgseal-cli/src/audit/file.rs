//! Appends lines to the file of the audit trail, each chained to the one before it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use pgseal_keys::audit::{AuditKey, Entry, Link, MAX_LINE};
use rustix::fs::OFlags;

/// The mode of a new file: a group of auditors may read it.
const MODE: u32 = 0o640;
/// How long another process may hold the lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// Appends a line, and syncs it.
///
/// # Errors
/// When the file lies in the data directory, when it is a link or no regular file, when others may
/// write it, or when the system refuses.
pub fn append(
    path: &Path,
    entry: &Entry,
    key: Option<&AuditKey>,
    datadir: Option<&Path>,
) -> io::Result<()> {
    let mut file = open(path, datadir)?;
    lock(&file)?;
    let len = file.metadata()?.len();
    let tail = tail(&mut file, len)?;
    let mut line = entry.chained(&tail.last, key).map_err(io::Error::other)?;
    if !tail.is_whole {
        // A power cut left a part of a line.
        line.insert(0, '\n');
    }
    line.push('\n');
    let written = file.write_all(line.as_bytes()).and_then(|()| file.sync_data());
    if written.is_err() {
        // On a full disk no part of a line stays. If this fails, a check finds the part.
        let _ = file.set_len(len);
    }
    written
}

/// The last line of the file, if there is one. Fails as [`append`] would, and writes nothing.
///
/// # Errors
/// As [`append`].
pub fn last_line(path: &Path, datadir: Option<&Path>) -> io::Result<Option<Vec<u8>>> {
    if fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
        rustix::fs::access(path.parent().unwrap_or(Path::new("/")), access)?;
        return Ok(None);
    }
    let mut file = open(path, datadir)?;
    let len = file.metadata()?.len();
    let end = end(&mut file, len)?;
    let lines = end.strip_suffix(b"\n").unwrap_or(&end);
    Ok(lines
        .rsplit(|byte| *byte == b'\n')
        .next()
        .filter(|line| !line.is_empty())
        .map(<[u8]>::to_vec))
}

fn open(path: &Path, datadir: Option<&Path>) -> io::Result<File> {
    let refused = |what: &str| io::Error::other(what.to_owned());
    let dir = path.parent().ok_or_else(|| refused("it is no file"))?.canonicalize()?;
    let datadir = datadir.and_then(|datadir| datadir.canonicalize().ok());
    if datadir.is_some_and(|datadir| dir.starts_with(datadir)) {
        return Err(refused("it lies in the data directory, whose writer could change it"));
    }
    let path = dir.join(path.file_name().ok_or_else(|| refused("it is no file"))?);
    // A FIFO must not make the program wait.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let flags = i32::try_from(flags.bits()).map_err(io::Error::other)?;
    let options = || {
        let mut options = OpenOptions::new();
        options.read(true).append(true).mode(MODE).custom_flags(flags);
        options
    };
    let owner = fs::metadata(&dir)?;
    let me = rustix::process::geteuid().as_raw();
    let file = match options().create_new(true).open(&path) {
        // A file that root makes in the directory of the server's user is one of that user.
        Ok(file) if owner.uid() != me => {
            // Only root may do this; another user's file stays that user's.
            let _ = fchown(&file, Some(owner.uid()), Some(owner.gid()));
            file
        }
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => options().open(&path)?,
        Err(error) => return Err(error),
    };
    let meta = file.metadata()?;
    if !meta.is_file() || meta.nlink() != 1 {
        return Err(refused("it is no regular file, or has a second name"));
    }
    if ![0, me, owner.uid()].contains(&meta.uid()) || meta.mode() & 0o002 != 0 {
        return Err(refused("another user owns it, or every user may write it"));
    }
    Ok(file)
}

/// Waits for the lock; the kernel releases it with the file.
fn lock(file: &File) -> io::Result<()> {
    let deadline = Instant::now() + LOCK_TIMEOUT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(5));
            }
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "another process locks it"));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
}

/// The end of a file.
struct Tail {
    last: Link,
    /// Whether the last line has its newline.
    is_whole: bool,
}

/// The last bytes: twice the longest line, and the newlines.
fn end(file: &mut File, len: u64) -> io::Result<Vec<u8>> {
    let window = (2 * MAX_LINE + 2) as u64;
    file.seek(SeekFrom::Start(len.saturating_sub(window)))?;
    let mut bytes = Vec::new();
    file.take(window).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn tail(file: &mut File, len: u64) -> io::Result<Tail> {
    if len == 0 {
        return Ok(Tail { last: Link::START, is_whole: true });
    }
    let bytes = end(file, len)?;
    let is_whole = bytes.last() == Some(&b'\n');
    let lines = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    let last = lines.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    Ok(Tail { last: Link::to(last), is_whole })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use pgseal_keys::audit::Check;

    use super::*;

    fn entry() -> Entry {
        let time = "2026-01-31T12:00:00Z".to_owned();
        Entry { time, event: "unlock".to_owned(), ..Entry::default() }
    }

    fn checked(path: &Path) -> (u64, usize) {
        let text = fs::read(path).unwrap();
        let mut check = Check::new(None);
        for line in text.strip_suffix(b"\n").unwrap().split(|byte| *byte == b'\n') {
            check.take(line).unwrap();
        }
        (check.lines, check.findings.len())
    }

    #[test]
    fn many_processes_make_one_chain() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let path = path.clone();
                thread::spawn(move || {
                    (0..10).for_each(|_| append(&path, &entry(), None, None).unwrap());
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(checked(&path), (40, 0));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o137, 0);
    }

    #[test]
    fn a_torn_line_is_found_and_does_not_spoil_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        append(&path, &entry(), None, None).unwrap();
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"pgseal_au").unwrap();
        append(&path, &entry(), None, None).unwrap();
        let (lines, findings) = checked(&path);
        assert_eq!(lines, 3);
        // The torn line itself, and the numbers that begin again behind it.
        assert_eq!(findings, 2);
    }

    #[test]
    fn no_other_file_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let refused = |path: &Path| append(path, &entry(), None, Some(&dir.path().join("data")));
        let target = dir.path().join("target");
        fs::write(&target, "").unwrap();
        let link = dir.path().join("link");
        symlink(&target, &link).unwrap();
        assert!(refused(&link).is_err());
        let second = dir.path().join("second");
        fs::hard_link(&target, &second).unwrap();
        assert!(refused(&second).is_err());
        fs::remove_file(&second).unwrap();
        refused(&target).unwrap();
        fs::set_permissions(&target, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(refused(&target).is_err());
        fs::create_dir_all(dir.path().join("data/log")).unwrap();
        assert!(refused(&dir.path().join("data/log/audit.log")).is_err());
        symlink(dir.path().join("data/log"), dir.path().join("log")).unwrap();
        assert!(refused(&dir.path().join("log/audit.log")).is_err());
        assert_eq!(fs::read_dir(dir.path().join("data/log")).unwrap().count(), 0);
        let fifo = dir.path().join("fifo");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, kind, mode, 0).unwrap();
        assert!(refused(&fifo).is_err());
    }
}
