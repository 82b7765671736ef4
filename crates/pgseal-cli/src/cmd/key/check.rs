//! `pgseal key check`: checks whether the known keys open a directory's files.

mod report;
mod sources;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use pgseal_core::geometry::HEAD_LEN;
use pgseal_core::{KeySet, KeyringId, SealError, SealedFile};
use pgseal_keys::escrow::{self, EscrowCopy};
use pgseal_keys::{Kek, Keyring, Provider, Source};
use zeroize::Zeroizing;

pub use self::report::Report;
use self::report::{
    DATA_DIRECTORY, EscrowRow, Fault, KEYRING, KeyringRow, LastEscrow, ProviderRow,
};
pub use self::sources::State;
use crate::datadir::DataDir;
use crate::error::CliError;
use crate::escrow_record;
use crate::given_dir::GivenPath;
use crate::keys::{self, KeyOptions};
use crate::out::Out;
use crate::scan::{self, Entry, Root, Scan, Seen};
use crate::small_file;
use crate::storage::ReadOnly;

const EXAMPLES: &str = "\
Examples:
  pgseal key check /srv/postgres/data
  pgseal key check /srv/postgres/data --escrow escrow.txt
  pgseal key check /backup/base -K file:/mnt/usb/old.key
  pgseal key check /etc/pgseal/columns/keyring
  pgseal key check /backup/wal --keyring /backup/base/pgseal/keyring

Nothing is changed, no server is needed, and one may run. What is read of each file is its header,
which is authenticated; the blocks behind it are what \"pgseal verify\" looks at. Every source of
a key is asked, for the keyring itself and for each recipient; one that opens the keyring is enough.

Exit status: 0 everything would open; 1 a header is damaged, or an escrow copy does not cover the
files; 10 to 16 as for every command that needs the key: pgseal --help.";

/// How often a file that a running server may be changing is read before its fault counts.
const LOOKS: u32 = 5;
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// Would this cluster, backup, archive or file open with the keys at hand?
///
/// Finds the keyring, asks the key provider, unlocks, opens the header of every file, and says
/// which generations of data keys the files need.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    path: GivenPath,
    #[command(flatten)]
    keys: KeyOptions,
    /// An escrow copy: does it hold all keys in use? Needs nothing that opens it; may be repeated
    #[arg(long, value_name = "FILE")]
    escrow: Vec<PathBuf>,
    /// Fail if one of the keys that open the keyring does not open it now: its own, or that of a
    /// recipient. A passphrase that a person types is not asked for
    #[arg(long)]
    every_recipient: bool,
    /// List every file that would not open
    #[arg(long)]
    list: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<u8, CliError> {
    let copies = read_copies(&args.escrow)?;
    let mut report = look(&args.path.path("key check")?, &args.keys, &copies, Asks::Everybody)?;
    report.every_recipient = args.every_recipient;
    report.remember_drill();
    let mut out = Out::new();
    if args.json {
        out.json(&report)?;
    } else {
        report.print(&mut out, args.list)?;
    }
    out.flush()?;
    Ok(report.exit_code())
}

/// The whole check.
///
/// # Errors
/// Only when the path cannot be checked at all; everything that keeps files from opening is in the
/// report.
pub fn look(
    path: &Path,
    options: &KeyOptions,
    copies: &[EscrowCopy],
    asks: Asks,
) -> Result<Report, CliError> {
    let (what, mut scan, dir) = open(path)?;
    judge(path, what, dir.as_ref(), &mut scan, options, copies, asks)
}

/// The check of a data directory that was scanned already. No person is asked for a passphrase if
/// there is another source.
///
/// # Errors
/// As [`look`].
pub fn look_at(dir: &DataDir, scan: &mut Scan, options: &KeyOptions) -> Result<Report, CliError> {
    judge(&dir.root, DATA_DIRECTORY, Some(dir), scan, options, &[], Asks::Machines)
}

/// Who may be asked for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// Every source.
    Everybody,
    /// No person, if there is another source.
    Machines,
}

fn judge(
    path: &Path,
    what: &'static str,
    dir: Option<&DataDir>,
    scan: &mut Scan,
    options: &KeyOptions,
    copies: &[EscrowCopy],
    asks: Asks,
) -> Result<Report, CliError> {
    let is_live = dir.is_some_and(|dir| dir.server_pid().is_some());
    let mut report = Report::new(path.display().to_string(), what, is_live);
    let wanted = scan.headers().next().map(|header| header.keyring_id);
    let keyring = find_keyring(path, what == KEYRING, dir, wanted, options);
    let keyring = keyring.and_then(|keyring| {
        report.keyring = Some(KeyringRow::of(&keyring));
        scan.expect_keyring(&keyring)?;
        Ok(keyring)
    });
    let keys = keyring.and_then(|keyring| {
        let kek = ask(&keyring, options.provider.as_deref(), asks, &mut report)?;
        let keys = keyring.unlock(&kek)?;
        report.opened = Some(keyring);
        Ok(keys)
    });
    let keys = match keys {
        Ok(keys) => Some(keys),
        // A plain directory or a wrong command line is an error of the command, not a finding.
        Err(error @ (CliError::NotSealed { .. } | CliError::Usage(_))) => return Err(error),
        Err(error) => {
            report.add_error(&error);
            None
        }
    };
    report.unlocked = keys.is_some();
    for entry in &mut scan.entries {
        check_file(entry, keys.as_ref(), is_live, &mut report);
    }
    for (path, why) in &scan.closed {
        report.add(path.display().to_string(), Fault::Unreadable, why.clone());
    }
    let record = dir.and_then(escrow_record::read);
    report.last_escrow =
        record.filter(|last| Some(&last.keyring_id) == report.wanted_id().as_ref()).map(|last| {
            let held: Vec<u32> = last.generations.iter().map(|(number, _)| *number).collect();
            LastEscrow {
                made: last.made,
                opened_by: last.opened_by,
                lacking: report.lacking(&held),
            }
        });
    for copy in copies {
        report.escrow.push(compare(copy, &report, keys.as_ref())?);
    }
    Ok(report)
}

fn read_copies(files: &[PathBuf]) -> Result<Vec<EscrowCopy>, CliError> {
    let mut copies = Vec::new();
    for path in files {
        let bytes = fs::read(path).map_err(CliError::io(path, "read the escrow copy"))?;
        let bytes = Zeroizing::new(bytes);
        let text = Zeroizing::new(String::from_utf8_lossy(&bytes).into_owned());
        copies.extend(escrow::read_all(&text, &path.display().to_string())?);
    }
    Ok(copies)
}

fn open(path: &Path) -> Result<(&'static str, Scan, Option<DataDir>), CliError> {
    if path.is_file() {
        crate::as_owner::step_down_beside(path)?;
        if is_keyring(path) {
            return Ok((KEYRING, Scan::default(), None));
        }
        return Ok(("file", scan::one_file(path), None));
    }
    match DataDir::open(path) {
        Ok(dir) => Ok((DATA_DIRECTORY, scan::scan(&dir.root, Root::DataDir), Some(dir))),
        Err(CliError::NotDataDir { path, .. }) => {
            Ok(("archive", scan::scan(&path, Root::Archive), None))
        }
        Err(error) => Err(error),
    }
}

/// Whether the file is a keyring, as that of sealed columns. A damaged one is one as well.
fn is_keyring(path: &Path) -> bool {
    !matches!(scan::one_file(path).entries.first(), Some(Entry { seen: Seen::Sealed(_), .. }))
        && small_file::read_text(path).is_ok_and(|text| text.contains("\"pgseal-keyring\""))
}

/// The keyring: the given one, else that of the directory, else one of `PGSEAL_DATA`.
fn find_keyring(
    path: &Path,
    is_alone: bool,
    dir: Option<&DataDir>,
    wanted: Option<KeyringId>,
    options: &KeyOptions,
) -> Result<Keyring, CliError> {
    match (dir, &options.keyring) {
        (Some(dir), _) => keys::keyring_of(dir, options, || wanted.is_some()),
        (None, Some(keyring)) => Ok(Keyring::load(keyring)?),
        (None, None) if is_alone => Ok(Keyring::load(path)?),
        (None, None) => {
            let Some(wanted) = wanted else {
                return Err(CliError::NotSealed {
                    path: path.to_owned(),
                    remedy: "there is no sealed file in it",
                });
            };
            let above = crate::datadir::above(path).map(|dir| pgseal_keys::keyring_path(&dir));
            let found = above.or_else(|| keys::in_data_list(wanted)).ok_or_else(|| {
                CliError::Usage(format!(
                    "{}: it is in no data directory, so its keyring ({wanted}) is not known; give \
                     --keyring FILE, or set PGSEAL_DATA",
                    path.display()
                ))
            })?;
            Ok(Keyring::load(&found)?)
        }
    }
}

/// Tries every source with every slot, and returns a key that opens the keyring.
fn ask(
    keyring: &Keyring,
    provider: Option<&str>,
    asks: Asks,
    report: &mut Report,
) -> Result<Kek, CliError> {
    let start = Instant::now();
    let source = keys::source(keyring, provider)?;
    // Where there is one source for one key, trying it would only ask twice.
    let is_one = source.providers().len() == 1 && keyring.provider_uris().len() == 1;
    let attempts = if is_one { Vec::new() } else { keys::try_all(&source, keyring)? };
    let opened = attempts.iter().find_map(|attempt| attempt.result.as_ref().ok());
    let kek = match opened {
        Some(kek) => Ok(kek.duplicate()),
        // Again, as a start does it: with patience, at last a person, and with its words.
        None => keys::kek_from(&who(&source, asks), keyring),
    };
    report.provider = Some(ProviderRow {
        provider: source.shown(),
        answered: kek.is_ok(),
        ms: u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX),
    });
    report.sources = sources::rows(keyring, &source, &attempts, kek.as_ref().ok());
    match &kek {
        _ if !is_one => {}
        Ok(kek) => report.sources.only(keyring.unlock(kek).as_ref().err()),
        Err(CliError::Key(error)) => report.sources.only(Some(error)),
        Err(_) => {}
    }
    kek
}

/// The source without persons, where none may be asked and there is another one.
fn who(source: &Source, asks: Asks) -> Source {
    let machines: Vec<Provider> =
        source.providers().iter().filter(|one| !one.needs_person()).cloned().collect();
    match asks {
        Asks::Machines if !machines.is_empty() => Source::Providers(machines),
        _ => source.clone(),
    }
}

fn check_file(entry: &mut Entry, keys: Option<&KeySet>, is_live: bool, report: &mut Report) {
    let mut found = header_of(entry, keys);
    for _ in 1..LOOKS {
        if found.is_none() || !is_live {
            break;
        }
        thread::sleep(BETWEEN_LOOKS);
        scan::look_again(entry);
        found = header_of(entry, keys);
    }
    report.count(entry);
    if let Some((fault, text)) = found {
        report.add(entry.name(), fault, text);
    }
}

/// Why a file would not open; `None` if it does.
fn header_of(entry: &Entry, keys: Option<&KeySet>) -> Option<(Fault, String)> {
    let header = match &entry.seen {
        Seen::Sealed(header) => header,
        Seen::HeaderLost { bytes_behind } => {
            let text = format!("zeros in the place of the header, and {bytes_behind} bytes behind");
            return Some((Fault::Header, text));
        }
        Seen::BadHeader(text) => return Some((Fault::Header, text.clone())),
        Seen::Unreadable(why) => return Some((Fault::Unreadable, why.clone())),
        _ => return None,
    };
    if header.generation.is_ephemeral() {
        return None;
    }
    let keys = keys?;
    if header.keyring_id != keys.keyring_id {
        let text = format!("sealed with another keyring, {}", header.keyring_id);
        return Some((Fault::OtherKeyring, text));
    }
    let mut start = vec![0; HEAD_LEN as usize];
    let read = ReadOnly::open(&entry.path, false).and_then(|file| file.raw(&mut start, 0));
    match read {
        Ok(len) => start.truncate(len),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => return Some((Fault::Unreadable, error.to_string())),
    }
    match SealedFile::from_header(&start, *header, keys) {
        Ok(_) => None,
        Err(SealError::KeyUnknown { generation, .. }) => {
            let text = format!("sealed with generation {generation}, which the keyring lacks");
            Some((Fault::MissingGeneration, text))
        }
        Err(error) => Some((Fault::Header, error.to_string())),
    }
}

/// Compares an escrow copy with the keyring and the files.
fn compare(
    copy: &EscrowCopy,
    report: &Report,
    keys: Option<&KeySet>,
) -> Result<EscrowRow, CliError> {
    let summary = copy.summary();
    let held: Vec<u32> = summary.generations.iter().map(|(number, _)| *number).collect();
    let mut differing = Vec::new();
    for generation in keys.into_iter().flat_map(KeySet::generations) {
        let key = keys.and_then(|keys| keys.get(generation));
        if let Some(key) = key
            && copy.holds(generation, key)? == Some(false)
        {
            differing.push(generation.0);
        }
    }
    let id = report.wanted_id();
    Ok(EscrowRow {
        file: copy.origin().to_owned(),
        made: summary.made,
        opened_by: summary.opened_by,
        same_keyring: id.as_deref().is_none_or(|id| id == summary.keyring_id),
        lacking: report.lacking(&held),
        generations: held,
        differing,
    })
}
