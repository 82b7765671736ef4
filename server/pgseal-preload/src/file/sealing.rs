//! How a file is to be sealed.

use pgseal_core::header::Header;
use pgseal_core::{Form, Generation, KeySet};
use pgseal_pgdata::{Class, Misplaced};

/// How a file will be sealed that has no header yet.
#[derive(Clone, Copy)]
pub struct Sealing {
    /// The data keys of the file's data directory.
    pub keys: &'static KeySet,
    /// Suite, layout and place.
    pub form: Form,
    /// The generation of the data key.
    pub generation: Generation,
    /// The class whose rules an existing file must satisfy; `None`: there are no such rules.
    pub class: Option<Class>,
}

impl Sealing {
    /// Why an authentic file with this header does not belong at its path; `None` if it does.
    pub fn misplaced(&self, header: &Header) -> Option<Misplaced> {
        self.class?.misplaced(self.form.place, self.keys.suite, header)
    }
}
