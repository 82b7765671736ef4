//! Keys of pgseal: the keyring file, the providers of the key-encryption key (KEK), and the
//! frame that hands unlocked data keys to the preloaded library.
//!
//! The formats are those of `spec/key-hierarchy.md` and `spec/key-escrow.md`. Without the feature `providers` only
//! [`handover`] and [`config_record`] are left: that is all the preloaded library needs.

#![forbid(unsafe_code)]

pub mod config_record;
pub mod handover;
pub mod labels;

#[cfg(feature = "providers")]
mod argon;
#[cfg(feature = "providers")]
mod body;
#[cfg(feature = "providers")]
mod clusters;
#[cfg(feature = "providers")]
mod error;
#[cfg(feature = "escrow")]
pub mod escrow;
#[cfg(feature = "providers")]
mod kek;
#[cfg(feature = "providers")]
mod keyring;
#[cfg(feature = "providers")]
pub mod provider;
#[cfg(feature = "providers")]
mod source;
#[cfg(feature = "providers")]
mod store;
#[cfg(feature = "providers")]
mod summary;
#[cfg(feature = "providers")]
mod wrap;

#[cfg(feature = "providers")]
pub use self::{
    argon::Argon2idParams,
    body::{GenerationState, MAX_GENERATIONS},
    clusters::{CLUSTERS_DIR, Clusters},
    error::KeyError,
    kek::{Kek, generate_raw_key},
    keyring::Keyring,
    provider::{CostLimit, Provider, kek_from_fd},
    source::Source,
    store::{
        KEYRING_DIR, KEYRING_FILE, MAX_KEYRING_LEN, config_record_path, is_unfinished,
        keyring_path, open_regular, read_config_record, update, write_config_record,
    },
    summary::{GenerationSummary, KeyringSummary, PassphraseSummary},
};
