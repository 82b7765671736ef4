//! `pgseal tls init`: makes a private CA, certificates, settings and rules.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args as ClapArgs, ValueEnum};
use pgseal_tls::authority::KeyKind;
use pgseal_tls::setup::{self, Done, Wish};
use pgseal_tls::version::Version;
use serde::Serialize;

use crate::datadir;
use crate::error::CliError;
use crate::exit;
use crate::given_dir::GivenDir;
use crate::out::{self, Out};
use crate::{as_owner, bindir, child, config_record};

const LONG: &str = "\
Set up TLS for a cluster: a private CA, a certificate for the server (and for clients), settings, \
rules.

Makes a private CA beside the data directory (DIR-tls, or --ca-dir) unless one is there, a key and \
certificate in the data directory, the settings of TLS in pgseal-tls.conf, which postgresql.conf \
then includes at its end, and rules in pg_hba.conf that let nobody in over TCP without TLS. Which \
settings depends on the version of PostgreSQL: TLS 1.3 suites and key-exchange groups from 18, with \
the post-quantum hybrid X25519MLKEM768 if the server's OpenSSL has it.

Keys have mode 0600 and the data directory's owner. What is replaced is kept beside the new file, \
as NAME.before-pgseal-tls (keys: NAME.before-pgseal-tls.key). The server is not touched: reload it afterwards. Run it again to renew \
the certificates; the CA stays, so that clients need not change.";

const EXAMPLES: &str = "\
Examples:
  pgseal tls init --host db.example.com ~/data
  pgseal tls init --host db.example.com --client alice --key rsa-3072 ~/data
  pg_ctl -D ~/data reload
  pgseal tls check 'host=db.example.com sslrootcert=/var/lib/postgresql/data-tls/ca.crt'";

/// Set up TLS for a cluster: a private CA, certificates, settings, rules
#[derive(Debug, ClapArgs)]
#[command(long_about = LONG, after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    dir: GivenDir,
    /// A host name or IP address of the server, for its certificate; the first one is the one in
    /// the connection string. This machine's name, if there is none; localhost is always added
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
    /// Also a certificate for a client, with this database user as its name
    #[arg(long = "client", value_name = "USER")]
    clients: Vec<String>,
    /// Kind of the keys
    #[arg(long, value_enum, default_value = "ecdsa-p256")]
    key: Key,
    /// How long the certificates are valid, in days (the CA: ten years)
    #[arg(long, default_value_t = 825, value_parser = clap::value_parser!(u32).range(1..=36500))]
    days: u32,
    /// Directory of the CA's key and certificate, and of the clients' ones
    #[arg(long, value_name = "DIR")]
    ca_dir: Option<PathBuf>,
    /// Oldest version of TLS that is accepted
    #[arg(long, value_enum, default_value = "TLSv1.2")]
    min_version: Oldest,
    /// Directory of PostgreSQL's programs
    #[arg(long, value_name = "DIR")]
    bindir: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What was done, as JSON.
#[derive(Debug, Serialize)]
struct Report {
    ca_dir: String,
    /// Whether the CA was there already.
    ca_reused: bool,
    hosts: Vec<String>,
    days: u32,
    files: Vec<FileRow>,
    settings: BTreeMap<&'static str, String>,
    /// Rules for TLS and without it that are for TLS only now.
    rules_changed: usize,
    /// Rules for no TLS that were disabled.
    rules_disabled: usize,
    notes: Vec<String>,
    /// Whether the configuration is locked, so that "pgseal config accept" has to follow.
    configuration_locked: bool,
    /// Connection strings.
    conninfo: Vec<String>,
}

#[derive(Debug, Serialize)]
struct FileRow {
    file: String,
    /// The copy of what was there before.
    backup: Option<String>,
    changed: bool,
}

impl Report {
    fn new(wish: &Wish, done: Done) -> Report {
        let shown = |path: &Path| path.display().to_string();
        Report {
            ca_dir: shown(&done.ca_dir),
            ca_reused: done.ca_reused,
            hosts: wish.hosts.clone(),
            days: wish.days,
            files: done
                .written
                .iter()
                .map(|written| FileRow {
                    file: shown(&written.path),
                    backup: written.backup.as_deref().map(shown),
                    changed: !written.unchanged,
                })
                .collect(),
            settings: done.settings.into_iter().map(|set| (set.name, set.value)).collect(),
            rules_changed: done.rules.changed,
            rules_disabled: done.rules.disabled,
            notes: done.notes,
            configuration_locked: config_record::is_locked(&wish.dir),
            conninfo: done.conninfo,
        }
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Key {
    #[value(name = "ecdsa-p256")]
    EcdsaP256,
    #[value(name = "rsa-2048")]
    Rsa2048,
    #[value(name = "rsa-3072")]
    Rsa3072,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Oldest {
    #[value(name = "TLSv1.2")]
    Tls12,
    #[value(name = "TLSv1.3")]
    Tls13,
}

/// Refuses a file that is a link or no regular file: pgseal would write elsewhere, or wait for a
/// FIFO.
fn expect_own_file(path: &Path) -> Result<(), CliError> {
    match std::fs::symlink_metadata(path) {
        Ok(meta) if !meta.is_file() => Err(CliError::NotNow(format!(
            "{}: it is a link or no regular file; give the directory that holds the file itself",
            path.display()
        ))),
        _ => Ok(()),
    }
}

pub fn run(args: &Args) -> Result<u8, CliError> {
    let given = args.dir.path("tls init")?;
    let meta = std::fs::metadata(&given).map_err(CliError::io(&given, "open"))?;
    if !meta.is_dir() {
        return Err(CliError::NotDataDir {
            path: given,
            why: "it is a file",
            remedy: "give the directory that PGDATA names",
        });
    }
    let dir = std::path::absolute(&given).map_err(CliError::io(&given, "resolve"))?;
    as_owner::step_down(&dir)?;
    for name in ["postgresql.conf", "postgresql.auto.conf", "pg_hba.conf"] {
        expect_own_file(&dir.join(name))?;
    }
    let postgres = match &args.bindir {
        Some(bindir) => bindir::find(bindir.join("postgres").as_os_str(), None)?,
        None => bindir::find(OsStr::new("postgres"), datadir::read_major(&dir).as_deref())?,
    };
    let ca_dir = args.ca_dir.as_ref().map(std::path::absolute).transpose();
    let wish = Wish {
        dir,
        postgres,
        hosts: hosts(&args.hosts),
        key: match args.key {
            Key::EcdsaP256 => KeyKind::EcdsaP256,
            Key::Rsa2048 => KeyKind::Rsa2048,
            Key::Rsa3072 => KeyKind::Rsa3072,
        },
        days: args.days,
        clients: args.clients.clone(),
        ca_dir: ca_dir.map_err(CliError::io(&given, "resolve"))?,
        oldest: match args.min_version {
            Oldest::Tls12 => Version::Tls12,
            Oldest::Tls13 => Version::Tls13,
        },
        output: child::output,
    };
    let done = setup::set_up(&wish)?;
    let mut out = Out::new();
    if args.json {
        out.json(&Report::new(&wish, done))?;
    } else {
        print(&mut out, &wish, &done)?;
    }
    out.flush()?;
    Ok(exit::SOUND)
}

/// The given names, or this machine's name; then localhost and its addresses.
fn hosts(given: &[String]) -> Vec<String> {
    let mut hosts = given.to_vec();
    if hosts.is_empty() {
        let system = rustix::system::uname();
        hosts.push(system.nodename().to_string_lossy().into_owned());
    }
    for own in ["localhost", "127.0.0.1", "::1"] {
        if !hosts.iter().any(|host| host == own) {
            hosts.push(own.to_owned());
        }
    }
    hosts
}

fn print(out: &mut Out, wish: &Wish, done: &Done) -> io::Result<()> {
    let old = if done.ca_reused { "used as it is" } else { "made" };
    writeln!(out, "CA: {old}, {}", done.ca_dir.display())?;
    writeln!(out, "Certificate for {}, {} days", wish.hosts.join(", "), wish.days)?;
    writeln!(out, "\nFiles:")?;
    for written in &done.written {
        let what = match (&written.backup, written.unchanged) {
            (_, true) => " (as it was)".to_owned(),
            (Some(backup), _) => format!(" (before: {})", backup.display()),
            (None, _) => String::new(),
        };
        writeln!(out, "  {}{what}", written.path.display())?;
    }
    writeln!(out, "\nSettings:")?;
    for setting in &done.settings {
        writeln!(out, "  {} = '{}'", setting.name, setting.value)?;
    }
    let changed = out::count(u64::try_from(done.rules.changed).unwrap_or(0), "rule");
    writeln!(
        out,
        "\nRules: {changed} for TLS and without it now for TLS only, {} for no TLS disabled",
        done.rules.disabled
    )?;
    for note in &done.notes {
        writeln!(out, "  note: {note}")?;
    }
    config_record::print_if_locked(out, &wish.dir)?;
    writeln!(out, "\nNow reload the server, for example: pg_ctl -D {} reload", wish.dir.display())?;
    writeln!(out, "Clients connect with (sslrootcert: a copy of ca.crt on their machine):")?;
    for line in &done.conninfo {
        writeln!(out, "  {line}")?;
    }
    let first = done.conninfo.first().map(String::as_str).unwrap_or_default();
    writeln!(out, "Check it: pgseal tls check \"{first}\"")
}
