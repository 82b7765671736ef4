//! `pgseal key restore`: makes the keyring again from an escrow copy.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use clap::ValueHint;
use pgseal_convert::{Disk, Journal, Phase};
use pgseal_core::{Generation, KeySet, KeyringId};
use pgseal_keys::escrow::{self, EscrowCopy, OpenedBy};
use pgseal_keys::{KeyError, Keyring, Provider, config_record_path, keyring_path, manifest_path};
use serde::Serialize;
use zeroize::Zeroizing;

use crate::datadir::{DataDir, expect_whole};
use crate::error::CliError;
use crate::locks::{OwnLock, ServerLock};
use crate::out::{Out, count};
use crate::scan::{self, Root};
use crate::values::KeySource;
use crate::{audit, exit, given_dir, keys, manifest, register};

const EXAMPLES: &str = "\
Examples:
  The keyring or its key was lost; a new key for it:
    pgseal key new -o /etc/pgseal/new.key
    pgseal key restore /srv/postgres/data escrow.txt -K file:/etc/pgseal/new.key
  From paper: without a file, the lines are asked for one by one.
    pgseal key restore /srv/postgres/data -K file:/etc/pgseal/new.key
  From shares:
    pgseal key restore /srv/postgres/data alice.txt bob.txt carol.txt -K file:/etc/pgseal/new.key
  A keyring alone, for an archive of WAL:
    pgseal key restore /backup/keyring escrow.txt -K file:/etc/pgseal/new.key

With --force, a copy that lacks a generation which files have is refused while a server runs on the data
directory or a conversion of it is unfinished. Refused, too, while another pgseal works on it.

A second run with the same copy and the same key changes nothing, if neither is a passphrase that is
asked for nor in a key store; otherwise a keyring that is there is refused (exit status 5).

Exit status: 1 if files need a generation that the copy does not hold; others: pgseal --help.";

/// The longest text of escrow copies, in bytes: 255 shares of a full keyring are shorter.
const MAX_TEXT_LEN: u64 = 64 << 20;

/// Make the keyring anew from an escrow copy, under a new key
///
/// The data keys in it, and so all sealed files, stay what they are.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The data directory, or the name of a keyring file to make; default: PGDATA
    #[arg(value_hint = ValueHint::AnyPath)]
    path: Option<PathBuf>,
    /// Files with the escrow copy or its shares, - for standard input; without any, they are asked
    /// for on the terminal
    #[arg(value_name = "COPY", value_hint = ValueHint::FilePath)]
    copies: Vec<PathBuf>,
    /// The data directory; then each argument is a COPY
    #[arg(short = 'D', long = "pgdata", value_name = "DIR", value_hint = ValueHint::DirPath)]
    pgdata: Option<PathBuf>,
    /// Where the new key of the keyring comes from: env:NAME, file:PATH, command:SHELL COMMAND,
    /// passphrase:
    #[arg(short = 'K', long = "key-provider", value_name = "NEW")]
    #[arg(value_parser = KeySource, hide_possible_values = true)]
    new: String,
    /// What opens the copy, if it is not asked for: as --lock of pgseal key backup
    #[arg(long, value_name = "PROVIDER")]
    #[arg(value_parser = KeySource, hide_possible_values = true)]
    unlock: Option<String>,
    /// Put the new keyring in the place of another one, which is kept beside it
    #[arg(long)]
    force: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What was done.
#[derive(Debug, Serialize)]
struct Done {
    keyring: String,
    keyring_id: String,
    /// Whether the keyring was made: not if this one is there already.
    changed: bool,
    generations: Vec<u32>,
    provider: String,
    /// Where the keyring that was there is now.
    replaced: Option<String>,
    /// Whether the configuration was locked: the restored keyring does not say so.
    configuration_was_locked: bool,
    /// Whether the manifest of the last shutdown is lost: no server starts without it.
    manifest_lost: bool,
    /// The generations that files have and the copy does not hold, with the number of files.
    lost: BTreeMap<u32, u64>,
    /// The generation that was added above them.
    added: Option<u32>,
    /// What is left to do, in lines.
    next: Vec<String>,
}

impl Args {
    /// The data directory or keyring to make, and the files with the copy.
    fn path_and_copies(&self) -> Result<(PathBuf, Vec<PathBuf>), CliError> {
        match &self.pgdata {
            Some(dir) => Ok((dir.clone(), self.path.iter().chain(&self.copies).cloned().collect())),
            None => {
                let path = given_dir::or_pgdata(self.path.as_deref(), "key restore", "PATH")?;
                if self.path.is_some() && self.copies.is_empty() && is_copy(&path) {
                    return Err(CliError::Usage(format!(
                        "{}: this is an escrow copy, and no data directory; name the directory \
                         before it, or with -D DIR",
                        path.display()
                    )));
                }
                Ok((path, self.copies.clone()))
            }
        }
    }
}

pub fn run(args: &Args) -> Result<u8, CliError> {
    // Before root steps down: the owner of the directory may not be able to read the copies.
    let (path, copies) = args.path_and_copies()?;
    let copies = read(&copies)?;
    let (path, dir) = target(&path)?;
    let _lock = dir.as_ref().map(|dir| OwnLock::take(&dir.root)).transpose()?;
    let is_there = fs::symlink_metadata(&path).is_ok();
    let in_use = dir.as_ref().map(|dir| in_use(dir, is_there)).transpose()?.flatten();
    if is_there && !args.force {
        if let Some(keyring) = restored_before(&path, dir.as_ref(), &copies, args) {
            let mut done = done(&keyring, &path, None, &BTreeMap::new(), None);
            done.changed = false;
            let mut out = Out::new();
            match args.json {
                true => out.json(&done)?,
                false => writeln!(
                    out,
                    "{}: restored from this copy already, under the key of {}; nothing was changed.",
                    done.keyring, done.provider
                )?,
            }
            out.flush()?;
            return Ok(exit::SOUND);
        }
        return Err(CliError::Exists {
            path,
            what: "there is a keyring already, and it was left alone",
            remedy: "\"pgseal key check DIR\" says whether it opens the files; --force puts the \
                     escrow copy in its place and keeps the old one beside it",
        });
    }
    let provider = Provider::parse_typed(&args.new)?;
    let first = copies.first().ok_or(KeyError::Internal("no copy"))?;
    let used = dir.as_ref().map(|dir| used_generations(dir, first.keyring_id()));
    if let (Some(used), true) = (&used, !args.force || in_use.is_some()) {
        used.expect_keyring(&path, first.keyring_id())?;
    }
    audit::using_at(dir.as_ref().map_or(&*path, |dir| &dir.root));
    let opened = match first.opened_by() {
        OpenedBy::Shares { .. } => escrow::open_shares(&copies)?,
        opened_by => escrow::open(first, &secret(first, opened_by, args.unlock.as_deref())?)?,
    };
    let new = provider.kek_for_keyring(first.keyring_id())?;
    let mut keyring = opened.keyring(&provider.to_string(), &new)?;
    audit::new_key(&provider.to_string(), keyring.summary().store_key.as_deref(), None);
    audit::detail(format!(
        "a copy of {} that is opened by {}",
        first.summary().made,
        first.summary().opened_by
    ));
    audit::restored(&keyring, &new)?;
    let held: Vec<Generation> = first.generations().iter().map(|entry| entry.generation).collect();
    let lacking = used.map(|used| used.lacking(&held)).unwrap_or_default();
    if let (Some(why), false) = (&in_use, lacking.is_empty()) {
        return Err(lacks(&path, why, &lacking));
    }
    let mut added = None;
    if let Some(highest) = lacking.keys().next_back() {
        added = Some(keyring.add_generation_above(&new, *highest)?);
    }
    // No server may start while the keyring is replaced.
    let stopped = dir.as_ref().filter(|dir| is_there && dir.server_pid().is_none());
    let _server_lock = stopped.map(ServerLock::take).transpose()?;
    let kept = if is_there { Some(keep(&path)?) } else { None };
    match kept {
        Some(_) => keyring.store_atomically(&path)?,
        None => keyring.store_new(&path)?,
    }
    let stored = Keyring::load(&path)?;
    stored.unlock(&new)?;
    let done = done(&stored, &path, kept.as_deref(), &lacking, added);
    let mut out = Out::new();
    if args.json {
        out.json(&done)?;
    } else {
        print(&mut out, &done)?;
    }
    out.flush()?;
    Ok(if lacking.is_empty() { exit::SOUND } else { exit::DAMAGE })
}

/// The keyring that is there, if it has every data key of the copy and all that the files need, and
/// is under the very key that was given. `None` where that cannot be shown without asking a person
/// or making a key in a store.
fn restored_before(
    path: &Path,
    dir: Option<&DataDir>,
    copies: &[EscrowCopy],
    args: &Args,
) -> Option<Keyring> {
    let provider = Provider::parse_typed(&args.new).ok()?;
    if provider.is_passphrase() || provider.plugin().is_some() {
        return None;
    }
    let keyring = Keyring::load(path).ok()?;
    let first = copies.first()?;
    if keyring.id() != first.keyring_id() || keyring.provider_uri() != provider.to_string() {
        return None;
    }
    let present = keyring.unlock(&provider.kek_for_new().ok()?).ok()?;
    let opened = match first.opened_by() {
        OpenedBy::Shares { .. } => escrow::open_shares(copies).ok()?,
        opened_by => {
            let uri = args.unlock.as_deref()?;
            if Provider::parse_typed(uri).ok()?.needs_person() {
                return None;
            }
            escrow::open(first, &secret(first, opened_by, Some(uri)).ok()?).ok()?
        }
    };
    let same = |generation: Generation| {
        let key = |keys: &KeySet| keys.get(generation).map(|key| Zeroizing::new(*key.bytes()));
        key(&present) == key(opened.keys())
    };
    let held: Vec<Generation> = present.generations().collect();
    let lacks = dir.is_some_and(|dir| {
        let used = used_generations(dir, keyring.id());
        used.other.is_some() || !used.lacking(&held).is_empty()
    });
    (!lacks && opened.keys().generations().all(same)).then_some(keyring)
}

/// The keyring to write, and the data directory that it belongs to.
fn target(path: &Path) -> Result<(PathBuf, Option<DataDir>), CliError> {
    if path.is_dir() {
        let dir = DataDir::open(path)?;
        return Ok((dir.keyring(), Some(dir)));
    }
    // The path of a data directory's keyring file.
    let full = std::path::absolute(path).map_err(CliError::io(path, "resolve the path"))?;
    if let Some(root) = full.parent().and_then(Path::parent)
        && keyring_path(root) == full
        && let Ok(dir) = DataDir::open(root)
        && dir.major.is_some()
    {
        return Ok((full, Some(dir)));
    }
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    let above = above.unwrap_or(Path::new("."));
    if !above.is_dir() {
        return Err(CliError::NoSuchFile { path: above.to_owned() });
    }
    crate::as_owner::step_down(above)?;
    Ok((path.to_owned(), None))
}

/// Why the present keyring may not lose a data key: a running server uses it from memory, and an
/// interrupted conversion needs it. Refuses a directory whose conversion was interrupted before its
/// first or after its last file: that one can be finished without the keyring.
fn in_use(dir: &DataDir, is_there: bool) -> Result<Option<String>, CliError> {
    match Journal::load(&Disk, &dir.root)? {
        Some(journal) if journal.phase == Phase::Convert => {
            return Ok(Some(format!("pgseal {} was interrupted", journal.operation.name())));
        }
        Some(_) => expect_whole(&dir.root)?,
        None => {}
    }
    let running = dir.server_pid().filter(|_| is_there);
    Ok(running.map(|pid| format!("a server runs (process {pid})")))
}

fn lacks(path: &Path, why: &str, lacking: &BTreeMap<Generation, u64>) -> CliError {
    let numbers: Vec<u32> = lacking.keys().map(|generation| generation.0).collect();
    CliError::NotNow(format!(
        "{}: {why} on its data directory, and files have generation {}, which the copy does not \
         hold; nothing was changed: find a newer copy, or stop the server and bring the conversion \
         to its end first",
        path.display(),
        escrow::ranges(&numbers)
    ))
}

/// Whether a file is an escrow copy or a share.
fn is_copy(path: &Path) -> bool {
    let file = path.is_file().then(|| fs::File::open(path).ok()).flatten();
    let text = file.and_then(|file| read_text(file).ok());
    text.is_some_and(|text| escrow::read_all(&text, "").is_ok())
}

fn read(files: &[PathBuf]) -> Result<Vec<EscrowCopy>, CliError> {
    if files.is_empty() && io::stdin().is_terminal() {
        return Ok(escrow::read_typed()?);
    }
    let mut copies = Vec::new();
    let standard_input = [PathBuf::from("-")];
    for path in if files.is_empty() { &standard_input[..] } else { files } {
        let (text, name) = if path == Path::new("-") {
            (read_text(io::stdin().lock()), "standard input".to_owned())
        } else {
            let file = fs::File::open(path).map_err(CliError::io(path, "open the escrow copy"))?;
            (read_text(file), path.display().to_string())
        };
        let text = text.map_err(CliError::io(path, "read the escrow copy"))?;
        copies.extend(escrow::read_all(&text, &name)?);
    }
    Ok(copies)
}

fn read_text(from: impl Read) -> io::Result<Zeroizing<String>> {
    let mut bytes = Zeroizing::new(Vec::new());
    from.take(MAX_TEXT_LEN).read_to_end(&mut bytes)?;
    // A scanner or a word processor may have added bytes that are not UTF-8; each line has a
    // checksum.
    Ok(Zeroizing::new(String::from_utf8_lossy(&bytes).into_owned()))
}

fn secret(
    copy: &EscrowCopy,
    opened_by: &OpenedBy,
    unlock: Option<&str>,
) -> Result<pgseal_keys::Kek, CliError> {
    let uri = match (unlock, opened_by) {
        (Some(uri), _) => uri,
        (None, OpenedBy::Passphrase(_)) => "passphrase:",
        (None, _) => {
            return Err(CliError::Usage(format!(
                "{}: a key opens this copy; say where it is with --unlock file:PATH, env:NAME or \
                 command:SHELL COMMAND",
                copy.origin()
            )));
        }
    };
    let provider = Provider::parse_typed(uri)?;
    if provider.is_passphrase() && copy.passphrase_params().is_none() {
        return Err(CliError::Usage(format!(
            "{}: a key opens this copy, and no passphrase; give --unlock file:PATH, env:NAME or \
             command:SHELL COMMAND",
            copy.origin()
        )));
    }
    let path = Path::new(copy.origin());
    Ok(provider.kek_within(copy.passphrase_params(), keys::cost_limit(), path)?)
}

/// The keys that the files of a data directory need.
struct Used {
    /// The number of files of each generation of this keyring.
    generations: BTreeMap<Generation, u64>,
    /// Another keyring that files name.
    other: Option<KeyringId>,
}

fn used_generations(dir: &DataDir, id: KeyringId) -> Used {
    let mut used = Used { generations: BTreeMap::new(), other: None };
    for header in scan::scan(&dir.root, Root::DataDir).headers() {
        if header.keyring_id != id {
            used.other = Some(header.keyring_id);
        } else if !header.generation.is_ephemeral() {
            *used.generations.entry(header.generation).or_default() += 1;
        }
    }
    used
}

impl Used {
    /// Refuses the copy of another cluster, whose keyring no file names.
    fn expect_keyring(&self, path: &Path, found: KeyringId) -> Result<(), KeyError> {
        match self.other {
            Some(expected) if self.generations.is_empty() => {
                Err(KeyError::KeyringOfAnotherCluster { path: path.to_owned(), expected, found })
            }
            _ => Ok(()),
        }
    }

    fn lacking(self, held: &[Generation]) -> BTreeMap<Generation, u64> {
        self.generations.into_iter().filter(|(number, _)| !held.contains(number)).collect()
    }
}

/// Links the present keyring to a second name, so that it stays when it is replaced.
fn keep(path: &Path) -> Result<PathBuf, CliError> {
    for number in 1.. {
        let kept = path.with_file_name(format!("keyring.replaced.{number}"));
        match fs::hard_link(path, &kept) {
            Ok(()) => return Ok(kept),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(CliError::io(&kept, "keep the old keyring")(error)),
        }
    }
    Err(KeyError::Internal("names for the old keyring").into())
}

fn done(
    keyring: &Keyring,
    path: &Path,
    kept: Option<&Path>,
    lacking: &BTreeMap<Generation, u64>,
    added: Option<Generation>,
) -> Done {
    let summary = keyring.summary();
    let provider = Provider::parse(keyring.provider_uri()).ok();
    let root = path.parent().and_then(Path::parent).unwrap_or(path);
    Done {
        keyring: path.display().to_string(),
        keyring_id: summary.keyring_id,
        changed: true,
        generations: summary.generations.iter().map(|entry| entry.generation).collect(),
        provider: Provider::shown(keyring.provider_uri()),
        replaced: kept.map(|path| path.display().to_string()),
        configuration_was_locked: config_record_path(root).exists(),
        manifest_lost: manifest::is_stopped(root) && !manifest_path(root).exists(),
        lost: lacking.iter().map(|(generation, files)| (generation.0, *files)).collect(),
        added: added.map(|generation| generation.0),
        next: provider.map(|source| register::advice(keyring, &source)).unwrap_or_default(),
    }
}

fn print(out: &mut Out, done: &Done) -> io::Result<()> {
    writeln!(
        out,
        "{}: keyring {} with generations {}, under the key of {}.",
        done.keyring,
        done.keyring_id,
        escrow::ranges(&done.generations),
        done.provider
    )?;
    if let Some(kept) = &done.replaced {
        writeln!(out, "The keyring that was there is now {kept}.")?;
    }
    if done.configuration_was_locked {
        writeln!(
            out,
            "The configuration was locked, and the restored keyring does not say so: pgseal config lock"
        )?;
    }
    if done.manifest_lost {
        writeln!(
            out,
            "The manifest is lost, too, and no server starts without one: after pgseal verify, accept \
             the files as they are with: pgseal manifest write"
        )?;
    }
    for (generation, files) in &done.lost {
        writeln!(
            out,
            "LOST: {} of generation {generation}, which is newer than the copy: find a newer copy, \
             or restore the files from a backup.",
            count(*files, "file")
        )?;
    }
    if let Some(added) = done.added {
        writeln!(out, "Generation {added} was added, so that no number stands for two keys.")?;
    }
    done.next.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    writeln!(out, "Next: pgseal key check, then pgseal verify; and a new escrow copy.")
}
