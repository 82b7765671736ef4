//! Memory maps: the kernel would fill them with sealed bytes, and write plain ones back. What is
//! mapped for reading gets a copy of the plain content as it is at that moment; a map through which
//! a file would be written, or would have to follow what is written, is refused.

use core::ffi::{c_int, c_void};

use libc::{off_t, size_t};
use pgseal_core::{Layout, PlainOff, geometry};

use crate::file::fds::{self, SharedFile};
use crate::os::log::{self, Shown};
use crate::os::real;
use crate::os::real::Errno;
use crate::os::sys::Fd;

/// A copy is made in pieces of this size.
const CHUNK: usize = 1 << 20;

/// What the caller asked for.
#[derive(Clone, Copy)]
struct Asked {
    addr: *mut c_void,
    len: size_t,
    prot: c_int,
    flags: c_int,
    off: u64,
}

impl Asked {
    /// Whether others would see what is written through the map.
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

/// The `errno` of `mmap` for a read that failed; the line in the log says more.
fn refusal(errno: Errno) -> Errno {
    if errno == libc::ENOMEM { errno } else { libc::EACCES }
}

/// The map of a copy: of a file without a name, so that the kernel itself makes the rest of the last
/// page zeros, answers SIGBUS to who goes beyond the last page, and obeys MAP_FIXED in one step.
fn copy(file: &SharedFile, fd: c_int, asked: Asked, held: u64) -> Result<*mut c_void, Errno> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: a C string.
    let memory = unsafe { libc::memfd_create(c"pgseal-map".as_ptr(), flags) };
    if memory < 0 {
        let errno = real::errno();
        return Err(if errno == libc::EMFILE { libc::ENFILE } else { errno });
    }
    let memory = Fd(memory);
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
        let got = fds::lock(file).read_at(fd, &mut buffer[..wanted], asked.off + done);
        let got = got.map_err(refusal)?;
        if got == 0 {
            // Cut short meanwhile: zeros, as they are there already.
            break;
        }
        write_all(memory.0, &buffer[..got], done)?;
        done += got as u64;
    }
    zeroize::Zeroize::zeroize(&mut buffer);
    if asked.is_shared() {
        // Nobody makes the map writable later and believes that the file has changed.
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

/// Memory is what such a file takes.
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

/// A map that nobody may read or write: it is made for `mincore`, which says what of the file is in
/// the page cache. So each page stands for the sealed one that holds it; where the layout does not
/// allow that, and behind the end, there is nothing, which is never in memory.
fn outline(
    fd: c_int,
    asked: Asked,
    layout: Option<Layout>,
    held: u64,
) -> Result<*mut c_void, Errno> {
    let kept = asked.flags & !(libc::MAP_TYPE | libc::MAP_POPULATE);
    let flags = kept | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let map = mapped(asked, libc::PROT_NONE, flags, -1)?;
    let page = real::page_size() as u64;
    let Some(layout @ (Layout::Paged | Layout::InPlace)) = layout else { return Ok(map) };
    let sealed_off = |off: u64| {
        let plain_off = PlainOff(asked.off + off);
        let block = geometry::block_of(plain_off);
        geometry::block_sealed_off(layout, block).0 + plain_off.0 - geometry::block_start(block).0
    };
    let mut from = 0;
    while from < held {
        let start = sealed_off(from);
        let mut to = from + page;
        while to < held && sealed_off(to) == start + (to - from) {
            to += page;
        }
        if start.is_multiple_of(page) {
            let flags = libc::MAP_PRIVATE | libc::MAP_FIXED;
            let (len, off) = ((to - from) as usize, start as off_t);
            // SAFETY: within the map just made, which is all ours.
            let place = unsafe { map.cast::<u8>().add(from as usize) };
            // SAFETY: as above. What fails stays a hole.
            unsafe { real::mmap(place.cast(), len, libc::PROT_NONE, flags, fd, off) };
        }
        from = to;
    }
    Ok(map)
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
