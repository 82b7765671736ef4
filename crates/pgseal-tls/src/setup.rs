//! `pgseal tls init`: makes the certificates, settings and rules of one cluster.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::authority::{Authority, KeyKind, Pair};
use crate::error::TlsError;
use crate::files::{self, CERTIFICATE_MODE, KEY_MODE, Owner, Written};
use crate::hba::{self, Rewritten};
use crate::settings::{self, Abilities, Setting};
use crate::version::Version;

/// The options of `pgseal tls init`.
#[derive(Debug, Clone)]
pub struct Wish {
    /// The directory with `postgresql.conf`, which is passed to `postgres -D`.
    pub dir: PathBuf,
    /// The program `postgres`.
    pub postgres: PathBuf,
    /// Host names and addresses of the server. The first one goes into the connection string.
    pub hosts: Vec<String>,
    /// Kind of the keys.
    pub key: KeyKind,
    /// Validity of server and client certificates in days.
    pub days: u32,
    /// Database users who get a client certificate.
    pub clients: Vec<String>,
    /// The directory of an existing or new CA; `None` for the default, beside the data directory.
    pub ca_dir: Option<PathBuf>,
    /// The oldest version of TLS that the server shall accept.
    pub oldest: Version,
    /// Runs a program and returns its output, with a time limit: a FIFO among the configuration
    /// files would make `postgres` wait for ever.
    pub output: fn(&mut Command) -> io::Result<Output>,
}

/// What was done.
#[derive(Debug, Clone)]
pub struct Done {
    /// Files, in the order of writing.
    pub written: Vec<Written>,
    /// Directory of the CA.
    pub ca_dir: PathBuf,
    /// Whether the CA existed already.
    pub ca_reused: bool,
    /// The new settings.
    pub settings: Vec<Setting>,
    /// The new rules of `pg_hba.conf`.
    pub rules: Rewritten,
    /// Connection strings: for passwords, then for each client certificate.
    pub conninfo: Vec<String>,
    /// Notes for the administrator.
    pub notes: Vec<String>,
}

/// Name of the file with the settings, beside `postgresql.conf`.
pub const SETTINGS_FILE: &str = "pgseal-tls.conf";

/// What `postgres -C` says about the cluster.
struct Cluster {
    data: PathBuf,
    config: PathBuf,
    hba: PathBuf,
    port: String,
    owner: Owner,
    major: u32,
}

/// Sets up TLS. Checks everything that can be checked before it writes the first file.
///
/// # Errors
/// [`TlsError`]. Files that were replaced before the error are kept beside the new ones.
pub fn set_up(wish: &Wish) -> Result<Done, TlsError> {
    let cluster = Cluster::look(wish)?;
    let ml_kem = if cluster.major >= settings::FIRST_WITH_GROUPS {
        settings::has_ml_kem(&wish.postgres)
    } else {
        Some(false)
    };
    let abilities = Abilities {
        major: cluster.major,
        ml_kem: ml_kem == Some(true),
        aes: settings::has_aes_instructions(),
    };
    let mut wanted = settings::recommended(abilities, wish.oldest);
    wanted.extend(file_settings(!wish.clients.is_empty()));
    refuse_overridden(&cluster, &wanted)?;
    let old_rules =
        fs::read_to_string(&cluster.hba).map_err(TlsError::io(&cluster.hba, "read the rules"))?;
    let ca_dir = wish.ca_dir.clone().unwrap_or_else(|| beside(&cluster.data));
    if ca_dir.starts_with(&cluster.data) {
        return Err(TlsError::Settings(format!(
            "{}: the CA's key would be in the data directory, and so in every base backup; give \
             another --ca-dir",
            ca_dir.display()
        )));
    }
    for user in &wish.clients {
        if user.is_empty() || user.contains('/') || user.starts_with('.') {
            return Err(TlsError::Certificate(format!("\"{user}\": no name for a client's files")));
        }
    }
    let (authority, new_ca) = open_or_create(&ca_dir, wish)?;
    let server = authority.server(&wish.hosts, wish.key, wish.days)?;
    let clients = wish.clients.iter().map(|user| authority.client(user, wish.key, wish.days));
    let clients: Vec<Pair> = clients.collect::<Result<_, _>>()?;

    let owner = cluster.owner;
    let mut done = Done {
        written: Vec::new(),
        ca_reused: new_ca.is_none(),
        settings: wanted,
        rules: hba::tls_only(&old_rules, &files::backup_name(&cluster.hba).display().to_string()),
        conninfo: Vec::new(),
        notes: Vec::new(),
        ca_dir: ca_dir.canonicalize().unwrap_or(ca_dir),
    };
    files::private_directory(&done.ca_dir, owner)?;
    done.ca_dir = done.ca_dir.canonicalize().unwrap_or(done.ca_dir);
    if let Some(pair) = &new_ca {
        done.write_pair(&done.ca_dir.join("ca"), pair, owner)?;
    }
    for (user, pair) in wish.clients.iter().zip(&clients) {
        done.write_pair(&done.ca_dir.join(format!("client-{user}")), pair, owner)?;
    }
    if !clients.is_empty() {
        let root = cluster.data.join("root.crt");
        done.write(&root, authority.pem().as_bytes(), CERTIFICATE_MODE, owner)?;
    }
    done.write_pair(&cluster.data.join("server"), &server, owner)?;
    done.write_settings(&cluster, owner)?;
    if !hba::is_tls_only(&old_rules) {
        let mode =
            fs::metadata(&cluster.hba).map_or(KEY_MODE, |meta| meta.permissions().mode() & 0o777);
        let text = done.rules.text.clone();
        done.write(&cluster.hba, text.as_bytes(), mode, Owner::of(&cluster.hba)?)?;
    }
    // This comes last, because from now on the server uses the new settings.
    include(&cluster, &mut done)?;
    verify_settings(wish, &done.settings)?;
    done.say(wish, &cluster, ml_kem);
    Ok(done)
}

impl Cluster {
    fn look(wish: &Wish) -> Result<Cluster, TlsError> {
        let ask = |name: &str| ask(wish, name);
        let data = PathBuf::from(ask("data_directory")?);
        let data = data.canonicalize().map_err(TlsError::io(&data, "open the data directory"))?;
        let version = ask("server_version_num")?;
        let major = version.parse::<u32>().map(|number| number / 10_000).map_err(|_| {
            TlsError::Program {
                program: wish.postgres.display().to_string(),
                said: format!("its version is \"{version}\""),
            }
        })?;
        if major < settings::FIRST_WITH_VERSIONS {
            return Err(TlsError::Settings(format!(
                "PostgreSQL {major} cannot refuse old versions of TLS; {} or newer is needed",
                settings::FIRST_WITH_VERSIONS
            )));
        }
        if ask("ssl_library")?.is_empty() {
            return Err(TlsError::Settings(format!(
                "{}: this PostgreSQL was built without TLS; take another build of it. Nothing has \
                 been changed",
                wish.postgres.display()
            )));
        }
        let owner = Owner::of(&data)?;
        let here = |name: String| {
            let path = PathBuf::from(name);
            if path.is_absolute() { path } else { data.join(path) }
        };
        Ok(Cluster {
            config: here(ask("config_file")?),
            hba: here(ask("hba_file")?),
            port: ask("port")?,
            owner,
            major,
            data,
        })
    }
}

/// The value of a setting, as the server reads it from its configuration files.
///
/// # Errors
/// [`TlsError::Program`] with what `postgres -C` said.
fn ask(wish: &Wish, name: &str) -> Result<String, TlsError> {
    let Wish { postgres, dir, output, .. } = wish;
    // With -C as its first argument, postgres may be run by root.
    let mut command = Command::new(postgres);
    command.args(["-C", name, "-D"]).arg(dir).env_remove("LD_PRELOAD");
    let output = output(&mut command).map_err(TlsError::io(postgres, "run it"))?;
    if !output.status.success() {
        return Err(TlsError::Program {
            program: format!("{} -C {name} -D {}", postgres.display(), dir.display()),
            said: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        });
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end_matches('\n').to_owned())
}

fn file_settings(clients: bool) -> Vec<Setting> {
    let setting = |name, value: &str, why| Setting { name, value: value.to_owned(), why };
    let mut all = vec![
        setting("ssl_cert_file", "server.crt", "in the data directory"),
        setting("ssl_key_file", "server.key", "in the data directory"),
    ];
    if clients {
        all.push(setting("ssl_ca_file", "root.crt", "who signs the clients' certificates"));
    }
    all
}

/// Fails if ALTER SYSTEM has set another value of a wanted setting: the server reads
/// `postgresql.auto.conf` last, so that value would win.
fn refuse_overridden(cluster: &Cluster, wanted: &[Setting]) -> Result<(), TlsError> {
    let path = cluster.data.join("postgresql.auto.conf");
    let text = fs::read_to_string(&path).unwrap_or_default();
    let there = settings::assignments(&text);
    for setting in wanted {
        let value = there.iter().find(|(name, _)| name == setting.name).map(|(_, value)| value);
        if value.is_some_and(|value| *value != setting.value) {
            return Err(TlsError::Settings(format!(
                "{}: {} is set by ALTER SYSTEM, which wins over configuration files; run \
                 \"ALTER SYSTEM RESET {}\" first. Nothing has been changed",
                path.display(),
                setting.name,
                setting.name
            )));
        }
    }
    Ok(())
}

/// The default directory of the CA, `DATA-tls`.
fn beside(data: &Path) -> PathBuf {
    let mut name = data.file_name().unwrap_or_default().to_owned();
    name.push("-tls");
    data.with_file_name(name)
}

/// Opens the existing CA, or makes a new one and returns also the content of its files.
fn open_or_create(dir: &Path, wish: &Wish) -> Result<(Authority, Option<Pair>), TlsError> {
    let (certificate, key) = (dir.join("ca.crt"), dir.join("ca.key"));
    match (certificate.exists(), key.exists()) {
        (false, false) => {
            let host = wish.hosts.first().map(String::as_str).unwrap_or_default();
            let name = format!("Private CA of PostgreSQL on {host}");
            let (authority, pair) = Authority::create(&name, wish.key)?;
            Ok((authority, Some(pair)))
        }
        (true, true) => {
            let rights = fs::metadata(&key).map_or(0, |meta| meta.mode() & 0o077);
            if rights != 0 {
                return Err(TlsError::Content {
                    path: key,
                    what: "others may read the CA's key".to_owned(),
                    remedy: "chmod 600, and think about who has it",
                });
            }
            let text =
                |path: &Path| fs::read_to_string(path).map_err(TlsError::io(path, "read the CA"));
            let authority = Authority::open(&text(&certificate)?, &text(&key)?)?;
            Ok((authority, None))
        }
        (true, false) | (false, true) => Err(TlsError::Content {
            path: dir.to_owned(),
            what: "of ca.crt and ca.key only one is there".to_owned(),
            remedy: "bring the other one back, or name another directory with --ca-dir",
        }),
    }
}

impl Done {
    fn write(
        &mut self,
        path: &Path,
        bytes: &[u8],
        mode: u32,
        owner: Owner,
    ) -> Result<(), TlsError> {
        self.written.push(files::replace(path, bytes, mode, owner)?);
        Ok(())
    }

    /// `STEM.key`, then `STEM.crt`.
    fn write_pair(&mut self, stem: &Path, pair: &Pair, owner: Owner) -> Result<(), TlsError> {
        let name = |end: &str| PathBuf::from(format!("{}.{end}", stem.display()));
        self.write(&name("key"), pair.key.as_bytes(), KEY_MODE, owner)?;
        self.write(&name("crt"), pair.certificate.as_bytes(), CERTIFICATE_MODE, owner)
    }

    fn write_settings(&mut self, cluster: &Cluster, owner: Owner) -> Result<(), TlsError> {
        let mut text = "# Written by \"pgseal tls init\".\n".to_owned();
        for setting in &self.settings {
            let value = settings::quoted(&setting.value);
            text.push_str(&format!("\n# {}\n{} = {value}\n", setting.why, setting.name));
        }
        let path = cluster.config.with_file_name(SETTINGS_FILE);
        self.write(&path, text.as_bytes(), CERTIFICATE_MODE, owner)
    }

    fn say(&mut self, wish: &Wish, cluster: &Cluster, ml_kem: Option<bool>) {
        let host = wish.hosts.first().map(String::as_str).unwrap_or_default();
        let ca = self.ca_dir.join("ca.crt");
        let base = format!(
            "host={host} port={} sslmode=verify-full sslrootcert={}",
            cluster.port,
            conninfo_value(&ca.display().to_string())
        );
        self.conninfo.push(base.clone());
        for user in &wish.clients {
            let file = |end: &str| {
                conninfo_value(
                    &self.ca_dir.join(format!("client-{user}.{end}")).display().to_string(),
                )
            };
            let user = conninfo_value(user);
            let line = format!("{base} user={user} sslcert={} sslkey={}", file("crt"), file("key"));
            self.conninfo.push(line);
        }
        self.notes.append(&mut self.rules.notes.clone());
        if !wish.clients.is_empty() {
            self.notes.push(
                "client certificates are accepted, not yet demanded: in pg_hba.conf, the method \
                 \"cert\", or \"clientcert=verify-full\" behind another one, demands them"
                    .to_owned(),
            );
        }
        if cluster.major >= settings::FIRST_WITH_GROUPS && ml_kem.is_none() {
            self.notes.push(
                "which OpenSSL the server uses was not found out; with 3.5 or newer put \
                 X25519MLKEM768 first in ssl_groups"
                    .to_owned(),
            );
        }
        if cluster.major < settings::FIRST_WITH_GROUPS {
            self.notes.push(format!(
                "PostgreSQL {} cannot have post-quantum key exchange; {} can, with OpenSSL 3.5",
                cluster.major,
                settings::FIRST_WITH_GROUPS
            ));
        }
        self.notes.push(format!(
            "{} signs whatever you trust: move it to a safe place; it is needed only to renew",
            self.ca_dir.join("ca.key").display()
        ));
    }
}

/// A value for a connection string, quoted if necessary.
fn conninfo_value(value: &str) -> String {
    if value.chars().all(|c| !c.is_whitespace() && c != '\'' && c != '\\') {
        return value.to_owned();
    }
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// Appends an `include` of the settings file to `postgresql.conf`.
fn include(cluster: &Cluster, done: &mut Done) -> Result<(), TlsError> {
    let path = &cluster.config;
    let mut text = fs::read_to_string(path).map_err(TlsError::io(path, "read the settings"))?;
    let last = settings::assignments(&text).into_iter().next();
    if last == Some(("include".to_owned(), SETTINGS_FILE.to_owned())) {
        return Ok(());
    }
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(&format!("include = '{SETTINGS_FILE}'\t# pgseal tls init\n"));
    let mode = fs::metadata(path).map_or(KEY_MODE, |meta| meta.permissions().mode() & 0o777);
    done.write(path, text.as_bytes(), mode, Owner::of(path)?)
}

/// Checks with `postgres -C` that the server reads the new settings.
fn verify_settings(wish: &Wish, wanted: &[Setting]) -> Result<(), TlsError> {
    for setting in wanted {
        let value = ask(wish, setting.name)?;
        if value != setting.value {
            return Err(TlsError::Settings(format!(
                "{SETTINGS_FILE}: {} should be '{}' and is '{value}': another file sets it \
                 afterwards; remove it there",
                setting.name, setting.value
            )));
        }
    }
    Ok(())
}
