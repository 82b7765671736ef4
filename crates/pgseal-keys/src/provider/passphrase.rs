//! `passphrase:...`: from the terminal, a descriptor, or a command.

use std::fmt;

use zeroize::Zeroizing;

use super::{MAX_TEXT_LEN, Provider, command, fd};
use crate::error::KeyError;

/// Where a passphrase is read from. A passphrase is bytes: there is no Unicode normalisation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PassphraseSource {
    /// `passphrase:` asks on the controlling terminal, without echo.
    Prompt,
    /// `passphrase:fd=N` reads the first line from an inherited descriptor.
    Fd(u32),
    /// `passphrase:command=...` reads the first line that `/bin/sh -c ...` prints.
    Command(String),
}

impl PassphraseSource {
    pub(super) fn parse(rest: &str) -> Result<PassphraseSource, &'static str> {
        if rest.is_empty() {
            return Ok(PassphraseSource::Prompt);
        }
        if let Some(number) = rest.strip_prefix("fd=") {
            let digits = number.bytes().all(|byte| byte.is_ascii_digit());
            let fd = number.parse::<u32>().ok().filter(|fd| digits && *fd <= i32::MAX as u32);
            return fd.map(PassphraseSource::Fd).ok_or("passphrase:fd= wants a descriptor number");
        }
        match rest.strip_prefix("command=") {
            Some(text) if !text.trim().is_empty() => Ok(PassphraseSource::Command(text.to_owned())),
            Some(_) => Err("passphrase:command= wants a shell command"),
            None => Err("a passphrase never stands in the URI; \
                         give passphrase:, passphrase:fd=N or passphrase:command=SHELL COMMAND"),
        }
    }

    /// Whether a person types the passphrase, or writes it to a descriptor that can be read once.
    pub(super) fn needs_person(&self) -> bool {
        match self {
            PassphraseSource::Prompt | PassphraseSource::Fd(_) => true,
            PassphraseSource::Command(_) => false,
        }
    }

    /// Reads the passphrase, which must not be empty. For a new one (`is_new`) the prompt asks
    /// twice.
    pub(super) fn read(&self, is_new: bool) -> Result<Zeroizing<Vec<u8>>, KeyError> {
        let shown = Provider::shown(&format!("passphrase:{self}"));
        let failed = |what: String| KeyError::ProviderFailed { provider: shown.clone(), what };
        let passphrase = match self {
            PassphraseSource::Prompt => prompt(is_new, &failed)?,
            PassphraseSource::Fd(number) => fd::reopen(*number)
                .and_then(fd::read_line)
                .map_err(|err| failed(format!("cannot read the descriptor: {err}")))?
                .ok_or_else(|| failed(too_long()))?,
            PassphraseSource::Command(text) => {
                let output = command::run(text, &shown, command::TIMEOUT)?;
                fd::read_line(&**output)
                    .map_err(|err| failed(err.to_string()))?
                    .ok_or_else(|| failed(too_long()))?
            }
        };
        if passphrase.is_empty() {
            return Err(KeyError::Missing {
                what: format!("{shown}: the passphrase is empty"),
                remedy: "give one".to_owned(),
            });
        }
        if passphrase.len() > MAX_TEXT_LEN {
            return Err(failed(too_long()));
        }
        Ok(passphrase)
    }
}

impl fmt::Display for PassphraseSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PassphraseSource::Prompt => Ok(()),
            PassphraseSource::Fd(number) => write!(f, "fd={number}"),
            PassphraseSource::Command(text) => write!(f, "command={text}"),
        }
    }
}

fn too_long() -> String {
    format!("the passphrase is longer than {MAX_TEXT_LEN} bytes")
}

fn prompt(
    is_new: bool,
    failed: &impl Fn(String) -> KeyError,
) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let ask = |text: &str| {
        rpassword::prompt_password(text).map(|line| Zeroizing::new(line.into_bytes())).map_err(
            |err| {
                failed(format!(
                    "cannot ask on the terminal: {err}; start from a terminal, or use \
                     passphrase:fd=N or passphrase:command=..."
                ))
            },
        )
    };
    let first =
        ask(if is_new { "New passphrase for pgseal: " } else { "Passphrase for pgseal: " })?;
    if is_new && *first != *ask("The same passphrase again: ")? {
        return Err(failed("the two passphrases differ; try again".to_owned()));
    }
    Ok(first)
}
