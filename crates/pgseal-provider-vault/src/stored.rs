//! A key that the store gives out: a field of a secret of KV version 2, 32 bytes as Base64. Weaker
//! than the transit engine, because the key is in the memory of this process, and whoever may read
//! the secret can keep it.
//!
//! ```text
//! 1 byte    1, the version of this form
//! 12 bytes  nonce of AES-256-GCM
//! 48 bytes  the wrapped key, with its tag; the context is the associated data
//! ```
//!
//! The version of the secret stands in the name of the key. It is a hint: with another version the
//! tag does not fit.

use pgseal_crypto::{Gcm, NONCE_LEN, TAG_LEN};
use pgseal_plugin::{Failure, Fault, Secret, WrappedKey, configuration, random};
use zeroize::Zeroizing;

use crate::http::Path;
use crate::kv::{self, Read};
use crate::session::Session;
use crate::transit;
use crate::uri::Stored;

const VERSION: u8 = 1;
/// The associated data, before the context.
const LABEL: &[u8] = b"pgseal/vault-kv/v1";

/// The engine and the key for people.
pub(crate) fn describe(
    session: &Session,
    place: &Stored,
) -> Result<(String, String), Failure<'static>> {
    let read = read(session, place, None)?;
    key(&read, place)?;
    Ok((
        format!("KV version 2 {}", place.mount),
        format!(
            "{}; WARNING: this key leaves the store; a key of the transit engine does not",
            name(place, read.version)
        ),
    ))
}

/// Wraps a key under the latest version of the secret.
pub(crate) fn wrap(
    session: &Session,
    place: &Stored,
    context: &[u8; 16],
    secret: &Secret,
) -> Result<WrappedKey, Failure<'static>> {
    let read = read(session, place, None)?;
    let key = key(&read, place)?;
    let mut nonce = [0; NONCE_LEN];
    random(&mut nonce)?;
    let mut text = Zeroizing::new(*secret.expose());
    let tag = cipher(&key)?
        .seal(&mut nonce, &aad(context), &mut *text)
        .map_err(|_| configuration("AES-GCM fails"))?;
    let wrapped = [&[VERSION][..], &nonce, &*text, &tag].concat();
    Ok(WrappedKey { wrapped, key: name(place, read.version) })
}

/// Unwraps a key under the version of the secret that `hint` names.
pub(crate) fn unwrap(
    session: &Session,
    place: &Stored,
    context: &[u8; 16],
    wrapped: &[u8],
    hint: &str,
) -> Result<Secret, Failure<'static>> {
    let wrong = |what: &str| Failure::new(Fault::Wrong, what);
    let parts = |wrapped| -> Option<(&[u8; NONCE_LEN], &[u8; 32], &[u8])> {
        let (nonce, sealed) = <[u8]>::strip_prefix(wrapped, &[VERSION])?.split_first_chunk()?;
        let (sealed, tag) = sealed.split_first_chunk()?;
        (tag.len() == TAG_LEN).then_some((nonce, sealed, tag))
    };
    let (nonce, sealed, tag) =
        parts(wrapped).ok_or_else(|| wrong("no key that this plugin wrapped"))?;
    let read = read(session, place, version(hint))?;
    let cipher = cipher(&key(&read, place)?)?;
    Secret::init_with(|out| {
        cipher.open_between(nonce, &aad(context), (sealed, tag), out).map_err(|_| {
            wrong(&format!(
                "{}: version {} of the secret does not open this, or not for this keyring",
                read.asked(),
                read.version
            ))
        })
    })
}

fn read(session: &Session, place: &Stored, version: Option<u32>) -> Result<Read, Failure<'static>> {
    let read = kv::read(session, Path::at(&place.mount).then("data").place(&place.path), version)?;
    if read.is_there {
        return Ok(read);
    }
    let which = match version {
        Some(version) => format!("version {version} of this secret is not there or was deleted"),
        None => "there is no such secret, or it was deleted".to_owned(),
    };
    Err(Failure::new(
        Fault::KeyGone,
        format!(
            "{}: {which}; bring it back (vault kv undelete), or correct secret= and mount= (of KV \
             version 2)",
            read.asked()
        ),
    ))
}

fn key(read: &Read, place: &Stored) -> Result<Secret, Failure<'static>> {
    read.field(&place.field).and_then(transit::secret).ok_or_else(|| {
        configuration(format!(
            "{}: the field {} is not there, or not a key of 32 bytes as Base64",
            read.asked(),
            place.field.escape_debug()
        ))
    })
}

fn cipher(key: &Secret) -> Result<Gcm, Failure<'static>> {
    Gcm::new(key.expose()).map_err(|_| configuration("AES-GCM takes no such key"))
}

fn aad(context: &[u8; 16]) -> Vec<u8> {
    [LABEL, context].concat()
}

/// The name of the key that [`version`] reads.
fn name(place: &Stored, version: u64) -> String {
    let field: String = place.field.chars().filter(|c| !c.is_control()).take(64).collect();
    format!("{}/{} field {field} version {version}", place.mount, place.path)
}

/// The version that the name of a key ends with.
fn version(name: &str) -> Option<u32> {
    name.rsplit_once(" version ").and_then(|(_, version)| version.parse().ok())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::place::Place;

    #[test]
    fn the_name_of_a_key_tells_its_version() {
        let place = Stored {
            mount: Place::parse("mount", "secret").unwrap(),
            path: Place::parse("secret", "a version 3").unwrap(),
            field: "key".to_owned(),
        };
        assert_eq!(version(&name(&place, 12)), Some(12));
        assert_eq!(version("secret/x"), None);
        assert_eq!(version("secret/x version y"), None);
    }
}
