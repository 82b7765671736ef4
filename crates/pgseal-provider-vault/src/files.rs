//! Credentials in files that the URI names.

use std::path::Path;

use pgseal_plugin::files::{Readers, content, first_line};
use pgseal_plugin::{Failure, configuration};
use zeroize::Zeroizing;

/// The longest credential, in bytes.
const MAX_CREDENTIAL_LEN: usize = 64 << 10;

/// A credential: a token of the store, or what a login takes. Wiped on drop, never printed.
pub(crate) type Token = Zeroizing<String>;

/// A credential: the first line of a file.
pub(crate) fn credential(
    what: &str,
    path: &Path,
    readers: Readers,
) -> Result<Token, Failure<'static>> {
    let text = content(what, path, readers, MAX_CREDENTIAL_LEN)?;
    match std::str::from_utf8(first_line(&text).trim_ascii()) {
        Ok(line) if !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Ok(Zeroizing::new(line.to_owned()))
        }
        _ => Err(configuration(format!(
            "{what} {}: its first line is no credential of printable ASCII",
            path.display()
        ))),
    }
}
