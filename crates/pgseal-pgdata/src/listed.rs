//! Which files a manifest lists (`spec/manifest.md`, section 1).

use crate::class::{Class, Fork};

/// The directories below a data directory in which listed files lie, besides those of databases.
pub const LISTED_DIRECTORIES: [&[u8]; 7] = [
    b"global",
    b"pg_xact",
    b"pg_multixact/offsets",
    b"pg_multixact/members",
    b"pg_commit_ts",
    b"pg_twophase",
    b"pg_logical",
];

impl Class {
    /// Whether a manifest lists the file of this class at this path, relative to the root of a data
    /// directory. Listed are files that a server needs and that nothing changes between the last
    /// checkpoint of a clean shutdown and the first write of the next server.
    ///
    /// Not listed: files that PostgreSQL removes or writes anew at a start (`pg_subtrans`,
    /// `pg_notify`, statistics, caches), files that another process may write after the last
    /// checkpoint (replication slots), WAL, and files under a temporary name.
    #[must_use]
    pub fn is_listed(self, rel: &[u8]) -> bool {
        match self {
            Class::Relation { temporary, .. } => !temporary,
            Class::Slru => [&b"pg_xact/"[..], b"pg_multixact/", b"pg_commit_ts/"]
                .into_iter()
                .any(|directory| rel.starts_with(directory)),
            Class::RelationMap | Class::TwoPhase | Class::ReplicationOrigin => {
                !rel.ends_with(b".tmp")
            }
            _ => false,
        }
    }

    /// As [`Class::is_listed`], in the manifest of a cluster with this catalog version, if it is
    /// known: `pg_upgrade` leaves the files of the old cluster beside those of the new one in a
    /// tablespace.
    #[must_use]
    pub fn is_listed_in(self, rel: &[u8], catalog_version: Option<u32>) -> bool {
        self.is_listed(rel)
            && !catalog_version.is_some_and(|version| is_of_other_version(rel, version))
    }

    /// Whether a server cannot do without a listed file of this class: it would silently lose
    /// transactions, or fail later with a less clear error.
    #[must_use]
    pub const fn is_vital(self) -> bool {
        matches!(self, Class::Slru | Class::RelationMap | Class::TwoPhase)
    }

    /// Whether the free space or visibility map of a relation: PostgreSQL makes a missing one anew.
    #[must_use]
    pub const fn is_map_of_hints(self) -> bool {
        matches!(self, Class::Relation { fork: Fork::Fsm | Fork::Vm, .. })
    }
}

/// The path of a relation fork without its segment number, and the number: `base/5/16384.2` is
/// segment 2 of `base/5/16384`.
#[must_use]
pub fn segment_of(rel: &[u8]) -> (&[u8], u32) {
    let Some(at) = rel.iter().rposition(|byte| *byte == b'.') else { return (rel, 0) };
    let number = rel.get(at + 1..).and_then(|digits| str::from_utf8(digits).ok());
    match number.and_then(|digits| digits.parse().ok()) {
        Some(number) => (rel.get(..at).unwrap_or(rel), number),
        None => (rel, 0),
    }
}

/// The catalog version in this content of `global/pg_control` (`catalog_version_no`,
/// `catalog/pg_control.h`), with which the name of a tablespace's version directory ends.
#[must_use]
pub fn catalog_version(control: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(*control.get(12..16)?.first_chunk()?))
}

/// Whether a file lies in a tablespace's directory of another catalog version.
fn is_of_other_version(rel: &[u8], catalog_version: u32) -> bool {
    let mut parts = rel.split(|byte| *byte == b'/');
    let (Some(b"pg_tblspc"), Some(_), Some(directory)) = (parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    let own = directory.rsplit(|byte| *byte == b'_').next();
    let own = own.and_then(|digits| str::from_utf8(digits).ok()?.parse::<u32>().ok());
    own != Some(catalog_version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classify;

    #[test]
    fn files_that_survive_a_clean_stop_are_listed() {
        for (path, listed) in [
            ("base/5/16384", true),
            ("base/5/16384.1", true),
            ("base/5/16384_vm", true),
            ("base/5/16384_init", true),
            ("base/5/t3_16384", false),
            ("global/1262", true),
            ("global/pg_filenode.map", true),
            ("global/pg_filenode.map.tmp", false),
            ("base/5/pg_internal.init", false),
            ("pg_tblspc/16400/PG_15_202209061/5/16384", true),
            ("pg_xact/0000", true),
            ("pg_multixact/members/0000", true),
            ("pg_commit_ts/0000", true),
            ("pg_subtrans/0000", false),
            ("pg_notify/0000", false),
            ("pg_twophase/000002E1", true),
            ("pg_twophase/000002E1.tmp", false),
            ("pg_replslot/a/state", false),
            ("pg_logical/replorigin_checkpoint", true),
            ("pg_stat/pgstat.stat", false),
            ("pg_wal/000000010000000000000001", false),
            ("global/pg_control", false),
            ("postgresql.conf", false),
        ] {
            assert_eq!(classify(path.as_bytes()).is_listed(path.as_bytes()), listed, "{path}");
        }
    }

    #[test]
    fn a_tablespace_may_hold_files_of_another_version() {
        let mut control = [0; 32];
        control[12..16].copy_from_slice(&202_209_061_u32.to_le_bytes());
        let version = catalog_version(&control).unwrap();
        assert!(!is_of_other_version(b"pg_tblspc/16400/PG_15_202209061/5/16384", version));
        assert!(is_of_other_version(b"pg_tblspc/16400/PG_14_202107181/5/16384", version));
        assert!(!is_of_other_version(b"base/5/16384", version));
        assert_eq!(catalog_version(&control[..15]), None);
    }

    #[test]
    fn segments_belong_together() {
        assert_eq!(segment_of(b"base/5/16384"), (&b"base/5/16384"[..], 0));
        assert_eq!(segment_of(b"base/5/16384.12"), (&b"base/5/16384"[..], 12));
        assert_eq!(segment_of(b"base/5/16384_fsm.1"), (&b"base/5/16384_fsm"[..], 1));
        assert_eq!(segment_of(b"base/5/a.b"), (&b"base/5/a.b"[..], 0));
    }
}
