//! `syscall(2)`: a system call by number is handled by the hook of the call's name.

use core::ffi::{c_char, c_int, c_long, c_uint, c_void};
use core::sync::atomic::{AtomicBool, Ordering};

use libc::{iovec, mode_t, off_t};

use crate::calls::{
    children, copy, descriptor, directory, map, open, read, receive, rename, size, stat, sync,
    write,
};
use crate::file::fds;
use crate::os::real::{self, fail};
use crate::place::program;

/// Whether this library has been started. Before that, an allocator may call `syscall`, and taking
/// memory here would call the allocator again.
static STARTED: AtomicBool = AtomicBool::new(false);

/// Called when the library has been started.
pub fn started() {
    STARTED.store(true, Ordering::Release);
}

/// `renameat` by number. The crate `libc` does not have it for aarch64, where C programs have
/// (`__ARCH_WANT_RENAMEAT` in the kernel's `asm/unistd.h`, `asm-generic/unistd.h`).
#[cfg(not(target_arch = "aarch64"))]
const SYS_RENAMEAT: c_long = libc::SYS_renameat;
#[cfg(target_arch = "aarch64")]
const SYS_RENAMEAT: c_long = 38;

/// The six arguments of a system call.
type Arguments = [c_long; 6];

fn int(value: c_long) -> c_int {
    value as c_int
}

fn uint(value: c_long) -> c_uint {
    value as c_uint
}

fn len(value: c_long) -> usize {
    value as usize
}

fn mode(value: c_long) -> mode_t {
    value as mode_t
}

fn at<T>(value: c_long) -> *mut T {
    core::ptr::with_exposed_provenance_mut(value as usize)
}

/// `syscall(2)`. In a call with fewer than six arguments the others have arbitrary values.
/// # Safety
/// As for `syscall(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    let arguments = [a, b, c, d, e, f];
    if !STARTED.load(Ordering::Acquire) || !program::active() {
        // SAFETY: the caller's arguments.
        return unsafe { real::syscall(number, arguments) };
    }
    // SAFETY: the caller's arguments.
    if let Some(done) = unsafe { of_descriptor(number, arguments) } {
        return done;
    }
    // SAFETY: as above.
    if let Some(done) = unsafe { of_path(number, arguments) } {
        return done;
    }
    // SAFETY: as above.
    unsafe { of_process(number, arguments) }
}

/// Handles calls that take a descriptor. `None`: the call is none of these.
///
/// # Safety
/// As for the system call.
#[allow(clippy::too_many_lines, reason = "a table")]
unsafe fn of_descriptor(number: c_long, [a, b, c, d, e, f]: Arguments) -> Option<c_long> {
    let fd = int(a);
    // SAFETY, for all: the caller passes what the system call takes, and each hook takes the same.
    let done = match number {
        // SAFETY: see above.
        libc::SYS_read => unsafe { read::read(fd, at(b), len(c)) as c_long },
        // SAFETY: see above.
        libc::SYS_write => unsafe { write::write(fd, at::<c_void>(b), len(c)) as c_long },
        // SAFETY: see above.
        libc::SYS_pread64 => unsafe { read::pread(fd, at(b), len(c), d) as c_long },
        // SAFETY: see above.
        libc::SYS_pwrite64 => unsafe { write::pwrite(fd, at::<c_void>(b), len(c), d) as c_long },
        // SAFETY: see above.
        libc::SYS_readv => unsafe { read::readv(fd, at::<iovec>(b), int(c)) as c_long },
        // SAFETY: see above.
        libc::SYS_writev => unsafe { write::writev(fd, at::<iovec>(b), int(c)) as c_long },
        // The offset comes in two halves; a 64-bit kernel takes the first one as the whole offset.
        // SAFETY: see above.
        libc::SYS_preadv => unsafe { read::preadv(fd, at::<iovec>(b), int(c), d) as c_long },
        // SAFETY: see above.
        libc::SYS_pwritev => unsafe { write::pwritev(fd, at::<iovec>(b), int(c), d) as c_long },
        // SAFETY: see above.
        libc::SYS_preadv2 => unsafe {
            read::preadv2(fd, at::<iovec>(b), int(c), d, int(f)) as c_long
        },
        libc::SYS_pwritev2 => {
            // SAFETY: see above.
            unsafe { write::pwritev2(fd, at::<iovec>(b), int(c), d, int(f)) as c_long }
        }
        // SAFETY: see above.
        libc::SYS_close => unsafe { descriptor::close(fd).into() },
        libc::SYS_close_range => {
            // SAFETY: see above.
            unsafe { descriptor::close_range(uint(a), uint(b), int(c)).into() }
        }
        // SAFETY: see above.
        libc::SYS_dup => unsafe { descriptor::dup(fd).into() },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: see above.
        libc::SYS_dup2 => unsafe { descriptor::dup2(fd, int(b)).into() },
        // SAFETY: see above.
        libc::SYS_dup3 => unsafe { descriptor::dup3(fd, int(b), int(c)).into() },
        // SAFETY: see above.
        libc::SYS_fcntl => unsafe { descriptor::fcntl(fd, int(b), at(c)).into() },
        // SAFETY: see above.
        libc::SYS_ioctl => unsafe { descriptor::ioctl(fd, b as libc::c_ulong, at(c)).into() },
        // SAFETY: see above.
        libc::SYS_lseek => unsafe { size::lseek(fd, b, int(c)) },
        // SAFETY: see above.
        libc::SYS_ftruncate => unsafe { size::ftruncate(fd, b).into() },
        // SAFETY: see above.
        libc::SYS_fallocate => unsafe { size::fallocate(fd, int(b), c, d).into() },
        // SAFETY: see above.
        libc::SYS_fstat => unsafe { stat::fstat(fd, at(b)).into() },
        libc::SYS_fadvise64 => {
            // SAFETY: see above.
            match unsafe { sync::posix_fadvise(fd, b, c, int(d)) } {
                0 => 0,
                errno => fail(errno),
            }
        }
        // SAFETY: see above.
        libc::SYS_sync_file_range => unsafe { sync::sync_file_range(fd, b, c, uint(d)).into() },
        // SAFETY: see above.
        libc::SYS_fsync => unsafe { sync::fsync(fd).into() },
        // SAFETY: see above.
        libc::SYS_fdatasync => unsafe { sync::fdatasync(fd).into() },
        // SAFETY: see above.
        libc::SYS_readahead => unsafe { sync::readahead(fd, b, len(c)) as c_long },
        // SAFETY: see above.
        libc::SYS_mmap => unsafe {
            map::mmap(at(a), len(b), int(c), int(d), int(e), f).expose_provenance() as c_long
        },
        // SAFETY: see above.
        libc::SYS_sendfile => unsafe {
            copy::sendfile(fd, int(b), at::<off_t>(c), len(d)) as c_long
        },
        // SAFETY: see above.
        libc::SYS_copy_file_range => unsafe {
            copy::copy_file_range(fd, at(b), int(c), at(d), len(e), uint(f)) as c_long
        },
        // SAFETY: see above.
        libc::SYS_splice => unsafe {
            copy::splice(fd, at(b), int(c), at(d), len(e), uint(f)) as c_long
        },
        // SAFETY: see above.
        libc::SYS_recvmsg => unsafe { receive::recvmsg(fd, at(b), int(c)) as c_long },
        libc::SYS_recvmmsg => {
            // SAFETY: see above.
            unsafe { receive::recvmmsg(fd, at(b), uint(c), int(d), at(e)).into() }
        }
        // SAFETY: see above.
        libc::SYS_pidfd_getfd => unsafe { receive::pidfd_getfd(fd, int(b), uint(c)).into() },
        // SAFETY: see above.
        libc::SYS_fchdir => unsafe { directory::fchdir(fd).into() },
        // These move bytes between two descriptors, or from memory, without any hook.
        libc::SYS_tee | libc::SYS_vmsplice if fds::is_sealed(fd) || fds::is_sealed(int(b)) => {
            fail(libc::EINVAL)
        }
        _ => return None,
    };
    Some(done)
}

/// Handles calls that take a path. `None`: the call is none of these.
///
/// # Safety
/// As for the system call.
unsafe fn of_path(number: c_long, [a, b, c, d, e, _]: Arguments) -> Option<c_long> {
    // The pointers among the arguments. Programs pass null to test whether the kernel has the call:
    // the kernel answers EFAULT.
    let pointers: &[c_long] = match number {
        libc::SYS_openat | libc::SYS_newfstatat | libc::SYS_statx => &[b],
        libc::SYS_renameat2 | SYS_RENAMEAT => &[b, d],
        libc::SYS_openat2 => &[b, c],
        libc::SYS_truncate | libc::SYS_chdir => &[a],
        #[cfg(target_arch = "x86_64")]
        libc::SYS_rename => &[a, b],
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open | libc::SYS_creat | libc::SYS_stat | libc::SYS_lstat | libc::SYS_mkdir => {
            &[a]
        }
        _ => return None,
    };
    if pointers.contains(&0) {
        return None;
    }
    // SAFETY, for all: the caller passes what the system call takes, and each hook takes the same.
    let done = match number {
        libc::SYS_openat => {
            // SAFETY: see above.
            unsafe { open::openat(int(a), at::<c_char>(b), int(c), mode(d)).into() }
        }
        libc::SYS_openat2 => {
            // SAFETY: see above: a structure of three numbers; the third, `resolve`, restricts path
            // resolution, which only the kernel can do.
            let [flags, open_mode, resolve] = unsafe { *at::<[u64; 3]>(c) };
            if resolve != 0 {
                return Some(fail(libc::ENOSYS));
            }
            let flags = flags as c_int;
            // SAFETY: see above.
            unsafe { open::openat(int(a), at::<c_char>(b), flags, open_mode as mode_t).into() }
        }
        // SAFETY: see above.
        libc::SYS_truncate => unsafe { size::truncate(at::<c_char>(a), b).into() },
        libc::SYS_newfstatat => {
            // SAFETY: see above.
            unsafe { stat::fstatat(int(a), at::<c_char>(b), at(c), int(d)).into() }
        }
        libc::SYS_statx => {
            // SAFETY: see above.
            unsafe { stat::statx(int(a), at::<c_char>(b), int(c), uint(d), at(e)).into() }
        }
        // SAFETY: see above.
        libc::SYS_chdir => unsafe { directory::chdir(at::<c_char>(a)).into() },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: see above.
        libc::SYS_open => unsafe { open::open(at::<c_char>(a), int(b), mode(c)).into() },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: see above.
        libc::SYS_creat => unsafe { open::creat(at::<c_char>(a), mode(b)).into() },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: see above.
        libc::SYS_stat => unsafe { stat::stat(at::<c_char>(a), at(b)).into() },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: see above.
        libc::SYS_lstat => unsafe { stat::lstat(at::<c_char>(a), at(b)).into() },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: see above.
        libc::SYS_rename => unsafe { rename::rename(at::<c_char>(a), at::<c_char>(b)).into() },
        // SAFETY: see above.
        libc::SYS_renameat2 => unsafe {
            rename::renameat2(int(a), at::<c_char>(b), int(c), at::<c_char>(d), e as libc::c_uint)
                .into()
        },
        // SAFETY: see above.
        SYS_RENAMEAT => unsafe {
            rename::renameat(int(a), at::<c_char>(b), int(c), at::<c_char>(d)).into()
        },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: see above.
        libc::SYS_mkdir => unsafe { directory::mkdir(at::<c_char>(a), mode(b)).into() },
        _ => return None,
    };
    Some(done)
}

/// Handles calls that make processes, share descriptors or have the kernel read and write by
/// itself. All other calls pass.
///
/// # Safety
/// As for the system call.
unsafe fn of_process(number: c_long, arguments: Arguments) -> c_long {
    let verdict = match number {
        // A child that shares the parent's stack must not return from this function: use `fork`.
        #[cfg(target_arch = "x86_64")]
        libc::SYS_vfork => {
            // SAFETY: no pointers involved.
            return unsafe { libc::fork() }.into();
        }
        libc::SYS_clone => children::check_clone(arguments[0] as u64),
        libc::SYS_clone3 if arguments[0] != 0 => {
            // SAFETY: a structure whose first member is the flags (clone3 of clone(2)).
            children::check_clone(unsafe { *at::<u64>(arguments[0]) })
        }
        libc::SYS_unshare => children::check_unshare(int(arguments[0])),
        libc::SYS_execve | libc::SYS_execveat => {
            fds::doubt_all();
            Ok(())
        }
        // The kernel executes the requests of these rings without any hook. With ENOSYS, callers
        // fall back to ordinary calls.
        libc::SYS_io_uring_setup | libc::SYS_io_setup | libc::SYS_io_submit => Err(libc::ENOSYS),
        libc::SYS_open_by_handle_at => Err(libc::EPERM),
        _ => Ok(()),
    };
    match verdict {
        // SAFETY: the caller's arguments.
        Ok(()) => unsafe { real::syscall(number, arguments) },
        Err(errno) => fail(errno),
    }
}
