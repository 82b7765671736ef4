//! Where the KEK of a keyring comes from, and who said so.

use std::path::Path;

use crate::clusters::Clusters;
use crate::error::KeyError;
use crate::kek::Kek;
use crate::keyring::Keyring;
use crate::provider::{CostLimit, Provider, kek_from_fd};

/// The source of a KEK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The descriptor that `PGSEAL_KEK_FD` names: `pgseal run` has asked already.
    Descriptor(u32),
    /// A provider.
    Provider(Provider),
}

impl Source {
    /// The source of this keyring's key. Asked in this order: what the command line names (`given`),
    /// the descriptor of `PGSEAL_KEK_FD`, the provider of `PGSEAL_PROVIDER` (`environment`), the file
    /// of this cluster in `clusters`, and last the keyring itself.
    ///
    /// The keyring lies beside the data, where somebody else may write, and is not authenticated
    /// before there is a key: it may name only what can neither run nor connect, and no file of the
    /// data directory itself.
    ///
    /// # Errors
    /// [`KeyError::NotRegistered`], [`KeyError::Insecure`], [`KeyError::ClusterFile`],
    /// [`KeyError::BadUri`].
    pub fn find(
        keyring: &Keyring,
        given: Option<&str>,
        environment: Option<&str>,
        kek_fd: Option<u32>,
        clusters: &Clusters,
    ) -> Result<Source, KeyError> {
        if let Some(uri) = given {
            return Ok(Source::Provider(Provider::parse_typed(uri)?));
        }
        if let Some(fd) = kek_fd {
            return Ok(Source::Descriptor(fd));
        }
        if let Some(uri) = environment {
            return Ok(Source::Provider(Provider::parse_typed(uri)?));
        }
        if let Some(provider) = clusters.provider_of(keyring.id(), keyring.datadir())? {
            return Ok(Source::Provider(provider));
        }
        let provider = Provider::parse(keyring.provider_uri())?;
        if !provider.is_harmless() {
            return Err(KeyError::NotRegistered {
                path: keyring.path().to_owned(),
                hint: Provider::shown(keyring.provider_uri()),
                form: provider.form(),
                file: clusters.file_of(keyring.id()),
            });
        }
        if let (Provider::File(key), Some(datadir)) = (&provider, keyring.datadir()) {
            expect_outside(key, datadir)?;
        }
        Ok(Source::Provider(provider))
    }

    /// As messages show it.
    #[must_use]
    pub fn shown(&self) -> String {
        match self {
            Source::Descriptor(fd) => format!("PGSEAL_KEK_FD={fd}"),
            Source::Provider(provider) => Provider::shown(&provider.to_string()),
        }
    }

    /// The provider, if it is one.
    #[must_use]
    pub fn provider(&self) -> Option<&Provider> {
        match self {
            Source::Descriptor(_) => None,
            Source::Provider(provider) => Some(provider),
        }
    }

    /// The KEK.
    ///
    /// # Errors
    /// [`KeyError`] of whichever is asked.
    pub fn kek(&self, keyring: &Keyring, limit: CostLimit) -> Result<Kek, KeyError> {
        match self {
            Source::Descriptor(fd) => kek_from_fd(*fd),
            Source::Provider(provider) => {
                provider.kek_within(keyring.passphrase_params(), limit, keyring.path())
            }
        }
    }
}

/// A key in the data directory is one that its writer may have made, and with it the whole cluster.
fn expect_outside(key: &Path, datadir: &Path) -> Result<(), KeyError> {
    let (Ok(real), Ok(datadir)) = (key.canonicalize(), datadir.canonicalize()) else {
        // Nothing is there, which the provider says.
        return Ok(());
    };
    if !real.starts_with(datadir) {
        return Ok(());
    }
    Err(KeyError::Insecure {
        path: key.to_owned(),
        what: "the keyring names a key in its own data directory, which proves nothing, and every \
               copy of the directory carries the key"
            .to_owned(),
        remedy: "move the key elsewhere: pgseal key rotate DIR --old file:OLD -K file:NEW"
            .to_owned(),
    })
}
