//! The newest version of each page, in memory that all processes of a server share
//! (`spec/while-it-runs.md`, section 2).
//!
//! A page that authenticates may be an older one, together with its older tag. So a [`Table`] keeps
//! a digest of the tag entry that was written last, or read first, of each page. A page whose entry
//! has another digest is an older version.
//!
//! Each page has one slot, which it shares with other pages: the page that was written or read last
//! has it. A slot is two words, the name of its page and a state; every change of the state is one
//! atomic operation and counts up a number in it. Nobody waits for anybody: a process that dies
//! leaves a slot without a version, and so a page that is not compared, never a false alarm.
//!
//! | state | meaning |
//! |---|---|
//! | a version | nobody writes, and this is the newest version of the named page |
//! | writers under way | a process drops the version before it writes, and is counted until it has written |
//! | locked | a process is changing the name |
//!
//! Writers that were killed are counted until the next recovery begins
//! ([`Table::all_writers_have_ended`]): then no process is alive that could have written.

use core::fmt;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::geometry::{GROUP_PAGES, TAG_ENTRY_LEN};
use crate::units::BlockNo;

/// A slot of the table. All zeros: it belongs to no page.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Slot {
    /// The name of the page; only the process that locked the slot stores it.
    name: AtomicU64,
    /// See [`State`].
    state: AtomicU64,
}

/// The state of a slot, in 64 bits:
///
/// | bits | |
/// |---|---|
/// | 0 | 1: the upper 48 bits are a version; 0: they are a count of writers and an epoch |
/// | 1 | locked |
/// | 2 to 15 | counts up with each change, modulo 2^14 |
/// | 16 to 63 | a version; or the count of writers (16) and the epoch (32) in which they began |
#[derive(Clone, Copy, PartialEq, Eq)]
struct State(u64);

const HAS_VERSION: u64 = 1;
const LOCKED: u64 = 2;
const CHANGE: u64 = 4;
const CHANGES: u64 = 0xFFFC;
const UPPER: u32 = 16;
const EPOCH: u32 = 32;
const MAX_WRITERS: u64 = 0xFFFF;

impl State {
    fn has_version(self) -> bool {
        self.0 & HAS_VERSION != 0
    }

    fn is_locked(self) -> bool {
        self.0 & LOCKED != 0
    }

    fn version(self) -> Version {
        Version(self.0 >> UPPER)
    }

    fn writers(self) -> u64 {
        if self.has_version() { 0 } else { self.0 >> UPPER & MAX_WRITERS }
    }

    /// The epoch in which the writers began, or the lock was taken.
    fn epoch(self) -> u32 {
        (self.0 >> EPOCH) as u32
    }

    /// Whether only processes that are dead by now are writing or hold the lock.
    fn is_abandoned(self, epoch: u32) -> bool {
        !self.has_version() && self.epoch() != epoch && (self.writers() > 0 || self.is_locked())
    }

    /// The number of changes after one more.
    fn next_change(self) -> u64 {
        self.0.wrapping_add(CHANGE) & CHANGES
    }

    fn with_version(self, version: Version) -> State {
        State(version.0 << UPPER | self.next_change() | HAS_VERSION)
    }

    fn with_writers(self, writers: u64, epoch: u32, locked: bool) -> State {
        let lock = if locked { LOCKED } else { 0 };
        State(u64::from(epoch) << EPOCH | writers << UPPER | self.next_change() | lock)
    }
}

/// A digest of a tag entry, or a length; 48 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version(u64);

/// The version of a page that is lost. An entry has it with 2^-48.
const LOST: Version = Version((1 << 48) - 1);

impl Version {
    /// The version of a file that has so many pages, at most 2^48.
    #[must_use]
    pub const fn of_length(pages: u64) -> Version {
        Version(pages & ((1 << 48) - 1))
    }
}

/// The pages of one file.
#[derive(Clone, Copy, Debug)]
pub struct Pages {
    /// The index of the first page, before it is reduced to the length of a table.
    index: u64,
    name: u64,
}

impl Pages {
    /// The pages of the file with this identity, which is random, at this place.
    #[must_use]
    pub fn of(file_id: &[u8; 16], place: &[u8]) -> Pages {
        // Which pages share a slot depends on the names of files only, so that a test of an older
        // page does not fail by chance.
        Pages { index: mixed(0, place), name: mixed(1, file_id) }
    }

    /// One of them.
    #[inline]
    #[must_use]
    pub fn page(self, block: BlockNo) -> Page {
        // Pages of one file lie side by side, so a scan reads each line of the processor's cache
        // once. The factor is odd, so that no two pages of a file have the same name.
        let name = self.name.wrapping_add(block.0.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        Page { index: self.index.wrapping_add(block.0), name }
    }
}

/// A page of a file.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    index: u64,
    name: u64,
}

impl Page {
    /// A single thing with a version, by its name.
    #[must_use]
    pub fn named(name: &[u8]) -> Page {
        Page { index: mixed(0, name), name: mixed(1, name) }
    }
}

/// 64 bits of these bytes.
fn mixed(seed: u64, bytes: &[u8]) -> u64 {
    let mut mixed = seed ^ bytes.len() as u64;
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        // The finalizer of SplitMix64, which loses nothing.
        mixed = (mixed ^ u64::from_le_bytes(word)).wrapping_add(0x9E37_79B9_7F4A_7C15);
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
    }
    mixed
}

/// The state of a slot before a page was read, or after a write was announced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen(u64);

/// The states of the slots of some pages of one group, before they were read.
pub struct SeenPages([Seen; GROUP_PAGES as usize]);

impl Default for SeenPages {
    fn default() -> SeenPages {
        SeenPages([Seen::default(); GROUP_PAGES as usize])
    }
}

impl fmt::Debug for SeenPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SeenPages").finish_non_exhaustive()
    }
}

impl SeenPages {
    /// To be called before `count` pages of one group are read, the first of them `first`.
    pub fn before_reads(&mut self, table: &Table, pages: Pages, first: BlockNo, count: usize) {
        for (seen, block) in self.0.iter_mut().zip(first.0..).take(count) {
            *seen = table.before_read(pages.page(BlockNo(block)));
        }
    }

    /// The state of the slot of the page with this index among those that were read.
    #[must_use]
    pub fn of(&self, index: usize) -> Seen {
        self.0[index % GROUP_PAGES as usize]
    }
}

/// What [`Table::compare`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The newest version.
    Newest,
    /// Nothing was known of the page; from now on this version is the newest.
    First,
    /// An older version, and nobody has written the page since the read began.
    Older,
    /// Another version than the newest, which may have been written since the read began.
    Changed,
    /// Nothing is known of the page.
    Unknown,
}

/// The newest versions of pages.
pub struct Table {
    slots: &'static [Slot],
    epoch: &'static AtomicU32,
    keys: [u64; 4],
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("slots", &self.slots.len()).finish_non_exhaustive()
    }
}

impl Table {
    /// A table of these slots, as many as a power of two. `epoch` is shared as the slots are.
    /// `keys` are random and secret, the same in all processes: nobody can tell which versions of a
    /// page have the same digest. `None` if the number of slots is no power of two.
    #[must_use]
    pub fn new(slots: &'static [Slot], epoch: &'static AtomicU32, keys: [u64; 4]) -> Option<Table> {
        slots.len().is_power_of_two().then_some(Table { slots, epoch, keys })
    }

    #[inline]
    fn slot(&self, page: Page) -> &Slot {
        // The length is a power of two, so the index is in range.
        &self.slots[page.index as usize & (self.slots.len() - 1)]
    }

    fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Acquire)
    }

    /// The version that a tag entry stands for.
    #[inline]
    #[must_use]
    pub fn version(&self, entry: &[u8; TAG_ENTRY_LEN as usize]) -> Version {
        let (words, _) = entry.as_chunks::<8>();
        let word = |at: usize| u64::from_le_bytes(words[at]) ^ self.keys[at];
        let fold = |one: u64, other: u64| {
            let product = u128::from(one) * u128::from(other);
            product as u64 ^ (product >> 64) as u64
        };
        let digest = fold(word(0), word(1)) ^ fold(word(2), word(3)).rotate_left(32);
        Version(digest.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 16)
    }

    /// To be called before a page and its tag are read.
    #[inline]
    #[must_use]
    pub fn before_read(&self, page: Page) -> Seen {
        Seen(self.slot(page).state.load(Ordering::Acquire))
    }

    /// To be called after a page was read and has authenticated, with the entry that opened it.
    #[inline]
    pub fn compare(&self, page: Page, before: Seen, version: Version) -> Found {
        let slot = self.slot(page);
        let state = State(slot.state.load(Ordering::Acquire));
        if state.has_version() {
            let name = slot.name.load(Ordering::Relaxed);
            // Name and state belong together if the state is still the same.
            fence(Ordering::Acquire);
            if slot.state.load(Ordering::Relaxed) != state.0 {
                return Found::Unknown;
            }
            if name == page.name {
                return match (state.version() == version, before.0 == state.0) {
                    (true, _) => Found::Newest,
                    (false, true) => Found::Older,
                    (false, false) => Found::Changed,
                };
            }
        }
        self.compare_unknown(slot, page, before, version)
    }

    /// The version of which [`Version::of_length`] is known, or 0: the least length of a file.
    #[must_use]
    pub fn least_length(&self, file: Page, before: Seen) -> u64 {
        let (slot, before) = (self.slot(file), State(before.0));
        let name = slot.name.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let is_known = before.has_version()
            && name == file.name
            && slot.state.load(Ordering::Relaxed) == before.0;
        if is_known { before.version().0 } else { 0 }
    }

    /// Notes that a file has at least so many pages, if nobody has changed the slot since `before`.
    pub fn note_length(&self, file: Page, before: Seen, pages: u64) {
        let (slot, seen) = (self.slot(file), State(before.0));
        if seen.has_version() && slot.name.load(Ordering::Relaxed) == file.name {
            // If the slot has changed, so has its state.
            if pages > seen.version().0 {
                slot.replace(seen, seen.with_version(Version::of_length(pages)));
            }
            return;
        }
        self.compare_unknown(slot, file, before, Version::of_length(pages));
    }

    /// The version becomes the newest one if nobody has changed the slot since the read began.
    #[cold]
    fn compare_unknown(&self, slot: &Slot, page: Page, before: Seen, version: Version) -> Found {
        let (before, epoch) = (State(before.0), self.epoch());
        let is_free = before.has_version()
            || before.is_abandoned(epoch)
            || before.writers() == 0 && !before.is_locked();
        if is_free && slot.take(before, epoch, page.name, version) {
            Found::First
        } else {
            Found::Unknown
        }
    }

    /// To be called before a page or its tag is written: nobody compares the page before
    /// [`Table::written`] was called.
    #[must_use]
    pub fn will_write(&self, page: Page) -> Seen {
        let epoch = self.epoch();
        let begun = self.slot(page).change(|state| {
            let (writers, locked) = match state.is_abandoned(epoch) {
                true => (0, false),
                false => (state.writers(), state.is_locked()),
            };
            // A count that is full stays full, and the slot out of use.
            Some(state.with_writers(MAX_WRITERS.min(writers + 1), epoch, locked))
        });
        // Before the bytes of the page change.
        fence(Ordering::SeqCst);
        Seen(begun.0)
    }

    /// To be called after the write that was announced. `version` is what was written; `None` if
    /// that is not known, because the write failed.
    pub fn written(&self, page: Page, begun: Seen, version: Option<Version>) {
        let (slot, begun) = (self.slot(page), State(begun.0));
        // Only if nobody else wrote a page of this slot meanwhile.
        if let Some(version) = version
            && begun.writers() == 1
            && !begun.is_locked()
        {
            let is_own = slot.name.load(Ordering::Acquire) == page.name;
            if match is_own {
                true => slot.replace(begun, begun.with_version(version)),
                false => slot.take(begun, begun.epoch(), page.name, version),
            } {
                return;
            }
        }
        slot.leave(begun.epoch());
    }

    /// These pages are missing, although they were there, and are about to become a hole: from now
    /// on it is older than they were.
    pub fn are_lost(&self, pages: Pages, blocks: Range<u64>) {
        for block in blocks {
            let page = pages.page(BlockNo(block));
            self.written(page, self.will_write(page), Some(LOST));
        }
    }

    /// As [`Table::will_write`] for pages that are about to be cut off.
    #[must_use]
    pub fn will_cut(&self, pages: Pages, blocks: Range<u64>) -> Cut {
        for block in blocks.clone() {
            let _ = self.will_write(pages.page(BlockNo(block)));
        }
        Cut { pages, blocks, epoch: self.epoch() }
    }

    /// As [`Table::written`] for these pages, of which nothing is known now.
    pub fn was_cut(&self, cut: Cut) {
        for block in cut.blocks {
            self.slot(cut.pages.page(BlockNo(block))).leave(cut.epoch);
        }
    }

    /// To be called when a recovery begins: all processes that have announced a write and not ended
    /// it are dead. What is known of pages that nobody was writing stays.
    pub fn all_writers_have_ended(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }
}

/// Pages that are about to be cut off.
#[derive(Debug)]
pub struct Cut {
    pages: Pages,
    blocks: Range<u64>,
    epoch: u32,
}

impl Slot {
    fn replace(&self, from: State, to: State) -> bool {
        self.state.compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Changes the state, whatever it is, and returns the new one.
    fn change(&self, new: impl Fn(State) -> Option<State>) -> State {
        let mut state = State(self.state.load(Ordering::Relaxed));
        while let Some(next) = new(state) {
            let done = self.state.compare_exchange_weak(
                state.0,
                next.0,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            match done {
                Ok(_) => return next,
                Err(found) => state = State(found),
            }
        }
        state
    }

    /// Gives the slot to a page whose newest version this is, if its state is still `from`. A
    /// writer that is counted there is the caller.
    fn take(&self, from: State, epoch: u32, name: u64, version: Version) -> bool {
        let locked = from.with_writers(0, epoch, true);
        if !self.replace(from, locked) {
            return false;
        }
        // The lock is seen before the name changes.
        fence(Ordering::Release);
        self.name.store(name, Ordering::Relaxed);
        if !self.replace(locked, locked.with_version(version)) {
            // A writer has come: only the lock is given back.
            self.change(|state| {
                let is_own = state.is_locked() && state.epoch() == epoch;
                is_own.then(|| state.with_writers(state.writers(), epoch, false))
            });
        }
        true
    }

    /// Counts a writer off, whose write is not the newest version for sure.
    fn leave(&self, epoch: u32) {
        self.change(|state| {
            let writers = state.writers();
            let is_counted = state.epoch() == epoch && (1..MAX_WRITERS).contains(&writers);
            is_counted.then(|| state.with_writers(writers - 1, epoch, state.is_locked()))
        });
    }
}
