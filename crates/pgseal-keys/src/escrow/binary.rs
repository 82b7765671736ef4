//! The binary form of an escrow copy (`spec/key-escrow.md`, section 2).

use pgseal_core::{DataKey, Generation, KeyringId, Suites};
use zeroize::Zeroizing;

use super::{EscrowCopy, EscrowGeneration, OpenedBy, Share};
use crate::argon::Argon2idParams;
use crate::body::MAX_GENERATIONS;
use crate::error::KeyError;
use crate::wrap;

const MAGIC: [u8; 8] = *b"PGSESCRW";
const VERSION: u16 = 1;
/// Bytes before the list of generations.
const FIXED_LEN: usize = 44;
/// Unencrypted bytes about one generation: number 4, time 8, fingerprint 8.
const GENERATION_LEN: usize = 20;
const SHARE_LEN: usize = 33;
const CHECKSUM_LEN: usize = 4;

/// Offset of the byte that says what opens the copy.
pub(super) const KIND_AT: usize = 10;
const KIND_PASSPHRASE: u8 = 1;
pub(super) const KIND_SHARES: u8 = 2;
const KIND_KEY: u8 = 3;

/// Number of leading bytes that determine the length of the whole copy.
pub(super) const PREFIX_LEN: usize = 14;

/// The length of a whole copy, computed from its first [`PREFIX_LEN`] bytes.
pub(super) fn whole_len(prefix: &[u8]) -> Result<usize, Fault> {
    let mut rest = prefix;
    if take::<8>(&mut rest)? != MAGIC {
        return Err(Fault::Damaged("it does not start like one"));
    }
    let version = u16::from_le_bytes(take(&mut rest)?);
    if version > VERSION {
        return Err(Fault::TooNew(version));
    }
    if version != VERSION {
        return Err(Fault::Damaged("an unknown format version"));
    }
    let [kind, reserved] = take(&mut rest)?;
    if reserved != 0 {
        return Err(Fault::Damaged("a reserved byte in use"));
    }
    let (lock_len, share_len) = match kind {
        KIND_PASSPHRASE => (28, 0),
        KIND_SHARES => (2, SHARE_LEN),
        KIND_KEY => (8, 0),
        _ => return Err(Fault::Damaged("it is opened by something unknown")),
    };
    let count = usize::from(u16::from_le_bytes(take(&mut rest)?));
    if count == 0 || count > MAX_GENERATIONS {
        return Err(Fault::Damaged("the number of generations is out of range"));
    }
    let clear = FIXED_LEN + count * GENERATION_LEN + lock_len;
    Ok(clear + 12 + count * DataKey::LEN + 16 + share_len + CHECKSUM_LEN)
}

/// Why bytes are not an escrow copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A newer version of pgseal made the copy.
    TooNew(u16),
    /// The bytes are damaged, in this way.
    Damaged(&'static str),
}

impl Fault {
    pub(super) fn at(self, origin: &str) -> KeyError {
        let origin = origin.to_owned();
        match self {
            Fault::TooNew(version) => KeyError::EscrowTooNew { origin, version },
            Fault::Damaged(what) => KeyError::EscrowDamaged {
                origin,
                what: what.to_owned(),
                remedy: "take another print of it",
            },
        }
    }
}

impl EscrowCopy {
    /// All bytes before the nonce.
    pub(super) fn head_bytes(&self) -> Result<Vec<u8>, KeyError> {
        let broken = || KeyError::Internal("writing an escrow copy");
        let count = u16::try_from(self.generations.len()).map_err(|_| broken())?;
        let kind = match self.opened_by {
            OpenedBy::Passphrase(_) => KIND_PASSPHRASE,
            OpenedBy::Shares { .. } => KIND_SHARES,
            OpenedBy::Key(_) => KIND_KEY,
        };
        let mut head = Vec::with_capacity(FIXED_LEN + self.generations.len() * GENERATION_LEN + 28);
        head.extend_from_slice(&MAGIC);
        head.extend_from_slice(&VERSION.to_le_bytes());
        head.extend_from_slice(&[kind, 0]);
        head.extend_from_slice(&count.to_le_bytes());
        head.extend_from_slice(&self.suites.code().to_le_bytes());
        head.extend_from_slice(&self.keyring_id.0);
        head.extend_from_slice(&self.active.0.to_le_bytes());
        head.extend_from_slice(&seconds(&self.made).ok_or_else(broken)?.to_le_bytes());
        for entry in &self.generations {
            head.extend_from_slice(&entry.generation.0.to_le_bytes());
            head.extend_from_slice(&seconds(&entry.created).ok_or_else(broken)?.to_le_bytes());
            head.extend_from_slice(&entry.fingerprint);
        }
        match &self.opened_by {
            OpenedBy::Passphrase(params) => {
                for number in [params.memory_kib, params.passes, params.lanes] {
                    head.extend_from_slice(&number.to_le_bytes());
                }
                head.extend_from_slice(&params.salt);
            }
            OpenedBy::Shares { threshold, limit } => head.extend_from_slice(&[*threshold, *limit]),
            OpenedBy::Key(check) => head.extend_from_slice(check),
        }
        Ok(head)
    }

    /// All bytes but the share and the checksum. They are the same in all copies of one set.
    pub(super) fn common_bytes(&self) -> Result<Vec<u8>, KeyError> {
        Ok([&self.head_bytes()?[..], &self.nonce, &self.sealed, &self.tag].concat())
    }

    /// The whole binary form.
    ///
    /// # Errors
    /// [`KeyError::Internal`].
    pub fn to_bytes(&self) -> Result<Zeroizing<Vec<u8>>, KeyError> {
        let common = self.common_bytes()?;
        let mut bytes = Zeroizing::new(Vec::with_capacity(common.len() + SHARE_LEN + CHECKSUM_LEN));
        bytes.extend_from_slice(&common);
        if let Some(share) = &self.share {
            bytes.push(share.index);
            bytes.extend_from_slice(&*share.value);
        }
        let sum: [u8; CHECKSUM_LEN] = wrap::sha256_start(&[&bytes])?;
        bytes.extend_from_slice(&sum);
        Ok(bytes)
    }

    /// Parses the binary form. `origin` says in messages where the bytes were read.
    ///
    /// # Errors
    /// [`KeyError::EscrowDamaged`], [`KeyError::EscrowTooNew`].
    pub fn from_bytes(bytes: &[u8], origin: &str) -> Result<EscrowCopy, KeyError> {
        let fault = |fault: Fault| fault.at(origin);
        let cut_short = || fault(Fault::Damaged("it is cut short"));
        let prefix = bytes.get(..PREFIX_LEN).ok_or_else(cut_short)?;
        if bytes.len() != whole_len(prefix).map_err(fault)? {
            return Err(fault(Fault::Damaged("it has another length than it says")));
        }
        let (body, sum) = bytes.split_last_chunk::<CHECKSUM_LEN>().ok_or_else(cut_short)?;
        if *sum != wrap::sha256_start::<CHECKSUM_LEN>(&[body])? {
            return Err(fault(Fault::Damaged("its checksum does not hold")));
        }
        decode(body, origin).map_err(fault)
    }
}

fn decode(body: &[u8], origin: &str) -> Result<EscrowCopy, Fault> {
    let damaged = Fault::Damaged;
    let mut rest = body;
    let _: [u8; 10] = take(&mut rest)?;
    let [kind, _] = take(&mut rest)?;
    let count = usize::from(u16::from_le_bytes(take(&mut rest)?));
    let suites = Suites::from_code(u16::from_le_bytes(take(&mut rest)?));
    let suites = suites.ok_or(damaged("an unknown suite"))?;
    let keyring_id = KeyringId(take(&mut rest)?);
    let active = Generation(u32::from_le_bytes(take(&mut rest)?));
    let made = time(u64::from_le_bytes(take(&mut rest)?))?;
    let mut generations: Vec<EscrowGeneration> = Vec::with_capacity(count);
    for _ in 0..count {
        let number = u32::from_le_bytes(take(&mut rest)?);
        let above = generations.last().map_or(0, |last| last.generation.0);
        if number <= above || number == u32::MAX {
            return Err(damaged("generations out of order or range"));
        }
        let created = time(u64::from_le_bytes(take(&mut rest)?))?;
        let fingerprint = take(&mut rest)?;
        generations.push(EscrowGeneration { generation: Generation(number), created, fingerprint });
    }
    if !generations.iter().any(|entry| entry.generation == active) {
        return Err(damaged("the active generation is not in it"));
    }
    let opened_by = match kind {
        KIND_PASSPHRASE => {
            let mut number = || take(&mut rest).map(u32::from_le_bytes);
            let (memory_kib, passes, lanes) = (number()?, number()?, number()?);
            let salt = take(&mut rest)?;
            let params = Argon2idParams::stored(memory_kib, passes, lanes, salt);
            OpenedBy::Passphrase(params.map_err(Fault::Damaged)?)
        }
        KIND_SHARES => {
            let [threshold, limit] = take(&mut rest)?;
            if threshold < 2 || limit < threshold {
                return Err(damaged("the number of shares is out of range"));
            }
            OpenedBy::Shares { threshold, limit }
        }
        _ => OpenedBy::Key(take(&mut rest)?),
    };
    let nonce = take(&mut rest)?;
    let (sealed, after) = rest.split_at_checked(count * DataKey::LEN).ok_or(SHORT)?;
    rest = after;
    let tag = take(&mut rest)?;
    let share = match opened_by {
        OpenedBy::Shares { limit, .. } => {
            let [index] = take(&mut rest)?;
            if index == 0 || index > limit {
                return Err(damaged("the number of its share is out of range"));
            }
            Some(Share { index, value: Zeroizing::new(take(&mut rest)?) })
        }
        _ => None,
    };
    Ok(EscrowCopy {
        keyring_id,
        suites,
        active,
        made,
        generations,
        opened_by,
        nonce,
        sealed: sealed.to_vec(),
        tag,
        share,
        origin: origin.to_owned(),
    })
}

const SHORT: Fault = Fault::Damaged("it is cut short");

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Fault> {
    let (first, after) = rest.split_first_chunk::<N>().ok_or(SHORT)?;
    *rest = after;
    Ok(*first)
}

/// A time in the form that keyrings store, as seconds since 1970.
fn seconds(text: &str) -> Option<u64> {
    u64::try_from(text.parse::<jiff::Timestamp>().ok()?.as_second()).ok()
}

/// The reverse of [`seconds`], up to the year 9999.
fn time(seconds: u64) -> Result<String, Fault> {
    i64::try_from(seconds)
        .ok()
        .and_then(|seconds| jiff::Timestamp::from_second(seconds).ok())
        .map(|time| time.to_string())
        .filter(|text| text.len() == "2026-01-31T23:59:59Z".len())
        .ok_or(Fault::Damaged("a time is out of range"))
}
