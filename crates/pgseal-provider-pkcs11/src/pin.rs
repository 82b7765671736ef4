//! The PIN, from a file that nobody else can read.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use cryptoki::types::AuthPin;
use pgseal_plugin::{Failure, Fault, distrusted};
use zeroize::Zeroizing;

use crate::configuration;

/// The longest PIN, in bytes.
const MAX_PIN_LEN: usize = 256;

/// The first line of the file.
pub(crate) fn read(path: &Path) -> Result<AuthPin, Failure<'static>> {
    let failed = |what: String| configuration(format!("pin-source {}: {what}", path.display()));
    let me = rustix::process::geteuid().as_raw();
    // A FIFO must not make the plugin wait.
    let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
    let mut file = File::options()
        .read(true)
        .custom_flags(flags)
        .open(path)
        .map_err(|error| failed(format!("cannot open it as user {me}: {error}")))?;
    let meta = file.metadata().map_err(|error| failed(error.to_string()))?;
    if !meta.is_file() {
        return Err(failed("it is not a regular file".to_owned()));
    }
    if let Some(distrust) = distrusted(&meta, me) {
        return Err(failed(format!("{}; {}", distrust.what, distrust.remedy)));
    }
    if meta.mode() & 0o077 != 0 {
        return Err(failed("group or others have access; chmod 600 it".to_owned()));
    }
    let mut text = Zeroizing::new(Vec::with_capacity(MAX_PIN_LEN + 2));
    let limit = u64::try_from(MAX_PIN_LEN + 2).unwrap_or(u64::MAX);
    (&mut file)
        .take(limit)
        .read_to_end(&mut text)
        .map_err(|error| failed(format!("cannot read it: {error}")))?;
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    match std::str::from_utf8(line) {
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
