//! Examines a file that was just opened: reads its head, and decides what happens if the header
//! does not open.

use core::ffi::c_int;

use pgseal_core::{SealError, geometry, storage};

use crate::file::damage::{self, Head, Reason};
use crate::file::manifest;
use crate::file::open_file::{self, OpenFile};
use crate::file::plan::SealTarget;
use crate::file::range_lock::RangeLock;
use crate::file::sealing::Sealing;
use crate::file::storage::FdStorage;
use crate::os::real::Errno;
use crate::os::sys;
use crate::place::datadir::Root;

/// Examines the file of a descriptor. `None`: the file is plain.
pub fn examine(
    fd: c_int,
    path: &[u8],
    flags: c_int,
    truncates: bool,
    target: SealTarget,
) -> Result<Option<OpenFile>, Errno> {
    let SealTarget { sealing, reads_plain, root, .. } = target;
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
    let append = flags & libc::O_APPEND != 0;
    let without_header = |sealing: Option<Sealing>| {
        sealing.map(|sealing| OpenFile::without_header(sealing, path, append, writes)).transpose()
    };
    let mut start = [0; geometry::HEAD_LEN as usize];
    let start = match sys::pread_full(fd, &mut start, 0) {
        Ok(got) => &start[..got],
        // A directory, a pipe or a device is never sealed.
        Err(libc::EISDIR | libc::ESPIPE | libc::ENXIO | libc::EINVAL) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    let writes_new = flags & (libc::O_CREAT | libc::O_EXCL) == libc::O_CREAT | libc::O_EXCL;
    let difference = manifest::objection(fd, path, truncates || writes_new, root)?;
    if start.is_empty() && difference.is_none() {
        return without_header(sealing.filter(|_| is_regular(fd)));
    }
    // What is wrong with the header says more than that the file is not as listed.
    let head = match (look(fd, start, sealing, root), difference) {
        (Ok(Head::Sealed(_) | Head::Empty), Some(difference)) => {
            Ok(Head::Bad(Reason::Differs(difference)))
        }
        (head, _) => head,
    };
    let reason = match head.map_err(|error| open_file::describe(&error, path))? {
        Head::Sealed(file) => return Ok(Some(OpenFile::sealed(file, path, append, writes))),
        Head::Empty => return without_header(sealing),
        Head::Bad(Reason::Plain) if !truncates && reads_plain && (!writes || sealing.is_none()) => {
            return Ok(None);
        }
        Head::Bad(reason) => reason,
    };
    let is_zeros =
        || difference.is_none() && storage::is_zeros(&FdStorage::new(fd)).unwrap_or(false);
    let handling = sealing.map(|sealing| {
        damage::judge(reason, target.class, path, sealing, root, truncates, is_zeros)
    });
    match handling {
        Some(damage::Handling::NeverWritten) => without_header(sealing),
        Some(damage::Handling::Opens(damage)) => {
            OpenFile::damaged(damage, path, append, writes).map(Some)
        }
        Some(damage::Handling::Fails) | None => {
            damage::fails(reason, path);
            Err(reason.errno())
        }
    }
}

/// As [`damage::look`]. A header that does not open may be one whose file key was just being
/// wrapped anew (`pgseal key renew`): it is read again under the lock under which headers are
/// written.
fn look(
    fd: c_int,
    start: &[u8],
    sealing: Option<Sealing>,
    root: Option<&'static Root>,
) -> Result<Head, SealError> {
    let head = damage::look(fd, start, sealing, root);
    if !matches!(head, Ok(Head::Bad(Reason::Header(_)))) {
        return head;
    }
    let Ok(_lock) = RangeLock::shared(fd) else { return head };
    let mut again = [0; geometry::HEAD_LEN as usize];
    match sys::pread_full(fd, &mut again, 0) {
        Ok(got) if again[..got] != *start => damage::look(fd, &again[..got], sealing, root),
        _ => head,
    }
}

fn is_regular(fd: c_int) -> bool {
    sys::fstat(fd).is_some_and(|st| sys::is_regular(st.st_mode))
}
