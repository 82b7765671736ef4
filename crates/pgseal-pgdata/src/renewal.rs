//! What a sealed file without its header means: damage, or a file that PostgreSQL rebuilds anyway.
//!
//! After a power cut, a file that was not synced may have its length but zeros instead of its
//! bytes. PostgreSQL syncs what it needs. It rebuilds the other files from WAL or on demand, or
//! never reads them again, so a plain server does not mind these zeros.

use crate::class::{Class, Fork};

/// When a file whose header is zeros counts as never written. At any other time, such a header is
/// damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Renewal {
    /// Never: PostgreSQL syncs the file before it renames it into place or relies on it.
    Never,
    /// During recovery, because redo writes the file again. Afterwards such a header is damage;
    /// otherwise somebody could empty a table by overwriting its header with zeros.
    ByRedo,
    /// At any time. Until it is written, the file keeps its length and reads as zeros, which are a
    /// safe answer: these are maps of hints, and files that the server writes before it reads them.
    Zeros,
    /// At any time. Until it is written, the file keeps its length and reads as zeros, which
    /// PostgreSQL refuses: a relation map of zeros has no magic number. So a base backup can copy
    /// the map of a database whose creation a power cut interrupted, and a map that is needed
    /// still causes an error.
    RefusedZeros,
    /// At any time. Until it is written, the file is empty: the server removes or replaces such
    /// files at its start, or they are temporary files before a rename.
    Empty,
}

impl Renewal {
    /// Whether losing the content does no harm.
    #[must_use]
    pub const fn is_harmless(self) -> bool {
        matches!(self, Renewal::Zeros | Renewal::Empty)
    }
}

impl Class {
    /// When a file of this class counts as never written. Only the last two components of `path`
    /// matter.
    #[must_use]
    pub fn renewal(self, path: &[u8]) -> Renewal {
        let mut parts = path.rsplit(|byte| *byte == b'/');
        let (name, directory) = (parts.next().unwrap_or(path), parts.next().unwrap_or_default());
        match self {
            Class::Relation { fork: Fork::Fsm | Fork::Vm, .. } => Renewal::Zeros,
            Class::Relation { fork: Fork::Main | Fork::Init, .. } => Renewal::ByRedo,
            // PostgreSQL never syncs these (`SYNC_HANDLER_NONE`); each start zeroes or removes
            // them.
            Class::Slru if matches!(directory, b"pg_subtrans" | b"pg_notify" | b"pg_serial") => {
                Renewal::Zeros
            }
            Class::Slru => Renewal::ByRedo,
            // Written before its WAL record. Redo writes the file again; a file without a WAL
            // record is never read.
            Class::LogicalMapping => Renewal::Empty,
            Class::LogicalSpill
            | Class::ExportedSnapshot
            | Class::Statistics
            | Class::StatementTexts
            | Class::RelcacheInit => Renewal::Empty,
            Class::RelationMap
            | Class::ReplicationSlotState
            | Class::ReplicationOrigin
            | Class::LogicalSnapshot
            | Class::WalSummary
                if has_temporary_name(name) =>
            {
                Renewal::Empty
            }
            Class::RelationMap => Renewal::RefusedZeros,
            Class::Unknown => Renewal::ByRedo,
            _ => Renewal::Never,
        }
    }

    /// Whether any damage in such a file is harmless, because PostgreSQL accepts zeros in its
    /// place, removes the file, or rewrites it before reading it. Statistics are not such files:
    /// losing them matters to users.
    #[must_use]
    pub fn is_rebuilt(self, path: &[u8]) -> bool {
        match self.renewal(path) {
            Renewal::Zeros => true,
            Renewal::Empty => matches!(self, Class::RelcacheInit) || has_temporary_name(path),
            Renewal::ByRedo | Renewal::RefusedZeros | Renewal::Never => false,
        }
    }

    /// Whether opening a damaged file succeeds and only reading and writing it fail. PostgreSQL
    /// drops, truncates, replaces or syncs files of most classes without reading them, and some of
    /// these calls accept no error of `open` but `ENOENT`. Opening fails for WAL: a failed read
    /// means the end of WAL to recovery, which would stop there without an error. It also fails for
    /// files that are not PostgreSQL's.
    #[must_use]
    pub const fn opens_damaged(self) -> bool {
        !matches!(self, Class::Wal | Class::Unknown)
    }
}

/// Whether this is the temporary name of a file that PostgreSQL has not renamed into place yet:
/// `state.tmp`, `pg_filenode.map.tmp`, `0-1565AC8.snap.4711.tmp`, `temp.summary`.
fn has_temporary_name(path: &[u8]) -> bool {
    path.ends_with(b".tmp") || path.ends_with(b"/temp.summary") || path == b"temp.summary"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classify;

    #[test]
    fn each_class_has_its_renewal() {
        for (path, renewal) in [
            ("base/5/16384", Renewal::ByRedo),
            ("base/5/16384_init", Renewal::ByRedo),
            ("base/5/16384_vm", Renewal::Zeros),
            ("pg_tblspc/16400/PG_15_202209061/5/16384_fsm.1", Renewal::Zeros),
            ("pg_subtrans/0001", Renewal::Zeros),
            ("pg_notify/0000", Renewal::Zeros),
            ("pg_xact/0000", Renewal::ByRedo),
            ("pg_multixact/members/0000", Renewal::ByRedo),
            ("pg_wal/000000010000000000000001", Renewal::Never),
            ("pg_twophase/000002E1", Renewal::Never),
            ("base/5/pg_filenode.map", Renewal::RefusedZeros),
            ("base/5/pg_filenode.map.tmp", Renewal::Empty),
            ("base/5/pg_internal.init", Renewal::Empty),
            ("base/5/pg_internal.init.4711", Renewal::Empty),
            ("pg_stat/pgstat.tmp", Renewal::Empty),
            ("pg_replslot/standby1/state", Renewal::Never),
            ("pg_replslot/standby1/state.tmp", Renewal::Empty),
            ("pg_logical/snapshots/0-1565AC8.snap", Renewal::Never),
            ("pg_logical/snapshots/0-1565AC8.snap.4711.tmp", Renewal::Empty),
            ("pg_logical/mappings/map-5-4eb-0_1565AC8-2e7-2e7", Renewal::Empty),
            ("pg_logical/replorigin_checkpoint", Renewal::Never),
            ("pg_wal/summaries/temp.summary", Renewal::Empty),
            ("base/pgsql_tmp/pgsql_tmp4711.0", Renewal::Never),
            ("notes.txt", Renewal::ByRedo),
        ] {
            assert_eq!(classify(path.as_bytes()).renewal(path.as_bytes()), renewal, "{path}");
        }
    }

    #[test]
    fn files_in_which_damage_is_harmless() {
        for (path, is_rebuilt) in [
            ("base/5/16384", false),
            ("base/5/16384_vm", true),
            ("pg_subtrans/0001", true),
            ("pg_xact/0000", false),
            ("base/5/pg_filenode.map", false),
            ("pg_stat/pgstat.stat", false),
            ("pg_stat/pgstat.tmp", true),
            ("global/pg_internal.init", true),
            ("pg_wal/summaries/temp.summary", true),
            ("pg_logical/mappings/map-5-4eb-0_1565AC8-2e7-2e7", false),
        ] {
            let class = classify(path.as_bytes());
            assert_eq!(class.is_rebuilt(path.as_bytes()), is_rebuilt, "{path}");
        }
    }
}
