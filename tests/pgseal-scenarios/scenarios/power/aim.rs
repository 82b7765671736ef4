//! Where the power is cut: anywhere, and at the moments that are the hardest for PostgreSQL and for
//! the library.

use std::ops::Range;
use std::path::Path;

use fastrand::Rng;
use pgseal_power::{Cut, Disk, Log, Op, Survival, Timeline};
use pgseal_scenarios::files::{HEADER, PAGE, TAG_BLOCK};

use crate::phase::Phase;

/// Pages of a group of a sealed relation.
const GROUP_PAGES: u64 = 256;

/// The places of a log where cuts are aimed at, by kind.
#[derive(Debug)]
pub struct Aims(Vec<Aim>);

#[derive(Debug)]
struct Aim {
    kind: &'static str,
    /// Cuts fall before one of these operations.
    places: Vec<Range<usize>>,
}

impl Aims {
    /// All kinds that this log has. The disk is that before its first operation.
    pub fn of(base: &Disk, log: &Log) -> Aims {
        let ops = log.ops();
        let mut hard = Vec::new();
        let mut header = Vec::new();
        let mut page = Vec::new();
        let mut cut = Vec::new();
        let mut switch = Vec::new();
        let mut entries = Vec::new();
        let mut control = Vec::new();
        let mut own = Vec::new();
        let mut timeline = Timeline::of(base);
        for (at, op) in ops.iter().enumerate() {
            if !op.journaled_for().is_empty() || matches!(op, Op::SetLen { .. } | Op::Sync { .. }) {
                hard.push(at..at + 3);
            }
            match op {
                Op::Write { ino, off, bytes } => {
                    let path = timeline.path(*ino);
                    if *off == 0 && timeline.len(*ino) == 0 {
                        header.push(at + 1..at + 3);
                    }
                    if is_relation(path) && is_page(*off, bytes.len() as u64) {
                        page.push(at + 1..at + 2);
                    }
                    if is_segment(path) && *off <= HEADER + TAG_BLOCK {
                        switch.push(at..at + 4);
                    }
                    if is_segment(path) && is_tag_block(*off) {
                        entries.push(at + 1..at + 4);
                    }
                    if path.ends_with("global/pg_control") || path.ends_with("pgseal/control") {
                        control.push(at.saturating_sub(1)..at + 4);
                    }
                }
                Op::SetLen { ino, len }
                    if (1..timeline.len(*ino)).contains(len)
                        && is_relation(timeline.path(*ino)) =>
                {
                    cut.push(at..at + 4);
                }
                _ => {}
            }
            timeline.pass(op);
            if let Op::Rename { ino, .. } = op {
                let path = timeline.path(*ino);
                if is_segment(path) {
                    switch.push(at.saturating_sub(2)..at + 4);
                }
                if path.parent().is_some_and(|dir| dir.ends_with("pgseal")) {
                    own.push(at.saturating_sub(3)..at + 4);
                }
            }
        }
        let everywhere = std::iter::once(0..ops.len() + 1).collect();
        let mut aims = vec![
            Aim { kind: "anywhere", places: everywhere },
            Aim { kind: "at a name, length or sync", places: hard },
            Aim { kind: "behind a header", places: header },
            Aim { kind: "between page and tag", places: page },
            Aim { kind: "in a truncation", places: cut },
            Aim { kind: "at a segment switch", places: switch },
            Aim { kind: "behind entries of WAL", places: entries },
            Aim { kind: "at a control file", places: control },
            Aim { kind: "at a file of pgseal", places: own },
        ];
        let phases = Phase::ALL.map(|(phase, kind)| Aim { kind, places: phase.ranges(log) });
        aims.extend(phases);
        aims.retain(|aim| !aim.places.is_empty());
        Aims(aims)
    }

    /// The kind and the cut of a seed. Kinds take turns, if this is not the only one.
    pub fn choose(&self, seed: u64, log: &Log, kind: Option<&str>) -> (&'static str, Cut) {
        let mut rng = Rng::with_seed(seed);
        let wanted = kind.and_then(|kind| self.0.iter().find(|aim| aim.kind == kind));
        let in_turn = &self.0[usize::try_from(seed).expect("64 bits") % self.0.len()];
        let aim = wanted.unwrap_or(in_turn);
        let range = aim.places[rng.usize(0..aim.places.len())].clone();
        let at = rng.usize(range).min(log.ops().len());
        // A cut between two writes shows the state between them only if the first one survives.
        let is_between = aim.kind != "anywhere" && rng.bool();
        let survival = if is_between { Survival::All } else { Survival::Any };
        (aim.kind, Cut { at, seed, survival })
    }
}

fn is_relation(path: &Path) -> bool {
    let text = path.to_string_lossy();
    ["/base/", "/global/", "ts/"].iter().any(|part| text.contains(part))
}

/// Whether these are whole pages of a sealed relation, and no tag block.
fn is_page(off: u64, len: u64) -> bool {
    len > 0
        && off >= HEADER
        && len.is_multiple_of(PAGE)
        && off.is_multiple_of(PAGE)
        && !is_tag_block(off)
}

/// Whether a tag block of a sealed file has this offset.
fn is_tag_block(off: u64) -> bool {
    let group = TAG_BLOCK + GROUP_PAGES * PAGE;
    off >= HEADER && (off - HEADER) % group < TAG_BLOCK
}

fn is_segment(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    path.parent().is_some_and(|dir| dir.ends_with("pg_wal"))
        && name.len() == 24
        && name.iter().all(u8::is_ascii_hexdigit)
}
