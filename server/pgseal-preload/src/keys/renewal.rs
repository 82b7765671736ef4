//! New data keys for a server that runs (`spec/key-hierarchy.md`, section 11).
//!
//! `pgseal key renew` leaves the new key in `pgseal/renewal`, wrapped under one that the server
//! has, and has the server read its configuration again. The postmaster then takes the file, and
//! keeps it as it is in memory that all its processes share. Each process unwraps it when it next
//! needs keys.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use pgseal_core::{Generation, KeySet, Suites};
use pgseal_keys::renewal::{self, RENEWAL_LEN, Renewed};

use crate::keys::settings;
use crate::os::log::{self, Shown};
use crate::os::memory::with_reserve;
use crate::os::sys::{self, Fd, PathText};
use crate::place::datadir::{self, Root};

/// Where the program leaves the new key.
const FILE: &[u8] = b"pgseal/renewal";
/// The name that the file gets if the server cannot use it, so that the program learns of it.
const REFUSED: &[u8] = b"pgseal/renewal.refused";

const WORDS: usize = RENEWAL_LEN / 8;
const _: () = assert!(RENEWAL_LEN.is_multiple_of(8));

/// A renewal file in memory.
#[repr(C)]
struct Slot {
    /// The generation of the key in it; 0: the slot is free.
    generation: AtomicU32,
    file: [AtomicU64; WORDS],
}

/// All of this server's run, in the order of their generations.
#[repr(C)]
struct Shared {
    /// The generation of the newest.
    newest: AtomicU32,
    slots: [Slot; KeySet::MAX_ADOPTED],
}

/// The shared memory; null before [`server_starts`], and in every other program than a server.
static SHARED: AtomicPtr<Shared> = AtomicPtr::new(ptr::null_mut());

fn shared() -> Option<&'static Shared> {
    // SAFETY: null, or the map of `server_starts`, which is never unmapped.
    unsafe { SHARED.load(Ordering::Acquire).as_ref() }
}

impl Slot {
    fn put(&self, generation: Generation, file: &[u8; RENEWAL_LEN]) {
        for (word, bytes) in self.file.iter().zip(file.as_chunks().0) {
            word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
        self.generation.store(generation.0, Ordering::Release);
    }

    fn get(&self) -> Option<(Generation, [u8; RENEWAL_LEN])> {
        let generation = Generation(self.generation.load(Ordering::Acquire));
        let mut file = [0; RENEWAL_LEN];
        for (bytes, word) in file.as_chunks_mut().0.iter_mut().zip(&self.file) {
            *bytes = word.load(Ordering::Relaxed).to_le_bytes();
        }
        (generation.0 != 0).then_some((generation, file))
    }
}

/// Adopts the keys that the postmaster has taken since `keys` were loaded.
#[inline]
pub fn catch_up(keys: &KeySet) {
    if let Some(shared) = shared()
        && shared.newest.load(Ordering::Acquire) > keys.active().0
    {
        with_reserve(|| adopt(shared, keys));
    }
}

#[cold]
fn adopt(shared: &Shared, keys: &KeySet) {
    for (generation, file) in shared.slots.iter().map_while(Slot::get) {
        // Keys of another cluster do not open it.
        if generation > keys.active()
            && let Ok(Renewed { generation, key, suites }) = renewal::open(&file, keys)
        {
            keys.adopt(generation, key, suites);
        }
    }
}

/// Makes the shared memory, and removes a file that no server took. The postmaster calls this once,
/// before it forks: its keyring has every key.
pub fn server_starts(root: &Root) {
    for name in [FILE, REFUSED] {
        remove(&datadir::join(root.path(), name));
    }
    match sys::shared_memory(size_of::<Shared>()) {
        Ok(map) => SHARED.store(map.cast(), Ordering::Release),
        Err(errno) => log::line(format_args!(
            "WARNING: no shared memory for new data keys (errno {errno}); \"pgseal key renew\" will not work before the next start"
        )),
    }
}

/// Takes a new data key if there is one. To be called when the postmaster reads its configuration.
pub fn configuration_is_read(root: &Root) {
    if let Some(shared) = shared()
        && let Some(keys) = root.loaded_keys()
    {
        take(shared, root, keys);
    }
}

fn take(shared: &Shared, root: &Root, keys: &KeySet) {
    let path = datadir::join(root.path(), FILE);
    let Some((_locked, file)) = claim(&path) else { return };
    let outcome = match <[u8; RENEWAL_LEN]>::try_from(&file[..]) {
        Ok(file) => learn(shared, keys, &file, settings::missing_setting),
        Err(_) => Err("it has another length than such a file"),
    };
    let shown = Shown(&path);
    match outcome {
        Ok(None) => remove(&path),
        Ok(Some(generation)) => {
            log::line(format_args!(
                "LOG: data key {generation} is in use: new files are sealed under it; relations: {}",
                keys.suite()
            ));
            remove(&path);
        }
        Err(why) => {
            log::line(format_args!("WARNING: \"{shown}\": the data key in it is not used: {why}"));
            let refused = datadir::join(root.path(), REFUSED);
            if let (Ok(from), Ok(to)) = (sys::c_path(&path), sys::c_path(&refused)) {
                let _ = sys::rename(&from, &to);
            }
        }
    }
}

/// Keeps a renewal file for all processes, and adopts its key in this one. `None`: its key is
/// known. `missing` says why the server's settings do not do for the suites.
fn learn(
    shared: &Shared,
    keys: &KeySet,
    file: &[u8; RENEWAL_LEN],
    missing: impl FnOnce(Suites) -> Option<&'static str>,
) -> Result<Option<Generation>, &'static str> {
    let Renewed { generation, key, suites } = renewal::open(file, keys)
        .map_err(|_| "no key of this server opens it, or it was changed")?;
    if generation <= keys.active() {
        return match keys.get(generation) {
            Some(_) => Ok(None),
            None => Err("it is older than the key in use"),
        };
    }
    if suites != keys.suites()
        && let Some(why) = missing(suites)
    {
        return Err(why);
    }
    let free = shared.slots.iter().find(|slot| slot.get().is_none());
    let slot = free.filter(|_| keys.adopt(generation, key, suites)).ok_or(
        "the server has taken as many since its start as it can keep; restart it, then renew",
    )?;
    slot.put(generation, file);
    shared.newest.store(generation.0, Ordering::Release);
    Ok(Some(generation))
}

/// The content of a regular file, if there is one, and the file, locked: the program takes it away
/// under this lock if the server has not answered in time.
fn claim(path: &PathText) -> Option<(Fd, Vec<u8>)> {
    let path = sys::c_path(path).ok()?;
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let fd = sys::open(&path, flags, 0).ok()?;
    let is_regular = |st: libc::stat| sys::is_regular(st.st_mode);
    if !sys::fstat(fd.0).is_some_and(is_regular) || !sys::try_lock(&fd) {
        return None;
    }
    // Before the lock was taken, the program may have taken the file away.
    if sys::fstat(fd.0).is_none_or(|st| st.st_nlink == 0) {
        return None;
    }
    // A longer file is refused by its length.
    let mut bytes = vec![0; RENEWAL_LEN + 1];
    let got = sys::pread_full(fd.0, &mut bytes, 0).ok()?;
    bytes.truncate(got);
    Some((fd, bytes))
}

fn remove(path: &PathText) {
    if let Ok(path) = sys::c_path(path) {
        let _ = sys::unlink(&path);
    }
}

#[cfg(test)]
mod tests {
    use pgseal_core::random::LibraryRandom;
    use pgseal_core::{DataKey, KeyringId, Suite};

    use super::*;

    fn key(byte: u8) -> DataKey {
        let fill = |bytes: &mut [u8; 32]| {
            bytes.fill(byte);
            Ok::<(), ()>(())
        };
        DataKey::init_with(fill).unwrap()
    }

    fn set(generations: &[u32]) -> KeySet {
        let active = Generation(*generations.last().unwrap());
        let mut keys = KeySet::new(KeyringId([1; 16]), Suite::Aes256Gcm, active);
        for number in generations {
            keys.insert(Generation(*number), key(u8::try_from(*number).unwrap()));
        }
        keys
    }

    fn file(known: u32, all: &[u32]) -> [u8; RENEWAL_LEN] {
        let file = renewal::seal(&set(all), Generation(known), &LibraryRandom::new()).unwrap();
        file.try_into().unwrap()
    }

    fn fine(_: Suites) -> Option<&'static str> {
        None
    }

    fn shared() -> Box<Shared> {
        let slot =
            || Slot { generation: AtomicU32::new(0), file: [const { AtomicU64::new(0) }; WORDS] };
        Box::new(Shared { newest: AtomicU32::new(0), slots: std::array::from_fn(|_| slot()) })
    }

    #[test]
    fn processes_learn_keys_one_after_the_other() {
        let (shared, postmaster, backend) = (shared(), set(&[1]), set(&[1]));
        assert_eq!(learn(&shared, &postmaster, &file(1, &[1, 2]), fine), Ok(Some(Generation(2))));
        assert_eq!(learn(&shared, &postmaster, &file(2, &[2, 3]), fine), Ok(Some(Generation(3))));
        adopt(&shared, &backend);
        assert_eq!(backend.active(), Generation(3));
        assert_eq!(backend.get(Generation(3)).unwrap().bytes(), &[3; 32]);
        // The same file again, and a file of before.
        for known in [file(1, &[1, 2]), file(1, &[1, 3])] {
            assert_eq!(learn(&shared, &postmaster, &known, fine), Ok(None));
        }
        assert!(learn(&shared, &postmaster, &file(7, &[7, 8]), fine).is_err());
        assert_eq!(shared.slots.iter().map_while(Slot::get).count(), 2);
    }

    #[test]
    fn a_server_keeps_a_number_of_keys() {
        let (shared, keys) = (shared(), set(&[1]));
        for number in 2.. {
            let learnt = learn(&shared, &keys, &file(1, &[1, number]), fine);
            if number > 1 + KeySet::MAX_ADOPTED as u32 {
                assert!(learnt.is_err_and(|why| why.contains("restart")));
                break;
            }
            assert_eq!(learnt, Ok(Some(Generation(number))));
        }
    }

    #[test]
    fn another_suite_needs_the_settings_for_it() {
        let (shared, postmaster, backend) = (shared(), set(&[1]), set(&[1]));
        let suites = postmaster.suites().changed_to(Suite::Aes256Xts);
        let mut program = KeySet::new(KeyringId([1; 16]), suites, Generation(2));
        for number in [1, 2] {
            program.insert(Generation(number.into()), key(number));
        }
        let file = renewal::seal(&program, Generation(1), &LibraryRandom::new()).unwrap();
        let file = file.try_into().unwrap();
        let refused = learn(&shared, &postmaster, &file, |_| Some("no setting"));
        assert_eq!(refused, Err("no setting"));
        assert_eq!((postmaster.active(), postmaster.suite()), (Generation(1), Suite::Aes256Gcm));
        assert!(shared.slots[0].get().is_none());
        let taken = learn(&shared, &postmaster, &file, |wanted| {
            assert_eq!(wanted, suites);
            None
        });
        assert_eq!(taken, Ok(Some(Generation(2))));
        adopt(&shared, &backend);
        assert_eq!((postmaster.suites(), backend.suites()), (suites, suites));
    }
}
