//! The PIN, from a file that nobody else can read.

use std::path::Path;

use cryptoki::types::AuthPin;
use pgseal_plugin::files::{self, Readers};
use pgseal_plugin::{Failure, Fault, configuration};

/// The longest PIN, in bytes.
const MAX_PIN_LEN: usize = 256;
/// The longest file, in bytes.
const MAX_FILE_LEN: usize = 64 << 10;

/// The first line of the file.
pub(crate) fn read(path: &Path) -> Result<AuthPin, Failure<'static>> {
    let failed = |what: String| configuration(format!("pin-source {}: {what}", path.display()));
    let text = files::content("pin-source", path, Readers::Owner, MAX_FILE_LEN)?;
    match std::str::from_utf8(files::first_line(&text)) {
        Ok(pin) if !pin.is_empty() && pin.len() <= MAX_PIN_LEN => Ok(AuthPin::from(pin)),
        Ok(_) => Err(failed(format!("its first line is not a PIN of 1 to {MAX_PIN_LEN} bytes"))),
        Err(_) => Err(failed("the PIN is not UTF-8".to_owned())),
    }
}

/// The failure for a PIN that must not be tried: the next wrong one would lock the token.
pub(crate) fn last_try() -> Failure<'static> {
    Failure::new(
        Fault::Refused,
        "the token allows one more wrong PIN before it locks, so pgseal does not try; log in once \
         with the token's own tool and the right PIN",
    )
}
