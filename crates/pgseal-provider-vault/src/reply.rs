//! Answers of the HTTP API of the store.

use std::borrow::Cow;

use pgseal_plugin::{Failure, configuration};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

/// What stands in a message for a text that the store does not give.
const SILENT: &str = "it does not say why";
/// The longest text of the store in a message.
const MAX_SAID: usize = 200;

/// An answer.
pub(crate) struct Reply {
    /// The status of HTTP.
    pub status: u16,
    /// The path below `/v1/`, as a policy names it.
    pub path: String,
    /// What was asked, for messages.
    pub asked: String,
    /// The content, wiped on drop.
    pub body: Zeroizing<Vec<u8>>,
}

impl Reply {
    /// Whether the store did what was asked.
    pub(crate) fn is_ok(&self) -> bool {
        matches!(self.status, 200 | 204)
    }

    /// Whether the path is known to the store, and nothing is there.
    pub(crate) fn is_missing(&self) -> bool {
        self.status == 404 && self.errors() == SILENT
    }

    /// The JSON of the answer.
    pub(crate) fn json<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Failure<'static>> {
        serde_json::from_slice(&self.body).map_err(|_| self.not_understood())
    }

    /// The JSON of an answer whatever its status; `None` if it is another.
    pub(crate) fn json_if_any<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_slice(&self.body).ok()
    }

    /// The failure for an answer that is none of this API.
    pub(crate) fn not_understood(&self) -> Failure<'static> {
        configuration(format!(
            "{}: the answer (status {}) is none that pgseal knows; is the address that of Vault or \
             OpenBao, and the mount of the right kind?",
            self.asked, self.status
        ))
    }

    /// What the store says of an error, on one line.
    pub(crate) fn errors(&self) -> String {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Said<'a> {
            #[serde(borrow)]
            errors: Vec<Cow<'a, str>>,
            // KV gives a wrong path no error, but a warning.
            #[serde(borrow)]
            warnings: Option<Vec<Cow<'a, str>>>,
        }
        let mut said: Said<'_> = serde_json::from_slice(&self.body).unwrap_or_default();
        said.errors.extend(said.warnings.unwrap_or_default());
        let all = said.errors.join("; ");
        // Its lists have a heading and a line for each error, with a star.
        let words = all.replace("1 error occurred:", "");
        let words: Vec<&str> = words.split_whitespace().filter(|word| *word != "*").collect();
        match words.join(" ") {
            text if text.is_empty() => SILENT.to_owned(),
            text => text.chars().take(MAX_SAID).collect(),
        }
    }

    /// An answer for tests of what becomes of it.
    #[cfg(test)]
    pub(crate) fn for_test(status: u16, path: &str, body: &str) -> Reply {
        Reply {
            status,
            path: path.to_owned(),
            asked: format!("POST https://v:8200/v1/{path}"),
            body: Zeroizing::new(body.as_bytes().to_vec()),
        }
    }
}
