//! Which provider the KEK of a keyring is asked of, by the precedence of those who can name one.

use std::path::Path;

use crate::argon::CostLimit;
use crate::clusters::Clusters;
use crate::error::KeyError;
use crate::kek::Kek;
use crate::keyring::Keyring;
use crate::provider::{Provider, kek_from_fd};

/// The source of a KEK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The descriptor that `PGSEAL_KEK_FD` names. `pgseal run` has asked the provider already.
    Descriptor(u32),
    /// A provider.
    Provider(Provider),
}

impl Source {
    /// The source of this keyring's key. The first of these that names one decides: the command
    /// line (`given`), the descriptor of `PGSEAL_KEK_FD`, the variable `PGSEAL_PROVIDER`
    /// (`environment`), the file of this cluster in `clusters`, and last the keyring itself.
    ///
    /// An attacker who can write to the data directory can write the keyring, and nothing
    /// authenticates the keyring before there is a key. Therefore a keyring may name only a
    /// provider that runs and connects to nothing, and no file in the data directory.
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

    /// The source for messages, without secrets.
    #[must_use]
    pub fn shown(&self) -> String {
        match self {
            Source::Descriptor(fd) => format!("PGSEAL_KEK_FD={fd}"),
            Source::Provider(provider) => Provider::shown(&provider.to_string()),
        }
    }

    /// The provider, if the source is a provider.
    #[must_use]
    pub fn provider(&self) -> Option<&Provider> {
        match self {
            Source::Descriptor(_) => None,
            Source::Provider(provider) => Some(provider),
        }
    }

    /// The environment variable that holds the key of this keyring, whoever is asked for the key:
    /// behind a descriptor stands the provider that a program without the descriptor would ask.
    #[must_use]
    pub fn variable(
        &self,
        keyring: &Keyring,
        environment: Option<&str>,
        clusters: &Clusters,
    ) -> Option<String> {
        let name = |source: Source| source.provider()?.variable().map(str::to_owned);
        match self {
            Source::Provider(_) => name(self.clone()),
            Source::Descriptor(_) => {
                Source::find(keyring, None, environment, None, clusters).ok().and_then(name)
            }
        }
    }

    /// Asks for the KEK.
    ///
    /// # Errors
    /// [`KeyError`] of the descriptor or the provider.
    pub fn kek(&self, keyring: &Keyring, limit: CostLimit) -> Result<Kek, KeyError> {
        match self {
            Source::Descriptor(fd) => kek_from_fd(*fd),
            Source::Provider(Provider::Plugin(plugin)) => plugin.kek(&keyring.locked()),
            Source::Provider(provider) => {
                provider.kek_within(keyring.passphrase_params(), limit, keyring.path())
            }
        }
    }
}

/// Refuses a key file in the data directory: an attacker who can write there may have made that key
/// and a whole cluster that fits it.
fn expect_outside(key: &Path, datadir: &Path) -> Result<(), KeyError> {
    let (Ok(real), Ok(datadir)) = (key.canonicalize(), datadir.canonicalize()) else {
        // The key file does not exist; the provider will report that.
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
