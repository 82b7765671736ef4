//! `file:PATH`: a key in a file that nobody else can read or change.

use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use zeroize::Zeroizing;

use super::MAX_TEXT_LEN;
use crate::error::KeyError;
use crate::files::open_regular;

/// The text in the file. The checks use the open file, so nobody can exchange the file between a
/// check and the read.
pub(super) fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let missing = |what: &str, remedy: &str| KeyError::Missing {
        what: format!("{}: {what}", path.display()),
        remedy: remedy.to_owned(),
    };
    let failed = |action: &str, err: io::Error| KeyError::ProviderFailed {
        provider: format!("file:{}", path.display()),
        what: format!("cannot {action} the key file: {err}"),
    };
    let insecure =
        |what: String, remedy: String| KeyError::Insecure { path: path.to_owned(), what, remedy };
    let mut file = open_regular(path).map_err(|err| match err.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            missing("there is no key file", "put the key there, or name another provider")
        }
        io::ErrorKind::InvalidInput => {
            insecure(err.to_string(), "put the key into a regular file of mode 600".to_owned())
        }
        io::ErrorKind::PermissionDenied => KeyError::ProviderFailed {
            provider: format!("file:{}", path.display()),
            what: format!(
                "user {} may not read the key file, and the server runs as the owner of its data \
                 directory: run: chown {} '{}'",
                rustix::process::geteuid().as_raw(),
                rustix::process::geteuid().as_raw(),
                path.display()
            ),
        },
        _ => failed("open", err),
    })?;
    let meta = file.metadata().map_err(|err| failed("stat", err))?;
    let mode = meta.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(insecure(
            format!("the key file has mode {mode:o}: group or others have access"),
            format!("run: chmod 600 '{}'", path.display()),
        ));
    }
    let me = rustix::process::geteuid().as_raw();
    if !owner_is_trusted(meta.uid(), me) {
        return Err(insecure(
            format!("the key file belongs to user {}, neither root nor user {me}", meta.uid()),
            advice(path, meta.uid(), me),
        ));
    }
    let mut text = Zeroizing::new(Vec::with_capacity(MAX_TEXT_LEN + 1));
    let limit = u64::try_from(MAX_TEXT_LEN + 1).unwrap_or(u64::MAX);
    (&mut file).take(limit).read_to_end(&mut text).map_err(|err| failed("read", err))?;
    if text.trim_ascii().is_empty() {
        return Err(missing("the key file is empty", "put the key there (pgseal key new)"));
    }
    Ok(text)
}

/// The remedy for a key file with an untrusted owner. Root is never told to `chown` the file: its
/// owner may be the user of the server, who could not read the file afterwards.
fn advice(path: &Path, owner: u32, me: u32) -> String {
    if me == 0 {
        return format!(
            "run pgseal as user {owner}, or give it a copy that belongs to root: install -m 600 '{}' \
             COPY",
            path.display()
        );
    }
    format!("run pgseal as its owner, or: chown {me} '{}'", path.display())
}

/// Whether the owner of the file may know and choose the key: an owner can change mode and content.
fn owner_is_trusted(owner: u32, me: u32) -> bool {
    owner == me || owner == 0
}

#[cfg(test)]
mod tests {
    use super::{advice, owner_is_trusted};

    #[test]
    fn root_is_not_told_to_take_the_key_from_the_server() {
        let said = advice("/etc/pgseal/key".as_ref(), 101, 0);
        assert!(!said.contains("chown") && said.contains("user 101"), "{said}");
        assert!(advice("/k".as_ref(), 5, 101).contains("chown 101 '/k'"));
    }

    #[test]
    fn only_root_and_the_user_are_trusted() {
        assert!(owner_is_trusted(1000, 1000) && owner_is_trusted(0, 1000));
        assert!(!owner_is_trusted(1001, 1000) && !owner_is_trusted(1000, 0));
    }
}
