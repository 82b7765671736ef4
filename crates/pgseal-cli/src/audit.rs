//! The audit trail: each use of a key is one line (`spec/audit.md`). A process writes the lines of
//! its own command, so what is known of the act is kept here, and the modules that find, open and
//! change keyrings tell it.
//!
//! An event "unlock" is written as soon as the key has opened the keyring; every other event when
//! the command ends. If the trail is required, a line "begun" comes before anything is done with
//! the key, so that nothing is done that is not recorded.

mod file;
mod look;
mod socket;

pub use look::{DestinationLook, TrailLook};

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use pgseal_core::KeySet;
use pgseal_keys::audit::{AuditKey, Entry, KeyName, Outcome};
use pgseal_keys::{AuditConf, Destination, Kek, Keyring, Provider};

use crate::error::CliError;
use crate::{environment, exit, out, small_file};

/// The event of a command that only reads with the key.
const UNLOCK: &str = "unlock";

/// What this process does.
struct Act {
    command: String,
    event: &'static str,
    /// The user who started the command, before root stepped down.
    uid: u32,
    /// Whether a key was used, or asked for.
    is_use: bool,
    has_begun: bool,
    /// Whether the line of the act was written.
    is_written: bool,
    cluster: Option<String>,
    path: Option<String>,
    datadir: Option<PathBuf>,
    key: Option<KeyName>,
    new_key: Option<KeyName>,
    generation: Option<u32>,
    detail: Option<String>,
    mac: Option<AuditKey>,
}

static ACT: Mutex<Option<Act>> = Mutex::new(None);

/// Changes the act; what `change` returns, if there is one.
fn with<T>(change: impl FnOnce(&mut Act) -> T) -> Option<T> {
    ACT.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(change)
}

/// Says which command this is: `key rotate`.
pub fn command(name: &str) {
    let act = Act {
        command: name.to_owned(),
        event: event_of(name),
        uid: rustix::process::geteuid().as_raw(),
        is_use: false,
        has_begun: false,
        is_written: false,
        cluster: None,
        path: None,
        datadir: None,
        key: None,
        new_key: None,
        generation: None,
        detail: None,
        mac: None,
    };
    *ACT.lock().unwrap_or_else(PoisonError::into_inner) = Some(act);
}

/// What a command does with a key (`spec/audit.md`, section 2).
fn event_of(command: &str) -> &'static str {
    match command {
        "initdb" | "helper new-keyring" | "key new-keyring" => "create",
        "encrypt" => "encrypt",
        "decrypt" => "decrypt",
        "rekey" => "rekey",
        "key new" => "new-key",
        "key rotate" => "rotate",
        "key renew" => "renew",
        "helper record-reseal" => "reseal",
        // Only with --register a key is asked for.
        "env" => "register",
        "key add-recipient" => "add-recipient",
        "key remove-recipient" => "remove-recipient",
        "key backup" => "backup",
        "key restore" => "restore",
        "key forget" => "forget",
        "key destroy" => "destroy",
        "key check" | "doctor" => "check",
        "config lock" => "config-lock",
        "config accept" => "config-accept",
        "config unlock" => "config-unlock",
        "manifest write" => "manifest-write",
        "wal accept" => "wal-accept",
        "anchor accept" => "anchor-accept",
        "provider test" => "provider-test",
        "helper column-keys" => "column-keys",
        "audit test" => "test",
        _ => UNLOCK,
    }
}

/// A key is used, or is about to be asked for, at this data directory or file.
pub fn using_at(path: &Path) {
    with(|act| {
        act.is_use = true;
        if act.path.is_none() {
            let full = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
            act.path = Some(full.display().to_string());
        }
    });
}

/// A key of this keyring is used, or is about to be asked for.
pub fn using(keyring: &Keyring) {
    with(|act| {
        act.cluster = Some(keyring.id().to_string());
        act.generation = Some(keyring.active_generation().0);
        if let Some(datadir) = keyring.datadir() {
            act.datadir = Some(datadir.to_owned());
        }
    });
    // A keyring that is not stored yet has no path.
    let path = keyring.datadir().unwrap_or(keyring.path());
    if path.is_absolute() {
        using_at(path);
    }
    with(|act| act.is_use = true);
}

/// This key was fetched for this keyring. If it opens the keyring, that is recorded now.
///
/// # Errors
/// [`CliError::Audit`] if it cannot be recorded, and has to be.
pub fn opened(keyring: &Keyring, kek: &Kek) -> Result<(), CliError> {
    using(keyring);
    // The command itself reports a wrong key; the line is written when it ends.
    let Ok(keys) = keyring.unlock(kek) else { return Ok(()) };
    let name = key_name(keyring, kek);
    unlocked(&keys);
    with(|act| act.key = act.key.take().or(Some(name)));
    match with(|act| act.event == UNLOCK) {
        Some(true) => done(),
        _ => begin(),
    }
}

/// This provider is asked for a key of no keyring.
pub fn asking(uri: &str) {
    with(|act| {
        act.is_use = true;
        act.key = Some(KeyName { provider: Provider::shown(uri), ..KeyName::default() });
    });
}

/// The act belongs to the server of this data directory.
pub fn for_datadir(datadir: &Path) {
    with(|act| act.datadir = Some(datadir.to_owned()));
}

/// The keyring was made again from an escrow copy, under this key.
///
/// # Errors
/// As [`opened`].
pub fn restored(keyring: &Keyring, new: &Kek) -> Result<(), CliError> {
    using(keyring);
    unlocked(&keyring.unlock(new)?);
    begin()
}

/// Keys of columns are about to be handed out: records that now, because nothing may be handed out
/// that is not recorded.
///
/// # Errors
/// [`CliError::Audit`].
pub fn handing_out() -> Result<(), CliError> {
    done()
}

/// Data keys that the MAC of the line is made with.
pub fn unlocked(keys: &KeySet) {
    let mac = AuditKey::active(keys).ok();
    with(|act| {
        act.generation = Some(keys.active().0);
        act.mac = mac;
    });
}

/// The rules of the key policy are about to be changed.
///
/// # Errors
/// [`CliError::Audit`] if that cannot be recorded, and has to be.
pub fn changing_policy(file: &Path, rules: String) -> Result<(), CliError> {
    with(|act| act.event = "policy-set");
    using_at(file);
    detail(rules);
    begin()
}

/// What a running server does with its keys.
#[derive(Debug)]
pub struct ServerAct {
    /// Its data directory.
    pub datadir: PathBuf,
    /// The identity of its keyring.
    pub cluster: String,
    /// The active data key.
    pub generation: u32,
    /// How far it is.
    pub outcome: Outcome,
    /// More, in words.
    pub detail: String,
}

/// Records what a running server does. No key is asked for, so the line has no MAC; the MAC of the
/// next line covers it.
///
/// # Errors
/// [`CliError::Audit`] if it cannot be recorded, and has to be.
pub fn of_server(server: ServerAct) -> Result<(), CliError> {
    let outcome = server.outcome;
    with(|act| {
        act.is_written = true;
        act.path = Some(server.datadir.display().to_string());
        act.datadir = Some(server.datadir);
        act.cluster = Some(server.cluster);
        act.generation = Some(server.generation);
        act.detail = Some(server.detail);
    });
    write(outcome, None, None)
}

/// The keyring gets this key.
pub fn new_key(provider: &str, name: Option<&str>, recipient: Option<&str>) {
    let key = KeyName {
        provider: Provider::shown(provider),
        name: name.map(str::to_owned),
        recipient: recipient.map(str::to_owned),
    };
    with(|act| act.new_key = Some(key));
}

/// More about the act, in words.
pub fn detail(text: String) {
    with(|act| act.detail = Some(text));
}

/// If the trail is required: records that the act begins, once.
///
/// # Errors
/// [`CliError::Audit`] if it cannot be recorded.
pub fn begin() -> Result<(), CliError> {
    let datadir = with(|act| act.datadir.clone()).flatten();
    if !AuditConf::find(datadir.as_deref())?.required {
        return Ok(());
    }
    match with(|act| std::mem::replace(&mut act.has_begun, true)) {
        Some(false) => write(Outcome::Begun, None, None),
        _ => Ok(()),
    }
}

/// Records that an event "unlock" has happened, once.
fn done() -> Result<(), CliError> {
    match with(|act| std::mem::replace(&mut act.is_written, true)) {
        Some(false) => write(Outcome::Done, None, None),
        _ => Ok(()),
    }
}

/// Records how the command ended, if it used a key and that is not recorded yet.
///
/// # Errors
/// That of the command; [`CliError::Audit`] if its end cannot be recorded, and has to be.
pub fn finish(result: Result<u8, CliError>) -> Result<u8, CliError> {
    let is_due = with(|act| act.is_use && !std::mem::replace(&mut act.is_written, true));
    if is_due != Some(true) || matches!(result, Err(CliError::Audit { .. })) {
        return result;
    }
    let (code, text) = match &result {
        Ok(code) => (*code, None),
        Err(error) => (exit::code_of(error), Some(error.to_string())),
    };
    let written = write(outcome_of(code), Some(code), text);
    match (result, written) {
        (Ok(_), Err(error)) => Err(error),
        (result, written) => {
            if let Err(error) = written {
                out::complain(&error.to_string());
            }
            result
        }
    }
}

/// How an act ended, by the exit status of its command.
fn outcome_of(code: u8) -> Outcome {
    match code {
        // 1: it was done, and something was found.
        0 | 1 => Outcome::Done,
        10..=17 => Outcome::Refused,
        _ => Outcome::Failed,
    }
}

/// Writes a line to every destination.
fn write(outcome: Outcome, exit: Option<u8>, error: Option<String>) -> Result<(), CliError> {
    let sent = with(|act| {
        let conf = AuditConf::find(act.datadir.as_deref())?;
        Ok((conf.required, act.send(&conf, &act.entry(outcome, exit, error)?)))
    });
    let Some(sent) = sent else { return Ok(()) };
    let (required, sent) = sent.map_err(CliError::Key)?;
    let failed = sent
        .into_iter()
        .filter_map(|(at, result)| result.err().map(|error| format!("{}: {error}", at.display())));
    let failed: Vec<String> = failed.collect();
    match (failed.is_empty(), required) {
        (true, _) => Ok(()),
        (false, true) => Err(CliError::Audit { what: failed.join("; ") }),
        (false, false) => {
            out::complain(&format!(
                "the audit trail: {}; this use of a key is not recorded there",
                failed.join("; ")
            ));
            Ok(())
        }
    }
}

/// Writes a line of the event "test" to every destination, and returns what each says.
///
/// # Errors
/// Those of the configuration.
pub fn test() -> Result<(AuditConf, Vec<Sent>), CliError> {
    let sent = with(|act| {
        let conf = AuditConf::find(None)?;
        let sent = act.send(&conf, &act.entry(Outcome::Done, None, None)?);
        Ok((conf, sent))
    });
    sent.unwrap_or_else(|| Ok(Default::default())).map_err(CliError::Key)
}

/// A destination, and whether it took a line.
type Sent = (PathBuf, io::Result<()>);

/// The socket or file of a destination.
fn path_of(destination: &Destination) -> &Path {
    match destination {
        Destination::Syslog(path) | Destination::Journald(path) | Destination::File(path) => path,
    }
}

impl Act {
    fn send(&self, conf: &AuditConf, entry: &Entry) -> Vec<Sent> {
        let send = |destination: &Destination| match destination {
            Destination::Syslog(path) => socket::syslog(path, entry),
            Destination::Journald(path) => socket::journald(path, entry),
            Destination::File(path) => {
                file::append(path, entry, self.mac.as_ref(), self.datadir.as_deref())
            }
        };
        conf.to.iter().map(|to| (path_of(to).to_owned(), send(to))).collect()
    }

    fn entry(
        &self,
        outcome: Outcome,
        exit: Option<u8>,
        error: Option<String>,
    ) -> Result<Entry, pgseal_keys::KeyError> {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Ok(Entry {
            time: pgseal_keys::now()?,
            host,
            user: user_name(self.uid),
            uid: self.uid,
            login_uid: login_uid(),
            pid: std::process::id(),
            command: self.command.clone(),
            program: self.command.starts_with("helper ").then(parent).flatten(),
            module: pgseal_crypto::FIPS.then(pgseal_crypto::library),
            event: self.event.to_owned(),
            outcome,
            exit,
            cluster: self.cluster.clone(),
            path: self.path.clone(),
            key: self.key.clone(),
            new_key: self.new_key.clone(),
            generation: self.generation,
            detail: self.detail.clone(),
            error,
            ..Entry::default()
        })
    }
}

/// The key that opens a keyring, by its names.
fn key_name(keyring: &Keyring, kek: &Kek) -> KeyName {
    let summary = keyring.summary();
    let slot = keyring.slots_opened_by(kek).first().copied().unwrap_or(0);
    let recipient = slot.checked_sub(1).and_then(|at| summary.recipients.get(at));
    let (provider, name) = match recipient {
        None => (&summary.provider, &summary.store_key),
        Some(recipient) => (&recipient.provider, &recipient.store_key),
    };
    // Behind a descriptor stands a provider that another process has asked.
    let origin = kek.origin().filter(|origin| !origin.starts_with(environment::KEK_FD));
    KeyName {
        provider: origin.map_or_else(|| Provider::shown(provider), str::to_owned),
        name: name.clone(),
        recipient: recipient.map(|recipient| recipient.name.clone()),
    }
}

/// The name of a user in the system's file, or the number.
fn user_name(uid: u32) -> String {
    let text = small_file::read_text(Path::new("/etc/passwd")).unwrap_or_default();
    let names = text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then_some(name)
    });
    names.map(str::to_owned).next().unwrap_or_else(|| uid.to_string())
}

/// The user who logged in, whom the kernel remembers through `sudo` and `su`.
fn login_uid() -> Option<u32> {
    let text = fs::read_to_string("/proc/self/loginuid").ok()?;
    text.trim().parse().ok().filter(|uid| *uid != u32::MAX)
}

/// The name of the program that started this one.
fn parent() -> Option<String> {
    let pid = rustix::process::getppid()?.as_raw_pid();
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_follow_the_exit_status() {
        for (code, outcome) in [
            (exit::SOUND, Outcome::Done),
            (exit::DAMAGE, Outcome::Done),
            (exit::OTHER_KEYRING, Outcome::Refused),
            (11, Outcome::Refused),
            (17, Outcome::Refused),
            (exit::NOT_NOW, Outcome::Failed),
            (exit::IO, Outcome::Failed),
        ] {
            assert_eq!(outcome_of(code), outcome, "{code}");
        }
    }

    #[test]
    fn users_have_names() {
        assert_eq!(user_name(0), "root");
        assert_eq!(user_name(u32::MAX - 7), (u32::MAX - 7).to_string());
    }
}
