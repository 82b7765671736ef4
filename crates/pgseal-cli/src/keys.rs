//! From a data directory, a file or the command line to unlocked data keys.

use std::env;
use std::path::{Path, PathBuf};

use pgseal_core::KeySet;
use pgseal_keys::{Kek, KeyError, Keyring, Provider, kek_for_keyring, keyring_path};

use crate::datadir::{self, DataDir};
use crate::error::CliError;

/// The environment variable that names a descriptor with the raw KEK.
pub const KEK_FD: &str = "PGSEAL_KEK_FD";
/// The environment variable that names the provider.
pub const PROVIDER: &str = "PGSEAL_PROVIDER";

/// Where to take keys from, as the command line says.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct KeyOptions {
    /// Where the key comes from, if not from where the keyring says: env:NAME, file:PATH,
    /// command:SHELL COMMAND, passphrase:
    #[arg(short = 'K', long = "key-provider", value_name = "PROVIDER")]
    pub provider: Option<String>,
    /// The keyring, if it is not DIR/pgseal/keyring: a copy kept beside a backup, for example
    #[arg(long, value_name = "FILE")]
    pub keyring: Option<PathBuf>,
}

/// The number in `PGSEAL_KEK_FD`.
pub fn kek_fd() -> Result<Option<u32>, KeyError> {
    let Some(text) = env::var_os(KEK_FD) else { return Ok(None) };
    let number = text.to_str().and_then(|text| text.parse().ok());
    number.map(Some).ok_or_else(|| KeyError::ProviderFailed {
        provider: KEK_FD.to_owned(),
        what: "not the number of a descriptor; pgseal sets it itself: unset it".to_owned(),
    })
}

/// A variable of the environment, if it is set and not empty.
pub fn variable(name: &str) -> Result<Option<String>, CliError> {
    match env::var(name) {
        Ok(text) if text.is_empty() => Ok(None),
        Ok(text) => Ok(Some(text)),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(env::VarError::NotUnicode(_)) => Err(CliError::Usage(format!(
            "the environment variable {name} is not UTF-8; set it anew or unset it"
        ))),
    }
}

/// The KEK of a keyring: from the given provider, else as the environment and the keyring say.
pub fn kek(keyring: &Keyring, provider: Option<&str>) -> Result<Kek, CliError> {
    match provider {
        Some(uri) => Ok(Provider::parse_typed(uri)?.kek(keyring.passphrase_params())?),
        None => Ok(kek_for_keyring(keyring, variable(PROVIDER)?.as_deref(), kek_fd()?)?),
    }
}

/// The keyring of a data directory. "Not sealed" and "the keyring is gone" are different errors:
/// `any_sealed` tells whether sealed files were met.
pub fn keyring_of(
    dir: &DataDir,
    options: &KeyOptions,
    any_sealed: impl FnOnce() -> bool,
) -> Result<Keyring, CliError> {
    let path = options.keyring.clone().unwrap_or_else(|| dir.keyring());
    match Keyring::load(&path) {
        Err(KeyError::KeyringMissing { .. }) if options.keyring.is_none() && !any_sealed() => {
            Err(not_sealed(&dir.root))
        }
        other => Ok(other?),
    }
}

/// The error about a plain data directory.
pub fn not_sealed(root: &Path) -> CliError {
    CliError::NotSealed {
        path: root.to_owned(),
        remedy: "there is no pgseal/keyring in it and no sealed file; \
                 make a sealed one with: pgseal initdb -k -K PROVIDER DIR",
    }
}

/// The unlocked keys for one file: of `--keyring`, of `-D`, of the data directory around the file,
/// or of whichever directory in `PGSEAL_DATA` has the keyring that the file names.
pub fn for_file(
    file: &Path,
    wanted: pgseal_core::KeyringId,
    options: &KeyOptions,
    datadir: Option<&Path>,
) -> Result<KeySet, CliError> {
    let named = options.keyring.clone().or_else(|| datadir.map(keyring_path));
    let path = match named.or_else(|| datadir::above(file).map(|dir| keyring_path(&dir))) {
        Some(path) => Some(path),
        None => in_data_list(wanted),
    };
    let Some(path) = path else {
        return Err(CliError::Usage(format!(
            "{}: it is in no sealed data directory, so its keyring ({wanted}) is not known; \
             give -D DIR, --keyring FILE, or set PGSEAL_DATA",
            file.display()
        )));
    };
    let keyring = Keyring::load(&path)?;
    keyring.expect_id(wanted)?;
    Ok(keyring.unlock(&kek(&keyring, options.provider.as_deref())?)?)
}

/// The keyring with this identity of a directory in `PGSEAL_DATA`.
pub fn in_data_list(wanted: pgseal_core::KeyringId) -> Option<PathBuf> {
    let list = env::var_os("PGSEAL_DATA")?;
    env::split_paths(&list)
        .map(|dir| keyring_path(&dir))
        .find(|path| Keyring::load(path).is_ok_and(|keyring| keyring.id() == wanted))
}
