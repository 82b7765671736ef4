//! Gathers what `pgseal status` shows, from the files, the keyring and the running server.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use pgseal_core::KeyringId;
use pgseal_core::header::Header;
use pgseal_keys::{Keyring, Provider};
use pgseal_pgdata::Policy;
use serde::Serialize;

use super::protection::Protection;
use crate::audit::TrailLook;
use crate::counters::Counters;
use crate::datadir::DataDir;
use crate::key_policy::{Facts, Look};
use crate::scan::{Entry, Scan, Seen};

/// What encryption of files does not hide. Every status prints it, so that nobody relies on it.
const NOT_PROTECTED: [&str; 4] = [
    "names, sizes, number and times of files, and which blocks change",
    "pg_control, configuration, backup labels and the server's log (listed above where present)",
    "what the server sends and shows: connections (use TLS), logs, memory, COPY to files, dumps",
    "older copies of whole files or blocks put back by somebody who can write to the storage",
];

/// One class of files.
#[derive(Debug, Default, Serialize)]
pub struct ClassRow {
    pub files: u64,
    pub bytes: u64,
    pub sealed: u64,
    pub plain: u64,
    pub empty: u64,
    pub seals: BTreeSet<String>,
    #[serde(skip)]
    pub reason: &'static str,
    pub plain_by_policy: bool,
}

#[derive(Debug, Serialize)]
pub struct PlainFile {
    pub file: String,
    pub class: &'static str,
    pub bytes: u64,
    pub why: &'static str,
}

#[derive(Debug, Serialize)]
pub struct Problem {
    pub file: String,
    pub what: String,
}

/// The file whose key has sealed the most writes.
#[derive(Debug, Serialize)]
pub struct MostUsedKey {
    pub file: String,
    /// About how many; the limit is 2^32.
    pub writes: u64,
}

#[derive(Debug, Serialize)]
pub struct Status {
    pub data_directory: String,
    pub postgresql: Option<String>,
    pub server_pid: Option<u32>,
    pub sealed: bool,
    /// The conversion that was interrupted, if there is one.
    pub unfinished: Option<&'static str>,
    pub keyring_id: Option<String>,
    pub provider: Option<String>,
    pub suite: Option<String>,
    /// The cryptographic library of this program.
    pub cryptography: &'static str,
    pub active_generation: Option<u32>,
    /// Whether the configuration is locked.
    pub configuration: Option<String>,
    /// The answers of the first screen.
    pub protection: Protection,
    /// The key policy of this machine and how the cluster stands; `None` if there is no policy.
    pub key_policy: Option<Look>,
    /// What the policy is judged by.
    #[serde(skip)]
    pub key_facts: Option<Facts>,
    /// The audit trail of this machine.
    pub audit: TrailLook,
    pub counters: Option<Counters>,
    pub no_counters: Option<String>,
    /// Whether the files were scanned; if not, the fields below are empty.
    pub files_seen: bool,
    pub classes: BTreeMap<&'static str, ClassRow>,
    pub plain_by_policy: Vec<PlainFile>,
    pub plain_where_sealed_is_due: Vec<PlainFile>,
    pub problems: Vec<Problem>,
    /// Harmless files of interrupted commands of pgseal.
    pub leftovers: Vec<Problem>,
    pub links: Vec<(String, String)>,
    /// `None`: no write was counted yet.
    pub most_used_key: Option<MostUsedKey>,
    /// How many files have two file keys.
    pub files_with_two_keys: u64,
    /// How many files were made in a suite that new ones do not get any more.
    pub files_of_older_suites: u64,
    pub not_protected: [&'static str; 4],
}

/// Gathers everything. `scan`: the files, if they were scanned.
pub fn collect(dir: &DataDir, scan: Option<&Scan>, keyring: Option<&Keyring>) -> Status {
    let server_pid = dir.server_pid();
    let (counters, no_counters) = match Counters::of_server(server_pid) {
        Ok(counters) => (Some(counters), None),
        Err(why) => (None, Some(why.to_string())),
    };
    let key_facts = keyring.map(Facts::of);
    let key_policy = keyring.zip(key_facts.as_ref());
    let key_policy = key_policy.and_then(|(keyring, facts)| Look::at(keyring, facts));
    let mut status = Status {
        data_directory: dir.root.display().to_string(),
        postgresql: dir.major.clone(),
        server_pid,
        sealed: scan.map_or(keyring.is_some(), |scan| scan.headers().next().is_some()),
        unfinished: dir.conversion.as_ref().map(|journal| journal.operation.name()),
        keyring_id: keyring.map(|keyring| keyring.id().to_string()),
        provider: keyring.map(|keyring| Provider::shown(keyring.provider_uri())),
        suite: keyring.map(|keyring| keyring.suite().name().to_owned()),
        cryptography: pgseal_crypto::library(),
        active_generation: keyring.map(|keyring| keyring.active_generation().0),
        configuration: keyring.map(|keyring| configuration(&dir.root, keyring).to_owned()),
        protection: Protection::of(dir, scan, keyring),
        key_policy,
        key_facts,
        audit: TrailLook::at(&dir.root, keyring.map(Keyring::id)),
        counters,
        no_counters,
        files_seen: scan.is_some(),
        classes: BTreeMap::new(),
        plain_by_policy: Vec::new(),
        plain_where_sealed_is_due: Vec::new(),
        problems: Vec::new(),
        leftovers: Vec::new(),
        links: Vec::new(),
        most_used_key: None,
        files_with_two_keys: 0,
        files_of_older_suites: 0,
        not_protected: NOT_PROTECTED,
    };
    let Some(scan) = scan else { return status };
    let show = |path: &PathBuf| path.display().to_string();
    for (link, target) in &scan.outside {
        status.links.push((show(link), show(target)));
    }
    for (path, why) in &scan.closed {
        status.problems.push(Problem { file: show(path), what: format!("not readable: {why}") });
    }
    status.most_used_key =
        scan.most_used_key().map(|(entry, writes)| MostUsedKey { file: entry.name(), writes });
    status.files_with_two_keys = scan.with_two_keys().count() as u64;
    if let Some(keyring) = keyring {
        let older = scan.of_older_suite(keyring.id(), keyring.suite());
        status.files_of_older_suites = older.count() as u64;
    }
    for entry in &scan.entries {
        add(&mut status, entry, keyring.map(Keyring::id));
    }
    status
}

/// Whether the configuration is locked, as far as the keyring shows it without the key.
fn configuration(root: &Path, keyring: &Keyring) -> &'static str {
    match (keyring.config_lock(), root.join("postgresql.conf").exists()) {
        (Some(_), _) => "locked (pgseal config status compares)",
        (None, false) => "outside of the data directory",
        (None, true) => {
            "not locked: whoever writes the data directory decides what the server runs"
        }
    }
}

fn add(status: &mut Status, entry: &Entry, keyring: Option<KeyringId>) {
    if let Some(what) = entry.leftover() {
        return status.leftovers.push(Problem { file: entry.name(), what: what.to_owned() });
    }
    let row = status.classes.entry(entry.class.name()).or_default();
    row.files += 1;
    row.bytes += entry.len;
    row.reason = entry.class.reason();
    row.plain_by_policy = matches!(entry.class.policy(), Policy::Plain(_));
    let mut problem = |what: String| status.problems.push(Problem { file: entry.name(), what });
    match &entry.seen {
        Seen::Sealed(header) => {
            row.sealed += 1;
            row.seals.insert(seal_of(header));
            if keyring.is_some_and(|id| id != header.keyring_id) {
                problem(format!("sealed with another keyring, {}", header.keyring_id));
            }
        }
        Seen::Empty => row.empty += 1,
        Seen::Plain => {
            row.plain += 1;
            let plain = PlainFile {
                file: entry.name(),
                class: entry.class.name(),
                bytes: entry.len,
                why: entry.class.reason(),
            };
            match entry.class.policy() {
                Policy::Plain(_) => status.plain_by_policy.push(plain),
                _ => status.plain_where_sealed_is_due.push(plain),
            }
        }
        Seen::HeaderLost { bytes_behind } => {
            problem(format!("its header is zeros, with {bytes_behind} bytes behind"));
        }
        Seen::BadHeader(what) => problem(what.clone()),
        Seen::Unreadable(why) => problem(format!("not readable: {why}")),
        Seen::Dangling(target) => {
            problem(format!("a link to {}, which is not there", target.display()));
        }
        Seen::Special | Seen::Gone => {}
    }
}

fn seal_of(header: &Header) -> String {
    format!("{} {}, generation {}", header.suite, header.layout, header.generation)
}
