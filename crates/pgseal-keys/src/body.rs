//! The keyring file as text: a JSON body and its MAC line, parsed strictly.
//!
//! `spec/key-hierarchy.md`, section 3.

use std::path::Path;

use data_encoding::HEXLOWER;
use pgseal_core::{KeyringId, Suite, Suites};
use serde::{Deserialize, Serialize};

use crate::argon::Argon2idParams;
use crate::error::KeyError;
use crate::hex;
use crate::slot::{MAX_RECIPIENTS, Recipient, Slot, is_name};
use crate::wrap::Wrapped;
use crate::wrapped_kek::WrappedKek;

pub(crate) const FORMAT: &str = "pgseal-keyring";
pub(crate) const VERSION: u64 = 1;
const MAC_PREFIX: &str = "mac: ";
/// The prefix, 64 hexadecimal digits and a newline.
const MAC_LINE_LEN: usize = MAC_PREFIX.len() + 64 + 1;
/// The longest keyring file, in bytes.
pub const MAX_KEYRING_LEN: usize = 1 << 20;

/// The most generations that a keyring holds.
pub const MAX_GENERATIONS: usize = crate::handover::MAX_KEYS;

/// Whether a data key is used for new files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GenerationState {
    /// New files are sealed with this key. Exactly one generation is active.
    Active,
    /// The key is kept for the files that were sealed with it.
    Retired,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GenerationEntry {
    pub generation: u32,
    pub created: String,
    pub state: GenerationState,
    pub key: Wrapped,
}

/// The JSON body, field by field in the order in which it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Body {
    pub format: String,
    pub version: u64,
    #[serde(with = "hex")]
    pub keyring_id: [u8; 16],
    pub created: String,
    #[serde(with = "suite_name")]
    pub suite: Suite,
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "suite_names")]
    pub older_suites: Vec<Suite>,
    pub provider: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passphrase: Option<Argon2idParams>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wrapped_kek: Option<WrappedKek>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_lock: Option<u64>,
    #[serde(with = "hex")]
    pub key_check: [u8; 8],
    pub keyring_key: Wrapped,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recipients: Vec<Recipient>,
    pub generations: Vec<GenerationEntry>,
}

/// The two fields that every version of the format has.
#[derive(Deserialize)]
struct Preamble {
    format: String,
    version: u64,
}

impl Body {
    pub(crate) fn id(&self) -> KeyringId {
        KeyringId(self.keyring_id)
    }

    /// The suites that relation files may have.
    pub(crate) fn suites(&self) -> Suites {
        self.older_suites.iter().fold(Suites::from(self.suite), |all, suite| all.with_older(*suite))
    }

    /// Sets the suites that relation files may have.
    pub(crate) fn set_suites(&mut self, suites: Suites) {
        self.suite = suites.newest();
        self.older_suites = suites.older().collect();
    }

    /// The keyring's own slot, and those of its recipients, in their order.
    pub(crate) fn slots(&self) -> impl Iterator<Item = Slot<'_>> {
        let own = Slot {
            name: None,
            provider: &self.provider,
            passphrase: self.passphrase.as_ref(),
            wrapped_kek: self.wrapped_kek.as_ref(),
            key_check: &self.key_check,
            keyring_key: &self.keyring_key,
        };
        let others = self.recipients.iter().map(|recipient| Slot {
            name: Some(&recipient.name),
            provider: &recipient.provider,
            passphrase: recipient.passphrase.as_ref(),
            wrapped_kek: recipient.wrapped_kek.as_ref(),
            key_check: &recipient.key_check,
            keyring_key: &recipient.keyring_key,
        });
        core::iter::once(own).chain(others)
    }

    /// Checks all slots, and the names of recipients.
    pub(crate) fn check_slots(&self) -> Result<(), &'static str> {
        self.slots().try_for_each(|slot| slot.check())?;
        if self.recipients.len() > MAX_RECIPIENTS {
            return Err("too many recipients");
        }
        for (at, recipient) in self.recipients.iter().enumerate() {
            if !is_name(&recipient.name) {
                return Err("a recipient without a proper name");
            }
            if self.recipients.iter().take(at).any(|other| other.name == recipient.name) {
                return Err("two recipients of one name");
            }
        }
        if self.slots().filter(|slot| slot.provider.starts_with("env:")).count() > 1 {
            return Err("two keys in environment variables");
        }
        Ok(())
    }

    /// The exact bytes that the MAC covers: pretty JSON and a newline.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, KeyError> {
        let mut bytes =
            serde_json::to_vec_pretty(self).map_err(|_| KeyError::Internal("writing JSON"))?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    pub(crate) fn check(&self) -> Result<(), &'static str> {
        self.check_slots()?;
        let generations = self.generations.iter().map(|entry| &entry.created);
        let recipients = self.recipients.iter().map(|recipient| &recipient.created);
        if !generations.chain(recipients).chain([&self.created]).all(|time| is_time(time)) {
            return Err("a time is not RFC 3339 in UTC");
        }
        if !self.suites().older().eq(self.older_suites.iter().copied()) {
            return Err("older suites out of order, or with the suite among them");
        }
        if self.config_lock == Some(0) {
            return Err("a configuration lock without a number");
        }
        if self.generations.len() > MAX_GENERATIONS {
            return Err("too many generations");
        }
        let mut last = 0;
        for entry in &self.generations {
            if entry.generation <= last || entry.generation == u32::MAX {
                return Err("generations out of order or range");
            }
            last = entry.generation;
        }
        let active =
            self.generations.iter().filter(|entry| entry.state == GenerationState::Active).count();
        if active != 1 {
            return Err("not exactly one active generation");
        }
        Ok(())
    }
}

/// A parsed file: the body, its exact bytes, and the MAC, which nobody has checked yet.
pub(crate) struct ParsedFile {
    pub body: Body,
    pub body_bytes: Vec<u8>,
    pub mac: [u8; 32],
}

/// Parses a keyring file. Nothing is authenticated here, because that needs the key.
pub(crate) fn parse(bytes: &[u8], path: &Path) -> Result<ParsedFile, KeyError> {
    let damaged = |what: &str| KeyError::damaged(path, what);
    if bytes.is_empty() {
        return Err(damaged("the file is empty"));
    }
    if bytes.len() > MAX_KEYRING_LEN {
        return Err(damaged("the file is longer than 1 MiB"));
    }
    let (body_bytes, mac_line) = bytes
        .len()
        .checked_sub(MAC_LINE_LEN)
        .and_then(|at| bytes.split_at_checked(at))
        .ok_or_else(|| damaged("the file is cut short"))?;
    let mac_hex = mac_line
        .strip_prefix(MAC_PREFIX.as_bytes())
        .and_then(|rest| rest.strip_suffix(b"\n"))
        .ok_or_else(|| damaged("the last line is not a whole MAC"))?;
    let mut mac = [0; 32];
    hex::decode(mac_hex, &mut mac).map_err(|()| damaged("the last line is not a whole MAC"))?;
    if body_bytes.last() != Some(&b'\n') {
        return Err(damaged("the MAC does not stand on a line of its own"));
    }
    // serde's messages quote the input. Nothing in it is secret, but it may be long garbage.
    let position = |err: serde_json::Error| {
        let what =
            format!("not the JSON of a keyring, line {} column {}", err.line(), err.column());
        KeyError::damaged(path, what)
    };
    let preamble: Preamble = serde_json::from_slice(body_bytes).map_err(position)?;
    if preamble.format != FORMAT {
        return Err(damaged("another format"));
    }
    if preamble.version > VERSION {
        return Err(KeyError::KeyringTooNew { path: path.to_owned(), version: preamble.version });
    }
    if preamble.version != VERSION {
        return Err(damaged("an unknown format version"));
    }
    let body: Body = serde_json::from_slice(body_bytes).map_err(position)?;
    body.check().map_err(damaged)?;
    Ok(ParsedFile { body, body_bytes: body_bytes.to_vec(), mac })
}

/// The reverse of [`parse`].
pub(crate) fn assemble(body_bytes: &[u8], mac: &[u8; 32]) -> Vec<u8> {
    let mac_hex = HEXLOWER.encode(mac);
    [body_bytes, MAC_PREFIX.as_bytes(), mac_hex.as_bytes(), b"\n"].concat()
}

/// The current time in whole seconds, in the form in which the keyring stores times.
///
/// # Errors
/// [`KeyError::Internal`] if the clock is beyond the year 9999.
pub fn now() -> Result<String, KeyError> {
    jiff::Timestamp::from_second(jiff::Timestamp::now().as_second())
        .map(|time| time.to_string())
        .map_err(|_| KeyError::Internal("the clock"))
}

/// The seconds since 1970 of a time in RFC 3339; `None` for any other text.
#[must_use]
pub fn seconds_of(time: &str) -> Option<i64> {
    time.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_second)
}

/// Whether the text is a time in the form that [`now`] writes.
fn is_time(text: &str) -> bool {
    text.parse::<jiff::Timestamp>().is_ok_and(|time| time.to_string() == text)
        && text.len() == "2026-01-31T23:59:59Z".len()
}

/// A suite as its full name. The short names of the command line are not accepted.
mod suite_name {
    use pgseal_core::Suite;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(suite: &Suite, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(suite.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Suite, D::Error> {
        let text = String::deserialize(from)?;
        named(&text)
    }

    pub(super) fn named<E: Error>(text: &str) -> Result<Suite, E> {
        let found = Suite::ALL.into_iter().find(|suite| suite.name() == text);
        found.ok_or_else(|| E::custom("an unknown suite"))
    }
}

/// A list of suites, each as its full name.
mod suite_names {
    use pgseal_core::Suite;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(all: &[Suite], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(all.iter().map(|suite| suite.name()))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Suite>, D::Error> {
        let names = Vec::<String>::deserialize(from)?;
        names.iter().map(|name| super::suite_name::named(name)).collect()
    }
}
