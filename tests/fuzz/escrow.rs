//! The body of the fuzz target for escrow copies: no input makes the parsers panic, and an accepted
//! copy is written back unchanged. Random bytes fail the checksum, so the inputs are also tried
//! with a valid checksum. `crates/pgseal-keys/tests/fuzz_smoke.rs` runs it on a stable toolchain.

use aws_lc_rs::digest::{SHA256, digest};
use pgseal_keys::Kek;
use pgseal_keys::escrow::{self, EscrowCopy, OpenedBy};

/// Parses any bytes as an escrow copy, in its binary form and in its text form.
pub fn escrow(data: &[u8]) {
    binary(data);
    if let Some(bytes) = with_checksum(data) {
        binary(&bytes);
    }
    if let Ok(text) = core::str::from_utf8(data)
        && let Ok(copies) = escrow::read_all(text, "fuzz")
    {
        open(&copies);
    }
}

/// A copy in the form of `spec/key-escrow.md`, section 2. The input gives pairs of place and value,
/// by which bytes are changed before the checksum is computed.
fn with_checksum(data: &[u8]) -> Option<Vec<u8>> {
    let ([kind, count], rest) = data.split_first_chunk()?;
    let (kind, count) = (1 + kind % 3, 1 + count % 4);
    let mut bytes = [&b"PGSESCRW\x01\x00"[..], &[kind, 0, count, 0, 1, 0], &[7; 16]].concat();
    bytes.extend_from_slice(&1_u32.to_le_bytes());
    bytes.extend_from_slice(&[0; 8]);
    for number in 1..=u32::from(count) {
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(&[0; 16]);
    }
    bytes.extend(match kind {
        1 => [65536_u32, 3, 1, 0, 0, 0, 0].into_iter().flat_map(u32::to_le_bytes).collect(),
        2 => vec![2, 3],
        _ => vec![0; 8],
    });
    bytes.resize(bytes.len() + 12 + 32 * usize::from(count) + 16, 0);
    if kind == 2 {
        bytes.push(1);
        bytes.resize(bytes.len() + 32, 0);
    }
    for change in rest.chunks_exact(2) {
        // The first bytes matter most, so half of all changes are made there.
        let place = usize::from(change[0]);
        let len = bytes.len();
        bytes[if place < 128 { 10 + place } else { 138 + (place - 128) * 2 } % len] = change[1];
    }
    let sum = digest(&SHA256, &bytes);
    bytes.extend_from_slice(&sum.as_ref()[..4]);
    Some(bytes)
}

fn binary(data: &[u8]) {
    let Ok(copy) = EscrowCopy::from_bytes(data, "fuzz") else { return };
    assert_eq!(copy.to_bytes().expect("it was read").as_slice(), data);
    let text = copy.to_text().expect("what was read can be written");
    let again = escrow::read_all(&text, "fuzz").expect("what was written can be read");
    assert_eq!(again[0].to_bytes().expect("again").as_slice(), data);
    assert_eq!(again[0].summary(), copy.summary());
    // Change one character of the printed copy: the reader accepts the same copy, or reports an
    // error.
    let at = usize::from(data[44]) * 7 % text.len();
    if text.as_bytes()[at].is_ascii_alphanumeric() {
        let typed =
            format!("{}{}{}", &text[..at], char::from(b'0' + data[45] % 10), &text[at + 1..]);
        if let Ok(typed) = escrow::read_all(&typed, "fuzz") {
            let typed = typed[0].to_bytes().expect("it was read");
            assert_eq!(typed.as_slice(), data, "a slip of the pen at {at} was not noticed");
        }
    }
    // A second share of the same set.
    let mut other = data.to_vec();
    let end = other.len() - 4;
    other[end - 33] ^= 3;
    let sum = digest(&SHA256, &other[..end]);
    other[end..].copy_from_slice(&sum.as_ref()[..4]);
    let other = EscrowCopy::from_bytes(&other, "fuzz");
    open(&[Some(copy), other.ok()].into_iter().flatten().collect::<Vec<_>>());
}

/// Opening must fail, because nobody sealed these keys.
fn open(copies: &[EscrowCopy]) {
    let kek = Kek::from_text(&[b'7'; 64], "fuzz").expect("64 hexadecimal digits");
    for copy in copies {
        let opened = match copy.opened_by() {
            OpenedBy::Shares { .. } => escrow::open_shares(copies),
            _ => escrow::open(copy, &kek),
        };
        assert!(opened.is_err(), "keys that nobody sealed");
    }
}
