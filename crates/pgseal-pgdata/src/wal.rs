//! Positions in the WAL: which segment a file name means, and how long segments are.

use crate::names::is_hex;

/// The shortest and the longest segments that PostgreSQL makes, in bytes (`initdb --wal-segsize`).
const SEGMENT_BYTES: core::ops::RangeInclusive<u64> = 1 << 20..=1 << 30;

/// A segment of the WAL, as its file name says (`XLogFileName`, `access/xlog_internal.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WalSegment {
    /// The timeline.
    pub timeline: u32,
    /// The middle part of the name: the position in units of 4 GiB.
    log: u32,
    /// The last part of the name: which segment within those 4 GiB.
    segment: u32,
}

impl WalSegment {
    /// The segment of a file name of 24 hexadecimal digits; `None` for every other name, also that
    /// of a segment under a temporary name.
    #[must_use]
    pub fn of_name(name: &[u8]) -> Option<WalSegment> {
        if !is_hex(name, 24) {
            return None;
        }
        let part = |at: usize| {
            let text = str::from_utf8(name.get(at..at + 8)?).ok()?;
            u32::from_str_radix(text, 16).ok()
        };
        Some(WalSegment { timeline: part(0)?, log: part(8)?, segment: part(16)? })
    }

    /// The segment in which a position lies.
    #[must_use]
    pub fn at(timeline: u32, position: u64, segment_bytes: u64) -> WalSegment {
        let log = (position >> 32) as u32;
        let segment = ((position & u64::from(u32::MAX)) / segment_bytes.max(1)) as u32;
        WalSegment { timeline, log, segment }
    }

    /// The position (`XLogRecPtr`) of the segment's first byte; `None` if no segment of this length
    /// has such a name.
    #[must_use]
    pub fn start(&self, segment_bytes: u64) -> Option<u64> {
        let within = u64::from(self.segment).checked_mul(segment_bytes)?;
        (within <= u64::from(u32::MAX)).then_some(u64::from(self.log) << 32 | within)
    }
}

impl core::fmt::Display for WalSegment {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:08X}{:08X}{:08X}", self.timeline, self.log, self.segment)
    }
}

/// A position in the WAL as PostgreSQL shows it: `X/Y`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WalPosition(pub u64);

impl WalPosition {
    /// Reads `X/Y`.
    #[must_use]
    pub fn parse(text: &str) -> Option<WalPosition> {
        let (high, low) = text.split_once('/')?;
        let part = |hex: &str| {
            let is_plain =
                (1..=8).contains(&hex.len()) && hex.bytes().all(|b| b.is_ascii_hexdigit());
            is_plain.then(|| u32::from_str_radix(hex, 16).ok()).flatten()
        };
        Some(WalPosition(u64::from(part(high)?) << 32 | u64::from(part(low)?)))
    }
}

impl core::fmt::Display for WalPosition {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 as u32)
    }
}

/// The length of WAL segments in bytes, from `global/pg_control` (`xlog_seg_size`,
/// `catalog/pg_control.h`). It stands behind a number that no version has elsewhere
/// (`FLOATFORMAT_VALUE`), so the fields before it may differ from version to version.
#[must_use]
pub fn wal_segment_bytes(control: &[u8]) -> Option<u64> {
    let format = 1_234_567.0_f64.to_le_bytes();
    let (words, _) = control.as_chunks::<8>();
    let at = words.iter().position(|word| *word == format)? * 8;
    // `blcksz`, `relseg_size` and `xlog_blcksz` stand between; 19 also has `slru_pages_per_segment`
    // there. None of the numbers in question is as large as the shortest segment.
    [20, 24].into_iter().find_map(|behind| {
        let field = control.get(at + behind..)?.first_chunk()?;
        let bytes = u64::from(u32::from_le_bytes(*field));
        (SEGMENT_BYTES.contains(&bytes) && bytes.is_power_of_two()).then_some(bytes)
    })
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::string::ToString as _;

    use super::*;

    #[test]
    fn a_name_is_a_position() {
        let of = |name: &str| WalSegment::of_name(name.as_bytes());
        let segment = of("0000000200000003000000A7").unwrap();
        assert_eq!((segment.timeline, segment.start(1 << 24)), (2, Some(0x3_A700_0000)));
        assert_eq!(segment, WalSegment::at(2, 0x3_A7FF_FFFF, 1 << 24));
        assert_eq!(segment.to_string(), "0000000200000003000000A7");
        assert_eq!(of("000000010000000000000100").unwrap().start(1 << 24), None);
        assert_eq!(of("000000010000000000000FFF").unwrap().start(1 << 20), Some(0xFFF0_0000));
        for name in ["xlogtemp.12", "RECOVERYXLOG", "00000001000000000000000G", "0000000100000000"]
        {
            assert_eq!(of(name), None, "{name}");
        }
    }

    #[test]
    fn positions_read_as_they_are_shown() {
        for (text, wanted) in [("0/0", 0), ("1/2A", 0x1_0000_002A), ("FFFFFFFF/FFFFFFFF", u64::MAX)]
        {
            assert_eq!(WalPosition::parse(text), Some(WalPosition(wanted)));
            assert_eq!(WalPosition(wanted).to_string(), text);
        }
        for text in ["", "1", "/", "1/", "+1/0", "100000000/0", "0/0/0", "0x1/0"] {
            assert_eq!(WalPosition::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_length_of_segments_is_found_behind_the_float() {
        let control = |shift: usize, bytes: u32| {
            let mut control = [0_u8; 512];
            control[200 + shift..208 + shift].copy_from_slice(&1_234_567.0_f64.to_le_bytes());
            control[220 + shift..224 + shift].copy_from_slice(&bytes.to_le_bytes());
            wal_segment_bytes(&control)
        };
        assert_eq!(control(0, 1 << 24), Some(1 << 24));
        assert_eq!(control(48, 1 << 30), Some(1 << 30));
        assert_eq!(control(4, 1 << 24), None);
        // As 19 has it: blcksz, relseg_size, slru_pages_per_segment, xlog_blcksz, xlog_seg_size.
        let mut of_19 = [0_u8; 512];
        of_19[216..224].copy_from_slice(&1_234_567.0_f64.to_le_bytes());
        let fields = [8192_u32, 131_072, 32, 8192, 1 << 24];
        for (field, value) in of_19[224..].chunks_mut(4).zip(fields) {
            field.copy_from_slice(&value.to_le_bytes());
        }
        assert_eq!(wal_segment_bytes(&of_19), Some(1 << 24));
        assert_eq!(control(0, 3 << 20), None);
        assert_eq!(control(0, 1 << 12), None);
        assert_eq!(wal_segment_bytes(&[]), None);
    }
}
