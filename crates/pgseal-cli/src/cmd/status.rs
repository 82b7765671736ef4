//! `pgseal status`: shows what is sealed, what is plain and why, and the counters of a running
//! server. Needs no key.
//!
//! `survey` gathers the facts, `protection` the answers of the first screen; `text` prints them for
//! people, `prometheus` as metrics. `hosts` asks many clusters.

mod hosts;
mod prometheus;
mod protection;
mod survey;
mod text;

use std::io::Write;
use std::time::Duration;

use clap::ValueHint;
use pgseal_keys::KeyError;

use crate::datadir::DataDir;
use crate::error::CliError;
use crate::given_dir::GivenDir;
use crate::out::Out;
use crate::scan::{self, Root};
use crate::{exit, keys};

const EXAMPLES: &str = "\
Examples:
  pgseal status /srv/postgres/data
  pgseal status --json /srv/postgres/data | jq .plain_where_sealed_is_due
  pgseal status --brief /srv/postgres/data
  pgseal status --hosts db1 db2:/srv/postgres/data /srv/postgres/other
  pgseal status --counters /srv/postgres/data
  pgseal status --prometheus /srv/postgres/data > /var/lib/prometheus/node-exporter/pgseal.prom

Headers are looked at and not authenticated; that is what \"pgseal verify\" does.

With --hosts: ssh asks no questions (BatchMode), so keys must be set up; HOST alone means the directory
that PGDATA names there. Exit status: 0 all are sealed, 1 one is not, 40 one did not answer.";

/// Show what is sealed, what is plain and why
///
/// Walks the data directory, its WAL directory and tablespaces. Needs no key; a server may run.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    dir: GivenDir,
    /// Print JSON
    #[arg(long, conflicts_with = "prometheus")]
    json: bool,
    /// Only the first screen: is it sealed, with which key, since when, what was checked
    #[arg(long, conflicts_with_all = ["prometheus", "counters"])]
    brief: bool,
    /// A table of many clusters: DIR on this machine, HOST or HOST:DIR through ssh
    #[arg(long, value_name = "CLUSTER", num_args = 1.., value_hint = ValueHint::Hostname)]
    #[arg(conflicts_with_all = ["dir", "pgdata", "prometheus", "counters", "brief"])]
    hosts: Vec<String>,
    /// With --hosts: how long each of them may take
    #[arg(long, value_name = "SECONDS", default_value_t = 20, requires = "hosts")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=3600))]
    timeout: u16,
    /// Only what the running server has counted; looks at no file
    #[arg(long)]
    counters: bool,
    /// Print metrics in Prometheus's text format; looks at no file unless --files is given
    #[arg(long)]
    prometheus: bool,
    /// With --prometheus: look at every file too, for metrics of sealed and plain files
    #[arg(long, requires = "prometheus", conflicts_with = "counters")]
    files: bool,
}

pub fn run(args: &Args) -> Result<u8, CliError> {
    if !args.hosts.is_empty() {
        return hosts::run(&args.hosts, Duration::from_secs(args.timeout.into()), args.json);
    }
    let dir = DataDir::open(&args.dir.path("status")?)?;
    let files = !args.counters && (!args.prometheus || args.files);
    let scan = files.then(|| scan::scan(&dir.root, Root::DataDir));
    let any_sealed = || scan.as_ref().is_some_and(|scan| scan.headers().next().is_some());
    let keyring = match keys::keyring_of(&dir, &keys::KeyOptions::default(), any_sealed) {
        Ok(keyring) => Some(keyring),
        Err(CliError::Key(KeyError::KeyringMissing { .. })) => None,
        Err(error) => return Err(error),
    };
    let status = survey::collect(&dir, scan.as_ref(), keyring.as_ref());
    let mut out = Out::new();
    if args.prometheus {
        prometheus::write(&mut out, &status)?;
    } else if args.json {
        out.json(&status)?;
    } else {
        text::print(&mut out, &status, args.brief)?;
    }
    out.flush()?;
    if keyring.is_none() {
        return Err(KeyError::KeyringMissing { path: dir.keyring() }.into());
    }
    Ok(exit::SOUND)
}
