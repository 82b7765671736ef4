//! Descriptors that were made without a hook, and those of files that fell asleep
//! ([`crate::file::fds`]). This module decides what they are before a byte goes through, by the
//! rules that apply when a file is opened.

use core::ffi::c_int;

use libc::{O_ACCMODE, O_APPEND, O_PATH, O_RDONLY, O_RDWR, O_WRONLY};
use pgseal_pgdata::counters::Counter;

use crate::file::counters;
use crate::file::examine;
use crate::file::open_file::{OpenFile, Resumed};
use crate::file::plan::{self, Plan};
use crate::os::log::{self, Shown};
use crate::os::real::{self, Errno};
use crate::os::sys::{self, PathText};
use crate::place::head;

/// Examines a regular file behind a descriptor that the table does not know. `None`: the file is
/// plain. If the file may not be used, the result fails in each call, and a line in the log says
/// why.
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
    let target = match plan::plan(path, access) {
        Plan::Refuse(errno) => return Err(errno),
        Plan::Seal(target) => target,
        // Another file may have this path by now. The head was read through the descriptor and
        // decides.
        Plan::AsFound(target) if sealed => target,
        Plan::AsFound(_) | Plan::Pass(_) | Plan::Lock(_) => return Ok(None),
    };
    // A hook would have opened the file for reading as well, and without O_APPEND.
    if access != O_RDONLY && (access == O_WRONLY || flags & O_APPEND != 0) {
        log::line(format_args!(
            "ERROR: \"{}\": descriptor {fd} was opened by another program, for writing or appending only; it cannot be used for a sealed file",
            Shown(path)
        ));
        return Err(libc::EIO);
    }
    let mut open = examine::examine(fd, path, access, false, target)?;
    if let Some(open) = &mut open {
        open.set_class(target.class, path);
        // SAFETY: no pointers involved. The kernel's position is only meaningful for a sealed file
        // if it is still 0.
        if unsafe { real::lseek(fd, 0, libc::SEEK_CUR) } != 0 {
            open.forget_position();
        }
    }
    Ok(open)
}

/// Opens a file again that fell asleep in this state. If that fails, the result fails in each call.
pub fn wake(fd: c_int, path: &[u8], state: Resumed) -> OpenFile {
    wake_at(fd, path, state).unwrap_or_else(|errno| OpenFile::refused(errno, path))
}

fn wake_at(fd: c_int, path: &[u8], state: Resumed) -> Result<OpenFile, Errno> {
    let access = if state.writable() { O_RDWR } else { O_RDONLY };
    let target = match plan::plan(path, access) {
        Plan::Seal(target) | Plan::AsFound(target) => target,
        Plan::Refuse(errno) => return Err(errno),
        Plan::Pass(_) | Plan::Lock(_) => return Err(libc::EIO),
    };
    let examined = examine::examine(fd, path, access, false, target)
        .inspect_err(|_| counters::add(target.counted(), Counter::FailedFiles, 1))?;
    let Some(mut open) = examined else {
        log::line(format_args!(
            "ERROR: \"{}\" was sealed and now holds plain bytes that pgseal did not write; it stays untouched",
            Shown(path)
        ));
        return Err(libc::EIO);
    };
    open.set_class(target.class, path);
    open.wake(state);
    Ok(open)
}

/// The path of a descriptor's file; for a deleted file, its last path.
fn path_of(fd: c_int) -> PathText {
    let link = sys::descriptor_link(fd).into_c().ok();
    let mut path = link.and_then(|link| sys::read_link(&link)).unwrap_or_else(PathText::new);
    if let Some(before) = path.strip_suffix(b" (deleted)") {
        path.truncate(before.len());
    }
    path
}
