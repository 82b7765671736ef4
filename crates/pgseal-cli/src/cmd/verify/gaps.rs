//! Segments that are missing between the first and the last one of an archive of WAL: a recovery
//! cannot get past such a gap.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use pgseal_core::{SealedLen, geometry};
use pgseal_pgdata::WalSegment;

use crate::scan::{Entry, Seen};

/// Consecutive segments of one timeline that are missing.
#[derive(Debug, PartialEq, Eq)]
pub struct Gap {
    first: WalSegment,
    last: WalSegment,
    /// How many segments.
    pub count: u64,
}

impl Gap {
    /// The names, as in `000000010000000000000004 to 000000010000000000000006`.
    pub fn names(&self) -> String {
        if self.count == 1 {
            return self.first.to_string();
        }
        format!("{} to {}", self.first, self.last)
    }
}

/// The gaps among the WAL segments of these files, whose length tells how long segments are here.
pub fn find(entries: &[Entry]) -> Vec<Gap> {
    let mut bytes = 0;
    let mut segments = Vec::new();
    for entry in entries {
        let Some(name) = entry.rel.file_name().map(OsStr::as_bytes) else { continue };
        let name = name.strip_suffix(b".partial").unwrap_or(name);
        let Some(segment) = WalSegment::of_name(name) else { continue };
        if let Seen::Sealed(header) = &entry.seen {
            bytes = geometry::plain_len(header.layout, SealedLen(entry.len)).0.max(bytes);
        }
        segments.push(segment);
    }
    if bytes.is_power_of_two() { among(&segments, bytes) } else { Vec::new() }
}

fn among(segments: &[WalSegment], bytes: u64) -> Vec<Gap> {
    let number = |segment: &WalSegment| Some(segment.start(bytes)? / bytes);
    let present: BTreeSet<(u32, u64)> =
        segments.iter().filter_map(|segment| Some((segment.timeline, number(segment)?))).collect();
    let mut gaps = Vec::new();
    let mut before: Option<(u32, u64)> = None;
    // The last segment of all timelines so far. A timeline begins in a segment of an earlier one,
    // or with the segment behind it.
    let mut last = 0;
    for (timeline, number) in present {
        let expected = match before {
            Some((same, before)) if same == timeline => before + 1,
            Some(_) => number.min(last + 1),
            None => number,
        };
        if expected < number {
            let at = |number: u64| WalSegment::at(timeline, number * bytes, bytes);
            gaps.push(Gap { first: at(expected), last: at(number - 1), count: number - expected });
        }
        before = Some((timeline, number));
        last = last.max(number);
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: u64 = 16 << 20;

    fn gaps(names: &[(u32, u64)]) -> Vec<(String, u64)> {
        let segments: Vec<WalSegment> = names
            .iter()
            .map(|(timeline, number)| WalSegment::at(*timeline, number * BYTES, BYTES))
            .collect();
        among(&segments, BYTES).iter().map(|gap| (gap.names(), gap.count)).collect()
    }

    #[test]
    fn a_whole_archive_has_no_gap() {
        assert!(gaps(&[]).is_empty());
        assert!(gaps(&[(1, 5), (1, 6), (1, 7)]).is_empty());
        // Across a limit of 4 GiB, where the last part of the name begins anew.
        assert!(gaps(&[(1, 254), (1, 255), (1, 256)]).is_empty());
        // Timeline 2 branches from segment 6, and 3 from segment 5, where 1 had gone on.
        assert!(gaps(&[(1, 5), (1, 6), (2, 6), (2, 7), (3, 5), (3, 6)]).is_empty());
    }

    #[test]
    fn what_is_missing_is_named() {
        let one = ("000000010000000000000006".to_owned(), 1);
        assert_eq!(gaps(&[(1, 5), (1, 7)]), std::slice::from_ref(&one));
        let two = "000000010000000000000008 to 000000010000000000000009".to_owned();
        assert_eq!(gaps(&[(1, 7), (1, 5), (1, 10)]), [one, (two, 2)]);
        // Between two timelines.
        let between = ("000000020000000000000007".to_owned(), 1);
        assert_eq!(gaps(&[(1, 6), (2, 8)]), [between]);
    }
}
