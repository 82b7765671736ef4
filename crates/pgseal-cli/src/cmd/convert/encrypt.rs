//! `pgseal encrypt`: turns a plain data directory into a sealed one, in place.

use std::path::Path;

use pgseal_convert::{Operation, Target};
use pgseal_core::{Generation, KeySet, KeyringId, Suite};
use pgseal_keys::{Kek, Keyring, Line, Provider, keyring_path};

use super::run::{Options, Run};
use crate::error::CliError;
use crate::register::{self, Registration};
use crate::values::{self, KeySource};
use crate::{audit, cluster, datadir};

const EXAMPLES: &str = "\
Examples:
  pg_ctl -D /srv/postgres/data -m fast stop
  pgseal encrypt --check /srv/postgres/data
  pgseal encrypt -K file:/etc/pgseal/main.key /srv/postgres/data
  pgseal run -- pg_ctl -D /srv/postgres/data -l /srv/postgres/server.log start

Interrupted, by a signal, a full disk or a power cut: run the same command again, it goes on where it
stopped. Until then neither a plain nor a sealed server starts. To go back instead: pgseal decrypt.

What is encrypted here was plain on this disk before: old blocks of the file system, snapshots,
backups and archived WAL stay as they are. docs/convert.md says what to do about them.

Exit status: 0 done, 1 done and damaged pages were met (or, before the first change: stopped because
of them), 21 settings, 22 not now (a server runs, no clean shutdown, no room); others: pgseal --help.";

/// Encrypt the data directory of a stopped server in place
///
/// Writes every file that holds user data anew, sealed, one after the other, so that room is needed
/// for the largest file only; follows the links to the WAL directory and to tablespaces; adds the
/// guard module to postgresql.conf. Checks everything before the first change.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Where the key comes from: env:NAME, file:PATH, command:SHELL COMMAND, passphrase:
    #[arg(short = 'K', long = "key-provider", value_name = "PROVIDER")]
    #[arg(value_parser = KeySource, hide_possible_values = true)]
    provider: Option<String>,
    /// Also write where the key comes from into /etc/pgseal/clusters.d
    #[arg(long, requires = "provider")]
    register: bool,
    /// How relation files are sealed; default: aes-256-gcm. gcm, xts, ctr mean 256 bits
    #[arg(long, value_parser = values::suite())]
    suite: Option<Suite>,
    #[command(flatten)]
    options: Options,
}

pub fn run(args: &Args) -> Result<u8, CliError> {
    let registration = match (&args.provider, args.register && !args.options.check) {
        (Some(uri), true) => {
            let dir = args.options.dir.path("encrypt")?;
            Some(Registration::begin(&Provider::parse_typed(uri)?, Line::First, &dir)?)
        }
        _ => None,
    };
    let mut run = Run::open(&args.options, Operation::Encrypt)?;
    let provider = args.provider.as_deref();
    if let Some(journal) = run.unfinished(|was| was == Operation::Decrypt)? {
        run.expect_suite(&journal, args.suite)?;
        run.resume(journal, |run, _| {
            let (keyring, keys) = run.unlock(provider)?;
            let target = target(keyring.suite(), keys.active());
            Ok((keys, target))
        })?;
    } else {
        let path = keyring_path(&run.dir.root);
        if path.exists() {
            return Err(CliError::Exists {
                path: run.dir.root.clone(),
                what: "it is sealed already",
                remedy: "for another suite or data key: pgseal rekey; for another key: pgseal key rotate",
            });
        }
        let suite = args.suite.unwrap_or(Suite::Aes256Gcm);
        let stopped = match key(args)? {
            Some((uri, kek)) => {
                let keyring = Keyring::create(suite, &uri, &kek)?;
                if !args.options.check {
                    audit::using_at(&run.dir.root);
                    audit::opened(&keyring, &kek)?;
                }
                let keys = keyring.unlock(&kek)?;
                let target = target(suite, keys.active());
                run.begin(Some(suite), &keys, target, || {
                    keyring.store_new(&path)?;
                    Ok((keyring.unlock(&kek)?, target))
                })?
            }
            None => {
                // A check seals nothing and needs no key.
                let keys = KeySet::new(KeyringId([0; 16]), suite, Generation(1));
                let target = target(suite, keys.active());
                run.begin(Some(suite), &keys, target, || Err(no_key()))?
            }
        };
        if let Some(code) = stopped {
            return Ok(code);
        }
    }
    next_steps(&mut run, args.provider.as_deref(), registration)?;
    run.finish_report()
}

fn target(suite: Suite, generation: Generation) -> Target {
    Target::Sealed { suite, generation, from_plain: true }
}

/// The KEK. A check works without one, and asks for no passphrase.
fn key(args: &Args) -> Result<Option<(String, Kek)>, CliError> {
    let Some(uri) = &args.provider else {
        return if args.options.check { Ok(None) } else { Err(no_key()) };
    };
    let provider = Provider::parse_typed(uri)?;
    if args.options.check && provider.is_passphrase() {
        return Ok(None);
    }
    Ok(Some((provider.to_string(), provider.kek_for_new()?)))
}

fn no_key() -> CliError {
    CliError::Usage(
        "encrypt: no key: give -K PROVIDER, for example: pgseal key new -o KEYFILE, then pgseal \
         encrypt -K file:KEYFILE DIR"
            .to_owned(),
    )
}

fn next_steps(
    run: &mut Run<'_>,
    provider: Option<&str>,
    registration: Option<Registration>,
) -> Result<(), CliError> {
    let root = run.dir.root.clone();
    let keyring = Keyring::load(&keyring_path(&root))?;
    let shown = Path::new(&root).display();
    run.report.next = vec![
        format!(
            "Sealed with {}. Its key: {}",
            keyring.suite(),
            Provider::shown(keyring.provider_uri())
        ),
        "Without that key nothing in it can ever be read: keep a copy of the key.".to_owned(),
    ];
    let major = run.dir.major.clone().or_else(|| datadir::read_major(&root)).unwrap_or_default();
    run.report.next.extend(match cluster::debian_name(&root, &major) {
        Some(name) => vec![
            "Put the variables of the server into its environment, then start it:".to_owned(),
            format!("    pgseal env -D {shown} --format debian"),
            format!("    pg_ctlcluster {major} {name} start"),
        ],
        None => vec![
            "Start the server with:".to_owned(),
            format!("    pgseal run -- pg_ctl -D {shown} -l {shown}.log start"),
            "or put the variables that \"pgseal env\" prints into its service.".to_owned(),
        ],
    });
    run.report.next.extend([
        "Then make a new base backup: WAL is sealed from here on and does not fit older ones. Plain content"
            .to_owned(),
        "stays in those, in archived WAL, in snapshots and in free blocks of the disk: docs/convert.md."
            .to_owned(),
    ]);
    if let Some(registration) = registration {
        let path = registration.finish(keyring.id())?;
        run.report.next.push(register::done(&path));
    } else if let Some(uri) = provider {
        run.report.next.extend(register::advice(&keyring, &Provider::parse_typed(uri)?));
    }
    Ok(())
}
