//! The transit engine: a key that never leaves the store wraps.
//!
//! The wrapped key is the ciphertext as the engine gives it, `vault:vN:BASE64`. The context of the
//! keyring is the associated data, and for keys that are derived also the context of the
//! derivation.

use std::collections::BTreeMap;

use data_encoding::BASE64;
use pgseal_plugin::{Failure, Fault, Secret, WrappedKey, configuration};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::failures::of_status;
use crate::http::Path;
use crate::place::Place;
use crate::reply::Reply;
use crate::session::Session;

/// The associated data, before the context.
const LABEL: &[u8] = b"pgseal/vault/v1";
/// Kinds of keys that take associated data, with keys of 256 bits.
const KINDS: [&str; 3] = ["aes256-gcm96", "chacha20-poly1305", "xchacha20-poly1305"];

/// Nonce, key and tag of AES-GCM and ChaCha20-Poly1305; with the longer nonce of XChaCha20.
const SEALED_LENS: [usize; 2] = [12 + 32 + 16, 24 + 32 + 16];

/// What the engine says of a key.
#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(borrow)]
    data: Key<'a>,
}

#[derive(Deserialize)]
struct Key<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    latest_version: u64,
    min_decryption_version: u64,
    #[serde(default)]
    exportable: bool,
    #[serde(default)]
    allow_plaintext_backup: bool,
    #[serde(default)]
    deletion_allowed: bool,
    // Each version, with its time.
    #[serde(default, borrow)]
    keys: BTreeMap<&'a str, IgnoredAny>,
}

/// A wrapped key in the form of the engine, checked. The engine itself takes the same bytes in
/// several spellings; only one of them is a wrapped key.
pub(crate) struct Ciphertext<'a>(&'a str);

impl<'a> Ciphertext<'a> {
    /// Checks the form.
    pub(crate) fn parse(wrapped: &'a [u8]) -> Result<Ciphertext<'a>, Failure<'static>> {
        let wrong = || Failure::new(Fault::Wrong, "this is no key that the transit engine wrapped");
        let text = std::str::from_utf8(wrapped).map_err(|_| wrong())?;
        let rest = text.strip_prefix("vault:v").ok_or_else(wrong)?;
        let (version, base64) = rest.split_once(':').ok_or_else(wrong)?;
        // The engine reads version 0 as 1.
        let number: u32 = version.parse().map_err(|_| wrong())?;
        let sealed = BASE64.decode(base64.as_bytes()).map_err(|_| wrong())?;
        let is_canonical = number > 0
            && number.to_string() == version
            && SEALED_LENS.contains(&sealed.len())
            && BASE64.encode(&sealed) == base64;
        if is_canonical { Ok(Ciphertext(text)) } else { Err(wrong()) }
    }

    fn version(&self) -> &str {
        self.0.split(':').nth(1).and_then(|version| version.strip_prefix('v')).unwrap_or_default()
    }
}

/// The engine and the key for people.
pub(crate) fn describe(
    session: &Session,
    mount: &Place,
    key: &Place,
) -> Result<(String, String), Failure<'static>> {
    let reply = look(session, mount, key)?;
    let found: Answer<'_> = reply.json()?;
    let found = found.data;
    expect_kind(&reply, found.kind)?;
    let mut shown = format!(
        "{key}, {}, latest version {}, opens from version {}",
        found.kind, found.latest_version, found.min_decryption_version
    );
    if found.exportable || found.allow_plaintext_backup {
        shown.push_str("; WARNING: the store would give this key out (exportable, or plaintext");
        shown.push_str(" backup); make another key");
    }
    if found.deletion_allowed {
        shown.push_str("; WARNING: this key can be deleted; set deletion_allowed=false");
    }
    // Older versions that were trimmed away are no part of the list.
    let oldest = found.keys.keys().filter_map(|version| version.parse::<u64>().ok()).min();
    if oldest.is_some_and(|oldest| oldest > found.min_decryption_version.max(1)) {
        shown.push_str("; versions before that were removed");
    }
    Ok((format!("transit engine {mount}"), shown))
}

/// Wraps a key.
pub(crate) fn wrap(
    session: &Session,
    mount: &Place,
    key: &Place,
    context: &[u8; 16],
    secret: &Secret,
) -> Result<WrappedKey, Failure<'static>> {
    // With a policy that may create keys, encrypting under a missing key would make one.
    let reply = look(session, mount, key)?;
    let found: Answer<'_> = reply.json()?;
    expect_kind(&reply, found.data.kind)?;

    #[derive(Serialize)]
    struct Body<'a> {
        plaintext: &'a str,
        associated_data: &'a str,
        context: &'a str,
    }
    #[derive(Deserialize)]
    struct Sealed<'a> {
        #[serde(borrow)]
        data: Data<'a>,
    }
    #[derive(Deserialize)]
    struct Data<'a> {
        ciphertext: &'a str,
    }
    let mut plaintext = Zeroizing::new([0; 44]);
    BASE64.encode_mut(secret.expose(), &mut *plaintext);
    let plaintext = std::str::from_utf8(&*plaintext).map_err(|_| configuration("base64"))?;
    let bound = bound(context);
    let body = Body { plaintext, associated_data: &bound, context: &bound };
    let path = Path::at(mount).then("encrypt").place(key);
    let reply = session.post(&path, &body)?;
    if !reply.is_ok() {
        return Err(not_wrapped(&reply));
    }
    let answer: Sealed<'_> = reply.json()?;
    let text = answer.data.ciphertext;
    let ciphertext = Ciphertext::parse(text.as_bytes()).map_err(|_| reply.not_understood())?;
    expect_bound(session, mount, key, context, &ciphertext)?;
    let name = format!("{mount}/{key} version {}", ciphertext.version());
    Ok(WrappedKey { wrapped: text.as_bytes().to_vec(), key: name })
}

/// Unwraps a key. It needs one right only, so that a start of the server does.
pub(crate) fn unwrap(
    session: &Session,
    mount: &Place,
    key: &Place,
    context: &[u8; 16],
    ciphertext: &Ciphertext<'_>,
) -> Result<Secret, Failure<'static>> {
    #[derive(Deserialize)]
    struct Answer<'a> {
        #[serde(borrow)]
        data: Data<'a>,
    }
    #[derive(Deserialize)]
    struct Data<'a> {
        plaintext: &'a str,
    }
    let reply = decrypt(session, mount, key, ciphertext, [context, context])?;
    if !reply.is_ok() {
        return Err(not_unwrapped(&reply, ciphertext.version()));
    }
    let answer: Answer<'_> = reply.json()?;
    secret(answer.data.plaintext)
        .ok_or_else(|| Failure::new(Fault::Wrong, "the wrapped key is not one of 32 bytes"))
}

/// Fails if the engine decrypts with other associated data than it encrypted with: before it knew
/// them, it ignored them.
fn expect_bound(
    session: &Session,
    mount: &Place,
    key: &Place,
    context: &[u8; 16],
    ciphertext: &Ciphertext<'_>,
) -> Result<(), Failure<'static>> {
    let other = context.map(|byte| !byte);
    let reply = decrypt(session, mount, key, ciphertext, [context, &other])?;
    match reply.status {
        400 => Ok(()),
        _ if reply.is_ok() => Err(configuration(format!(
            "{}: the store ignores associated data, so a copy would open for any keyring; Vault \
             knows them since 1.13",
            reply.asked
        ))),
        _ => Err(not_unwrapped(&reply, ciphertext.version())),
    }
}

/// Asks to decrypt, with the context of the derivation and that of the associated data.
fn decrypt(
    session: &Session,
    mount: &Place,
    key: &Place,
    ciphertext: &Ciphertext<'_>,
    [derived, associated]: [&[u8; 16]; 2],
) -> Result<Reply, Failure<'static>> {
    #[derive(Serialize)]
    struct Body<'a> {
        ciphertext: &'a str,
        associated_data: &'a str,
        context: &'a str,
    }
    let [derived, associated] = [derived, associated].map(bound);
    let body = Body { ciphertext: ciphertext.0, associated_data: &associated, context: &derived };
    session.post(&Path::at(mount).then("decrypt").place(key), &body)
}

/// A context as the engine gets it.
fn bound(context: &[u8; 16]) -> String {
    BASE64.encode(&[LABEL, context].concat())
}

/// A key of 32 bytes from Base64.
pub(crate) fn secret(base64: &str) -> Option<Secret> {
    // Decoding gives a multiple of 3 bytes before it cuts the padding.
    let mut bytes = Zeroizing::new([0; 33]);
    if BASE64.decode_len(base64.len()) != Ok(bytes.len()) {
        return None;
    }
    let len = BASE64.decode_mut(base64.as_bytes(), &mut *bytes).ok()?;
    let (key, _) = bytes.split_first_chunk::<32>().filter(|_| len == 32)?;
    Secret::init_with(|out| {
        out.copy_from_slice(key);
        Ok::<(), ()>(())
    })
    .ok()
}

fn look(session: &Session, mount: &Place, key: &Place) -> Result<Reply, Failure<'static>> {
    let reply = session.get(&Path::at(mount).then("keys").place(key))?;
    match reply.status {
        _ if reply.is_ok() => Ok(reply),
        _ if reply.is_missing() => Err(no_key(&reply)),
        _ => Err(of_status(&reply, "read")),
    }
}

fn no_key(reply: &Reply) -> Failure<'static> {
    Failure::new(
        Fault::KeyGone,
        format!(
            "{}: the transit engine has no key of this name; make one (vault write -f .../keys/\
             NAME), or correct key= and mount=",
            reply.asked
        ),
    )
}

fn expect_kind(reply: &Reply, kind: &str) -> Result<(), Failure<'static>> {
    match KINDS.contains(&kind) {
        true => Ok(()),
        false => Err(configuration(format!(
            "{}: the key is of the type {}; make one of the type aes256-gcm96",
            reply.asked,
            kind.escape_debug()
        ))),
    }
}

fn not_wrapped(reply: &Reply) -> Failure<'static> {
    let said = reply.errors();
    match reply.status {
        400 if said.contains("encryption key not found") => no_key(reply),
        400 => configuration(format!("{}: the engine does not wrap: {said}", reply.asked)),
        _ => of_status(reply, "update"),
    }
}

/// Whose fault it is that the engine does not unwrap: what no other reason explains is that of the
/// wrapped key.
fn not_unwrapped(reply: &Reply, version: &str) -> Failure<'static> {
    let said = reply.errors();
    match reply.status {
        400 if said.contains("encryption key not found") => no_key(reply),
        400 if said.contains("too old") || said.contains("disallowed by policy") => Failure::new(
            Fault::KeyGone,
            format!(
                "{}: version {version} of the key, which wrapped this, is not allowed any more \
                 ({said}); lower min_decryption_version of the key",
                reply.asked
            ),
        ),
        400 if said.contains("missing client token") => of_status(reply, "update"),
        400 => Failure::new(
            Fault::Wrong,
            format!("{}: the key does not open this, or not for this keyring: {said}", reply.asked),
        ),
        _ => of_status(reply, "update"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn only_one_spelling_of_a_ciphertext_is_taken() {
        let base64 = BASE64.encode(&[7; 60]);
        let good = format!("vault:v12:{base64}");
        assert_eq!(Ciphertext::parse(good.as_bytes()).unwrap().version(), "12");
        let long = BASE64.encode(&[7; 72]);
        assert!(Ciphertext::parse(format!("vault:v1:{long}").as_bytes()).is_ok());
        let short = BASE64.encode(&[7; 59]);
        let with_newline = format!("{}\n{}", &base64[..40], &base64[40..]);
        for bad in [
            base64.clone(),
            format!("vault:v0:{base64}"),
            format!("vault:v01:{base64}"),
            format!("vault:v+1:{base64}"),
            format!("vault:v99999999999:{base64}"),
            format!("vault:{base64}"),
            format!("Vault:v1:{base64}"),
            format!("vault:v1:{base64}\n"),
            format!("vault:v1:{base64}\0"),
            format!("vault:v1:{with_newline}"),
            format!("vault:v1:{short}"),
            format!("vault:v1:{}", short.replace('=', "")),
            String::new(),
        ] {
            assert!(Ciphertext::parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert!(Ciphertext::parse(&[b'v', 0xff]).is_err());
    }

    #[test]
    fn a_changed_bit_is_refused_or_changes_what_the_engine_gets() {
        let sealed: Vec<u8> = (0..60).map(|byte: u8| byte.wrapping_mul(37)).collect();
        let good = format!("vault:v12:{}", BASE64.encode(&sealed)).into_bytes();
        let meaning = |text: &str| {
            let (version, base64) = text.rsplit_once(':').unwrap();
            (version.to_owned(), BASE64.decode(base64.as_bytes()).unwrap())
        };
        let wanted = meaning(std::str::from_utf8(&good).unwrap());
        let mut taken = 0;
        for at in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[at / 8] ^= 1 << (at % 8);
            if let Ok(ciphertext) = Ciphertext::parse(&bad) {
                taken += 1;
                assert_ne!(meaning(ciphertext.0), wanted, "bit {at}");
            }
        }
        assert!(taken > 100, "{taken}");
    }

    #[test]
    fn an_answer_that_does_not_unwrap_has_its_fault() {
        let kind = |status, said: &str| {
            let body = format!("{{\"errors\":[\"{said}\"]}}");
            not_unwrapped(&Reply::for_test(status, "transit/decrypt/k", &body), "1").kind
        };
        assert_eq!(kind(400, "encryption key not found"), Fault::KeyGone);
        let old = "ciphertext or signature version is disallowed by policy (too old)";
        assert_eq!(kind(400, old), Fault::KeyGone);
        assert_eq!(kind(400, "cipher: message authentication failed"), Fault::Wrong);
        assert_eq!(kind(400, "missing client token"), Fault::Refused);
        assert_eq!(kind(403, "permission denied"), Fault::Refused);
        assert_eq!(kind(503, "Vault is sealed"), Fault::Unavailable);
    }

    #[test]
    fn a_key_has_32_bytes() {
        assert_eq!(secret(&BASE64.encode(&[9; 32])).unwrap().expose(), &[9; 32]);
        for len in [0, 16, 31, 33] {
            assert!(secret(&BASE64.encode(&vec![9; len])).is_none(), "{len}");
        }
        assert!(secret("not base64").is_none());
    }
}
