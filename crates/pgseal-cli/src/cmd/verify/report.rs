//! The report of `pgseal verify`, for people and as JSON.

use std::fmt;
use std::io::{self, Write};

use pgseal_keys::manifest::{Difference, Manifest};
use pgseal_pgdata::RelationKind;
use serde::Serialize;

use super::file::{Checked, What};
use super::gaps::Gap;
use crate::exit;
use crate::out::{self, Out, count, human_bytes};
use crate::relation_names::RelationNames;
use crate::scan::{Entry, Seen};

/// The most findings that are shown without `--list`.
const SHOWN: usize = 20;

#[derive(Debug, Default, Serialize)]
struct Files {
    sealed: u64,
    empty: u64,
    plain_by_policy: u64,
    plain_accepted: u64,
    ephemeral: u64,
    /// Found sound by the run that this one continues, and not changed since.
    done_before: u64,
    rebuilt: u64,
    gone: u64,
}

#[derive(Debug, Default, Serialize)]
struct Blocks {
    authenticated: u64,
    not_authenticated: u64,
    /// Pages of WAL without a fitting MAC, which are among `not_authenticated`.
    unfitting: u64,
    zero: u64,
    /// Not looked at, because of --sample or --since.
    skipped: u64,
    damaged: u64,
    settled: u64,
}

#[derive(Debug, Serialize)]
struct FoundJson {
    file: String,
    /// The table or index that the file belongs to, if the catalogs name it.
    #[serde(skip_serializing_if = "Option::is_none")]
    relation: Option<String>,
    class: &'static str,
    what: What,
    failure: bool,
    /// It is damaged, and PostgreSQL rebuilds it.
    rebuilt: bool,
    text: String,
    /// The command that makes the file anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
    /// The damaged blocks: first block and number of blocks of each range.
    blocks: Vec<(u64, u64)>,
}

impl fmt::Display for FoundJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file, self.text)?;
        if let Some(relation) = &self.relation {
            write!(f, "; it belongs to {relation}")?;
        }
        match &self.remedy {
            Some(remedy) => write!(f, ", which {remedy} makes anew"),
            None => Ok(()),
        }
    }
}

#[derive(Debug, Serialize)]
struct ZerosJson {
    file: String,
    /// First block and number of blocks.
    blocks: Vec<(u64, u64)>,
}

#[derive(Debug, Serialize)]
struct ManifestJson {
    number: u64,
    written: String,
    files: usize,
}

/// The result of the whole check.
#[derive(Debug, Serialize)]
pub struct Report {
    directory: String,
    keyring_id: String,
    server_running: bool,
    /// Whether the configuration is locked, with a valid record.
    configuration_locked: bool,
    /// The manifest that the files were compared with.
    manifest: Option<ManifestJson>,
    /// Why whether a file is missing or older is not known.
    completeness_unknown: Option<String>,
    sound: bool,
    /// Which content was checked; all of it, if this is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
    bytes: u64,
    files: Files,
    blocks: Blocks,
    not_authenticated_classes: Vec<String>,
    findings: Vec<FoundJson>,
    zero_blocks: Vec<ZerosJson>,
}

impl Report {
    /// An empty report.
    pub fn new(directory: String, keyring_id: String, server_running: bool) -> Report {
        Report {
            directory,
            keyring_id,
            server_running,
            configuration_locked: false,
            manifest: None,
            completeness_unknown: None,
            sound: true,
            part: None,
            bytes: 0,
            files: Files::default(),
            blocks: Blocks::default(),
            not_authenticated_classes: Vec::new(),
            findings: Vec::new(),
            zero_blocks: Vec::new(),
        }
    }

    /// Adds the result for a file.
    pub fn add(&mut self, entry: &Entry, checked: &Checked) {
        if checked.is_gone {
            self.files.gone += 1;
            return;
        }
        if checked.was_done {
            self.files.done_before += 1;
            return;
        }
        if checked.is_ephemeral {
            self.files.ephemeral += 1;
        } else {
            match &entry.seen {
                Seen::Sealed(_) => self.files.sealed += 1,
                Seen::Empty => self.files.empty += 1,
                Seen::Plain if checked.findings.is_empty() => self.files.plain_by_policy += 1,
                Seen::Plain if !checked.has_failed() => self.files.plain_accepted += 1,
                _ => {}
            }
        }
        let mut damaged = Vec::new();
        if let Some(report) = &checked.report {
            self.bytes += report.sealed_len.0;
            self.blocks.skipped += report.skipped_blocks;
            self.blocks.zero += report.zero.count();
            self.blocks.damaged += report.damaged.count();
            if report.authenticated {
                self.blocks.authenticated += report.data_blocks;
            } else {
                let unfitting = report.unfitting.count();
                self.blocks.not_authenticated += report.data_blocks + unfitting;
                self.blocks.unfitting += unfitting;
                let class = entry.class.name().to_owned();
                if let Err(at) = self.not_authenticated_classes.binary_search(&class) {
                    self.not_authenticated_classes.insert(at, class);
                }
            }
            if !report.zero.is_empty() {
                let blocks = pairs(report.zero.ranges());
                self.zero_blocks.push(ZerosJson { file: entry.name(), blocks });
            }
            damaged = pairs(report.damaged.ranges());
        }
        self.blocks.settled += checked.settled_blocks;
        self.files.rebuilt += u64::from(checked.findings.iter().any(|found| found.is_rebuilt));
        for finding in &checked.findings {
            self.sound &= !finding.is_failure();
            self.findings.push(FoundJson {
                file: entry.name(),
                relation: None,
                class: entry.class.name(),
                what: finding.what,
                failure: finding.is_failure(),
                rebuilt: finding.is_rebuilt,
                text: finding.text.clone(),
                remedy: None,
                blocks: if finding.what == What::DamagedBlocks {
                    damaged.clone()
                } else {
                    Vec::new()
                },
            });
        }
    }

    /// Adds a directory that could not be read.
    pub fn add_closed(&mut self, name: String, why: &str) {
        self.add_failure(name, "directory", What::Unreadable, format!("cannot be read: {why}"));
    }

    /// Adds segments that are missing in an archive.
    pub fn add_gap(&mut self, gap: &Gap) {
        let text = format!(
            "{} missing: no recovery gets past this; archive again what pg_wal or a standby still has",
            count(gap.count, "segment")
        );
        self.add_failure(gap.names(), "wal", What::MissingSegments, text);
    }

    /// Adds the record of the configuration: whether there is a lock, or why the record is not
    /// valid.
    pub fn add_config_record(&mut self, name: String, locked: Result<bool, String>) {
        match locked {
            Ok(locked) => self.configuration_locked = locked,
            Err(why) => {
                let text = format!("{why}; no server starts before pgseal config accept");
                self.add_failure(name, "config-record", What::BadConfigRecord, text);
            }
        }
    }

    /// Adds why a server would refuse the control record.
    pub fn add_bad_control_record(&mut self, name: String, why: &str) {
        let text = format!("{why}; no server starts before pgseal wal accept");
        self.add_failure(name, "control-record", What::BadControlRecord, text);
    }

    /// Adds the comparison with a manifest.
    pub fn add_manifest(&mut self, manifest: &Manifest, differences: Vec<(String, Difference)>) {
        self.manifest = Some(ManifestJson {
            number: manifest.number,
            written: manifest.date(),
            files: manifest.files.len(),
        });
        for (file, difference) in differences {
            // What is wrong with the header of a file says more.
            let says_more = |found: &FoundJson| found.file == file && found.what != What::OnlyZeros;
            if self.findings.iter().any(says_more) {
                continue;
            }
            if !pgseal_pgdata::classify(file.as_bytes()).is_map_of_hints() {
                self.add_failure(file, "manifest", What::NotAsListed, difference.to_string());
                continue;
            }
            self.files.rebuilt += 1;
            self.findings.push(FoundJson {
                file,
                relation: None,
                class: "manifest",
                what: What::NotAsListed,
                failure: false,
                rebuilt: true,
                text: format!("{difference}; does not matter: PostgreSQL rebuilds the file"),
                remedy: None,
                blocks: Vec::new(),
            });
        }
    }

    /// Adds that there is no manifest to compare with, and why. `is_refused`: no server starts.
    pub fn add_no_manifest(&mut self, name: String, why: String, is_refused: bool) {
        if is_refused {
            let text = format!("{why}; no server starts before pgseal manifest write");
            self.add_failure(name, "manifest", What::NotAsListed, text);
        }
        self.completeness_unknown = Some(why);
    }

    fn add_failure(&mut self, file: String, class: &'static str, what: What, text: String) {
        self.sound = false;
        self.findings.push(FoundJson {
            file,
            relation: None,
            class,
            what,
            failure: true,
            rebuilt: false,
            text,
            remedy: None,
            blocks: Vec::new(),
        });
    }

    /// Adds which table or index each file belongs to, and for an index how to make it anew.
    pub fn add_relations(&mut self, names: &mut RelationNames<'_>) {
        for found in &mut self.findings {
            let Some(relation) = names.of(&found.file) else { continue };
            found.relation = Some(relation.to_string());
            if found.failure && relation.kind() == RelationKind::Index {
                found.remedy = Some(format!("REINDEX INDEX {}", relation.sql_name()));
            }
        }
    }

    /// The exit status: damage comes before files that could not be read.
    pub fn exit_code(&self) -> u8 {
        if self.sound {
            exit::SOUND
        } else if self.failures().all(|found| found.what == What::Unreadable) {
            exit::IO
        } else {
            exit::DAMAGE
        }
    }

    fn failures(&self) -> impl Iterator<Item = &FoundJson> {
        self.findings.iter().filter(|found| found.failure)
    }

    /// Prints it for people. `list`: all findings, not only the first ones.
    pub fn print(&self, out: &mut Out, list: bool, quiet: bool) -> io::Result<()> {
        let limit = if list { usize::MAX } else { SHOWN };
        for found in self.failures().take(limit) {
            writeln!(out, "FAILED  {found}")?;
        }
        let failed = self.failures().count();
        if failed > limit {
            writeln!(out, "        and {} more; --list shows all", failed - limit)?;
        }
        if quiet {
            return Ok(());
        }
        for found in self.findings.iter().filter(|found| !found.failure).take(limit) {
            writeln!(out, "note    {found}")?;
        }
        self.print_zeros(out, list)?;
        self.print_counts(out)?;
        if let (true, Some(part)) = (self.sound, &self.part) {
            writeln!(
                out,
                "Sound, as far as it was checked: {part}; {} not looked at.",
                count(self.blocks.skipped, "block")
            )
        } else if self.sound {
            writeln!(out, "Sound.")
        } else {
            writeln!(
                out,
                "NOT SOUND: {}; take these files from a backup, or repair them with \
                 PostgreSQL's means.",
                count(failed as u64, "failure")
            )
        }
    }

    fn print_zeros(&self, out: &mut Out, list: bool) -> io::Result<()> {
        if list {
            for zeros in &self.zero_blocks {
                let ranges: Vec<String> = zeros
                    .blocks
                    .iter()
                    .map(|(first, count)| {
                        let first = pgseal_core::BlockNo(*first);
                        out::blocks(&pgseal_core::verify::BlockRange { first, count: *count })
                    })
                    .collect();
                writeln!(out, "zero    {}: {}", zeros.file, ranges.join(", "))?;
            }
        }
        Ok(())
    }

    fn print_counts(&self, out: &mut Out) -> io::Result<()> {
        let (files, blocks) = (&self.files, &self.blocks);
        writeln!(
            out,
            "{} with {} checked: {} authenticated",
            count(files.sealed, "sealed file"),
            human_bytes(self.bytes),
            count(blocks.authenticated, "block"),
        )?;
        if blocks.not_authenticated > 0 {
            writeln!(
                out,
                "{} of {}: encrypted, not authenticated (only their headers are)",
                count(blocks.not_authenticated, "block"),
                self.not_authenticated_classes.join(", "),
            )?;
        }
        if blocks.unfitting > 0 {
            writeln!(
                out,
                "{} of WAL without a fitting MAC, as a crash leaves them",
                count(blocks.unfitting, "block"),
            )?;
        }
        if blocks.zero > 0 {
            writeln!(
                out,
                "{} never written, in {} (--list shows them)",
                count(blocks.zero, "zero block"),
                count(self.zero_blocks.len() as u64, "file"),
            )?;
        }
        for (number, noun, text) in [
            (files.plain_by_policy, "file", "plain by design (pgseal status says why)"),
            (files.plain_accepted, "file", "plain and accepted"),
            (files.empty, "file", "empty"),
            (files.done_before, "file", "found sound by the run that this one continues"),
            (files.ephemeral, "temporary file", "whose key died with its server: not checked"),
        ] {
            if number > 0 {
                writeln!(out, "{} {text}", count(number, noun))?;
            }
        }
        if let Some(manifest) = &self.manifest {
            let (number, written) = (manifest.number, &manifest.written);
            let files = count(manifest.files as u64, "file");
            writeln!(out, "compared with manifest {number} of {written}: {files}")?;
        }
        if let Some(why) = &self.completeness_unknown {
            writeln!(out, "whether a file is missing or older is not known: {why}")?;
        }
        if self.configuration_locked {
            writeln!(out, "the configuration is locked (pgseal config status compares it)")?;
        }
        if files.rebuilt > 0 {
            writeln!(
                out,
                "{} damaged that PostgreSQL rebuilds by itself: a power cut leaves such; if there \
                 was none, somebody changed {}",
                if files.rebuilt == 1 {
                    "1 file is".to_owned()
                } else {
                    format!("{} files are", files.rebuilt)
                },
                if files.rebuilt == 1 { "it" } else { "them" },
            )?;
        }
        if self.server_running {
            writeln!(
                out,
                "A server is running: what it changed meanwhile was read again ({}), {} went away.",
                count(blocks.settled, "block"),
                count(files.gone, "file"),
            )?;
        }
        Ok(())
    }
}

fn pairs(ranges: &[pgseal_core::verify::BlockRange]) -> Vec<(u64, u64)> {
    ranges.iter().map(|range| (range.first.0, range.count)).collect()
}
