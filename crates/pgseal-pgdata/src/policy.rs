//! What pgseal does with the files of each class.

use pgseal_core::FileKind;

use crate::class::Class;

/// Which kind of data key wraps the file key of a sealed file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyScope {
    /// A data key of the keyring: the file can be opened after a restart.
    Cluster,
    /// A key that exists only in the memory of the server: nobody can open the file after a
    /// restart.
    Ephemeral,
}

/// What pgseal does when PostgreSQL opens a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// New files are sealed.
    Seal {
        /// How the file is written.
        kind: FileKind,
        /// Which kind of data key.
        scope: KeyScope,
        /// Whether an existing file that is not sealed is read as plain, because somebody other
        /// than PostgreSQL may have put it there.
        reads_plain: bool,
    },
    /// The file stays plain, for this reason.
    Plain(&'static str),
    /// The file must not exist under pgseal, for this reason. The text ends with what to do.
    Refuse(&'static str),
}

const fn seal(kind: FileKind, scope: KeyScope) -> Policy {
    Policy::Seal { kind, scope, reads_plain: false }
}

impl Class {
    /// What pgseal does with files of this class.
    #[must_use]
    pub const fn policy(self) -> Policy {
        match self {
            Class::Relation { temporary: false, .. } => seal(FileKind::Relation, KeyScope::Cluster),
            Class::Relation { temporary: true, .. } => {
                seal(FileKind::Relation, KeyScope::Ephemeral)
            }
            Class::TempFile => seal(FileKind::Stream, KeyScope::Ephemeral),
            Class::Wal => seal(FileKind::Wal, KeyScope::Cluster),
            Class::Slru | Class::RelationMap | Class::LogicalMapping => {
                seal(FileKind::Sectored, KeyScope::Cluster)
            }
            Class::Unknown => {
                Policy::Seal { kind: FileKind::Stream, scope: KeyScope::Cluster, reads_plain: true }
            }
            Class::IncrementalRelation
            | Class::WalSummary
            | Class::TwoPhase
            | Class::ReplicationSlotState
            | Class::LogicalSpill
            | Class::LogicalSnapshot
            | Class::ReplicationOrigin
            | Class::ExportedSnapshot
            | Class::Statistics
            | Class::StatementTexts
            | Class::RelcacheInit => seal(FileKind::Stream, KeyScope::Cluster),
            Class::TimelineHistory
            | Class::BackupHistory
            | Class::ArchiveStatus
            | Class::Control
            | Class::Version
            | Class::Config
            | Class::BackupLabel
            | Class::Postmaster
            | Class::ServerLog
            | Class::UpgradeReport
            | Class::TlsFile
            | Class::Own
            | Class::TablespaceLink => Policy::Plain(self.reason()),
            Class::DynamicSharedMemory => Policy::Refuse(self.reason()),
        }
    }

    /// Why the policy is what it is, in one line for `pgseal status` and the documentation.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Class::Relation { temporary: false, .. } => {
                "rows, index entries and catalogs; large objects, enum labels, function bodies"
            }
            Class::Relation { temporary: true, .. } => {
                "rows of a session's temporary tables, gone with the session"
            }
            Class::IncrementalRelation => "changed pages of a relation in an incremental backup",
            Class::TempFile => "rows that sorts, hashes and cursors spilled, gone with the query",
            Class::Wal => "every change as it is made; appended to in place after a sync",
            Class::WalSummary => "which blocks of which relation changed",
            Class::TimelineHistory => {
                "timelines, positions and why each ended, no rows; archive tools and Patroni read \
                 it"
            }
            Class::BackupHistory => {
                "start, end and label of a backup, no rows; archive tools read it"
            }
            Class::ArchiveStatus => "empty; only the name counts",
            Class::Slru => {
                "transaction status, and the payloads of NOTIFY; overwritten in place without \
                 full-page images"
            }
            Class::RelationMap => "which file holds which catalog; overwritten in place up to 15",
            Class::Control => "no user data; backup tools read it raw",
            Class::TwoPhase => "the state of a prepared transaction, with its name",
            Class::ReplicationSlotState => "the name, plugin and position of a slot",
            Class::LogicalSpill => "rows that logical decoding could not keep in memory",
            Class::LogicalSnapshot => "which transactions logical decoding has seen",
            Class::LogicalMapping => {
                "old and new places of catalog rows; appended to in place after a sync"
            }
            Class::ReplicationOrigin => "how far each replication origin has come",
            Class::ExportedSnapshot => "which transactions an exported snapshot sees",
            Class::Statistics => "counters for each relation and function",
            Class::StatementTexts => "the texts of statements, constants included",
            Class::RelcacheInit => "descriptors of catalogs",
            Class::Version => "the major version; every program reads it first",
            Class::Config => "written and read by administrators; keep passwords out of it",
            Class::BackupLabel => {
                "positions, file names and checksums of a backup, no rows; backup tools read it"
            }
            Class::Postmaster => "process numbers, options and requests; no user data",
            Class::ServerLog => {
                "read by administrators and log shippers; statements show up in it when they are \
                 logged, so put log_directory on storage of its own if that matters"
            }
            Class::UpgradeReport => {
                "what stands in the way of an upgrade: names of databases, objects and libraries, no \
                 rows; pg_upgrade asks people to read it"
            }
            Class::TlsFile => "read by the TLS library and by administrators' tools",
            Class::DynamicSharedMemory => {
                "mapped memory cannot be sealed; set dynamic_shared_memory_type = posix"
            }
            Class::Own => "the keyring: data keys, wrapped",
            Class::TablespaceLink => "a symbolic link, no data",
            Class::Unknown => {
                "not a file that PostgreSQL 15 to 19 are known to write; sealed to be safe, and \
                 read as it is when an administrator put a plain one there"
            }
        }
    }
}
