//! `pgseal initdb`: makes a sealed data directory with PostgreSQL's own initdb.
//!
//! `options` looks at the options for initdb itself; `directory` looks at the new directory, and
//! removes it after a failure.

mod directory;
mod options;

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::ValueHint;
use pgseal_core::{Suite, Suites};
use pgseal_keys::{Kek, Keyring, Line, Provider, keyring_path};
use serde::Serialize;

use crate::cmd::initdb::options::{Asked, HintBits};
use crate::error::CliError;
use crate::given_dir::GivenDir;
use crate::out::{self, Out};
use crate::register::{self, Registration};
use crate::values::{self, KeySource};
use crate::{bindir, environment, exit, guard_conf, keys, library, manifest};

const EXAMPLES: &str = "\
Examples:
  pgseal key new -o ~/pgseal.key
  pgseal initdb -k -K file:$HOME/pgseal.key /srv/postgres/data
  PGSEAL_KEY=$(cat ~/pgseal.key) pgseal initdb -k -K env:PGSEAL_KEY -D /srv/postgres/data
  pgseal initdb --keyring-of /srv/postgres/15/data /srv/postgres/18/data
  pgseal initdb -k -K passphrase: /srv/postgres/data -- --locale=C --auth=scram-sha-256 -W

Key providers:
  env:NAME                  the key in an environment variable
  file:PATH                 the key in a file of mode 0600
  command:SHELL COMMAND     the key as a command prints it
  passphrase:               a passphrase, asked for on the terminal
  passphrase:fd=N           a passphrase from a descriptor
  passphrase:command=...    a passphrase as a command prints it
  NAME:...                  a key in a key store, by its plugin (pgseal provider list)";

/// Create a sealed data directory
///
/// Runs the initdb of your PostgreSQL with the library, so that nothing it writes ever lies on disk
/// in plain form, and adds the guard module to postgresql.conf, so that the server refuses to start
/// without the library.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Use data checksums (on by default from PostgreSQL 18); the ctr suites need them
    #[arg(short = 'k', long)]
    data_checksums: bool,
    /// Use no data checksums: with the gcm suites each page is authenticated, and wal_log_hints is
    /// switched on instead
    #[arg(long, conflicts_with = "data_checksums")]
    no_data_checksums: bool,
    /// Where the key comes from; see below
    #[arg(short = 'K', long = "key-provider", value_name = "PROVIDER")]
    #[arg(value_parser = KeySource, hide_possible_values = true)]
    provider: Option<String>,
    /// Also write where the key comes from into /etc/pgseal/clusters.d; command: and other sources
    /// that run something are never taken from the data directory
    #[arg(long)]
    register: bool,
    /// Seal with the keyring of this data directory instead of a new one, as pg_upgrade needs it;
    /// its suite, whether it has data checksums and, without -K, its key provider are taken over
    #[arg(long, value_name = "DIR", conflicts_with = "suite")]
    keyring_of: Option<PathBuf>,
    /// How relation files are sealed; gcm, xts, ctr mean 256 bits
    #[arg(long, default_value = "aes-256-gcm", value_parser = values::suite())]
    suite: Suite,
    #[command(flatten)]
    dir: GivenDir,
    /// Where initdb is, if not in PATH or beside pg_config
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    bindir: Option<PathBuf>,
    /// Options for initdb itself
    #[arg(last = true, value_name = "INITDB-OPTIONS")]
    options: Vec<OsString>,
    /// Print JSON; what initdb itself prints goes to standard error
    #[arg(long)]
    json: bool,
}

/// What was made, as JSON.
#[derive(Debug, Serialize)]
struct Made {
    data_directory: String,
    postgresql: String,
    keyring_id: String,
    suite: String,
    provider: String,
    guard_module: String,
    /// The file in /etc/pgseal/clusters.d that was written.
    registered: Option<String>,
    /// What is left to do, in lines.
    next: Vec<String>,
}

/// How the new directory is sealed.
struct Sealing {
    provider: Provider,
    kek: Kek,
    suite: Suite,
    /// The keyring to copy.
    from: Option<PathBuf>,
}

/// Asks for the key once, before initdb runs, so that a wrong key is an error now.
fn sealing(args: &Args) -> Result<Sealing, CliError> {
    if let Some(other) = &args.keyring_of {
        let from = std::path::absolute(keyring_path(other))
            .map_err(CliError::io(other, "resolve the path"))?;
        let keyring = Keyring::load(&from)?;
        let source = keys::source(&keyring, args.provider.as_deref())?;
        let own = || Provider::parse(keyring.provider_uri());
        let provider = source.provider().cloned().map_or_else(own, Ok)?;
        let kek = keys::kek_from(&source, &keyring)?;
        keyring.unlock(&kek)?;
        return Ok(Sealing { provider, kek, suite: keyring.suite(), from: Some(from) });
    }
    let provider = provider(args)?;
    let kek = provider.kek_for_new()?;
    Ok(Sealing { provider, kek, suite: args.suite, from: None })
}

/// The suite that asks for the most settings: the new server may get files of each.
fn most_demanding(suites: Suites) -> Suite {
    let first = |needs: fn(Suite) -> bool| suites.all().find(|suite| needs(*suite));
    let images = || first(Suite::needs_full_page_images);
    first(Suite::needs_data_checksums).or_else(images).unwrap_or(suites.newest())
}

fn provider(args: &Args) -> Result<Provider, CliError> {
    let Some(uri) = &args.provider else {
        return Err(CliError::Usage(
            "initdb: no key: without a key no sealed instance can be created; give -K PROVIDER, \
             for example: pgseal key new -o KEYFILE, then pgseal initdb -k -K file:KEYFILE DIR"
                .to_owned(),
        ));
    };
    Ok(Provider::parse_typed(uri)?)
}

impl Args {
    /// What is asked about data checksums. A cluster for `pg_upgrade` has them if the old one has:
    /// `pg_upgrade` refuses two that differ.
    fn asked(&self) -> Asked {
        let as_in = |old: &PathBuf| pgseal_pgdata::has_checksums(&manifest::control(old).ok()?);
        let old = || self.keyring_of.as_ref().and_then(as_in);
        match (self.data_checksums, self.no_data_checksums) {
            (true, _) => Asked::On,
            (_, true) => Asked::Off,
            _ if options::name_checksums(&self.options) => Asked::Default,
            _ => old().map_or(Asked::Default, |on| if on { Asked::On } else { Asked::Off }),
        }
    }
}

pub fn run(args: &Args) -> Result<u8, CliError> {
    if args.keyring_of.is_none() {
        provider(args)?;
    }
    options::refuse_directory(&args.options)?;
    let given = args.dir.path("initdb")?;
    let dir = std::path::absolute(&given).map_err(CliError::io(&given, "resolve the path"))?;
    let existed = directory::check(&dir)?;
    let initdb = bindir::initdb(args.bindir.as_deref())?;
    let major = bindir::major_of(&initdb)?;
    let suite = match &args.keyring_of {
        Some(other) => most_demanding(Keyring::load(&keyring_path(other))?.suites()),
        None => args.suite,
    };
    let asked = args.asked();
    let hint_bits = options::hint_bits(suite, asked, &args.options, &major)?;
    let sealing = sealing(args)?;
    let begin = || Registration::begin(&sealing.provider, Line::First, &dir);
    let registration = args.register.then(begin).transpose()?;
    let library = library::library()?;
    let pg_config = initdb.with_file_name("pg_config");
    let pkglibdir = bindir::ask_pg_config(&pg_config, "--pkglibdir");
    let guard = library::guard(&major, pkglibdir.as_deref())?;

    let kek_fd = keys::in_memory(&sealing.kek)?;

    let mut command = Command::new(&initdb);
    command.arg("-D").arg(&dir);
    match asked {
        Asked::On => {
            command.arg("-k");
        }
        // Older versions have them off, and no such option.
        Asked::Off if options::on_by_default(&major) => {
            command.arg("--no-data-checksums");
        }
        Asked::Off | Asked::Default => {}
    }
    command.arg("--no-instructions").args(&args.options);
    library::set(&mut command, &library)?;
    command
        .env(environment::PROVIDER, sealing.provider.to_string())
        .env("PGSEAL_SUITE", sealing.suite.name())
        .env(environment::KEK_FD, kek_fd.as_raw_fd().to_string())
        .env_remove("PGSEAL_KEYRING_FROM")
        .env_remove(environment::KEYRING_ID)
        .envs(sealing.from.map(|path| ("PGSEAL_KEYRING_FROM", path)))
        .env_remove("PGDATA");
    if args.json {
        command.stdout(io::stderr());
    }
    hold_signals()?;
    let status = command.status().map_err(CliError::io(&initdb, "run the program"))?;
    let keep = options::no_clean(&args.options);
    if !status.success() {
        if !keep {
            directory::remove_keyring(&dir, existed)?;
        }
        out::complain(&format!(
            "{}: initdb failed ({status}), see its message above; {}",
            dir.display(),
            if keep { "what it made was left (--no-clean)" } else { "nothing was left behind" }
        ));
        return Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(exit::IO));
    }
    let finished = check_sealed(&dir, &library).and_then(|keyring| {
        let conf = dir.join("postgresql.conf");
        guard_conf::add(&conf, &guard)?;
        if hint_bits == HintBits::WalLogHints {
            guard_conf::log_hints(&conf)?;
        }
        Ok(keyring)
    });
    match finished {
        Ok(keyring) => {
            let registered = registration.map(|known| known.finish(keyring.id())).transpose();
            if args.json {
                let next = register::advice(&keyring, &sealing.provider);
                let made = Made {
                    data_directory: dir.display().to_string(),
                    postgresql: major,
                    keyring_id: keyring.id().to_string(),
                    suite: keyring.suite().name().to_owned(),
                    provider: Provider::shown(keyring.provider_uri()),
                    guard_module: guard,
                    registered: registered?.map(|path| path.display().to_string()),
                    next,
                };
                let mut out = Out::new();
                out.json(&made)?;
                out.flush()?;
                return Ok(exit::SOUND);
            }
            next_steps(&dir, &keyring, &sealing.provider, &initdb)?;
            if let Some(path) = registered? {
                out::complain(&register::done(&path));
            }
            Ok(exit::SOUND)
        }
        Err(error) => {
            if !keep {
                directory::remove_all(&dir, existed)?;
            }
            Err(error)
        }
    }
}

/// Ignores the signals that interrupt initdb: initdb gets them itself and cleans up; then this
/// program cleans up, too.
fn hold_signals() -> Result<(), CliError> {
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    Ok(())
}

/// After initdb has succeeded: the keyring shows that it ran with the library.
fn check_sealed(dir: &Path, library: &Path) -> Result<Keyring, CliError> {
    let path = keyring_path(dir);
    if !path.exists() {
        return Err(CliError::NoLibrary(format!(
            "{}: initdb ran, but {} did not seal what it wrote; everything was removed again: \
             check that it is the library of this release",
            dir.display(),
            library.display()
        )));
    }
    Ok(Keyring::load(&path)?)
}

fn next_steps(
    dir: &Path,
    keyring: &Keyring,
    provider: &Provider,
    initdb: &Path,
) -> Result<(), CliError> {
    let mut out = Out::new();
    let shown = dir.display();
    let pg_ctl = initdb.with_file_name("pg_ctl");
    writeln!(out)?;
    writeln!(out, "The data directory is sealed with {}.", keyring.suite())?;
    writeln!(out, "Its key: {}", Provider::shown(keyring.provider_uri()))?;
    writeln!(out, "Without that key nothing in it can ever be read: keep a copy of the key.")?;
    for line in register::advice(keyring, provider) {
        writeln!(out, "{line}")?;
    }
    writeln!(out)?;
    writeln!(out, "Start the server with:")?;
    writeln!(out, "    pgseal run -- {} -D {shown} -l {shown}.log start", pg_ctl.display())?;
    writeln!(out, "Put the variables into a unit, a cluster or a container:")?;
    writeln!(out, "    pgseal env -D {shown} --format systemd")?;
    writeln!(out, "See what is sealed, and check every block:")?;
    writeln!(out, "    pgseal status {shown}")?;
    writeln!(out, "    pgseal verify {shown}")?;
    Ok(out.flush()?)
}
