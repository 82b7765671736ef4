//! What pgseal remembers of a cluster on this machine: when its keyring got another key, which
//! checks of it and of its backups were made, and which escrow copies it has seen.
//!
//! The file is outside of the data directory, because whoever can write there could write a good
//! result. It is `KEYRING-ID.json` in `/var/lib/pgseal`, or in the directory of `PGSEAL_STATE_DIR`.
//! pgseal makes no such directory: without one it remembers nothing.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use pgseal_core::KeyringId;
use serde::{Deserialize, Serialize};

use crate::{environment, json_file, out, small_file};

/// Where it remembers, unless `PGSEAL_STATE_DIR` says otherwise.
const STATE_DIR: &str = "/var/lib/pgseal";
/// Names another directory.
const STATE_DIR_VARIABLE: &str = "PGSEAL_STATE_DIR";
/// The mode of its files.
pub const MODE: u32 = 0o644;
/// The most paths whose last check is remembered.
const MAX_CHECKS: usize = 64;
/// The most escrow copies that are remembered.
const MAX_COPIES: usize = 16;

/// Everything about one keyring.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Memory {
    /// When the keyring last got another key (`pgseal key rotate`).
    pub rotated: Option<String>,
    /// The last check of each path, the latest one last.
    #[serde(default)]
    pub checks: Vec<Check>,
    /// The last check of each file of the audit trail with the keys of this cluster.
    #[serde(default)]
    pub trail: Vec<Check>,
    /// The escrow copies that were made or checked on this machine, the latest one last.
    #[serde(default)]
    pub escrow: Vec<EscrowCopy>,
    /// The last check that compared an escrow copy with the keyring, and found nothing wrong
    /// (`pgseal key check --escrow`).
    #[serde(default)]
    pub drill: Option<Drill>,
}

/// An escrow copy that this machine has seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EscrowCopy {
    /// When it was made: RFC 3339, UTC.
    pub made: String,
    /// What opens it, in words.
    pub opened_by: String,
    /// The generations that it holds.
    pub generations: Vec<u32>,
}

/// A check with an escrow copy that found nothing wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drill {
    /// When it was made: RFC 3339, UTC.
    pub when: String,
    /// The generations that the copies held together.
    pub generations: Vec<u32>,
}

/// One check.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Check {
    /// The data directory, backup or archive.
    pub path: String,
    /// The command: `verify`.
    pub command: String,
    /// When it began: RFC 3339, UTC. What changed later may not have been seen.
    pub when: String,
    /// Whether everything was sound.
    pub sound: bool,
}

/// The directory, if there is one that no other user can write.
pub fn directory() -> Option<PathBuf> {
    let named = environment::variable(STATE_DIR_VARIABLE).ok().flatten();
    let dir = PathBuf::from(named.unwrap_or_else(|| STATE_DIR.to_owned()));
    let meta = fs::symlink_metadata(&dir).ok()?;
    let own = meta.uid() == 0 || meta.uid() == rustix::process::geteuid().as_raw();
    (dir.is_absolute() && meta.is_dir() && own && meta.mode() & 0o022 == 0).then_some(dir)
}

fn file_of(dir: &Path, id: KeyringId) -> PathBuf {
    dir.join(format!("{id}.json"))
}

/// What is remembered of the cluster with this keyring.
pub fn of(id: KeyringId) -> Memory {
    let read = || {
        let bytes = small_file::read(&file_of(&directory()?, id)).ok()?;
        serde_json::from_slice(&bytes).ok()
    };
    read().unwrap_or_default()
}

/// Remembers that the keyring got another key.
pub fn rotated(id: KeyringId) {
    change(id, |memory, when| memory.rotated = Some(when));
}

/// Remembers an escrow copy of the keyring that was just made.
pub fn escrow_made(id: KeyringId, copy: EscrowCopy) {
    change(id, |memory, _| memory.add_copy(copy));
}

/// Remembers that these escrow copies were compared with the keyring, and hold all keys in use.
pub fn drilled(id: KeyringId, copies: Vec<EscrowCopy>) {
    change(id, |memory, when| {
        let mut generations: Vec<u32> =
            copies.iter().flat_map(|copy| copy.generations.iter().copied()).collect();
        generations.sort_unstable();
        generations.dedup();
        copies.into_iter().for_each(|copy| memory.add_copy(copy));
        memory.drill = Some(Drill { when, generations });
    });
}

impl Memory {
    fn add_copy(&mut self, copy: EscrowCopy) {
        self.escrow.retain(|known| *known != copy);
        self.escrow.push(copy);
        let surplus = self.escrow.len().saturating_sub(MAX_COPIES);
        self.escrow.drain(..surplus);
    }
}

/// Remembers the result of a check that began at this time.
pub fn checked(id: KeyringId, path: &Path, command: &str, began: &str, sound: bool) {
    remember(id, path, command, began, sound, |memory| &mut memory.checks);
}

/// Remembers whether a file of the audit trail is sound, as its chain and the MACs of this cluster
/// show it.
pub fn trail_checked(id: KeyringId, path: &Path, began: &str, sound: bool) {
    remember(id, path, "audit verify", began, sound, |memory| &mut memory.trail);
}

fn remember(
    id: KeyringId,
    path: &Path,
    command: &str,
    began: &str,
    sound: bool,
    list: impl FnOnce(&mut Memory) -> &mut Vec<Check>,
) {
    let Ok(path) = path.canonicalize() else { return };
    let path = path.display().to_string();
    let (command, when) = (command.to_owned(), began.to_owned());
    change(id, |memory, _| {
        let checks = list(memory);
        checks.retain(|check| check.path != path);
        checks.push(Check { path, command, when, sound });
        let surplus = checks.len().saturating_sub(MAX_CHECKS);
        checks.drain(..surplus);
    });
}

fn change(id: KeyringId, change: impl FnOnce(&mut Memory, String)) {
    let (Some(dir), Ok(when)) = (directory(), pgseal_keys::now()) else { return };
    let mut memory = of(id);
    change(&mut memory, when);
    if let Err(error) = json_file::write(&file_of(&dir, id), MODE, &memory) {
        // A user who may only read there remembers nothing; the check itself was made.
        if error.kind() != io::ErrorKind::PermissionDenied {
            out::complain(&format!(
                "{}: the result cannot be remembered: {error}; \"pgseal status\" will not show it",
                dir.display()
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_escrow_copy_is_remembered_once_and_the_oldest_are_forgotten() {
        let copy = |number: u32| EscrowCopy {
            made: format!("2026-01-31T12:00:{number:02}Z"),
            opened_by: "a passphrase".to_owned(),
            generations: vec![1],
        };
        let mut memory = Memory::default();
        for number in [1, 2, 1] {
            memory.add_copy(copy(number));
        }
        assert_eq!(memory.escrow, [copy(2), copy(1)]);
        (3..30).for_each(|number| memory.add_copy(copy(number)));
        assert_eq!(memory.escrow.len(), MAX_COPIES);
        assert_eq!(memory.escrow.last(), Some(&copy(29)));
    }

    #[test]
    fn a_memory_of_an_earlier_version_is_read() {
        let old = r#"{ "rotated": "2026-01-31T12:00:00Z", "checks": [] }"#;
        let memory: Memory = serde_json::from_str(old).unwrap();
        assert!(memory.rotated.is_some() && memory.escrow.is_empty() && memory.drill.is_none());
    }
}
