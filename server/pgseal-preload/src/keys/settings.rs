//! What the server's settings allow, as the guard module says (`server/guard/pgseal_guard.c`): the
//! suite may change while the server runs.

use core::ffi::c_int;
use std::sync::OnceLock;

use pgseal_core::{Suite, Suites};

/// What the guard module says of the server's settings, as bits.
const FULL_PAGE_WRITES: c_int = 1;
const HINT_BITS_ARE_LOGGED: c_int = 2;
const DATA_CHECKSUMS: c_int = 4;

static SETTINGS: OnceLock<extern "C" fn() -> c_int> = OnceLock::new();

/// The guard module says how the settings can be asked for later: the suite may change while the
/// server runs.
#[unsafe(no_mangle)]
pub extern "C" fn pgseal_settings_are(ask: extern "C" fn() -> c_int) {
    let _ = SETTINGS.set(ask);
}

/// Why relations cannot have these suites with the settings of this server; `None`: they can.
pub fn missing_setting(suites: Suites) -> Option<&'static str> {
    let settings = SETTINGS.get().map_or(0, |ask| ask());
    missing_of(suites, settings)
}

fn missing_of(suites: Suites, settings: c_int) -> Option<&'static str> {
    let is_on = |bits: c_int| settings & bits != 0;
    if suites.all().any(Suite::needs_data_checksums) && !is_on(DATA_CHECKSUMS) {
        return Some("its suite needs data checksums: pgseal run -- pg_checksums --enable -D DIR");
    }
    if !suites.all().any(Suite::needs_full_page_images) {
        return None;
    }
    if !is_on(FULL_PAGE_WRITES) {
        return Some("its suite needs full_page_writes = on, on a standby also on its primary");
    }
    (!is_on(HINT_BITS_ARE_LOGGED)).then_some(
        "its suite needs wal_log_hints = on or data checksums, on a standby also on its primary",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_needs_its_settings() {
        let xts = Suites::from(Suite::Aes256Xts);
        let (gcm, ctr) = (xts.changed_to(Suite::Aes256Gcm), xts.changed_to(Suite::Aes256Ctr));
        let all = FULL_PAGE_WRITES | HINT_BITS_ARE_LOGGED | DATA_CHECKSUMS;
        for settings in 0..=all {
            let images = FULL_PAGE_WRITES | HINT_BITS_ARE_LOGGED;
            assert_eq!(missing_of(xts, settings), None);
            assert_eq!(missing_of(gcm, settings).is_none(), settings & images == images);
            assert_eq!(
                missing_of(gcm.changed_to(Suite::Aes256Xts), settings).is_none(),
                settings & images == images
            );
            assert_eq!(missing_of(ctr, settings).is_none(), settings == all);
        }
    }
}
