//! `pgseal run`: runs a program of PostgreSQL with the library.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use pgseal_keys::{KeyError, Keyring, Provider, Source, keyring_path};

use crate::error::CliError;
use crate::{bindir, datadir, environment, keys, library};

const EXAMPLES: &str = "\
Examples:
  pgseal run -- pg_ctl -D /srv/postgres/data -l /srv/postgres/server.log start
  pgseal run -D /srv/postgres/data -- postgres
  pgseal run -- pg_waldump /srv/postgres/data/pg_wal/000000010000000000000001
  pgseal run -- pg_checksums --check -D /srv/postgres/data

The exit status is that of COMMAND.";

/// Run a program of PostgreSQL on a sealed data directory
///
/// Sets LD_PRELOAD and PGSEAL_HELPER and becomes COMMAND. COMMAND is looked for in PATH, then
/// among the programs of the PostgreSQL version that the data directory has. A passphrase is asked
/// for once, here.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The data directory; becomes PGDATA of COMMAND
    #[arg(short = 'D', long = "pgdata", value_name = "DIR")]
    dir: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    #[arg(value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub fn run(args: &Args) -> Result<u8, CliError> {
    let (name, rest) = args.command.split_first().ok_or_else(|| {
        CliError::Usage("which command? for example: pgseal run -- pg_ctl -D DIR start".to_owned())
    })?;
    let library = library::library()?;
    let mut dir = None;
    if let Some(given) = &args.dir {
        dir = Some(std::path::absolute(given).map_err(CliError::io(given, "resolve the path"))?);
    }
    let meant =
        dir.clone().or_else(|| dir_in(rest)).or_else(|| env::var_os("PGDATA").map(Into::into));
    if let Some(meant) = &meant {
        datadir::expect_whole(meant)?;
    }
    let major = meant.as_deref().and_then(datadir::read_major);
    let program = bindir::find(name, major.as_deref())?;

    let mut command = Command::new(&program);
    command.args(rest);
    library::set(&mut command, &library)?;
    if let Some(dir) = &dir {
        command.env("PGDATA", dir);
    }
    // Open until exec; the program inherits the descriptor.
    let kek_fd = match meant.as_deref() {
        Some(dir) if env::var_os(environment::KEK_FD).is_none() => passphrase(dir)?,
        _ => None,
    };
    if let Some(fd) = &kek_fd {
        command.env(environment::KEK_FD, fd.as_raw_fd().to_string());
    }
    let error = command.exec();
    Err(CliError::Io { path: program, action: "run the program", source: error })
}

/// The data directory that the program's own `-D` names.
fn dir_in(args: &[OsString]) -> Option<PathBuf> {
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let bytes = arg.as_bytes();
        if bytes == b"-D" || bytes == b"--pgdata" {
            return args.next().map(PathBuf::from);
        }
        let joined = bytes.strip_prefix(b"--pgdata=").or_else(|| bytes.strip_prefix(b"-D"));
        if let Some(path) = joined {
            return Some(PathBuf::from(OsStr::from_bytes(path)));
        }
        if bytes == b"--" {
            return None;
        }
    }
    None
}

/// If the key of the data directory comes from a passphrase, asks for it and puts the key into
/// memory that the program inherits.
fn passphrase(dir: &Path) -> Result<Option<OwnedFd>, CliError> {
    let override_uri = environment::variable(environment::PROVIDER)?;
    let keyring = match Keyring::load(&keyring_path(dir)) {
        Ok(keyring) => Some(keyring),
        // The directory may not exist yet, or may be plain.
        Err(KeyError::KeyringMissing { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let source = match (&override_uri, &keyring) {
        (Some(uri), _) => Source::from(Provider::parse_typed(uri)?),
        (None, Some(keyring)) => match keys::source(keyring, None) {
            Ok(source) => source,
            // COMMAND may need no key; if it does, it reports the same error.
            Err(CliError::Key(KeyError::NotRegistered { .. })) => return Ok(None),
            Err(error) => return Err(error),
        },
        (None, None) => return Ok(None),
    };
    let Some(passphrase) = source.providers().iter().find(|one| one.is_passphrase()) else {
        return Ok(None);
    };
    let kek = match &keyring {
        Some(keyring) => {
            let kek = keys::kek_from(&source, keyring)?;
            // A mistyped passphrase is an error here, not in the server's log.
            keyring.unlock(&kek)?;
            kek
        }
        None => passphrase.kek_for_new()?,
    };
    keys::in_memory(&kek).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(args: &[&str]) -> Option<PathBuf> {
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        dir_in(&args)
    }

    #[test]
    fn the_programs_own_directory_is_seen() {
        assert_eq!(found(&["-D", "/d", "start"]), Some("/d".into()));
        assert_eq!(found(&["start", "-D/d"]), Some("/d".into()));
        assert_eq!(found(&["--pgdata=/d"]), Some("/d".into()));
        assert_eq!(found(&["--pgdata", "/d"]), Some("/d".into()));
        assert_eq!(found(&["start"]), None);
        assert_eq!(found(&["--", "-D", "/d"]), None);
    }
}
