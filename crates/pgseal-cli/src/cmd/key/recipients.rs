//! `pgseal key add-recipient` and `remove-recipient`: further keys that open a keyring.

use std::io::{self, Write};

use pgseal_keys::{Kek, Keyring, Line, Provider};
use serde::Serialize;

use crate::error::CliError;
use crate::given_dir::{GivenPath, directory_of};
use crate::keyring_place::KeyringPlace;
use crate::keys::{self, PresentKey};
use crate::out::{Out, count};
use crate::register::{self, Registration};
use crate::values::KeySource;
use crate::{audit, exit};

const EXAMPLES: &str = "\
Examples:
  pgseal key add-recipient escrow -K file:/mnt/offline/escrow.key /srv/postgres/data
  pgseal key add-recipient break-glass -K passphrase: /srv/postgres/data
  pgseal key add-recipient region-b -K 'vault:key=pgseal?address=https://b:8200' --register DIR";

/// Let another key open the keyring too: of a second key store, offline, or a passphrase
///
/// The data keys stay the same, and no data is encrypted anew. A running server is not disturbed.
/// A start asks the sources in the order of the lines in /etc/pgseal/clusters.d, until one opens
/// the keyring.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct AddArgs {
    /// What to call it: lower-case letters, digits, '.', '_' and '-'
    name: String,
    #[command(flatten)]
    path: GivenPath,
    /// Where its key comes from: env:NAME, file:PATH, command:SHELL COMMAND, passphrase:, or
    /// NAME:... for a key store
    #[arg(short = 'K', long = "key-provider", value_name = "NEW")]
    #[arg(value_parser = KeySource, hide_possible_values = true)]
    new: String,
    /// Where a key comes from that opens the keyring now, if not from where it says
    #[arg(long, value_name = "PROVIDER")]
    #[arg(value_parser = KeySource, hide_possible_values = true)]
    old: Option<String>,
    /// Also add where the new key comes from to the file in /etc/pgseal/clusters.d
    #[arg(long)]
    register: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Let a key no longer open the keyring
///
/// It still opens older copies of the keyring, in backups for example. If no other recipient is
/// left, the keyring key is replaced, so that data keys which are added later stay closed to it.
#[derive(Debug, clap::Args)]
pub struct RemoveArgs {
    /// The recipient's name, as 'pgseal key show' prints it
    name: String,
    #[command(flatten)]
    path: GivenPath,
    #[command(flatten)]
    key: PresentKey,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What was done.
#[derive(Debug, Serialize)]
struct Done {
    keyring: String,
    keyring_id: String,
    recipient: String,
    provider: String,
    /// Whether the keyring was rewritten: not if the recipient is there already, with this key.
    changed: bool,
    /// How many recipients there are now.
    recipients: usize,
    /// The file in /etc/pgseal/clusters.d that was written.
    registered: Option<String>,
    /// What is left to do, in lines.
    next: Vec<String>,
}

pub fn add(args: &AddArgs) -> Result<u8, CliError> {
    let path = args.path.path("key add-recipient")?;
    let provider = Provider::parse_typed(&args.new)?;
    let begin = || Registration::begin(&provider, Line::Another, directory_of(&path));
    let registration = args.register.then(begin).transpose()?;
    let place = KeyringPlace::open(&path)?;
    let keyring = place.load()?;
    if args.register {
        register::expect_registered(&keyring)?;
    }
    let old = keys::kek(&keyring, args.old.as_deref())?;
    // Before the new key is asked for: a wrong old key and a bad name are the likelier mistakes.
    keyring.unlock(&old)?;
    let uri = provider.to_string();
    let changed = !is_recipient(&keyring, &args.name, &provider);
    let keyring = match changed {
        false => keyring,
        true => {
            keyring.expect_new_recipient(&args.name)?;
            let new = provider.kek_for_keyring(keyring.id())?;
            let keyring =
                place.change(|keyring| keyring.add_recipient(&old, &args.name, &new, &uri))?;
            let added = keyring.summary().recipients.pop();
            let name_in_store = added.and_then(|recipient| recipient.store_key);
            audit::new_key(&uri, name_in_store.as_deref(), Some(&args.name));
            keyring
        }
    };
    let registered = registration.map(|known| known.finish(keyring.id())).transpose()?;
    let next = match &registered {
        Some(_) => Vec::new(),
        None => register::advice_on_another(&keyring, &provider),
    };
    let mut done = Done::new(&keyring, &args.name, &uri, next);
    done.changed = changed;
    done.registered = registered.as_deref().map(|path| path.display().to_string());
    let mut out = Out::new();
    if args.json {
        out.json(&done)?;
    } else {
        let Done { keyring, recipient, provider, recipients, .. } = &done;
        let all = count(*recipients as u64, "recipient");
        let before = if changed { "" } else { " already; nothing was changed in it" };
        writeln!(
            out,
            "{keyring}: the key of {provider} opens it too, as {recipient} ({all}){before}."
        )?;
        if let Some(path) = &registered {
            writeln!(out, "{}", register::done(path))?;
        }
        done.print_next(&mut out)?;
    }
    out.flush()?;
    Ok(exit::SOUND)
}

/// Whether the recipient of this name has this source, and its key opens the keyring. A passphrase
/// is not asked for, and a key store makes a new key each time.
fn is_recipient(keyring: &Keyring, name: &str, provider: &Provider) -> bool {
    let recipients = keyring.summary().recipients;
    let Some(at) = recipients.iter().position(|recipient| recipient.name == name) else {
        return false;
    };
    let is_named = recipients.get(at).is_some_and(|known| known.provider == provider.to_string());
    // Slot 0 is that of the keyring's own key.
    let opens = |key: Kek| keyring.slots_opened_by(&key).contains(&(at + 1));
    is_named
        && !provider.is_passphrase()
        && provider.plugin().is_none()
        && provider.kek_for_new().is_ok_and(opens)
}

pub fn remove(args: &RemoveArgs) -> Result<u8, CliError> {
    let place = KeyringPlace::open(&args.path.path("key remove-recipient")?)?;
    let keyring = place.load()?;
    let kek = keys::kek(&keyring, args.key.provider.as_deref())?;
    let mut uri = String::new();
    audit::detail(format!("recipient {}", args.name));
    let keyring = place.change(|keyring| {
        uri = keyring.remove_recipient(&kek, &args.name)?;
        Ok(())
    })?;
    let how = match &place {
        KeyringPlace::DataDir(_) => "add a data key (pgseal rekey)",
        KeyringPlace::File(_) => "add a data key (pgseal key renew) and give the columns new keys",
    };
    let name = &args.name;
    let mut next = vec![format!(
        "Its key still opens older copies of the keyring; {how} if {name} may have one."
    )];
    next.extend(register::advice_on_removed(&keyring, &uri));
    let done = Done::new(&keyring, &args.name, &uri, next);
    let mut out = Out::new();
    if args.json {
        out.json(&done)?;
    } else {
        let all = count(done.recipients as u64, "recipient");
        let Done { keyring, recipient, .. } = &done;
        writeln!(out, "{keyring}: {recipient} does not open it any more ({all} left).")?;
        done.print_next(&mut out)?;
    }
    out.flush()?;
    Ok(exit::SOUND)
}

impl Done {
    fn new(keyring: &Keyring, name: &str, uri: &str, next: Vec<String>) -> Done {
        Done {
            keyring: keyring.path().display().to_string(),
            keyring_id: keyring.id().to_string(),
            recipient: name.to_owned(),
            provider: Provider::shown(uri),
            changed: true,
            recipients: keyring.summary().recipients.len(),
            registered: None,
            next,
        }
    }

    fn print_next(&self, out: &mut Out) -> io::Result<()> {
        self.next.iter().try_for_each(|line| writeln!(out, "{line}"))
    }
}
