//! `pgseal key backup`: makes an escrow copy of the keyring (`spec/key-escrow.md`).

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pgseal_keys::escrow::{self, EscrowCopy, Lock};
use pgseal_keys::{Keyring, Provider};
use serde::Serialize;
use zeroize::Zeroizing;

use crate::datadir::DataDir;
use crate::error::CliError;
use crate::given_dir::{GivenPath, directory_of};
use crate::out::{self, Out};
use crate::values::KeySource;
use crate::{as_owner, audit, escrow_record, exit, keys, library, memory, private_file};

const EXAMPLES: &str = "\
Examples:
  Under a passphrase, on paper:
    pgseal key backup /srv/postgres/data -o escrow.txt && lp escrow.txt && shred -u escrow.txt
  Any three of five people can open it, fewer cannot:
    pgseal key backup /srv/postgres/data --shares 3-of-5 -o /media/usb/escrow
  Under a second key, of a key store for example:
    pgseal key backup /srv/postgres/data --lock 'command:vault kv get -field=key secret/escrow'

A copy opens the files of the generations that it holds, for ever, whatever becomes of the key. Make
a new one after each new generation: \"pgseal key check DIR --escrow FILE\" says when.
The way back is \"pgseal key restore\".";

/// Make an escrow copy of the keyring: encrypted text, to be printed and kept apart
///
/// It gives the data keys back when the key or the keyring was lost.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    path: GivenPath,
    /// Write it into a new file of mode 0600 instead of printing it; with --shares, into FILE-1,
    /// FILE-2 and so on
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// What opens the copy: passphrase:, passphrase:fd=N, passphrase:command=SHELL COMMAND, or a
    /// key of its own: file:PATH, env:NAME, command:SHELL COMMAND
    #[arg(long, value_name = "PROVIDER", default_value = "passphrase:")]
    #[arg(value_parser = KeySource, hide_possible_values = true)]
    lock: String,
    /// Open it with any M of N shares, each of which is written apart
    #[arg(long, value_name = "M-of-N", value_parser = parse_shares, conflicts_with = "lock")]
    shares: Option<(u8, u8)>,
    /// Where the present key comes from, if not from where the keyring says
    #[arg(short = 'K', long = "key-provider", value_name = "PROVIDER")]
    #[arg(value_parser = KeySource, hide_possible_values = true)]
    provider: Option<String>,
    /// Print JSON: what was written, and no key
    #[arg(long, requires = "output")]
    json: bool,
}

/// What was written.
#[derive(Debug, Serialize)]
struct Made {
    keyring_id: String,
    made: String,
    generations: Vec<u32>,
    opened_by: String,
    files: Vec<String>,
}

fn parse_shares(text: &str) -> Result<(u8, u8), String> {
    let numbers = text.split_once("-of-").and_then(|(threshold, limit)| {
        Some((threshold.parse::<u8>().ok()?, limit.parse::<u8>().ok()?))
    });
    match numbers {
        Some((threshold, limit)) if threshold >= 2 && limit >= threshold => Ok((threshold, limit)),
        Some(_) => Err("M must be at least 2, and N from M to 255".to_owned()),
        None => Err("two numbers are wanted, as in 3-of-5".to_owned()),
    }
}

pub fn run(args: &Args) -> Result<u8, CliError> {
    let path = args.path.path("key backup")?;
    if let Some(output) = &args.output
        && as_owner::other_owner(directory_of(&path))?.is_some()
    {
        return write_for_the_owner(args, &path, output);
    }
    let (keyring, dir) = open(&path)?;
    let kek = keys::kek(&keyring, args.provider.as_deref())?;
    // Before the prompt for the new passphrase: a wrong key is the likelier mistake.
    keyring.unlock(&kek)?;
    let copies = match args.shares {
        Some((threshold, limit)) => {
            escrow::make(&keyring, &kek, Lock::Shares { threshold, limit })?
        }
        None => {
            let lock = Provider::parse_typed(&args.lock)?.kek_for_escrow()?;
            if lock.expose() == kek.expose() {
                return Err(CliError::Usage(
                    "the escrow copy would be under the very key that the keyring is under, and be \
                     lost with it; choose another one with --lock"
                        .to_owned(),
                ));
            }
            escrow::make(&keyring, &kek, Lock::Kek(&lock))?
        }
    };
    write_all(&copies, args.output.as_deref())?;
    if let Some(copy) = copies.first() {
        let summary = copy.summary();
        audit::detail(format!("a copy that is opened by {}", summary.opened_by));
        if let Some(dir) = dir {
            escrow_record::write(&dir, &summary);
        }
        memory::escrow_made(
            keyring.id(),
            memory::EscrowCopy {
                generations: summary.generations.iter().map(|(number, _)| *number).collect(),
                made: summary.made,
                opened_by: summary.opened_by,
            },
        );
    }
    if let Some(path) = &args.output {
        say(&copies, path, args.json)?;
    }
    Ok(exit::SOUND)
}

/// For root: a second process, which becomes the owner of the data directory, makes the copy and
/// prints it. This process stays root, writes the files, and reads nothing in the directory.
fn write_for_the_owner(args: &Args, keyring: &Path, output: &Path) -> Result<u8, CliError> {
    let taken = |path: &Path| match fs::symlink_metadata(path) {
        Ok(_) => Err(CliError::Exists {
            path: path.to_owned(),
            what: private_file::ESCROW_COPY.exists,
            remedy: private_file::ESCROW_COPY.remedy,
        }),
        Err(_) => Ok(()),
    };
    taken(output)?;
    let program = library::program()?;
    let mut command = Command::new(&program);
    command.args(["key", "backup"]).arg(keyring);
    match args.shares {
        Some((threshold, limit)) => command.arg("--shares").arg(format!("{threshold}-of-{limit}")),
        None => command.arg("--lock").arg(&args.lock),
    };
    command.args(args.provider.iter().flat_map(|uri| ["-K", uri]));
    if keys::cost_limit() == pgseal_keys::CostLimit::Format {
        command.arg("--allow-cost");
    }
    let child = command.stdin(Stdio::inherit()).stderr(Stdio::inherit()).output();
    let child = child.map_err(CliError::io(&program, "start the program again"))?;
    let text = Zeroizing::new(child.stdout);
    if !child.status.success() {
        // The other process has printed the reason on standard error.
        let code = child.status.code().and_then(|code| u8::try_from(code).ok());
        return Ok(code.unwrap_or(exit::IO));
    }
    let text = Zeroizing::new(String::from_utf8_lossy(&text).into_owned());
    let copies = escrow::read_all(&text, "the escrow copy")?;
    write_all(&copies, Some(output))?;
    say(&copies, output, args.json)?;
    Ok(exit::SOUND)
}

/// The keyring, and the data directory that it is in.
fn open(path: &Path) -> Result<(Keyring, Option<DataDir>), CliError> {
    if path.is_file() {
        as_owner::step_down_beside(path)?;
        return Ok((Keyring::load(path)?, None));
    }
    let dir = DataDir::open(path)?;
    let keyring = keys::own_keyring(&dir)?;
    Ok((keyring, Some(dir)))
}

fn write_all(copies: &[EscrowCopy], output: Option<&Path>) -> Result<(), CliError> {
    let Some(path) = output else {
        for (index, copy) in copies.iter().enumerate() {
            if index > 0 {
                // A form feed: each share is printed on a page of its own.
                out::secret(b"\x0c\n")?;
            }
            out::secret(copy.to_text()?.as_bytes())?;
        }
        return Ok(());
    };
    let mut written = Vec::new();
    for copy in copies {
        let path = path_of(path, copy);
        let result = private_file::write_new(
            &path,
            &private_file::ESCROW_COPY,
            &[copy.to_text()?.as_bytes()],
        );
        let result = result.and_then(|()| {
            written.push(path.clone());
            read_again(&path)
        });
        if let Err(error) = result {
            // Somebody might take an incomplete set of shares for a copy.
            for path in written {
                let _ = fs::remove_file(path);
            }
            return Err(error);
        }
    }
    Ok(())
}

fn path_of(path: &Path, copy: &EscrowCopy) -> PathBuf {
    match copy.share_index() {
        None => path.to_owned(),
        Some(index) => {
            let mut name = path.as_os_str().to_owned();
            name.push(format!("-{index}"));
            PathBuf::from(name)
        }
    }
}

/// Reads the copy again: it must be readable.
fn read_again(path: &Path) -> Result<(), CliError> {
    let again = fs::read_to_string(path).map_err(CliError::io(path, "read the escrow copy"))?;
    let again = Zeroizing::new(again);
    escrow::read_all(&again, &path.display().to_string())?;
    Ok(())
}

fn say(copies: &[EscrowCopy], path: &Path, json: bool) -> Result<(), CliError> {
    let Some(first) = copies.first() else { return Ok(()) };
    let summary = first.summary();
    let numbers: Vec<u32> = summary.generations.iter().map(|(number, _)| *number).collect();
    if json {
        let mut out = Out::new();
        out.json(&Made {
            keyring_id: summary.keyring_id,
            made: summary.made,
            generations: numbers,
            opened_by: summary.opened_by,
            files: copies.iter().map(|copy| path_of(path, copy).display().to_string()).collect(),
        })?;
        return Ok(out.flush()?);
    }
    let files = match copies.len() {
        1 => path.display().to_string(),
        count => format!("{0}-1 to {0}-{count}", path.display()),
    };
    out::complain(&format!(
        "{files}: escrow copy of keyring {}, generations {}, opened by {}. Print it, keep it away \
         from the data and its backups, and remove the file",
        summary.keyring_id,
        escrow::ranges(&numbers),
        summary.opened_by,
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::parse_shares;

    #[test]
    fn shares_are_two_numbers() {
        assert_eq!(parse_shares("3-of-5"), Ok((3, 5)));
        assert_eq!(parse_shares("2-of-255"), Ok((2, 255)));
        for bad in ["", "3", "3of5", "1-of-5", "6-of-5", "3-of-256", "-3-of-5", "0-of-0"] {
            assert!(parse_shares(bad).is_err(), "{bad}");
        }
    }
}
