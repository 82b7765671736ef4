//! The counters of a server, and their layout in the memory that its processes share. The preloaded
//! library writes them; `pgseal status` (through the postmaster's descriptor) and the extension
//! read them.
//!
//! The memory begins with a header of [`HEADER_BYTES`]. All numbers are little-endian:
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 8 | [`MAGIC`] |
//! | 8 | 4 | [`VERSION`] |
//! | 12 | 4 | number of slots |
//! | 16 | 4 | bytes of a slot |
//! | 20 | 4 | number of classes |
//! | 24 | 4 | number of counters of a class |
//! | 28 | 4 | number of counters of column values |
//! | 32 | 8 | when the server started, seconds since 1970 |
//! | 40 | 4 | length of the text that follows |
//! | 44 | | four lines: version of the library, names of the classes, of the counters, and of the counters of column values, separated by spaces |
//!
//! The slots follow. Each process adds to the slot of the CPU that it runs on; the value of a
//! counter is the sum over all slots. A slot holds the counters of each class, 64 bits each, then
//! those of column values. The header contains the names so that a reader may be of another
//! version.

use crate::class::Class;

/// The first bytes of the memory.
pub const MAGIC: [u8; 8] = *b"PGSEALCN";
/// The version of this layout.
pub const VERSION: u32 = 1;
/// Offset of the first slot.
pub const HEADER_BYTES: usize = 4096;
/// Offset of the text.
pub const TEXT_OFF: usize = 44;
/// The name of the memory file, as `/proc/PID/fd` shows it behind `/memfd:`.
pub const MEMORY_NAME: &core::ffi::CStr = c"pgseal-counters";

/// What is counted of each class of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Counter {
    /// Blocks sealed and written.
    SealedBlocks = 0,
    /// Plain bytes in them.
    SealedBytes = 1,
    /// Blocks read and opened.
    OpenedBlocks = 2,
    /// Plain bytes in them.
    OpenedBytes = 3,
    /// Blocks that were never written, read as zeros.
    ZeroBlocksRead = 4,
    /// Pages of zeros that extended a relation, which are stored as zeros.
    ZeroBlocksWritten = 5,
    /// Blocks that did not authenticate.
    FailedBlocks = 6,
    /// Files that could not be opened as sealed ones: damaged header, unknown key, plain contents.
    FailedFiles = 7,
}

/// The names of the counters of a class, in their order.
pub const COUNTERS: [&str; 8] = [
    "sealed_blocks",
    "sealed_bytes",
    "opened_blocks",
    "opened_bytes",
    "zero_blocks_read",
    "zero_blocks_written",
    "failed_blocks",
    "failed_files",
];

/// The names of the counters of column values, in their order.
pub const COLUMN_COUNTERS: [&str; 3] = ["sealed_values", "opened_values", "failed_values"];

/// The names of the counted classes, in their order: the sealed classes, and "outside" for files
/// outside of the data directory (archived WAL).
pub const CLASSES: [&str; 21] = [
    "relation",
    "temporary-relation",
    "incremental-relation",
    "temp-file",
    "wal",
    "wal-summary",
    "timeline-history",
    "slru",
    "relation-map",
    "two-phase",
    "replication-slot-state",
    "logical-spill",
    "logical-snapshot",
    "logical-mapping",
    "replication-origin",
    "exported-snapshot",
    "statistics",
    "statement-texts",
    "relcache-init",
    "unknown",
    OUTSIDE,
];
const OUTSIDE: &str = "outside";

/// Bytes of the counters of one class: a cache line.
pub const CLASS_BYTES: usize = COUNTERS.len() * 8;
/// Bytes of a slot: all classes, and a cache line for column values.
pub const SLOT_BYTES: usize = (CLASSES.len() + 1) * CLASS_BYTES;

/// The place of a class in [`CLASSES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassIndex(usize);

impl ClassIndex {
    /// The index for files outside of every data directory.
    pub const OUTSIDE: ClassIndex = ClassIndex(CLASSES.len() - 1);

    /// The index of a class; [`ClassIndex::OUTSIDE`] for a class that stays plain.
    #[must_use]
    pub const fn of(class: Class) -> ClassIndex {
        ClassIndex(match class {
            Class::Relation { temporary: false, .. } => 0,
            Class::Relation { temporary: true, .. } => 1,
            Class::IncrementalRelation => 2,
            Class::TempFile => 3,
            Class::Wal => 4,
            Class::WalSummary => 5,
            Class::TimelineHistory => 6,
            Class::Slru => 7,
            Class::RelationMap => 8,
            Class::TwoPhase => 9,
            Class::ReplicationSlotState => 10,
            Class::LogicalSpill => 11,
            Class::LogicalSnapshot => 12,
            Class::LogicalMapping => 13,
            Class::ReplicationOrigin => 14,
            Class::ExportedSnapshot => 15,
            Class::Statistics => 16,
            Class::StatementTexts => 17,
            Class::RelcacheInit => 18,
            Class::Unknown => 19,
            Class::BackupHistory
            | Class::ArchiveStatus
            | Class::Control
            | Class::Version
            | Class::Config
            | Class::BackupLabel
            | Class::Postmaster
            | Class::ServerLog
            | Class::UpgradeReport
            | Class::TlsFile
            | Class::DynamicSharedMemory
            | Class::Own
            | Class::TablespaceLink => return ClassIndex::OUTSIDE,
        })
    }

    /// Where a counter of the class lies in a slot, in units of 8 bytes.
    #[must_use]
    pub const fn word(self, counter: Counter) -> usize {
        self.0 * COUNTERS.len() + counter as usize
    }
}

/// Where the counters of column values lie in a slot, in units of 8 bytes.
pub const COLUMN_WORD: usize = CLASSES.len() * COUNTERS.len();

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;
    use crate::table::{Row, TABLE};

    /// Timeline history keeps its index: an earlier version sealed such files, and they still open.
    fn is_counted(row: &Row) -> bool {
        matches!(row.policy, Policy::Seal { .. }) || row.class == Class::TimelineHistory
    }

    #[test]
    fn each_sealed_class_has_its_own_index() {
        for row in &TABLE {
            let index = ClassIndex::of(row.class);
            if is_counted(row) {
                assert_eq!(CLASSES[index.0], row.name);
            } else {
                assert_eq!(index, ClassIndex::OUTSIDE, "{}", row.name);
            }
        }
        let counted = TABLE.iter().filter(|row| is_counted(row)).count();
        assert_eq!(counted + 1, CLASSES.len());
    }

    #[test]
    fn a_slot_has_room_for_all_and_keeps_to_cache_lines() {
        assert_eq!(CLASS_BYTES, 64);
        assert_eq!(SLOT_BYTES % 64, 0);
        let last = ClassIndex::OUTSIDE.word(Counter::FailedFiles);
        assert_eq!(last + 1, COLUMN_WORD);
        assert!((COLUMN_WORD + COLUMN_COUNTERS.len()) * 8 <= SLOT_BYTES);
    }
}
