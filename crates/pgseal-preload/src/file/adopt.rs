//! Descriptors that no hook saw being made: what they are is decided here, before a byte goes
//! through, as it would have been at their opening.

use core::ffi::c_int;

use libc::{O_ACCMODE, O_APPEND, O_PATH, O_RDONLY, O_WRONLY};

use crate::file::examine;
use crate::file::open_file::OpenFile;
use crate::file::plan::{self, Plan};
use crate::os::log::{self, Shown};
use crate::os::real::{self, Errno};
use crate::os::sys::{self, PathText};
use crate::place::head;

/// A regular file behind a descriptor that the table does not know. `None`: plain. A file that may
/// not be used as it is fails in each call, with a line in the log that says why.
pub fn examine(fd: c_int) -> Option<OpenFile> {
    // SAFETY: no pointers involved.
    let flags = unsafe { real::fcntl(fd, libc::F_GETFL, core::ptr::null_mut()) };
    if flags < 0 || flags & O_PATH != 0 {
        return None;
    }
    let path = path_of(fd);
    match examine_at(fd, &path, flags) {
        Ok(file) => file,
        Err(errno) => Some(OpenFile::refused(errno, &path)),
    }
}

fn examine_at(fd: c_int, path: &[u8], flags: c_int) -> Result<Option<OpenFile>, Errno> {
    let access = flags & O_ACCMODE;
    let sealed = head::starts_sealed(fd);
    let ours = match plan::plan(path, access) {
        Plan::Refuse(errno) => return Err(errno),
        Plan::Seal(ours) => ours,
        // The path may have become another file's since; the head is this one's.
        Plan::AsFound(ours) if sealed => ours,
        Plan::AsFound(_) | Plan::Pass(_) | Plan::Lock(_) => return Ok(None),
    };
    // A hook would have opened it for reading as well, and kept O_APPEND to itself.
    if access != O_RDONLY && (access == O_WRONLY || flags & O_APPEND != 0) {
        log::line(format_args!(
            "ERROR: \"{}\": descriptor {fd} was opened by another program, for writing or appending only; it cannot be used for a sealed file",
            Shown(path)
        ));
        return Err(libc::EIO);
    }
    let mut open = examine::examine(fd, path, access, false, ours)?;
    if let Some(open) = &mut open {
        open.set_class(ours.class);
        // SAFETY: no pointers involved. Where the kernel is says nothing of a sealed file, unless
        // nobody has moved it yet.
        if unsafe { real::lseek(fd, 0, libc::SEEK_CUR) } != 0 {
            open.forget_position();
        }
    }
    Ok(open)
}

/// The path of a descriptor's file, or the last one that it had.
fn path_of(fd: c_int) -> PathText {
    let link = sys::descriptor_link(fd).into_c().ok();
    let mut path = link.and_then(|link| sys::read_link(&link)).unwrap_or_else(PathText::new);
    if let Some(before) = path.strip_suffix(b" (deleted)") {
        path.truncate(before.len());
    }
    path
}
