//! Whom a file that decides about keys may belong to.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// Why a file or directory must not be trusted, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Distrust {
    /// Which owner or mode.
    pub what: String,
    /// What to do.
    pub remedy: &'static str,
}

/// Whether a user other than root and `me` (the effective user of this process) owns a file or
/// directory, or can write it. A sticky directory like `/tmp` is fine, because only the owner of an
/// entry can replace the entry.
#[must_use]
pub fn distrusted(meta: &Metadata, me: u32) -> Option<Distrust> {
    if meta.uid() != 0 && meta.uid() != me {
        let what = format!("it belongs to user {}, neither root nor user {me}", meta.uid());
        return Some(Distrust { what, remedy: "make root its owner" });
    }
    let is_sticky_dir = meta.is_dir() && meta.mode() & 0o1000 != 0;
    if meta.mode() & 0o022 != 0 && !is_sticky_dir {
        let mode = meta.mode() & 0o7777;
        let what = format!("it has mode {mode:o}: group or others can write it");
        return Some(Distrust { what, remedy: "take that right away (chmod go-w)" });
    }
    None
}
