//! Follows up to where the WAL of a running server is on the disk, and keeps `pgseal/control` at
//! that position.
//!
//! The position is published before anything is sent to a client or to another node: a commit is
//! acknowledged by sending, so whoever was told of a commit finds a position behind it. The server
//! itself knows the position (`GetFlushRecPtr`); a sync that returned tells that it may have moved.

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::OnceLock;

use pgseal_core::{FlushRecord, KeySet, PlainOff};
use pgseal_keys::control::Flushed;
use pgseal_pgdata::{WalSegment, wal_segment_bytes};

use super::position::{OpenRecord, Slots};
use super::record;
use super::segments;
use crate::file::gate;
use crate::file::held;
use crate::file::versions;
use crate::os::log::{self, Shown};
use crate::os::mutex::SharedMutex;
use crate::os::real::{self, Errno};
use crate::os::sys;
use crate::place::datadir::{self, Root};
use crate::place::program;
use crate::place::symbol::Symbol;

/// What all processes of a server share.
#[repr(C)]
pub struct Shared {
    /// How many syncs of WAL segments have returned.
    syncs: AtomicU64,
    /// The published position. The timeline is stored first and read last, so that a process that
    /// reads in between takes the older position on the newer timeline, which is before it as well.
    timeline: AtomicU32,
    position: AtomicU64,
    /// Where a recovery must not end before; timeline 0: no recovery has to be checked.
    end_timeline: AtomicU32,
    end_position: AtomicU64,
    /// The length of WAL segments.
    segment_bytes: AtomicU64,
    /// Held by the process that writes the position, so that an older one never replaces a newer.
    writer: SharedMutex,
    slots: Slots,
}

static SHARED: AtomicPtr<Shared> = AtomicPtr::new(ptr::null_mut());
static RECORD: OnceLock<OpenRecord> = OnceLock::new();
/// The count of syncs that this process last looked at.
static SEEN: AtomicU64 = AtomicU64::new(0);

/// What the processes share, if this is a server on a sealed data directory.
#[inline]
pub fn shared() -> Option<&'static Shared> {
    // SAFETY: null, or the map of `share`, which is never unmapped.
    unsafe { SHARED.load(Ordering::Acquire).as_ref() }
}

impl Shared {
    fn published(&self) -> Flushed {
        let position = self.position.load(Ordering::Acquire);
        Flushed { timeline: self.timeline.load(Ordering::Acquire), position }
    }

    fn publish(&self, flushed: Flushed) {
        self.timeline.store(flushed.timeline, Ordering::Release);
        self.position.store(flushed.position, Ordering::Release);
    }

    /// Where the recovery that is going on must not end before, if there is such a position.
    pub fn end(&self) -> Option<Flushed> {
        let timeline = self.end_timeline.load(Ordering::Acquire);
        let position = self.end_position.load(Ordering::Acquire);
        (timeline != 0).then_some(Flushed { timeline, position })
    }

    /// The recovery has ended as it must.
    pub fn end_is_reached(&self) {
        self.end_timeline.store(0, Ordering::Release);
    }

    fn expect_end(&self, flushed: Flushed) {
        self.end_position.store(flushed.position, Ordering::Release);
        self.end_timeline.store(flushed.timeline, Ordering::Release);
    }

    /// The length of WAL segments in bytes.
    pub fn segment_bytes(&self) -> u64 {
        self.segment_bytes.load(Ordering::Relaxed)
    }
}

/// Checks the record of a data directory, and makes what the processes of its server share. The
/// postmaster calls this before it forks.
pub fn server_starts(root: &'static Root, keys: &KeySet) -> Result<(), Errno> {
    let Some(control) = datadir::control_file(root) else { return Ok(()) };
    let flushed = record::server_starts(root, keys, &control)?;
    let Some(segment_bytes) = wal_segment_bytes(&control) else {
        log::line(format_args!(
            "ERROR: \"{}/global/pg_control\" does not say how long WAL segments are in a form that this pgseal knows: use a pgseal for this version of PostgreSQL",
            Shown(root.path())
        ));
        return Err(libc::EACCES);
    };
    if program::only_prints() {
        return Ok(());
    }
    let flushed = segments::newest(root, keys, flushed, segment_bytes);
    if ENABLE_FSYNC.flag() == Some(false) {
        log::line(format_args!("LOG: fsync is off: a recovery that loses commits is not noticed"));
    }
    let shared = share()?;
    shared.segment_bytes.store(segment_bytes, Ordering::Relaxed);
    shared.publish(flushed);
    shared.expect_end(flushed);
    let record = OpenRecord::open(root).inspect_err(|errno| {
        log::line(format_args!(
            "ERROR: \"{}/pgseal/control\" cannot be written (errno {errno}); give the server's user the right to write there",
            Shown(root.path())
        ));
    })?;
    let _ = RECORD.set(record);
    MAIN.store(this_thread(), Ordering::Relaxed);
    for function in &FUNCTIONS {
        function.find();
    }
    Ok(())
}

fn share() -> Result<&'static Shared, Errno> {
    if let Some(shared) = shared() {
        return Ok(shared);
    }
    let map = sys::shared_memory(size_of::<Shared>()).inspect_err(|errno| {
        log::line(format_args!(
            "ERROR: no shared memory for the position of the WAL (errno {errno})"
        ));
    })?;
    let map = map.cast::<Shared>();
    // SAFETY: new memory of this length.
    let writer = unsafe { &raw mut (*map).writer };
    // SAFETY: within that memory, which no other process and no reference knows yet.
    unsafe { SharedMutex::init(writer) }?;
    SHARED.store(map, Ordering::Release);
    shared().ok_or(libc::EINVAL)
}

/// Whether this is a process of a server whose position is followed.
#[inline]
pub fn is_followed() -> bool {
    shared().is_some()
}

/// To be called when a sync of a WAL segment has returned.
#[inline]
pub fn synced() {
    if let Some(shared) = shared() {
        shared.syncs.fetch_add(1, Ordering::Release);
    }
}

/// To be called when a process reads a WAL segment. If that process replays WAL, the recovery must
/// not end before what was published, and this returns up to which offset of the segment every page
/// must open. That holds for the recovery of a restarted postmaster as well as for one that the
/// postmaster begins because a process crashed.
#[inline]
pub fn must_open(path: &[u8]) -> PlainOff {
    match shared() {
        Some(shared) if datadir::replays_here() == Some(true) => replays(shared, path),
        _ => PlainOff(0),
    }
}

fn replays(shared: &Shared, path: &[u8]) -> PlainOff {
    let flushed = shared.published();
    if flushed.timeline == 0 {
        return PlainOff(0);
    }
    if shared.end() != Some(flushed) {
        shared.expect_end(flushed);
    }
    /// Whether this process has read WAL before.
    static READS: AtomicBool = AtomicBool::new(false);
    if !READS.swap(true, Ordering::Relaxed) {
        held::forget();
        gate::forget();
        versions::recovery_begins();
    }
    let segment = WalSegment::of_name(datadir::base_name(path));
    let start = segment
        .filter(|segment| segment.timeline == flushed.timeline)
        .and_then(|segment| segment.start(shared.segment_bytes()));
    let below = start.map_or(0, |start| flushed.position.saturating_sub(start));
    // A page that ends at the position may lack its entry: that comes with the next page.
    PlainOff(below.saturating_sub(1).min(shared.segment_bytes()))
}

/// The record that writes to WAL segments store beside the pages.
pub fn record() -> Option<FlushRecord> {
    let flushed = shared()?.published();
    let Flushed { timeline, position } = flushed;
    (timeline != 0).then_some(FlushRecord { timeline, position })
}

/// A record that says more than the truth, for a test ([`pgseal_core::broken`]): all records of the
/// write at hand were synced. The rest of the last page is zeros.
pub fn record_ahead(record: FlushRecord, path: &[u8], off: u64, bytes: &[u8]) -> FlushRecord {
    let segment = WalSegment::of_name(datadir::base_name(path));
    let start = shared().and_then(|shared| segment?.start(shared.segment_bytes()));
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1);
    let end = off + used.next_multiple_of(8);
    let position = start.map_or(record.position, |start| start + end);
    FlushRecord { position: record.position.max(position), ..record }
}

/// To be called before bytes are sent through a socket: publishes the position that has been
/// reached.
#[inline]
pub fn before_send() {
    if let Some(shared) = shared() {
        let syncs = shared.syncs.load(Ordering::Acquire);
        if syncs != SEEN.load(Ordering::Relaxed) {
            look(shared, syncs);
        }
    }
}

#[cold]
fn look(shared: &'static Shared, syncs: u64) {
    let errno = real::errno();
    if let Some(flushed) = reached()
        && let Some(_alone) = shared.writer.lock()
    {
        SEEN.store(syncs, Ordering::Relaxed);
        let known = shared.published();
        if (flushed.timeline, flushed.position) > (known.timeline, known.position) {
            let written = RECORD.get().map(|record| record.write(&shared.slots, flushed));
            if let Some(Err(errno)) = written {
                tell_once(errno);
            }
            // After the write: whoever finds the position published finds it recorded.
            shared.publish(flushed);
        }
    }
    real::set_errno(errno);
}

fn tell_once(errno: Errno) {
    static TOLD: AtomicU32 = AtomicU32::new(0);
    if TOLD.swap(1, Ordering::Relaxed) == 0 {
        log::line(format_args!(
            "WARNING: \"pgseal/control\" cannot be written (errno {errno}): after a crash, pgseal may not notice that the newest commits are missing"
        ));
    }
}

/// The postmaster's thread, which in each process that it forks is the main thread.
static MAIN: AtomicU64 = AtomicU64::new(0);

fn this_thread() -> u64 {
    // SAFETY: no pointers involved.
    let thread = unsafe { libc::pthread_self() };
    // A number for glibc, an address for musl.
    #[allow(clippy::unnecessary_cast)]
    let number = thread as u64;
    number
}

/// Up to where the WAL is on the disk, as the server itself knows. `None`: it cannot be asked now.
/// The functions of the server change what it has in hand while it writes WAL, so they are called
/// only outside critical sections, and only by the main thread.
fn reached() -> Option<Flushed> {
    let is_main = this_thread() == MAIN.load(Ordering::Relaxed);
    if !is_main || !MY_PROC.is_pointing() || CRITICAL.number() != Some(0) {
        return None;
    }
    let [recovers, flush, received] = &FUNCTIONS;
    // SAFETY: `bool RecoveryInProgress(void)`, `access/xlog.h`.
    let recovers = unsafe { recovers.function::<unsafe extern "C" fn() -> bool>() }?;
    let mut timeline = 0_u32;
    // SAFETY: this process has a `PGPROC`, so it is attached to the server's memory.
    let position = if unsafe { recovers() } {
        type Received = unsafe extern "C" fn(*mut u64, *mut u32) -> u64;
        // SAFETY: `XLogRecPtr GetWalRcvFlushRecPtr(XLogRecPtr *, TimeLineID *)`,
        // `replication/walreceiver.h`.
        let received = unsafe { received.function::<Received>() }?;
        // SAFETY: null is allowed for the first, and the second is valid for a write.
        unsafe { received(ptr::null_mut(), &raw mut timeline) }
    } else {
        type Flush = unsafe extern "C" fn(*mut u32) -> u64;
        // SAFETY: `XLogRecPtr GetFlushRecPtr(TimeLineID *)`, `access/xlog.h`.
        let flush = unsafe { flush.function::<Flush>() }?;
        // SAFETY: recovery is over, and the pointer is valid for a write.
        unsafe { flush(&raw mut timeline) }
    };
    (timeline != 0 && position != 0).then_some(Flushed { timeline, position })
}

static FUNCTIONS: [Symbol; 3] = [
    Symbol::new(c"RecoveryInProgress"),
    Symbol::new(c"GetFlushRecPtr"),
    Symbol::new(c"GetWalRcvFlushRecPtr"),
];
/// `MyProc`, `storage/lmgr/proc.c`: null in a process that is not attached to the server's memory.
static MY_PROC: Symbol = Symbol::new(c"MyProc");
/// `CritSectionCount`, `utils/init/globals.c`.
static CRITICAL: Symbol = Symbol::new(c"CritSectionCount");
/// `enableFsync`, `utils/init/globals.c`.
static ENABLE_FSYNC: Symbol = Symbol::new(c"enableFsync");
