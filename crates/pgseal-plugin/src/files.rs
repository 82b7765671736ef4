//! The files that a URI names: credentials, certificates, and code that a plugin runs or loads.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use zeroize::Zeroizing;

use crate::failure::{Failure, configuration};
use crate::trust::distrusted;

/// Who may read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readers {
    /// Only its owner: mode 600.
    Owner,
    /// Everybody. Kubernetes gives its tokens such modes, and certificates are public.
    Any,
}

/// The content of a file of at most `max_len` bytes. `what` is the attribute that names the file.
///
/// # Errors
/// [`crate::Fault::Configuration`] if it cannot be read, is longer, is no regular file, belongs to
/// another user than root and this one, or has readers or writers that it must not have.
pub fn content(
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

/// The first line of a file, without its end.
#[must_use]
pub fn first_line(text: &[u8]) -> &[u8] {
    let line = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Checks a file whose code handles keys: it and the directories above it belong to root or to the
/// user of this process, and nobody else can write them. `what` is the attribute that names it.
///
/// # Errors
/// [`crate::Fault::Configuration`] if the file is not there or must not be trusted.
pub fn expect_trusted(what: &str, path: &Path) -> Result<(), Failure<'static>> {
    let failed = |problem: String| configuration(format!("{what} {}: {problem}", path.display()));
    let real = path.canonicalize().map_err(|error| failed(error.to_string()))?;
    let me = rustix::process::geteuid().as_raw();
    for path in real.ancestors() {
        let meta = fs::metadata(path).map_err(|error| failed(error.to_string()))?;
        if let Some(distrust) = distrusted(&meta, me) {
            return Err(failed(format!(
                "{}: {}; {}",
                path.display(),
                distrust.what,
                distrust.remedy
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::first_line;

    #[test]
    fn first_lines() {
        for (text, line) in
            [("", ""), ("a", "a"), ("a\nb", "a"), ("a\r\nb", "a"), (" a \n", " a "), ("\na", "")]
        {
            assert_eq!(first_line(text.as_bytes()), line.as_bytes(), "{text:?}");
        }
    }
}
