//! Data keys, which the helper fetches once.
//!
//! The postmaster has them fetched before its first fork, so that every backend inherits them; a
//! tool when it meets the first sealed file.

use core::ffi::c_int;

use pgseal_core::random::Random;
use pgseal_core::{DataKey, Generation, KeySet, KeyringId};
use pgseal_keys::handover;

use crate::keys::helper;
use crate::os::log::{self, Shown};
use crate::os::memory::with_reserve;
use crate::os::random::KernelRandom;
use crate::os::sys;
use crate::place::datadir::{self, Root};
use crate::place::program::{self, Role};

/// The data keys of a data directory, fetched on first use.
pub fn of(root: &Root) -> Result<&'static KeySet, c_int> {
    root.keys_or_load(|| load(root))
}

/// The keys of the keyring with this identity: of `near`, of a root met before, or of one of the
/// named directories. Only a keyring with the right identity is unlocked.
pub fn with_id(
    id: KeyringId,
    near: Option<&'static Root>,
) -> Result<Option<&'static KeySet>, c_int> {
    with_reserve(|| find_with_id(id, near))
}

fn find_with_id(
    id: KeyringId,
    near: Option<&'static Root>,
) -> Result<Option<&'static KeySet>, c_int> {
    let met = datadir::met_roots();
    let loaded = near.into_iter().chain(met.iter().copied()).filter_map(Root::loaded_keys);
    if let Some(keys) = loaded.into_iter().find(|keys| keys.keyring_id == id) {
        return Ok(Some(keys));
    }
    for root in near.into_iter().chain(met.iter().copied()).chain(datadir::named_roots()) {
        if root.loaded_keys().is_none() && keyring_has_id(root, id) {
            return of(root).map(Some);
        }
    }
    Ok(None)
}

fn keyring_has_id(root: &Root, id: KeyringId) -> bool {
    let Ok(path) = sys::c_path(&root.keyring_path()) else { return false };
    let Ok(text) = sys::read_whole(&path, 1 << 20) else { return false };
    let id = id.to_string();
    text.windows(id.len()).any(|window| window == id.as_bytes())
}

/// The data keys of a data directory, from the helper. Writes the line about what went wrong.
fn load(root: &Root) -> Result<&'static KeySet, c_int> {
    let keyring = root.keyring_path();
    let arguments = [b"helper".to_vec(), b"keys".to_vec(), b"--keyring".to_vec(), keyring.to_vec()];
    let frame = helper::run(&arguments)?;
    let mut keys = handover::decode(&frame).map_err(|_| {
        log::line(format_args!(
            "ERROR: the keys of \"{}\" were not handed over; see the message above, or try \"pgseal key show\"",
            Shown(&keyring)
        ));
        libc::EACCES
    })?;
    if matches!(program::role(), Role::Server | Role::Standalone) {
        let ephemeral = DataKey::init_with(|bytes| KernelRandom.fill(bytes)).map_err(|_| {
            log::line(format_args!("ERROR: the kernel gives no random numbers"));
            libc::EIO
        })?;
        keys.insert(Generation::EPHEMERAL, ephemeral);
    }
    // The keys live as long as the process.
    Ok(Box::leak(Box::new(keys)))
}
