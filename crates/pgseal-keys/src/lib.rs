//! Keys of pgseal: the keyring file, the providers of the key-encryption key (KEK), and the
//! frame that hands unlocked data keys to the preloaded library.
//!
//! The formats are specified in `spec/key-hierarchy.md`, `spec/key-escrow.md` and
//! `spec/config-lock.md`, `spec/manifest.md`, `spec/control.md`, `spec/anchor.md`, and
//! `spec/audit.md`. The preloaded library needs only [`handover`], [`anchor`], [`config_record`],
//! [`control`], [`manifest`] and [`renewal`]: it builds the crate without the feature `providers`.

#![forbid(unsafe_code)]

pub mod anchor;
pub mod config_record;
pub mod control;
mod envelope;
pub mod handover;
pub mod labels;
pub mod manifest;
pub mod renewal;

#[cfg(feature = "providers")]
mod anchor_store;
#[cfg(feature = "providers")]
mod argon;
#[cfg(feature = "providers")]
mod attempt;
#[cfg(feature = "providers")]
pub mod audit;
#[cfg(feature = "providers")]
mod audit_conf;
#[cfg(feature = "providers")]
mod body;
#[cfg(feature = "providers")]
mod clusters;
#[cfg(feature = "providers")]
mod column_kek;
#[cfg(feature = "providers")]
mod error;
#[cfg(feature = "escrow")]
pub mod escrow;
#[cfg(feature = "providers")]
mod files;
#[cfg(feature = "providers")]
mod hex;
#[cfg(feature = "providers")]
mod kek;
#[cfg(feature = "providers")]
mod keyring;
#[cfg(feature = "providers")]
mod notify;
#[cfg(feature = "providers")]
mod paths;
#[cfg(feature = "providers")]
mod policy;
#[cfg(feature = "providers")]
pub mod provider;
#[cfg(feature = "providers")]
mod recipient;
#[cfg(feature = "providers")]
mod slot;
#[cfg(feature = "providers")]
mod source;
#[cfg(feature = "providers")]
mod store;
#[cfg(feature = "providers")]
mod summary;
#[cfg(feature = "providers")]
mod trusted;
#[cfg(feature = "providers")]
mod wrap;
#[cfg(feature = "providers")]
mod wrapped_kek;

pub use self::envelope::RecordError;
#[cfg(feature = "providers")]
pub use self::{
    anchor_store::AnchorStore,
    argon::{Argon2idParams, CostLimit},
    attempt::Attempt,
    audit_conf::{AuditConf, Destination},
    body::{GenerationState, MAX_GENERATIONS, MAX_KEYRING_LEN, now, seconds_of},
    clusters::{CLUSTERS_DIR, Clusters, Line},
    column_kek::column_keks,
    error::KeyError,
    files::open_regular,
    kek::{Kek, generate_raw_key},
    keyring::Keyring,
    paths::{
        KEYRING_DIR, KEYRING_FILE, config_record_path, control_path, datadir_of, keyring_path,
        manifest_path, renewal_path,
    },
    policy::{KeyPolicy, POLICY_FILE, RULES, kind_of},
    provider::{Provider, kek_from_fd},
    source::Source,
    store::{
        is_unfinished, read_config_record, read_control, read_manifest, update,
        write_config_record, write_control, write_manifest, write_renewal,
    },
    summary::{GenerationSummary, KeyringSummary, PassphraseSummary, RecipientSummary},
};
