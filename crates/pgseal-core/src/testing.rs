//! What the tests of this crate and of those above it share.

use crate::error::SealError;
use crate::file::SealedFile;
use crate::header::Form;
use crate::keyset::{DataKey, Generation, KeySet, KeyringId};
use crate::random::LibraryRandom;
use crate::storage::Storage;
use crate::suite::{Layout, Suite};

/// A key set with fixed keys of generations 1 and 2; 2 is active.
#[must_use]
pub fn keys() -> KeySet {
    let mut keys = KeySet::new(KeyringId([7; 16]), Suite::Aes256Gcm, Generation(2));
    for generation in [1_u32, 2] {
        if let Ok(key) = DataKey::init_with(|bytes| {
            bytes.fill(0x40 + generation.to_le_bytes()[0]);
            Ok::<(), ()>(())
        }) {
            keys.insert(Generation(generation), key);
        }
    }
    keys
}

/// A new file that is bound to no place, under the active key of [`keys`].
pub fn new_file<S: Storage + ?Sized>(
    storage: &S,
    suite: Suite,
    layout: Layout,
) -> Result<SealedFile, SealError> {
    let (form, keys) = (Form::anywhere(suite, layout), keys());
    SealedFile::create(storage, &form, &keys, keys.active, &LibraryRandom::new())
}
