//! What a server says of its WAL and its control file outside of both (`spec/control.md`): up to
//! which position the WAL is on the disk, and which `pg_control` was written last.
//!
//! [`flushed`] follows the position, [`record`] reads and writes `pgseal/control`, [`segments`]
//! finds the position in the WAL itself, and [`end`] refuses the first write after a recovery that
//! ended too early.

mod end;
mod flushed;
mod position;
mod record;
mod segments;

pub use self::end::before_write;
pub use self::flushed::{
    before_send, is_followed, must_open, record as flush_record, record_ahead, server_starts,
    synced,
};
pub use self::record::{before_control, begin_epoch, epoch, has_backup_label};
