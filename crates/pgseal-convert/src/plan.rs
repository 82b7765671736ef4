//! Decides what a conversion does with each file.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use pgseal_core::geometry::HEADER_LEN;
use pgseal_core::header::{Header, Kind};
use pgseal_core::{FileKind, Generation, KeyringId, Layout, Suite};
use pgseal_pgdata::{Class, KeyScope, Policy};

use crate::copy::{Form, Seal};
use crate::page::PageRule;
use crate::tree::Item;

/// What a data directory is converted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Sealed, with this suite of relation files and this data key.
    Sealed {
        /// The suite of relation files.
        suite: Suite,
        /// The data key.
        generation: Generation,
        /// Whether the data directory was plain before, so that plain files are to be sealed.
        from_plain: bool,
    },
    /// Plain.
    Plain {
        /// Whether no file has been converted yet. A head of zeros then belongs to a sealed file
        /// whose header never reached the disk.
        from_sealed: bool,
    },
}

/// What a conversion does with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Write the file in this form.
    Convert(Form),
    /// Remove the file: PostgreSQL would remove it at its next start, or rebuilds it because a
    /// power cut damaged it.
    Remove,
    /// Make the file empty, before any other file is converted: its header never reached the disk,
    /// which means an empty file.
    Empty,
    /// Nothing: the file has the new form already, or stays plain.
    Done,
    /// Nothing: the file is not known to be a file of PostgreSQL.
    Foreign,
    /// The file cannot be converted. The text says why and what to do.
    Impossible(String),
}

/// What decides about each file.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// What the data directory is converted to.
    pub target: Target,
    /// The keyring of the cluster.
    pub keyring_id: KeyringId,
    /// Whether the cluster has data checksums.
    pub checksums: bool,
    /// Pages in a whole segment of a relation.
    pub segment_pages: u32,
}

impl Plan {
    /// What to do with a file that has this head.
    #[must_use]
    pub fn action(&self, item: &Item, head: &Kind) -> Action {
        let sealed = match head {
            Kind::Sealed(header) => Some(header),
            Kind::Plain | Kind::NoHeader => None,
        };
        if let Some(header) = sealed
            && header.generation.is_ephemeral()
        {
            // The key existed only in the memory of a server, so nobody can open the file any more.
            return match item.class.policy() {
                Policy::Seal { scope: KeyScope::Ephemeral, .. } => Action::Remove,
                _ => Action::Impossible(
                    "sealed with the key of a server's run, as only temporary files are, so that \
                     nobody can open it; restore it from a backup, or move it away"
                        .to_owned(),
                ),
            };
        }
        if let Some(header) = sealed
            && header.keyring_id != self.keyring_id
        {
            return Action::Impossible(format!(
                "sealed with another keyring, {}; remove it or move it away",
                header.keyring_id
            ));
        }
        let from_sealed = match self.target {
            Target::Plain { from_sealed } => from_sealed,
            Target::Sealed { from_plain, .. } => !from_plain,
        };
        if from_sealed
            && *head == Kind::NoHeader
            && item.len > 0
            && matches!(item.class.policy(), Policy::Seal { .. })
        {
            return without_header(item);
        }
        match (self.target, item.class.policy()) {
            (Target::Plain { .. }, _) if sealed.is_some() => Action::Convert(Form::Plain),
            (_, Policy::Refuse(_)) => Action::Remove,
            (Target::Plain { .. }, _) => Action::Done,
            (Target::Sealed { .. }, Policy::Seal { scope: KeyScope::Ephemeral, .. })
                if is_temporary(item) =>
            {
                Action::Remove
            }
            (Target::Sealed { suite, generation, from_plain }, policy) => {
                self.seal(item, sealed, policy, suite, generation, from_plain)
            }
        }
    }

    fn seal(
        &self,
        item: &Item,
        sealed: Option<&Header>,
        policy: Policy,
        suite: Suite,
        generation: Generation,
        from_plain: bool,
    ) -> Action {
        let form = match (item.class.form(item.place(), suite), sealed) {
            (Some(form), Some(header)) if form.place.is_any() => {
                pgseal_core::Form { place: header.place, ..form }
            }
            (Some(form), _) => form,
            // A sealed file of a class that stays plain: it keeps its layout, if the suite has it.
            (None, Some(header)) => {
                let kind = match header.layout {
                    Layout::Paged | Layout::InPlace => FileKind::Relation,
                    Layout::Stream => FileKind::Stream,
                    Layout::Sectored => FileKind::Sectored,
                    Layout::Wal => FileKind::Wal,
                };
                let (suite, layout) = suite.for_kind(kind);
                pgseal_core::Form { suite, layout, ..header.form() }
            }
            (None, None) => return Action::Done,
        };
        let seal = Seal { form, generation };
        match sealed {
            Some(header) if header.form() == form && header.generation == generation => {
                Action::Done
            }
            Some(_) => Action::Convert(Form::Sealed(seal)),
            None if item.len == 0 => Action::Done,
            None if is_foreign(item) => Action::Foreign,
            None if from_plain => Action::Convert(Form::Sealed(seal)),
            None => match policy {
                Policy::Seal { reads_plain: true, .. } => Action::Foreign,
                _ => Action::Impossible(
                    "a plain file where only sealed ones may be; remove it or restore the sealed one"
                        .to_owned(),
                ),
            },
        }
    }

    /// How the pages of a file are checked; `None` if the file does not consist of pages.
    #[must_use]
    pub fn page_rule(&self, item: &Item) -> Option<PageRule> {
        let Class::Relation { temporary: false, .. } = item.class else { return None };
        let name = item.rel.file_name().unwrap_or(OsStr::new("")).as_bytes();
        let segment =
            name.rsplit(|byte| *byte == b'.').next().filter(|last| last.len() < name.len());
        let segment: u32 = match segment.map(std::str::from_utf8) {
            Some(Ok(digits)) => digits.parse().ok()?,
            _ => 0,
        };
        let first_block = segment.wrapping_mul(self.segment_pages);
        Some(PageRule { checksums: self.checksums, first_block })
    }
}

/// What to do with a file of a sealed data directory whose head is zeros.
fn without_header(item: &Item) -> Action {
    if item.len <= HEADER_LEN {
        return Action::Empty;
    }
    if item.class.renewal(item.rel.as_os_str().as_bytes()).is_harmless() {
        return Action::Remove;
    }
    Action::Impossible(format!(
        "its header is zeros, with {} bytes behind: damaged; restore it from a backup",
        item.len - HEADER_LEN
    ))
}

/// Whether PostgreSQL removes the file at its start (`RemovePgTempFiles`, `fd.c`): a temporary
/// relation, or a file in `pgsql_tmp` whose name PostgreSQL gives to spills.
fn is_temporary(item: &Item) -> bool {
    let ours = |part: &OsStr| part.as_bytes().starts_with(b"pgsql_tmp");
    match item.class {
        Class::TempFile => {
            item.rel.iter().skip_while(|part| *part != "pgsql_tmp").skip(1).any(ours)
        }
        _ => true,
    }
}

/// Whether the file is unknown to PostgreSQL and lies in the root or in a directory that is not
/// PostgreSQL's. It belongs to an administrator or a tool, who could not read it if it were sealed.
fn is_foreign(item: &Item) -> bool {
    if item.class == Class::TempFile {
        return true;
    }
    let mut parts = item.rel.iter().map(OsStr::as_bytes);
    let (first, below) = (parts.next().unwrap_or_default(), parts.next().is_some());
    let in_postgres = below && (matches!(first, b"base" | b"global") || first.starts_with(b"pg_"));
    item.class == Class::Unknown && !in_postgres
}

/// Whether the path is an archive status file of a segment that is not archived yet.
#[must_use]
pub fn awaits_archiving(rel: &Path) -> bool {
    rel.starts_with("pg_wal/archive_status") && rel.extension() == Some(OsStr::new("ready"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test ends where a step fails")]
mod tests {
    use super::*;
    use pgseal_core::header::Stage;
    use pgseal_core::testing;

    #[test]
    fn a_file_that_nobody_can_open_is_removed_only_if_it_is_temporary() {
        let keyring_id = testing::keys().keyring_id;
        let suite = Suite::Aes256Gcm;
        let header = Header {
            suite,
            layout: Layout::Paged,
            place: pgseal_core::Place::ANY,
            file_id: [1; 16],
            keyring_id,
            generation: Generation::EPHEMERAL,
            key_number: 1,
            stage: Stage::Settled,
            samples: 0,
        };
        let sealed = |from_plain| Target::Sealed { suite, generation: Generation(1), from_plain };
        let plain = |from_sealed| Target::Plain { from_sealed };
        for target in [sealed(true), sealed(false), plain(true), plain(false)] {
            let plan = Plan { target, keyring_id, checksums: false, segment_pages: 131_072 };
            let action = |rel: &str| {
                let class = pgseal_pgdata::classify(rel.as_bytes());
                let (path, rel) = (rel.into(), rel.into());
                let item = Item { path, rel, class, len: 16_384, dev: 1, links: 1 };
                plan.action(&item, &Kind::Sealed(header))
            };
            for rel in ["base/5/t3_16384", "base/pgsql_tmp/pgsql_tmp4711.0"] {
                assert_eq!(action(rel), Action::Remove, "{rel}");
            }
            for rel in ["base/5/16384", "pg_wal/000000010000000000000001", "notes"] {
                assert!(matches!(action(rel), Action::Impossible(_)), "{rel}");
            }
        }
    }

    #[test]
    fn a_file_without_a_header_is_removed_only_if_postgresql_rebuilds_it() {
        let keyring_id = testing::keys().keyring_id;
        let target = Target::Plain { from_sealed: true };
        let plan = Plan { target, keyring_id, checksums: false, segment_pages: 131_072 };
        let action = |rel: &str| {
            let class = pgseal_pgdata::classify(rel.as_bytes());
            let (path, rel) = (rel.into(), rel.into());
            let item = Item { path, rel, class, len: 16_384, dev: 1, links: 1 };
            plan.action(&item, &Kind::NoHeader)
        };
        for rel in ["base/5/16384_vm", "base/5/pg_internal.init.4711", "pg_stat/pgstat.tmp"] {
            assert_eq!(action(rel), Action::Remove, "{rel}");
        }
        for rel in ["base/5/16384", "pg_xact/0000"] {
            assert!(matches!(action(rel), Action::Impossible(_)), "{rel}");
        }
    }
}
