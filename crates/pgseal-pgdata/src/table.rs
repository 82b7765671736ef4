//! A table of all classes, for `pgseal status` and the documentation.

use crate::class::{Class, Fork};
use crate::policy::Policy;

/// One class of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The class; for relations, that of the main fork.
    pub class: Class,
    /// [`Class::name`].
    pub name: &'static str,
    /// A path of this class, relative to the root of a data directory.
    pub example: &'static str,
    /// [`Class::policy`].
    pub policy: Policy,
    /// [`Class::reason`].
    pub reason: &'static str,
}

const fn row(class: Class, example: &'static str) -> Row {
    Row { class, name: class.name(), example, policy: class.policy(), reason: class.reason() }
}

/// Every class once.
pub static TABLE: [Row; 33] = [
    row(Class::Relation { fork: Fork::Main, temporary: false }, "base/5/16384"),
    row(Class::Relation { fork: Fork::Main, temporary: true }, "base/5/t3_16384"),
    row(Class::IncrementalRelation, "base/5/INCREMENTAL.16384"),
    row(Class::TempFile, "base/pgsql_tmp/pgsql_tmp4711.0"),
    row(Class::Wal, "pg_wal/000000010000000000000001"),
    row(Class::WalSummary, "pg_wal/summaries/0000000100000000010000280000000001000128.summary"),
    row(Class::TimelineHistory, "pg_wal/00000002.history"),
    row(Class::BackupHistory, "pg_wal/000000010000000000000003.00000028.backup"),
    row(Class::ArchiveStatus, "pg_wal/archive_status/000000010000000000000001.done"),
    row(Class::Slru, "pg_xact/0000"),
    row(Class::RelationMap, "base/5/pg_filenode.map"),
    row(Class::Control, "global/pg_control"),
    row(Class::TwoPhase, "pg_twophase/000002E1"),
    row(Class::ReplicationSlotState, "pg_replslot/standby1/state"),
    row(Class::LogicalSpill, "pg_replslot/slot1/xid-745-lsn-0-5000000.spill"),
    row(Class::LogicalSnapshot, "pg_logical/snapshots/0-1565AC8.snap"),
    row(Class::LogicalMapping, "pg_logical/mappings/map-5-4eb-0_1565AC8-2e7-2e7"),
    row(Class::ReplicationOrigin, "pg_logical/replorigin_checkpoint"),
    row(Class::ExportedSnapshot, "pg_snapshots/00000004-00000002-1"),
    row(Class::Statistics, "pg_stat/pgstat.stat"),
    row(Class::StatementTexts, "pg_stat_tmp/pgss_query_texts.stat"),
    row(Class::RelcacheInit, "base/5/pg_internal.init"),
    row(Class::Version, "PG_VERSION"),
    row(Class::Config, "postgresql.conf"),
    row(Class::BackupLabel, "backup_label"),
    row(Class::Postmaster, "postmaster.pid"),
    row(Class::ServerLog, "log/postgresql-2026-01-31_000000.log"),
    row(Class::UpgradeReport, "pg_upgrade_output.d/20260131T000000.000/loadable_libraries.txt"),
    row(Class::TlsFile, "server.key"),
    row(Class::DynamicSharedMemory, "pg_dynshmem/mmap.1804289383"),
    row(Class::Own, "pgseal/keyring"),
    row(Class::TablespaceLink, "pg_tblspc/16400"),
    row(Class::Unknown, "base/5/notes.txt"),
];
