//! `pgseal key renew`: a new data key for all files, while the server runs.

mod hand_over;
mod rewrap;

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use pgseal_core::{Generation, KeySet, Suite, Suites};
use pgseal_keys::{GenerationState, Keyring, update};
use serde::Serialize;

use self::hand_over::Answer;
use crate::datadir::DataDir;
use crate::error::CliError;
use crate::given_dir::GivenPath;
use crate::keyring_place::KeyringPlace;
use crate::keys::{self, PresentKey};
use crate::locks::{OwnLock, ServerLock};
use crate::out::Out;
use crate::{audit, exit, records, values};

const EXAMPLES: &str = "\
Examples:
  pgseal key renew /srv/postgres/data
  pgseal key renew --finish /srv/postgres/data      # after an interruption
  pgseal key renew --suite aes-256-gcm /srv/postgres/data
  pgseal key backup /srv/postgres/data -o escrow.txt

With --suite, new files of relations are made in another suite, and existing ones keep theirs:
\"pgseal reseal --rewrite\" has the server make them anew.

The pages are not encrypted anew: each file keeps its own key. If somebody may have read file keys,
use \"pgseal reseal\", or \"pgseal rekey\" on a stopped server.";

/// Make a new data key and put the key of each file under it; the server may run
///
/// Writes one sector of each file: seconds, not hours. A running server takes the new data key when
/// it reads its configuration again, which this command has it do (as pg_ctl reload). The older
/// data keys stay in the keyring for backups and archived WAL (pgseal key forget).
/// For a keyring of sealed columns: only makes the new data key, which wraps new column keys.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    path: GivenPath,
    #[command(flatten)]
    key: PresentKey,
    /// Make no new data key: put the files that still have an older one under the newest
    #[arg(long)]
    finish: bool,
    /// New files of relations get this suite from now on; existing ones keep theirs
    #[arg(long, value_parser = values::suite(), conflicts_with = "finish")]
    suite: Option<Suite>,
    /// For how many seconds to wait until the server has read its configuration
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    timeout: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What was done.
#[derive(Debug, Serialize)]
struct Done {
    /// The generation that all files have now.
    generation: u32,
    /// Whether this command made it.
    is_new: bool,
    /// The process id of the server that took the key.
    server: Option<u32>,
    /// Files whose header was written.
    files: u64,
    /// Files that keep an older data key.
    left: Vec<Left>,
    /// Generations that stay in the keyring.
    retired: Vec<u32>,
    /// The suite of new files of relations.
    suite: &'static str,
    /// The suites that existing ones may have besides.
    older_suites: Vec<&'static str>,
}

/// A file that keeps an older data key, or whose key cannot be known.
#[derive(Debug, Serialize)]
struct Left {
    path: String,
    why: String,
}

pub fn run(args: &Args) -> Result<u8, CliError> {
    match KeyringPlace::open(&args.path.path("key renew")?)? {
        KeyringPlace::DataDir(dir) => renew_files(args, &dir),
        place @ KeyringPlace::File(_) => renew_alone(args, &place),
    }
}

/// A new data key in a keyring of sealed columns, which has no files.
fn renew_alone(args: &Args, place: &KeyringPlace) -> Result<u8, CliError> {
    let keyring = place.load()?;
    let path = keyring.path().display().to_string();
    if args.finish || args.suite.is_some() {
        return Err(CliError::Usage(format!(
            "{path}: --finish and --suite are for the files of a data directory; this is a keyring alone"
        )));
    }
    let kek = keys::kek(&keyring, args.key.provider.as_deref())?;
    let keyring = place.change(|keyring| keyring.add_generation(&kek).map(|_| ()))?;
    let keys = keyring.unlock(&kek)?;
    audit::unlocked(&keys);
    let done = Done {
        generation: keys.active().0,
        is_new: true,
        server: None,
        files: 0,
        left: Vec::new(),
        retired: retired(&keyring).iter().map(|generation| generation.0).collect(),
        suite: keys.suite().name(),
        older_suites: Vec::new(),
    };
    let mut out = Out::new();
    if args.json {
        out.json(&done)?;
    } else {
        writeln!(out, "{path}: data key {} wraps new column keys.", done.generation)?;
        writeln!(
            out,
            "To put those that there are under it, in each database: SELECT \
             pgseal.change_provider('keyring:{path}')"
        )?;
        writeln!(out, "Older escrow copies lack it: pgseal key backup {path} -o FILE")?;
    }
    out.flush()?;
    Ok(exit::SOUND)
}

fn renew_files(args: &Args, dir: &DataDir) -> Result<u8, CliError> {
    dir.expect_whole()?;
    let _own = OwnLock::take(&dir.root)?;
    let server = dir.server_pid();
    // No server starts on the data directory meanwhile.
    let _stopped = match server {
        Some(_) => None,
        None => {
            expect_no_lock_file(dir)?;
            Some(ServerLock::take(dir)?)
        }
    };
    let keyring = keys::own_keyring(dir)?;
    let kek = keys::kek(&keyring, args.key.provider.as_deref())?;
    let before = keyring.suites();
    if let Some(suite) = args.suite {
        audit::detail(format!("new files of relations: {suite} instead of {}", before.newest()));
    }
    // On the disk before the first file needs it.
    let keyring = match args.finish {
        true => keyring,
        false => keys::change_own(dir, |keyring| {
            args.suite.map_or(Ok(()), |suite| keyring.change_suite(&kek, suite))?;
            keyring.add_generation(&kek).map(|_| ())
        })?,
    };
    let keys = keyring.unlock(&kek)?;
    audit::unlocked(&keys);
    let retired = retired(&keyring);
    if let Some(pid) = server.filter(|_| !retired.is_empty()) {
        let patience = Duration::from_secs(args.timeout.into());
        let answer = hand_over::to_server(&dir.root, pid, &keys, &retired, patience)?;
        let has_suites = keys.suites() == before;
        match answer {
            Answer::Taken => {}
            Answer::Refused if has_suites => return Err(hand_over::refused(&dir.root, pid)),
            Answer::None if has_suites => {
                return Err(hand_over::no_answer(&dir.root, pid, patience));
            }
            Answer::Refused | Answer::None => {
                // The server runs on without the suite, and so must its next start.
                keys::change_own(dir, |keyring| keyring.set_suites(&kek, before))?;
                return Err(without_suite(dir, pid, &answer, &keys, before));
            }
        }
    }
    if server.is_none() {
        // A server that runs writes them itself, with the next change of each.
        update(&dir.keyring(), |_| Ok(records::seal_anew(&dir.root, &keys)))??;
    }
    let shows_progress = !args.json && io::stderr().is_terminal();
    let outcome = rewrap::all(&dir.root, &keys, shows_progress)?;
    let left = outcome.left.into_iter();
    let done = Done {
        generation: keys.active().0,
        is_new: !args.finish,
        server,
        files: outcome.files,
        left: left.map(|(path, why)| Left { path: path.display().to_string(), why }).collect(),
        retired: retired.iter().map(|generation| generation.0).collect(),
        suite: keys.suite().name(),
        older_suites: keys.suites().older().map(Suite::name).collect(),
    };
    let mut out = Out::new();
    if args.json {
        out.json(&done)?;
    } else {
        print(&mut out, &done, dir)?;
    }
    out.flush()?;
    Ok(if done.left.is_empty() { exit::SOUND } else { exit::DAMAGE })
}

/// The error about a server that did not take the suite.
fn without_suite(
    dir: &DataDir,
    pid: u32,
    answer: &Answer,
    keys: &KeySet,
    before: Suites,
) -> CliError {
    let (suite, before) = (keys.suite(), before.newest());
    let why = match answer {
        Answer::None => "it did not read its configuration in time. When it answers again",
        _ => {
            "its log says why. A suite with tags needs full_page_writes = on, and wal_log_hints = on or \
             data checksums; ctr needs data checksums. After a change of the settings and a restart"
        }
    };
    CliError::NotNow(format!(
        "{}: the server, process {pid}, did not take the suite {suite}, and new files stay in {before}: \
         {why}, run the same command again",
        dir.root.display()
    ))
}

/// Refuses a lock file of a process that is not here: a server in another container would not learn
/// of the new key, and could not open its files.
fn expect_no_lock_file(dir: &DataDir) -> Result<(), CliError> {
    let path = dir.root.join("postmaster.pid");
    if fs::symlink_metadata(&path).is_err() {
        return Ok(());
    }
    Err(CliError::NotNow(format!(
        "{}: no process that is visible here has this lock file. If the server runs in a container, \
         run this command there; if it crashed, start it, or remove the file",
        path.display(),
    )))
}

fn retired(keyring: &Keyring) -> Vec<Generation> {
    let all = keyring.summary().generations.into_iter();
    let retired = all.filter(|entry| entry.state == GenerationState::Retired);
    retired.map(|entry| Generation(entry.generation)).collect()
}

fn print(out: &mut Out, done: &Done, dir: &DataDir) -> io::Result<()> {
    let Done { generation, files, .. } = done;
    let root = dir.root.display();
    let how = match done.server {
        Some(pid) => format!("The server, process {pid}, has it."),
        None => "No server runs.".to_owned(),
    };
    writeln!(out, "{root}: data key {generation} is in use. {how}")?;
    writeln!(out, "{files} files were put under it.")?;
    for Left { path, why } in &done.left {
        writeln!(out, "Left as it is: {path}: {why}")?;
    }
    if !done.left.is_empty() {
        writeln!(out, "Mend or remove these files, then: pgseal key renew --finish {root}")?;
    }
    if !done.older_suites.is_empty() {
        writeln!(
            out,
            "New files of relations are made in {}. Those that were made in {} stay until they are \
             made anew: pgseal reseal {root} --rewrite",
            done.suite,
            done.older_suites.join(", ")
        )?;
    }
    if done.is_new {
        writeln!(out, "Older escrow copies lack it: pgseal key backup {root} -o FILE")?;
    }
    if !done.retired.is_empty() {
        let retired: Vec<String> = done.retired.iter().map(u32::to_string).collect();
        writeln!(
            out,
            "Data keys {} stay for backups and archived WAL; when none is left that has them, stop \
             the server: pgseal key forget {root}",
            retired.join(", ")
        )?;
    }
    Ok(())
}
