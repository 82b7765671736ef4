//! Finds the keyring and the key for a data directory or a file, and unlocks the data keys.

use std::env;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use pgseal_core::KeySet;
use pgseal_keys::{
    Attempt, Clusters, CostLimit, Kek, KeyError, Keyring, Source, keyring_path, update,
};
use rustix::fs::MemfdFlags;

use crate::datadir::{self, DataDir};
use crate::environment::{PROVIDER, kek_fd, variable};
use crate::error::CliError;
use crate::values::KeySource;
use crate::{audit, key_ahead, scan};

/// The options of the command line that say where keys come from.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct KeyOptions {
    /// Where the key comes from: env:NAME, file:PATH, command:SHELL COMMAND, passphrase:, or
    /// NAME:... for a key store (docs/key-stores.md). Default:
    /// what PGSEAL_PROVIDER, the cluster's file in /etc/pgseal/clusters.d or the keyring names; of
    /// the latter only env:, file: and passphrase:
    #[arg(short = 'K', long = "key-provider", value_name = "PROVIDER")]
    #[arg(value_parser = KeySource, hide_possible_values = true)]
    pub provider: Option<String>,
    /// The keyring, if it is not DIR/pgseal/keyring: a copy kept beside a backup, for example
    #[arg(long, value_name = "FILE")]
    pub keyring: Option<PathBuf>,
}

/// The option of a command that opens the keyring of a data directory.
#[derive(Clone, Debug, clap::Args)]
pub struct PresentKey {
    /// Where the key comes from, if not from where the keyring says
    #[arg(short = 'K', long = "key-provider", value_name = "PROVIDER")]
    #[arg(value_parser = KeySource, hide_possible_values = true)]
    pub provider: Option<String>,
}

/// Where the key of a keyring comes from: the given provider, else that of the environment, of the
/// cluster's file in `/etc/pgseal/clusters.d`, or of the keyring, which may name certain providers
/// only.
pub fn source(keyring: &Keyring, provider: Option<&str>) -> Result<Source, CliError> {
    let environment = variable(PROVIDER)?;
    let clusters = Clusters::from_environment();
    Ok(Source::find(keyring, provider, environment.as_deref(), kek_fd()?, &clusters)?)
}

/// The environment variable that holds the key of a keyring.
pub fn variable_of(source: &Source, keyring: &Keyring) -> Result<Option<String>, CliError> {
    let environment = variable(PROVIDER)?;
    Ok(source.variable(keyring, environment.as_deref(), &Clusters::from_environment()))
}

/// The KEK of a keyring, from its [`source`].
pub fn kek(keyring: &Keyring, provider: Option<&str>) -> Result<Kek, CliError> {
    audit::using(keyring);
    kek_from(&source(keyring, provider)?, keyring)
}

/// The KEK of a keyring, from a source that was found.
pub fn kek_from(source: &Source, keyring: &Keyring) -> Result<Kek, CliError> {
    audit::using(keyring);
    let key = match source.provider().and_then(key_ahead::of) {
        Some(key) => key,
        None => source.kek(keyring, cost_limit())?,
    };
    audit::opened(keyring, &key)?;
    Ok(key)
}

/// What each provider of a source gives for each slot of the keyring; none if the key was read
/// already.
///
/// # Errors
/// As [`Source::try_all`].
pub fn try_all(source: &Source, keyring: &Keyring) -> Result<Vec<Attempt>, CliError> {
    if source.provider().and_then(key_ahead::of).is_some() {
        return Ok(Vec::new());
    }
    audit::using(keyring);
    let attempts = source.try_all(keyring, cost_limit())?;
    if let Some(kek) = attempts.iter().find_map(|attempt| attempt.result.as_ref().ok()) {
        audit::opened(keyring, kek)?;
    }
    Ok(attempts)
}

static COST_IS_ALLOWED: AtomicBool = AtomicBool::new(false);

/// Allows any cost that the format allows: `--allow-cost` was given.
pub fn allow_cost() {
    COST_IS_ALLOWED.store(true, Ordering::Relaxed);
}

/// The limit for the cost of a passphrase: its parameters in the keyring are not authenticated.
pub fn cost_limit() -> CostLimit {
    match COST_IS_ALLOWED.load(Ordering::Relaxed) {
        true => CostLimit::Format,
        false => CostLimit::Sensible,
    }
}

/// The keyring of a data directory. If there is none, `any_sealed` decides the error: "the keyring
/// is gone" if there are sealed files, else "not sealed".
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

/// The keyring of a data directory, where the command line can name no other one.
///
/// # Errors
/// As [`keyring_of`].
pub fn own_keyring(dir: &DataDir) -> Result<Keyring, CliError> {
    keyring_of(dir, &KeyOptions::default(), || scan::any_sealed(&dir.root))
}

/// Changes the keyring of a data directory that no other program changes meanwhile, and returns
/// what it is then.
///
/// # Errors
/// Those of `change`; [`CliError`] if a conversion was interrupted before its first file.
pub fn change_own(
    dir: &DataDir,
    change: impl FnOnce(&mut Keyring) -> Result<(), KeyError>,
) -> Result<Keyring, CliError> {
    update(&dir.keyring(), |keyring| {
        // If an interrupted conversion is undone, that restores the old keyring.
        if let Err(error) = datadir::expect_begun_or_none(&dir.root) {
            return Ok(Err(error));
        }
        change(keyring).map(|()| Ok(keyring.clone()))
    })?
}

/// The error about a plain data directory.
pub fn not_sealed(root: &Path) -> CliError {
    CliError::NotSealed {
        path: root.to_owned(),
        remedy: "there is no pgseal/keyring in it and no sealed file; \
                 make a sealed one with: pgseal initdb -k -K PROVIDER DIR",
    }
}

/// The unlocked keys for one file: of `--keyring`, of `-D`, of the data directory that the file
/// lies in, or of the directory in `PGSEAL_DATA` with the keyring that the file names.
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

/// Puts the KEK into a memfd, which programs that this one starts inherit.
pub fn in_memory(kek: &Kek) -> Result<OwnedFd, CliError> {
    let path = Path::new("memfd");
    let failed = |action| {
        move |error: rustix::io::Errno| CliError::Io {
            path: path.to_owned(),
            action,
            source: error.into(),
        }
    };
    let fd = rustix::fs::memfd_create("pgseal-kek", MemfdFlags::empty())
        .map_err(failed("make memory for the key"))?;
    let bytes = kek.to_memfd_bytes()?;
    let mut off = 0;
    while let Some(rest) = bytes.get(off..).filter(|rest| !rest.is_empty()) {
        let at = u64::try_from(off).unwrap_or(u64::MAX);
        off += rustix::io::pwrite(&fd, rest, at).map_err(failed("write the key to memory"))?;
    }
    Ok(fd)
}
