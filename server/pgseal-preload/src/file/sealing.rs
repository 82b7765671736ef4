//! How a file is to be sealed.

use pgseal_core::header::Header;
use pgseal_core::{Form, Generation, KeySet};
use pgseal_pgdata::{Class, Misplaced};

use crate::keys::renewal;

/// How a file will be sealed that has no header yet.
#[derive(Clone, Copy)]
pub struct Sealing {
    /// The data keys of the file's data directory.
    pub keys: &'static KeySet,
    /// Suite, layout and place.
    pub form: Form,
    /// Whether the file key is wrapped under the key that dies with the postmaster.
    pub is_ephemeral: bool,
    /// The class whose rules an existing file must satisfy; `None`: there are no such rules.
    pub class: Option<Class>,
}

impl Sealing {
    /// The generation of the data key for a header that is written now.
    pub fn generation(&self) -> Generation {
        if self.is_ephemeral {
            return Generation::EPHEMERAL;
        }
        // The file may have been opened long ago.
        renewal::catch_up(self.keys);
        self.keys.active()
    }

    /// Why an authentic file with this header does not belong at its path; `None` if it does.
    pub fn misplaced(&self, header: &Header) -> Option<Misplaced> {
        self.class?.misplaced(self.form.place, self.keys.suites(), header)
    }
}
