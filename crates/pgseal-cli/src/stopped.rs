//! The data directory of a server that does not run, as the argument of a command.

use pgseal_core::KeySet;

use crate::datadir::DataDir;
use crate::error::CliError;
use crate::given_dir::GivenDir;
use crate::keys::{self, PresentKey};
use crate::locks::refuse_running;

/// A sealed data directory and its key.
#[derive(Debug, clap::Args)]
pub struct Stopped {
    #[command(flatten)]
    dir: GivenDir,
    #[command(flatten)]
    key: PresentKey,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl Stopped {
    /// The directory and its data keys, for this command.
    ///
    /// # Errors
    /// When the directory is not whole, its server runs, or the key does not open its keyring.
    pub fn open(&self, command: &str) -> Result<(DataDir, KeySet), CliError> {
        let dir = DataDir::open(&self.dir.path(command)?)?;
        dir.expect_whole()?;
        refuse_running(&dir)?;
        let keyring = keys::own_keyring(&dir)?;
        let keys = keyring.unlock(&keys::kek(&keyring, self.key.provider.as_deref())?)?;
        Ok((dir, keys))
    }
}
