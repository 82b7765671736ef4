//! Of how many GiB of pages the tables know that the processes of a server share: what the server's
//! environment says (`docs/reference.md`).

/// The most that a variable may say.
pub const MAX_GB: u64 = 16384;
/// For how many GiB of pages a server remembers versions if `PGSEAL_WATCHED_GB` is not set, or not
/// a number that [`gb_of`] takes.
pub const WATCHED_GB: u64 = 16;

/// The GiB that the text of a variable asks for, rounded up to a power of two; 0: no table. `None`
/// if it is no number from 0 to [`MAX_GB`].
#[must_use]
pub fn gb_of(text: &[u8]) -> Option<u64> {
    let number: u64 = str::from_utf8(text).ok()?.parse().ok()?;
    match number {
        0 => Some(0),
        1..=MAX_GB => Some(number.next_power_of_two()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capacity_is_a_power_of_two_or_none() {
        for (text, gb) in [("0", 0), ("1", 1), ("3", 4), ("17", 32), ("16384", 16384)] {
            assert_eq!(gb_of(text.as_bytes()), Some(gb), "{text}");
        }
        for text in ["", "lots", "-1", "16385", "18446744073709551615", "99999999999999999999"] {
            assert_eq!(gb_of(text.as_bytes()), None, "{text}");
        }
    }
}
