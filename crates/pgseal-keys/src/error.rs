//! What can go wrong with keys, by whose fault it is.

use std::io;
use std::path::{Path, PathBuf};

use pgseal_core::KeyringId;

use crate::provider::{CostLimit, Provider};

/// An error about keys. Each text says what is wrong, where, and what to do next; none holds any
/// part of a key, a passphrase or what a command printed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The provider works, but holds no key.
    #[error("no key: {what}; {remedy}")]
    Missing {
        /// What is empty or not there.
        what: String,
        /// What to do next.
        remedy: String,
    },
    /// The key is a proper key, but not that of this keyring.
    #[error(
        "{}: wrong key: {provider} gave a key that does not open this keyring; \
         give the key that was in use when it was created or last re-keyed",
        path.display()
    )]
    Wrong {
        /// The keyring.
        path: PathBuf,
        /// The provider that was asked.
        provider: String,
    },
    /// Others can read or change the source of the key.
    #[error("{}: {what}; {remedy}", path.display())]
    Insecure {
        /// The file that holds the key.
        path: PathBuf,
        /// Who has which right.
        what: String,
        /// The command that repairs it.
        remedy: String,
    },
    /// The provider could not be asked.
    #[error("key provider {provider}: {what}")]
    ProviderFailed {
        /// The provider, in short.
        provider: String,
        /// What happened and what to do next.
        what: String,
    },
    /// The keyring names a source that only a place outside of the data directory may name.
    #[error(
        "{}: the keyring names {hint} as the source of its key, and nothing that a data directory \
         names is run, read or asked before the key has authenticated it; write the line \
         \"provider = {form}\" into {} as root, or give it with -K or PGSEAL_PROVIDER",
        path.display(),
        file.display()
    )]
    NotRegistered {
        /// The keyring.
        path: PathBuf,
        /// What it names, as messages show it.
        hint: String,
        /// The form of the URI, without anything that the keyring says.
        form: &'static str,
        /// The file of this cluster in `/etc/pgseal/clusters.d`.
        file: PathBuf,
    },
    /// The file of a cluster in `/etc/pgseal/clusters.d` is not as it has to be.
    #[error(
        "{}: {what}; the file holds one line: provider = URI, as -K takes it",
        path.display()
    )]
    ClusterFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A passphrase would cost more than is sensible, and only the data directory says so.
    #[error(
        "{}: the keyring asks for Argon2id with {memory_mib} MiB and {passes} passes, more than \
         {} MiB and {} passes; if it was made so, add --allow-cost",
        path.display(),
        CostLimit::SENSIBLE_MEMORY_KIB / 1024,
        CostLimit::SENSIBLE_PASSES
    )]
    Costly {
        /// The keyring or escrow copy.
        path: PathBuf,
        /// Memory that it asks for, in MiB.
        memory_mib: u32,
        /// Passes over it.
        passes: u32,
    },
    /// What the provider gave is not the text of a key.
    #[error(
        "{origin} does not hold a key: a key is 32 bytes as 64 hexadecimal digits or as base64 \
         (make one with: pgseal key new)"
    )]
    BadKeyText {
        /// Where the text is from.
        origin: String,
    },
    /// The text names no provider.
    #[error("\"{uri}\" names no key provider: {reason}")]
    BadUri {
        /// The text.
        uri: String,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// The keyring file is not as pgseal wrote it.
    #[error(
        "{}: the keyring is damaged ({what}); put back a copy of it, for example from a backup",
        path.display()
    )]
    KeyringDamaged {
        /// The keyring.
        path: PathBuf,
        /// Which check failed.
        what: String,
    },
    /// A newer pgseal wrote the keyring.
    #[error(
        "{}: the keyring has format version {version}, and this pgseal knows version 1; \
         install the pgseal that wrote it",
        path.display()
    )]
    KeyringTooNew {
        /// The keyring.
        path: PathBuf,
        /// Its format version.
        version: u64,
    },
    /// There is no keyring file.
    #[error(
        "{}: there is no keyring; without it no file of this data directory can be opened: \
         put it back from a backup, or give the right data directory",
        path.display()
    )]
    KeyringMissing {
        /// Where it should be.
        path: PathBuf,
    },
    /// There is a keyring already; it is never overwritten.
    #[error("{}: there is a keyring already; it was left alone", path.display())]
    KeyringExists {
        /// The keyring.
        path: PathBuf,
    },
    /// The files were sealed with another keyring.
    #[error(
        "{}: this is the keyring of another cluster: the files name keyring {expected}, and this \
         is {found}; put back the keyring that belongs to these files",
        path.display()
    )]
    KeyringOfAnotherCluster {
        /// The keyring.
        path: PathBuf,
        /// Which keyring the sealed files name.
        expected: KeyringId,
        /// Which keyring this is.
        found: KeyringId,
    },
    /// The keyring holds as many generations as it can.
    #[error(
        "{}: the keyring holds {limit} generations of data keys and takes no more",
        path.display()
    )]
    KeyringFull {
        /// The keyring.
        path: PathBuf,
        /// How many it can hold.
        limit: usize,
    },
    /// A line of an escrow copy is not as it was printed.
    #[error("{origin}: line {line} of the escrow copy {what}; compare it with the print")]
    EscrowLine {
        /// Where the copy was read.
        origin: String,
        /// The number that stands, or should stand, before the line.
        line: usize,
        /// What is wrong with it.
        what: &'static str,
    },
    /// An escrow copy is whole line by line, and yet not one that pgseal made.
    #[error("{origin}: not a whole escrow copy ({what}); {remedy}")]
    EscrowDamaged {
        /// Where the copy was read.
        origin: String,
        /// Which check failed.
        what: String,
        /// What to do next.
        remedy: &'static str,
    },
    /// A newer pgseal made the escrow copy.
    #[error(
        "{origin}: the escrow copy has format version {version}, and this pgseal knows version 1; \
         install the pgseal that made it"
    )]
    EscrowTooNew {
        /// Where the copy was read.
        origin: String,
        /// Its format version.
        version: u16,
    },
    /// The passphrase, key or shares are whole, but not those of the copy.
    #[error("{origin}: {what} does not open this escrow copy; {remedy}")]
    EscrowWrong {
        /// Where the copy was read.
        origin: String,
        /// What was tried.
        what: &'static str,
        /// What to do next.
        remedy: &'static str,
    },
    /// Fewer shares than the escrow copy needs.
    #[error(
        "{origin}: {have} of the {threshold} shares that are needed; give {} more, of the {limit} \
         that were printed with it",
        threshold.saturating_sub(*have)
    )]
    EscrowShares {
        /// Where the shares were read.
        origin: String,
        /// Shares at hand, each counted once.
        have: usize,
        /// Shares that are needed.
        threshold: usize,
        /// Shares that were made.
        limit: usize,
    },
    /// The operating system refused something.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// A cryptographic primitive failed in a way that only a bug or a broken machine explains.
    #[error("internal error in {0}; please report this as a bug of pgseal")]
    Internal(&'static str),
}

impl KeyError {
    /// The exit code of `pgseal` for this error, as in the table of docs/reference.md.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            KeyError::BadUri { .. } | KeyError::ClusterFile { .. } => 2,
            KeyError::KeyringExists { .. } => 5,
            KeyError::Missing { .. } | KeyError::EscrowShares { .. } => 10,
            KeyError::Wrong { .. } | KeyError::EscrowWrong { .. } => 11,
            KeyError::Insecure { .. }
            | KeyError::NotRegistered { .. }
            | KeyError::Costly { .. } => 12,
            KeyError::ProviderFailed { .. } | KeyError::BadKeyText { .. } => 13,
            KeyError::KeyringDamaged { .. }
            | KeyError::KeyringTooNew { .. }
            | KeyError::EscrowLine { .. }
            | KeyError::EscrowDamaged { .. }
            | KeyError::EscrowTooNew { .. } => 14,
            KeyError::KeyringOfAnotherCluster { .. } => 15,
            KeyError::KeyringMissing { .. } => 16,
            KeyError::KeyringFull { .. } | KeyError::Io { .. } => 40,
            KeyError::Internal(_) => 70,
        }
    }

    pub(crate) fn io(path: &Path, action: &'static str, source: io::Error) -> KeyError {
        KeyError::Io { path: path.to_owned(), action, source }
    }

    pub(crate) fn damaged(path: &Path, what: impl Into<String>) -> KeyError {
        KeyError::KeyringDamaged { path: path.to_owned(), what: what.into() }
    }

    pub(crate) fn bad_uri(uri: &str, reason: impl Into<String>) -> KeyError {
        KeyError::BadUri { uri: Provider::shown(uri), reason: reason.into() }
    }
}
