//! The providers of the KEK. A URI names a provider: `env:NAME`, `file:PATH`,
//! `command:SHELL COMMAND`, `passphrase:`, `passphrase:fd=N`, `passphrase:command=SHELL COMMAND`,
//! or `NAME:...` for a key store, with which the plugin of this name talks. The keyring stores the
//! URI, never the secret.

mod command;
pub mod conformance;
mod fd;
mod file;
mod passphrase;
mod plugin;
mod process;

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};

use pgseal_core::KeyringId;
use zeroize::Zeroizing;

use crate::argon::{Argon2idParams, CostLimit};
use crate::error::KeyError;
use crate::handover::is_variable_name;
use crate::kek::Kek;
use crate::slot::check_uri_shape;
use crate::wrap;

pub(crate) use command::for_anchor as anchor_command;
pub use fd::kek_from_fd;
pub use passphrase::PassphraseSource;
pub use plugin::{PROVIDER_WAIT, PROVIDERS_DIR, Patience, Plugin, directory, installed};

/// The longest key text or passphrase that any provider may give, in bytes.
pub(crate) const MAX_TEXT_LEN: usize = 4096;

/// A provider of the KEK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Provider {
    /// `env:NAME`: the text of a key in an environment variable.
    Env(String),
    /// `file:PATH`: the text of a key in a file that only its owner can read.
    File(PathBuf),
    /// `command:...`: the text of a key on the standard output of `/bin/sh -c ...`.
    Command(String),
    /// `passphrase:...`: a passphrase, from which Argon2id derives the key.
    Passphrase(PassphraseSource),
    /// `NAME:...`: a key store, which wraps and unwraps the key.
    Plugin(Plugin),
}

impl Provider {
    /// Parses a URI in the form in which a keyring stores it: paths are absolute.
    ///
    /// # Errors
    /// [`KeyError::BadUri`].
    pub fn parse(uri: &str) -> Result<Provider, KeyError> {
        check_uri_shape(uri).map_err(|what| bad_uri(uri, format!("{what}; {FORMS}")))?;
        let bad = |reason: &str| bad_uri(uri, reason);
        match uri.split_once(':') {
            Some(("env", name)) if is_variable_name(name) => Ok(Provider::Env(name.to_owned())),
            Some(("env", _)) => Err(bad("env: wants the name of an environment variable")),
            Some(("file", path)) if Path::new(path).is_absolute() => {
                Ok(Provider::File(PathBuf::from(path)))
            }
            Some(("file", _)) => Err(bad("file: wants an absolute path")),
            Some(("command", text)) if !text.trim().is_empty() => {
                Ok(Provider::Command(text.to_owned()))
            }
            Some(("command", _)) => Err(bad("command: wants a shell command")),
            Some(("passphrase", rest)) => {
                PassphraseSource::parse(rest).map(Provider::Passphrase).map_err(bad)
            }
            // A key that was typed behind a name must not be stored.
            Some((_, rest)) if could_be_key(rest) => Err(bad(FORMS)),
            _ => Plugin::parse(uri).map(Provider::Plugin).ok_or_else(|| bad(FORMS)),
        }
    }

    /// Parses a URI that a person typed: as [`Provider::parse`], but a relative path after `file:`
    /// starts at the current directory. [`Provider::to_string`] gives the absolute path to store.
    ///
    /// # Errors
    /// [`KeyError::BadUri`].
    pub fn parse_typed(text: &str) -> Result<Provider, KeyError> {
        let absolute = text
            .strip_prefix("file:")
            .filter(|path| !path.is_empty())
            .and_then(|path| std::path::absolute(path).ok());
        match absolute.as_deref().map(Path::to_str) {
            Some(Some(path)) => Provider::parse(&format!("file:{path}")),
            Some(None) => Err(bad_uri(text, "the current directory is not UTF-8")),
            None if looks_like_path(text) => {
                Err(bad_uri(text, format!("did you mean file:{text}? {FORMS}")))
            }
            None => Provider::parse(text),
        }
    }

    /// Whether the KEK is derived from a passphrase.
    #[must_use]
    pub fn is_passphrase(&self) -> bool {
        matches!(self, Provider::Passphrase(_))
    }

    /// Whether the key has to come from a person, on the terminal or through an inherited
    /// descriptor. A program must not ask such a provider on its own initiative: it would wait for
    /// ever, or read input that is meant for another program.
    #[must_use]
    pub fn needs_person(&self) -> bool {
        matches!(self, Provider::Passphrase(source) if source.needs_person())
    }

    /// Whether the provider gives the key itself: no passphrase, and nothing that a store unwraps.
    pub(crate) fn is_raw(&self) -> bool {
        matches!(self, Provider::Env(_) | Provider::File(_) | Provider::Command(_))
    }

    /// The environment variable that holds the key.
    #[must_use]
    pub fn variable(&self) -> Option<&str> {
        match self {
            Provider::Env(name) => Some(name),
            _ => None,
        }
    }

    /// The URI for messages, without anything that could be a secret: the arguments of a command,
    /// or a key or passphrase that somebody typed where the URI belongs.
    #[must_use]
    pub fn shown(uri: &str) -> String {
        let Some((scheme, rest)) = uri.split_once(':') else {
            return "...".to_owned();
        };
        let first_word = |text: &str| {
            let mut words = text.split_whitespace();
            let first = words.next().unwrap_or("").to_owned();
            if words.next().is_some() { first + " ..." } else { first }
        };
        match scheme {
            "env" | "file" if !could_be_key(rest) => uri.to_owned(),
            "command" if !could_be_key(rest) => format!("command:{}", first_word(rest)),
            "passphrase" => match PassphraseSource::parse(rest) {
                Ok(PassphraseSource::Command(text)) if !could_be_key(&text) => {
                    format!("passphrase:command={}", first_word(&text))
                }
                Ok(PassphraseSource::Prompt | PassphraseSource::Fd(_)) => uri.to_owned(),
                _ => "passphrase:...".to_owned(),
            },
            "env" | "file" | "command" => format!("{scheme}:..."),
            _ if pgseal_plugin::is_name(scheme) && !rest.contains(char::is_control) => {
                plugin::shown(uri, could_be_key)
            }
            _ if scheme.len() <= 16 && !scheme.contains(char::is_control) => {
                format!("{scheme}:...")
            }
            _ => "...".to_owned(),
        }
    }

    /// The KEK for a new keyring. A passphrase gets new Argon2id parameters, and a terminal asks
    /// for it twice. A key store wraps a new random KEK, and the keyring gets the identity that
    /// this wrapped copy is bound to.
    ///
    /// # Errors
    /// [`KeyError`] of the provider.
    pub fn kek_for_new(&self) -> Result<Kek, KeyError> {
        match self {
            Provider::Plugin(plugin) => {
                let mut id = [0; 16];
                wrap::random(&mut id)?;
                plugin.new_kek(KeyringId(id))
            }
            _ => self.new_kek(),
        }
    }

    /// As [`Provider::kek_for_new`], for a keyring with this identity that gets a new KEK.
    ///
    /// # Errors
    /// [`KeyError`] of the provider.
    pub fn kek_for_keyring(&self, id: KeyringId) -> Result<Kek, KeyError> {
        match self {
            Provider::Plugin(plugin) => plugin.new_kek(id),
            _ => self.new_kek(),
        }
    }

    /// The key that opens an escrow copy. A key store cannot give one: a copy has no place for what
    /// the store wraps, and has to open when the store is gone.
    ///
    /// # Errors
    /// [`KeyError::BadUri`] for a key store; [`KeyError`] of the provider.
    pub fn kek_for_escrow(&self) -> Result<Kek, KeyError> {
        self.new_kek()
    }

    fn new_kek(&self) -> Result<Kek, KeyError> {
        match self {
            Provider::Passphrase(source) => {
                let passphrase = source.read(true)?;
                Argon2idParams::generate()?.derive(&passphrase)
            }
            _ => self.raw_key(),
        }
    }

    /// The key store, if the provider is one.
    #[must_use]
    pub fn plugin(&self) -> Option<&Plugin> {
        match self {
            Provider::Plugin(plugin) => Some(plugin),
            _ => None,
        }
    }

    /// The KEK of an existing keyring; `params` are those that the keyring holds. A key store gives
    /// its KEK to [`Source::kek`](crate::Source::kek) only, which knows the whole keyring.
    ///
    /// # Errors
    /// [`KeyError`] of the provider. [`KeyError::Costly`] comes before the passphrase is asked for.
    pub fn kek(&self, params: Option<&Argon2idParams>) -> Result<Kek, KeyError> {
        self.kek_within(params, CostLimit::Sensible, Path::new("keyring"))
    }

    /// As [`Provider::kek`], with a chosen limit on the cost of a passphrase. `path` is the file
    /// that holds the parameters, for messages.
    ///
    /// # Errors
    /// As [`Provider::kek`].
    pub fn kek_within(
        &self,
        params: Option<&Argon2idParams>,
        limit: CostLimit,
        path: &Path,
    ) -> Result<Kek, KeyError> {
        let params: Vec<_> = params.into_iter().collect();
        self.kek_that_fits(&params, limit, path, |_| true)
    }

    /// As [`Provider::kek_within`], where several sets of parameters may be those of the
    /// passphrase: the first key that `fits`, or the key of the first set if none does.
    pub(crate) fn kek_that_fits(
        &self,
        params: &[&Argon2idParams],
        limit: CostLimit,
        path: &Path,
        fits: impl Fn(&Kek) -> bool,
    ) -> Result<Kek, KeyError> {
        let kek = match (self, params.split_first()) {
            (Provider::Passphrase(source), Some((first, others))) => {
                params.iter().try_for_each(|params| limit.check(params, path))?;
                let passphrase = source.read(false)?;
                let mut found = first.derive(&passphrase)?;
                for params in others {
                    if fits(&found) {
                        break;
                    }
                    let other = params.derive(&passphrase)?;
                    if fits(&other) {
                        found = other;
                    }
                }
                found
            }
            (Provider::Passphrase(_), None) => {
                return Err(KeyError::ProviderFailed {
                    provider: self.to_string(),
                    what: "this keyring is not under a passphrase; use the provider that it names \
                           (pgseal key show), or another one for the same raw key"
                        .to_owned(),
                });
            }
            _ => self.raw_key()?,
        };
        Ok(kek.with_origin(Provider::shown(&self.to_string())))
    }

    /// Whether a keyring that no key has authenticated yet may name this provider. Such a provider
    /// runs no command, makes no connection, and reads only a variable, a key file or the terminal.
    #[must_use]
    pub fn is_harmless(&self) -> bool {
        match self {
            Provider::Env(_)
            | Provider::File(_)
            | Provider::Passphrase(PassphraseSource::Prompt) => true,
            Provider::Command(_)
            | Provider::Passphrase(PassphraseSource::Fd(_) | PassphraseSource::Command(_))
            | Provider::Plugin(_) => false,
        }
    }

    /// The form of this provider's URI (`file:PATH`), without the values in it.
    pub(crate) fn form(&self) -> &'static str {
        match self {
            Provider::Env(_) => "env:NAME",
            Provider::File(_) => "file:PATH",
            Provider::Command(_) => "command:SHELL COMMAND",
            Provider::Passphrase(PassphraseSource::Prompt) => "passphrase:",
            Provider::Passphrase(PassphraseSource::Fd(_)) => "passphrase:fd=N",
            Provider::Passphrase(PassphraseSource::Command(_)) => {
                "passphrase:command=SHELL COMMAND"
            }
            Provider::Plugin(_) => "NAME:THE KEY IN ITS STORE",
        }
    }

    fn raw_key(&self) -> Result<Kek, KeyError> {
        let text = match self {
            Provider::Env(name) => from_env(name)?,
            Provider::File(path) => file::read(path)?,
            Provider::Command(text) => {
                command::run(text, &Provider::shown(&self.to_string()), command::TIMEOUT)?
            }
            Provider::Passphrase(_) => return Err(KeyError::Internal("a passphrase as a key")),
            Provider::Plugin(plugin) => {
                return Err(bad_uri(
                    plugin.uri(),
                    "a key store wraps the keys of keyrings only; here give env:NAME, file:PATH or \
                     command:SHELL COMMAND",
                ));
            }
        };
        Kek::from_text(&text, &Provider::shown(&self.to_string()))
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Provider::Env(name) => write!(f, "env:{name}"),
            Provider::File(path) => write!(f, "file:{}", path.display()),
            Provider::Command(text) => write!(f, "command:{text}"),
            Provider::Passphrase(source) => write!(f, "passphrase:{source}"),
            Provider::Plugin(plugin) => f.write_str(plugin.uri()),
        }
    }
}

const FORMS: &str = "give env:NAME, file:PATH, command:SHELL COMMAND, passphrase:, \
                     passphrase:fd=N, passphrase:command=SHELL COMMAND, or NAME:... of a plugin";

/// Whether somebody typed the path of a key file without `file:` before it. A key itself never
/// counts as one: the message shows a path.
fn looks_like_path(text: &str) -> bool {
    let begins = ["/", "./", "../", "~/"].iter().any(|begin| text.starts_with(begin));
    let is_key = Kek::from_text(text.as_bytes(), "").is_ok();
    !is_key && !text.contains(char::is_control) && (begins || Path::new(text).is_file())
}

/// The error for `uri`, without anything in it that could be a secret.
pub(crate) fn bad_uri(uri: &str, reason: impl Into<String>) -> KeyError {
    KeyError::BadUri { uri: Provider::shown(uri), reason: reason.into() }
}

/// Whether somebody may have typed a key here.
fn could_be_key(text: &str) -> bool {
    Kek::from_text(text.as_bytes(), "").is_ok()
}

fn from_env(name: &str) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let shown = Provider::shown(&format!("env:{name}"));
    let missing = |what: &str| KeyError::Missing {
        what: format!("{shown}: the environment variable is {what}"),
        remedy: "set and export it, or name another provider".to_owned(),
    };
    let value = env::var_os(name).ok_or_else(|| missing("not set"))?;
    let value = Zeroizing::new(value.into_encoded_bytes());
    if value.trim_ascii().is_empty() {
        return Err(missing("empty"));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_round_trip() {
        for uri in [
            "env:PGSEAL_KEY",
            "file:/etc/pgseal/kek",
            "command:vault kv get -field=key secret/pg",
            "passphrase:",
            "passphrase:fd=7",
            "passphrase:command=systemd-ask-password pgseal",
            "vault:transit/pg",
            "pkcs11:token=a;object=b?module-path=/usr/lib/m.so&pin-source=/etc/pin",
        ] {
            assert_eq!(Provider::parse(uri).unwrap().to_string(), uri);
        }
    }

    #[test]
    fn a_path_without_file_is_asked_about() {
        for path in ["/etc/pgseal/main.key", "./main.key", "Cargo.toml"] {
            let error = Provider::parse_typed(path).unwrap_err().to_string();
            assert!(error.contains(&format!("did you mean file:{path}?")), "{error}");
        }
        // A keyring stores what is complete; a key typed in the wrong place is never shown.
        assert!(!Provider::parse("/etc/key").unwrap_err().to_string().contains("did you mean"));
        let key = "ab".repeat(32);
        assert!(!Provider::parse_typed(&key).unwrap_err().to_string().contains(&key));
    }

    #[test]
    fn bad_uris_are_refused() {
        for uri in [
            "",
            "env:",
            "env:1A",
            "env:A-B",
            "env:A=B",
            "file:",
            "file:relative",
            "command:",
            "command:  ",
            "passphrase:x",
            "passphrase:fd=",
            "passphrase:fd=-1",
            "passphrase:fd=+1",
            "passphrase:command=",
            "vault:",
            "Vault:x",
            "../x:y",
            "PGSEAL_KEY",
            "env:A\nB",
            "command:a\nb",
        ] {
            let err = Provider::parse(uri).unwrap_err();
            assert!(matches!(err, KeyError::BadUri { .. }), "{uri}: {err}");
            assert_eq!(err.exit_code(), 2);
        }
        assert!(Provider::parse(&format!("command:{}", "x".repeat(5000))).is_err());
    }

    #[test]
    fn a_person_is_needed_for_a_passphrase_that_no_command_prints() {
        for (uri, needed) in [
            ("passphrase:", true),
            ("passphrase:fd=7", true),
            ("passphrase:command=echo x", false),
            ("command:passphrase:", false),
            ("env:PASSPHRASE", false),
            ("file:/passphrase:", false),
        ] {
            assert_eq!(Provider::parse(uri).unwrap().needs_person(), needed, "{uri}");
        }
    }

    #[test]
    fn a_typed_path_becomes_absolute() {
        let typed = Provider::parse_typed("file:some/key").unwrap();
        let expected = env::current_dir().unwrap().join("some/key");
        assert_eq!(typed, Provider::File(expected));
        assert!(Provider::parse_typed("file:").is_err());
    }

    #[test]
    fn a_secret_typed_as_a_uri_is_not_shown() {
        let hex = "deadbeef".repeat(8);
        for text in [
            hex.clone(),
            format!("env:{hex}"),
            format!("file:{hex}"),
            format!("raw:{hex}"),
            format!("vault:transit/{hex}"),
            format!("pkcs11:token=a?pin-value={hex}"),
            format!("{hex}:"),
            format!("passphrase:{hex}"),
            format!("passphrase:command={hex}"),
            format!("command:{hex}"),
            format!("command:echo {hex}"),
        ] {
            assert!(!Provider::shown(&text).contains(&hex), "{text}");
            if let Err(err) = Provider::parse(&text) {
                assert!(!err.to_string().contains(&hex) && !format!("{err:?}").contains(&hex));
            }
        }
    }
}
