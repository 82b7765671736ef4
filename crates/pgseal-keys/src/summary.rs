//! What a keyring says about itself without any secret: for `pgseal key show`.

use serde::Serialize;

use crate::body::GenerationState;

/// A keyring as `pgseal key show` prints it. Read from the file, not authenticated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KeyringSummary {
    /// Version of the file format.
    pub format_version: u64,
    /// 32 hexadecimal digits.
    pub keyring_id: String,
    /// RFC 3339, UTC.
    pub created: String,
    /// Suite of new relation files.
    pub suite: String,
    /// Provider URI; never the secret itself.
    pub provider: String,
    /// How the KEK comes from the passphrase, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passphrase: Option<PassphraseSummary>,
    /// Generation that new files get.
    pub active_generation: u32,
    /// All generations, oldest first.
    pub generations: Vec<GenerationSummary>,
}

/// Cost of a passphrase's derivation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PassphraseSummary {
    /// Name of the function.
    pub kdf: String,
    /// Memory in KiB.
    pub memory_kib: u32,
    /// Passes over the memory.
    pub passes: u32,
    /// Lanes.
    pub lanes: u32,
}

/// One generation of data key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GenerationSummary {
    /// Its number, from 1.
    pub generation: u32,
    /// RFC 3339, UTC.
    pub created: String,
    /// In use for new files, or kept for old ones.
    pub state: GenerationState,
}
