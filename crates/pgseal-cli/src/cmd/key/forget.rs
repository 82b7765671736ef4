//! `pgseal key forget`: removes retired data keys that no file uses any more.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use pgseal_convert::tree;
use pgseal_core::{Generation, KeyringId};
use pgseal_keys::{GenerationState, keyring_path, update};
use pgseal_pgdata::Policy;
use serde::Serialize;

use crate::datadir::{DataDir, expect_whole};
use crate::error::CliError;
use crate::given_dir::GivenDir;
use crate::keys::{self, PresentKey};
use crate::locks::{OwnLock, refuse_running};
use crate::out::Out;
use crate::scan::{self, Root, Scan, Seen};
use crate::{audit, exit, records};

/// Remove retired data keys that no file of the data directory has, for ever
///
/// After a rekey, when no backup and no archived WAL from before is kept any more.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    dir: GivenDir,
    #[command(flatten)]
    key: PresentKey,
    /// No backup and no archived WAL that shall ever be read is sealed with them
    #[arg(long)]
    no_backup_has_them: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The retired generations.
#[derive(Debug, Serialize)]
struct Done {
    /// Those that files of the data directory have.
    kept: Vec<u32>,
    removed: Vec<u32>,
}

pub fn run(args: &Args) -> Result<u8, CliError> {
    let dir = DataDir::open(&args.dir.path("key forget")?)?;
    let _lock = OwnLock::take(&dir.root)?;
    let keyring = keys::own_keyring(&dir)?;
    let used = used(&dir, keyring.id())?;
    let retired = keyring.summary().generations;
    let retired = retired.iter().filter(|entry| entry.state == GenerationState::Retired);
    let (needed, unused): (Vec<u32>, Vec<u32>) =
        retired.map(|entry| entry.generation).partition(|number| used.contains(number));
    let mut out = Out::new();
    if args.json && unused.is_empty() {
        out.json(&Done { kept: needed, removed: unused })?;
        out.flush()?;
        return Ok(exit::SOUND);
    }
    if !needed.is_empty() && !args.json {
        let needed = list(&needed);
        writeln!(out, "Kept: {needed}, which files of the data directory have (pgseal rekey).")?;
    }
    if unused.is_empty() {
        writeln!(out, "There is no retired data key that could go.")?;
        out.flush()?;
        return Ok(exit::SOUND);
    }
    if !args.no_backup_has_them {
        out.flush()?;
        return Err(CliError::Usage(format!(
            "key forget: {} could go: no file of the data directory has them. Every backup and all \
             archived WAL sealed with them can never be read again; if there are none left, add \
             --no-backup-has-them",
            list(&unused)
        )));
    }
    let kek = keys::kek(&keyring, args.key.provider.as_deref())?;
    audit::detail(list(&unused));
    let numbers: Vec<Generation> = unused.iter().copied().map(Generation).collect();
    update(&keyring_path(&dir.root), |keyring| {
        // The keyring is locked now. Check again: the files may have changed before.
        if let Err(error) = still_unused(&dir, keyring.id(), &unused) {
            return Ok(Err(error));
        }
        // Files of pgseal's own are sealed with a data key, too.
        if let Err(error) = records::seal_anew(&dir.root, &keyring.unlock(&kek)?) {
            return Ok(Err(error));
        }
        keyring.forget_generations(&kek, &numbers).map(Ok)
    })??;
    if args.json {
        out.json(&Done { kept: needed, removed: unused })?;
    } else {
        writeln!(out, "Removed: {}.", list(&unused))?;
    }
    out.flush()?;
    Ok(exit::SOUND)
}

/// The generations that files of a stopped server's data directory use. Refuses a directory with
/// files whose generation cannot be read.
fn used(dir: &DataDir, keyring: KeyringId) -> Result<BTreeSet<u32>, CliError> {
    refuse_running(dir)?;
    expect_whole(&dir.root)?;
    let scan = scan::scan(&dir.root, Root::DataDir);
    if let Some((path, why)) = hidden(&scan).or_else(|| absent(dir)) {
        return Err(CliError::NotNow(format!(
            "{}: {why}, so it cannot be told which data keys are needed; mend or remove it, then run \
             the same command again",
            dir.root.join(path).display()
        )));
    }
    refuse_running(dir)?;
    let sealed = scan.headers().filter(|header| header.keyring_id == keyring);
    Ok(sealed.map(|header| header.generation.0).collect())
}

fn still_unused(dir: &DataDir, keyring: KeyringId, unused: &[u32]) -> Result<(), CliError> {
    let used = used(dir, keyring)?;
    match unused.iter().find(|number| used.contains(number)) {
        None => Ok(()),
        Some(number) => Err(CliError::NotNow(format!(
            "{}: files with generation {number} appeared meanwhile; nothing was removed, run the \
             same command again",
            dir.root.display()
        ))),
    }
}

/// The first file or directory whose generation cannot be read.
fn hidden(scan: &Scan) -> Option<(PathBuf, String)> {
    if let Some((path, why)) = scan.closed.first() {
        return Some((path.clone(), format!("not readable ({why})")));
    }
    let followed =
        |rel: &Path| rel.components().count() == 1 || rel.parent() == Some(Path::new("pg_tblspc"));
    if let Some((rel, _)) = scan.outside.iter().find(|(rel, _)| !followed(rel)) {
        return Some((rel.clone(), "a link to a directory, which is not looked into".to_owned()));
    }
    scan.entries.iter().find_map(|entry| {
        let why = match &entry.seen {
            Seen::Unreadable(why) => format!("not readable ({why})"),
            Seen::BadHeader(why) => format!("its header is damaged ({why})"),
            Seen::HeaderLost { .. } => "its header is lost".to_owned(),
            // An administrator's link in the place of a file that is never sealed.
            Seen::Dangling(_)
                if matches!(entry.class.policy(), Policy::Plain(_))
                    && !entry.rel.starts_with("pg_tblspc") =>
            {
                return None;
            }
            Seen::Dangling(target) => format!("a link that leads nowhere ({})", target.display()),
            Seen::Gone => "it vanished while it was looked at".to_owned(),
            Seen::Special if fs::symlink_metadata(&entry.path).is_ok_and(|meta| !meta.is_dir()) => {
                return None;
            }
            Seen::Special => "a directory that is nested too deep".to_owned(),
            Seen::Sealed(_) | Seen::Empty | Seen::Plain => return None,
        };
        Some((entry.rel.clone(), why))
    })
}

/// A WAL directory or tablespace that seems not to be mounted: it is empty.
fn absent(dir: &DataDir) -> Option<(PathBuf, String)> {
    if !tree::holds_wal(&dir.root.join("pg_wal")) {
        return Some(("pg_wal".into(), "it holds no WAL (is it mounted?)".to_owned()));
    }
    let prefix = format!("PG_{}_", dir.major.as_deref().unwrap_or_default());
    let spaces = match fs::read_dir(dir.root.join("pg_tblspc")) {
        Ok(spaces) => spaces,
        Err(error) => return Some(("pg_tblspc".into(), format!("not readable ({error})"))),
    };
    let mut paths = spaces.flatten().map(|item| item.path());
    let path = paths.find(|path| !tree::holds_version(path, &prefix))?;
    let rel = path.strip_prefix(&dir.root).unwrap_or(&path).to_owned();
    Some((rel, format!("a tablespace without a directory {prefix}* (is it mounted?)")))
}

fn list(numbers: &[u32]) -> String {
    let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
    format!("generation {}", numbers.join(", "))
}
