//! Gathers, once, what the checks need.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use pgseal_convert::ConvertError;
use pgseal_core::Suite;
use pgseal_keys::{Keyring, Provider};

use crate::cmd::key::check::{self as key_check, Asks, Report as KeyReport};
use crate::datadir::DataDir;
use crate::error::CliError;
use crate::keys::{self, KeyOptions};
use crate::locks::OwnLock;
use crate::proc;
use crate::scan::{self, Root, Scan};
use crate::{bindir, child, cluster, environment};

/// The settings that the checks need.
const SETTINGS: [&str; 16] = [
    "fsync",
    "full_page_writes",
    "io_method",
    "listen_addresses",
    "log_duration",
    "log_min_duration_sample",
    "log_min_duration_statement",
    "log_parameter_max_length",
    "log_parameter_max_length_on_error",
    "log_replication_commands",
    "log_statement",
    "log_transaction_sample_rate",
    "shared_preload_libraries",
    "ssl",
    "unix_socket_directories",
    "wal_log_hints",
];

/// The report of `pgseal key check`, or why there is none.
pub type KeyLook = Result<KeyReport, String>;

/// Everything that the checks need.
pub struct Context {
    /// The data directory.
    pub dir: DataDir,
    /// Whether an unfinished conversion is running now.
    pub is_converting: bool,
    /// The postmaster, if a server runs.
    pub server_pid: Option<u32>,
    /// The postmaster and its children.
    pub processes: Vec<u32>,
    /// The program `postgres`: that of the running server, else the one that would start.
    pub postgres: Option<PathBuf>,
    /// The settings as the server's program prints them, or why it does not.
    pub settings: Result<BTreeMap<&'static str, String>, String>,
    /// The version of data checksums in `pg_control`: 0 is off.
    pub checksums: Option<u32>,
    /// Whether `full_page_writes` was on at the last checkpoint, which on a standby is the
    /// primary's.
    pub full_page_images: Option<bool>,
    /// All files.
    pub scan: Scan,
    /// The keyring, if it can be read.
    pub keyring: Option<Keyring>,
    /// The provider of the key.
    pub provider: Option<Provider>,
    /// Whether the files open.
    pub key: KeyLook,
    /// The same for each backup.
    pub backups: Vec<(PathBuf, KeyLook)>,
}

impl Context {
    /// Gathers everything.
    ///
    /// # Errors
    /// When there is no sealed cluster.
    pub fn gather(
        dir: DataDir,
        options: &KeyOptions,
        backups: &[PathBuf],
        bindir: Option<&Path>,
    ) -> Result<Context, CliError> {
        let mut scan = scan::scan(&dir.root, Root::DataDir);
        let keyring = match keys::keyring_of(&dir, options, || scan.headers().next().is_some()) {
            Ok(keyring) => Some(keyring),
            // During a conversion the directory may be plain.
            Err(error @ CliError::NotSealed { .. }) if dir.conversion.is_none() => {
                return Err(error);
            }
            // The check of the key reports the error.
            Err(_) => None,
        };
        let environment = environment::variable(environment::PROVIDER)?;
        let uri = options.provider.as_deref().or(environment.as_deref());
        let providers: Vec<Provider> = match (uri, &keyring) {
            (Some(uri), _) => Provider::parse_typed(uri).into_iter().collect(),
            (None, Some(keyring)) => keys::source(keyring, None)
                .map(|source| source.providers().to_vec())
                .unwrap_or_default(),
            (None, None) => Vec::new(),
        };
        let provider = providers.first().cloned();
        let server_pid = dir.server_pid();
        let postgres = find_postgres(&dir, server_pid, bindir);
        let settings = match &postgres {
            Some(program) => read_settings(program, &dir, server_pid),
            None => {
                Err("the program postgres was not found where the system has it; give --bindir"
                    .to_owned())
            }
        };
        let control = postgres.as_deref().and_then(Path::parent);
        let control = control.and_then(|bindir| cluster::control_data(bindir, &dir.root).ok());
        let needs_passphrase =
            !providers.is_empty() && providers.iter().all(Provider::needs_person);
        let key = if needs_passphrase {
            Err("the provider asks for a passphrase, which doctor does not; pgseal key check does"
                .to_owned())
        } else {
            key_check::look_at(&dir, &mut scan, options).map_err(|error| error.to_string())
        };
        let backups = backups.iter().map(|path| {
            let look = if needs_passphrase {
                Err("the provider asks for a passphrase; pgseal key check does".to_owned())
            } else {
                look_at_backup(path, &dir, options)
            };
            (path.clone(), look)
        });
        let backups = backups.collect();
        let is_converting = dir.conversion.is_some()
            && matches!(
                OwnLock::take(&dir.root),
                Err(CliError::Convert(ConvertError::Locked { .. }))
            );
        let processes = server_pid.map(proc::family).unwrap_or_default();
        Ok(Context {
            dir,
            is_converting,
            server_pid,
            processes,
            postgres,
            settings,
            checksums: control.as_ref().map(|control| control.checksum_version),
            full_page_images: control.as_ref().map(|control| control.full_page_writes),
            scan,
            keyring,
            provider,
            key,
            backups,
        })
    }

    /// One setting.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.as_ref().ok()?.get(name).map(String::as_str)
    }

    /// Why there are no settings.
    pub fn no_settings(&self) -> String {
        match &self.settings {
            Ok(_) => "this version has no such setting".to_owned(),
            Err(why) => why.clone(),
        }
    }

    /// Whether a suite that relation files may have needs this; `None`: there is no keyring.
    pub fn suite_needs(&self, what: fn(Suite) -> bool) -> Option<bool> {
        self.keyring.as_ref().map(|keyring| keyring.suites().all().any(what))
    }
}

/// Checks a backup with its own keyring, or an archive with that of the cluster.
fn look_at_backup(path: &Path, dir: &DataDir, options: &KeyOptions) -> KeyLook {
    let has_own = path.is_dir() && pgseal_keys::keyring_path(path).is_file();
    let keyring = if has_own { None } else { Some(dir.keyring()) };
    let options = KeyOptions { provider: options.provider.clone(), keyring };
    key_check::look(path, &options, &[], Asks::Machines).map_err(|error| error.to_string())
}

/// The program `postgres`: the one that runs now, else as [`bindir::of_major`]. Not the one that
/// `postmaster.opts` names: that file lies in the data directory. Links are resolved, since the
/// other programs are in the directory of the real file.
fn find_postgres(dir: &DataDir, server_pid: Option<u32>, given: Option<&Path>) -> Option<PathBuf> {
    if let Some(bindir) = given {
        return Some(bindir.join("postgres")).filter(|path| path.is_file());
    }
    let running = server_pid.and_then(|pid| std::fs::read_link(format!("/proc/{pid}/exe")).ok());
    running
        .filter(|path| path.is_file() && bindir::is_trusted(path, &dir.root))
        .or_else(|| {
            let major = dir.major.as_deref()?;
            bindir::of_major(None, major, &dir.root).ok().map(|dir| dir.join("postgres"))
        })
        .map(|path| path.canonicalize().unwrap_or(path))
}

/// Reads the settings with `postgres -C`, which reads configuration files as the server does. A
/// running server's options are passed on: they may name another configuration file. Without a
/// running server, its last options are in the data directory only and not trusted: the
/// configuration file is searched.
fn read_settings(
    program: &Path,
    dir: &DataDir,
    server_pid: Option<u32>,
) -> Result<BTreeMap<&'static str, String>, String> {
    let running = server_pid.and_then(|pid| std::fs::read(format!("/proc/{pid}/cmdline")).ok());
    let options = match running {
        Some(cmdline) => proc::options(&cmdline),
        None => {
            let major = dir.major.as_deref().unwrap_or_default();
            let found =
                cluster::config_file(None, &dir.root, major).map_err(|error| error.to_string())?;
            let named =
                |path: PathBuf| vec!["-c".to_owned(), format!("config_file={}", path.display())];
            let found = found.ok_or("there is no postgresql.conf, or it is no file")?;
            named(found)
        }
    };
    let auto = dir.root.join("postgresql.auto.conf");
    if auto.exists() && !auto.is_file() {
        return Err(format!("{}: it is not a regular file", auto.display()));
    }
    let names_dir = options.iter().any(|word| word.starts_with("-D"));
    let ask = |name: &str| {
        let mut command = Command::new(program);
        command.arg("-C").arg(name).args(&options).current_dir("/");
        if !names_dir {
            command.arg("-D").arg(&dir.root);
        }
        child::output(command.env("LC_ALL", "C").env_remove("LD_PRELOAD"))
    };
    let mut settings = BTreeMap::new();
    let mut message = String::new();
    for name in SETTINGS {
        let output = ask(name).map_err(|error| format!("{}: {error}", program.display()))?;
        if output.status.success() {
            let value = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
            settings.insert(name, value);
        } else {
            message =
                String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or("").to_owned();
            // Every version has fsync; the other settings may be newer than the server.
            if name == "fsync" {
                break;
            }
        }
    }
    if settings.is_empty() {
        return Err(format!("the settings cannot be read: {message}"));
    }
    Ok(settings)
}
