//! `pgseal key rotate`: wraps the keyring with another key.

use std::io::{self, Write};
use std::path::Path;

use pgseal_keys::{Keyring, Line, Provider};
use serde::Serialize;

use crate::error::CliError;
use crate::given_dir::{GivenPath, directory_of};
use crate::keyring_place::KeyringPlace;
use crate::out::Out;
use crate::register::{self, Registration};
use crate::values::KeySource;
use crate::{audit, exit, keys, memory};

/// Put the keyring under another key. Rewrites one small file; no data is encrypted anew
///
/// The data keys inside stay the same. A running server is not disturbed: it reads the keyring
/// when it starts. Keep the old key as long as you keep backups whose keyring is under it.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    path: GivenPath,
    /// Where the new key comes from: env:NAME, file:PATH, command:SHELL COMMAND, passphrase:, or
    /// NAME:... for a key store
    #[arg(short = 'K', long = "key-provider", value_name = "NEW")]
    #[arg(value_parser = KeySource, hide_possible_values = true)]
    new: String,
    /// Where the present key comes from, if not from where the keyring says
    #[arg(long, value_name = "PROVIDER")]
    #[arg(value_parser = KeySource, hide_possible_values = true)]
    old: Option<String>,
    /// Also write where the new key comes from into /etc/pgseal/clusters.d
    #[arg(long)]
    register: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What was done.
#[derive(Debug, Serialize)]
struct Done {
    keyring: String,
    keyring_id: String,
    provider: String,
    /// Whether the keyring was rewritten: not if it is under that key already.
    changed: bool,
    /// The file in /etc/pgseal/clusters.d that was written.
    registered: Option<String>,
    /// What is left to do, in lines.
    next: Vec<String>,
}

pub fn run(args: &Args) -> Result<u8, CliError> {
    let path = args.path.path("key rotate")?;
    let provider = Provider::parse_typed(&args.new)?;
    let begin = || Registration::begin(&provider, Line::First, directory_of(&path));
    let registration = args.register.then(begin).transpose()?;
    let place = KeyringPlace::open(&path)?;
    let keyring = place.load()?;
    let changed = !is_under(&keyring, &provider);
    if changed {
        let old = keys::kek(&keyring, args.old.as_deref())?;
        // Before the prompt for the new key: a wrong old key is the likelier mistake.
        keyring.unlock(&old)?;
        let new = provider.kek_for_keyring(keyring.id())?;
        let uri = provider.to_string();
        let changed = place.change(|keyring| keyring.rotate_kek(&old, &new, &uri))?;
        audit::new_key(&uri, changed.summary().store_key.as_deref(), None);
    }
    if changed {
        memory::rotated(keyring.id());
    }
    let registered = registration.map(|known| known.finish(keyring.id())).transpose()?;
    let done = Done {
        keyring: keyring.path().display().to_string(),
        keyring_id: keyring.id().to_string(),
        provider: Provider::shown(&provider.to_string()),
        changed,
        next: match &registered {
            Some(_) => Vec::new(),
            None => register::advice(&keyring, &provider),
        },
        registered: registered.as_deref().map(|path| path.display().to_string()),
    };
    let mut out = Out::new();
    if args.json {
        out.json(&done)?;
    } else {
        print(&mut out, &done, registered.as_deref())?;
    }
    out.flush()?;
    Ok(exit::SOUND)
}

/// Whether the keyring names this source already, and its key opens it. A passphrase is not asked
/// for: the present and the new one have the same name. A key store makes a new key each time.
fn is_under(keyring: &Keyring, provider: &Provider) -> bool {
    !provider.is_passphrase()
        && !matches!(provider, Provider::Plugin(_))
        && keyring.provider_uri() == provider.to_string()
        && provider.kek_for_new().is_ok_and(|key| keyring.unlock(&key).is_ok())
}

fn print(out: &mut Out, done: &Done, registered: Option<&Path>) -> io::Result<()> {
    let Done { keyring, provider, .. } = done;
    if done.changed {
        writeln!(
            out,
            "{keyring}: under the key of {provider} now. Keep the old key for the backups made before."
        )?;
    } else {
        writeln!(out, "{keyring}: under the key of {provider} already; nothing was changed.")?;
    }
    if let Some(path) = registered {
        writeln!(out, "{}", register::done(path))?;
    }
    done.next.iter().try_for_each(|line| writeln!(out, "{line}"))
}
