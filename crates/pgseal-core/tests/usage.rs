//! How often a file key was used (`spec/sealed-file.md`, section 11.1).

#![allow(clippy::unwrap_used, clippy::panic)]

use pgseal_core::geometry::HEAD_LEN;
use pgseal_core::header::{self, Kind};
use pgseal_core::random::{LibraryRandom, Random, RandomFailed};
use pgseal_core::storage::Storage;
use pgseal_core::storage::mem::MemStorage;
use pgseal_core::testing::{keys, new_file};
use pgseal_core::usage::{DUE, LIMIT, WRITES_PER_SAMPLE, writes};
use pgseal_core::{FlushRecord, Layout, PlainLen, PlainOff, Scratch, SealedOff, Suite};

/// Every nonce is a sample: those of one call lie behind each other.
struct Samples;

impl Random for Samples {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), RandomFailed> {
        LibraryRandom::new().fill(bytes)?;
        bytes.chunks_mut(12).for_each(|nonce| nonce.iter_mut().take(2).for_each(|byte| *byte = 0));
        Ok(())
    }
}

static PAGES: [u8; 3 * 8192] = [5; 3 * 8192];

#[test]
fn each_write_of_a_page_counts() {
    for suite in [Suite::Aes256Gcm, Suite::Aes256Ctr] {
        let (storage, mut scratch) = (MemStorage::default(), Scratch::new());
        let mut file = new_file(&storage, suite, Layout::Paged).unwrap();
        assert_eq!(file.new_samples(), None);
        let mut write = |bytes: &[u8], off| {
            file.write_at(&storage, &mut scratch, bytes, PlainOff(off), &Samples).unwrap();
            let found = file.new_samples();
            file.samples_counted();
            found
        };
        assert_eq!(write(&PAGES, 0), Some((1, 3)));
        assert_eq!(write(&[6; 100], 50), Some((1, 1)));
        // Pages of zeros at the end of the file are not sealed.
        assert_eq!(write(&[0; 8192], 3 * 8192), None);
        // The gap before the bytes is filled, and the last page is sealed anew.
        assert_eq!(write(&[7; 10], 5 * 8192 + 100), Some((1, 1)));
        file.set_len(&storage, &mut scratch, PlainLen(100), &Samples).unwrap();
        assert_eq!(file.new_samples(), Some((1, 1)));
    }
}

/// A page and its flush record count once each.
#[test]
fn each_mac_of_wal_counts() {
    let (storage, mut scratch) = (MemStorage::default(), Scratch::new());
    let mut file = new_file(&storage, Suite::Aes256Xts, Layout::Wal).unwrap();
    file.write_at(&storage, &mut scratch, &PAGES, PlainOff(0), &Samples).unwrap();
    assert_eq!(file.new_samples(), Some((1, 3)));
    file.samples_counted();
    file.set_flush_record(Some(FlushRecord { timeline: 1, position: 8192 }));
    file.write_at(&storage, &mut scratch, &[9; 700], PlainOff(100), &Samples).unwrap();
    let (key_number, samples) = file.new_samples().unwrap();
    assert!(key_number == 1 && samples >= 2, "{samples}");
}

#[test]
fn others_are_not_counted() {
    for (suite, layout) in [
        (Suite::Aegis256X2, Layout::Paged),
        (Suite::Aes256Gcm, Layout::Stream),
        (Suite::Aes256Gcm, Layout::Sectored),
        (Suite::Aes256Xts, Layout::InPlace),
    ] {
        let (storage, mut scratch) = (MemStorage::default(), Scratch::new());
        if suite.check_approved().is_err() {
            continue;
        }
        let mut file = new_file(&storage, suite, layout).unwrap();
        file.write_at(&storage, &mut scratch, &PAGES, PlainOff(0), &Samples).unwrap();
        assert_eq!(file.new_samples(), None, "{layout}");
        let mut head = [0; HEAD_LEN as usize];
        storage.read_at(&mut head, SealedOff(0)).unwrap();
        let Ok(Kind::Sealed(header)) = header::classify(&head) else { panic!("not sealed") };
        let counted = header::count(&head, &header, &keys(), (1, 1), &LibraryRandom::new());
        assert!(counted.unwrap().is_none(), "{layout}");
    }
}

/// With the nonces of the library one write in 65,536 is a sample: 64 are expected here, with a
/// standard deviation of 8.
#[test]
fn the_estimate_is_near_the_number_of_writes() {
    let (storage, mut scratch) = (MemStorage::default(), Scratch::new());
    let mut file = new_file(&storage, Suite::Aes256Gcm, Layout::Paged).unwrap();
    // A short last page seals quickly.
    let number: u64 = 1 << 22;
    let mut samples = 0;
    for _ in 0..number {
        file.write_at(&storage, &mut scratch, &[1], PlainOff(0), &LibraryRandom::new()).unwrap();
        if let Some((_, more)) = file.new_samples() {
            samples += more;
            file.samples_counted();
        }
    }
    assert!((16..=112).contains(&samples), "{samples} samples of {number} writes");
    assert_eq!(writes(samples), u64::from(samples) * WRITES_PER_SAMPLE);
    assert!(DUE < LIMIT && u64::from(u32::MAX) * WRITES_PER_SAMPLE > LIMIT);
}
