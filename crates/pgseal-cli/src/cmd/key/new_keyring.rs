//! `pgseal key new-keyring`: makes the keyring of sealed columns.

use std::fs::{self, DirBuilder};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::{Path, PathBuf};

use clap::ValueHint;
use pgseal_core::Suite;
use pgseal_keys::{KeyError, Keyring, Line, Provider, datadir_of};
use rustix::process::geteuid;
use serde::Serialize;

use crate::error::CliError;
use crate::out::Out;
use crate::register::{self, Registration};
use crate::values::KeySource;
use crate::{as_owner, audit, exit};

const EXAMPLES: &str = "\
Examples, as root:
  pgseal key new-keyring /etc/pgseal/columns/keyring --owner postgres -K vault:key=columns?...
  pgseal key add-recipient offline -K file:/mnt/usb/columns.key /etc/pgseal/columns/keyring
  pgseal key rotate /etc/pgseal/columns/keyring -K kmip:name=columns?... --register
  pgseal key check /etc/pgseal/columns/keyring --every-recipient

Then, in psql: ALTER SYSTEM SET pgseal.provider = 'keyring:/etc/pgseal/columns/keyring'";

/// Make a keyring for sealed columns: their keys can then come from key stores and recipients
///
/// The keyring is one small file outside of every data directory. Its source is written into
/// /etc/pgseal/clusters.d, because a setting in a data directory names the keyring, and that alone
/// is not trusted.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The new file
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Where the key comes from: env:NAME, file:PATH, command:SHELL COMMAND,
    /// passphrase:command=SHELL COMMAND, or NAME:... for a key store
    #[arg(short = 'K', long = "key-provider", value_name = "PROVIDER")]
    #[arg(value_parser = KeySource, hide_possible_values = true)]
    provider: String,
    /// The user of the server, who gets the directory of the file if this command makes it
    #[arg(long, value_name = "USER")]
    owner: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What was made.
#[derive(Debug, Serialize)]
struct Made {
    keyring: String,
    keyring_id: String,
    provider: String,
    /// The file in /etc/pgseal/clusters.d that was written.
    registered: String,
    /// The value of pgseal.provider.
    setting: String,
}

pub fn run(args: &Args) -> Result<u8, CliError> {
    let file =
        std::path::absolute(&args.file).map_err(CliError::io(&args.file, "resolve the path"))?;
    let provider = Provider::parse_typed(&args.provider)?;
    if provider.needs_person() {
        return Err(CliError::Usage(format!(
            "-K {}: a session of the server cannot ask a person; add such a key later, with pgseal \
             key add-recipient",
            Provider::shown(&args.provider)
        )));
    }
    let dir = place_for(&file)?;
    make_directory(dir, args.owner.as_deref())?;
    let registration = Registration::begin(&provider, Line::First, dir)?;
    as_owner::step_down(dir)?;
    if file.exists() {
        return Err(CliError::Key(KeyError::KeyringExists { path: file }));
    }
    let kek = provider.kek_for_new()?;
    let keyring = Keyring::create(Suite::Aes256Gcm, &provider.to_string(), &kek)?;
    audit::using_at(&file);
    audit::opened(&keyring, &kek)?;
    keyring.store_new(&file)?;
    let registered = registration.finish(keyring.id())?;
    let made = Made {
        keyring: file.display().to_string(),
        keyring_id: keyring.id().to_string(),
        provider: Provider::shown(&provider.to_string()),
        registered: registered.display().to_string(),
        setting: format!("keyring:{}", file.display()),
    };
    let mut out = Out::new();
    if args.json {
        out.json(&made)?;
    } else {
        let Made { keyring, keyring_id, provider, setting, .. } = &made;
        writeln!(out, "{keyring}: keyring {keyring_id}, under the key of {provider}.")?;
        writeln!(out, "{}", register::done(&registered))?;
        writeln!(out, "For sealed columns: ALTER SYSTEM SET pgseal.provider = '{setting}'")?;
    }
    out.flush()?;
    Ok(exit::SOUND)
}

/// The directory of the file, if a keyring of its own may lie there.
fn place_for(file: &Path) -> Result<&Path, CliError> {
    if datadir_of(file).is_some() {
        return Err(CliError::Usage(format!(
            "{}: the keyring of a data directory has such a path; choose another name, as in \
             /etc/pgseal/columns/keyring",
            file.display()
        )));
    }
    let is_text = file.to_str().is_some_and(|path| !path.contains(char::is_control));
    match file.parent() {
        Some(dir) if file.file_name().is_some() && is_text => Ok(dir),
        _ => Err(CliError::Usage(format!("{}: that is no name of a file", file.display()))),
    }
}

/// Makes the directory, for the user who runs the server.
fn make_directory(dir: &Path, owner: Option<&str>) -> Result<(), CliError> {
    if dir.is_dir() {
        return Ok(());
    }
    let owner = match owner {
        Some(name) => Some(as_owner::user(name)?),
        None if geteuid().is_root() => {
            return Err(CliError::Usage(format!(
                "{}: the directory is not there; name the user of the server, who gets it, as in \
                 --owner postgres",
                dir.display()
            )));
        }
        None => None,
    };
    DirBuilder::new().mode(0o700).create(dir).map_err(CliError::io(dir, "make the directory"))?;
    if let Some((uid, gid)) = owner {
        let given = chown(dir, Some(uid), Some(gid));
        if given.is_err() {
            // It is empty. The error below says what went wrong.
            let _ = fs::remove_dir(dir);
        }
        given.map_err(CliError::io(dir, "give the directory its owner"))?;
    }
    Ok(())
}
