//! Which of the keys that open a keyring do so now: its own, and that of each recipient.

use std::io::{self, Write};

use pgseal_keys::{Attempt, Kek, KeyError, Keyring, Provider, Source, kind_of};
use serde::Serialize;

use crate::out::Out;

/// What came of asking for one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It opens the keyring.
    Opens,
    /// Its store cannot be reached.
    Away,
    /// There is a key, but not the right one.
    WrongKey,
    /// Its source holds no key.
    NoKey,
    /// Its source fails in another way.
    Failed,
    /// It was not asked for, for the reason in `text`.
    NotAsked,
}

impl State {
    fn of(error: &KeyError) -> State {
        match error {
            KeyError::StoreDown { .. } => State::Away,
            KeyError::Wrong { .. } => State::WrongKey,
            KeyError::Missing { .. } => State::NoKey,
            _ => State::Failed,
        }
    }

    fn shown(self) -> &'static str {
        match self {
            State::Opens => "opens",
            State::Away => "STORE AWAY",
            State::WrongKey => "WRONG KEY",
            State::NoKey => "NO KEY",
            State::Failed => "FAILED",
            State::NotAsked => "not asked",
        }
    }
}

/// One key that opens the keyring.
#[derive(Debug, Serialize)]
pub struct KeyRow {
    /// The name of the recipient; `None`: the keyring's own key.
    pub name: Option<String>,
    /// The provider that the keyring names for it, without secrets.
    pub provider: String,
    /// Whether it opens the keyring now.
    pub state: State,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(skip)]
    exit_code: Option<u8>,
}

/// A source that is asked at a start, and gives no key of this keyring.
#[derive(Debug, Serialize)]
pub struct StrayRow {
    /// Its URI, without secrets.
    pub provider: String,
    /// What came of asking it.
    pub state: State,
    /// In words.
    pub text: String,
}

/// The keys and sources of a keyring.
#[derive(Debug, Default, Serialize)]
pub struct Sources {
    /// The keyring's own key, and those of the recipients.
    pub keys: Vec<KeyRow>,
    /// Sources that open nothing.
    pub strays: Vec<StrayRow>,
}

/// The rows, from what came of trying. `kek`: the key that opened the keyring at last.
pub fn rows(
    keyring: &Keyring,
    source: &Source,
    attempts: &[Attempt],
    kek: Option<&Kek>,
) -> Sources {
    let summary = keyring.summary();
    let names = summary.recipients.into_iter().map(|recipient| Some(recipient.name));
    let uris = keyring.provider_uris();
    let opened = kek.map(|kek| keyring.slots_opened_by(kek)).unwrap_or_default();
    let slots = [None].into_iter().chain(names).zip(&uris).enumerate();
    let keys = slots.map(|(at, (name, uri))| {
        let is_open =
            opened.contains(&at) || attempts.iter().any(|one| one.slot == at && one.result.is_ok());
        let (state, text, exit_code) = match failure(at, uri, attempts) {
            _ if is_open => (State::Opens, None, None),
            Some(error) => (State::of(error), Some(error.to_string()), Some(error.exit_code())),
            None => (State::NotAsked, Some(why_not_asked(uri, source).to_owned()), None),
        };
        KeyRow { name, provider: Provider::shown(uri), state, text, exit_code }
    });
    let strays = source.providers().iter().filter_map(|provider| {
        let uri = provider.to_string();
        let mut of_it = attempts.iter().filter(|one| one.provider == *provider).peekable();
        if uris.contains(&uri) || of_it.peek().is_none() {
            return None;
        }
        let errors: Option<Vec<&KeyError>> = of_it.map(|one| one.result.as_ref().err()).collect();
        let first = errors?.into_iter().next()?;
        let (state, text) = (State::of(first), first.to_string());
        Some(StrayRow { provider: Provider::shown(&uri), state, text })
    });
    Sources { keys: keys.collect(), strays: strays.collect() }
}

/// Why asking for the key of this slot failed: the answer of the provider that it names, else that
/// of a store of its kind.
fn failure<'a>(at: usize, uri: &str, attempts: &'a [Attempt]) -> Option<&'a KeyError> {
    let failed = |is_it: &dyn Fn(&Attempt) -> bool| {
        let mut found = attempts.iter().filter(|one| is_it(one));
        found.find_map(|one| one.result.as_ref().err())
    };
    failed(&|one| one.slot == at && one.is_named)
        .or_else(|| failed(&|one| one.provider.to_string() == uri))
        .or_else(|| failed(&|one| one.slot == at && one.provider.plugin().is_some()))
}

fn why_not_asked(uri: &str, source: &Source) -> &'static str {
    let is_typed = source
        .providers()
        .iter()
        .any(|one| one.needs_person() && kind_of(uri) == kind_of(&one.to_string()));
    match source {
        _ if is_typed => "a person gives it",
        Source::Descriptor(_) => "the key came from PGSEAL_KEK_FD",
        Source::Providers(_) => "a start does not ask its source; try it with -K",
    }
}

impl Sources {
    /// The one source of the one key was asked; with this error, it does not open the keyring.
    pub fn only(&mut self, error: Option<&KeyError>) {
        if let (Some(row), Some(error)) = (self.keys.first_mut(), error) {
            row.state = State::of(error);
            row.text = Some(error.to_string());
            row.exit_code = Some(error.exit_code());
        }
    }

    /// The exit code of the first key that was asked for and does not open the keyring.
    pub fn failure(&self) -> Option<u8> {
        self.keys.iter().find_map(|row| row.exit_code)
    }

    /// Prints one line for each key and source, if there is more than the keyring's own.
    pub fn print(&self, out: &mut Out) -> io::Result<()> {
        if self.keys.len() > 1 {
            for row in &self.keys {
                let who = match &row.name {
                    None => "its own".to_owned(),
                    Some(name) => format!("of recipient {name}"),
                };
                let why = row.text.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
                let (provider, state) = (&row.provider, row.state.shown());
                writeln!(out, "Key       {who}, {provider}: {state}{why}")?;
            }
        }
        // If nothing opens the keyring, the error names them.
        let is_open = self.keys.iter().any(|row| row.state == State::Opens);
        for StrayRow { provider, state, text } in self.strays.iter().filter(|_| is_open) {
            writeln!(out, "Source    {provider}: {}: {text}", state.shown())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use pgseal_core::Suite;

    use super::*;

    fn kek(byte: u8) -> Kek {
        Kek::init_with(|key| {
            key.fill(byte);
            Ok::<(), ()>(())
        })
        .unwrap()
    }

    fn ring() -> Keyring {
        let mut ring = Keyring::create(Suite::Aes256Gcm, "file:/main", &kek(1)).unwrap();
        ring.add_recipient(&kek(1), "store", &kek(2), "command:get").unwrap();
        ring.add_recipient(&kek(1), "offline", &kek(3), "file:/offline").unwrap();
        ring
    }

    fn attempt(uri: &str, slot: usize, named: bool, result: Result<Kek, KeyError>) -> Attempt {
        Attempt { provider: Provider::parse(uri).unwrap(), slot, is_named: named, result }
    }

    fn away() -> KeyError {
        KeyError::StoreDown { provider: "command:get".to_owned(), what: "no route".to_owned() }
    }

    fn missing(what: &str) -> KeyError {
        KeyError::Missing { what: what.to_owned(), remedy: String::new() }
    }

    #[test]
    fn each_key_has_a_state_and_a_source_that_opens_nothing_is_named() {
        let uris = ["file:/main", "command:get", "file:/stray"];
        let source = Source::Providers(uris.map(|uri| Provider::parse(uri).unwrap()).to_vec());
        let attempts = [
            attempt(uris[0], 0, true, Ok(kek(1))),
            // A raw key is tried with every slot; what others say of it is no news of them.
            attempt(uris[0], 2, false, Err(missing("no key of that slot"))),
            attempt(uris[1], 1, true, Err(away())),
            attempt(uris[2], 0, false, Err(missing("/stray"))),
        ];
        let found = rows(&ring(), &source, &attempts, Some(&kek(1)));
        let states: Vec<State> = found.keys.iter().map(|row| row.state).collect();
        assert_eq!(states, [State::Opens, State::Away, State::NotAsked]);
        assert_eq!(found.failure(), Some(13));
        let strays: Vec<(&str, State)> =
            found.strays.iter().map(|row| (row.provider.as_str(), row.state)).collect();
        assert_eq!(strays, [("file:/stray", State::NoKey)]);
    }

    #[test]
    fn a_person_is_not_asked_and_no_failure() {
        let source = Source::from(Provider::parse("passphrase:").unwrap());
        let mut ring = ring();
        ring.remove_recipient(&kek(1), "store").unwrap();
        let found = rows(&ring, &source, &[], Some(&kek(3)));
        let states: Vec<State> = found.keys.iter().map(|row| row.state).collect();
        assert_eq!(states, [State::NotAsked, State::Opens]);
        assert_eq!(found.failure(), None);
    }

    #[test]
    fn the_error_of_the_only_source_is_that_of_the_key() {
        let ring = Keyring::create(Suite::Aes256Gcm, "file:/main", &kek(1)).unwrap();
        let source = Source::from(Provider::parse("file:/main").unwrap());
        let mut found = rows(&ring, &source, &[], None);
        found.only(Some(&missing("/main")));
        let first = found.keys.first().unwrap();
        assert_eq!((first.state, found.failure()), (State::NoKey, Some(10)));
    }
}
