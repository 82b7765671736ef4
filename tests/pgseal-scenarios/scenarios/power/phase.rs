//! Marks in the log of the disk: acknowledged transactions, and the phases of a run.

use std::ops::Range;

use pgseal_power::{Log, Op};

/// The client number of the marks of phases.
const PHASES: u64 = 100;

/// The mark of a client's transaction.
pub fn mark(client: u64, n: u64) -> u64 {
    client << 32 | n
}

/// Client and transaction of a mark.
pub fn of_mark(mark: u64) -> (u64, u64) {
    (mark >> 32, mark & 0xffff_ffff)
}

/// A part of a run at which cuts are aimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// A checkpoint that a client asked for.
    Checkpoint,
    /// A clean stop, which writes a manifest.
    Stop,
    /// A start after a clean stop, or after an immediate one.
    Start,
    /// A base backup of this server.
    Backup,
    /// `pgseal key rotate`.
    KeyRotate,
    /// `pgseal key renew`.
    KeyRenew,
    /// New file keys for all relations, and a run that is cut off.
    Reseal,
    /// Another suite: `pgseal key renew --suite`.
    NewSuite,
    /// Relations are made anew in another suite: `pgseal reseal --rewrite`.
    Rewrite,
    /// `pgseal encrypt`, `rekey` or `decrypt`.
    Conversion,
    /// The promotion of a standby.
    Promotion,
}

impl Phase {
    /// All phases, with the names that the figures show.
    pub const ALL: [(Phase, &str); 11] = [
        (Phase::Checkpoint, "in a checkpoint"),
        (Phase::Stop, "in a clean stop"),
        (Phase::Start, "in a start"),
        (Phase::Backup, "in a base backup"),
        (Phase::KeyRotate, "in key rotate"),
        (Phase::KeyRenew, "in key renew"),
        (Phase::Reseal, "in a resealing"),
        (Phase::NewSuite, "in a change of the suite"),
        (Phase::Rewrite, "while relations are made anew"),
        (Phase::Conversion, "in a conversion"),
        (Phase::Promotion, "in a promotion"),
    ];

    fn marks(self) -> (u64, u64) {
        let number = self as u64;
        (mark(PHASES, 2 * number), mark(PHASES, 2 * number + 1))
    }

    /// Does something that is this phase.
    pub fn does<T>(self, note: &dyn Fn(u64), what: impl FnOnce() -> T) -> T {
        let (begin, end) = self.marks();
        note(begin);
        let done = what();
        note(end);
        done
    }

    /// The operations of each occurrence of this phase.
    pub fn ranges(self, log: &Log) -> Vec<Range<usize>> {
        let (begin, end) = self.marks();
        let mut found = Vec::new();
        let mut started = None;
        for (at, op) in log.ops().iter().enumerate() {
            match op {
                Op::Mark(mark) if *mark == begin => started = Some(at + 1),
                Op::Mark(mark) if *mark == end => {
                    found.extend(started.take().map(|start| start..at + 1));
                }
                _ => {}
            }
        }
        found
    }
}
