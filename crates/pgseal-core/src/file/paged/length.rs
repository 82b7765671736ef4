//! A paged file that becomes longer or shorter than its pages.

use super::mend::{Before, clear_stale_tags, clear_tags, lengthen_last_page};
use super::{read_page, write_pages};
use crate::error::SealError;
use crate::file::{BLOCK, Scratch, SealedFile};
use crate::geometry::{BLOCK_LEN, GROUP_PAGES, sealed_len};
use crate::random::Random;
use crate::storage::Storage;
use crate::suite::Layout;
use crate::units::{BlockNo, PlainLen};

/// Before a write behind the end of the file: makes the last page whole, so that its tag covers
/// what will be read of it. The pages between stay holes.
pub(super) fn fill_gap<S: Storage + ?Sized>(
    file: &mut SealedFile,
    storage: &S,
    scratch: &mut Scratch,
    plain_off: u64,
    random: &dyn Random,
) -> Result<(), SealError> {
    let plain = file.plain_len(storage)?.0;
    file.reached = plain;
    if plain < plain_off && plain / BLOCK_LEN < plain_off / BLOCK_LEN {
        lengthen_last_page(file, storage, scratch, plain, plain_off, random)?;
        clear_stale_tags(file, storage, plain)?;
    }
    Ok(())
}

pub(in crate::file) fn set_len<S: Storage + ?Sized>(
    file: &mut SealedFile,
    storage: &S,
    scratch: &mut Scratch,
    new_len: u64,
    random: &dyn Random,
) -> Result<(), SealError> {
    let plain = file.plain_len(storage)?.0;
    let target = sealed_len(Layout::Paged, PlainLen(new_len));
    if new_len > plain {
        lengthen_last_page(file, storage, scratch, plain, new_len, random)?;
        clear_stale_tags(file, storage, plain)?;
        storage.set_len(target)?;
        return Ok(());
    }
    let (block, in_block) = (BlockNo(new_len / BLOCK_LEN), (new_len % BLOCK_LEN) as usize);
    if in_block == 0 || new_len == plain {
        file.tags.clear();
        storage.set_len(target)?;
    } else {
        let mut page = core::mem::take(&mut scratch.page);
        let result = (|| {
            let whole = page.room(BLOCK)?;
            let had =
                read_page(file, storage, &mut scratch.old, &mut scratch.recent, block, whole)?;
            let entry = file.tags.entry(block);
            file.tags.clear();
            storage.set_len(target)?;
            let keep = &whole[..in_block.min(had)];
            write_pages(file, storage, scratch, block, keep, random).inspect_err(|_| {
                let before = Before { block, sealed: scratch.old.bytes(had), entry };
                before.put_back(&mut file.tags, storage);
            })
        })();
        scratch.page = page;
        result?;
    }
    let first_cut = BlockNo(new_len.div_ceil(BLOCK_LEN));
    let result = clear_tags(storage, first_cut);
    for group in first_cut.0 / GROUP_PAGES..=plain / BLOCK_LEN / GROUP_PAGES {
        file.tags.count_change(storage, BlockNo(group * GROUP_PAGES));
    }
    result
}
