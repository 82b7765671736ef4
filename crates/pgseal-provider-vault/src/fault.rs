//! The failure that every module can report.

use pgseal_plugin::{Failure, Fault};

/// The failure for a URI, an environment variable or a file that is wrong, or for a store that is
/// none.
pub(crate) fn configuration(what: impl Into<String>) -> Failure<'static> {
    Failure::new(Fault::Configuration, what)
}
