//! The anchor of one keyring, in an NV index.
//!
//! ```text
//! 1 byte     1, the version of this form
//! 16 bytes   the context: the keyring that it belongs to
//! 8 bytes    the sequence number, big endian
//! 2 bytes    length of the value, big endian, 1 to 256
//! 256 bytes  the value, then zeros
//! ```

use std::collections::BTreeSet;

use pgseal_plugin::{Anchor, Failure, Fault, MAX_ANCHOR_LEN, configuration};

use crate::attributes::{attributes, size};
use crate::nv::Index;
use crate::tools::{Error, Tools};

const VERSION: u8 = 1;
/// TPMs of PCs write at least 512 bytes with one command (`TPM_PT_NV_BUFFER_MAX`).
const RECORD_LEN: usize = 1 + 16 + 8 + 2 + MAX_ANCHOR_LEN;
/// The owner reads and writes it. `writeall`: the TPM takes whole records only, so that no record
/// is half an old one. `no_da`: a TPM that is locked because of other objects still gives it out.
/// It is not `orderly`: such an index may lose its content when the power fails.
const ATTRIBUTES: [&str; 4] = ["ownerread", "ownerwrite", "writeall", "no_da"];

/// What an index holds.
enum Found {
    /// The index is not defined.
    Undefined,
    /// Nothing was written yet.
    Empty,
    /// The record.
    Record(Vec<u8>),
}

/// Fails if the index is there and does not belong to pgseal.
pub(crate) fn expect_usable(tools: &Tools, index: Index) -> Result<(), Failure<'static>> {
    match look(tools, index)? {
        Found::Record(record) if parsed(&record).is_none() => Err(not_ours(index)),
        _ => Ok(()),
    }
}

/// The anchor of a keyring.
pub(crate) fn read(
    tools: &Tools,
    index: Index,
    context: &[u8; 16],
) -> Result<Option<Anchor>, Failure<'static>> {
    match look(tools, index)? {
        Found::Undefined | Found::Empty => Ok(None),
        Found::Record(record) => decoded(&record, context, index).map(Some),
    }
}

/// Replaces the anchor by one with a higher sequence number.
pub(crate) fn advance(
    tools: &Tools,
    index: Index,
    context: &[u8; 16],
    anchor: &Anchor,
) -> Result<(), Failure<'static>> {
    // The TPM does not compare and write in one command.
    let _lock = tools.lock()?;
    let found = look(tools, index)?;
    if let Found::Record(record) = &found {
        let stored = decoded(record, context, index)?;
        if stored.sequence >= anchor.sequence {
            return Err(Failure::new(
                Fault::Stale,
                format!("the stored anchor has the sequence number {}", stored.sequence),
            ));
        }
    }
    let record = encoded(context, anchor)?;
    let name = index.to_string();
    let with_owner = |more: &[&str]| {
        let more = more.iter().map(|text| (*text).to_owned());
        [tools.owner(), more.collect::<Vec<String>>()].concat()
    };
    if matches!(found, Found::Undefined) {
        let (size, attributes) = (RECORD_LEN.to_string(), ATTRIBUTES.join("|"));
        let define = with_owner(&["-Q", "-s", &size, "-a", &attributes, &name]);
        tools.run("tpm2_nvdefine", &define, b"").map_err(Error::failed)?;
    }
    let write = with_owner(&["-Q", "-i", "-", &name]);
    tools.run("tpm2_nvwrite", &write, &record).map_err(Error::failed).map(|_| ())
}

/// Looks at the index. One of another size, or with other attributes, is that of another program.
fn look(tools: &Tools, index: Index) -> Result<Found, Failure<'static>> {
    let list = tools.run("tpm2_getcap", &["handles-nv-index"], b"").map_err(Error::failed)?;
    if !index.is_in(&String::from_utf8_lossy(&list)) {
        return Ok(Found::Undefined);
    }
    let name = index.to_string();
    let public = tools.run("tpm2_nvreadpublic", &[&name], b"").map_err(Error::failed)?;
    let public = String::from_utf8_lossy(&public).into_owned();
    let mut have = attributes(&public);
    let is_written = have.remove("written");
    if size(&public) != Some(RECORD_LEN) || have != BTreeSet::from(ATTRIBUTES) {
        return Err(not_ours(index));
    }
    if !is_written {
        return Ok(Found::Empty);
    }
    let size = RECORD_LEN.to_string();
    let read = [tools.owner(), vec!["-s".to_owned(), size, name]].concat();
    let record = tools.run("tpm2_nvread", &read, b"").map_err(Error::failed)?;
    Ok(Found::Record(record.to_vec()))
}

fn encoded(context: &[u8; 16], anchor: &Anchor) -> Result<Vec<u8>, Failure<'static>> {
    let len = u16::try_from(anchor.value.len()).ok();
    let len = len.filter(|len| (1..=MAX_ANCHOR_LEN).contains(&usize::from(*len)));
    let len = len.ok_or_else(|| Failure::new(Fault::Request, "the anchor's length is wrong"))?;
    let head = [&[VERSION][..], context, &anchor.sequence.to_be_bytes(), &len.to_be_bytes()];
    let mut record = [&head.concat()[..], &anchor.value].concat();
    record.resize(RECORD_LEN, 0);
    Ok(record)
}

fn decoded(record: &[u8], context: &[u8; 16], index: Index) -> Result<Anchor, Failure<'static>> {
    match parsed(record) {
        Some((owner, anchor)) if owner == context => Ok(anchor),
        Some((owner, _)) => {
            let owner: String = owner.iter().map(|byte| format!("{byte:02x}")).collect();
            Err(configuration(format!(
                "the NV index {index} has the anchor of another keyring, {owner}; give another \
                 index, anchor=0x18..., or, if that cluster is gone, tpm2_nvundefine -C o {index}"
            )))
        }
        None => Err(not_ours(index)),
    }
}

/// The context of a record, and its anchor.
fn parsed(record: &[u8]) -> Option<(&[u8; 16], Anchor)> {
    let rest = match record {
        [VERSION, rest @ ..] if record.len() == RECORD_LEN => rest,
        _ => return None,
    };
    let (owner, rest) = rest.split_first_chunk::<16>()?;
    let (sequence, rest) = rest.split_first_chunk::<8>()?;
    let (len, rest) = rest.split_first_chunk::<2>()?;
    let (value, zeros) = rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))?;
    let is_whole = !value.is_empty() && zeros.iter().all(|byte| *byte == 0);
    let anchor = Anchor { sequence: u64::from_be_bytes(*sequence), value: value.to_vec() };
    is_whole.then_some((owner, anchor))
}

fn not_ours(index: Index) -> Failure<'static> {
    configuration(format!(
        "the NV index {index} is none of pgseal; give one that is free, anchor=0x18... \
         (tpm2_getcap handles-nv-index lists those in use)"
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn records_round_trip() {
        let index = Index::parse("0x1800016").unwrap();
        for (sequence, value) in [(0, vec![0]), (1, vec![1, 0]), (u64::MAX, vec![255; 256])] {
            let anchor = Anchor { sequence, value };
            let record = encoded(&[3; 16], &anchor).unwrap();
            assert_eq!(record.len(), 283);
            assert_eq!(decoded(&record, &[3; 16], index).unwrap(), anchor);
            let other = decoded(&record, &[4; 16], index).unwrap_err();
            assert!(other.message.contains("of another keyring, 0303"), "{}", other.message);
            assert!(other.message.contains("0x1800016"), "{}", other.message);
        }
        for len in [0, 257, 65_537] {
            let anchor = Anchor { sequence: 1, value: vec![1; len] };
            assert!(encoded(&[3; 16], &anchor).is_err(), "{len}");
        }
    }

    #[test]
    fn what_is_no_record_is_left_alone() {
        let index = Index::parse("0x1800016").unwrap();
        let whole = encoded(&[3; 16], &Anchor { sequence: 1, value: vec![1; 4] }).unwrap();
        let changed = |at: usize, byte: u8| {
            let mut record = whole.clone();
            *record.get_mut(at).unwrap() = byte;
            record
        };
        for bad in [
            vec![],
            vec![0; RECORD_LEN],
            vec![255; RECORD_LEN],
            changed(0, 2),
            changed(25, 1),
            changed(26, 0),
            changed(26, 3),
            changed(282, 1),
            [&whole[..], &[0]].concat(),
        ] {
            let failure = decoded(&bad, &[3; 16], index).unwrap_err();
            assert!(failure.message.contains("none of pgseal"), "{}", failure.message);
        }
    }
}
