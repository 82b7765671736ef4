//! Sealed bytes behind a file descriptor.

use core::cell::RefCell;
use core::ffi::c_int;
use core::time::Duration;
use std::io;

use libc::{iovec, off_t};
use pgseal_core::shared_tags::SharedTags;
use pgseal_core::storage::{Accelerator, GroupName, Held, Storage};
use pgseal_core::versions::Table;
use pgseal_core::{SealedLen, SealedOff};

use crate::file::window::TagWindow;
use crate::file::{accelerators, changes, held, shared_tags, versions};
use crate::os::real;
use crate::os::sys;

/// The accelerators that one open file owns.
#[derive(Default)]
pub struct Maps {
    window: RefCell<TagWindow>,
}

/// A descriptor as storage. Does not close the descriptor.
#[derive(Clone, Copy)]
pub struct FdStorage<'a> {
    fd: c_int,
    maps: Option<&'a Maps>,
}

impl<'a> FdStorage<'a> {
    /// Without accelerators of an open file.
    pub fn new(fd: c_int) -> FdStorage<'a> {
        FdStorage { fd, maps: None }
    }

    /// With the accelerators of an open file.
    pub fn with_maps(fd: c_int, maps: &'a Maps) -> FdStorage<'a> {
        FdStorage { fd, maps: Some(maps) }
    }
}

fn offset(sealed_off: SealedOff) -> io::Result<off_t> {
    off_t::try_from(sealed_off.0).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))
}

impl Storage for FdStorage<'_> {
    fn read_at(&self, buf: &mut [u8], sealed_off: SealedOff) -> io::Result<usize> {
        sys::pread_full(self.fd, buf, sealed_off.0).map_err(io::Error::from_raw_os_error)
    }

    fn write_at(&self, buf: &[u8], sealed_off: SealedOff) -> io::Result<()> {
        sys::pwrite_all(self.fd, buf, sealed_off.0).map_err(io::Error::from_raw_os_error)
    }

    fn len(&self) -> io::Result<SealedLen> {
        // lseek and not fstat: PostgreSQL asks for the length most often, and lseek is cheaper. The
        // kernel's own file offset has no meaning for a sealed file.
        // SAFETY: no pointers involved.
        let end = unsafe { real::lseek(self.fd, 0, libc::SEEK_END) };
        u64::try_from(end).map(SealedLen).map_err(|_| io::Error::last_os_error())
    }

    fn set_len(&self, sealed_len: SealedLen) -> io::Result<()> {
        if let Some(maps) = self.maps {
            maps.window.borrow_mut().close();
        }
        // SAFETY: no pointers involved.
        let done = unsafe { real::ftruncate(self.fd, offset(SealedOff(sealed_len.0))?) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn sync(&self) -> io::Result<()> {
        // SAFETY: no pointers involved.
        let done = unsafe { real::fdatasync(self.fd) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl Accelerator for FdStorage<'_> {
    fn read_two_at(
        &self,
        first: &mut [u8],
        second: &mut [u8],
        sealed_off: SealedOff,
    ) -> io::Result<usize> {
        let parts = [
            iovec { iov_base: first.as_mut_ptr().cast(), iov_len: first.len() },
            iovec { iov_base: second.as_mut_ptr().cast(), iov_len: second.len() },
        ];
        // SAFETY: both parts describe buffers that are valid for writes.
        let got = unsafe { real::preadv(self.fd, parts.as_ptr(), 2, offset(sealed_off)?) };
        match usize::try_from(got) {
            Ok(got) if got == first.len() + second.len() => Ok(got),
            Err(_) if real::errno() != libc::EINTR => Err(io::Error::last_os_error()),
            // A short read at the end of the file, or EINTR: `read_at` retries and tells which.
            Ok(_) | Err(_) => {
                let got = self.read_at(first, sealed_off)?;
                if got < first.len() {
                    return Ok(got);
                }
                Ok(got + self.read_at(second, SealedOff(sealed_off.0 + got as u64))?)
            }
        }
    }

    fn write_tags(&self, entries: &[u8], sealed_off: SealedOff) -> io::Result<()> {
        let window = self.maps.filter(|_| accelerators::are_on()).map(|maps| &maps.window);
        if window.is_some_and(|window| window.borrow_mut().write(self.fd, entries, sealed_off)) {
            return Ok(());
        }
        self.write_at(entries, sealed_off)
    }

    fn remembers_tags(&self) -> bool {
        accelerators::are_on()
    }

    fn tag_changes(&self, group: GroupName) -> Option<u64> {
        changes::seen(group)
    }

    fn count_tag_change(&self, group: GroupName) -> Option<u64> {
        changes::count(group)
    }

    #[inline]
    fn shared_tags(&self) -> Option<&SharedTags> {
        shared_tags::table()
    }

    fn held_entry(&self, file_id: &[u8; 16]) -> Held {
        held::get(file_id)
    }

    fn hold_entry(&self, file_id: &[u8; 16], known: Held) {
        held::set(file_id, known);
    }

    #[inline]
    fn versions(&self) -> Option<&Table> {
        versions::table()
    }

    fn pause(&self, attempt: u32) {
        std::thread::sleep(Duration::from_micros(50 << attempt.min(6)));
    }
}
