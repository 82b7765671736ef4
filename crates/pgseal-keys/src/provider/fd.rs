//! Secrets from a descriptor that this process inherited.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use zeroize::Zeroizing;

use super::MAX_TEXT_LEN;
use crate::error::KeyError;
use crate::kek::Kek;

/// A second handle on an inherited descriptor. Dropping it does not close the descriptor `fd`.
pub(super) fn reopen(fd: u32) -> io::Result<File> {
    File::open(PathBuf::from(format!("/proc/self/fd/{fd}")))
}

/// The KEK that `pgseal run` left in a memfd (`PGSEAL_KEK_FD`, [`Kek::to_memfd_bytes`]). Reads at
/// offset 0 and does not move the file offset, since several processes read the same descriptor.
///
/// # Errors
/// [`KeyError::ProviderFailed`] when the descriptor is closed or holds no key.
pub fn kek_from_fd(fd: u32) -> Result<Kek, KeyError> {
    let provider = format!("PGSEAL_KEK_FD={fd}");
    let failed = |err: io::Error| KeyError::ProviderFailed {
        provider: provider.clone(),
        what: format!("cannot read the descriptor: {err}; start the program with pgseal run"),
    };
    let file = reopen(fd).map_err(failed)?;
    let mut bytes = Zeroizing::new(vec![0; MAX_TEXT_LEN]);
    let mut len = 0;
    while let Some(room) = bytes.get_mut(len..).filter(|room| !room.is_empty()) {
        let offset = u64::try_from(len).unwrap_or(u64::MAX);
        match file.read_at(room, offset) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
            Err(err) => return Err(failed(err)),
        }
    }
    let kek = Kek::from_memfd_bytes(bytes.get(..len).unwrap_or_default(), &provider)?;
    Ok(kek.with_origin(provider))
}

/// Reads up to the first newline or the end of the input; `None` if that is more than
/// [`MAX_TEXT_LEN`] bytes. The buffer never grows, because a reallocation would leave a copy that
/// is not wiped.
pub(super) fn read_line(mut from: impl Read) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    let mut text = Zeroizing::new(vec![0; MAX_TEXT_LEN + 1]);
    let mut len = 0;
    loop {
        let Some(room) = text.get_mut(len..).filter(|room| !room.is_empty()) else {
            return Ok(None);
        };
        let read = match from.read(room) {
            Ok(read) => read,
            Err(err) if err.kind() == io::ErrorKind::Interrupted => continue,
            Err(err) => return Err(err),
        };
        let end = room.iter().take(read).position(|byte| *byte == b'\n');
        if let Some(end) = end {
            text.truncate(len + end);
            break;
        }
        len += read;
        if read == 0 {
            text.truncate(len);
            break;
        }
    }
    if text.last() == Some(&b'\r') {
        text.pop();
    }
    Ok((text.len() <= MAX_TEXT_LEN).then_some(text))
}
