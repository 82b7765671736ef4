//! Anchors: one secret of KV version 2 for each keyring. The engine writes over the version that
//! was read and over no other (check-and-set), so comparing and storing are one step.

use data_encoding::HEXLOWER;
use pgseal_plugin::{Anchor, Failure, Fault, MAX_ANCHOR_LEN, configuration};
use serde::Serialize;

use crate::http::Path;
use crate::kv::{self, Read};
use crate::session::Session;
use crate::uri::Anchors;

/// How often another writer may be faster.
const MAX_TRIES: u32 = 4;

/// The secret. Numbers are text, because JSON has no integers of 64 bits.
#[derive(Serialize)]
struct Data {
    sequence: String,
    value: String,
}

/// Fails if anchors cannot be read.
pub(crate) fn expect_there(session: &Session, anchors: &Anchors) -> Result<(), Failure<'static>> {
    read(session, anchors, &[0; 16]).map(|_| ())
}

/// The anchor of a keyring.
pub(crate) fn read(
    session: &Session,
    anchors: &Anchors,
    context: &[u8; 16],
) -> Result<Option<Anchor>, Failure<'static>> {
    stored(&kv::read(session, path(anchors, &HEXLOWER.encode(context)), None)?)
}

/// Replaces the anchor by one with a higher sequence number.
pub(crate) fn advance(
    session: &Session,
    anchors: &Anchors,
    context: &[u8; 16],
    anchor: &Anchor,
) -> Result<(), Failure<'static>> {
    let name = HEXLOWER.encode(context);
    let data =
        Data { sequence: anchor.sequence.to_string(), value: HEXLOWER.encode(&anchor.value) };
    for _ in 0..MAX_TRIES {
        let now = kv::read(session, path(anchors, &name), None)?;
        if let Some(stored) = stored(&now)?.filter(|stored| stored.sequence >= anchor.sequence) {
            return Err(Failure::new(
                Fault::Stale,
                format!("the stored anchor has the sequence number {}", stored.sequence),
            ));
        }
        if kv::write(session, &path(anchors, &name), now.version, &data)? {
            return Ok(());
        }
    }
    Err(Failure::new(Fault::Unavailable, "others write this anchor at the same time"))
}

fn path<'a>(anchors: &'a Anchors, name: &'a str) -> Path<'a> {
    Path::at(&anchors.mount).then("data").place(&anchors.path).then(name)
}

fn stored(read: &Read) -> Result<Option<Anchor>, Failure<'static>> {
    if !read.is_there {
        return Ok(None);
    }
    let sequence = read.field("sequence").and_then(|text| text.parse().ok());
    let value = read.field("value").and_then(|text| HEXLOWER.decode(text.as_bytes()).ok());
    match (sequence, value) {
        (Some(sequence), Some(value)) if (1..=MAX_ANCHOR_LEN).contains(&value.len()) => {
            Ok(Some(Anchor { sequence, value }))
        }
        _ => Err(configuration(format!("{}: this secret is no anchor of pgseal", read.asked()))),
    }
}
