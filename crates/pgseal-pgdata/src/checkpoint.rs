//! What the last checkpoint says about SLRU segments: which of their pages it made durable.

/// Pages of an SLRU segment (`SLRU_PAGES_PER_SEGMENT`, `src/include/access/slru.h`).
const SEGMENT_PAGES: u64 = 32;
/// Statuses in a page of `pg_xact` (`CLOG_XACTS_PER_PAGE`, `src/backend/access/transam/clog.c`).
const XACTS: u64 = 32_768;
/// Members in a page of `pg_multixact/members` (`MULTIXACT_MEMBERS_PER_PAGE`,
/// `src/backend/access/transam/multixact.c`).
const MEMBERS: u64 = 1636;
/// Numbers of transactions and multixacts, and up to 18 of members, wrap around here.
const WRAP: u64 = 1 << 32;

/// The counters of the last checkpoint or restart point, from `global/pg_control` (`CheckPoint`,
/// `src/include/catalog/pg_control.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The next transaction number, without its epoch.
    next_xid: u64,
    /// The next multixact number.
    next_multi: u64,
    /// The next position of a member of a multixact.
    next_member: u64,
    /// Positions of members have 64 bits (19 and later).
    wide_members: bool,
}

impl Checkpoint {
    /// Reads the counters. `None` if the bytes are too few to be a control file.
    #[must_use]
    pub fn read(control: &[u8]) -> Option<Checkpoint> {
        // `pg_control_version` is 1300 for 15 and 16, 1700 for 17, 1800 for 18, 1901 for the first
        // betas of 19, and 1905 for its release candidate, whose `logicalDecodingEnabled` moves
        // what follows.
        let version = u32_at(control, 8)?;
        let wide_members = version >= 1900;
        let at = if version >= 1905 { 72 } else { 64 };
        let next_member = match wide_members {
            true => u64::from_le_bytes(*control.get(at + 16..)?.first_chunk()?),
            false => u32_at(control, at + 16)?.into(),
        };
        Some(Checkpoint {
            next_xid: u32_at(control, at)?.into(),
            next_multi: u32_at(control, at + 12)?.into(),
            next_member,
            wide_members,
        })
    }

    /// Whether a page of a segment was on the disk when this checkpoint ended. PostgreSQL makes a
    /// page before it hands out the first number that lies in it, and a checkpoint takes the
    /// counters before it writes and syncs all pages. So the page of each number below the counter
    /// was synced, whatever happened since; a page behind may never have reached the disk.
    ///
    /// `directory` and `segment` are the path of the segment below the data directory. False for
    /// every other SLRU: `pg_commit_ts` has no pages for transactions before
    /// `track_commit_timestamp` was switched on, and the others are not synced.
    #[must_use]
    pub fn has_synced(&self, directory: &[u8], segment: &[u8], page_in_segment: u64) -> bool {
        let segment =
            str::from_utf8(segment).ok().and_then(|hex| u64::from_str_radix(hex, 16).ok());
        let Some(first) = segment.and_then(|segment| segment.checked_mul(SEGMENT_PAGES)) else {
            return false;
        };
        let Some(page) = first.checked_add(page_in_segment) else { return false };
        let (next, in_page, wrap) = match directory {
            b"pg_xact" => (self.next_xid, XACTS, Some(WRAP)),
            b"pg_multixact/offsets" => {
                (self.next_multi, if self.wide_members { 1024 } else { 2048 }, Some(WRAP))
            }
            b"pg_multixact/members" => {
                (self.next_member, MEMBERS, (!self.wide_members).then_some(WRAP))
            }
            _ => return false,
        };
        let Some(last) = next.checked_sub(1).map(|last| last / in_page) else { return false };
        match wrap {
            None => page <= last,
            Some(wrap) => {
                // As PostgreSQL compares transaction numbers: half of the circle is the past.
                let pages = wrap.div_ceil(in_page);
                page < pages && (last + pages - page) % pages < pages / 2
            }
        }
    }
}

/// Whether this content of `global/pg_control` says that a primary was shut down cleanly
/// (`DB_SHUTDOWNED`, `catalog/pg_control.h`).
#[must_use]
pub fn is_shut_down(control: &[u8]) -> bool {
    control.get(16..20) == Some(&1_u32.to_le_bytes())
}

/// Whether a transaction may have been running at the last checkpoint, and may have committed since
/// (`oldestActiveXid` and `nextXid` of `CheckPoint`; the former is 0 if the server was shut down).
/// True of another version than 15 to 19.
#[must_use]
pub fn was_running(control: &[u8], xid: u32) -> bool {
    let fields = || {
        let fields = Fields::of(control)?;
        Some((u32_at(control, fields.next_xid)?, u32_at(control, fields.oldest_active_xid)?))
    };
    match fields() {
        Some((_, 0)) => false,
        Some((next, oldest)) => xid.wrapping_sub(oldest) < next.wrapping_sub(oldest),
        None => true,
    }
}

fn u32_at(control: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*control.get(at..)?.first_chunk()?))
}

/// Where fields of `ControlFileData` are (`catalog/pg_control.h`).
struct Fields {
    next_xid: usize,
    oldest_active_xid: usize,
    data_checksum_version: usize,
}

impl Fields {
    /// By `pg_control_version`: 15 and 16, 17, 18; the release candidate of 19.
    fn of(control: &[u8]) -> Option<Fields> {
        let (next_xid, oldest_active_xid, data_checksum_version) = match u32_at(control, 8)? {
            1300 | 1700 | 1800 => (64, 120, 252),
            1905 => (72, 128, 264),
            _ => return None,
        };
        Some(Fields { next_xid, oldest_active_xid, data_checksum_version })
    }
}

/// Whether this content of `global/pg_control` is of a cluster with data checksums
/// (`data_checksum_version`, `catalog/pg_control.h`). `None` of another version than 15 to 19.
#[must_use]
pub fn has_checksums(control: &[u8]) -> Option<bool> {
    match u32_at(control, Fields::of(control)?.data_checksum_version)? {
        version @ 0..=1 => Some(version == 1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(version: u32, next_xid: u32, next_multi: u32, next_member: u64) -> [u8; 512] {
        let mut bytes = [0; 512];
        bytes[8..12].copy_from_slice(&version.to_le_bytes());
        let at = if version == 1905 { 72 } else { 64 };
        bytes[at..at + 4].copy_from_slice(&next_xid.to_le_bytes());
        bytes[at + 4..at + 8].copy_from_slice(&7_u32.to_le_bytes());
        bytes[at + 12..at + 16].copy_from_slice(&next_multi.to_le_bytes());
        bytes[at + 16..at + 24].copy_from_slice(&next_member.to_le_bytes());
        bytes
    }

    #[test]
    fn transactions_between_the_oldest_and_the_next_may_have_been_running() {
        for (version, at) in [(1300, 120), (1700, 120), (1800, 120), (1905, 128)] {
            let mut bytes = control(version, 5, 1, 0);
            assert!(!was_running(&bytes, 4), "shut down");
            for (oldest, running, not) in
                [(3_u32, [3, 4, 4], [2, 5, 6]), (u32::MAX, [u32::MAX, 3, 4], [5, 6, 7])]
            {
                bytes[at..at + 4].copy_from_slice(&oldest.to_le_bytes());
                assert!(running.iter().all(|xid| was_running(&bytes, *xid)), "{oldest}");
                assert!(!not.iter().any(|xid| was_running(&bytes, *xid)), "{oldest}");
            }
            assert!(was_running(&bytes[..100], 1));
        }
        assert!(was_running(&control(2000, 5, 1, 0), 1));
    }

    #[test]
    fn checksums_are_known_where_the_version_is() {
        for (version, at) in [(1300, 252), (1700, 252), (1800, 252), (1905, 264)] {
            let mut bytes = control(version, 3, 1, 0);
            assert_eq!(has_checksums(&bytes), Some(false));
            bytes[at] = 1;
            assert_eq!(has_checksums(&bytes), Some(true));
            bytes[at] = 2;
            assert_eq!(has_checksums(&bytes), None);
            assert_eq!(has_checksums(&bytes[..at + 2]), None);
        }
        assert_eq!(has_checksums(&control(1901, 3, 1, 0)), None);
    }

    #[test]
    fn pages_up_to_the_counter_were_synced() {
        let xids = |next: u32| Checkpoint::read(&control(1300, next, 1, 0)).unwrap();
        let xact = |next: u32, segment: &str, page| {
            xids(next).has_synced(b"pg_xact", segment.as_bytes(), page)
        };
        assert!(xact(3, "0000", 0) && !xact(3, "0000", 1));
        // Number 32768 is the first of page 1, which is made when that number is handed out.
        assert!(!xact(32_768, "0000", 1) && xact(32_769, "0000", 1));
        let next = 40 * 32_768 + 5;
        assert!(xact(next, "0000", 31) && xact(next, "0001", 8) && !xact(next, "0001", 9));
        // After the wrap, high numbers are the past and those before the counter's half the future.
        assert!(xact(100, "0FFF", 31) && xact(100, "0000", 0) && !xact(100, "0000", 5));
        for name in ["0FFF0", "x", "", "FFFFFFFFFFFFFFFF"] {
            assert!(!xact(100, name, 0), "{name}");
        }
    }

    #[test]
    fn members_have_32_bits_until_18_and_64_since_19() {
        let synced = |version, member: u64, segment: &str, page| {
            let control = control(version, 3, 5000, member);
            let checkpoint = Checkpoint::read(&control).unwrap();
            checkpoint.has_synced(b"pg_multixact/members", segment.as_bytes(), page)
        };
        for version in [1300, 1800, 1901, 1905] {
            assert!(!synced(version, 0, "0000", 0), "no member yet");
            assert!(synced(version, 1636, "0000", 0) && !synced(version, 1636, "0000", 1));
        }
        let far = 1636 * 32 * 0x2_0000;
        assert!(synced(1901, far + 1, "20000", 0) && !synced(1901, far + 1, "20000", 1));
        let offsets = |version, page| {
            let checkpoint = Checkpoint::read(&control(version, 3, 5000, 1)).unwrap();
            checkpoint.has_synced(b"pg_multixact/offsets", b"0000", page)
        };
        assert!(offsets(1800, 2) && !offsets(1800, 3));
        assert!(offsets(1901, 4) && !offsets(1901, 5));
    }

    #[test]
    fn other_directories_and_short_files_say_nothing() {
        let checkpoint = Checkpoint::read(&control(1300, 1000, 1000, 1000)).unwrap();
        for directory in [&b"pg_commit_ts"[..], b"pg_subtrans", b"pg_notify", b"pg_xact/x"] {
            assert!(!checkpoint.has_synced(directory, b"0000", 0));
        }
        assert_eq!(Checkpoint::read(&control(1300, 3, 1, 0)[..80]), None);
        assert_eq!(Checkpoint::read(&control(1901, 3, 1, 0)[..86]), None);
        assert_eq!(Checkpoint::read(&[]), None);
    }
}
