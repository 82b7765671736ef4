//! Which provider the KEK of a keyring is asked of, by the precedence of those who can name one.

use std::path::Path;

use crate::argon::CostLimit;
use crate::clusters::Clusters;
use crate::error::KeyError;
use crate::kek::Kek;
use crate::keyring::Keyring;
use crate::policy::kind_of;
use crate::provider::{Patience, Plugin, Provider, kek_from_fd};

/// The source of a KEK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The descriptor that `PGSEAL_KEK_FD` names. `pgseal run` has asked the provider already.
    Descriptor(u32),
    /// The providers to ask, in this order; at least one.
    Providers(Vec<Provider>),
}

impl From<Provider> for Source {
    fn from(provider: Provider) -> Source {
        Source::Providers(vec![provider])
    }
}

impl Source {
    /// The source of this keyring's key. The first of these that names one decides: the command
    /// line (`given`), the descriptor of `PGSEAL_KEK_FD`, the variable `PGSEAL_PROVIDER`
    /// (`environment`), the file of this cluster in `clusters`, and last the keyring itself: its
    /// own provider, and those of its recipients that it may name.
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
            return Ok(Source::from(Provider::parse_typed(uri)?));
        }
        if let Some(fd) = kek_fd {
            return Ok(Source::Descriptor(fd));
        }
        if let Some(uri) = environment {
            return Ok(Source::from(Provider::parse_typed(uri)?));
        }
        let registered = clusters.providers_of(keyring.id(), keyring.datadir())?;
        if !registered.is_empty() {
            return Ok(Source::Providers(registered));
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
        let mut all = vec![provider];
        for recipient in keyring.slots().skip(1) {
            let provider = Provider::parse(recipient.provider).ok().filter(Provider::is_harmless);
            all.extend(provider.filter(|provider| !all.contains(provider)));
        }
        for provider in &all {
            if let (Provider::File(key), Some(datadir)) = (provider, keyring.datadir()) {
                expect_outside(key, datadir)?;
            }
        }
        Ok(Source::Providers(all))
    }

    /// The source of the key of a keyring that lies in no data directory, and that only a setting
    /// in `datadir` names: what the file of this keyring in `clusters` names, but for those that
    /// need a person. Whoever changes the setting cannot make a keyring that opens, because that
    /// file says which key opens it; a keyring without such a file is refused.
    ///
    /// # Errors
    /// [`KeyError::ColumnsNotRegistered`], and those of the file.
    pub fn registered(
        keyring: &Keyring,
        clusters: &Clusters,
        datadir: Option<&Path>,
    ) -> Result<Source, KeyError> {
        let mut all = clusters.providers_of(keyring.id(), datadir)?;
        all.retain(|provider| !provider.needs_person());
        match all.is_empty() {
            false => Ok(Source::Providers(all)),
            true => Err(KeyError::ColumnsNotRegistered {
                path: keyring.path().to_owned(),
                file: clusters.file_of(keyring.id()),
            }),
        }
    }

    /// The source for messages, without secrets.
    #[must_use]
    pub fn shown(&self) -> String {
        match self {
            Source::Descriptor(fd) => format!("PGSEAL_KEK_FD={fd}"),
            Source::Providers(all) => {
                let shown = all.iter().map(|provider| Provider::shown(&provider.to_string()));
                shown.collect::<Vec<_>>().join(", ")
            }
        }
    }

    /// The providers, in the order in which they are asked; none behind a descriptor.
    #[must_use]
    pub fn providers(&self) -> &[Provider] {
        match self {
            Source::Descriptor(_) => &[],
            Source::Providers(all) => all,
        }
    }

    /// The provider that is asked first, if the source is a provider.
    #[must_use]
    pub fn provider(&self) -> Option<&Provider> {
        self.providers().first()
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
        let name = |source: Source| {
            source.providers().iter().find_map(Provider::variable).map(str::to_owned)
        };
        match self {
            Source::Providers(_) => name(self.clone()),
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
        self.kek_with(keyring, limit, Patience::from_environment()?)
    }

    /// As [`Source::kek`], but a store that cannot be reached is not asked again.
    ///
    /// # Errors
    /// As [`Source::kek`].
    pub fn kek_at_once(&self, keyring: &Keyring, limit: CostLimit) -> Result<Kek, KeyError> {
        self.kek_with(keyring, limit, Patience::from_environment()?.once())
    }

    fn kek_with(
        &self,
        keyring: &Keyring,
        limit: CostLimit,
        patience: Patience,
    ) -> Result<Kek, KeyError> {
        match self {
            Source::Descriptor(fd) => kek_from_fd(*fd),
            Source::Providers(all) => match all.as_slice() {
                [only] => ask(only, keyring, limit, patience),
                several => first_that_opens(several, keyring, limit, patience),
            },
        }
    }
}

/// The KEK that one provider gives for this keyring: for its own slot, or for that of a recipient.
fn ask(
    provider: &Provider,
    keyring: &Keyring,
    limit: CostLimit,
    patience: Patience,
) -> Result<Kek, KeyError> {
    match provider {
        Provider::Plugin(plugin) => ask_store(plugin, keyring, patience),
        Provider::Passphrase(_) => {
            let params: Vec<_> = keyring.slots().filter_map(|slot| slot.passphrase).collect();
            let fits = |kek: &Kek| keyring.is_opened_by(kek);
            provider.kek_that_fits(&params, limit, keyring.path(), fits)
        }
        _ => provider.kek_within(None, limit, keyring.path()),
    }
}

/// Asks a store for the slots that name it; if none does, for those of the same kind of store.
fn ask_store(plugin: &Plugin, keyring: &Keyring, patience: Patience) -> Result<Kek, KeyError> {
    let wrapped = |is_meant: &dyn Fn(&str) -> bool| {
        let slots = keyring.slots().filter(|slot| is_meant(slot.provider));
        slots.filter_map(|slot| slot.wrapped_kek).collect::<Vec<_>>()
    };
    let mut candidates = wrapped(&|uri| uri == plugin.uri());
    if candidates.is_empty() {
        candidates = wrapped(&|uri| kind_of(uri) == kind_of(plugin.uri()));
    }
    let own = keyring.slots().next().and_then(|slot| slot.wrapped_kek);
    let Some((first, others)) = candidates.split_first() else {
        return plugin.kek(&keyring.locked(own), patience);
    };
    let mut result = plugin.kek(&keyring.locked(Some(first)), patience);
    for wrapped_kek in others {
        match &result {
            Ok(kek) if keyring.is_opened_by(kek) => break,
            Err(KeyError::StoreDown { .. }) => break,
            _ => result = plugin.kek(&keyring.locked(Some(wrapped_kek)), patience),
        }
    }
    result
}

/// Asks several providers in their order, until one gives a key that opens the keyring. Stores that
/// cannot be reached are asked again, all in turn, for as long as a single one would be. Who needs
/// a person is asked last.
fn first_that_opens(
    all: &[Provider],
    keyring: &Keyring,
    limit: CostLimit,
    patience: Patience,
) -> Result<Kek, KeyError> {
    let (persons, machines): (Vec<_>, Vec<_>) = all.iter().partition(|one| one.needs_person());
    let mut tried = Vec::new();
    let round = || {
        tried.clear();
        try_each(&machines, keyring, limit, patience, &mut tried)
    };
    match patience.repeat("the key", round) {
        Err(_) if !persons.is_empty() => {
            tried.iter().for_each(|error| eprintln!("pgseal: {error}"));
            try_each(&persons, keyring, limit, patience, &mut tried)
        }
        result => result,
    }
}

/// One round. `tried` gets the errors.
fn try_each(
    providers: &[&Provider],
    keyring: &Keyring,
    limit: CostLimit,
    patience: Patience,
    tried: &mut Vec<KeyError>,
) -> Result<Kek, KeyError> {
    for provider in providers {
        let kek = ask(provider, keyring, limit, patience.once());
        match kek.and_then(|kek| keyring.open(&kek).map(|_| kek)) {
            Ok(kek) => {
                for error in &*tried {
                    eprintln!("pgseal: {error}; the key came from the next source");
                }
                return Ok(kek);
            }
            // No key can help here.
            Err(error @ (KeyError::KeyringDamaged { .. } | KeyError::Internal(_))) => {
                return Err(error);
            }
            Err(error) => tried.push(error),
        }
    }
    let down = tried.iter().find_map(|error| match error {
        KeyError::StoreDown { provider, .. } => Some(provider.clone()),
        _ => None,
    });
    let texts: Vec<String> = tried.iter().map(ToString::to_string).collect();
    if let Some(provider) = down {
        return Err(KeyError::StoreDown { provider, what: texts.join("; ") });
    }
    let code = tried.first().map(KeyError::exit_code);
    Err(KeyError::NoneOpens {
        path: keyring.path().to_owned(),
        code: code.filter(|code| tried.iter().all(|error| error.exit_code() == *code)),
        tried: texts,
    })
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
