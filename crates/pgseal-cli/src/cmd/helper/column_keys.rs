//! `pgseal helper column-keys`, for the extension `pgseal`: reads wrapped keys of columns from
//! standard input and writes the keys to standard output. The protocol is in docs/reference.md.

use std::io::{self, Read};
use std::path::Path;

use pgseal_column::{ColumnError, Domain, KEY_BYTES, Kek, WRAPPED_BYTES};
use pgseal_keys::{Clusters, KeyError, Keyring, Provider, Source};
use zeroize::Zeroizing;

use crate::error::CliError;
use crate::{audit, environment, keys};

/// The most keys of one call.
const MAX_KEYS: usize = 65536;
const BEGIN: &[u8; 8] = b"PGSCOLK1";
const END: &[u8; 4] = b"ENDK";
/// Domain id (u64) and key version (u32), little endian.
const NAME_BYTES: usize = 12;

/// What to do with the keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Task {
    /// Wrapped keys in, keys out
    Unwrap,
    /// New keys, wrapped
    WrapNew,
    /// Wrapped keys in, the same under the key of --to out
    Rewrap,
}

impl Task {
    fn name(self) -> &'static str {
        match self {
            Task::Unwrap => "unwrap",
            Task::WrapNew => "wrap-new",
            Task::Rewrap => "rewrap",
        }
    }

    /// The length of a record of the request, in bytes.
    fn record_len(self) -> usize {
        match self {
            Task::WrapNew => NAME_BYTES,
            Task::Unwrap | Task::Rewrap => NAME_BYTES + WRAPPED_BYTES,
        }
    }
}

/// Reads the request and writes the answer.
///
/// # Errors
/// Errors of the provider, of the request and of the wrapped keys.
pub fn run(
    task: Task,
    provider: &str,
    to: Option<&str>,
    datadir: Option<&Path>,
) -> Result<(), CliError> {
    let request = read_request()?;
    match provider.strip_prefix(KEYRING) {
        Some(path) => audit::using_at(Path::new(path)),
        None => audit::asking(provider),
    }
    if let Some(datadir) = datadir {
        audit::for_datadir(datadir);
    }
    let from = Keks::of(provider, datadir)?;
    let to = match (task, to) {
        (Task::Rewrap, Some(uri)) => Some(Keks::of(uri, datadir)?),
        (Task::Rewrap, None) => return Err(usage("rewrap needs --to")),
        _ => None,
    };
    let answer = answer(task, &from, to.as_ref(), &request)?;
    let record_len = task.record_len();
    audit::detail(format!("{}: {} column keys", task.name(), request.len() / record_len));
    audit::handing_out()?;
    Ok(crate::out::secret(&answer)?)
}

/// The answer to a request, with its frame.
fn answer(
    task: Task,
    from: &Keks,
    to: Option<&Keks>,
    request: &[u8],
) -> Result<Zeroizing<Vec<u8>>, CliError> {
    let record_len = task.record_len();
    let answer_len = if task == Task::Unwrap { KEY_BYTES } else { WRAPPED_BYTES };
    let count = request.len() / record_len;
    if !request.len().is_multiple_of(record_len) || count > MAX_KEYS {
        return Err(usage("the request is no list of column keys"));
    }
    // The whole capacity at once: a reallocation would leave copies of keys in memory.
    let mut answer =
        Zeroizing::new(Vec::with_capacity(BEGIN.len() + count * answer_len + END.len()));
    answer.extend_from_slice(BEGIN);
    for record in request.chunks_exact(record_len) {
        let (domain, version, wrapped) = parse(record)?;
        let named = |error| refused(error, domain, version);
        match (task, to) {
            (Task::Unwrap, _) => {
                let open = |kek: &Kek| kek.unwrap(domain, version, wrapped);
                let key = from.first_that_opens(open).map_err(named)?;
                answer.extend_from_slice(&*key);
            }
            (Task::WrapNew, _) => {
                answer.extend_from_slice(&from.newest.wrap_new(domain, version).map_err(named)?);
            }
            (Task::Rewrap, Some(to)) => {
                let open = |kek: &Kek| to.newest.rewrap(kek, domain, version, wrapped);
                let rewrapped = from.first_that_opens(open).map_err(named)?;
                answer.extend_from_slice(&rewrapped);
            }
            (Task::Rewrap, None) => return Err(usage("rewrap needs --to")),
        }
    }
    answer.extend_from_slice(END);
    Ok(answer)
}

/// The variable with a provider that may run commands or connect; others need no permission.
const ALLOWED: &str = "PGSEAL_COLUMN_PROVIDER";

/// `pgseal.provider` is a setting, and an attacker may be able to write the configuration: a
/// command is run only if the server's environment names it, too.
fn expect_allowed(provider: &Provider, allowed: Option<&str>) -> Result<(), CliError> {
    let is_same = |uri| Provider::parse(uri).is_ok_and(|allowed| allowed == *provider);
    if provider.is_harmless() || allowed.is_some_and(is_same) {
        return Ok(());
    }
    Err(CliError::Key(KeyError::ProviderFailed {
        provider: Provider::shown(&provider.to_string()),
        what: format!(
            "a setting names it, which whoever writes the data directory may have changed, and it \
             runs a command; if it is right, put {ALLOWED} with the same value into the server's \
             environment"
        ),
    }))
}

/// What begins the URI of a keyring.
const KEYRING: &str = "keyring:";

/// The keys of a provider that wrap column keys.
struct Keks {
    /// The key that wraps.
    newest: Kek,
    /// Keys that also open what was wrapped before: those of the older data keys of a keyring.
    older: Vec<Kek>,
}

impl Keks {
    /// Asks the provider of this URI. `datadir`: the data directory of the server that asks.
    fn of(uri: &str, datadir: Option<&Path>) -> Result<Keks, CliError> {
        match uri.strip_prefix(KEYRING) {
            Some(path) => Keks::of_keyring(Path::new(path), datadir),
            None => Ok(Keks { newest: kek(uri)?, older: Vec::new() }),
        }
    }

    /// Opens a keyring outside of the data directory. A setting names it, so it counts only if a
    /// file in `/etc/pgseal/clusters.d` says where its key comes from.
    fn of_keyring(path: &Path, datadir: Option<&Path>) -> Result<Keks, CliError> {
        if datadir.is_none() {
            return Err(usage("a keyring needs --dir, the data directory that it must not lie in"));
        }
        if !path.is_absolute() {
            return Err(CliError::Usage(
                "pgseal.provider: keyring: wants an absolute path".to_owned(),
            ));
        }
        let keyring = Keyring::load_outside(path, datadir)?;
        audit::using(&keyring);
        let source = Source::registered(&keyring, &Clusters::from_environment(), datadir)?;
        // A session waits, so a store that is away is asked once: the client may come again.
        let key = source.kek_at_once(&keyring, keys::cost_limit())?;
        audit::opened(&keyring, &key)?;
        let all = pgseal_keys::column_keks(&keyring.unlock(&key)?)?;
        let mut all = all.iter().map(|bytes| Kek::new(&bytes[..]));
        let newest = all.next().unwrap_or(Err(ColumnError::KeyLength)).map_err(unusable)?;
        Ok(Keks { newest, older: all.collect::<Result<_, _>>().map_err(unusable)? })
    }

    /// What `open` makes with the first of the keys that is not the wrong one.
    fn first_that_opens<T>(
        &self,
        open: impl Fn(&Kek) -> Result<T, ColumnError>,
    ) -> Result<T, ColumnError> {
        let mut result = open(&self.newest);
        for kek in &self.older {
            if !matches!(result, Err(ColumnError::WrongKek)) {
                break;
            }
            result = open(kek);
        }
        result
    }
}

fn unusable(error: ColumnError) -> CliError {
    CliError::Usage(error.to_string())
}

fn kek(uri: &str) -> Result<Kek, CliError> {
    let provider = Provider::parse(uri)?;
    if provider.is_passphrase() {
        return Err(CliError::Key(KeyError::ProviderFailed {
            provider: "passphrase:".to_owned(),
            what: "pgseal.provider takes no passphrase; make a key domain with the protection \
                   'passphrase' instead, and give it per connection"
                .to_owned(),
        }));
    }
    if provider.plugin().is_some() {
        return Err(CliError::Key(KeyError::ProviderFailed {
            provider: Provider::shown(uri),
            what: "a key store wraps the keys of keyrings only: make a keyring under it with \
                   pgseal key new-keyring FILE -K URI, and set pgseal.provider to keyring:FILE"
                .to_owned(),
        }));
    }
    expect_allowed(&provider, environment::variable(ALLOWED)?.as_deref())?;
    let kek = provider.kek(None)?;
    Kek::new(kek.expose()).map_err(unusable)
}

fn read_request() -> Result<Vec<u8>, CliError> {
    let limit = (MAX_KEYS + 1) * (NAME_BYTES + WRAPPED_BYTES);
    let mut request = Vec::new();
    io::stdin()
        .lock()
        .take(limit as u64)
        .read_to_end(&mut request)
        .map_err(|error| usage(&format!("standard input: {error}")))?;
    Ok(request)
}

fn parse(record: &[u8]) -> Result<(Domain, u32, &[u8]), CliError> {
    let short = || usage("a record is too short");
    let (domain, rest) = record.split_first_chunk::<8>().ok_or_else(short)?;
    let (version, wrapped) = rest.split_first_chunk::<4>().ok_or_else(short)?;
    Ok((Domain(u64::from_le_bytes(*domain)), u32::from_le_bytes(*version), wrapped))
}

fn usage(what: &str) -> CliError {
    CliError::Usage(format!("{what}; this command is for the extension pgseal only"))
}

fn refused(error: ColumnError, domain: Domain, version: u32) -> CliError {
    CliError::Usage(format!(
        "column key {version} of key domain {:016x}: {error}; check pgseal.provider",
        domain.0
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(domain: u64, version: u32, wrapped: &[u8]) -> Vec<u8> {
        [&domain.to_le_bytes()[..], &version.to_le_bytes(), wrapped].concat()
    }

    fn only(byte: u8) -> Keks {
        Keks { newest: Kek::new(&[byte; 32]).unwrap(), older: Vec::new() }
    }

    #[test]
    fn what_an_older_data_key_wrapped_opens_and_moves_to_the_newest() {
        let made = answer(Task::WrapNew, &only(1), None, &record(7, 3, &[])).unwrap();
        let wrapped = body(&made);
        let key = answer(Task::Unwrap, &only(1), None, &record(7, 3, wrapped)).unwrap();
        let keks = || {
            let [newest, older, oldest] = [3, 2, 1].map(|byte| Kek::new(&[byte; 32]).unwrap());
            Keks { newest, older: vec![older, oldest] }
        };
        let opened = answer(Task::Unwrap, &keks(), None, &record(7, 3, wrapped)).unwrap();
        assert_eq!(opened, key);
        let moved = answer(Task::Rewrap, &keks(), Some(&keks()), &record(7, 3, wrapped)).unwrap();
        let again = answer(Task::Unwrap, &only(3), None, &record(7, 3, body(&moved))).unwrap();
        assert_eq!(again, key);
        // Damage is reported as that, and not as a wrong key of the last one that was tried.
        let mut damaged = wrapped.to_vec();
        damaged[60] ^= 1;
        let error = answer(Task::Unwrap, &keks(), None, &record(7, 3, &damaged)).unwrap_err();
        let one = answer(Task::Unwrap, &only(1), None, &record(7, 3, &damaged)).unwrap_err();
        assert_eq!(error.to_string(), one.to_string());
    }

    fn body(answer: &[u8]) -> &[u8] {
        assert_eq!(&answer[..8], BEGIN);
        assert_eq!(&answer[answer.len() - 4..], END);
        &answer[8..answer.len() - 4]
    }

    #[test]
    fn a_key_survives_wrapping_and_rewrapping() {
        let [old, new] = [1, 2].map(only);
        let made = answer(Task::WrapNew, &old, None, &record(7, 3, &[])).unwrap();
        let wrapped = body(&made);
        let key = answer(Task::Unwrap, &old, None, &record(7, 3, wrapped)).unwrap();
        let moved = answer(Task::Rewrap, &old, Some(&new), &record(7, 3, wrapped)).unwrap();
        assert_ne!(body(&moved), wrapped);
        let again = answer(Task::Unwrap, &new, None, &record(7, 3, body(&moved))).unwrap();
        assert_eq!(body(&key), body(&again));
        assert_eq!(body(&key).len(), KEY_BYTES);
    }

    #[test]
    fn a_command_is_run_only_if_the_environment_names_it() {
        let provider = |uri: &str| Provider::parse(uri).unwrap();
        let is_allowed =
            |uri: &str, allowed: Option<&str>| expect_allowed(&provider(uri), allowed).is_ok();
        assert!(is_allowed("file:/etc/columns.key", None) && is_allowed("env:A", None));
        assert!(!is_allowed("command:fetch a", None));
        assert!(!is_allowed("command:fetch a", Some("command:fetch b")));
        assert!(!is_allowed("command:fetch a", Some("file:/x")));
        assert!(is_allowed("command:fetch a", Some("command:fetch a")));
        let error = expect_allowed(&provider("command:fetch a"), None).unwrap_err().to_string();
        assert!(error.contains(ALLOWED) && !error.contains("fetch a"), "{error}");
    }

    #[test]
    fn wrong_keys_and_bad_requests_are_errors() {
        let [kek, other] = [1, 2].map(only);
        let made = answer(Task::WrapNew, &kek, None, &record(7, 3, &[])).unwrap();
        let wrapped = body(&made);
        for (kek, request) in [
            (&other, record(7, 3, wrapped)),
            (&kek, record(8, 3, wrapped)),
            (&kek, record(7, 4, wrapped)),
            (&kek, record(7, 3, &wrapped[1..])),
        ] {
            assert!(answer(Task::Unwrap, kek, None, &request).is_err());
        }
    }
}
