//! `pgseal key rotate`: wraps the keyring with another key.

use std::io::Write;
use std::path::PathBuf;

use pgseal_keys::{Provider, keyring_path, update};

use crate::datadir::{self, DataDir};
use crate::error::CliError;
use crate::out::Out;
use crate::register::{self, Registration};
use crate::{exit, keys};

/// Put the keyring under another key. Rewrites one small file; no data is encrypted anew
///
/// The data keys inside stay the same. A running server is not disturbed: it reads the keyring
/// when it starts. Keep the old key as long as you keep backups whose keyring is under it.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The data directory
    dir: PathBuf,
    /// Where the new key comes from: env:NAME, file:PATH, command:SHELL COMMAND, passphrase:, or
    /// NAME:... for a key store
    #[arg(short = 'K', long = "key-provider", value_name = "NEW")]
    new: String,
    /// Where the present key comes from, if not from where the keyring says
    #[arg(long, value_name = "PROVIDER")]
    old: Option<String>,
    /// Also write where the new key comes from into /etc/pgseal/clusters.d
    #[arg(long)]
    register: bool,
}

pub fn run(args: &Args) -> Result<u8, CliError> {
    let provider = Provider::parse_typed(&args.new)?;
    let begin = || Registration::begin(&provider, &args.dir);
    let registration = args.register.then(begin).transpose()?;
    let dir = DataDir::open(&args.dir)?;
    let path = keyring_path(&dir.root);
    let keyring = keys::own_keyring(&dir)?;
    let old = keys::kek(&keyring, args.old.as_deref())?;
    // Before the prompt for the new key: a wrong old key is the likelier mistake.
    keyring.unlock(&old)?;
    let new = provider.kek_for_keyring(keyring.id())?;
    update(&path, |keyring| {
        // If an interrupted conversion is undone, that restores the old keyring.
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
    out.flush()?;
    Ok(exit::SOUND)
}
