//! Two handles on one file, as two processes have it open: each sees at once what the other does,
//! whatever it remembers.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{Handle, combinations, pattern};
use pgseal_core::Layout;
use pgseal_core::geometry::BLOCK_LEN;
use pgseal_core::storage::mem::MemStorage;
use pgseal_core::testing::keys;

const BLOCK: usize = BLOCK_LEN as usize;

#[test]
fn a_write_by_one_is_seen_by_the_other() {
    let keys = keys();
    for (suite, layout) in combinations() {
        let storage = MemStorage::default();
        let mut one = Handle::create(&storage, suite, layout, &keys);
        one.write(&storage, &pattern(6 * BLOCK, 1), 0).unwrap();
        let mut two = Handle::open(&storage, &keys);
        for round in 2..8 {
            let (reader, writer) =
                if round % 2 == 0 { (&mut two, &mut one) } else { (&mut one, &mut two) };
            reader.all(&storage).unwrap();
            let bytes = pattern(BLOCK, round);
            let block = u64::from(round) % 6;
            writer.write(&storage, &bytes, block * BLOCK_LEN).unwrap();
            writer.write(&storage, b"part", 5 * BLOCK_LEN + 77).unwrap();
            let read = reader.read(&storage, block * BLOCK_LEN, BLOCK).unwrap();
            assert!(block == 5 || read == bytes, "{suite} {layout} {round}");
            assert_eq!(reader.read(&storage, 5 * BLOCK_LEN + 77, 4).unwrap(), b"part");
            assert!(reader.all(&storage).unwrap() == writer.all(&storage).unwrap());
        }
    }
}

#[test]
fn a_cut_and_new_growth_by_one_is_seen_by_the_other() {
    let keys = keys();
    for (suite, layout) in combinations() {
        for (cut, grown) in [(BLOCK_LEN, 5 * BLOCK_LEN), (100, 5 * BLOCK_LEN), (8300, 20_000)] {
            let storage = MemStorage::default();
            let mut one = Handle::create(&storage, suite, layout, &keys);
            let mut model = pattern(6 * BLOCK, 1);
            one.write(&storage, &model, 0).unwrap();
            let mut two = Handle::open(&storage, &keys);
            two.all(&storage).unwrap();
            one.set_len(&storage, cut).unwrap();
            model.truncate(cut as usize);
            assert!(two.all(&storage).unwrap() == model, "{suite} {layout} cut to {cut}");
            one.set_len(&storage, grown).unwrap();
            model.resize(grown as usize, 0);
            assert!(two.all(&storage).unwrap() == model, "{suite} {layout} {cut} to {grown}");
            // The other writes into the hole and behind the end.
            two.write(&storage, &pattern(BLOCK, 3), BLOCK_LEN).unwrap();
            two.write(&storage, b"end", grown + 3 * BLOCK_LEN + 5).unwrap();
            assert!(one.all(&storage).unwrap() == two.all(&storage).unwrap(), "{suite} {layout}");
        }
    }
}

/// A process that has seen a longer file than there is now writes behind the end. Not held: a cut
/// into a block of a paged file whose other process then writes behind that block
/// (`spec/sealed-file.md`, section 10).
#[test]
fn a_write_behind_an_end_that_another_process_moved() {
    let keys = keys();
    for (suite, layout) in combinations() {
        for cut in [2 * BLOCK_LEN, 2 * BLOCK_LEN + 100, 100, 0] {
            for off in [3 * BLOCK_LEN, 3 * BLOCK_LEN + 10, 300] {
                let into_a_block = cut % BLOCK_LEN != 0 && off / BLOCK_LEN > cut / BLOCK_LEN;
                if into_a_block && layout == Layout::Paged {
                    continue;
                }
                let storage = MemStorage::default();
                let mut one = Handle::create(&storage, suite, layout, &keys);
                let mut model = pattern(6 * BLOCK, 1);
                one.write(&storage, &model, 0).unwrap();
                let mut two = Handle::open(&storage, &keys);
                two.set_len(&storage, cut).unwrap();
                model.truncate(cut as usize);
                one.write(&storage, b"behind the end", off).unwrap();
                let end = off as usize + 14;
                model.resize(model.len().max(end), 0);
                model[off as usize..end].copy_from_slice(b"behind the end");
                for handle in [&mut one, &mut two] {
                    let all = handle.all(&storage);
                    assert!(
                        all.as_ref().is_ok_and(|all| *all == model),
                        "{suite} {layout} cut to {cut}, write at {off}: {:?}",
                        all.map(|all| all.len())
                    );
                }
            }
        }
    }
}
