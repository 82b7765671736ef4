//! Errors about keys, one variant for each cause that a user must treat differently.

use std::io;
use std::path::{Path, PathBuf};

use pgseal_core::KeyringId;
use pgseal_crypto::NotApproved;

/// An error about keys. Each message says what is wrong, where, and what to do next. No message
/// contains any part of a key, of a passphrase or of a command's output.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// A recipient cannot be added or removed.
    #[error("{}: recipient \"{name}\": {what}; see the recipients with: pgseal key show", path.display())]
    Recipient {
        /// The keyring.
        path: PathBuf,
        /// The name that was given.
        name: String,
        /// Why not.
        what: String,
    },
    /// Several sources of the key were tried, and none opens the keyring.
    #[error("{}: none of {} sources gives a key that opens the keyring: {}", path.display(), tried.len(), tried.join("; "))]
    NoneOpens {
        /// The keyring.
        path: PathBuf,
        /// The error of each source.
        tried: Vec<String>,
        /// The exit code of these errors, if they have the same.
        code: Option<u8>,
    },
    /// The provider works, but holds no key.
    #[error("no key: {what}; {remedy}")]
    Missing {
        /// What is empty or missing.
        what: String,
        /// What to do next.
        remedy: String,
    },
    /// The provider gave a well-formed key, but it is not the key of this keyring.
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
    /// Users other than the owner can read or change the source of the key.
    #[error("{}: {what}; {remedy}", path.display())]
    Insecure {
        /// The file that holds the key.
        path: PathBuf,
        /// Which user or which mode makes it insecure.
        what: String,
        /// The command that repairs it.
        remedy: String,
    },
    /// The provider could not be run or read.
    #[error("key provider {provider}: {what}")]
    ProviderFailed {
        /// The provider's URI, without secrets.
        provider: String,
        /// What happened and what to do next.
        what: String,
    },
    /// The key store cannot be reached, or is busy.
    #[error(
        "key store of {provider}: it cannot be reached: {what}; try again when it answers, or let \
         pgseal wait longer for it (PGSEAL_PROVIDER_WAIT=SECONDS)"
    )]
    StoreDown {
        /// The provider's URI, without secrets.
        provider: String,
        /// What the plugin says.
        what: String,
    },
    /// The key store refuses, by its credentials or its policy.
    #[error(
        "key store of {provider}: it refuses: {what}; correct the credentials or what they may do, \
         and try again (pgseal does not repeat what a store has refused)"
    )]
    StoreRefused {
        /// The provider's URI, without secrets.
        provider: String,
        /// What the plugin says.
        what: String,
    },
    /// The URI of a key store, or a file that it names, is wrong.
    #[error("key store of {provider}: wrong configuration: {what}")]
    StoreConfiguration {
        /// The provider's URI, without secrets.
        provider: String,
        /// What is wrong.
        what: String,
    },
    /// The store of the anchor has no usable answer.
    #[error("anchor {store}: {what}")]
    AnchorFailed {
        /// The store's URI, without secrets, or the anchor's file.
        store: String,
        /// What happened.
        what: String,
    },
    /// A plugin does not keep to its protocol.
    #[error(
        "{}: the plugin is broken: {what}; see what it does with: pgseal provider test {provider}",
        program.display()
    )]
    PluginBroken {
        /// The program.
        program: PathBuf,
        /// How it breaks the protocol.
        what: String,
        /// The provider's URI, without secrets.
        provider: String,
    },
    /// The keyring names a provider that only a file outside of the data directory may name.
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
        /// The URI that the keyring names, without secrets.
        hint: String,
        /// The form of such a URI (`command:SHELL COMMAND`), without anything from the keyring.
        form: &'static str,
        /// The file of this cluster in `/etc/pgseal/clusters.d`.
        file: PathBuf,
    },
    /// No file says where the key of a keyring of sealed columns comes from.
    #[error(
        "{}: a setting names this keyring, which whoever writes the data directory may have changed, \
         and {} names no source of its key that needs no person; if the keyring is right, write the \
         line \"provider = URI\" into that file as root",
        path.display(),
        file.display()
    )]
    ColumnsNotRegistered {
        /// The keyring.
        path: PathBuf,
        /// The file of this keyring in `/etc/pgseal/clusters.d`.
        file: PathBuf,
    },
    /// The file of a cluster in `/etc/pgseal/clusters.d` does not have the required form.
    #[error(
        "{}: {what}; the file holds a line \"provider = URI\" for each source, as -K takes it",
        path.display()
    )]
    ClusterFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The file of the key policy does not have the required form.
    #[error(
        "{}: {what}; the file holds lines like \"rotate-days = 365\": docs/keys.md",
        path.display()
    )]
    PolicyFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// What says where the audit trail goes does not have the required form.
    #[error(
        "{}: {what}; \"to\" and \"required\" are described in docs/audit.md",
        path.display()
    )]
    AuditFile {
        /// The file, or the environment variable.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The keyring, which nobody has authenticated yet, asks for a very expensive derivation of the
    /// key from the passphrase.
    #[error(
        "{}: the keyring asks for Argon2id with {memory_mib} MiB and {passes} passes, more than \
         {limit_mib} MiB and {limit_passes} passes; if it was made so, add --allow-cost",
        path.display()
    )]
    Costly {
        /// The keyring or escrow copy.
        path: PathBuf,
        /// Memory that the derivation would take, in MiB.
        memory_mib: u32,
        /// Passes over that memory.
        passes: u32,
        /// The most memory that is allowed without --allow-cost, in MiB.
        limit_mib: u32,
        /// The most passes that are allowed without --allow-cost.
        limit_passes: u32,
    },
    /// A FIPS build does not have what was asked for.
    #[error("{0}; use a key file, a command or a key store, and a suite with 256 bits")]
    NotApproved(#[from] NotApproved),
    /// The provider's output is not the text of a key.
    #[error(
        "{origin} does not hold a key: a key is 32 bytes as 64 hexadecimal digits or as base64 \
         (make one with: pgseal key new)"
    )]
    BadKeyText {
        /// Where the text comes from.
        origin: String,
    },
    /// The text is not the URI of a provider.
    #[error("\"{uri}\" names no key provider: {reason}")]
    BadUri {
        /// The text.
        uri: String,
        /// What is wrong with the URI, and which forms are valid.
        reason: String,
    },
    /// The keyring file was changed or damaged after pgseal wrote it.
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
        /// Where the keyring should be.
        path: PathBuf,
    },
    /// There is a keyring already, and a new one never overwrites it.
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
    /// The keyring already holds the maximum number of generations.
    #[error(
        "{}: the keyring holds {limit} generations of data keys and takes no more",
        path.display()
    )]
    KeyringFull {
        /// The keyring.
        path: PathBuf,
        /// The maximum number of generations.
        limit: usize,
    },
    /// A line of an escrow copy differs from the line that was printed.
    #[error("{origin}: line {line} of the escrow copy {what}; compare it with the print")]
    EscrowLine {
        /// Where the copy was read.
        origin: String,
        /// The number of the line, as printed before it.
        line: usize,
        /// What is wrong with the line.
        what: &'static str,
    },
    /// Each line of an escrow copy passes its check, but the copy as a whole is not valid.
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
    /// The passphrase, key or shares are well-formed, but they do not open this copy.
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
        /// Number of different shares that were given.
        have: usize,
        /// Number of shares that open the copy.
        threshold: usize,
        /// Number of shares that were made.
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
    /// A cryptographic primitive failed, which only a bug or broken hardware can cause.
    #[error("internal error in {0}; please report this as a bug of pgseal")]
    Internal(&'static str),
}

impl KeyError {
    /// The exit code of `pgseal` for this error, as in the table of docs/reference.md.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            KeyError::Recipient { .. }
            | KeyError::BadUri { .. }
            | KeyError::ClusterFile { .. }
            | KeyError::PolicyFile { .. }
            | KeyError::AuditFile { .. }
            | KeyError::NotApproved(_)
            | KeyError::StoreConfiguration { .. } => 2,
            KeyError::KeyringExists { .. } => 5,
            KeyError::Missing { .. } | KeyError::EscrowShares { .. } => 10,
            KeyError::Wrong { .. } | KeyError::EscrowWrong { .. } => 11,
            KeyError::Insecure { .. }
            | KeyError::NotRegistered { .. }
            | KeyError::ColumnsNotRegistered { .. }
            | KeyError::Costly { .. } => 12,
            KeyError::AnchorFailed { .. }
            | KeyError::ProviderFailed { .. }
            | KeyError::BadKeyText { .. }
            | KeyError::StoreDown { .. }
            | KeyError::PluginBroken { .. } => 13,
            KeyError::KeyringDamaged { .. }
            | KeyError::KeyringTooNew { .. }
            | KeyError::EscrowLine { .. }
            | KeyError::EscrowDamaged { .. }
            | KeyError::EscrowTooNew { .. } => 14,
            KeyError::KeyringOfAnotherCluster { .. } => 15,
            KeyError::KeyringMissing { .. } => 16,
            KeyError::StoreRefused { .. } => 17,
            KeyError::NoneOpens { code, .. } => code.unwrap_or(13),
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
}
