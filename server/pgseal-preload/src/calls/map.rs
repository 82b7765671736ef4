//! Memory maps: the kernel would fill a map with sealed bytes, and write plain bytes back. A map
//! for reading gets a copy of the plain content at that moment. A map is refused if writes to it
//! would reach the file, or if it would have to follow later writes to the file.

use core::ffi::{c_int, c_void};

use libc::{off_t, size_t};
use pgseal_core::{Layout, PlainOff, geometry};

use crate::file::fds::{self, SharedFile};
use crate::os::log::{self, Shown};
use crate::os::real;
use crate::os::real::Errno;
use crate::os::sys;

/// The size of the pieces in which a copy is made.
const CHUNK: usize = 1 << 20;

/// The arguments of the caller's `mmap`.
#[derive(Clone, Copy)]
struct Asked {
    addr: *mut c_void,
    len: size_t,
    prot: c_int,
    flags: c_int,
    off: u64,
}

impl Asked {
    /// Whether writes through the map would reach the file.
    fn is_shared(&self) -> bool {
        matches!(self.flags & libc::MAP_TYPE, libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE)
    }
}

fn map_sealed(file: &SharedFile, fd: c_int, asked: Asked) -> Result<*mut c_void, Errno> {
    let page = real::page_size() as u64;
    if asked.len == 0 || !asked.off.is_multiple_of(page) {
        return Err(libc::EINVAL);
    }
    let (writable, layout, plain_len) = {
        let mut open = fds::lock(file);
        if asked.is_shared() && (asked.prot & libc::PROT_WRITE != 0 || open.writable()) {
            log::line(format_args!(
                "ERROR: \"{}\": a sealed file that is open for writing cannot be mapped into memory with MAP_SHARED: such a map would not follow what is written. The program has to read and write instead (SQLite: no journal_mode = WAL), or to keep the file outside the data directory",
                Shown(open.path())
            ));
            return Err(libc::EACCES);
        }
        let plain_len = open.len(fd).map_err(refusal)?;
        (open.writable(), open.layout(), plain_len)
    };
    let held = plain_len.saturating_sub(asked.off).min((asked.len as u64).next_multiple_of(page));
    if asked.prot == libc::PROT_NONE && !writable {
        return outline(fd, asked, layout, held);
    }
    copy(file, fd, asked, held)
}

/// The `errno` of `mmap` for a read that failed; the log has the details.
fn refusal(errno: Errno) -> Errno {
    if errno == libc::ENOMEM { errno } else { libc::EACCES }
}

/// Maps a copy of the plain content. The copy is an anonymous file, so that the kernel fills the
/// rest of the last page with zeros, raises SIGBUS for access beyond the last page, and applies
/// MAP_FIXED in one step.
fn copy(file: &SharedFile, fd: c_int, asked: Asked, held: u64) -> Result<*mut c_void, Errno> {
    let memory = sys::memory_file(c"pgseal-map", true)
        .map_err(|errno| if errno == libc::EMFILE { libc::ENFILE } else { errno })?;
    let end = off_t::try_from(held).map_err(|_| libc::EOVERFLOW)?;
    // SAFETY: no pointers involved.
    if unsafe { real::ftruncate(memory.0, end) } != 0 {
        return Err(no_room());
    }
    let mut buffer = Vec::new();
    let len = usize::try_from(held).unwrap_or(usize::MAX).min(CHUNK);
    buffer.try_reserve_exact(len).map_err(|_| libc::ENOMEM)?;
    buffer.resize(len, 0);
    let mut done = 0;
    while done < held {
        let wanted = usize::try_from(held - done).unwrap_or(usize::MAX).min(len);
        let got = fds::lock(file).read_at(fd, &mut [&mut buffer[..wanted]], asked.off + done);
        let got = got.map_err(refusal)?;
        if got == 0 {
            // The file was truncated meanwhile: the rest of the copy stays zeros.
            break;
        }
        write_all(memory.0, &buffer[..got], done)?;
        done += got as u64;
    }
    zeroize::Zeroize::zeroize(&mut buffer);
    if asked.is_shared() {
        // Prevents the program from making the map writable later and expecting its writes to reach
        // the file.
        // SAFETY: no pointers involved.
        let sealed =
            unsafe { real::fcntl(memory.0, F_ADD_SEALS, F_SEAL_FUTURE_WRITE as *mut c_void) };
        if sealed < 0 {
            return Err(libc::EACCES);
        }
    }
    mapped(asked, asked.prot, asked.flags, memory.0)
}

const F_ADD_SEALS: c_int = 1033;
const F_SEAL_FUTURE_WRITE: usize = 0x10;

fn write_all(fd: c_int, mut bytes: &[u8], mut at: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        // SAFETY: the bytes are valid for their length.
        let put = unsafe { real::pwrite(fd, bytes.as_ptr().cast(), bytes.len(), at as off_t) };
        match usize::try_from(put) {
            Ok(put) => {
                bytes = bytes.get(put..).unwrap_or_default();
                at += put as u64;
            }
            Err(_) if real::errno() == libc::EINTR => {}
            Err(_) => return Err(no_room()),
        }
    }
    Ok(())
}

/// The `errno` for an anonymous file without room: such a file consumes memory.
fn no_room() -> Errno {
    match real::errno() {
        libc::ENOSPC | libc::EFBIG => libc::ENOMEM,
        errno => errno,
    }
}

fn mapped(asked: Asked, prot: c_int, flags: c_int, fd: c_int) -> Result<*mut c_void, Errno> {
    // SAFETY: the caller's address and flags, as `mmap` got them, on a file of ours.
    let map = unsafe { real::mmap(asked.addr, asked.len, prot, flags, fd, 0) };
    if map == libc::MAP_FAILED { Err(real::errno()) } else { Ok(map) }
}

/// Makes a map without access rights, as programs do for `mincore`, which tells which pages of the
/// file are in the page cache. Each page of the map stands for the sealed page that holds its
/// first byte. Where the layout does not allow that, and behind the end of the file, the map has
/// pages without a file, which are never in memory.
fn outline(
    fd: c_int,
    asked: Asked,
    layout: Option<Layout>,
    held: u64,
) -> Result<*mut c_void, Errno> {
    let kept = asked.flags & !(libc::MAP_TYPE | libc::MAP_POPULATE);
    let flags = kept | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let map = mapped(asked, libc::PROT_NONE, flags, -1)?;
    let Some(layout @ (Layout::Paged | Layout::InPlace | Layout::Wal)) = layout else {
        return Ok(map);
    };
    for_each_run(layout, asked.off, held, real::page_size() as u64, &mut |run| {
        let flags = libc::MAP_PRIVATE | libc::MAP_FIXED;
        let (len, off) = ((run.to - run.from) as usize, run.sealed_off as off_t);
        // SAFETY: within the map just made, which belongs to this call alone.
        let place = unsafe { map.cast::<u8>().add(run.from as usize) };
        // SAFETY: as above. If the call fails, the range stays without a file.
        unsafe { real::mmap(place.cast(), len, libc::PROT_NONE, flags, fd, off) };
    });
    Ok(map)
}

/// Pages of a map that stand for adjacent pages of the sealed file.
#[derive(Debug)]
struct Run {
    /// Where the run begins and ends in the map, in bytes.
    from: u64,
    to: u64,
    /// The sealed offset of its first page: a multiple of the page size.
    sealed_off: u64,
}

/// Calls `visit` with the runs of a map of `held` bytes from the plain offset `off` on.
fn for_each_run(layout: Layout, off: u64, held: u64, page: u64, visit: &mut dyn FnMut(Run)) {
    let sealed_page = |from: u64| {
        let plain_off = PlainOff(off + from);
        let block = geometry::block_of(plain_off);
        let within = plain_off.0 - geometry::block_start(block).0;
        // A page of memory may be longer than a block, and so begin anywhere in a sealed page.
        (geometry::block_sealed_off(layout, block).0 + within) / page * page
    };
    let mut from = 0;
    while from < held {
        let sealed_off = sealed_page(from);
        let mut to = from + page;
        while to < held && sealed_page(to) == sealed_off + (to - from) {
            to += page;
        }
        visit(Run { from, to, sealed_off });
        from = to;
    }
}

macro_rules! mmap_family {
    ($($name:ident),*) => { $(
        /// `mmap(2)`.
        /// # Safety
        /// As for `mmap(2)`.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(addr: *mut c_void, len: size_t, prot: c_int, flags: c_int, fd: c_int, off: off_t) -> *mut c_void {
            if flags & libc::MAP_ANONYMOUS == 0
                && let Some(file) = fds::get(fd)
            {
                let off = u64::try_from(off).unwrap_or(u64::MAX);
                let asked = Asked { addr, len, prot, flags, off };
                return map_sealed(&file, fd, asked).unwrap_or_else(|errno| {
                    real::set_errno(errno);
                    libc::MAP_FAILED
                });
            }
            // SAFETY: the caller's arguments.
            unsafe { real::mmap(addr, len, prot, flags, fd, off) }
        }
    )* };
}

mmap_family!(mmap, mmap64);

#[cfg(test)]
mod tests {
    use super::*;

    /// For each size of a page that Linux has: every page of the map stands for the sealed page in
    /// which its content begins.
    #[test]
    fn each_page_stands_for_the_one_that_holds_its_first_byte() {
        const HELD: u64 = 700 * geometry::BLOCK_LEN + 100;
        for page in [4 << 10, 16 << 10, 64 << 10] {
            for layout in [Layout::Paged, Layout::InPlace, Layout::Wal] {
                for off in [0, 3 * page] {
                    let (mut end, mut runs) = (0, 0);
                    for_each_run(layout, off, HELD, page, &mut |run| {
                        assert!(run.from == end && run.to > run.from, "{run:?}");
                        assert!(run.sealed_off.is_multiple_of(page), "{run:?}");
                        for at in (run.from..run.to).step_by(page as usize) {
                            let plain = PlainOff(off + at);
                            let block = geometry::block_of(plain);
                            let first = geometry::block_sealed_off(layout, block).0 + plain.0
                                - geometry::block_start(block).0;
                            let sealed = run.sealed_off + at - run.from;
                            assert!((sealed..sealed + page).contains(&first), "{run:?} {at}");
                        }
                        (end, runs) = (run.to, runs + 1);
                    });
                    assert_eq!(end, HELD.next_multiple_of(page));
                    // The tag block between two groups ends a run, if no page holds it with others.
                    let groups = if layout == Layout::InPlace { 1 } else { 3 };
                    assert!(page > geometry::BLOCK_LEN || runs == groups, "{runs}");
                }
            }
        }
    }
}
