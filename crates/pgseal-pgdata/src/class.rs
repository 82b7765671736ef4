//! The classes of files in a data directory.

/// A fork of a relation (`ForkNumber`, `src/include/common/relpath.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fork {
    /// The rows or index entries themselves.
    Main,
    /// The free space map, `_fsm`.
    Fsm,
    /// The visibility map, `_vm`.
    Vm,
    /// The initial contents of an unlogged relation, `_init`.
    Init,
}

/// What a file in a data directory is to PostgreSQL.
///
/// Each variant names the source file of PostgreSQL that decides the names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// A segment of a fork of a relation, in `base/N/`, `global/` or a tablespace
    /// (`src/common/relpath.c`, `src/backend/storage/smgr/md.c`). Tables, indexes, TOAST,
    /// sequences, materialised views and all catalogs; so large objects, enum labels, comments,
    /// defaults and function bodies too.
    Relation {
        /// Which fork.
        fork: Fork,
        /// Whether it belongs to a session's temporary relation (`t3_16384`).
        temporary: bool,
    },
    /// An incremental copy of a relation segment in a backup, `INCREMENTAL.16384`, 17 and later
    /// (`src/backend/backup/basebackup_incremental.c`).
    IncrementalRelation,
    /// A spill of sorts, hashes, tuplestores and shared file sets, `pgsql_tmp/`
    /// (`src/backend/storage/file/fd.c`, `fileset.c`, `sharedfileset.c`).
    TempFile,
    /// A segment of the write-ahead log, finished, partial, in the making (`xlogtemp.PID`) or
    /// restored (`RECOVERYXLOG`) (`src/include/access/xlog_internal.h`, `xlog.c`).
    Wal,
    /// A WAL summary, 17 and later (`src/backend/postmaster/walsummarizer.c`).
    WalSummary,
    /// A timeline history file, also restored (`RECOVERYHISTORY`) or being received
    /// (`.history.tmp`) (`src/backend/access/transam/timeline.c`, `receivelog.c`).
    TimelineHistory,
    /// A backup history file, `*.backup` in `pg_wal` (`BackupHistoryFileName`,
    /// `src/include/access/xlog_internal.h`).
    BackupHistory,
    /// An archive status file, empty (`StatusFilePath`, `src/include/access/xlog_internal.h`).
    ArchiveStatus,
    /// A segment of a simple LRU: transaction status, multixacts, subtransactions, commit
    /// timestamps, serializable conflicts, the NOTIFY queue
    /// (`src/backend/access/transam/slru.c`).
    Slru,
    /// The map from mapped catalogs to their files, `pg_filenode.map`, since 16 also
    /// `pg_filenode.map.tmp` (`src/backend/utils/cache/relmapper.c`).
    RelationMap,
    /// The control file (`src/include/catalog/pg_control.h`, `src/common/controldata_utils.c`).
    Control,
    /// The state of a prepared transaction (`src/backend/access/transam/twophase.c`).
    TwoPhase,
    /// The state of a replication slot (`src/backend/replication/slot.c`).
    ReplicationSlotState,
    /// Changes that logical decoding spilled (`src/backend/replication/logical/reorderbuffer.c`).
    LogicalSpill,
    /// A serialized snapshot of logical decoding (`src/backend/replication/logical/snapbuild.c`).
    LogicalSnapshot,
    /// A mapping of a rewritten catalog for logical decoding
    /// (`src/backend/access/heap/rewriteheap.c`).
    LogicalMapping,
    /// The progress of replication origins (`src/backend/replication/logical/origin.c`).
    ReplicationOrigin,
    /// An exported snapshot (`src/backend/utils/time/snapmgr.c`).
    ExportedSnapshot,
    /// Cumulative statistics (`src/backend/utils/activity/pgstat.c`) and what extensions put
    /// beside them.
    Statistics,
    /// The statement texts and counters of `pg_stat_statements`
    /// (`contrib/pg_stat_statements/pg_stat_statements.c`).
    StatementTexts,
    /// A cached copy of relation descriptors, `pg_internal.init`
    /// (`src/backend/utils/cache/relcache.c`).
    RelcacheInit,
    /// `PG_VERSION` (`src/bin/initdb/initdb.c`, `src/backend/commands/dbcommands.c`); in the root
    /// also `PG_VERSION.clonetest` and the like (`src/bin/pg_upgrade/file.c`).
    Version,
    /// Configuration and the signal files of recovery (`src/backend/utils/misc/guc.c`,
    /// `src/include/access/xlogrecovery.h`).
    Config,
    /// The label, tablespace map and manifest of a base backup (`src/include/access/xlog.h`,
    /// `src/backend/backup/backup_manifest.c`).
    BackupLabel,
    /// What the postmaster and `pg_ctl` tell each other: lock files, options, request files
    /// (`src/include/utils/pidfile.h`, `src/backend/utils/init/miscinit.c`, `pg_ctl.c`).
    Postmaster,
    /// The server's log, and the file that names it (`src/backend/postmaster/syslogger.c`).
    ServerLog,
    /// A report of `pg_upgrade` about what stands in the way of an upgrade, which it tells people
    /// to read: `pg_upgrade_output.d/TIME/loadable_libraries.txt` and others
    /// (`src/bin/pg_upgrade/check.c`, `function.c`).
    UpgradeReport,
    /// Certificates, keys and revocation lists for TLS (`src/backend/libpq/be-secure-openssl.c`).
    TlsFile,
    /// Dynamic shared memory backed by a file (`src/backend/storage/ipc/dsm_impl.c`).
    DynamicSharedMemory,
    /// A file of pgseal: the keyring and what lies beside it.
    Own,
    /// The link to a tablespace, `pg_tblspc/OID` (`src/backend/commands/tablespace.c`).
    TablespaceLink,
    /// None of the above: no file that PostgreSQL 15 to 19 are known to write.
    Unknown,
}

impl Class {
    /// The name that `pgseal status` shows. All forks of a relation have the same name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Class::Relation { temporary: false, .. } => "relation",
            Class::Relation { temporary: true, .. } => "temporary-relation",
            Class::IncrementalRelation => "incremental-relation",
            Class::TempFile => "temp-file",
            Class::Wal => "wal",
            Class::WalSummary => "wal-summary",
            Class::TimelineHistory => "timeline-history",
            Class::BackupHistory => "backup-history",
            Class::ArchiveStatus => "archive-status",
            Class::Slru => "slru",
            Class::RelationMap => "relation-map",
            Class::Control => "control",
            Class::TwoPhase => "two-phase",
            Class::ReplicationSlotState => "replication-slot-state",
            Class::LogicalSpill => "logical-spill",
            Class::LogicalSnapshot => "logical-snapshot",
            Class::LogicalMapping => "logical-mapping",
            Class::ReplicationOrigin => "replication-origin",
            Class::ExportedSnapshot => "exported-snapshot",
            Class::Statistics => "statistics",
            Class::StatementTexts => "statement-texts",
            Class::RelcacheInit => "relcache-init",
            Class::Version => "version",
            Class::Config => "config",
            Class::BackupLabel => "backup-label",
            Class::Postmaster => "postmaster",
            Class::ServerLog => "server-log",
            Class::UpgradeReport => "upgrade-report",
            Class::TlsFile => "tls-file",
            Class::DynamicSharedMemory => "dynamic-shared-memory",
            Class::Own => "own",
            Class::TablespaceLink => "tablespace-link",
            Class::Unknown => "unknown",
        }
    }
}
