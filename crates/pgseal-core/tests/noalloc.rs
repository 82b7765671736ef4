//! After warm-up, reading and writing pages takes nothing from the heap.

#![allow(unsafe_code, clippy::unwrap_used)]

mod common;

use std::alloc::{GlobalAlloc, Layout as Memory, System};
use std::cell::Cell;

use common::{Handle, combinations, pattern};
use pgseal_core::storage::accelerated::Accelerated;
use pgseal_core::storage::mem::MemStorage;
use pgseal_core::testing::keys;
use pgseal_core::{FlushRecord, Layout, PlainOff};

thread_local! {
    static TAKEN: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes to the system's allocator as it came; counting touches no heap.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Memory) -> *mut u8 {
        TAKEN.with(|taken| taken.set(taken.get() + 1));
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Memory) {
        // SAFETY: the caller keeps `dealloc`'s contract.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn taken() -> u64 {
    TAKEN.with(Cell::get)
}

#[test]
fn pages_are_read_and_written_without_the_heap() {
    let before = taken();
    drop(Vec::<u8>::with_capacity(1));
    assert_eq!(taken() - before, 1, "the counter counts");

    let keys = keys();
    for (suite, layout) in combinations() {
        let storage = Accelerated::new(MemStorage::default());
        let mut handle = Handle::create(&storage, suite, layout, &keys);
        handle.scratch.reserve().unwrap();
        let bytes = pattern(300 * 8192, 1);
        handle.write(&storage, &bytes, 0).unwrap();
        handle.file.set_must_open(PlainOff(u64::MAX));
        handle.file.set_flush_record(Some(FlushRecord { timeline: 1, position: 2 }));
        let mut buf = vec![0; 20 * 8192];
        handle.read_into(&storage, &mut buf, 0).unwrap();
        for round in 0..80 {
            // Alternate between two groups.
            handle.read_into(&storage, &mut buf[..8192], round % 2 * 290 * 8192).unwrap();
        }

        let before = taken();
        for round in 0_u64..40 {
            // Single pages, runs over the edge of a group, parts of a page.
            let page = round * 7;
            handle.write(&storage, &bytes[..8192], page * 8192).unwrap();
            handle.read_into(&storage, &mut buf[..8192], page * 8192).unwrap();
            handle.write(&storage, &bytes[..20 * 8192], 120 * 8192).unwrap();
            handle.read_into(&storage, &mut buf, 120 * 8192).unwrap();
            handle.write(&storage, &bytes[..100], page * 8192 + 50).unwrap();
            handle.read_into(&storage, &mut buf[..100], page * 8192 + 50).unwrap();
            handle.read_into(&storage, &mut buf[..8192], round % 2 * 290 * 8192).unwrap();
        }
        assert_eq!(taken() - before, 0, "{suite} {layout}");
        assert!(layout != Layout::Stream || suite.authenticates());
    }
}
