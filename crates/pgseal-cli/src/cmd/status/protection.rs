//! The first screen of `pgseal status`: is the cluster sealed, with which key, since when, when was
//! the key changed, is there an escrow copy, was the last backup checked?

use std::io::{self, Write};

use pgseal_keys::{Keyring, Provider};
use serde::{Deserialize, Serialize};

use crate::datadir::DataDir;
use crate::escrow_record;
use crate::memory::{self, Check};
use crate::out::{Out, count};
use crate::scan::Scan;

/// Whether the files of a cluster are sealed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sealed {
    /// No file was looked at.
    #[default]
    Unknown,
    /// Every file of a class that is sealed.
    Yes,
    /// Some are plain.
    Partly,
    /// None.
    No,
}

impl Sealed {
    /// In one word.
    pub fn shown(self) -> &'static str {
        match self {
            Sealed::Unknown => "unknown",
            Sealed::Yes => "yes",
            Sealed::Partly => "PARTLY",
            Sealed::No => "NO",
        }
    }
}

/// The last escrow copy, as the record in the data directory has it (nobody authenticates it).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Escrow {
    pub made: String,
    pub opened_by: String,
    /// The generations of the keyring that it does not hold.
    pub lacks: Vec<u32>,
}

/// A further key that opens the keyring.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecipientRow {
    pub name: String,
    /// The URI of its provider, without secrets.
    pub provider: String,
    /// When it was added.
    pub since: String,
}

/// The answers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Protection {
    pub sealed: Sealed,
    pub sealed_files: u64,
    /// Files that are plain, and of a class that is sealed.
    pub plain_files: u64,
    /// When the keyring was made.
    pub since: Option<String>,
    /// When the active data key was made.
    pub data_key_since: Option<String>,
    /// When the keyring last got another key, as far as this machine remembers.
    pub key_rotated: Option<String>,
    pub escrow: Option<Escrow>,
    /// Further keys that open the keyring.
    #[serde(default)]
    pub recipients: Vec<RecipientRow>,
    /// The last check of this directory that this machine remembers.
    pub verified: Option<Check>,
    /// The last check of another path with the same keyring: a backup, a copy, an archive.
    pub backup_checked: Option<Check>,
    /// Whether this machine has a directory to remember checks in.
    pub remembers: bool,
}

impl Protection {
    /// Gathers the answers.
    pub fn of(dir: &DataDir, scan: Option<&Scan>, keyring: Option<&Keyring>) -> Protection {
        let mut all =
            Protection { remembers: memory::directory().is_some(), ..Protection::default() };
        if let Some(keyring) = keyring {
            all.add_keyring(dir, keyring);
        }
        if let Some(scan) = scan {
            all.add_files(scan);
        }
        all
    }

    fn add_keyring(&mut self, dir: &DataDir, keyring: &Keyring) {
        let summary = keyring.summary();
        let numbers: Vec<u32> = summary.generations.iter().map(|entry| entry.generation).collect();
        let is_active = |number: u32| number == summary.active_generation;
        let active = summary.generations.iter().find(|entry| is_active(entry.generation));
        self.data_key_since = active.map(|entry| entry.created.clone());
        self.since = Some(summary.created);
        let rows = summary.recipients.into_iter().map(|recipient| RecipientRow {
            provider: Provider::shown(&recipient.provider),
            name: recipient.name,
            since: recipient.created,
        });
        self.recipients = rows.collect();
        let record = escrow_record::read(dir);
        let record = record.filter(|record| record.keyring_id == summary.keyring_id);
        self.escrow = record.map(|record| {
            let holds = |number: u32| record.generations.iter().any(|(held, _)| *held == number);
            let lacks = numbers.into_iter().filter(|number| !holds(*number)).collect();
            Escrow { made: record.made, opened_by: record.opened_by, lacks }
        });
        let memory = memory::of(keyring.id());
        self.key_rotated = memory.rotated;
        let own = dir.root.canonicalize().map(|root| root.display().to_string()).ok();
        let last = |is_own: bool| {
            let mut checks = memory.checks.iter().rev();
            checks.find(|check| (Some(&check.path) == own.as_ref()) == is_own).cloned()
        };
        self.verified = last(true);
        self.backup_checked = last(false);
    }

    fn add_files(&mut self, scan: &Scan) {
        self.sealed_files = scan.headers().count() as u64;
        let plain = scan.entries.iter().filter(|entry| {
            entry.should_be_sealed()
                && entry.leftover().is_none()
                && matches!(entry.seen, crate::scan::Seen::Plain)
        });
        self.plain_files = plain.count() as u64;
        self.sealed = match (self.sealed_files, self.plain_files) {
            (0, _) => Sealed::No,
            (_, 0) => Sealed::Yes,
            _ => Sealed::Partly,
        };
    }

    /// Prints the answers, one a line.
    pub fn print(&self, out: &mut Out, dir: &str) -> io::Result<()> {
        let sealed = count(self.sealed_files, "file");
        match self.sealed {
            Sealed::Unknown => {}
            Sealed::Yes => writeln!(out, "Sealed          yes: {sealed}, none plain by mistake")?,
            Sealed::Partly => writeln!(
                out,
                "Sealed          PARTLY: {sealed}, and {} plain that should be sealed",
                count(self.plain_files, "file")
            )?,
            Sealed::No => writeln!(out, "Sealed          NO: no file is sealed")?,
        }
        let Some(since) = &self.since else { return Ok(()) };
        writeln!(out, "Since           {since}")?;
        if let Some(made) = self.data_key_since.as_ref().filter(|made| *made != since) {
            writeln!(out, "Data key        since {made}")?;
        }
        let unknown = if self.remembers {
            "not known on this machine"
        } else {
            "not known: there is no /var/lib/pgseal to remember it in (docs/monitoring.md)"
        };
        writeln!(out, "Key rotated     {}", self.key_rotated.as_deref().unwrap_or(unknown))?;
        for RecipientRow { name, provider, since } in &self.recipients {
            writeln!(out, "Recipient       {name}: {provider}, since {since}")?;
        }
        match &self.escrow {
            None => writeln!(out, "Escrow copy     NONE: pgseal key backup {dir} -o FILE")?,
            Some(copy) if copy.lacks.is_empty() => {
                writeln!(out, "Escrow copy     {}, opened by {}", copy.made, copy.opened_by)?;
            }
            Some(copy) => writeln!(
                out,
                "Escrow copy     {}, LACKS generations {}: make a new one",
                copy.made,
                pgseal_keys::escrow::ranges(&copy.lacks)
            )?,
        }
        for (name, check) in
            [("Verified        ", &self.verified), ("Backup checked  ", &self.backup_checked)]
        {
            match check {
                None => writeln!(out, "{name}{unknown}")?,
                Some(check) => {
                    let result = if check.sound { "sound" } else { "NOT SOUND" };
                    let path = if name.starts_with('B') { check.path.as_str() } else { "" };
                    let gap = if path.is_empty() { "" } else { ", " };
                    let (when, command) = (&check.when, &check.command);
                    writeln!(out, "{name}{path}{gap}{when}, {result} ({command})")?;
                }
            }
        }
        Ok(())
    }
}
