//! Who makes a file anew whose header is lost.
//!
//! After a power cut a file may have its length and not its bytes. PostgreSQL syncs what it cannot
//! do without; the rest it makes anew from WAL, or whenever it needs it, or never reads again. A
//! plain server then sees zeros, which mean nothing to it.

use crate::class::{Class, Fork};

/// When a file whose header is zeros counts as one that was never written. Everything else is damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Renewal {
    /// Never: it was synced before it got its name, or before PostgreSQL counted on it.
    Never,
    /// While the server recovers: redo makes it anew. Later such a header is damage, or somebody
    /// could turn a table into an empty one.
    ByRedo,
    /// At any time, and until it is written it reads as zeros, as long as it is: maps that are hints,
    /// and what the server writes before it reads it. Zeros are the safe answer.
    Zeros,
    /// At any time, and until it is written it is empty: what the server removes or replaces at its
    /// start, or files in the making.
    Empty,
}

impl Renewal {
    /// Whether nobody misses the content.
    #[must_use]
    pub const fn is_harmless(self) -> bool {
        matches!(self, Renewal::Zeros | Renewal::Empty)
    }
}

impl Class {
    /// Who makes a file of this class anew. Of `path` the last two components count.
    #[must_use]
    pub fn renewal(self, path: &[u8]) -> Renewal {
        let mut parts = path.rsplit(|byte| *byte == b'/');
        let (name, directory) = (parts.next().unwrap_or(path), parts.next().unwrap_or_default());
        match self {
            Class::Relation { fork: Fork::Fsm | Fork::Vm, .. } => Renewal::Zeros,
            Class::Relation { fork: Fork::Main | Fork::Init, .. } => Renewal::ByRedo,
            // Never synced (`SYNC_HANDLER_NONE`): their pages are zeroed or removed at each start.
            Class::Slru if matches!(directory, b"pg_subtrans" | b"pg_notify" | b"pg_serial") => {
                Renewal::Zeros
            }
            Class::Slru => Renewal::ByRedo,
            // Written before its WAL record; redo writes it again, and nobody reads what has none.
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
                if is_in_the_making(name) =>
            {
                Renewal::Empty
            }
            Class::Unknown => Renewal::ByRedo,
            _ => Renewal::Never,
        }
    }

    /// Whether a file of this class has no holes: PostgreSQL leaves no gaps in it that it would not
    /// write, and zeros there would mean something (`pg_xact`: in progress). Of `path` the last two
    /// components count.
    #[must_use]
    pub fn is_solid(self, path: &[u8]) -> bool {
        match self {
            Class::Slru => self.renewal(path) == Renewal::ByRedo,
            Class::RelationMap => true,
            _ => false,
        }
    }

    /// Whether damage of any sort in such a file costs nothing, now or later: PostgreSQL takes zeros for
    /// it, removes it, or writes it anew before it reads it. Not statistics, which somebody misses.
    #[must_use]
    pub fn is_rebuilt(self, path: &[u8]) -> bool {
        match self.renewal(path) {
            Renewal::Zeros => true,
            Renewal::Empty => matches!(self, Class::RelcacheInit) || is_in_the_making(path),
            Renewal::ByRedo | Renewal::Never => false,
        }
    }

    /// Whether a damaged file can be opened, and only reading and writing it fail. PostgreSQL drops,
    /// truncates, replaces or syncs files of most classes without reading them, and in some of these places
    /// takes no other error of an open than that there is no such file. Not WAL: its end is where a read
    /// fails, and recovery would end there in silence. Nor files that are not PostgreSQL's.
    #[must_use]
    pub const fn opens_damaged(self) -> bool {
        !matches!(self, Class::Wal | Class::Unknown)
    }
}

/// `state.tmp`, `pg_filenode.map.tmp`, `0-1565AC8.snap.4711.tmp`, `temp.summary`: what a rename has not
/// made valid yet.
fn is_in_the_making(path: &[u8]) -> bool {
    path.ends_with(b".tmp") || path.ends_with(b"/temp.summary") || path == b"temp.summary"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classify;

    #[test]
    fn what_is_made_anew_and_when() {
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
            ("base/5/pg_filenode.map", Renewal::Never),
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
    fn where_zeros_would_mean_something_there_are_no_holes() {
        for (path, is_solid) in [
            ("pg_xact/0000", true),
            ("pg_multixact/members/0000", true),
            ("pg_commit_ts/0000", true),
            ("base/5/pg_filenode.map", true),
            ("pg_subtrans/0000", false),
            ("pg_notify/0000", false),
            ("pg_wal/000000010000000000000001", false),
            ("base/5/16384", false),
        ] {
            assert_eq!(classify(path.as_bytes()).is_solid(path.as_bytes()), is_solid, "{path}");
        }
    }

    #[test]
    fn what_nobody_misses() {
        for (path, is_rebuilt) in [
            ("base/5/16384", false),
            ("base/5/16384_vm", true),
            ("pg_subtrans/0001", true),
            ("pg_xact/0000", false),
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
