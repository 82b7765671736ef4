//! Descriptors that other processes send: only the kernel knows what they refer to.

use core::ffi::c_int;

use libc::{mmsghdr, msghdr, ssize_t, timespec};

use crate::file::fds;
use crate::os::real;

/// Removes the table entries under the numbers of received descriptors.
///
/// # Safety
/// `message` was filled by a successful `recvmsg`.
unsafe fn forget_received(message: *const msghdr) {
    // SAFETY: the caller's contract.
    if unsafe { (*message).msg_controllen } == 0 {
        return;
    }
    // SAFETY: the caller's contract: the macros walk what the kernel wrote.
    let mut part = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: null, or a header within the control data.
    while let Some(head) = unsafe { part.as_ref() } {
        if head.cmsg_level == libc::SOL_SOCKET && head.cmsg_type == libc::SCM_RIGHTS {
            // SAFETY: a header within the control data.
            let data = unsafe { libc::CMSG_DATA(part) };
            // musl has a shorter field, beside one that is always 0.
            #[allow(clippy::unnecessary_cast)]
            let len = (head.cmsg_len as usize).saturating_sub(data as usize - part as usize);
            for index in 0..len / size_of::<c_int>() {
                // SAFETY: within the data of this part, which need not be aligned.
                let at = unsafe { data.cast::<c_int>().add(index) };
                // SAFETY: as above.
                fds::remove(unsafe { at.read_unaligned() });
            }
        }
        // SAFETY: the caller's contract, and `part` is one of its headers.
        part = unsafe { libc::CMSG_NXTHDR(message, part) };
    }
}

/// `recvmsg(2)`.
/// # Safety
/// As for `recvmsg(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmsg(socket: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller's arguments.
    let got = unsafe { real::recvmsg(socket, message, flags) };
    if got >= 0 {
        // SAFETY: the call succeeded.
        unsafe { forget_received(message) };
    }
    got
}

/// `recvmmsg(2)`.
/// # Safety
/// As for `recvmmsg(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmmsg(
    socket: c_int,
    messages: *mut mmsghdr,
    count: libc::c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    // SAFETY: the caller's arguments.
    let got = unsafe { real::recvmmsg(socket, messages, count, flags, timeout) };
    for index in 0..usize::try_from(got).unwrap_or(0) {
        // SAFETY: the kernel filled that many messages.
        let message = unsafe { messages.add(index) };
        // SAFETY: as above.
        let message = unsafe { &raw const (*message).msg_hdr };
        // SAFETY: as above.
        unsafe { forget_received(message) };
    }
    got
}

/// `pidfd_getfd(2)`: a copy of another process's descriptor.
/// # Safety
/// As for `pidfd_getfd(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pidfd_getfd(process: c_int, fd: c_int, flags: libc::c_uint) -> c_int {
    // SAFETY: no pointers involved. The system call itself: glibc's wrapper may be missing.
    let new = unsafe {
        real::syscall(
            libc::SYS_pidfd_getfd,
            [i64::from(process), i64::from(fd), i64::from(flags), 0, 0, 0],
        )
    };
    let new = c_int::try_from(new).unwrap_or(-1);
    fds::remove(new);
    new
}

/// `fclose(3)`: removes the entry of the stream's descriptor, whose number becomes free. A sealed
/// stream closes its descriptor through our own functions.
/// # Safety
/// As for `fclose(3)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fclose(stream: *mut libc::FILE) -> c_int {
    if !stream.is_null() {
        let errno = real::errno();
        // SAFETY: the caller's stream. The C library knows no descriptor of a sealed stream.
        fds::remove(unsafe { real::fileno(stream) });
        real::set_errno(errno);
    }
    // SAFETY: the caller's stream.
    unsafe { real::fclose(stream) }
}
