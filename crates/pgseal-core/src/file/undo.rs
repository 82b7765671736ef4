//! Rollback of a change that fails halfway.

use crate::storage::Storage;
use crate::units::{SealedLen, SealedOff};

/// Sealed bytes before a change, with their offset.
pub(super) type Old<'a> = (SealedOff, &'a [u8]);

/// Nothing to restore.
pub(super) const NOTHING: Old<'static> = (SealedOff(0), &[]);

/// A part of the file as it was before a change. If the change fails halfway, for example on a full
/// disk, [`Undo::roll_back`] restores this part, so that no old data is lost.
pub(super) struct Undo<'a> {
    /// The bytes that the change overwrites.
    pub(super) old: [Old<'a>; 2],
    /// The length of the file before the change, if the change lengthens the file.
    pub(super) end: Option<SealedLen>,
}

impl Undo<'_> {
    /// Restores the old bytes, and cuts off what lies behind the old end. Errors are ignored: the
    /// caller reports the error of the change.
    pub(super) fn roll_back<S: Storage + ?Sized>(&self, storage: &S) {
        for (off, bytes) in self.old.iter().filter(|(_, bytes)| !bytes.is_empty()) {
            let _ = storage.write_at(bytes, *off);
        }
        if let Some(end) = self.end
            && !storage.len().is_ok_and(|len| len <= end)
        {
            let _ = storage.set_len(end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::fault::FaultStorage;
    use crate::storage::mem::MemStorage;

    #[test]
    fn a_rollback_puts_back_bytes_and_length() {
        let storage = MemStorage::with(vec![2; 100]);
        Undo { old: [(SealedOff(10), &[1; 5]), NOTHING], end: None }.roll_back(&storage);
        assert_eq!(*storage.bytes(), [&[2; 10][..], &[1; 5], &[2; 85]].concat());
        Undo { old: [NOTHING, (SealedOff(0), &[3; 2])], end: Some(SealedLen(11)) }
            .roll_back(&storage);
        assert_eq!(*storage.bytes(), [3, 3, 2, 2, 2, 2, 2, 2, 2, 2, 1]);
        // A file that is shorter already is not lengthened.
        Undo { old: [NOTHING; 2], end: Some(SealedLen(50)) }.roll_back(&storage);
        assert_eq!(storage.bytes().len(), 11);
    }

    #[test]
    fn a_rollback_does_what_it_can() {
        for plan in ["eio@write#1+", "eio@len#1"] {
            let storage = FaultStorage::new(MemStorage::with(vec![2; 100]));
            storage.arm(plan.parse().unwrap());
            Undo { old: [(SealedOff(0), &[1]), NOTHING], end: Some(SealedLen(40)) }
                .roll_back(&storage);
            assert_eq!(storage.inner().bytes().len(), 40, "{plan}");
        }
    }
}
