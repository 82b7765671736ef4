//! Data keys, which are fetched from the helper once.
//!
//! The postmaster fetches the keys before its first fork, so that every backend inherits them; a
//! tool fetches them when it meets the first sealed file.

use core::ffi::c_int;

use pgseal_core::header::Header;
use pgseal_core::random::Random;
use pgseal_core::{DataKey, Generation, KeySet, KeyringId};
use pgseal_keys::handover::{self, Answer, Conversion};

use crate::keys::helper;
use crate::keys::renewal;
use crate::os::log::{self, Shown};
use crate::os::memory::with_reserve;
use crate::os::random::KernelRandom;
use crate::place::datadir::{self, Keyring, Root};
use crate::place::program::{self, Role};

/// The data keys of a data directory, fetched on first use.
pub fn of(root: &Root) -> Result<&'static KeySet, c_int> {
    // Without an identity the helper answers with keys or not at all.
    let keys = of_keyring(root, None)?.ok_or(libc::EACCES)?;
    renewal::catch_up(keys);
    Ok(keys)
}

/// The data keys of a data directory, fetched on first use. With `wanted`, only if the keyring has
/// this identity: the helper unlocks no other keyring.
fn of_keyring(root: &Root, wanted: Option<KeyringId>) -> Result<Option<&'static KeySet>, c_int> {
    if root.is_half_converted() && wanted.is_none() {
        return Err(refuse_half_converted(root));
    }
    match root.keyring_or_ask(wanted, || ask(root, wanted))? {
        Keyring::Unlocked(unlocked) => {
            Ok(Some(&unlocked.keys).filter(|keys| wanted.is_none_or(|id| id == keys.keyring_id)))
        }
        Keyring::Locked(_) => Ok(None),
    }
}

/// Logs that some files of a data directory are plain and some sealed, and returns the error number
/// for the refused call.
pub fn refuse_half_converted(root: &Root) -> c_int {
    let interrupted = root.interrupted(|| match hand_over(root, None) {
        Ok(Answer::Interrupted(conversion)) => Some(conversion),
        // The conversion has ended meanwhile, or the helper has logged what is wrong.
        Ok(Answer::Unlocked(_) | Answer::OtherKeyring(_)) | Err(_) => None,
    });
    let path = Shown(root.path());
    match interrupted.map(Conversion::name) {
        Some(command) => log::line(format_args!(
            "ERROR: \"{path}\": pgseal {command} was interrupted here, and some files are sealed and some are not; run \"pgseal {command}\" again: it goes on where it stopped"
        )),
        None => log::line(format_args!(
            "ERROR: \"{path}\": a conversion was interrupted here, and some files are sealed and some are not; \"pgseal doctor\" names the command that goes on"
        )),
    }
    libc::EACCES
}

/// The keys of the keyring with this identity. Searches `near`, the roots met before, and the named
/// directories. Only the keyring with this identity is unlocked; every other keyring is asked for
/// its identity once.
pub fn with_id(
    id: KeyringId,
    near: Option<&'static Root>,
) -> Result<Option<&'static KeySet>, c_int> {
    with_reserve(|| find_with_id(id, near))
}

/// The keys of the keyring that a header names, with those that came since they were loaded.
pub fn of_header(header: &Header) -> Result<&'static KeySet, c_int> {
    let keys = with_id(header.keyring_id, None)?.ok_or(libc::EACCES)?;
    renewal::catch_up(keys);
    Ok(keys)
}

fn find_with_id(
    id: KeyringId,
    near: Option<&'static Root>,
) -> Result<Option<&'static KeySet>, c_int> {
    let met = datadir::met_roots();
    let roots = || near.into_iter().chain(met.iter().copied());
    if let Some(keys) = roots().filter_map(Root::loaded_keys).find(|keys| keys.keyring_id == id) {
        return Ok(Some(keys));
    }
    let mut failed = None;
    for root in roots().chain(datadir::named_roots()) {
        if root.loaded_keys().is_some() || !root.has_keyring() {
            continue;
        }
        match of_keyring(root, Some(id)) {
            Ok(Some(keys)) => return Ok(Some(keys)),
            Ok(None) => {}
            // Another root may have the keyring.
            Err(errno) => failed = Some(errno),
        }
    }
    failed.map_or(Ok(None), Err)
}

/// Asks the helper for the keyring of a data directory.
fn ask(root: &Root, wanted: Option<KeyringId>) -> Result<Keyring, c_int> {
    let mut unlocked = match hand_over(root, wanted)? {
        Answer::Unlocked(unlocked) => unlocked,
        Answer::OtherKeyring(id) => return Ok(Keyring::Locked(id)),
        Answer::Interrupted(conversion) => {
            root.interrupted(|| Some(conversion));
            return Err(refuse_half_converted(root));
        }
    };
    if matches!(program::role(), Role::Server | Role::Standalone) {
        let ephemeral = DataKey::init_with(|bytes| KernelRandom.fill(bytes)).map_err(|_| {
            log::line(format_args!("ERROR: the kernel gives no random numbers"));
            libc::EIO
        })?;
        unlocked.keys.insert(Generation::EPHEMERAL, ephemeral);
    }
    // The keys live as long as the process.
    Ok(Keyring::Unlocked(Box::leak(Box::new(unlocked))))
}

/// Runs the helper for the keyring of a data directory. Logs what went wrong.
fn hand_over(root: &Root, wanted: Option<KeyringId>) -> Result<Answer, c_int> {
    let keyring = root.keyring_path();
    let mut arguments =
        vec![b"helper".to_vec(), b"keys".to_vec(), b"--keyring".to_vec(), keyring.to_vec()];
    if let Some(id) = wanted {
        arguments.extend([b"--id".to_vec(), id.to_string().into_bytes()]);
    }
    let frame = helper::run(&arguments)?;
    handover::decode(&frame).map_err(|error| {
        log::line(format_args!(
            "ERROR: the keys of \"{}\" were not handed over: {error}",
            Shown(&keyring)
        ));
        libc::EACCES
    })
}
