//! The start of the library, above all floors: before the program's `main`.

use crate::calls::{audit, raw};
use crate::file::{accelerators, fds};
use crate::keys::{copies, upgrade, vault};
use crate::os::{memory, real};
use crate::place::program;

/// Runs when the library is loaded, before `main`.
extern "C" fn start() {
    // This includes `dlerror`: a look-up at its first call would clear the pending error.
    real::find_all();
    vault::start();
    if program::active() {
        memory::with_reserve(|| {
            audit::check_program();
            upgrade::check_program();
            copies::check_purpose();
            accelerators::read_switch();
        });
        fds::keep_standard_streams();
    }
    raw::started();
}

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;
