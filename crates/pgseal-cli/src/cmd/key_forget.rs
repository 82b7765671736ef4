//! `pgseal key forget`: retired data keys that nothing has any more.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;

use pgseal_core::Generation;
use pgseal_keys::{GenerationState, keyring_path, update};

use crate::datadir::DataDir;
use crate::error::CliError;
use crate::out::Out;
use crate::scan::{self, Root};
use crate::{exit, keys};

/// Removes them, if the user says that no backup has them.
pub fn run(dir: &Path, provider: Option<&str>, no_backup: bool) -> Result<u8, CliError> {
    let dir = DataDir::open(dir)?;
    dir.expect_whole()?;
    let scan = scan::scan(&dir.root, Root::DataDir);
    let none = keys::KeyOptions::default();
    let keyring = keys::keyring_of(&dir, &none, || scan.headers().next().is_some())?;
    if let Some((path, why)) = scan.closed.first() {
        return Err(CliError::NotNow(format!(
            "{}: not readable ({why}), so it cannot be told which data keys it needs",
            path.display()
        )));
    }
    let used: BTreeSet<u32> = scan
        .headers()
        .filter(|header| header.keyring_id == keyring.id())
        .map(|header| header.generation.0)
        .collect();
    let retired = keyring.summary().generations;
    let retired = retired.iter().filter(|entry| entry.state == GenerationState::Retired);
    let (needed, unused): (Vec<u32>, Vec<u32>) =
        retired.map(|entry| entry.generation).partition(|number| used.contains(number));
    let mut out = Out::new();
    if !needed.is_empty() {
        let needed = list(&needed);
        writeln!(out, "Kept: {needed}, which files of the data directory have (pgseal rekey).")?;
    }
    if unused.is_empty() {
        writeln!(out, "There is no retired data key that could go.")?;
        out.flush()?;
        return Ok(exit::SOUND);
    }
    if !no_backup {
        out.flush()?;
        return Err(CliError::Usage(format!(
            "key forget: {} could go: no file of the data directory has them. Every backup and all \
             archived WAL sealed with them can never be read again; if there are none left, add \
             --no-backup-has-them",
            list(&unused)
        )));
    }
    let kek = keys::kek(&keyring, provider)?;
    let numbers: Vec<Generation> = unused.iter().copied().map(Generation).collect();
    update(&keyring_path(&dir.root), |keyring| keyring.forget_generations(&kek, &numbers))?;
    writeln!(out, "Removed: {}.", list(&unused))?;
    out.flush()?;
    Ok(exit::SOUND)
}

fn list(numbers: &[u32]) -> String {
    let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
    format!("generation {}", numbers.join(", "))
}
