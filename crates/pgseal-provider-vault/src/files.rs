//! The files that the URI names: credentials, certificates.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use pgseal_plugin::{Failure, distrusted};
use zeroize::Zeroizing;

use crate::fault::configuration;

/// The longest file that is read, in bytes. A bundle of authorities has about 250 kB.
const MAX_LEN: usize = 2 << 20;
/// The longest credential, in bytes.
const MAX_CREDENTIAL_LEN: usize = 64 << 10;

/// A credential: a token of the store, or what a login takes. Wiped on drop, never printed.
pub(crate) type Token = Zeroizing<String>;

/// Who may read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readers {
    /// Only its owner: mode 600.
    Owner,
    /// Everybody. Kubernetes gives its tokens such modes, and certificates are public.
    Any,
}

/// A credential: the first line of a file.
pub(crate) fn credential(
    what: &str,
    path: &Path,
    readers: Readers,
) -> Result<Token, Failure<'static>> {
    let text = content(what, path, readers, MAX_CREDENTIAL_LEN)?;
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line).trim_ascii();
    match std::str::from_utf8(line) {
        Ok(line) if !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Ok(Zeroizing::new(line.to_owned()))
        }
        _ => Err(configuration(format!(
            "{what} {}: its first line is no credential of printable ASCII",
            path.display()
        ))),
    }
}

/// The content of a file in the form PEM.
pub(crate) fn pem(
    what: &str,
    path: &Path,
    readers: Readers,
) -> Result<Zeroizing<Vec<u8>>, Failure<'static>> {
    content(what, path, readers, MAX_LEN)
}

fn content(
    what: &str,
    path: &Path,
    readers: Readers,
    max_len: usize,
) -> Result<Zeroizing<Vec<u8>>, Failure<'static>> {
    let failed = |problem: String| configuration(format!("{what} {}: {problem}", path.display()));
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
    if readers == Readers::Owner && meta.mode() & 0o077 != 0 {
        return Err(failed("group or others have access; chmod 600 it".to_owned()));
    }
    let len = usize::try_from(meta.len()).ok().filter(|len| *len <= max_len);
    let len = len.ok_or_else(|| failed(format!("it has more than {max_len} bytes")))?;
    // The buffer never grows: a reallocation would leave a copy that is not wiped.
    let mut text = Zeroizing::new(vec![0; len]);
    file.read_exact(&mut text).map_err(|error| failed(format!("cannot read it: {error}")))?;
    Ok(text)
}
