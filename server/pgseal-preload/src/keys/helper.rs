//! Runs the helper, the program `pgseal`, and reads its answer from a pipe; this library asks for
//! no key itself.

use core::ffi::{CStr, c_char, c_int};
use std::ffi::CString;
use std::ptr;

use pgseal_core::KeyringId;
use pgseal_keys::handover;
use zeroize::Zeroizing;

use crate::os::log::{self, Shown};
use crate::os::real;
use crate::os::sys;
use crate::place::datadir;

/// The path of the `pgseal` program: `PGSEAL_HELPER`, else beside this library, else
/// `../../bin/pgseal`.
fn helper_path() -> Option<Vec<u8>> {
    if let Some(path) = sys::env(c"PGSEAL_HELPER") {
        return Some(path);
    }
    let mut info = core::mem::MaybeUninit::<libc::Dl_info>::uninit();
    let own = helper_path as fn() -> Option<Vec<u8>> as *const core::ffi::c_void;
    // SAFETY: an address of this library, and room for the answer.
    if unsafe { libc::dladdr(own, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: `dladdr` succeeded and filled the structure.
    let info = unsafe { info.assume_init() };
    if info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the linker's C string, which lives as long as the library is loaded.
    let library = unsafe { CStr::from_ptr(info.dli_fname) }.to_bytes().to_vec();
    let dir = datadir::parent(&library).to_vec();
    [datadir::join(&dir, b"pgseal"), datadir::join(&dir, b"../../bin/pgseal")]
        .into_iter()
        .find(|path| sys::c_path(path).ok().and_then(|path| sys::stat(&path)).is_some())
        .map(|path| path.to_vec())
}

/// The arguments of a task for one cluster.
pub fn of_cluster(task: &[u8], datadir: &[u8], id: KeyringId) -> Vec<Vec<u8>> {
    let mut arguments = vec![b"helper".to_vec(), task.to_vec()];
    arguments.extend([b"--dir".to_vec(), datadir.to_vec()]);
    arguments.extend([b"--id".to_vec(), id.to_string().into_bytes()]);
    arguments
}

/// Runs the helper and returns its standard output. The helper gets the environment of this process
/// without `LD_PRELOAD`.
pub fn run(arguments: &[Vec<u8>]) -> Result<Zeroizing<Vec<u8>>, c_int> {
    let Some(helper) = helper_path() else {
        log::line(format_args!(
            "ERROR: the program pgseal was not found beside the library; set PGSEAL_HELPER to its path"
        ));
        return Err(libc::EACCES);
    };
    let helper = sys::c_path(&helper)?;
    let mut pipe: [c_int; 2] = [-1; 2];
    // SAFETY: `pipe` has room for two descriptors.
    if unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(real::errno());
    }
    let (reader, writer) = (sys::Fd(pipe[0]), sys::Fd(pipe[1]));
    // The server's SIGCHLD handler must not take our child for a child of the server.
    let blocked = BlockedChild::new();
    let child = spawn(&helper, arguments, writer.0);
    drop(writer);
    let child = child.inspect_err(|errno| {
        log::line(format_args!(
            "ERROR: \"{}\" could not be started (errno {errno}); set PGSEAL_HELPER to the pgseal program",
            Shown(helper.to_bytes())
        ));
    })?;
    let output = sys::read_to_end(reader.0, handover::MAX_FRAME_LEN).map(Zeroizing::new);
    let mut status = 0;
    loop {
        // SAFETY: waits for our own child; `status` is valid for a write.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        if waited >= 0 || real::errno() != libc::EINTR {
            break;
        }
    }
    drop(blocked);
    if status != 0 {
        // A helper that ends by itself has written the reason to standard error.
        if libc::WIFSIGNALED(status) {
            log::line(format_args!(
                "ERROR: the program pgseal, which gets the keys, was ended by signal {}; start the server again",
                libc::WTERMSIG(status)
            ));
        }
        return Err(libc::EACCES);
    }
    output
}

/// Starts the helper with its standard output on `output`.
fn spawn(helper: &CStr, arguments: &[Vec<u8>], output: c_int) -> Result<libc::pid_t, c_int> {
    let mut owned: Vec<CString> = vec![c"pgseal".to_owned()];
    for argument in arguments {
        owned.push(CString::new(&argument[..]).map_err(|_| libc::EINVAL)?);
    }
    let mut argv: Vec<*mut c_char> = owned.iter().map(|arg| arg.as_ptr().cast_mut()).collect();
    argv.push(ptr::null_mut());
    let envp = environment_without(b"LD_PRELOAD=");
    let mut actions = core::mem::MaybeUninit::<libc::posix_spawn_file_actions_t>::uninit();
    // SAFETY: room for the structure.
    let failed = unsafe { libc::posix_spawn_file_actions_init(actions.as_mut_ptr()) };
    if failed != 0 {
        return Err(failed);
    }
    // SAFETY: initialised above.
    let mut failed =
        unsafe { libc::posix_spawn_file_actions_adddup2(actions.as_mut_ptr(), output, 1) };
    let mut child = 0;
    // If `adddup2` failed, the keys would go to our own standard output.
    if failed == 0 {
        // SAFETY: all arrays are NULL-terminated and outlive the call; the actions are initialised.
        failed = unsafe {
            libc::posix_spawn(
                &raw mut child,
                helper.as_ptr(),
                actions.as_ptr(),
                ptr::null(),
                argv.as_ptr(),
                envp.as_ptr(),
            )
        };
    }
    // SAFETY: initialised above and not used after.
    unsafe { libc::posix_spawn_file_actions_destroy(actions.as_mut_ptr()) };
    if failed == 0 { Ok(child) } else { Err(failed) }
}

unsafe extern "C" {
    /// The environment of the process (POSIX).
    static environ: *const *mut c_char;
}

/// Pointers to the strings of the environment, without those that have this prefix, with NULL at
/// the end.
fn environment_without(prefix: &[u8]) -> Vec<*mut c_char> {
    let mut kept = Vec::new();
    // SAFETY: the C library's own array.
    let mut cursor = unsafe { environ };
    while !cursor.is_null() {
        // SAFETY: `cursor` is within the NULL-terminated array.
        let entry = unsafe { *cursor };
        if entry.is_null() {
            break;
        }
        // SAFETY: every entry is a C string.
        let text = unsafe { CStr::from_ptr(entry) };
        if !text.to_bytes().starts_with(prefix) {
            kept.push(entry);
        }
        // SAFETY: the entry was not the last.
        cursor = unsafe { cursor.add(1) };
    }
    kept.push(ptr::null_mut());
    kept
}

/// Blocks `SIGCHLD` while this value lives.
struct BlockedChild(libc::sigset_t);

impl BlockedChild {
    fn new() -> BlockedChild {
        let mut set = core::mem::MaybeUninit::<libc::sigset_t>::zeroed();
        let mut old = core::mem::MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: room for the set.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        // SAFETY: initialised above.
        unsafe { libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD) };
        // SAFETY: both sets are valid.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), old.as_mut_ptr()) };
        // SAFETY: zeroed, and filled by the call if it succeeded.
        BlockedChild(unsafe { old.assume_init() })
    }
}

impl BlockedChild {
    /// Removes the pending signal that our own child's exit has sent: the program would take it for
    /// the exit of one of its own children. If another child has exited meanwhile, the signal is
    /// sent again.
    fn swallow(&self) {
        let mut set = core::mem::MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: room for the set.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        // SAFETY: initialised above.
        unsafe { libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD) };
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the set and the time are valid; nobody wants the details.
        unsafe { libc::sigtimedwait(set.as_ptr(), ptr::null_mut(), &raw const at_once) };
        let mut ended = core::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
        let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        // SAFETY: room for the answer.
        let asked = unsafe { libc::waitid(libc::P_ALL, 0, ended.as_mut_ptr(), flags) };
        // SAFETY: zeroed, and filled by the call if a child has ended.
        let ended = unsafe { ended.assume_init() };
        // SAFETY: the field is valid for this kind of answer.
        if asked == 0 && unsafe { ended.si_pid() } != 0 {
            // SAFETY: a signal to ourselves, blocked until we unblock it.
            unsafe { libc::raise(libc::SIGCHLD) };
        }
    }
}

impl Drop for BlockedChild {
    fn drop(&mut self) {
        self.swallow();
        // SAFETY: the set that was in force before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}
