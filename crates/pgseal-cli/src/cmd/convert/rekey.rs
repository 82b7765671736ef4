//! `pgseal rekey`: seals every file with a new data key, and in another suite if asked, in place.

use std::path::Path;

use pgseal_convert::{Operation, Target};
use pgseal_core::{Generation, KeySet, Suite};
use pgseal_keys::{Kek, Keyring, keyring_path, update};

use super::keyring::keep_keyring;
use super::run::{Options, Run};
use crate::error::CliError;
use crate::keys::{self, PresentKey};
use crate::values;

const EXAMPLES: &str = "\
Examples:
  pgseal run -- pg_ctl -D /srv/postgres/data -m fast stop
  pgseal rekey /srv/postgres/data
  pgseal rekey --suite aes-256-xts /srv/postgres/data

Interrupted: run the same command again.

This makes a new data key. For another key that protects the data keys (after somebody has left who knew
it, by schedule), \"pgseal key rotate\" rewrites one small file, with the server up.

Backups and archived WAL from before have the old data key: it stays in the keyring.";

/// Seal every file of a stopped server anew, under a new data key
///
/// Adds a data key (a generation) to the keyring and writes every file anew with it, in place and
/// file by file as encrypt does. With --suite, in another suite.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    key: PresentKey,
    /// How relation files are sealed from now on; default: as before
    #[arg(long, value_parser = values::suite())]
    suite: Option<Suite>,
    #[command(flatten)]
    options: Options,
}

pub fn run(args: &Args) -> Result<u8, CliError> {
    let mut run = Run::open(&args.options, Operation::Rekey)?;
    let provider = args.key.provider.as_deref();
    if let Some(journal) = run.unfinished(|_| false)? {
        run.expect_suite(&journal, args.suite)?;
        run.resume(journal, |run, journal| {
            let keyring = Keyring::load(&run.dir.keyring())?;
            let kek = keys::kek(&keyring, provider)?;
            let suite = journal.suite().unwrap_or(keyring.suite());
            // The keyring was restored from an older escrow copy: the new data key must be made
            // again.
            let keys = if keyring.active_generation() == journal.generation_before() {
                new_generation(&run.dir.root, &kek, suite)?
            } else {
                keyring.unlock(&kek)?
            };
            let target = target(suite, keys.active());
            Ok((keys, target))
        })?;
        next_steps(&mut run)?;
        return run.finish_report();
    }
    let keyring = keys::own_keyring(&run.dir)?;
    let kek = keys::kek(&keyring, provider)?;
    let old = keyring.unlock(&kek)?;
    let suite = args.suite.unwrap_or(keyring.suite());
    // For the check: a generation that no file has, since the new one is not known yet.
    let checked = target(suite, Generation(u32::MAX - 1));
    let root = run.dir.root.clone();
    let stopped = run.begin(Some(suite), &old, checked, || {
        keep_keyring(&root)?;
        let keys = new_generation(&root, &kek, suite)?;
        let target = target(suite, keys.active());
        Ok((keys, target))
    })?;
    if let Some(code) = stopped {
        return Ok(code);
    }
    next_steps(&mut run)?;
    run.finish_report()
}

/// Adds the new generation to the keyring.
fn new_generation(root: &Path, kek: &Kek, suite: Suite) -> Result<KeySet, CliError> {
    Ok(update(&keyring_path(root), |keyring| {
        keyring.set_suite(kek, suite)?;
        keyring.add_generation(kek)?;
        keyring.unlock(kek)
    })?)
}

fn target(suite: Suite, generation: Generation) -> Target {
    Target::Sealed { suite, generation, from_plain: false }
}

fn next_steps(run: &mut Run<'_>) -> Result<(), CliError> {
    let keyring = Keyring::load(&keyring_path(&run.dir.root))?;
    run.report.next = vec![
        format!("Every file has the data key of generation {}.", keyring.active_generation()),
        "The older ones stay in the keyring for the backups and the archived WAL that have them; remove"
            .to_owned(),
        format!("them when there are none left: pgseal key forget {}", run.dir.root.display()),
    ];
    Ok(())
}
