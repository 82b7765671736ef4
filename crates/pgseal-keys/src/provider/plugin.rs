//! Key stores: a URI `NAME:...` names the program `pgseal-provider-NAME`, which speaks the protocol
//! of `spec/provider-plugin.md`. The store wraps the KEK; its own key never leaves it.

mod exchange;
mod locate;
mod patience;

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use pgseal_core::KeyringId;
use pgseal_plugin::{
    Anchor, AnchorState, Description, Done, Failure, Fault, Operation, Secret, Unwrapped,
    WrappedKey, encode_request,
};
use serde::de::DeserializeOwned;

use super::{Provider, bad_uri};
use crate::error::KeyError;
use crate::kek::Kek;
use crate::wrap;
use crate::wrapped_kek::{Locked, StoreCopy, WrappedKek};

pub(super) use exchange::{Broken, exchange};
pub use locate::{PROVIDERS_DIR, directory, installed};
pub use patience::{PROVIDER_WAIT, Patience};

/// The longest part of a plugin's message that is shown, in characters.
const MAX_MESSAGE_LEN: usize = 500;

/// A key store, as the URI of a provider names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugin {
    name: String,
    uri: String,
}

impl Plugin {
    /// A key store from a URI; `None` if no plugin can have the name before the colon.
    pub(super) fn parse(uri: &str) -> Option<Plugin> {
        let (name, rest) = uri.split_once(':')?;
        let is_plugin = pgseal_plugin::is_name(name) && !rest.is_empty();
        is_plugin.then(|| Plugin { name: name.to_owned(), uri: uri.to_owned() })
    }

    /// The name of the plugin.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The whole URI. Use [`Provider::shown`] for messages.
    #[must_use]
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// The program of the plugin, checked: nobody but root and the current user can write it.
    ///
    /// # Errors
    /// [`KeyError::BadUri`] if it is not installed, [`KeyError::Insecure`].
    pub fn program(&self) -> Result<PathBuf, KeyError> {
        locate::program(&self.name, &self.uri, None)
    }

    /// What the plugin says of itself and of its store.
    ///
    /// # Errors
    /// [`KeyError`] by whose fault it is.
    pub fn describe(&self, patience: Patience) -> Result<Description, KeyError> {
        self.ask(&Operation::Describe {}, patience, None)
    }

    /// The anchor of a cluster.
    ///
    /// # Errors
    /// As [`Plugin::describe`].
    pub fn anchor_read(&self, id: KeyringId, patience: Patience) -> Result<AnchorState, KeyError> {
        self.ask(&Operation::AnchorRead { context: id.0 }, patience, None)
    }

    /// Replaces the anchor of a cluster by one with a higher sequence number.
    ///
    /// # Errors
    /// As [`Plugin::describe`].
    pub fn anchor_advance(
        &self,
        id: KeyringId,
        anchor: Anchor,
        patience: Patience,
    ) -> Result<(), KeyError> {
        let operation = Operation::AnchorAdvance { context: id.0, anchor };
        self.ask::<Done>(&operation, patience, None).map(|_| ())
    }

    /// A new random KEK for the keyring with this identity, and its copy that the store wrapped.
    /// The copy is unwrapped once: a store that wraps and cannot unwrap is found now.
    pub(super) fn new_kek(&self, id: KeyringId) -> Result<Kek, KeyError> {
        let patience = Patience::from_environment()?;
        let kek = Kek::init_with(|key| wrap::random(key))?;
        let secret = Secret::init_with(|bytes| {
            bytes.copy_from_slice(kek.expose());
            Ok::<(), KeyError>(())
        })?;
        let operation = Operation::Wrap { context: id.0, secret };
        let answer: WrappedKey = self.ask(&operation, patience, None)?;
        let wrapped_kek = WrappedKek::new(&answer);
        wrapped_kek.check().map_err(|what| self.broken(what))?;
        let again = self.unwrapped(id, &wrapped_kek, patience, None)?;
        if again.expose() != kek.expose() {
            return Err(self.broken("it does not unwrap what it wrapped"));
        }
        Ok(kek.with_store(StoreCopy { keyring_id: id.0, wrapped_kek }))
    }

    /// The KEK of an existing keyring.
    pub(crate) fn kek(&self, keyring: &Locked<'_>, patience: Patience) -> Result<Kek, KeyError> {
        // A mistyped name is no plugin: that error comes first.
        locate::program(&self.name, &self.uri, keyring.datadir)?;
        let Some(wrapped_kek) = keyring.wrapped_kek else {
            return Err(KeyError::ProviderFailed {
                provider: self.shown(),
                what: "this keyring is not under a key store; use the provider that it names \
                       (pgseal key show)"
                    .to_owned(),
            });
        };
        let secret = self.unwrapped(keyring.id, wrapped_kek, patience, Some(keyring))?;
        let kek = Kek::init_with(|key| {
            key.copy_from_slice(secret.expose());
            Ok::<(), KeyError>(())
        })?;
        Ok(kek.with_origin(self.shown()))
    }

    fn unwrapped(
        &self,
        id: KeyringId,
        wrapped_kek: &WrappedKek,
        patience: Patience,
        keyring: Option<&Locked<'_>>,
    ) -> Result<Secret, KeyError> {
        let operation = Operation::Unwrap {
            context: id.0,
            wrapped: wrapped_kek.bytes().map_err(|what| self.broken(what))?,
            key: Cow::Borrowed(&wrapped_kek.key),
        };
        self.ask::<Unwrapped>(&operation, patience, keyring).map(|answer| answer.secret)
    }

    /// Runs the plugin, again and again while the store cannot be reached and patience lasts.
    fn ask<T: DeserializeOwned>(
        &self,
        operation: &Operation<'_>,
        patience: Patience,
        keyring: Option<&Locked<'_>>,
    ) -> Result<T, KeyError> {
        let program =
            locate::program(&self.name, &self.uri, keyring.and_then(|keyring| keyring.datadir))?;
        let line = encode_request(&self.uri, operation).map_err(|what| bad_uri(&self.uri, what))?;
        patience.repeat(&self.shown(), || {
            let answer = match exchange(&program, &line, patience.attempt(), None) {
                Ok(answer) => answer,
                Err(Broken::TooSlow) => {
                    return Err(KeyError::StoreDown {
                        provider: self.shown(),
                        what: format!(
                            "the plugin gave no answer within {} s and was stopped",
                            patience.attempt().as_secs_f32()
                        ),
                    });
                }
                Err(broken) => return Err(self.broken_at(&program, broken.to_string())),
            };
            match pgseal_plugin::decode::<T>(&answer) {
                Ok(Ok(ok)) => Ok(ok),
                Ok(Err(failure)) => Err(self.failed(&program, operation, &failure, keyring)),
                Err(what) => Err(self.broken_at(&program, what)),
            }
        })
    }

    /// The error for what the plugin reports.
    fn failed(
        &self,
        program: &Path,
        operation: &Operation<'_>,
        failure: &Failure<'_>,
        keyring: Option<&Locked<'_>>,
    ) -> KeyError {
        let (provider, what) = (self.shown(), shown_message(&failure.message));
        match (failure.kind, keyring) {
            (Fault::Unavailable, _) => KeyError::StoreDown { provider, what },
            (Fault::Refused, _) => KeyError::StoreRefused { provider, what },
            (Fault::Configuration, _) => KeyError::StoreConfiguration { provider, what },
            (Fault::KeyGone, _) => KeyError::Missing {
                what: format!("{provider}: {what}"),
                remedy: "bring the key back in its store; if it is gone for ever, restore the \
                         keyring from an escrow copy: pgseal key restore"
                    .to_owned(),
            },
            (Fault::Wrong, Some(keyring)) => {
                let provider = format!("{provider} ({what})");
                KeyError::Wrong { path: keyring.path.to_owned(), provider }
            }
            (Fault::Stale, _) => KeyError::ProviderFailed {
                provider,
                what: format!("the store has a newer anchor: {what}"),
            },
            (Fault::Wrong | Fault::Unsupported | Fault::Request, _) => {
                self.broken_at(program, format!("it refuses \"{}\": {what}", operation.name()))
            }
        }
    }

    fn broken(&self, what: &str) -> KeyError {
        match self.program() {
            Ok(program) => self.broken_at(&program, what.to_owned()),
            Err(error) => error,
        }
    }

    fn broken_at(&self, program: &Path, what: String) -> KeyError {
        KeyError::PluginBroken { program: program.to_owned(), what, provider: self.shown() }
    }

    fn shown(&self) -> String {
        Provider::shown(&self.uri)
    }
}

/// The URI of a key store for messages: without a query, in which some schemes put secrets, and
/// with the name only if a part could be a password or a key.
pub(super) fn shown(uri: &str, could_be_key: impl Fn(&str) -> bool) -> String {
    let scheme = uri.split_once(':').map_or("...", |(scheme, _)| scheme);
    let (path, query) = match uri.split_once('?') {
        Some((path, _)) => (path, "?..."),
        None => (uri, ""),
    };
    let is_secret = |text: &str| {
        text.contains('@') || text.split([':', ';', '/', '=', ',', ' ']).any(&could_be_key)
    };
    if is_secret(path) { format!("{scheme}:...") } else { format!("{path}{query}") }
}

/// A message of a plugin: on one line, and not too long.
pub(super) fn shown_message(message: &str) -> String {
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    let text: String = message.trim().chars().take(MAX_MESSAGE_LEN).map(printable).collect();
    if text.is_empty() { "the plugin does not say why".to_owned() } else { text }
}
