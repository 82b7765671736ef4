//! How a file is to be sealed.

use pgseal_core::header::Header;
use pgseal_core::{Form, Generation, KeySet};
use pgseal_pgdata::{Class, Misplaced};

/// How a file that is still empty will be sealed.
#[derive(Clone, Copy)]
pub struct Want {
    /// The data keys of its directory.
    pub keys: &'static KeySet,
    /// Suite, layout and place.
    pub form: Form,
    /// The generation of the data key.
    pub generation: Generation,
    /// The class whose rules a file that is there must keep; `None`: it may be any.
    pub class: Option<Class>,
}

impl Want {
    /// What speaks against an authentic file with this header at its path.
    pub fn misplaced(&self, header: &Header) -> Option<Misplaced> {
        self.class?.misplaced(self.form.place, self.keys.suite, header)
    }
}
