//! Keyrings of data directories that are about to be created.

use core::ffi::c_int;

use crate::keys::helper;
use crate::os::log::{self, Shown};
use crate::os::sys;
use crate::place::datadir::{self, Root};

/// Makes the keyring of a data directory that is about to be created: as the environment says, or
/// from the keyring of `like`.
pub fn create_keyring(dir: &[u8], like: Option<&Root>) -> Result<(), c_int> {
    let mut arguments =
        vec![b"helper".to_vec(), b"new-keyring".to_vec(), b"--dir".to_vec(), dir.to_vec()];
    let options = [
        (c"PGSEAL_PROVIDER", &b"--provider"[..]),
        (c"PGSEAL_SUITE", b"--suite"),
        (c"PGSEAL_KEYRING_FROM", b"--from"),
    ];
    if let Some(like) = like {
        arguments.extend([b"--from".to_vec(), like.keyring_path().to_vec()]);
    }
    for (variable, option) in options.into_iter().filter(|_| like.is_none()) {
        if let Some(value) = sys::env(variable) {
            arguments.extend([option.to_vec(), value]);
        }
    }
    helper::run(&arguments)?;
    if sys::stat(&sys::c_path(&datadir::join(dir, datadir::KEYRING))?).is_none() {
        log::line(format_args!(
            "ERROR: no keyring was made in \"{}\"; see the message above",
            Shown(dir)
        ));
        return Err(libc::EACCES);
    }
    Ok(())
}

/// Whether the environment asks for new data directories to be sealed.
pub fn creation_asked_for() -> bool {
    sys::env(c"PGSEAL_PROVIDER").is_some() || sys::env(c"PGSEAL_KEYRING_FROM").is_some()
}
