//! The keyring: the data keys of one cluster, wrapped.

use std::path::{Path, PathBuf};

use pgseal_core::{DataKey, Generation, KeySet, KeyringId, Suite, Suites};

use crate::body::{self, Body, FORMAT, GenerationEntry, GenerationState, MAX_GENERATIONS, VERSION};
use crate::error::KeyError;
use crate::kek::Kek;
use crate::provider::{Provider, bad_uri};
use crate::slot::Slot;
use crate::summary::{GenerationSummary, KeyringSummary, PassphraseSummary, RecipientSummary};
use crate::wrap::{self, Secret32};
use crate::wrapped_kek::{Locked, WrappedKek};

/// What messages call a keyring that has not been stored yet.
const UNSTORED: &str = "new keyring";

/// The content of the file `DATADIR/pgseal/keyring`. It holds wrapped keys only.
#[derive(Clone, Debug)]
pub struct Keyring {
    path: PathBuf,
    body: Body,
    body_bytes: Vec<u8>,
    mac: [u8; 32],
}

impl Keyring {
    /// A new keyring with a random identity and one random data key, generation 1. If a key store
    /// wrapped the KEK, the identity is the one that the wrapped copy is bound to.
    ///
    /// # Errors
    /// [`KeyError::BadUri`] if the URI names no provider, or if it names a passphrase and the KEK
    /// is a raw key, or the other way round.
    pub fn create(suite: Suite, provider_uri: &str, kek: &Kek) -> Result<Keyring, KeyError> {
        suite.check_approved()?;
        check_provider(provider_uri, kek)?;
        let mut keyring_id = [0; 16];
        match kek.store() {
            Some(store) => keyring_id = store.keyring_id,
            None => wrap::random(&mut keyring_id)?,
        }
        let id = KeyringId(keyring_id);
        let keyring_key = wrap::random_secret()?;
        let created = body::now()?;
        let body = Body {
            format: FORMAT.to_owned(),
            version: VERSION,
            keyring_id,
            created: created.clone(),
            suite,
            older_suites: Vec::new(),
            provider: provider_uri.to_owned(),
            passphrase: kek.params().cloned(),
            wrapped_kek: wrapped_copy(kek, id)?,
            config_lock: None,
            key_check: wrap::key_check(kek.expose(), id)?,
            keyring_key: wrap::wrap(kek.expose(), &wrap::keyring_key_aad(id), &keyring_key)?,
            recipients: Vec::new(),
            generations: vec![new_generation(&keyring_key, id, 1, created)?],
        };
        Keyring::seal(PathBuf::from(UNSTORED), body, &keyring_key)
    }

    /// A keyring from data keys that were kept in an escrow copy. Identity, generations and their
    /// times are the old ones, so the keyring opens the same files; the keyring key is new.
    ///
    /// # Errors
    /// As [`Keyring::create`]; [`KeyError::Internal`] when a generation has no key.
    #[cfg(feature = "escrow")]
    pub(crate) fn rebuild(
        keys: &KeySet,
        generations: &[(Generation, String)],
        provider_uri: &str,
        kek: &Kek,
    ) -> Result<Keyring, KeyError> {
        check_provider(provider_uri, kek)?;
        let id = keys.keyring_id;
        let keyring_key = wrap::random_secret()?;
        let wrap_key = wrap::data_wrap_key(&keyring_key, id)?;
        let entry = |(generation, created): &(Generation, String)| {
            let key = keys.get(*generation).ok_or(KeyError::Internal("a generation's key"))?;
            let aad = wrap::data_key_aad(id, generation.0);
            let is_active = *generation == keys.active();
            Ok(GenerationEntry {
                generation: generation.0,
                created: created.clone(),
                state: if is_active { GenerationState::Active } else { GenerationState::Retired },
                key: wrap::wrap(&wrap_key, &aad, key.bytes())?,
            })
        };
        let generations = generations.iter().map(entry).collect::<Result<Vec<_>, KeyError>>()?;
        let body = Body {
            format: FORMAT.to_owned(),
            version: VERSION,
            keyring_id: id.0,
            created: body::now()?,
            suite: keys.suite(),
            older_suites: keys.suites().older().collect(),
            provider: provider_uri.to_owned(),
            passphrase: kek.params().cloned(),
            wrapped_kek: wrapped_copy(kek, id)?,
            config_lock: None,
            key_check: wrap::key_check(kek.expose(), id)?,
            keyring_key: wrap::wrap(kek.expose(), &wrap::keyring_key_aad(id), &keyring_key)?,
            recipients: Vec::new(),
            generations,
        };
        let path = PathBuf::from(UNSTORED);
        body.check().map_err(|what| KeyError::damaged(&path, what))?;
        Keyring::seal(path, body, &keyring_key)
    }

    /// Parses a keyring file strictly, without authenticating it: [`Keyring::unlock`] does that.
    /// `path` is for messages.
    ///
    /// # Errors
    /// [`KeyError::KeyringDamaged`] or [`KeyError::KeyringTooNew`].
    pub fn parse(bytes: &[u8], path: &Path) -> Result<Keyring, KeyError> {
        let parsed = body::parse(bytes, path)?;
        Ok(Keyring {
            path: path.to_owned(),
            body: parsed.body,
            body_bytes: parsed.body_bytes,
            mac: parsed.mac,
        })
    }

    /// The exact bytes of the file.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        body::assemble(&self.body_bytes, &self.mac)
    }

    /// Writes the fields once more, followed by the MAC that was read. For every file that pgseal
    /// wrote, the result equals [`Keyring::to_bytes`]; for tests.
    ///
    /// # Errors
    /// [`KeyError::Internal`] when JSON cannot be written.
    pub fn reencode(&self) -> Result<Vec<u8>, KeyError> {
        Ok(body::assemble(&self.body.encode()?, &self.mac))
    }

    /// Unlocks all data keys.
    ///
    /// # Errors
    /// [`KeyError::Wrong`] if the KEK is that of another keyring, [`KeyError::KeyringDamaged`] if
    /// anything does not authenticate.
    pub fn unlock(&self, kek: &Kek) -> Result<KeySet, KeyError> {
        let keyring_key = self.open(kek)?;
        self.suites().all().try_for_each(Suite::check_approved)?;
        let mut keys = KeySet::new(self.id(), self.suites(), self.active_generation());
        keys.config_lock = self.config_lock().unwrap_or(0);
        for (generation, key) in self.data_keys(&keyring_key)? {
            keys.insert(generation, key);
        }
        Ok(keys)
    }

    /// Wraps the keyring under a new KEK. The keyring key is replaced as well, and every data key
    /// is wrapped again: somebody with the old KEK and an old copy of the keyring cannot unwrap a
    /// data key that is added later. If there are recipients, the keyring key stays, because only
    /// their keys could wrap a new one for them. Data keys and sealed files do not change.
    ///
    /// # Errors
    /// As [`Keyring::unlock`] for `old`, and as [`Keyring::create`] for `new`.
    pub fn rotate_kek(&mut self, old: &Kek, new: &Kek, new_uri: &str) -> Result<(), KeyError> {
        check_provider(new_uri, new)?;
        let old_keyring_key = self.open(old)?;
        let id = self.id();
        let mut body = self.body.clone();
        body.provider = new_uri.to_owned();
        body.passphrase = new.params().cloned();
        body.wrapped_kek = wrapped_copy(new, id)?;
        body.key_check = wrap::key_check(new.expose(), id)?;
        let keyring_key = match body.recipients.is_empty() {
            true => self.renew_keyring_key(&mut body, &old_keyring_key)?,
            false => old_keyring_key,
        };
        body.keyring_key = wrap::wrap(new.expose(), &wrap::keyring_key_aad(id), &keyring_key)?;
        body.check_slots().map_err(|what| bad_uri(new_uri, what))?;
        self.put(body, &keyring_key)
    }

    /// Wraps the data keys under a new keyring key, which the caller has to wrap.
    pub(crate) fn renew_keyring_key(
        &self,
        body: &mut Body,
        old_keyring_key: &Secret32,
    ) -> Result<Secret32, KeyError> {
        let keyring_key = wrap::random_secret()?;
        let wrap_key = wrap::data_wrap_key(&keyring_key, self.id())?;
        for (entry, (_, data_key)) in
            body.generations.iter_mut().zip(self.data_keys(old_keyring_key)?)
        {
            let aad = wrap::data_key_aad(self.id(), entry.generation);
            entry.key = wrap::wrap(&wrap_key, &aad, data_key.bytes())?;
        }
        Ok(keyring_key)
    }

    /// Replaces the content.
    pub(crate) fn put(&mut self, body: Body, keyring_key: &Secret32) -> Result<(), KeyError> {
        *self = Keyring::seal(self.path.clone(), body, keyring_key)?;
        Ok(())
    }

    pub(crate) fn body(&self) -> &Body {
        &self.body
    }

    /// The wrapped copies of the keyring key: the keyring's own, and those of its recipients.
    pub(crate) fn slots(&self) -> impl Iterator<Item = Slot<'_>> {
        self.body.slots()
    }

    /// Whether this is a key of this keyring: that of its own provider or of a recipient.
    pub(crate) fn is_opened_by(&self, kek: &Kek) -> bool {
        self.open(kek).is_ok()
    }

    /// The numbers of the slots that this key opens: 0 for the keyring's own, n for its nth
    /// recipient.
    #[must_use]
    pub fn slots_opened_by(&self, kek: &Kek) -> Vec<usize> {
        (0..self.slots().count()).filter(|at| self.open_slot(*at, kek).is_ok()).collect()
    }

    /// Whether this key opens this slot, and the keyring with it.
    ///
    /// # Errors
    /// As [`Keyring::unlock`].
    pub(crate) fn open_slot(&self, at: usize, kek: &Kek) -> Result<(), KeyError> {
        self.open_one_of(self.slots().skip(at).take(1), kek).map(|_| ())
    }

    fn wrong(&self, kek: &Kek) -> KeyError {
        let own = || Provider::shown(&self.body.provider);
        KeyError::Wrong {
            path: self.path.clone(),
            provider: kek.origin().map_or_else(own, str::to_owned),
        }
    }

    /// Adds a new random data key and makes it the active one. The key that was active is retired.
    ///
    /// # Errors
    /// As [`Keyring::unlock`]; [`KeyError::KeyringFull`] if the keyring has no room for another
    /// one.
    pub fn add_generation(&mut self, kek: &Kek) -> Result<Generation, KeyError> {
        self.add_generation_above(kek, Generation(0))
    }

    /// As [`Keyring::add_generation`], but the new number is also greater than `used`, the highest
    /// generation that sealed files name. This keyring may have lost the key of that generation,
    /// and no other key may get its number.
    ///
    /// # Errors
    /// As [`Keyring::add_generation`].
    pub fn add_generation_above(
        &mut self,
        kek: &Kek,
        used: Generation,
    ) -> Result<Generation, KeyError> {
        let keyring_key = self.open(kek)?;
        let full = || KeyError::KeyringFull { path: self.path.clone(), limit: MAX_GENERATIONS };
        if self.body.generations.len() >= MAX_GENERATIONS {
            return Err(full());
        }
        let all = self.body.generations.iter().map(|entry| entry.generation);
        let last = all.chain([used.0]).max().unwrap_or(0);
        let number = last.checked_add(1).filter(|number| *number != u32::MAX).ok_or_else(full)?;
        let mut body = self.body.clone();
        for entry in &mut body.generations {
            entry.state = GenerationState::Retired;
        }
        body.generations.push(new_generation(&keyring_key, self.id(), number, body::now()?)?);
        *self = Keyring::seal(self.path.clone(), body, &keyring_key)?;
        Ok(Generation(number))
    }

    /// Removes retired data keys for ever: a file that is still sealed with one of them cannot be
    /// opened any more. The active generation, and numbers that the keyring does not have, are
    /// ignored.
    ///
    /// # Errors
    /// As [`Keyring::unlock`].
    pub fn forget_generations(
        &mut self,
        kek: &Kek,
        numbers: &[Generation],
    ) -> Result<(), KeyError> {
        let keyring_key = self.open(kek)?;
        let mut body = self.body.clone();
        body.generations.retain(|entry| {
            entry.state == GenerationState::Active
                || !numbers.contains(&Generation(entry.generation))
        });
        self.put(body, &keyring_key)
    }

    /// Sets the suite of relation files, once no file has another one, or will have when a rekey
    /// that begins now has come to its end.
    ///
    /// # Errors
    /// As [`Keyring::unlock`].
    pub fn set_suite(&mut self, kek: &Kek, suite: Suite) -> Result<(), KeyError> {
        self.set_suites(kek, suite.into())
    }

    /// Changes the suite of new relation files. Files of the suites that there were may stay.
    ///
    /// # Errors
    /// As [`Keyring::unlock`].
    pub fn change_suite(&mut self, kek: &Kek, suite: Suite) -> Result<(), KeyError> {
        self.set_suites(kek, self.suites().changed_to(suite))
    }

    /// Sets the suite of new relation files, and those that existing ones may have besides.
    ///
    /// # Errors
    /// As [`Keyring::unlock`].
    pub fn set_suites(&mut self, kek: &Kek, suites: Suites) -> Result<(), KeyError> {
        let keyring_key = self.open(kek)?;
        suites.all().try_for_each(Suite::check_approved)?;
        let mut body = self.body.clone();
        body.set_suites(suites);
        self.put(body, &keyring_key)
    }

    /// Records that the configuration is locked, with the lowest sequence number that its record
    /// may have, or (`None`) that it is not locked (`spec/config-lock.md`).
    ///
    /// # Errors
    /// As [`Keyring::unlock`].
    pub fn set_config_lock(&mut self, kek: &Kek, sequence: Option<u64>) -> Result<(), KeyError> {
        let keyring_key = self.open(kek)?;
        let body = Body { config_lock: sequence.filter(|number| *number > 0), ..self.body.clone() };
        self.put(body, &keyring_key)
    }

    /// The lowest sequence number that the configuration record may have; `None` if the
    /// configuration is not locked. Only [`Keyring::unlock`] authenticates this number.
    #[must_use]
    pub fn config_lock(&self) -> Option<u64> {
        self.body.config_lock
    }

    /// Fails unless this is the keyring that the sealed files name.
    ///
    /// # Errors
    /// [`KeyError::KeyringOfAnotherCluster`].
    pub fn expect_id(&self, expected: KeyringId) -> Result<(), KeyError> {
        if self.id() == expected {
            return Ok(());
        }
        Err(KeyError::KeyringOfAnotherCluster {
            path: self.path.clone(),
            expected,
            found: self.id(),
        })
    }

    /// The keyring identity, which the header of every sealed file of this cluster contains.
    #[must_use]
    pub fn id(&self) -> KeyringId {
        self.body.id()
    }

    /// The suite of new relation files.
    #[must_use]
    pub fn suite(&self) -> Suite {
        self.body.suite
    }

    /// The suites that relation files may have.
    #[must_use]
    pub fn suites(&self) -> Suites {
        self.body.suites()
    }

    /// The URI of the provider of the KEK.
    #[must_use]
    pub fn provider_uri(&self) -> &str {
        &self.body.provider
    }

    /// The URIs of all providers: the keyring's own, and those of its recipients.
    #[must_use]
    pub fn provider_uris(&self) -> Vec<String> {
        self.slots().map(|slot| slot.provider.to_owned()).collect()
    }

    /// The parameters by which the KEK is derived from a passphrase; `None` if the KEK is a raw
    /// key.
    #[must_use]
    pub fn passphrase_params(&self) -> Option<&crate::argon::Argon2idParams> {
        self.body.passphrase.as_ref()
    }

    /// What a key store needs to give a KEK of this keyring.
    pub(crate) fn locked<'a>(&'a self, wrapped_kek: Option<&'a WrappedKek>) -> Locked<'a> {
        Locked { id: self.id(), wrapped_kek, path: &self.path, datadir: self.datadir() }
    }

    /// The generation of the data key that new files are sealed with.
    #[must_use]
    pub fn active_generation(&self) -> Generation {
        let active =
            self.body.generations.iter().find(|entry| entry.state == GenerationState::Active);
        // `Body::check` guarantees an active generation. No key has generation 0.
        Generation(active.map_or(0, |entry| entry.generation))
    }

    /// The file that the keyring was loaded from.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The data directory that the keyring lies in; `None` if its path is not `DIR/pgseal/keyring`.
    #[must_use]
    pub fn datadir(&self) -> Option<&Path> {
        crate::paths::datadir_of(&self.path)
    }

    /// Everything in the keyring that is not secret, for display.
    #[must_use]
    pub fn summary(&self) -> KeyringSummary {
        KeyringSummary {
            format_version: self.body.version,
            keyring_id: self.id().to_string(),
            created: self.body.created.clone(),
            suite: self.body.suite.name().to_owned(),
            older_suites: self.suites().older().map(|suite| suite.name().to_owned()).collect(),
            provider: self.body.provider.clone(),
            passphrase: self.body.passphrase.as_ref().map(|params| PassphraseSummary {
                kdf: params.kdf.clone(),
                memory_kib: params.memory_kib,
                passes: params.passes,
                lanes: params.lanes,
            }),
            store_key: self.body.wrapped_kek.as_ref().map(|wrapped| wrapped.key.clone()),
            recipients: self
                .body
                .recipients
                .iter()
                .map(|recipient| RecipientSummary {
                    name: recipient.name.clone(),
                    created: recipient.created.clone(),
                    provider: recipient.provider.clone(),
                    store_key: recipient.wrapped_kek.as_ref().map(|wrapped| wrapped.key.clone()),
                })
                .collect(),
            active_generation: self.active_generation().0,
            generations: self
                .body
                .generations
                .iter()
                .map(|entry| GenerationSummary {
                    generation: entry.generation,
                    created: entry.created.clone(),
                    state: entry.state,
                })
                .collect(),
        }
    }

    fn seal(path: PathBuf, body: Body, keyring_key: &Secret32) -> Result<Keyring, KeyError> {
        let body_bytes = body.encode()?;
        let mac = wrap::body_mac(keyring_key, body.id(), &body_bytes)?;
        Ok(Keyring { path, body, body_bytes, mac })
    }

    /// Unwraps the keyring key, after checking the KEK and the MAC over the whole body.
    pub(crate) fn open(&self, kek: &Kek) -> Result<Secret32, KeyError> {
        self.open_one_of(self.slots(), kek)
    }

    fn open_one_of<'a>(
        &self,
        slots: impl Iterator<Item = Slot<'a>>,
        kek: &Kek,
    ) -> Result<Secret32, KeyError> {
        let id = self.id();
        let check = wrap::key_check(kek.expose(), id)?;
        let mut keyring_key = Secret32::zero();
        let mut is_open = false;
        for slot in slots {
            let unwrapped =
                wrap::unwrap_into(kek.expose(), &slot.aad(id), slot.keyring_key, &mut keyring_key);
            match (wrap::same(&check, slot.key_check), unwrapped) {
                (true, Ok(())) => {
                    is_open = true;
                    break;
                }
                (true, Err(_)) => return Err(self.damaged("the keyring key does not authenticate")),
                // The KEK unwraps the keyring key: it is right, and its check value is damaged.
                (false, Ok(())) => return Err(self.damaged("the key check value is wrong")),
                (false, Err(_)) => {}
            }
        }
        if !is_open {
            return Err(self.wrong(kek));
        }
        if !wrap::body_mac_holds(&keyring_key, id, &self.body_bytes, &self.mac)? {
            return Err(self.damaged("its MAC does not hold"));
        }
        Ok(keyring_key)
    }

    fn data_keys(&self, keyring_key: &Secret32) -> Result<Vec<(Generation, DataKey)>, KeyError> {
        let wrap_key = wrap::data_wrap_key(keyring_key, self.id())?;
        let mut keys = Vec::with_capacity(self.body.generations.len());
        for entry in &self.body.generations {
            let aad = wrap::data_key_aad(self.id(), entry.generation);
            let key = DataKey::init_with(|out| wrap::unwrap_into(&wrap_key, &aad, &entry.key, out))
                .map_err(|wrap::NotAuthentic| {
                    self.damaged(&format!("data key {} does not open", entry.generation))
                })?;
            keys.push((Generation(entry.generation), key));
        }
        Ok(keys)
    }

    fn damaged(&self, what: &str) -> KeyError {
        KeyError::damaged(&self.path, what)
    }
}

fn new_generation(
    keyring_key: &Secret32,
    id: KeyringId,
    generation: u32,
    created: String,
) -> Result<GenerationEntry, KeyError> {
    let data_key = wrap::random_secret()?;
    let wrap_key = wrap::data_wrap_key(keyring_key, id)?;
    let key = wrap::wrap(&wrap_key, &wrap::data_key_aad(id, generation), &data_key)?;
    Ok(GenerationEntry { generation, created, state: GenerationState::Active, key })
}

pub(crate) fn check_provider(uri: &str, kek: &Kek) -> Result<(), KeyError> {
    let provider = Provider::parse(uri)?;
    let bad = |what: &str| Err(bad_uri(uri, what));
    match (provider.is_passphrase(), kek.params().is_some()) {
        (true, false) => return bad("the key at hand is not from a passphrase"),
        (false, true) => return bad("the key at hand is from a passphrase"),
        (true, true) | (false, false) => {}
    }
    match (provider.plugin().is_some(), kek.store().is_some()) {
        (true, false) => bad("no key store has wrapped the key at hand"),
        (false, true) => bad("a key store has wrapped the key at hand"),
        (true, true) | (false, false) => Ok(()),
    }
}

/// The wrapped copy that a keyring with this identity must hold.
pub(crate) fn wrapped_copy(kek: &Kek, id: KeyringId) -> Result<Option<WrappedKek>, KeyError> {
    match kek.store() {
        Some(store) if store.id() != id => Err(KeyError::Internal("a key of another keyring")),
        store => Ok(store.map(|store| store.wrapped_kek.clone())),
    }
}

#[cfg(test)]
mod tests;
