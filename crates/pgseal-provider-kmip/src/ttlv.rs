//! TTLV, the encoding of KMIP (KMIP 1.2, section 9.1): a tag of 3 bytes, a type of 1 byte, a length
//! of 4 bytes, a value, and zeros up to a multiple of 8 bytes.
//!
//! It is written here, because the crates for KMIP know neither Encrypt and Decrypt nor a version
//! above 1.2, allocate what a length field says, and leave copies of keys behind.

use zeroize::Zeroizing;

/// The tag of an item (KMIP 1.2, section 9.1.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag(pub u32);

/// Bytes of tag, type and length.
pub(crate) const HEADER_LEN: usize = 8;
/// How deep structures may lie in one another. Messages of KMIP have about 6 levels.
const MAX_DEPTH: usize = 16;

const STRUCTURE: u8 = 1;
const INTEGER: u8 = 2;
const ENUMERATION: u8 = 5;
const TEXT: u8 = 7;
const BYTES: u8 = 8;

/// Writes items. The buffer is wiped on drop and never grows: a reallocation would leave a copy
/// that is not wiped.
pub(crate) struct Writer(Zeroizing<Vec<u8>>);

impl Writer {
    /// The longest message that is written, in bytes.
    const CAPACITY: usize = 4096;

    /// An empty buffer.
    pub(crate) fn new() -> Writer {
        Writer(Zeroizing::new(Vec::with_capacity(Writer::CAPACITY)))
    }

    /// The bytes; `None` if they are too many, and the last ones were not written.
    pub(crate) fn finish(self) -> Option<Zeroizing<Vec<u8>>> {
        (self.0.len() < Writer::CAPACITY).then_some(self.0)
    }

    fn put(&mut self, bytes: &[u8]) {
        let room = Writer::CAPACITY.saturating_sub(self.0.len());
        self.0.extend_from_slice(bytes.get(..bytes.len().min(room)).unwrap_or_default());
    }

    fn item(&mut self, tag: Tag, kind: u8, value: &[u8]) {
        let [_, tag @ ..] = tag.0.to_be_bytes();
        self.put(&tag);
        self.put(&[kind]);
        self.put(&u32::try_from(value.len()).unwrap_or(u32::MAX).to_be_bytes());
        self.put(value);
        let padding = value.len().next_multiple_of(8).saturating_sub(value.len());
        self.put([0; 8].get(..padding).unwrap_or_default());
    }

    /// A structure of the items that `fill` writes.
    pub(crate) fn structure(&mut self, tag: Tag, fill: impl FnOnce(&mut Writer)) {
        let start = self.0.len();
        self.item(tag, STRUCTURE, &[]);
        fill(self);
        let len = self.0.len().saturating_sub(start + HEADER_LEN);
        let len = u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes();
        if let Some(place) = self.0.get_mut(start + 4..start + HEADER_LEN) {
            place.copy_from_slice(&len);
        }
    }

    /// An Integer.
    pub(crate) fn integer(&mut self, tag: Tag, value: i32) {
        self.item(tag, INTEGER, &value.to_be_bytes());
    }

    /// An Enumeration.
    pub(crate) fn enumeration(&mut self, tag: Tag, value: u32) {
        self.item(tag, ENUMERATION, &value.to_be_bytes());
    }

    /// A Text String.
    pub(crate) fn text(&mut self, tag: Tag, value: &str) {
        self.item(tag, TEXT, value.as_bytes());
    }

    /// A Byte String.
    pub(crate) fn bytes(&mut self, tag: Tag, value: &[u8]) {
        self.item(tag, BYTES, value);
    }
}

/// A value of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value<'a> {
    Structure(Items<'a>),
    Integer(i32),
    Enumeration(u32),
    Text(&'a str),
    Bytes(&'a [u8]),
    /// Of a type that this client needs nowhere.
    Other,
}

/// The items of a structure, whose form was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Items<'a>(&'a [u8]);

impl<'a> Items<'a> {
    /// The items of `bytes`, which hold nothing else; `None` if they are no TTLV.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Items<'a>> {
        check(bytes, MAX_DEPTH).then_some(Items(bytes))
    }

    fn all(self, tag: Tag) -> impl Iterator<Item = Value<'a>> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let (found, value, behind) = split(rest)?;
            rest = behind;
            Some((found, value))
        })
        .filter(move |(found, _)| *found == tag)
        .map(|(_, value)| value)
    }

    /// The structures of this tag.
    pub(crate) fn structures(self, tag: Tag) -> impl Iterator<Item = Items<'a>> {
        self.all(tag).filter_map(|value| match value {
            Value::Structure(items) => Some(items),
            _ => None,
        })
    }

    /// The first structure of this tag.
    pub(crate) fn structure(self, tag: Tag) -> Option<Items<'a>> {
        self.structures(tag).next()
    }

    /// The first Integer of this tag.
    pub(crate) fn integer(self, tag: Tag) -> Option<i32> {
        self.all(tag).find_map(|value| match value {
            Value::Integer(number) => Some(number),
            _ => None,
        })
    }

    /// The first Enumeration of this tag.
    pub(crate) fn enumeration(self, tag: Tag) -> Option<u32> {
        self.all(tag).find_map(|value| match value {
            Value::Enumeration(number) => Some(number),
            _ => None,
        })
    }

    /// The Text Strings of this tag.
    pub(crate) fn texts(self, tag: Tag) -> impl Iterator<Item = &'a str> {
        self.all(tag).filter_map(|value| match value {
            Value::Text(text) => Some(text),
            _ => None,
        })
    }

    /// The first Byte String of this tag.
    pub(crate) fn bytes(self, tag: Tag) -> Option<&'a [u8]> {
        self.all(tag).find_map(|value| match value {
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        })
    }
}

/// The tag and the length of the value of the item that begins with these bytes, if it is a
/// structure.
pub(crate) fn structure_header(header: [u8; HEADER_LEN]) -> Option<(Tag, usize)> {
    let [t0, t1, t2, kind, len @ ..] = header;
    let len = usize::try_from(u32::from_be_bytes(len)).ok()?;
    (kind == STRUCTURE).then_some((Tag(u32::from_be_bytes([0, t0, t1, t2])), len))
}

/// Whether the bytes are items, down to this depth.
fn check(mut bytes: &[u8], depth: usize) -> bool {
    while !bytes.is_empty() {
        let Some((_, value, behind)) = split(bytes) else { return false };
        bytes = behind;
        let is_good = match value {
            Value::Structure(items) => depth > 0 && check(items.0, depth - 1),
            _ => true,
        };
        if !is_good {
            return false;
        }
    }
    true
}

/// The first item, and the bytes behind it.
fn split(bytes: &[u8]) -> Option<(Tag, Value<'_>, &[u8])> {
    let (header, rest) = bytes.split_first_chunk::<HEADER_LEN>()?;
    let [t0, t1, t2, kind, len @ ..] = *header;
    let len = usize::try_from(u32::from_be_bytes(len)).ok()?;
    let value = rest.get(..len)?;
    let behind = rest.get(len.checked_next_multiple_of(8)?..)?;
    let number = || value.try_into().ok();
    let value = match kind {
        STRUCTURE => Value::Structure(Items(value)),
        INTEGER => Value::Integer(i32::from_be_bytes(number()?)),
        ENUMERATION => Value::Enumeration(u32::from_be_bytes(number()?)),
        TEXT => Value::Text(std::str::from_utf8(value).ok()?),
        BYTES => Value::Bytes(value),
        _ => Value::Other,
    };
    Some((Tag(u32::from_be_bytes([0, t0, t1, t2])), value, behind))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// The examples of the specification (KMIP 1.2, section 9.1.2).
    #[test]
    fn examples_of_the_specification() {
        let tag = Tag(0x42_0020);
        let mut writer = Writer::new();
        writer.integer(tag, 8);
        writer.enumeration(tag, 255);
        writer.text(tag, "Hello World");
        writer.bytes(tag, &[1, 2, 3]);
        writer.structure(tag, |writer| {
            writer.enumeration(Tag(0x42_0004), 254);
            writer.integer(Tag(0x42_0005), 255);
        });
        let wanted = "42002002000000040000000800000000\
                      420020050000000400 0000FF00000000\
                      420020070000000B48656C6C6F20576F726C640000000000\
                      42002008000000030102030000000000\
                      42002001000000204200040500000004000000FE00000000\
                      4200050200000004000000FF00000000"
            .replace(' ', "");
        let bytes = writer.finish().unwrap();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
        assert_eq!(hex, wanted);
        let items = Items::parse(&bytes).unwrap();
        assert_eq!(items.integer(tag), Some(8));
        assert_eq!(items.enumeration(tag), Some(255));
        assert_eq!(items.texts(tag).collect::<Vec<_>>(), ["Hello World"]);
        assert_eq!(items.bytes(tag), Some(&[1, 2, 3][..]));
        assert_eq!(items.structure(tag).unwrap().integer(Tag(0x42_0005)), Some(255));
        assert_eq!(items.integer(Tag(1)), None);
    }

    /// Whatever the bytes are, reading them ends, and what was cut is no TTLV.
    #[test]
    fn hostile_bytes() {
        let mut writer = Writer::new();
        writer.structure(Tag(1), |writer| {
            writer.bytes(Tag(2), b"abc");
            writer.structure(Tag(3), |writer| writer.text(Tag(4), "def"));
        });
        let good = writer.finish().unwrap();
        for len in 1..good.len() {
            assert!(Items::parse(good.get(..len).unwrap()).is_none(), "{len}");
        }
        for index in 0..good.len() {
            for bit in 0..8 {
                let mut changed = good.to_vec();
                *changed.get_mut(index).unwrap() ^= 1 << bit;
                if let Some(items) = Items::parse(&changed) {
                    let _ = items.structure(Tag(1)).and_then(|items| items.bytes(Tag(2)));
                }
            }
        }
        // A length that wraps around, and structures in structures without end.
        assert!(Items::parse(b"\x00\x00\x01\x08\xff\xff\xff\xffabcdefgh").is_none());
        let deep = |levels: usize| {
            let mut bytes = Vec::new();
            for level in (0..levels).rev() {
                let len = u32::try_from(level * HEADER_LEN).unwrap();
                bytes.extend_from_slice(b"\x00\x00\x01\x01");
                bytes.extend_from_slice(&len.to_be_bytes());
            }
            Items::parse(&bytes).is_some()
        };
        assert!(deep(MAX_DEPTH) && !deep(MAX_DEPTH + 2) && !deep(8000));
    }

    #[test]
    fn a_message_that_is_too_long_is_not_written() {
        let mut writer = Writer::new();
        writer.bytes(Tag(1), &[0; 5000]);
        assert!(writer.finish().is_none());
    }
}
