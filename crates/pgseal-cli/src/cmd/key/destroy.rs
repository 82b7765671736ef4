//! `pgseal key destroy`: destroys the keyring of a data directory, and says what else has to be
//! destroyed before nobody can read the data any more.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::ValueHint;
use pgseal_keys::{Clusters, Keyring, Provider, kind_of};
use rustix::fs::OFlags;
use serde::Serialize;

use crate::error::CliError;
use crate::given_dir::GivenPath;
use crate::keyring_place::KeyringPlace;
use crate::locks::{OwnLock, ServerLock};
use crate::out::{self, Out};
use crate::{audit, escrow_record, exit, json_file, memory};

const EXAMPLES: &str = "\
Examples:
  pgseal key destroy /srv/postgres/data
  pgseal key destroy /srv/postgres/data --yes-destroy 0123456789abcdef0123456789abcdef --receipt FILE

The first one shows what will be lost and asks for the identity of the keyring. docs/keys.md says \
what has to be destroyed besides.";

/// The names in the directory `pgseal` of files that hold wrapped keys, or are sealed with them,
/// begin with one of these.
const STEMS: [&str; 6] = ["keyring", "config", "manifest", "control", "renewal", "escrow.json"];

/// As pgseal names copies of a keyring beside it.
const KEPT_BESIDE: [&str; 2] = ["keyring.replaced.", "keyring.new."];

/// Destroy the keyring: the files of the data directory can then never be read again
///
/// Only on a stopped server. Overwrites and removes the keyring and its copies in the data
/// directory, and lists what else opens the data: the key, escrow copies, backups.
/// For a keyring of sealed columns: the columns can then never be read again.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    path: GivenPath,
    /// Do not ask: the identity of the keyring, as pgseal key show prints it
    #[arg(long, value_name = "IDENTITY")]
    yes_destroy: Option<String>,
    /// Also write what was destroyed and what is left as JSON into a new file, outside of the data
    /// directory
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    receipt: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What was done, and what is left to do.
#[derive(Debug, Serialize)]
struct Done {
    keyring_id: String,
    directory: String,
    when: String,
    host: String,
    /// The files that were overwritten and removed.
    destroyed: Vec<String>,
    /// What else opens the data, or holds it in plain.
    left: Vec<Left>,
}

/// Something that has to be destroyed besides.
#[derive(Debug, Serialize)]
struct Left {
    what: String,
    /// What to do with it.
    how: String,
}

pub fn run(args: &Args) -> Result<u8, CliError> {
    let place = KeyringPlace::open(&args.path.path("key destroy")?)?;
    // No server starts on the data directory meanwhile.
    let _locks = match place.datadir() {
        Some(dir) => Some((OwnLock::take(&dir.root)?, ServerLock::take(dir)?)),
        None => None,
    };
    let keyring = place.load()?;
    let named = match &place {
        KeyringPlace::DataDir(dir) => dir.root.clone(),
        KeyringPlace::File(path) => path.clone(),
    };
    let own = keyring.path().parent().map(Path::to_owned).unwrap_or_default();
    let files = files(&place, &own)?;
    let left = left(&place, &keyring);
    let receipt = args.receipt.as_deref().map(|path| expect_place(path, &named)).transpose()?;
    confirm(args, &place, &named, &keyring, &files, &left)?;
    audit::using(&keyring);
    audit::begin()?;
    let doomed = files.iter().map(|path| Doomed::open(path)).collect::<Result<Vec<_>, _>>()?;
    for file in doomed {
        file.destroy()?;
    }
    File::open(&own).and_then(|own| own.sync_all()).map_err(CliError::io(&own, "sync it"))?;
    audit::detail(out::count(files.len() as u64, "file"));
    let done = Done {
        keyring_id: keyring.id().to_string(),
        directory: named.display().to_string(),
        when: pgseal_keys::now()?,
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        destroyed: files.iter().map(|file| file.display().to_string()).collect(),
        left,
    };
    let mut out = Out::new();
    if args.json {
        out.json(&done)?;
    } else {
        for file in &done.destroyed {
            writeln!(out, "Destroyed: {file}")?;
        }
        match place.datadir() {
            Some(_) => writeln!(
                out,
                "The files of {} cannot be opened any more with what is in it.",
                done.directory
            )?,
            None => writeln!(out, "No sealed column opens any more with {}.", done.directory)?,
        }
        print_left(&mut out, &done.left)?;
    }
    out.flush()?;
    if let Some(receipt) = &receipt {
        // If it cannot be written now, the output above has everything.
        json_file::write(receipt, 0o600, &done)
            .map_err(CliError::io(receipt, "write the receipt, after all was destroyed,"))?;
    }
    Ok(exit::SOUND)
}

/// The files that hold wrapped keys, or are sealed with them: in the directory `pgseal` of a data
/// directory, or beside a keyring of columns.
fn files(place: &KeyringPlace, own: &Path) -> Result<Vec<PathBuf>, CliError> {
    let listing = fs::read_dir(own).map_err(CliError::io(own, "read the directory"))?;
    let mut files = Vec::new();
    for item in listing {
        let item = item.map_err(CliError::io(own, "read the directory"))?;
        let name = item.file_name();
        let begins = |stem: &str| name.as_encoded_bytes().starts_with(stem.as_bytes());
        let is_wanted = match place {
            KeyringPlace::DataDir(_) => STEMS.iter().any(|stem| begins(stem)),
            KeyringPlace::File(path) => {
                item.path() == *path || KEPT_BESIDE.iter().any(|stem| begins(stem))
            }
        };
        if is_wanted {
            files.push(item.path());
        }
    }
    files.sort();
    Ok(files)
}

/// A file that will be destroyed.
struct Doomed {
    path: PathBuf,
    /// Opened for writing; a link is only removed.
    file: Option<File>,
}

impl Doomed {
    /// Opens the file. If one of them cannot be overwritten, nothing is destroyed yet.
    fn open(path: &Path) -> Result<Doomed, CliError> {
        let meta = fs::symlink_metadata(path).map_err(CliError::io(path, "look at the file"))?;
        let open = || {
            // Nothing else is opened in its place: no link, and no FIFO that would have to be
            // waited for.
            let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits());
            let flags = flags.map_err(io::Error::other)?;
            OpenOptions::new().write(true).custom_flags(flags).open(path)
        };
        let file = meta.is_file().then(open).transpose();
        let file = file.map_err(CliError::io(path, "overwrite the file (nothing was changed)"))?;
        Ok(Doomed { path: path.to_owned(), file })
    }

    /// Overwrites the file where it lies, and removes it. Another name of the same file loses its
    /// content, too.
    fn destroy(self) -> Result<(), CliError> {
        let overwritten = self.file.map_or(Ok(()), overwrite);
        overwritten.map_err(CliError::io(&self.path, "overwrite the file"))?;
        fs::remove_file(&self.path).map_err(CliError::io(&self.path, "remove the file"))
    }
}

fn overwrite(mut file: File) -> io::Result<()> {
    let mut left = file.metadata()?.len();
    let zeros = [0; 4096];
    while left > 0 {
        let piece = zeros.get(..left.min(4096) as usize).unwrap_or(&zeros);
        file.write_all(piece)?;
        left -= piece.len() as u64;
    }
    file.sync_all()
}

/// What else opens the data of this keyring, or holds it in plain, as far as this machine knows.
fn left(place: &KeyringPlace, keyring: &Keyring) -> Vec<Left> {
    let dir = place.datadir();
    let mut all = Vec::new();
    let mut add = |what: String, how: &str| all.push(Left { what, how: how.to_owned() });
    let summary = keyring.summary();
    add(
        key_in_words("the key of the keyring", &summary.provider, summary.store_key.as_deref()),
        &how_to_destroy(&summary.provider),
    );
    for recipient in &summary.recipients {
        let whose = format!("the key of recipient {}", recipient.name);
        let what = key_in_words(&whose, &recipient.provider, recipient.store_key.as_deref());
        add(what, &how_to_destroy(&recipient.provider));
    }
    let clusters = Clusters::from_environment();
    for provider in
        clusters.providers_of(keyring.id(), dir.map(|dir| dir.root.as_path())).unwrap_or_default()
    {
        let uri = provider.to_string();
        if !keyring.provider_uris().contains(&uri) {
            add(key_in_words("another source", &uri, None), &how_to_destroy(&uri));
        }
    }
    add(
        "every older key: of before a pgseal key rotate, and of removed recipients".to_owned(),
        "destroy it like the present one: it opens older copies of the keyring",
    );
    let mut copies = memory::of(keyring.id()).escrow;
    if let Some(copy) = dir.and_then(escrow_record::read) {
        let copy = memory::EscrowCopy {
            made: copy.made,
            opened_by: copy.opened_by,
            generations: copy.generations.iter().map(|(number, _)| *number).collect(),
        };
        if !copies.contains(&copy) {
            copies.push(copy);
        }
    }
    for copy in copies {
        let numbers = pgseal_keys::escrow::ranges(&copy.generations);
        add(
            format!(
                "the escrow copy of {}, opened by {} (data keys {numbers})",
                copy.made, copy.opened_by
            ),
            "destroy every print and file of it; of shares, so many that fewer than needed are left",
        );
    }
    add(
        "escrow copies that this machine has not seen".to_owned(),
        "ask everybody who may have made one: no other key is needed to open such a copy",
    );
    add(
        "copies of the keyring: in base backups, snapshots and raw copies, beside archives of WAL, \
         on standbys with the same keyring"
            .to_owned(),
        "destroy them, or be sure that all the keys above are destroyed: each copy opens with them",
    );
    if clusters.file_of(keyring.id()).exists() {
        let what = clusters.file_of(keyring.id()).display().to_string();
        add(what, "remove it: it has no key, but names where the keys are");
    }
    add(
        "memory: of machines that ran the server, in swap, core dumps, hibernation images and \
         snapshots of virtual machines"
            .to_owned(),
        "stop every server that has these keys; destroy such images",
    );
    add(
        "the blocks of the disk on which the keyring lay".to_owned(),
        "nothing is needed if the keys above are destroyed. Overwriting is no proof on SSDs and on \
         file systems that write elsewhere (btrfs, ZFS, snapshots)",
    );
    if dir.is_none() {
        add(
            "sessions of servers that have used these columns, which hold column keys".to_owned(),
            "restart the servers",
        );
    }
    if let Some(journal) = dir.and_then(|dir| dir.conversion.as_ref()) {
        add(
            format!(
                "files that are plain, because pgseal {} was interrupted",
                journal.operation.name()
            ),
            "destroy the whole data directory",
        );
    }
    add(
        "what was never sealed with these keys: dumps, exports, the server's log, configuration, \
         standbys and base backups that are plain or have a keyring of their own"
            .to_owned(),
        "destroy it by other means",
    );
    all
}

fn key_in_words(whose: &str, uri: &str, name: Option<&str>) -> String {
    let provider = Provider::shown(uri);
    match name {
        Some(name) => format!("{whose}: {provider} ({name})"),
        None => format!("{whose}: {provider}"),
    }
}

fn how_to_destroy(uri: &str) -> String {
    match (kind_of(uri), uri.split_once(':').map(|(_, path)| path)) {
        ("file", Some(path)) => format!(
            "shred -u '{path}', and every copy of this file; not if another cluster has the same key"
        ),
        ("env", _) => "remove it from wherever this variable is set".to_owned(),
        ("passphrase", _) => "destroy what it is written on; nobody may use it again".to_owned(),
        ("command", _) => "delete the key in the store that this command asks".to_owned(),
        _ => "delete this key in its store, with all its versions and the store's backups; not if \
              another cluster has the same key"
            .to_owned(),
    }
}

fn print_left(out: &mut impl Write, left: &[Left]) -> io::Result<()> {
    writeln!(out, "The data is out of reach for ever only when these are destroyed, too:")?;
    for Left { what, how } in left {
        writeln!(out, "- {what}\n    {how}")?;
    }
    Ok(())
}

/// The path of the receipt. Refuses one in the data directory, a file that exists, and a directory
/// that cannot be written: nothing is destroyed then.
fn expect_place(receipt: &Path, root: &Path) -> Result<PathBuf, CliError> {
    let full = std::path::absolute(receipt).map_err(CliError::io(receipt, "resolve the path"))?;
    let above = full.parent().unwrap_or(Path::new("/"));
    let above = above.canonicalize().map_err(CliError::io(above, "look for the directory"))?;
    if root.canonicalize().is_ok_and(|root| above.starts_with(root)) {
        return Err(CliError::Usage(format!(
            "{}: the receipt must not lie in the data directory; choose another place",
            receipt.display()
        )));
    }
    let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    rustix::fs::access(&above, access).map_err(|error| CliError::Io {
        path: above.clone(),
        action: "write the receipt there",
        source: error.into(),
    })?;
    match fs::symlink_metadata(&full) {
        Ok(_) => Err(CliError::Exists {
            path: full,
            what: "there is a file already",
            remedy: "choose another name for the receipt",
        }),
        Err(_) => Ok(full),
    }
}

/// Goes on only if somebody gave the identity of the keyring.
fn confirm(
    args: &Args,
    place: &KeyringPlace,
    named: &Path,
    keyring: &Keyring,
    files: &[PathBuf],
    left: &[Left],
) -> Result<(), CliError> {
    let id = keyring.id().to_string();
    let given = match &args.yes_destroy {
        Some(given) => given.clone(),
        None if io::stdin().is_terminal() && !args.json => {
            let mut err = io::stderr();
            writeln!(err, "{}: keyring {id}, {}:", named.display(), keyring.summary().created)?;
            for file in files {
                writeln!(err, "will be destroyed: {}", file.display())?;
            }
            print_left(&mut err, left)?;
            let lost = match place {
                KeyringPlace::DataDir(_) => "file of this data directory",
                KeyringPlace::File(_) => "sealed column under this keyring",
            };
            write!(
                err,
                "No {lost} can then be read again, by anybody. Type the identity of the keyring to \
                 destroy it: "
            )?;
            let mut line = String::new();
            io::stdin().lock().read_line(&mut line)?;
            line.trim().to_owned()
        }
        None => {
            return Err(CliError::Usage(format!(
                "key destroy: {}: nothing was changed; to destroy its keyring for ever, add \
                 --yes-destroy {id}",
                named.display()
            )));
        }
    };
    match given == id {
        true => Ok(()),
        false => Err(CliError::Usage(format!(
            "key destroy: that is not the identity of the keyring of {}, and nothing was changed; \
             see it with: pgseal key show",
            named.display()
        ))),
    }
}
