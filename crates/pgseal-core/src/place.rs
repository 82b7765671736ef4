//! The place of a file: which file of the cluster a header is for (`spec/sealed-file.md`, section
//! 3.3).
//!
//! This crate stores and authenticates the text. `pgseal-pgdata` makes it from a path, and the
//! caller compares.

use core::fmt;

/// The place of a sealed file: a text of at most [`Place::MAX_LEN`] bytes that says which file of
/// the cluster the file is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Place {
    len: u8,
    bytes: [u8; Place::MAX_LEN],
}

impl Place {
    /// The most bytes of a place.
    pub const MAX_LEN: usize = 126;
    /// No particular place: a file that may have any name.
    pub const ANY: Place = Place { len: 0, bytes: [0; Place::MAX_LEN] };

    /// A place with this text, which must fit in [`Place::MAX_LEN`] bytes.
    #[must_use]
    pub const fn literal(text: &[u8]) -> Place {
        assert!(text.len() <= Place::MAX_LEN);
        let mut place = Place::ANY;
        while (place.len as usize) < text.len() {
            place.bytes[place.len as usize] = text[place.len as usize];
            place.len += 1;
        }
        place
    }

    /// A place with this text; `None` if it is too long.
    #[must_use]
    pub fn of(text: &[u8]) -> Option<Place> {
        Place::joined(&[text])
    }

    /// A place of these parts with slashes between; `None` if they are too long.
    #[must_use]
    pub fn joined(parts: &[&[u8]]) -> Option<Place> {
        let mut place = Place::ANY;
        for (index, part) in parts.iter().enumerate() {
            if index > 0 {
                place.push(b"/")?;
            }
            place.push(part)?;
        }
        Some(place)
    }

    fn push(&mut self, text: &[u8]) -> Option<()> {
        let start = usize::from(self.len);
        let end = start.checked_add(text.len())?;
        self.bytes.get_mut(start..end)?.copy_from_slice(text);
        self.len = u8::try_from(end).ok()?;
        Some(())
    }

    /// The text; empty for [`Place::ANY`].
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// Whether this is [`Place::ANY`].
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.len == 0
    }

    /// The field of the header: the length in two bytes, then the text, then zeros.
    pub(crate) fn encode(&self, field: &mut [u8]) {
        let (len, text) = field.split_at_mut(2);
        len.copy_from_slice(&u16::from(self.len).to_le_bytes());
        text.copy_from_slice(&self.bytes);
    }

    /// The place in a field of the header; `None` if [`Place::encode`] never writes such a field.
    pub(crate) fn decode(field: &[u8]) -> Option<Place> {
        let (len, text) = field.split_first_chunk::<2>()?;
        let len = usize::from(u16::from_le_bytes(*len));
        let (used, unused) = text.split_at_checked(len)?;
        if unused.iter().any(|byte| *byte != 0) {
            return None;
        }
        Place::of(used)
    }
}

impl fmt::Display for Place {
    /// The text, with every byte escaped that is not a printable ASCII character.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().escape_ascii().fmt(f)
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_has_one_form() {
        for text in [&b""[..], b"base/5/16384", &[b'x'; Place::MAX_LEN]] {
            let place = Place::of(text).unwrap();
            let mut field = [7; 2 + Place::MAX_LEN];
            place.encode(&mut field);
            assert_eq!(Place::decode(&field), Some(place));
            assert_eq!(place.as_bytes(), text);
            assert_eq!(place.is_any(), text.is_empty());
        }
        assert_eq!(Place::of(&[b'x'; Place::MAX_LEN + 1]), None);
        assert_eq!(Place::joined(&[b"base", b"5", b"16384"]), Place::of(b"base/5/16384"));
        assert_eq!(Place::joined(&[&[b'x'; Place::MAX_LEN], b""]), None, "a slash more");
        assert_eq!(Place::of(b"pg_wal/*"), Some(const { Place::literal(b"pg_wal/*") }));
        let mut field = [0; 2 + Place::MAX_LEN];
        field[0] = 127;
        assert_eq!(Place::decode(&field), None, "longer than the field");
        field[0] = 1;
        field[3] = b'x';
        assert_eq!(Place::decode(&field), None, "a byte behind the text");
    }

    #[test]
    fn a_place_shows_what_it_holds_and_nothing_else() {
        assert_eq!(Place::of(b"base/5/1\n").unwrap().to_string(), "base/5/1\\n");
    }
}
