//! `pgseal helper`: what the preloaded library runs. The protocol is in docs/reference.md.

use std::env;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use pgseal_core::Suite;
use pgseal_keys::{Keyring, Provider, handover, kek_from_fd, keyring_path};

use crate::cmd::helper_columns;
use crate::datadir::DataDir;
use crate::error::CliError;
use crate::{as_owner, exit, keys, register};

/// For the preloaded library and the extension only
#[derive(Debug, clap::Args)]
#[command(hide = true)]
pub struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, clap::Subcommand)]
enum Task {
    /// Unlock a keyring and write one hand-over frame to standard output
    Keys {
        /// The keyring
        #[arg(long, value_name = "FILE")]
        keyring: PathBuf,
    },
    /// Write the file of a cluster in /etc/pgseal/clusters.d; its identity comes on standard input
    Register {
        /// Where the key comes from
        #[arg(long, value_name = "URI")]
        provider: String,
        /// The group that may read the file
        #[arg(long, value_name = "GID")]
        group: Option<u32>,
    },
    /// Create DATADIR/pgseal/keyring
    NewKeyring {
        /// The data directory that is being made
        #[arg(long, value_name = "DATADIR")]
        dir: PathBuf,
        /// Where the key comes from; default: PGSEAL_PROVIDER
        #[arg(long, value_name = "URI")]
        provider: Option<String>,
        /// Suite of relation files; default: PGSEAL_SUITE, else aes-256-gcm
        #[arg(long, value_name = "SUITE")]
        suite: Option<Suite>,
        /// Copy this keyring instead of making a new one; default: PGSEAL_KEYRING_FROM
        #[arg(long, value_name = "FILE")]
        from: Option<PathBuf>,
    },
    /// For the extension pgseal: keys of columns, from standard input to standard output
    ColumnKeys {
        /// Where the key that wraps them comes from
        #[arg(long, value_name = "URI")]
        provider: String,
        /// rewrap: where the new key comes from
        #[arg(long, value_name = "URI")]
        to: Option<String>,
        task: helper_columns::Task,
    },
}

pub fn run(args: &Args) -> Result<u8, CliError> {
    shed_preload()?;
    match &args.task {
        Task::Keys { keyring } => {
            let datadir = keyring.parent().and_then(Path::parent);
            match datadir.filter(|datadir| keyring_path(datadir) == *keyring && datadir.is_dir()) {
                Some(datadir) => drop(DataDir::open(datadir)?),
                None => as_owner::step_down_beside(keyring)?,
            }
            let keyring = Keyring::load(keyring)?;
            let frame = handover::encode(&keyring.unlock(&keys::kek(&keyring, None)?)?);
            crate::out::secret(&frame)?;
        }
        Task::Register { provider, group } => register::serve(provider, *group)?,
        Task::NewKeyring { dir, provider, suite, from } => {
            new_keyring(dir, provider.clone(), *suite, from.clone())?;
        }
        Task::ColumnKeys { provider, to, task } => {
            helper_columns::run(*task, provider, to.as_deref())?;
        }
    }
    Ok(exit::SOUND)
}

/// Starts over without `LD_PRELOAD`, so that no command of a provider inherits the library.
fn shed_preload() -> Result<(), CliError> {
    if env::var_os("LD_PRELOAD").is_none() {
        return Ok(());
    }
    let program = crate::library::program()?;
    let error = Command::new(&program).args(env::args_os().skip(1)).env_remove("LD_PRELOAD").exec();
    Err(CliError::Io { path: program, action: "start the helper anew", source: error })
}

fn new_keyring(
    dir: &std::path::Path,
    provider: Option<String>,
    suite: Option<Suite>,
    from: Option<PathBuf>,
) -> Result<(), CliError> {
    if dir.is_dir() {
        as_owner::step_down(dir)?;
    }
    let target = keyring_path(dir);
    let provider = match provider {
        Some(uri) => Some(uri),
        None => keys::variable(keys::PROVIDER)?,
    };
    let from = from.or_else(|| {
        env::var_os("PGSEAL_KEYRING_FROM").filter(|path| !path.is_empty()).map(PathBuf::from)
    });
    if let Some(from) = from {
        let mut keyring = Keyring::load(&from)?;
        // A copy that nobody can open would be found out only after the work is done.
        let kek = match (&provider, keys::kek_fd()?) {
            (Some(uri), None) => keys::kek(&keyring, Some(uri))?,
            _ => keys::kek(&keyring, None)?,
        };
        keyring.unlock(&kek)?;
        if keyring.config_lock().is_some() {
            // The new directory has configuration of its own.
            keyring.set_config_lock(&kek, None)?;
        }
        return Ok(keyring.store_new(&target)?);
    }
    let Some(uri) = provider else {
        return Err(CliError::Usage(format!(
            "{}: a new keyring needs a key; set PGSEAL_PROVIDER (env:NAME, file:PATH, ...)",
            dir.display()
        )));
    };
    let suite = match suite {
        Some(suite) => suite,
        None => suite_from_environment()?,
    };
    let provider = Provider::parse_typed(&uri)?;
    let kek = match keys::kek_fd()? {
        Some(fd) => kek_from_fd(fd)?,
        None => provider.kek_for_new()?,
    };
    Ok(Keyring::create(suite, &provider.to_string(), &kek)?.store_new(&target)?)
}

fn suite_from_environment() -> Result<Suite, CliError> {
    match keys::variable("PGSEAL_SUITE")? {
        Some(name) => {
            name.parse().map_err(|error| CliError::Usage(format!("PGSEAL_SUITE: {error}")))
        }
        None => Ok(Suite::Aes256Gcm),
    }
}
