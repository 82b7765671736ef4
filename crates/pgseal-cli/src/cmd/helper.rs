//! `pgseal helper`: what the preloaded library, the extension and `pgseal-lab` run. The protocol is
//! in docs/reference.md.

mod column_keys;
mod new_keyring;
mod places;

use std::env;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use pgseal_convert::{Journal, Operation};
use pgseal_core::{KeyringId, Suite};
use pgseal_keys::anchor::State;
use pgseal_keys::audit::Outcome;
use pgseal_keys::handover::{self, Conversion};
use pgseal_keys::{Keyring, Line, Source, keyring_path};
use zeroize::Zeroizing;

use crate::audit::ServerAct;
use crate::datadir::DataDir;
use crate::error::CliError;
use crate::{anchor, as_owner, audit, exit, keys, library, out, register};

/// For the preloaded library, the extension and pgseal-lab only
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
        /// Unlock the keyring only if it has this identity
        #[arg(long, value_name = "ID", value_parser = identity)]
        id: Option<KeyringId>,
    },
    /// Write the state of the anchor in the store of PGSEAL_ANCHOR to standard output
    AnchorRead {
        #[command(flatten)]
        of: Of,
    },
    /// Replace the anchor in the store of PGSEAL_ANCHOR
    AnchorAdvance {
        #[command(flatten)]
        of: Of,
        /// The new state
        #[arg(long, value_name = "HEX")]
        state: State,
    },
    /// Write the file of a cluster in /etc/pgseal/clusters.d; its identity comes on standard input
    Register {
        /// Where the key comes from
        #[arg(long, value_name = "URI")]
        provider: String,
        /// In a line behind the others, not in the first one
        #[arg(long)]
        another: bool,
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
        /// The data directory of the server that asks
        #[arg(long, value_name = "DATADIR")]
        dir: Option<PathBuf>,
        task: column_keys::Task,
    },
    /// For a running server: write a line of the audit trail about new file keys
    RecordReseal {
        #[command(flatten)]
        of: Of,
        /// The active data key
        #[arg(long, value_name = "NUMBER")]
        generation: u32,
        /// How far it is
        #[arg(long)]
        outcome: ResealOutcome,
        /// What gets new keys, and who asked for it
        #[arg(long, value_name = "TEXT")]
        detail: String,
    },
    /// For pgseal-lab: where PostgreSQL, the library and the guard module are, as JSON
    Places {
        /// Directory of the PostgreSQL programs; default: the newest here
        #[arg(long, value_name = "DIR")]
        bindir: Option<PathBuf>,
    },
}

/// How far resealing is.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum ResealOutcome {
    /// It begins
    Begun,
    /// All files have new keys
    Done,
    /// Some have not, or it was interrupted
    Failed,
}

/// Whose server.
#[derive(Debug, clap::Args)]
struct Of {
    /// The data directory
    #[arg(long, value_name = "DATADIR")]
    dir: PathBuf,
    /// The identity of its keyring
    #[arg(long, value_name = "ID", value_parser = identity)]
    id: KeyringId,
}

pub fn run(args: &Args) -> Result<u8, CliError> {
    without_preload()?;
    match &args.task {
        Task::Keys { keyring, id } => out::secret(&frame(keyring, *id)?)?,
        Task::AnchorRead { of } => {
            if let Some(state) = anchor::store(None, &of.dir)?.read(of.id)? {
                println!("{state}");
            }
        }
        Task::AnchorAdvance { of, state } => anchor::store(None, &of.dir)?.advance(of.id, state)?,
        Task::Register { provider, another, group } => {
            let line = if *another { Line::Another } else { Line::First };
            register::serve(provider, line, *group)?;
        }
        Task::NewKeyring { dir, provider, suite, from } => {
            new_keyring::run(dir, provider.clone(), *suite, from.clone())?;
        }
        Task::ColumnKeys { provider, to, dir, task } => {
            column_keys::run(*task, provider, to.as_deref(), dir.as_deref())?;
        }
        Task::RecordReseal { of, generation, outcome, detail } => {
            audit::of_server(ServerAct {
                datadir: of.dir.clone(),
                cluster: of.id.to_string(),
                generation: *generation,
                outcome: match outcome {
                    ResealOutcome::Begun => Outcome::Begun,
                    ResealOutcome::Done => Outcome::Done,
                    ResealOutcome::Failed => Outcome::Failed,
                },
                detail: detail.clone(),
            })?;
        }
        Task::Places { bindir } => places::run(bindir.as_deref())?,
    }
    Ok(exit::SOUND)
}

/// The identity of a keyring on the command line.
fn identity(text: &str) -> Result<KeyringId, String> {
    register::parse_id(text).ok_or_else(|| "not the identity of a keyring".to_owned())
}

/// The hand-over frame of a keyring (`spec/key-hierarchy.md`, section 7); with `wanted`, its keys
/// only if it has this identity.
fn frame(path: &Path, wanted: Option<KeyringId>) -> Result<Zeroizing<Vec<u8>>, CliError> {
    let datadir = path.parent().and_then(Path::parent);
    let conversion =
        match datadir.filter(|datadir| keyring_path(datadir) == *path && datadir.is_dir()) {
            Some(datadir) => DataDir::open(datadir)?.conversion,
            None => {
                as_owner::step_down_beside(path)?;
                None
            }
        };
    let keyring = Keyring::load(path);
    if let (Some(wanted), Ok(keyring)) = (wanted, &keyring)
        && keyring.id() != wanted
    {
        return Ok(Zeroizing::new(handover::encode_other_keyring(keyring.id())));
    }
    // There may be no keyring yet.
    if let Some(journal) = conversion {
        return Ok(Zeroizing::new(handover::encode_interrupted(interrupted(&journal))));
    }
    if keyring.is_err() {
        audit::using_at(datadir.unwrap_or(path));
    }
    let keyring = keyring?;
    audit::using(&keyring);
    let source = keys::source(&keyring, None)?;
    let unlocked = keyring.unlock(&keys::kek_from(&source, &keyring)?)?;
    let variable = keys::variable_of(&source, &keyring)?;
    let shown = match &source {
        Source::Descriptor(_) => "pgseal run".to_owned(),
        Source::Providers(_) => source.shown(),
    };
    Ok(handover::encode_keys(&unlocked, variable.as_deref(), &shown))
}

fn interrupted(journal: &Journal) -> Conversion {
    match journal.operation {
        Operation::Encrypt => Conversion::Encrypt,
        Operation::Decrypt => Conversion::Decrypt,
        Operation::Rekey => Conversion::Rekey,
    }
}

/// Executes the program again without `LD_PRELOAD`, so that no command of a provider inherits the
/// library.
fn without_preload() -> Result<(), CliError> {
    if env::var_os("LD_PRELOAD").is_none() {
        return Ok(());
    }
    let program = library::program()?;
    let error = Command::new(&program).args(env::args_os().skip(1)).env_remove("LD_PRELOAD").exec();
    Err(CliError::Io { path: program, action: "start the helper anew", source: error })
}
