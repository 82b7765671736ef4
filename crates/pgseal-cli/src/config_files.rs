//! Finds the files that the server reads as its configuration (`spec/config-lock.md`, section 1).

mod syntax;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use pgseal_keys::config_record::{MAX_KEPT_LEN, Version, is_name};
use pgseal_keys::open_regular;

use crate::cluster;
use crate::datadir::DataDir;
use crate::error::CliError;

/// The depth to which the server follows includes (`CONF_FILE_MAX_DEPTH`, `conffiles.h`).
const MAX_DEPTH: usize = 10;
/// A limit that no real configuration reaches.
const MAX_FILES: usize = 2000;
/// The longest file that is read for its digest.
const MAX_LEN: u64 = 64 << 20;

/// Settings that name a library, which the server loads.
const LIBRARIES: [&str; 6] = [
    "shared_preload_libraries",
    "session_preload_libraries",
    "local_preload_libraries",
    "dynamic_library_path",
    "archive_library",
    "oauth_validator_libraries",
];
/// Settings that hold a command, which the server runs.
const COMMANDS: [&str; 5] = [
    "archive_command",
    "restore_command",
    "archive_cleanup_command",
    "recovery_end_command",
    "ssl_passphrase_command",
];
/// Settings that name a file of certificates or keys.
const TLS_FILES: [(&str, &str); 6] = [
    ("ssl_cert_file", "server.crt"),
    ("ssl_key_file", "server.key"),
    ("ssl_ca_file", ""),
    ("ssl_crl_file", ""),
    ("ssl_dh_params_file", ""),
    ("krb_server_keyfile", ""),
];

/// The configuration of a data directory.
#[derive(Debug, Default)]
pub struct ConfigFiles {
    /// The files and directories below the data directory, by their names in the record.
    pub inside: BTreeMap<Vec<u8>, Version>,
    /// The files outside of it.
    pub outside: BTreeSet<PathBuf>,
    /// Programs in the data directory that a setting names.
    pub commands: Vec<String>,
    /// Libraries in the data directory that a setting names, which is refused.
    pub libraries: Vec<String>,
}

struct Walk {
    root: PathBuf,
    real_root: PathBuf,
    found: ConfigFiles,
    settings: BTreeMap<String, String>,
}

/// Finds the files, following their includes.
///
/// # Errors
/// When a file cannot be read, or is not a regular file.
pub fn find(dir: &DataDir) -> Result<ConfigFiles, CliError> {
    let major = dir.major.clone().unwrap_or_default();
    let real_root = dir.root.canonicalize().map_err(CliError::io(&dir.root, "find it"))?;
    let mut walk = Walk {
        root: lexical(&dir.root),
        real_root,
        found: ConfigFiles::default(),
        settings: BTreeMap::new(),
    };
    let own = walk.root.join("postgresql.conf");
    let main = if own.exists() {
        own
    } else {
        let found = cluster::config_file(None, &dir.root, &major)?;
        found.unwrap_or(own)
    };
    walk.settings_file(&main, 0)?;
    walk.settings_file(&walk.root.join("postgresql.auto.conf"), 0)?;
    for signal in ["recovery.signal", "standby.signal"] {
        walk.add(&walk.root.join(signal))?;
    }
    for (name, file) in [("hba_file", "pg_hba.conf"), ("ident_file", "pg_ident.conf")] {
        let path = match walk.settings.get(name).filter(|value| !value.is_empty()) {
            Some(value) => walk.root.join(value),
            None => main.parent().unwrap_or(&walk.root).join(file),
        };
        walk.access_file(&path, 0)?;
    }
    walk.tls_files()?;
    walk.programs();
    Ok(walk.found)
}

impl Walk {
    /// The name of a path in the record; `None` outside of the data directory.
    fn name(&self, path: &Path) -> Option<Vec<u8>> {
        let path = lexical(path);
        let rest = path.strip_prefix(&self.root).or_else(|_| path.strip_prefix(&self.real_root));
        let name = rest.ok()?.as_os_str().as_bytes().to_vec();
        is_name(&name).then_some(name)
    }

    /// Records a file, whether it exists or not. Returns its text, unless it was recorded before.
    fn add(&mut self, path: &Path) -> Result<Option<Vec<u8>>, CliError> {
        let Some(name) = self.name(path) else {
            let is_new = self.found.outside.insert(lexical(path));
            let text = if is_new { read(path)? } else { None };
            if is_new && text.is_none() {
                self.found.outside.remove(&lexical(path));
            }
            return Ok(text);
        };
        if self.found.inside.contains_key(&name) {
            return Ok(None);
        }
        if self.found.inside.len() + self.found.outside.len() >= MAX_FILES {
            return Err(refused(path, "more files of configuration than can be recorded"));
        }
        let text = read(path)?;
        let version = match &text {
            None => Version::Absent,
            Some(bytes) if bytes.len() > MAX_KEPT_LEN => Version::digest_of(bytes),
            Some(bytes) => Version::Content(bytes.clone()),
        };
        self.found.inside.insert(name, version);
        Ok(text)
    }

    /// As [`Walk::add`], but records a digest and no content. A file outside of the data directory
    /// is not opened: such files include no others.
    fn add_secret(&mut self, path: &Path) -> Result<(), CliError> {
        if self.name(path).is_none() {
            self.found.outside.insert(lexical(path));
            return Ok(());
        }
        self.add(path)?;
        if let Some(name) = self.name(path)
            && let Some(version) = self.found.inside.get_mut(&name)
            && let Version::Content(bytes) = version
        {
            *version = Version::digest_of(bytes);
        }
        Ok(())
    }

    /// The files that end in `.conf`, and the directory itself.
    fn directory(&mut self, path: &Path) -> Result<Vec<PathBuf>, CliError> {
        if let Some(name) = self.name(path) {
            self.found.inside.insert(name, Version::Directory);
        }
        let listing = fs::read_dir(path).map_err(CliError::io(path, "read the directory"))?;
        let mut files = Vec::new();
        for item in listing {
            let item = item.map_err(CliError::io(path, "read the directory"))?;
            let name = item.file_name();
            let name = name.as_bytes();
            if name.ends_with(b".conf") && !name.starts_with(b".") {
                files.push(item.path());
            }
        }
        files.sort();
        Ok(files)
    }

    /// A file of settings, and what it includes.
    fn settings_file(&mut self, path: &Path, depth: usize) -> Result<(), CliError> {
        let Some(text) = self.add(path)? else { return Ok(()) };
        let dir = path.parent().unwrap_or(Path::new("/")).to_owned();
        for (name, value) in syntax::settings(&text) {
            let file = dir.join(OsStr::from_bytes(value.as_bytes()));
            let deeper = depth < MAX_DEPTH;
            match name.as_str() {
                "include" | "include_if_exists" if deeper => {
                    self.settings_file(&file, depth + 1)?
                }
                "include_dir" if deeper => {
                    for file in self.directory(&file)? {
                        self.settings_file(&file, depth + 1)?;
                    }
                }
                _ => {
                    self.settings.insert(name, value);
                }
            }
        }
        Ok(())
    }

    /// `pg_hba.conf` or `pg_ident.conf`, and what it includes.
    fn access_file(&mut self, path: &Path, depth: usize) -> Result<(), CliError> {
        let Some(text) = self.add(path)? else { return Ok(()) };
        if depth >= MAX_DEPTH {
            return Ok(());
        }
        let dir = path.parent().unwrap_or(Path::new("/")).to_owned();
        for (how, name) in syntax::included(&text) {
            let file = dir.join(OsStr::from_bytes(&name));
            if how == syntax::Included::Directory {
                for file in self.directory(&file)? {
                    self.access_file(&file, depth + 1)?;
                }
            } else {
                self.access_file(&file, depth + 1)?;
            }
        }
        Ok(())
    }

    fn tls_files(&mut self) -> Result<(), CliError> {
        let value = |name: &str| self.settings.get(name).cloned();
        let named: Vec<PathBuf> = TLS_FILES
            .into_iter()
            .map(|(name, default)| value(name).unwrap_or_else(|| default.to_owned()))
            .filter(|value| !value.is_empty())
            .map(|value| self.root.join(value.strip_prefix("FILE:").unwrap_or(&value)))
            .collect();
        let revoked = value("ssl_crl_dir").filter(|value| !value.is_empty());
        for path in named {
            self.add_secret(&path)?;
        }
        if let Some(dir) = revoked.map(|dir| self.root.join(dir)) {
            if self.name(&dir).is_none() {
                self.found.outside.insert(lexical(&dir));
                return Ok(());
            }
            let listing = fs::read_dir(&dir).map_err(CliError::io(&dir, "read the directory"))?;
            for item in listing.flatten().filter(|item| item.path().is_file()) {
                self.add_secret(&item.path())?;
            }
        }
        Ok(())
    }

    /// Finds settings that name libraries or programs in the data directory.
    fn programs(&mut self) {
        let is_inside = |text: &str| {
            [&self.root, &self.real_root].iter().any(|root| text.contains(&*root.to_string_lossy()))
        };
        let list = |names: &[&str], names_inside: &dyn Fn(&str) -> bool| {
            let set = names.iter().filter_map(|name| Some((name, self.settings.get(*name)?)));
            set.filter(|(_, value)| names_inside(value))
                .map(|(name, value)| format!("{name} = '{value}'"))
                .collect::<Vec<_>>()
        };
        // The server's working directory is the data directory: a relative path of a library is in
        // it.
        let is_relative = |element: &str| {
            element.contains('/') && !element.starts_with('/') && !element.starts_with("$libdir")
        };
        let libraries = list(&LIBRARIES, &|value| {
            is_inside(value)
                || value.split([',', ':']).any(|part| is_relative(part.trim().trim_matches('"')))
        });
        let commands = list(&COMMANDS, &is_inside);
        (self.found.libraries, self.found.commands) = (libraries, commands);
    }
}

/// The bytes of a regular file; `None` if the path does not exist.
///
/// # Errors
/// When the path is no regular file, or cannot be read.
pub fn read(path: &Path) -> Result<Option<Vec<u8>>, CliError> {
    let mut bytes = Vec::new();
    let opened = match open_regular(path) {
        Ok(file) => file.take(MAX_LEN + 1).read_to_end(&mut bytes),
        Err(error) => Err(error),
    };
    match opened {
        Ok(_) if bytes.len() as u64 > MAX_LEN => Err(refused(path, "longer than 64 MiB")),
        Ok(_) => Ok(Some(bytes)),
        Err(error)
            if [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&error.kind()) =>
        {
            Ok(None)
        }
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            Err(refused(path, &error.to_string()))
        }
        Err(error) => Err(CliError::io(path, "read the configuration")(error)),
    }
}

fn refused(path: &Path, what: &str) -> CliError {
    CliError::NotNow(format!(
        "{}: {what}; the server would read it as configuration: put the right file there",
        path.display()
    ))
}

/// An absolute path without `.` and `..`; links are not resolved, as the server does not resolve
/// them.
fn lexical(path: &Path) -> PathBuf {
    let mut result = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::ParentDir => {
                result.pop();
            }
            Component::Normal(name) => result.push(name),
            _ => {}
        }
    }
    result
}
