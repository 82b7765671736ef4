//! Maps the tag block that a process writes to repeatedly into memory.
//!
//! A page and its tag are two writes, and the small write costs the file system almost as much as
//! the large one. Checkpoints, bulk loads and VACUUM write many pages of one group in a row: from
//! the fourth tag write to a tag block on, the tags are stored through a map of that block.
//!
//! A store into a map cannot report an error: it raises SIGBUS if the file was truncated, or if the
//! kernel fails to read the block again or to allocate space for it. [`crate::os::fault`] catches
//! the signal, and the tags are then written by `pwrite`, which can report an error. To keep this
//! rare, a block is only mapped after this process has written it by `pwrite` (so it is allocated
//! and in memory), and only on file systems that overwrite allocated blocks in place: not on
//! copy-on-write file systems.

use core::ffi::c_int;
use core::ptr::{self, NonNull};

use pgseal_core::SealedOff;
use pgseal_core::geometry::TAG_BLOCK_LEN;

use crate::os::fault;
use crate::os::real;

const LEN: usize = TAG_BLOCK_LEN as usize;
/// How many writes to a tag block use `pwrite` before the block is mapped.
const WRITES_BEFORE_MAP: u32 = 3;

/// The window of one open file.
#[derive(Default)]
pub struct TagWindow {
    /// The sealed offset of the tag block.
    block_off: u64,
    writes: u32,
    map: Option<NonNull<u8>>,
    /// The block cannot be mapped: file system, page size or signal handler do not allow it, or
    /// `mmap` failed.
    unsuitable: bool,
}

// SAFETY: the map is memory of the process, not of a thread, and is used under the lock of the
// open file that owns the window.
unsafe impl Send for TagWindow {}

impl TagWindow {
    /// Stores tag entries of one tag block; `false` if the caller has to write them.
    pub fn write(&mut self, fd: c_int, entries: &[u8], sealed_off: SealedOff) -> bool {
        let block_off = sealed_off.0 & !(TAG_BLOCK_LEN - 1);
        let within = (sealed_off.0 - block_off) as usize;
        if self.unsuitable || within + entries.len() > LEN {
            return false;
        }
        if block_off != self.block_off {
            self.close();
            self.block_off = block_off;
        }
        if self.map.is_none() {
            self.writes += 1;
            if self.writes <= WRITES_BEFORE_MAP {
                return false;
            }
            self.open(fd);
        }
        let Some(map) = self.map else { return false };
        // SAFETY: `within` and the length lie within the map, checked above.
        let target = unsafe { map.as_ptr().add(within) };
        let is_there = fault::guarded(map.as_ptr(), LEN, || {
            // SAFETY: as above; `entries` cannot overlap a map that only we know.
            unsafe { ptr::copy_nonoverlapping(entries.as_ptr(), target, entries.len()) };
        });
        if !is_there {
            self.close();
        }
        is_there
    }

    fn open(&mut self, fd: c_int) {
        // A map starts at a multiple of the page size, so a tag block must be a multiple of the
        // page size.
        if !LEN.is_multiple_of(real::page_size())
            || !is_suitable(fd)
            || syncs_each_write(fd)
            || !fault::is_handled()
        {
            self.unsuitable = true;
            return;
        }
        let Ok(off) = libc::off_t::try_from(self.block_off) else { return };
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new map at an address of the kernel's choice.
        let map = unsafe { real::mmap(ptr::null_mut(), LEN, prot, libc::MAP_SHARED, fd, off) };
        if map == libc::MAP_FAILED {
            self.unsuitable = true;
        } else {
            self.map = NonNull::new(map.cast());
        }
    }

    /// Unmaps the block. The stored tags stay in the file.
    pub fn close(&mut self) {
        if let Some(map) = self.map.take() {
            // SAFETY: our own map, not used after this.
            unsafe { libc::munmap(map.as_ptr().cast(), LEN) };
        }
        self.block_off = 0;
        self.writes = 0;
    }
}

impl Drop for TagWindow {
    fn drop(&mut self) {
        self.close();
    }
}

/// Whether the file system overwrites an allocated block in place.
pub fn is_suitable(fd: c_int) -> bool {
    // The type of the constants depends on the C library.
    #[allow(clippy::unnecessary_cast)]
    let in_place = [libc::EXT4_SUPER_MAGIC as u64, libc::TMPFS_MAGIC as u64];
    kind_of_file_system(fd).is_some_and(|kind| in_place.contains(&kind))
}

/// Whether each write to the descriptor is on the disk when it returns, as WAL is written with
/// `wal_sync_method=open_datasync`: a store into a map would wait for a sync that never comes.
fn syncs_each_write(fd: c_int) -> bool {
    // The real call: the hooked one would lock the open file, which is locked here.
    // SAFETY: no pointers involved.
    let flags = unsafe { real::fcntl(fd, libc::F_GETFL, ptr::null_mut()) };
    // `O_SYNC` contains `O_DSYNC`.
    flags < 0 || flags & libc::O_DSYNC != 0
}

/// `f_type` of `statfs(2)`.
fn kind_of_file_system(fd: c_int) -> Option<u64> {
    let mut answer = core::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: room for the answer.
    if unsafe { libc::fstatfs(fd, answer.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call succeeded and filled the structure.
    let kind = unsafe { answer.assume_init() }.f_type;
    // A signed number for glibc, and none for musl.
    #[allow(clippy::unnecessary_cast)]
    let kind = kind as u64;
    Some(kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::OpenOptionsExt;

    /// Creates a file on a file system that allows mapping; the directory for temporary files may
    /// be on another one.
    fn file() -> std::fs::File {
        file_with(0)
    }

    fn file_with(flags: c_int) -> std::fs::File {
        let made = [std::env::temp_dir(), "/dev/shm".into()].into_iter().find_map(|dir| {
            let path = dir.join(format!("pgseal-window-{}-{flags}", std::process::id()));
            let mut options = std::fs::OpenOptions::new();
            options.read(true).write(true).create_new(true).custom_flags(flags);
            let file = options.open(&path).ok().filter(|file| is_suitable(file.as_raw_fd()));
            let _ = std::fs::remove_file(path);
            file
        });
        made.unwrap()
    }

    #[test]
    fn a_file_that_syncs_each_write_is_not_mapped() {
        for (flags, maps) in [(0, true), (libc::O_DSYNC, false), (libc::O_SYNC, false)] {
            let file = file_with(flags);
            file.set_len(4 * TAG_BLOCK_LEN).unwrap();
            assert_eq!(syncs_each_write(file.as_raw_fd()), !maps);
            let mut window = TagWindow::default();
            let at = SealedOff(TAG_BLOCK_LEN);
            for _ in 0..9 {
                window.write(file.as_raw_fd(), &[1; 32], at);
            }
            assert!(maps || window.unsuitable && window.map.is_none());
        }
    }

    #[test]
    fn a_map_whose_file_was_cut_is_given_up() {
        // The Rust runtime installs a SIGBUS handler, for stack overflows; remove it.
        // SAFETY: this test only.
        unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
        let (file, mut window) = (file(), TagWindow::default());
        let fd = file.as_raw_fd();
        file.set_len(4 * TAG_BLOCK_LEN).unwrap();
        let at = SealedOff(TAG_BLOCK_LEN + 64);
        let stored: Vec<bool> = (0..6).map(|byte| window.write(fd, &[byte; 32], at)).collect();
        assert_eq!(stored, [false, false, false, true, true, true]);
        let mut bytes = [0; 32];
        assert_eq!(crate::os::sys::pread_full(fd, &mut bytes, at.0), Ok(32));
        assert_eq!(bytes, [5; 32]);
        // Another process truncates the file.
        file.set_len(0).unwrap();
        assert!(!window.write(fd, &[7; 32], at));
        assert_eq!(file.metadata().unwrap().len(), 0);
        // The count of writes starts again.
        file.set_len(4 * TAG_BLOCK_LEN).unwrap();
        let stored: Vec<bool> = (0..5).map(|byte| window.write(fd, &[byte; 32], at)).collect();
        assert_eq!(stored, [false, false, false, true, true]);
        assert_eq!(crate::os::sys::pread_full(fd, &mut bytes, at.0), Ok(32));
        assert_eq!(bytes, [4; 32]);
    }
}
