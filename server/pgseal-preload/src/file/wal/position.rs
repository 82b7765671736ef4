//! Writes the position of the WAL, the second part of `pgseal/control`: for each commit, so through
//! a map of the file where the file system allows that, without a system call.

use core::ffi::c_int;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::OnceLock;

use pgseal_core::random::Random;
use pgseal_keys::control::{
    CONFIRMATION_LEN, CONFIRMATION_OFF, CONTROL_LEN, Confirmation, Flushed, NONCE_LEN, PART_LEN,
    Part, SLOT_LEN, Sealer, flushed_part, slot_off,
};

use super::record::open_to_write;
use crate::file::window;
use crate::keys::load;
use crate::os::fault;
use crate::os::random::KernelRandom;
use crate::os::real::{self, Errno};
use crate::os::sys;
use crate::place::datadir::Root;

/// The confirmations of the two slots, in memory that the processes share: whose confirmation
/// stands in the file tells which slot counts. Zeros: not known yet.
#[derive(Default)]
pub struct Slots([AtomicU64; 2]);

impl Slots {
    /// Whether a process of this server has written both slots. Until then nobody knows which one
    /// counts, and the first write goes into both.
    fn are_known(&self) -> bool {
        self.0.iter().any(|own| own.load(Ordering::Relaxed) != 0)
    }

    /// Both slots were written with this confirmation.
    fn are(&self, confirmation: Confirmation) {
        for own in &self.0 {
            own.store(word(confirmation), Ordering::Relaxed);
        }
    }
}

/// A confirmation as it is loaded from the file.
fn word(confirmation: Confirmation) -> u64 {
    u64::from_le_bytes(confirmation).to_le()
}

/// The open record of a server, for the many writes of its second part.
pub struct OpenRecord {
    root: &'static Root,
    /// The file as the postmaster mapped it, for all processes.
    map: Option<Map>,
    /// A store into the map failed in this process.
    is_map_broken: AtomicBool,
    /// The descriptor that this process last used without a map; -1: none.
    fd: AtomicI32,
    dev: AtomicU64,
    ino: AtomicU64,
    /// Made when a process first writes.
    sealer: OnceLock<Sealer>,
}

struct Map(NonNull<u8>);

// SAFETY: the map is memory of the process, and only the holder of the lock of the position stores
// into it.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl OpenRecord {
    /// Opens the record of a root, and writes nothing: the server may still be refused. The
    /// postmaster calls this before it forks.
    pub fn open(root: &'static Root) -> Result<OpenRecord, Errno> {
        let fd = open_to_write(root)?;
        Ok(OpenRecord {
            root,
            map: map(fd.0),
            is_map_broken: AtomicBool::new(false),
            fd: AtomicI32::new(-1),
            dev: AtomicU64::new(0),
            ino: AtomicU64::new(0),
            sealer: OnceLock::new(),
        })
    }

    /// Writes the position, without a sync: it tells no less than the truth in any version that a
    /// power cut leaves. One process at a time calls this.
    pub fn write(&self, slots: &Slots, flushed: Flushed) -> Result<(), Errno> {
        let sealer = match self.sealer.get() {
            Some(sealer) => sealer,
            None => {
                let made = Sealer::new(Part::Flushed, load::of(self.root)?, &KernelRandom);
                let made = made.map_err(|_| libc::EIO)?;
                self.sealer.get_or_init(|| made)
            }
        };
        let (slot, confirmation) = sealed(sealer, flushed)?;
        let is_mapped = slots.are_known() && !self.is_map_broken.load(Ordering::Relaxed);
        if let Some(map) = self.map.as_ref().filter(|_| is_mapped) {
            if map.store(slots, &slot, confirmation) {
                return Ok(());
            }
            self.is_map_broken.store(true, Ordering::Relaxed);
        }
        write_part(self.descriptor()?, &slot, confirmation)?;
        slots.are(confirmation);
        Ok(())
    }

    /// The descriptor, if it is still that of the record: code in this process may have closed it,
    /// and the number may be that of another file by now.
    fn descriptor(&self) -> Result<c_int, Errno> {
        let fd = self.fd.load(Ordering::Relaxed);
        let known = (self.dev.load(Ordering::Relaxed), self.ino.load(Ordering::Relaxed));
        if fd >= 0 && sys::fstat(fd).is_some_and(|st| (st.st_dev, st.st_ino) == known) {
            return Ok(fd);
        }
        let fd = open_to_write(self.root)?;
        let st = sys::fstat(fd.0).ok_or(libc::EBADF)?;
        let number = fd.0;
        core::mem::forget(fd);
        self.dev.store(st.st_dev, Ordering::Relaxed);
        self.ino.store(st.st_ino, Ordering::Relaxed);
        self.fd.store(number, Ordering::Relaxed);
        Ok(number)
    }
}

impl Map {
    /// Stores into the slot that does not count, and then makes it count with one store of 8 bytes:
    /// a process that is killed in between leaves the other slot. `false`: the caller has to write.
    fn store(&self, slots: &Slots, slot: &[u8; SLOT_LEN], confirmation: Confirmation) -> bool {
        let start = self.0.as_ptr();
        fault::guarded(start, CONTROL_LEN, || {
            // SAFETY: within the map, and a multiple of 8 bytes from its start, which is a page.
            let counting = unsafe { start.add(CONFIRMATION_OFF) };
            // SAFETY: as above; all processes access these 8 bytes atomically.
            let counting = unsafe { &*counting.cast::<AtomicU64>() };
            let number =
                usize::from(counting.load(Ordering::Acquire) == slots.0[0].load(Ordering::Relaxed));
            let confirmation = word(confirmation);
            slots.0[number].store(confirmation, Ordering::Relaxed);
            // SAFETY: within the map.
            let target = unsafe { start.add(slot_off(number)) };
            // SAFETY: `slot` cannot overlap a map that only we know.
            unsafe { ptr::copy_nonoverlapping(slot.as_ptr(), target, SLOT_LEN) };
            counting.store(confirmation, Ordering::Release);
        })
    }
}

/// A slot, and its confirmation.
fn sealed(sealer: &Sealer, flushed: Flushed) -> Result<([u8; SLOT_LEN], Confirmation), Errno> {
    // With one call, which may be a system call.
    let mut random = [0; NONCE_LEN + CONFIRMATION_LEN];
    KernelRandom.fill(&mut random).map_err(|_| libc::EIO)?;
    let (nonce, confirmation) = random.split_first_chunk().ok_or(libc::EIO)?;
    let confirmation = *confirmation.first_chunk().ok_or(libc::EIO)?;
    let slot = sealer.flushed(*nonce, flushed, confirmation).map_err(|_| libc::EIO)?;
    Ok((slot, confirmation))
}

/// Writes both slots with one call, which a kill does not divide.
fn write_part(fd: c_int, slot: &[u8; SLOT_LEN], confirmation: Confirmation) -> Result<(), Errno> {
    let part: [u8; PART_LEN] = flushed_part(slot, confirmation);
    sys::pwrite_all(fd, &part, Part::Flushed.offset() as u64)
}

/// Maps the record, where a store into a map is as good as a write.
fn map(fd: c_int) -> Option<Map> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    if !window::is_suitable(fd) || !fault::is_handled() {
        return None;
    }
    // SAFETY: a new map at an address of the kernel's choice.
    let map = unsafe { real::mmap(ptr::null_mut(), CONTROL_LEN, prot, libc::MAP_SHARED, fd, 0) };
    if map == libc::MAP_FAILED { None } else { NonNull::new(map.cast()).map(Map) }
}
