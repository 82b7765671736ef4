//! `pgseal key`: new, show, rotate; the other tasks have modules of their own.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use pgseal_keys::{
    GenerationState, Keyring, KeyringSummary, Provider, generate_raw_key, keyring_path, update,
};

use crate::datadir::{self, DataDir};
use crate::error::CliError;
use crate::out::{self, Out};
use crate::register::{self, Registration};
use crate::{exit, keys, private_file};

use super::{key_backup, key_check, key_restore};

const EXAMPLES: &str = "\
Examples:
  pgseal key new -o /etc/pgseal/main.key
  pgseal key show /srv/postgres/data
  pgseal key rotate /srv/postgres/data -K file:/etc/pgseal/next.key
  pgseal key backup /srv/postgres/data -o escrow.txt
  pgseal key check /srv/postgres/data --escrow escrow.txt";

/// Make keys, look at a keyring, change the key
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, clap::Subcommand)]
enum Task {
    /// Make a new random key: 32 bytes as 64 hexadecimal digits
    New {
        /// Write it into a new file of mode 0600 instead of printing it
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Show a keyring: identity, suite, provider, generations. Needs no key and shows none
    Show {
        /// The data directory, or a keyring file
        dir: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Put the keyring under another key. Rewrites one small file; no data is encrypted anew
    ///
    /// The data keys inside stay the same. A running server is not disturbed: it reads the keyring
    /// when it starts. Keep the old key as long as you keep backups whose keyring is under it.
    Rotate {
        /// The data directory
        dir: PathBuf,
        /// Where the new key comes from: env:NAME, file:PATH, command:SHELL COMMAND, passphrase:
        #[arg(short = 'K', long = "key-provider", value_name = "NEW")]
        new: String,
        /// Where the present key comes from, if not from where the keyring says
        #[arg(long, value_name = "PROVIDER")]
        old: Option<String>,
        /// Also write where the new key comes from into /etc/pgseal/clusters.d
        #[arg(long)]
        register: bool,
    },
    Backup(key_backup::Args),
    Restore(key_restore::Args),
    Check(key_check::Args),
    /// Remove retired data keys that no file of the data directory has, for ever
    ///
    /// After a rekey, when no backup and no archived WAL from before is kept any more.
    Forget {
        /// The data directory
        dir: PathBuf,
        /// Where the key comes from, if not from where the keyring says
        #[arg(short = 'K', long = "key-provider", value_name = "PROVIDER")]
        provider: Option<String>,
        /// No backup and no archived WAL that shall ever be read is sealed with them
        #[arg(long)]
        no_backup_has_them: bool,
    },
}

pub fn run(args: &Args) -> Result<u8, CliError> {
    match &args.task {
        Task::New { output } => new(output.as_deref())?,
        Task::Show { dir, json } => show(dir, *json)?,
        Task::Rotate { dir, new, old, register } => rotate(dir, new, old.as_deref(), *register)?,
        Task::Backup(args) => return key_backup::run(args),
        Task::Restore(args) => return key_restore::run(args),
        Task::Check(args) => return key_check::run(args),
        Task::Forget { dir, provider, no_backup_has_them } => {
            return super::key_forget::run(dir, provider.as_deref(), *no_backup_has_them);
        }
    }
    Ok(exit::SOUND)
}

fn new(output: Option<&Path>) -> Result<(), CliError> {
    let key = generate_raw_key()?;
    let Some(path) = output else {
        out::secret(key.as_bytes())?;
        return Ok(out::secret(b"\n")?);
    };
    private_file::write_new(path, &private_file::KEY, &[key.as_bytes(), b"\n"])
}

fn show(path: &Path, json: bool) -> Result<(), CliError> {
    let keyring = if path.is_file() {
        crate::as_owner::step_down_beside(path)?;
        Keyring::load(path)?
    } else {
        let dir = DataDir::open(path)?;
        keys::keyring_of(&dir, &keys::KeyOptions::default(), || any_sealed(&dir.root))?
    };
    let summary = keyring.summary();
    let mut out = Out::new();
    if json {
        out.json(&summary)?;
    } else {
        print(&mut out, keyring.path(), &summary)?;
    }
    Ok(out.flush()?)
}

fn print(out: &mut Out, path: &Path, summary: &KeyringSummary) -> io::Result<()> {
    writeln!(out, "Keyring     {}", path.display())?;
    writeln!(out, "Identity    {}", summary.keyring_id)?;
    writeln!(out, "Created     {}", summary.created)?;
    writeln!(out, "Suite       {}", summary.suite)?;
    writeln!(out, "Provider    {}", Provider::shown(&summary.provider))?;
    if let Some(pass) = &summary.passphrase {
        writeln!(
            out,
            "Derivation  {}, {} MiB, {}, {}",
            pass.kdf,
            pass.memory_kib / 1024,
            out::count(pass.passes.into(), "pass").replace("passs", "passes"),
            out::count(pass.lanes.into(), "lane"),
        )?;
    }
    for generation in &summary.generations {
        let state = match generation.state {
            GenerationState::Active => "active: new files get it",
            GenerationState::Retired => "retired: kept for the files that have it",
        };
        let (number, created) = (generation.generation, &generation.created);
        writeln!(out, "Generation  {number}, created {created}, {state}")?;
    }
    Ok(())
}

fn rotate(
    dir: &Path,
    new_uri: &str,
    old_uri: Option<&str>,
    is_to_be_registered: bool,
) -> Result<(), CliError> {
    let provider = Provider::parse_typed(new_uri)?;
    let begin = || Registration::begin(&provider, dir);
    let registration = is_to_be_registered.then(begin).transpose()?;
    let dir = DataDir::open(dir)?;
    let path = keyring_path(&dir.root);
    let keyring = keys::keyring_of(&dir, &keys::KeyOptions::default(), || any_sealed(&dir.root))?;
    let old = keys::kek(&keyring, old_uri)?;
    // Before the new key is asked for: a wrong old one is the likelier mistake.
    keyring.unlock(&old)?;
    let new = provider.kek_for_new()?;
    update(&path, |keyring| {
        // A conversion that is taken back puts the keyring back as it was.
        if let Err(error) = datadir::expect_begun_or_none(&dir.root) {
            return Ok(Err(error));
        }
        keyring.rotate_kek(&old, &new, &provider.to_string()).map(Ok)
    })??;
    let mut out = Out::new();
    writeln!(
        out,
        "{}: under the key of {} now. Keep the old key for the backups made before.",
        path.display(),
        Provider::shown(&provider.to_string())
    )?;
    match registration {
        Some(registration) => {
            let path = registration.finish(keyring.id())?;
            writeln!(out, "{}", register::done(&path))?;
        }
        None => {
            for line in register::advice(&keyring, &provider) {
                writeln!(out, "{line}")?;
            }
        }
    }
    Ok(out.flush()?)
}

/// Whether a sealed file lies in the directory, for the difference between "not sealed" and "the
/// keyring is gone".
pub fn any_sealed(root: &Path) -> bool {
    let scan = crate::scan::scan(root, crate::scan::Root::DataDir);
    scan.headers().next().is_some()
}
