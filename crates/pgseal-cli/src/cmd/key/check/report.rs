//! The report of `pgseal key check`, for people and as JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use pgseal_keys::{Keyring, Provider, escrow};
use serde::Serialize;

use super::sources::Sources;
use crate::error::CliError;
use crate::memory::{self, EscrowCopy};
use crate::out::{Out, count, human_bytes};
use crate::scan::{Entry, Seen};
use crate::{exit, register};

/// The most files that are shown without `--list`.
const SHOWN: usize = 10;

/// The name of a data directory in the report.
pub const DATA_DIRECTORY: &str = "data directory";
/// What a keyring alone is called, as that of sealed columns.
pub const KEYRING: &str = "keyring";

/// Why a file would not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// It names another keyring.
    OtherKeyring,
    /// It names a generation that the keyring does not have.
    MissingGeneration,
    /// Its header is damaged.
    Header,
    /// The operating system refuses to read it.
    Unreadable,
}

/// The keyring that was found.
#[derive(Debug, Serialize)]
pub struct KeyringRow {
    /// Its path.
    pub path: String,
    /// 32 hexadecimal digits.
    pub id: String,
    /// The provider that it names.
    pub provider: String,
    /// Generation that new files get.
    pub active_generation: u32,
    /// Its generations, oldest first.
    pub generations: Vec<u32>,
}

impl KeyringRow {
    /// The row of a keyring.
    pub fn of(keyring: &Keyring) -> KeyringRow {
        let summary = keyring.summary();
        KeyringRow {
            path: keyring.path().display().to_string(),
            id: summary.keyring_id,
            provider: Provider::shown(&summary.provider),
            active_generation: summary.active_generation,
            generations: summary.generations.iter().map(|entry| entry.generation).collect(),
        }
    }
}

/// The provider that was asked for the key.
#[derive(Debug, Serialize)]
pub struct ProviderRow {
    /// Its URI without secrets.
    pub provider: String,
    /// Whether it gave a key.
    pub answered: bool,
    /// How long that took, in milliseconds; a passphrase includes the typing.
    pub ms: u64,
}

/// The files of one generation.
#[derive(Debug, Default, Serialize)]
pub struct GenerationRow {
    /// Its number.
    pub generation: u32,
    /// Files sealed with it.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Whether the keyring has it.
    pub in_keyring: bool,
}

#[derive(Debug, Serialize)]
struct Problem {
    file: String,
    what: Fault,
    text: String,
}

/// An escrow copy, compared with the keyring and the files.
#[derive(Debug, Serialize)]
pub struct EscrowRow {
    /// The file that it was read from.
    pub file: String,
    /// The date of the copy.
    pub made: String,
    /// What opens it, in words.
    pub opened_by: String,
    /// Whether it is of this keyring.
    pub same_keyring: bool,
    /// Its generations.
    pub generations: Vec<u32>,
    /// Generations of the keyring or the files that it lacks.
    pub lacking: Vec<u32>,
    /// Generations for which it holds another key.
    pub differing: Vec<u32>,
}

impl EscrowRow {
    /// Whether it can replace the keyring.
    pub fn covers(&self) -> bool {
        self.same_keyring && self.lacking.is_empty() && self.differing.is_empty()
    }
}

/// An error about the keyring or the key.
#[derive(Debug, Serialize)]
struct KeyFault {
    exit_code: u8,
    text: String,
}

/// The result of the whole check.
#[derive(Debug, Serialize)]
pub struct Report {
    path: String,
    what: &'static str,
    server_running: bool,
    /// The keyring, if one was found and could be read.
    pub keyring: Option<KeyringRow>,
    /// The keyring itself, if a key has authenticated it.
    #[serde(skip)]
    pub opened: Option<Keyring>,
    /// The provider, if it was asked.
    pub provider: Option<ProviderRow>,
    /// Which of the keys that open the keyring do so now.
    pub sources: Sources,
    /// Whether a key that could be asked for, and does not open the keyring, is a failure.
    #[serde(skip)]
    pub every_recipient: bool,
    /// Whether the keyring could be unlocked.
    pub unlocked: bool,
    error: Option<KeyFault>,
    /// Files that are sealed, without the ephemeral ones.
    pub sealed_files: u64,
    ephemeral_files: u64,
    plain_files: u64,
    empty_files: u64,
    /// The generations that the files name, oldest first.
    pub generations: Vec<GenerationRow>,
    #[serde(skip)]
    ids: BTreeMap<String, u64>,
    problems: Vec<Problem>,
    /// The escrow copies that were given.
    pub escrow: Vec<EscrowRow>,
    /// The last copy that was made of the keyring, from the record in the data directory.
    pub last_escrow: Option<LastEscrow>,
}

/// The record of the last escrow copy.
#[derive(Debug, Serialize)]
pub struct LastEscrow {
    /// The date of the copy.
    pub made: String,
    /// What opens it, in words.
    pub opened_by: String,
    /// Generations of the keyring or the files that it lacks.
    pub lacking: Vec<u32>,
}

impl Report {
    /// An empty report.
    pub fn new(path: String, what: &'static str, server_running: bool) -> Report {
        Report {
            path,
            what,
            server_running,
            keyring: None,
            opened: None,
            provider: None,
            sources: Sources::default(),
            every_recipient: false,
            unlocked: false,
            error: None,
            sealed_files: 0,
            ephemeral_files: 0,
            plain_files: 0,
            empty_files: 0,
            generations: Vec::new(),
            ids: BTreeMap::new(),
            problems: Vec::new(),
            escrow: Vec::new(),
            last_escrow: None,
        }
    }

    /// Generations of the files and of the keyring that `held` lacks.
    pub fn lacking(&self, held: &[u32]) -> Vec<u32> {
        let files = self.generations.iter().map(|row| row.generation);
        let keyring = self.keyring.iter().flat_map(|keyring| keyring.generations.iter().copied());
        let all: BTreeSet<u32> = files.chain(keyring).filter(|n| !held.contains(n)).collect();
        all.into_iter().collect()
    }

    /// The keyring that most files name, else the one that was found.
    pub fn wanted_id(&self) -> Option<String> {
        let most = self.ids.iter().max_by_key(|(_, files)| **files).map(|(id, _)| id.clone());
        most.or_else(|| self.keyring.as_ref().map(|keyring| keyring.id.clone()))
    }

    /// Adds the error that keeps the keyring from opening.
    pub fn add_error(&mut self, error: &CliError) {
        self.error = Some(KeyFault { exit_code: exit::code_of(error), text: error.to_string() });
    }

    /// Adds the fault of a file.
    pub fn add(&mut self, file: String, what: Fault, text: String) {
        self.problems.push(Problem { file, what, text });
    }

    /// Counts a file.
    pub fn count(&mut self, entry: &Entry) {
        let header = match &entry.seen {
            Seen::Sealed(header) if header.generation.is_ephemeral() => {
                self.ephemeral_files += 1;
                return;
            }
            Seen::Sealed(header) => header,
            Seen::Plain => {
                self.plain_files += 1;
                return;
            }
            Seen::Empty => {
                self.empty_files += 1;
                return;
            }
            _ => return,
        };
        self.sealed_files += 1;
        *self.ids.entry(header.keyring_id.to_string()).or_default() += 1;
        let generation = header.generation.0;
        let known = self.keyring.as_ref().filter(|ring| ring.id == header.keyring_id.to_string());
        let in_keyring = known.is_some_and(|ring| ring.generations.contains(&generation));
        let at = self.generations.binary_search_by_key(&generation, |row| row.generation);
        let at = at.unwrap_or_else(|at| {
            let row = GenerationRow { generation, in_keyring, ..GenerationRow::default() };
            self.generations.insert(at, row);
            at
        });
        if let Some(row) = self.generations.get_mut(at) {
            row.files += 1;
            row.bytes += entry.len;
        }
    }

    /// The exit status: an error of the keyring comes first, then a missing key, then damage.
    pub fn exit_code(&self) -> u8 {
        let has = |faults: &[Fault]| self.problems.iter().any(|found| faults.contains(&found.what));
        if let Some(error) = &self.error {
            error.exit_code
        } else if has(&[Fault::OtherKeyring, Fault::MissingGeneration]) {
            exit::OTHER_KEYRING
        } else if has(&[Fault::Header]) || !self.escrow.iter().all(EscrowRow::covers) {
            exit::DAMAGE
        } else if let Some(code) = self.sources.failure().filter(|_| self.every_recipient) {
            code
        } else if has(&[Fault::Unreadable]) {
            exit::IO
        } else {
            exit::SOUND
        }
    }

    /// Remembers on this machine that escrow copies were compared with the keyring, if all is
    /// well.
    pub fn remember_drill(&self) {
        let id = self.keyring.as_ref().and_then(|keyring| register::parse_id(&keyring.id));
        let is_sound = self.unlocked && self.exit_code() == exit::SOUND;
        let Some(id) = id.filter(|_| is_sound && !self.escrow.is_empty()) else { return };
        let copies = self.escrow.iter().map(|copy| EscrowCopy {
            made: copy.made.clone(),
            opened_by: copy.opened_by.clone(),
            generations: copy.generations.clone(),
        });
        memory::drilled(id, copies.collect());
    }

    /// The first error or fault, in words.
    pub fn first_fault(&self) -> Option<String> {
        if let Some(error) = &self.error {
            return Some(error.text.clone());
        }
        let first = self.problems.first()?;
        let more = match self.problems.len() - 1 {
            0 => String::new(),
            more => format!(" (and {more} more)"),
        };
        Some(format!("{}: {}{more}", first.file, first.text))
    }

    /// Whether all files would open.
    pub fn opens(&self) -> bool {
        self.error.is_none() && self.problems.is_empty()
    }

    /// Prints it for people.
    pub fn print(&self, out: &mut Out, list: bool) -> io::Result<()> {
        let running = if self.server_running { ", a server is running on it" } else { "" };
        writeln!(out, "{}: {}{running}", self.path, self.what)?;
        if let Some(keyring) = &self.keyring {
            let numbers = escrow::ranges(&keyring.generations);
            writeln!(out, "Keyring   {}: {}, generations {numbers}", keyring.path, keyring.id)?;
        }
        if let Some(provider) = &self.provider {
            let did = if provider.answered { "answered" } else { "FAILED" };
            writeln!(out, "Provider  {}: {did} in {} ms", provider.provider, provider.ms)?;
        }
        self.sources.print(out)?;
        match &self.error {
            Some(error) => writeln!(out, "FAILED    {}", error.text)?,
            None => writeln!(out, "Unlocked  yes: the key is right, and the keyring is sound")?,
        }
        for row in &self.generations {
            let missing = if row.in_keyring { "" } else { ", NOT in the keyring" };
            writeln!(
                out,
                "Files     {} of generation {}, {}{missing}",
                count(row.files, "file"),
                row.generation,
                human_bytes(row.bytes)
            )?;
        }
        if self.ephemeral_files > 0 {
            let files = count(self.ephemeral_files, "temporary file");
            writeln!(out, "          {files}, whose key lives only in a server's memory")?;
        }
        let limit = if list { usize::MAX } else { SHOWN };
        for problem in self.problems.iter().take(limit) {
            writeln!(out, "FAILED    {}: {}", problem.file, problem.text)?;
        }
        if self.problems.len() > limit {
            writeln!(out, "          and {} more; --list shows all", self.problems.len() - limit)?;
        }
        self.print_escrow(out)?;
        match (self.opens(), self.sealed_files) {
            (true, 0) => writeln!(out, "The keyring opens; there is no sealed file."),
            (true, files) => writeln!(out, "Opens: the headers of {} did.", count(files, "file")),
            (false, _) => writeln!(out, "DOES NOT OPEN as it is."),
        }
    }

    fn print_escrow(&self, out: &mut Out) -> io::Result<()> {
        for copy in &self.escrow {
            let mut wrong = Vec::new();
            if !copy.same_keyring {
                wrong.push("it is of another keyring".to_owned());
            } else {
                if !copy.lacking.is_empty() {
                    wrong.push(format!("it lacks generations {}", escrow::ranges(&copy.lacking)));
                }
                if !copy.differing.is_empty() {
                    let numbers = escrow::ranges(&copy.differing);
                    wrong.push(format!("its keys of generations {numbers} are others"));
                }
            }
            let verdict = match wrong.is_empty() {
                true => "holds all keys in use".to_owned(),
                false => format!("DOES NOT COVER the files: {}; make a new one", wrong.join(", ")),
            };
            let (file, made, opened_by) = (&copy.file, &copy.made, &copy.opened_by);
            writeln!(out, "Escrow    {file} of {made}, opened by {opened_by}: {verdict}")?;
        }
        match &self.last_escrow {
            _ if !self.escrow.is_empty() => Ok(()),
            Some(last) if last.lacking.is_empty() => {
                writeln!(out, "Escrow    last copy {}, opened by {}", last.made, last.opened_by)
            }
            Some(last) => writeln!(
                out,
                "Escrow    last copy {}, which lacks generations {}: make a new one (pgseal key \
                 backup)",
                last.made,
                escrow::ranges(&last.lacking)
            ),
            None if self.what == DATA_DIRECTORY && self.unlocked => writeln!(
                out,
                "Escrow    none is known: without one, a lost key is lost data (pgseal key backup)"
            ),
            None => Ok(()),
        }
    }
}
