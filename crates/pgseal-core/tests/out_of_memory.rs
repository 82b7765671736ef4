//! Whichever allocation fails, an operation succeeds without it, or fails and has changed nothing.

#![allow(unsafe_code, clippy::unwrap_used, clippy::panic)]

mod common;

use std::alloc::{GlobalAlloc, Layout as Memory, System};
use std::cell::Cell;

use common::{combinations, pattern};
use pgseal_core::random::LibraryRandom;
use pgseal_core::storage::Storage;
use pgseal_core::storage::accelerated::Accelerated;
use pgseal_core::storage::mem::MemStorage;
use pgseal_core::testing::keys;
use pgseal_core::{
    Form, KeySet, Layout, OnDamage, Opened, PlainLen, PlainOff, Scratch, SealError, SealedFile,
    SealedLen, Suite,
};

/// Which allocations of this thread fail.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fails {
    None,
    /// The allocation with this number.
    Only(u64),
    /// The allocation with this number and all later ones.
    From(u64),
}

thread_local! {
    static TAKEN: Cell<u64> = const { Cell::new(0) };
    static FAILS: Cell<Fails> = const { Cell::new(Fails::None) };
}

struct Failing;

fn fails_now() -> bool {
    let number = TAKEN.get() + 1;
    TAKEN.set(number);
    match FAILS.get() {
        Fails::None => false,
        Fails::Only(wanted) => number == wanted,
        Fails::From(first) => number >= first,
    }
}

// SAFETY: every call goes to the system's allocator as it came, or fails; counting touches no heap.
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Memory) -> *mut u8 {
        if fails_now() {
            return core::ptr::null_mut();
        }
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Memory) -> *mut u8 {
        if fails_now() {
            return core::ptr::null_mut();
        }
        // SAFETY: the caller keeps `alloc_zeroed`'s contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Memory) {
        // SAFETY: the caller keeps `dealloc`'s contract.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Failing = Failing;

const PAGE: usize = 8192;
const MOST: usize = 400 * PAGE;

/// One operation on the file.
enum Step {
    Write {
        off: usize,
        len: usize,
    },
    Zeros {
        off: usize,
        len: usize,
    },
    SetLen(usize),
    Read {
        off: usize,
        len: usize,
    },
    /// Reads single pages in random order until the process caches their tags.
    Look,
    Reopen,
}

const STEPS: [Step; 16] = [
    Step::Write { off: 0, len: 300 * PAGE },
    Step::Reopen,
    Step::Read { off: 10 * PAGE, len: 40 * PAGE },
    Step::Read { off: 250 * PAGE, len: 20 * PAGE },
    Step::Look,
    Step::Write { off: 7 * PAGE + 50, len: 100 },
    Step::Reopen,
    Step::SetLen(260 * PAGE + 700),
    Step::Zeros { off: 261 * PAGE, len: 3 * PAGE },
    Step::Reopen,
    Step::Zeros { off: 264 * PAGE, len: PAGE },
    Step::SetLen(270 * PAGE + 5),
    Step::Write { off: 280 * PAGE + 1, len: 5 * PAGE },
    Step::Reopen,
    Step::SetLen(20 * PAGE + 100),
    Step::Read { off: 0, len: 25 * PAGE },
];

struct World {
    storage: Accelerated<MemStorage>,
    keys: KeySet,
    random: LibraryRandom,
    scratch: Scratch,
    /// The file as it must be.
    model: Vec<u8>,
    buf: Vec<u8>,
    text: Vec<u8>,
}

/// `None` for an operation that failed for lack of memory; any other error fails the test.
fn allowed<T>(result: Result<T, SealError>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(SealError::OutOfMemory) => None,
        Err(error) => panic!("{error}"),
    }
}

impl World {
    fn new(text: &[u8]) -> World {
        let storage = Accelerated::new(MemStorage::default());
        // The storage itself must not need to allocate.
        storage.bytes().reserve_exact(2 * MOST);
        World {
            storage,
            keys: keys(),
            random: LibraryRandom::new(),
            scratch: Scratch::new(),
            model: Vec::with_capacity(MOST),
            buf: vec![0; MOST],
            text: text.to_vec(),
        }
    }

    fn open(&self) -> Option<Box<SealedFile>> {
        match allowed(SealedFile::open(&self.storage, &self.keys))? {
            Opened::Sealed(file) => Some(file),
            other => panic!("not sealed: {other:?}"),
        }
    }

    fn step(&mut self, file: &mut SealedFile, step: &Step) {
        let (storage, scratch, random) = (&self.storage, &mut self.scratch, &self.random);
        match *step {
            Step::Write { off, len } | Step::Zeros { off, len } => {
                if matches!(step, Step::Zeros { .. }) {
                    self.text[..len].fill(0);
                }
                let bytes = &self.text[..len];
                let at = PlainOff(off as u64);
                if allowed(file.write_at(storage, scratch, bytes, at, random)).is_some() {
                    let end = self.model.len().max(off + len);
                    self.model.resize(end, 0);
                    self.model[off..off + len].copy_from_slice(bytes);
                }
            }
            Step::SetLen(len) => {
                let to = PlainLen(len as u64);
                if allowed(file.set_len(storage, scratch, to, random)).is_some() {
                    self.model.resize(len, 0);
                }
            }
            Step::Read { off, len } => {
                let (at, buf) = (PlainOff(off as u64), &mut self.buf[..len]);
                let read = file.read_at(storage, scratch, buf, at, OnDamage::Fail);
                if let Some(outcome) = allowed(read) {
                    let start = off.min(self.model.len());
                    let end = (off + len).min(self.model.len());
                    assert!(buf[..outcome.len] == self.model[start..end]);
                }
            }
            Step::Look => {
                for round in 0..80 {
                    let off = (round * 37 % 280) * PAGE;
                    self.step(file, &Step::Read { off, len: PAGE });
                }
            }
            Step::Reopen => {
                if let Some(again) = self.open() {
                    *file = *again;
                }
            }
        }
    }

    /// Runs all steps while these allocations fail, then compares the file with the model. Returns
    /// how many allocations there were.
    fn run(&mut self, suite: Suite, layout: Layout, fails: Fails) -> u64 {
        TAKEN.set(0);
        FAILS.set(fails);
        let made = SealedFile::create(
            &self.storage,
            &Form::anywhere(suite, layout),
            &self.keys,
            self.keys.active(),
            &self.random,
        );
        if let Some(mut file) = allowed(made) {
            for step in &STEPS {
                self.step(&mut file, step);
            }
        }
        let taken = TAKEN.get();
        FAILS.set(Fails::None);
        if self.storage.len().unwrap() == SealedLen(0) {
            return taken;
        }
        let mut file = self.open().unwrap();
        let (storage, scratch) = (&self.storage, &mut self.scratch);
        let outcome =
            file.read_at(storage, scratch, &mut self.buf, PlainOff(0), OnDamage::Fail).unwrap();
        assert!(self.buf[..outcome.len] == self.model[..], "{suite} {layout}");
        taken
    }
}

#[test]
fn every_allocation_may_fail() {
    let text = pattern(MOST, 3);
    for (suite, layout) in combinations() {
        for persistent in [false, true] {
            let mut number = 1;
            loop {
                let fails = if persistent { Fails::From(number) } else { Fails::Only(number) };
                let taken = World::new(&text).run(suite, layout, fails);
                if taken < number {
                    break;
                }
                number += 1;
            }
            // At least scratch buffers and an open file need memory.
            assert!(number > 5, "{suite} {layout}: only {number} allocations were tried");
        }
    }
}
