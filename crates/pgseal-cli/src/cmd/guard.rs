//! `pgseal guard`: adds the guard module to the configuration of a sealed data directory.

use std::io::Write;
use std::path::PathBuf;

use clap::ValueHint;
use serde::Serialize;

use crate::datadir::DataDir;
use crate::error::CliError;
use crate::given_dir::GivenDir;
use crate::out::Out;
use crate::{bindir, cluster, config_record, exit, guard_conf, keys, library};

const EXAMPLES: &str = "\
Examples:
  export PGSEAL_PROVIDER=file:/etc/pgseal/standby.key
  pgseal run -- pg_basebackup -h primary -R -D /srv/postgres/standby
  pgseal guard /srv/postgres/standby
  pgseal run -- pg_ctl -D /srv/postgres/standby -l /srv/postgres/standby.log start";

/// Add the guard module to the configuration of a sealed data directory
///
/// For a sealed standby or copy of a plain server: its configuration is the plain server's, and a
/// sealed directory is not served without the guard module. Does nothing if it is there.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    dir: GivenDir,
    /// Where the programs of PostgreSQL are, if not in PATH or where Debian has them
    #[arg(long, value_name = "DIR")]
    bindir: Option<PathBuf>,
    /// The server's postgresql.conf, if it is neither in the data directory nor where Debian has it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    config_file: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Done {
    config_file: String,
    /// The guard module as the configuration names it.
    module: String,
    /// Whether the configuration was changed.
    changed: bool,
    /// Whether the configuration is locked, so that "pgseal config accept" has to follow.
    configuration_locked: bool,
}

pub fn run(args: &Args) -> Result<u8, CliError> {
    let dir = DataDir::open(&args.dir.path("guard")?)?;
    dir.expect_whole()?;
    if !dir.keyring().exists() {
        return Err(keys::not_sealed(&dir.root));
    }
    let major = dir.major.clone().unwrap_or_default();
    let bindir = bindir::of_major(args.bindir.as_deref(), &major, &dir.root)?;
    let pkglibdir = bindir::ask_pg_config(&bindir.join("pg_config"), "--pkglibdir");
    let guard = library::guard(&major, pkglibdir.as_deref())?;
    let found = cluster::config_file(args.config_file.as_deref(), &dir.root, &major)?;
    let Some(config_file) = found else {
        return Err(CliError::Usage(format!(
            "{}: there is no postgresql.conf in it; give the server's with --config-file FILE",
            dir.root.display()
        )));
    };
    let mut changed = guard_conf::add(&config_file, &guard)?;
    let auto = dir.root.join("postgresql.auto.conf");
    if guard_conf::sets_preload(&auto)? {
        changed |= guard_conf::add(&auto, &guard)?;
    }
    let mut out = Out::new();
    if args.json {
        out.json(&Done {
            config_file: config_file.display().to_string(),
            module: guard,
            changed,
            configuration_locked: config_record::is_locked(&dir.root),
        })?;
    } else {
        let how = if changed { "" } else { ", as before" };
        writeln!(out, "{}: the server loads {guard} first{how}.", config_file.display())?;
        if changed {
            config_record::print_if_locked(&mut out, &dir.root)?;
        }
    }
    out.flush()?;
    Ok(exit::SOUND)
}
