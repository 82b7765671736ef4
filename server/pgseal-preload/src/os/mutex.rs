//! A lock between the processes of a server, in memory that they share.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;

use crate::os::real::Errno;

/// A robust mutex (POSIX): if the process that holds it is killed, the next one gets it.
#[repr(transparent)]
pub struct SharedMutex(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: a mutex that all processes may use is for all threads.
unsafe impl Sync for SharedMutex {}

/// The lock is held while this value lives.
pub struct Guard<'a>(&'a SharedMutex);

impl SharedMutex {
    /// Makes a mutex.
    ///
    /// # Safety
    /// `place` is valid for writes, and in memory that is shared with the children that this
    /// process forks later. Nobody uses it yet.
    pub unsafe fn init(place: *mut SharedMutex) -> Result<(), Errno> {
        let mut kind = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        let kind = kind.as_mut_ptr();
        // SAFETY: room for the attributes.
        ok(unsafe { libc::pthread_mutexattr_init(kind) })?;
        // SAFETY: initialised above. These three calls fail only for values that are not allowed.
        unsafe { libc::pthread_mutexattr_setpshared(kind, libc::PTHREAD_PROCESS_SHARED) };
        // SAFETY: as above.
        unsafe { libc::pthread_mutexattr_setrobust(kind, libc::PTHREAD_MUTEX_ROBUST) };
        // SAFETY: as above.
        unsafe { libc::pthread_mutexattr_settype(kind, libc::PTHREAD_MUTEX_ERRORCHECK) };
        // SAFETY: the caller's contract; the attributes are initialised.
        let made = ok(unsafe { libc::pthread_mutex_init(place.cast(), kind) });
        // SAFETY: initialised above, and not used after.
        unsafe { libc::pthread_mutexattr_destroy(kind) };
        made
    }

    /// Waits for the lock. `None`: this thread holds it already, which is so in a signal handler
    /// that interrupted the holder.
    pub fn lock(&self) -> Option<Guard<'_>> {
        // SAFETY: initialised by `init`.
        match unsafe { libc::pthread_mutex_lock(self.0.get()) } {
            0 => Some(Guard(self)),
            libc::EOWNERDEAD => {
                // SAFETY: this thread holds it. What the mutex protects is right at any moment.
                unsafe { libc::pthread_mutex_consistent(self.0.get()) };
                Some(Guard(self))
            }
            _ => None,
        }
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        // SAFETY: this thread holds it.
        unsafe { libc::pthread_mutex_unlock(self.0.0.get()) };
    }
}

fn ok(result: libc::c_int) -> Result<(), Errno> {
    if result == 0 { Ok(()) } else { Err(result) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::sys;

    fn made() -> &'static SharedMutex {
        let place = sys::shared_memory(size_of::<SharedMutex>()).unwrap().cast();
        // SAFETY: new shared memory, long enough.
        unsafe { SharedMutex::init(place) }.unwrap();
        // SAFETY: initialised above, and never unmapped.
        unsafe { &*place }
    }

    #[test]
    fn a_thread_that_holds_it_does_not_wait_for_itself() {
        let mutex = made();
        let held = mutex.lock().unwrap();
        assert!(mutex.lock().is_none());
        drop(held);
        assert!(mutex.lock().is_some());
    }

    #[test]
    fn a_killed_process_leaves_it_to_the_next() {
        let mutex = made();
        // SAFETY: the child only takes the lock and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            core::mem::forget(mutex.lock());
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(0) };
        }
        // SAFETY: our own child.
        unsafe { libc::waitpid(child, core::ptr::null_mut(), 0) };
        assert!(mutex.lock().is_some());
        assert!(mutex.lock().is_some());
    }
}
