//! The lines of the audit trail, and the chain that they are in a file (`spec/audit.md`).

use std::fmt;

use aws_lc_rs::{digest, hmac};
use data_encoding::HEXLOWER;
use pgseal_core::{Generation, KeySet, KeyringId};
use serde::{Deserialize, Serialize};

use crate::error::KeyError;
use crate::{labels, wrap};

/// The longest line, in bytes, without the newline.
pub const MAX_LINE: usize = 4096;

/// What the line before the first one counts as.
const NO_LINE: [u8; 32] = [0; 32];
/// What stands between the text that a MAC covers and the MAC.
const MAC_MEMBER: &str = ",\"mac\":\"";
const END: &str = "\"}";

/// One line, without the members of the chain. Every text is shortened to a limit, so that the line
/// has at most [`MAX_LINE`] bytes.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Entry {
    /// The version of the format.
    pub pgseal_audit: u32,
    /// When: RFC 3339, UTC.
    pub time: String,
    /// The name of the machine.
    pub host: String,
    /// The user who started the command, by name if the system's file of users has one.
    pub user: String,
    /// The number of this user.
    pub uid: u32,
    /// The number of the user who logged in, if the kernel knows it: `sudo` does not change it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub login_uid: Option<u32>,
    /// The process.
    pub pid: u32,
    /// The command of pgseal.
    pub command: String,
    /// The program that asked for the keys, if another one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// The cryptographic library, if it is a FIPS module.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module: Option<&'static str>,
    /// What was done with a key.
    pub event: String,
    /// How it ended.
    pub outcome: Outcome,
    /// The exit status of the command, if it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit: Option<u8>,
    /// The identity of the keyring.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The data directory, or the keyring if it lies in none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The key that was used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyName>,
    /// The key that the keyring got.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_key: Option<KeyName>,
    /// The generation of the active data key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u32>,
    /// More, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The message of the command, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// How the use of a key ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The key was fetched, and what follows is about to be done.
    Begun,
    /// It was done.
    #[default]
    Done,
    /// The key, its source or its store refused.
    Refused,
    /// Something else went wrong.
    Failed,
}

/// Which key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KeyName {
    /// The URI of its provider, without secrets.
    pub provider: String,
    /// Its name and version in its store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The recipient whose key it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recipient: Option<String>,
}

impl Entry {
    /// The line, as it goes to the system's log.
    ///
    /// # Errors
    /// [`KeyError::Internal`].
    pub fn line(&self) -> Result<String, KeyError> {
        let line = serde_json::to_string(&self.shortened());
        let line = line.map_err(|_| KeyError::Internal("JSON"))?;
        // `shortened` guarantees this.
        if line.len() > MAX_LINE { Err(KeyError::Internal("a long audit line")) } else { Ok(line) }
    }

    /// The line, as it goes into a file: behind the line `last`, with a MAC if there is a key.
    ///
    /// # Errors
    /// [`KeyError::Internal`].
    pub fn chained(&self, last: &Link, key: Option<&AuditKey>) -> Result<String, KeyError> {
        let mut line = self.line()?;
        // The line ends with "}".
        line.pop();
        let number = last.number.saturating_add(1);
        line += &format!(",\"seq\":{number},\"prev\":\"{}\"", HEXLOWER.encode(&last.digest));
        if let Some(key) = key {
            line += &format!(",\"mac_generation\":{}", key.generation.0);
            let mac = hmac::sign(&key.key, line.as_bytes());
            line += &format!("{MAC_MEMBER}{}{END}", HEXLOWER.encode(mac.as_ref()));
        } else {
            line.push('}');
        }
        if line.len() > MAX_LINE { Err(KeyError::Internal("a long audit line")) } else { Ok(line) }
    }

    fn shortened(&self) -> Entry {
        let some = |text: &Option<String>, len| text.as_ref().map(|text| cut(text, len));
        let key = |key: &Option<KeyName>| {
            key.as_ref().map(|key| KeyName {
                provider: cut(&key.provider, 300),
                name: some(&key.name, 128),
                recipient: some(&key.recipient, 64),
            })
        };
        Entry {
            pgseal_audit: 1,
            time: cut(&self.time, 40),
            host: cut(&self.host, 64),
            user: cut(&self.user, 64),
            command: cut(&self.command, 64),
            program: some(&self.program, 64),
            event: cut(&self.event, 32),
            cluster: some(&self.cluster, 32),
            path: some(&self.path, 512),
            key: key(&self.key),
            new_key: key(&self.new_key),
            detail: some(&self.detail, 256),
            error: some(&self.error, 600),
            ..self.clone()
        }
    }
}

/// The text, cut so that it takes at most `len` bytes in JSON; what was cut ends with "...".
fn cut(text: &str, len: usize) -> String {
    let cost = |c: char| match c {
        '"' | '\\' => 2,
        c if c < ' ' => 6,
        c => c.len_utf8(),
    };
    if text.chars().map(cost).sum::<usize>() <= len {
        return text.to_owned();
    }
    let mut room = len.saturating_sub(3);
    let fits = |c: &char| match room.checked_sub(cost(*c)) {
        Some(left) => {
            room = left;
            true
        }
        None => false,
    };
    text.chars().take_while(fits).collect::<String>() + "..."
}

/// The key of the MACs of one cluster: HMAC-SHA-256 under a key that HKDF derives from a data key.
pub struct AuditKey {
    key: hmac::Key,
    generation: Generation,
}

impl fmt::Debug for AuditKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AuditKey(generation {})", self.generation.0)
    }
}

impl AuditKey {
    /// The key of new lines: that of the active data key.
    ///
    /// # Errors
    /// [`KeyError::Internal`].
    pub fn active(keys: &KeySet) -> Result<AuditKey, KeyError> {
        let key = AuditKey::of(keys, keys.active())?;
        key.ok_or(KeyError::Internal("the active data key"))
    }

    /// The key of the lines of this generation; `None` if the keyring does not have that data key.
    fn of(keys: &KeySet, generation: Generation) -> Result<Option<AuditKey>, KeyError> {
        let Some(data_key) = keys.get(generation).filter(|_| !generation.is_ephemeral()) else {
            return Ok(None);
        };
        let key = wrap::derive(data_key.bytes(), keys.keyring_id, labels::KDF_AUDIT)?;
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key[..]);
        Ok(Some(AuditKey { key, generation }))
    }
}

/// What the next line of a file continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The number of the last line; 0 if there is none.
    pub number: u64,
    /// The SHA-256 of its bytes, without the newline.
    pub digest: [u8; 32],
}

impl Link {
    /// For the first line of a file.
    pub const START: Link = Link { number: 0, digest: NO_LINE };

    /// The last line of a file, which need not be a line of pgseal: then the numbers start again,
    /// which a check reports.
    #[must_use]
    pub fn to(line: &[u8]) -> Link {
        let number = parse(line).map_or(0, |parsed| parsed.seq);
        Link { number, digest: sha256(line) }
    }
}

fn sha256(line: &[u8]) -> [u8; 32] {
    let mut sum = NO_LINE;
    sum.copy_from_slice(digest::digest(&digest::SHA256, line).as_ref());
    sum
}

/// The time of a line; `None` if it is none of pgseal's.
#[must_use]
pub fn time_of(line: &[u8]) -> Option<String> {
    let time = parse(line)?.time;
    crate::seconds_of(&time).map(|_| time)
}

/// The members that a check looks at.
#[derive(Debug, Deserialize)]
struct Parsed {
    pgseal_audit: u32,
    time: String,
    seq: u64,
    prev: String,
    #[serde(default)]
    cluster: Option<String>,
    #[serde(default)]
    mac_generation: Option<u32>,
    #[serde(default)]
    mac: Option<String>,
}

fn parse(line: &[u8]) -> Option<Parsed> {
    let parsed: Parsed = serde_json::from_slice(line).ok()?;
    (line.len() <= MAX_LINE && parsed.pgseal_audit == 1).then_some(parsed)
}

/// Checks the chain of a file, line by line.
#[derive(Debug)]
pub struct Check<'a> {
    keys: Option<&'a KeySet>,
    last: Link,
    /// The number of lines.
    pub lines: u64,
    /// What is wrong: the line, counted from 1, and why.
    pub findings: Vec<(u64, &'static str)>,
    /// How many MACs are right.
    pub macs: u64,
    /// How many MACs could not be checked: of another cluster, or of a data key that the keyring
    /// does not have.
    pub unchecked_macs: u64,
    /// The last line whose MAC is right: what stands before it has not changed since.
    pub authentic_up_to: u64,
    /// The time in the first line.
    pub first: Option<String>,
    /// The time in the last line.
    pub latest: Option<String>,
}

impl<'a> Check<'a> {
    /// A check from the start of a file. With the data keys of a cluster, its MACs are checked.
    #[must_use]
    pub fn new(keys: Option<&'a KeySet>) -> Check<'a> {
        Check {
            keys,
            last: Link::START,
            lines: 0,
            findings: Vec::new(),
            macs: 0,
            unchecked_macs: 0,
            authentic_up_to: 0,
            first: None,
            latest: None,
        }
    }

    /// Takes the next line, without its newline. It may be longer than any line of pgseal.
    ///
    /// # Errors
    /// [`KeyError::Internal`].
    pub fn take(&mut self, line: &[u8]) -> Result<(), KeyError> {
        self.lines += 1;
        let Some(parsed) = parse(line) else {
            self.found("it is no line of pgseal");
            self.last = Link { number: self.last.number.saturating_add(1), digest: sha256(line) };
            return Ok(());
        };
        if parsed.seq != self.last.number.saturating_add(1) {
            self.found("its number is not the next one: lines are missing, or were moved");
        }
        if parsed.prev != HEXLOWER.encode(&self.last.digest) {
            self.found("it does not continue the line before it, which was changed or is another");
        }
        if let (Some(mac), Some(generation)) = (&parsed.mac, parsed.mac_generation) {
            match self.is_authentic(line, &parsed, mac, Generation(generation))? {
                None => self.unchecked_macs += 1,
                Some(false) => self.found("its MAC is wrong: it was changed, or made by others"),
                Some(true) => {
                    self.macs += 1;
                    self.authentic_up_to = self.lines;
                }
            }
        }
        self.first.get_or_insert_with(|| parsed.time.clone());
        self.latest = Some(parsed.time);
        self.last = Link { number: parsed.seq, digest: sha256(line) };
        Ok(())
    }

    fn found(&mut self, what: &'static str) {
        self.findings.push((self.lines, what));
    }

    /// `None` if there is no key for this MAC.
    fn is_authentic(
        &self,
        line: &[u8],
        parsed: &Parsed,
        mac: &str,
        generation: Generation,
    ) -> Result<Option<bool>, KeyError> {
        let is_own = |id: KeyringId| parsed.cluster.as_deref() == Some(id.to_string().as_str());
        let Some(keys) = self.keys.filter(|keys| is_own(keys.keyring_id)) else { return Ok(None) };
        let Some(key) = AuditKey::of(keys, generation)? else { return Ok(None) };
        let tail = format!("{MAC_MEMBER}{mac}{END}");
        let (Some(covered), Ok(mac)) =
            (line.strip_suffix(tail.as_bytes()), HEXLOWER.decode(mac.as_bytes()))
        else {
            return Ok(Some(false));
        };
        Ok(Some(hmac::verify(&key.key, covered, &mac).is_ok()))
    }
}

#[cfg(test)]
mod tests;
