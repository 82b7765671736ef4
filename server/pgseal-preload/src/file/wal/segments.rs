//! Finds the newest flush record in the WAL segments of a stopped server: after a power cut it may
//! be newer than the control record, which is not synced with each commit.

use pgseal_core::{KeySet, Opened, SealedFile};
use pgseal_keys::control::Flushed;
use pgseal_pgdata::WalSegment;

use crate::file::storage::FdStorage;
use crate::os::sys;
use crate::place::datadir::{self, Root};

/// The position that the segments know, from that of the control record on; never an earlier one.
/// A segment without a record behind the segment before it ends the search: it is a recycled one.
pub fn newest(root: &Root, keys: &KeySet, known: Flushed, segment_bytes: u64) -> Flushed {
    let mut newest = known;
    if known.timeline == 0 {
        return newest;
    }
    let mut start = known.position - known.position % segment_bytes;
    loop {
        let found =
            record_of(root, keys, WalSegment::at(known.timeline, start, segment_bytes), known);
        match found {
            Some(position) if position.saturating_add(segment_bytes) >= start => {
                newest.position = newest.position.max(position);
            }
            _ => return newest,
        }
        match start.checked_add(segment_bytes) {
            Some(next) => start = next,
            None => return newest,
        }
    }
}

/// The newest position in the records of a segment.
fn record_of(root: &Root, keys: &KeySet, segment: WalSegment, known: Flushed) -> Option<u64> {
    let path = datadir::join(root.path(), format!("pg_wal/{segment}").as_bytes()).into_c().ok()?;
    let fd = sys::open_read(&path).ok()?;
    let storage = FdStorage::new(fd.0);
    // A file that does not open is reported when the server reads it.
    let Ok(Opened::Sealed(mut file)) = SealedFile::open(&storage, keys) else { return None };
    let record = file.newest_flush_record(&storage, Some(known.timeline)).ok()??;
    Some(record.position)
}
