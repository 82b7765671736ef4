//! Data keys: fetched once, by the helper, over a pipe.
//!
//! In the postmaster before its first fork, so that every backend inherits them; in tools when
//! they meet the first sealed file.

use core::ffi::{CStr, c_char, c_int};
use std::ffi::CString;
use std::ptr;

use pgseal_core::random::Random;
use pgseal_core::{DataKey, Generation, KeySet, KeyringId, SealedFile};
use pgseal_keys::handover;
use zeroize::Zeroizing;

use crate::datadir::{self, Root};
use crate::log::{self, Shown};
use crate::memory::with_reserve;
use crate::program::{self, Role};
use crate::random::KernelRandom;
use crate::real;
use crate::sys::{self, PathText};
use crate::texts;
use crate::vault;

/// The data keys of a data directory, from the helper. Says itself what went wrong.
pub fn load(root: &Root) -> Result<&'static KeySet, c_int> {
    let keyring = root.keyring_path();
    let arguments = [b"helper".to_vec(), b"keys".to_vec(), b"--keyring".to_vec(), keyring.to_vec()];
    let frame = run_helper(&arguments)?;
    let mut keys = handover::decode(&frame).map_err(|_| {
        log::line(format_args!(
            "ERROR: the keys of \"{}\" were not handed over; see the message above, or try \"pgseal key show\"",
            Shown(&keyring)
        ));
        libc::EACCES
    })?;
    if matches!(program::role(), Role::Server | Role::Standalone) {
        let ephemeral = DataKey::init_with(|bytes| KernelRandom.fill(bytes)).map_err(|_| {
            log::line(format_args!("ERROR: the kernel gives no random numbers"));
            libc::EIO
        })?;
        keys.insert(Generation::EPHEMERAL, ephemeral);
    }
    // The keys live as long as the process.
    Ok(Box::leak(Box::new(keys)))
}

/// Says of how much memory with keys the limit does not allow that it is locked.
fn tell_limit() {
    let bytes = match vault::prepare() {
        vault::Limit::Enough => return,
        vault::Limit::Bytes(bytes) => bytes,
    };
    log::line(format_args!(
        "WARNING: {} kB of the keys of each process can be locked in memory, the rest may be swapped out (it is in no core dump); raise RLIMIT_MEMLOCK to 1 MB or more (systemd: LimitMEMLOCK=1M), or encrypt swap",
        bytes / 1024
    ));
}

/// Makes the keyring of a data directory that is about to be created: as the environment says, or
/// the same as another directory's.
pub fn create_keyring(dir: &[u8], like: Option<&Root>) -> Result<(), c_int> {
    let mut arguments =
        vec![b"helper".to_vec(), b"new-keyring".to_vec(), b"--dir".to_vec(), dir.to_vec()];
    let options = [
        (c"PGSEAL_PROVIDER", &b"--provider"[..]),
        (c"PGSEAL_SUITE", b"--suite"),
        (c"PGSEAL_KEYRING_FROM", b"--from"),
    ];
    if let Some(like) = like {
        arguments.extend([b"--from".to_vec(), like.keyring_path().to_vec()]);
    }
    for (variable, option) in options.into_iter().filter(|_| like.is_none()) {
        if let Some(value) = sys::env(variable) {
            arguments.extend([option.to_vec(), value]);
        }
    }
    run_helper(&arguments)?;
    if sys::stat(&sys::c_path(&datadir::join(dir, datadir::KEYRING))?).is_none() {
        log::line(format_args!(
            "ERROR: no keyring was made in \"{}\"; see the message above",
            Shown(dir)
        ));
        return Err(libc::EACCES);
    }
    Ok(())
}

/// Whether the environment asks for new data directories to be sealed.
pub fn creation_asked_for() -> bool {
    sys::env(c"PGSEAL_PROVIDER").is_some() || sys::env(c"PGSEAL_KEYRING_FROM").is_some()
}

/// Loads the keys before a server forks, proves them on the relation map, and removes the key
/// from the environment that its children would inherit. Makes the counters that they share.
pub fn server_starts(root: &'static Root) -> Result<(), c_int> {
    if !matches!(program::role(), Role::Server | Role::Standalone) {
        return Ok(());
    }
    datadir::expect_not_system(root.path())?;
    let keys = root.keys()?;
    with_reserve(|| prepare_server(root, keys))
}

fn prepare_server(root: &'static Root, keys: &'static KeySet) -> Result<(), c_int> {
    if !program::makes_cluster() {
        expect_pinned(root, keys.keyring_id)?;
        crate::config::server_starts(root)?;
    }
    let map = datadir::join(root.path(), b"global/pg_filenode.map");
    if !program::makes_cluster() && sys::c_path(&map).is_ok_and(|path| sys::stat(&path).is_none()) {
        log::line(format_args!(
            "ERROR: \"{}\" is not there, which every data directory has; restore the data directory from a backup",
            Shown(&map)
        ));
        return Err(libc::EACCES);
    }
    if let Ok(path) = sys::c_path(&map)
        && let Ok(fd) = sys::open_read(&path)
    {
        match SealedFile::open(&crate::storage::FdStorage::new(fd.0), keys) {
            Ok(_) => {}
            Err(error) => {
                let errno = crate::file::describe(&error, &map);
                log::line(format_args!(
                    "ERROR: the keyring \"{}\" does not fit this data directory; put its own back",
                    Shown(&root.keyring_path())
                ));
                return Err(errno);
            }
        }
    }
    if program::role() == Role::Server {
        wipe_environment(root);
        tell_limit();
        crate::counters::share();
        crate::changes::share();
        crate::file::take_buffers()?;
        crate::memory::grow_stack();
    }
    Ok(())
}

/// The identities of the keyrings that a server may have, with colons between; nothing if any will do.
const PINNED: &CStr = c"PGSEAL_KEYRING_ID";

/// Refuses a server on the data directory of another cluster.
fn expect_pinned(root: &Root, id: KeyringId) -> Result<(), c_int> {
    let Some(pinned) = sys::env(PINNED) else { return Ok(()) };
    let own = id.to_string();
    if pinned.split(|byte| *byte == b':').any(|allowed| allowed == own.as_bytes()) {
        return Ok(());
    }
    log::line(format_args!(
        "ERROR: \"{}\" has keyring {own}, and PGSEAL_KEYRING_ID names {}; put back the data directory of this server, or name this keyring if it is the right one",
        Shown(root.path()),
        Shown(&pinned)
    ));
    Err(libc::EACCES)
}

/// A server is about to start where nothing is sealed: refused if somebody asked for sealing, since
/// it would write everything plain. What was sealed there is gone.
pub fn plain_server_starts() -> Result<(), c_int> {
    if !matches!(program::role(), Role::Server | Role::Standalone) {
        return Ok(());
    }
    let names = [PINNED, c"PGSEAL_PROVIDER", c"PGSEAL_CONFIG"];
    let asked = names.into_iter().find(|name| sys::env(name).is_some());
    let Some(asked) = asked else { return Ok(()) };
    let dir = sys::current_dir().unwrap_or_else(PathText::new);
    log::line(format_args!(
        "ERROR: \"{}\": there is neither a keyring nor a sealed relation map, and {} asks for a sealed data directory; restore it from a backup, or unset {} for a plain server",
        Shown(&dir),
        asked.to_string_lossy(),
        asked.to_string_lossy()
    ));
    Err(libc::EACCES)
}

/// Removes the key from this server's environment: its children must not inherit it.
pub fn wipe_environment(root: &Root) {
    let registered = || registered_provider(root.loaded_keys()?.keyring_id);
    let provider = sys::env(c"PGSEAL_PROVIDER").or_else(registered).or_else(|| {
        let keyring = sys::read_whole(&sys::c_path(&root.keyring_path()).ok()?, 1 << 20).ok()?;
        texts::provider_of(&keyring).map(<[u8]>::to_vec)
    });
    if let Some(name) = provider.as_deref().and_then(|uri| uri.strip_prefix(b"env:"))
        && let Ok(name) = sys::c_path(name)
    {
        sys::wipe_env(&name);
    }
    if let Some(fd) = sys::env(c"PGSEAL_KEK_FD") {
        if let Some(fd) = core::str::from_utf8(&fd).ok().and_then(|text| text.parse().ok()) {
            // SAFETY: the descriptor was handed to us to be used and closed.
            unsafe { real::close(fd) };
        }
        sys::wipe_env(c"PGSEAL_KEK_FD");
    }
}

/// The provider in the file of this cluster in `/etc/pgseal/clusters.d`, which the helper has judged.
fn registered_provider(id: KeyringId) -> Option<Vec<u8>> {
    let dir = sys::env(c"PGSEAL_CLUSTERS_DIR");
    let dir = dir.as_deref().unwrap_or(b"/etc/pgseal/clusters.d");
    let path = sys::c_path(&datadir::join(dir, format!("{id}.conf").as_bytes())).ok()?;
    texts::provider_in(&sys::read_whole(&path, 1 << 13).ok()?).map(<[u8]>::to_vec)
}

/// The `pgseal` program: `PGSEAL_HELPER`, else beside this library, else `../../bin/pgseal`.
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

/// Runs the helper and returns what it printed. It gets our environment without `LD_PRELOAD`.
fn run_helper(arguments: &[Vec<u8>]) -> Result<Zeroizing<Vec<u8>>, c_int> {
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
    // The server's SIGCHLD handler must not take our child for one of its own.
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
        // The helper has said why on standard error.
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
    // Without memory for this, the keys would go to our own standard output.
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

/// Pointers to the strings of the environment but those with this prefix, NULL at the end.
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

/// `SIGCHLD` blocked as long as this lives.
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
    /// Takes back the signal that our own child's end has sent: a program that hears of it would
    /// believe that one of its children died. The signal of another child that ended meanwhile is
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
