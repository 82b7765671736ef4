//! From a data directory, a file or the command line to unlocked data keys.

use std::env;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use pgseal_core::KeySet;
use pgseal_keys::{Clusters, CostLimit, Kek, KeyError, Keyring, Provider, Source, keyring_path};

use crate::datadir::{self, DataDir};
use crate::error::CliError;

/// The environment variable that names a descriptor with the raw KEK.
pub const KEK_FD: &str = "PGSEAL_KEK_FD";
/// The environment variable that names the provider.
pub const PROVIDER: &str = "PGSEAL_PROVIDER";

/// Where to take keys from, as the command line says.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct KeyOptions {
    /// Where the key comes from: env:NAME, file:PATH, command:SHELL COMMAND, passphrase:. Default: what
    /// PGSEAL_PROVIDER, the cluster's file in /etc/pgseal/clusters.d or the keyring names; of the
    /// latter only env:, file: and passphrase:
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

/// The environment variable that names the keyrings that a server may have.
pub const KEYRING_ID: &str = "PGSEAL_KEYRING_ID";

/// The environment variable that says, with the value `locked`, that a server's configuration must be
/// locked.
pub const CONFIG: &str = "PGSEAL_CONFIG";

/// Where the key of a keyring comes from: the given provider, else as the environment, the file of
/// the cluster in `/etc/pgseal/clusters.d` and, with its limits, the keyring say.
pub fn source(keyring: &Keyring, provider: Option<&str>) -> Result<Source, CliError> {
    let environment = variable(PROVIDER)?;
    let clusters = Clusters::from_environment();
    Ok(Source::find(keyring, provider, environment.as_deref(), kek_fd()?, &clusters)?)
}

/// The KEK of a keyring, from its [`source`].
pub fn kek(keyring: &Keyring, provider: Option<&str>) -> Result<Kek, CliError> {
    kek_from(&source(keyring, provider)?, keyring)
}

/// The KEK of a keyring, from a source that was found.
pub fn kek_from(source: &Source, keyring: &Keyring) -> Result<Kek, CliError> {
    let ahead = AHEAD.lock().unwrap_or_else(PoisonError::into_inner);
    if let (Some((provider, key)), Some(asked)) = (&*ahead, source.provider())
        && provider == asked
    {
        return Ok(key.duplicate());
    }
    Ok(source.kek(keyring, cost_limit())?)
}

static COST_IS_ALLOWED: AtomicBool = AtomicBool::new(false);

/// `--allow-cost` was given.
pub fn allow_cost() {
    COST_IS_ALLOWED.store(true, Ordering::Relaxed);
}

/// What a passphrase may cost whose parameters nobody has authenticated.
pub fn cost_limit() -> CostLimit {
    match COST_IS_ALLOWED.load(Ordering::Relaxed) {
        true => CostLimit::Format,
        false => CostLimit::Sensible,
    }
}

/// What the command line names as the source of a key that is there already.
static GIVEN: Mutex<Option<String>> = Mutex::new(None);
/// The key that was read before root stepped down.
static AHEAD: Mutex<Option<(Provider, Kek)>> = Mutex::new(None);

/// Remembers what the command line names, for [`read_ahead`].
pub fn remember_given(uri: &str) {
    *GIVEN.lock().unwrap_or_else(PoisonError::into_inner) = Some(uri.to_owned());
}

/// Reads a key file that root names, and only root can read, before root becomes another user.
///
/// # Errors
/// Those of the provider.
pub fn read_ahead() -> Result<(), CliError> {
    let given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let uri = match given {
        Some(uri) => Some(uri),
        None => variable(PROVIDER)?,
    };
    let provider = uri.and_then(|uri| Provider::parse_typed(&uri).ok());
    let Some(provider @ Provider::File(_)) = provider else { return Ok(()) };
    let Provider::File(path) = &provider else { return Ok(()) };
    let is_roots = fs::metadata(path).is_ok_and(|meta| meta.uid() == 0 && meta.is_file());
    if is_roots {
        let key = provider.kek(None)?;
        *AHEAD.lock().unwrap_or_else(PoisonError::into_inner) = Some((provider, key));
    }
    Ok(())
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
