//! `pgseal decrypt`: turns a sealed data directory into a plain one, in place.

use pgseal_convert::{Operation, Target};
use pgseal_keys::Keyring;

use super::keyring::retired_name;
use super::run::{Options, Run};
use crate::cluster;
use crate::error::CliError;
use crate::keys::{self, PresentKey};

const EXAMPLES: &str = "\
Examples:
  pgseal run -- pg_ctl -D /srv/postgres/data -m fast stop
  pgseal decrypt --check /srv/postgres/data
  pgseal decrypt --yes-write-plain /srv/postgres/data
  pg_ctl -D /srv/postgres/data -l /srv/postgres/server.log start

Interrupted: run the same command again. It also takes back an encrypt or rekey that was interrupted.

What it leaves: the keyring, as pgseal/keyring-*.retired in the data directory, for the sealed backups
and archived WAL that there are. Remove the directory pgseal when there are none.";

/// Write the data directory of a stopped server in plain form again
///
/// The reverse of encrypt, file by file, with the same checks. Takes the guard module out of
/// postgresql.conf. The server then starts without pgseal, and so does everybody else's.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    key: PresentKey,
    /// Yes, everything shall lie on the disk in plain form
    #[arg(long)]
    yes_write_plain: bool,
    #[command(flatten)]
    options: Options,
}

pub fn run(args: &Args) -> Result<u8, CliError> {
    if !args.yes_write_plain && !args.options.check {
        return Err(CliError::Usage(
            "decrypt: this writes everything in the data directory to the disk in plain form; if that \
             is what you want, add --yes-write-plain (and look before with --check)"
                .to_owned(),
        ));
    }
    let mut run = Run::open(&args.options, Operation::Decrypt)?;
    let provider = args.key.provider.as_deref();
    if let Some(journal) = run.unfinished(|_| true)? {
        run.resume(journal, |run, _| {
            let (_, keys) = run.unlock(provider)?;
            Ok((keys, Target::Plain { from_sealed: false }))
        })?;
        run.report.next = vec![
            "Everything in it is plain now, and what is left of pgseal lies in its \
                                directory pgseal."
                .to_owned(),
        ];
        return run.finish_report();
    }
    let keyring = keys::own_keyring(&run.dir)?;
    let kek = keys::kek(&keyring, provider)?;
    let keys = keyring.unlock(&kek)?;
    let target = Target::Plain { from_sealed: true };
    let path = run.dir.keyring();
    // Load the keyring again, since it may have changed; the KEK stays, so that a passphrase is
    // typed once.
    let again = || Ok((Keyring::load(&path)?.unlock(&kek)?, target));
    if let Some(code) = run.begin(None, &keys, target, again)? {
        return Ok(code);
    }
    let major = run.dir.major.clone().unwrap_or_default();
    let environment = match cluster::debian_config(&run.dir.root, &major) {
        Some(config) => config.with_file_name("environment").display().to_string(),
        None => "its environment".to_owned(),
    };
    run.report.next = vec![
        "Everything in it is plain now. The server starts without pgseal: take LD_PRELOAD and PGSEAL_*"
            .to_owned(),
        format!("out of {environment}."),
        format!(
            "Left: pgseal/{}, for sealed backups and archived WAL (pgseal run --",
            retired_name(&keyring)
        ),
        "pg_waldump, pgseal verify --keyring). Remove the directory pgseal when there are none."
            .to_owned(),
    ];
    run.finish_report()
}
