//! Sealing and opening a value does not allocate on Rust's heap. Making a key does, and freeing the
//! key frees everything.

#![allow(unsafe_code, clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use pgseal_column::header::Mode;
use pgseal_column::{ColumnKey, Domain, NumberCode, RawKey, RawMode, TypeCode, fill_random};

thread_local! {
    static TAKEN: Cell<u64> = const { Cell::new(0) };
    static HELD: Cell<i64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is passed on to the system's allocator; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TAKEN.with(|taken| taken.set(taken.get() + 1));
        HELD.with(|held| held.set(held.get() + 1));
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        HELD.with(|held| held.set(held.get() - 1));
        // SAFETY: the caller keeps `dealloc`'s contract.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn values_do_not_allocate() {
    let before = TAKEN.get();
    drop(Vec::<u8>::with_capacity(1));
    assert_eq!(TAKEN.get() - before, 1, "the counter counts");

    let held = HELD.get();
    let key = ColumnKey::new(&[1; 32], Domain(1), 1).unwrap();
    let raw = RawKey::new(&[1; 32], RawMode::Cbc).unwrap();
    let short = NumberCode::new(2).unwrap();
    // The first draw of random bytes sets up the generator.
    fill_random(&mut [0; 12]).unwrap();

    let before = TAKEN.get();
    let (plain, mut sealed, mut back) = ([7; 9000], [0; 9100], [0; 9100]);
    for round in 0..2000 {
        let plain = &plain[..round % 40 * (1 + round % 7)];
        // A short code and a long one.
        let code = TypeCode::new(7 + round as u32 % 2 * 100_000).unwrap();
        for mode in [Mode::Deterministic, Mode::Randomised] {
            let len = key.seal(mode, code, plain, &mut sealed).unwrap();
            assert_eq!(key.open(mode, code, &sealed[..len], &mut back), Ok(plain.len()));
            sealed[len - 1] ^= 1;
            assert!(key.open(mode, code, &sealed[..len], &mut back).is_err());
        }
        let len = raw.encrypt(b"", plain, &mut sealed).unwrap();
        assert_eq!(raw.decrypt(b"", &sealed[..len], &mut back), Ok(plain.len()));
        let number = key.encrypt64(short, round as u64);
        assert_eq!(key.decrypt64(short, number), round as u64);
        assert_eq!(key.decrypt32(short, key.encrypt32(short, 5)), 5);
        assert_eq!(key.decrypt60(short, key.encrypt60(short, 5).unwrap()), Ok(5));
    }
    assert_eq!(TAKEN.get() - before, 0);

    drop((key, raw));
    assert_eq!(HELD.get(), held, "freed keys leave nothing behind");
}
