//! A file that was just opened: what its head says, and what becomes of one that does not open.

use core::ffi::c_int;

use pgseal_core::geometry;

use crate::file::damage::{self, Head, Reason};
use crate::file::open_file::{self, OpenFile};
use crate::file::plan::Ours;
use crate::file::want::Want;
use crate::os::real::Errno;
use crate::os::sys;

/// Looks at the file of a descriptor. `None`: it is to be used as it is.
pub fn examine(
    fd: c_int,
    path: &[u8],
    flags: c_int,
    truncates: bool,
    ours: Ours,
) -> Result<Option<OpenFile>, Errno> {
    let Ours { want, reads_plain, root, .. } = ours;
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
    let append = flags & libc::O_APPEND != 0;
    let without_header = |want: Option<Want>| {
        Ok(want.map(|want| OpenFile::without_header(want, path, append, writes)))
    };
    let mut start = [0; geometry::HEAD_LEN as usize];
    let start = match sys::pread_full(fd, &mut start, 0) {
        Ok(got) => &start[..got],
        // A directory, a pipe, a device: not a file with contents of ours.
        Err(libc::EISDIR | libc::ESPIPE | libc::ENXIO | libc::EINVAL) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    if start.is_empty() {
        return without_header(want.filter(|_| is_regular(fd)));
    }
    let head = damage::look(fd, start, want, root);
    let reason = match head.map_err(|error| open_file::describe(&error, path))? {
        Head::Sealed(file) => return Ok(Some(OpenFile::sealed(file, path, append, writes))),
        Head::Empty => return without_header(want),
        Head::Bad(Reason::Plain) if !truncates && reads_plain && (!writes || want.is_none()) => {
            return Ok(None);
        }
        Head::Bad(reason) => reason,
    };
    let handling = want.map(|want| damage::judge(reason, ours.class, path, want, root, truncates));
    match handling {
        Some(damage::Handling::NeverWritten) => without_header(want),
        Some(damage::Handling::Opens(damage)) => {
            Ok(Some(OpenFile::damaged(damage, path, append, writes)))
        }
        Some(damage::Handling::Fails) | None => {
            damage::fails(reason, path);
            Err(reason.errno())
        }
    }
}

fn is_regular(fd: c_int) -> bool {
    sys::fstat(fd).is_some_and(|st| sys::is_regular(st.st_mode))
}
