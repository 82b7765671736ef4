//! The content of a keyring without its secrets, for `pgseal key show`.

use serde::Serialize;

use crate::body::GenerationState;

/// A keyring as `pgseal key show` prints it. It is read from the file and not authenticated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeyringSummary {
    /// Version of the file format.
    pub format_version: u64,
    /// The identity, as 32 hexadecimal digits.
    pub keyring_id: String,
    /// When the keyring was made: RFC 3339, UTC.
    pub created: String,
    /// The suite of new relation files.
    pub suite: String,
    /// The suites that existing relation files may have besides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub older_suites: Vec<String>,
    /// The URI of the provider, which contains no secret.
    pub provider: String,
    /// The cost of deriving the KEK from a passphrase; `None` if the KEK is a raw key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passphrase: Option<PassphraseSummary>,
    /// The name of the key in its store that wraps the KEK; `None` if no store does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store_key: Option<String>,
    /// Further keys that open the keyring.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub recipients: Vec<RecipientSummary>,
    /// The generation of the data key that new files are sealed with.
    pub active_generation: u32,
    /// All generations, oldest first.
    pub generations: Vec<GenerationSummary>,
}

/// The cost of deriving the KEK from a passphrase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PassphraseSummary {
    /// Name of the key derivation function.
    pub kdf: String,
    /// Memory in KiB.
    pub memory_kib: u32,
    /// Passes over the memory.
    pub passes: u32,
    /// Lanes.
    pub lanes: u32,
}

/// A further key that opens the keyring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RecipientSummary {
    /// Its name.
    pub name: String,
    /// When it was added: RFC 3339, UTC.
    pub created: String,
    /// The URI of its provider, which contains no secret.
    pub provider: String,
    /// The name of the key in its store that wraps its KEK; `None` if no store does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store_key: Option<String>,
}

/// One data key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GenerationSummary {
    /// The generation number, from 1.
    pub generation: u32,
    /// When the key was made: RFC 3339, UTC.
    pub created: String,
    /// Whether the key is used for new files.
    pub state: GenerationState,
}
