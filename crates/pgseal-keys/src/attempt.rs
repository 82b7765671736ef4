//! Tries every source of a keyring's key with every slot that it fits, to check them all.

use crate::argon::CostLimit;
use crate::error::KeyError;
use crate::kek::Kek;
use crate::keyring::Keyring;
use crate::policy::kind_of;
use crate::provider::{Patience, Provider};
use crate::slot::Slot;
use crate::source::Source;

/// What one provider gave for one slot of a keyring, when all sources were tried.
#[derive(Debug)]
pub struct Attempt {
    /// The provider that was asked.
    pub provider: Provider,
    /// The number of the slot: 0 for the keyring's own, n for its nth recipient. A raw key is tried
    /// with every slot, and all else only with those that it fits.
    pub slot: usize,
    /// Whether the slot names this provider.
    pub is_named: bool,
    /// The KEK, if it opens the slot.
    pub result: Result<Kek, KeyError>,
}

impl Source {
    /// Asks each provider once for each slot that it fits, and stops at none; to check them all.
    /// Providers that need a person are not asked. Behind a descriptor stands one key, which is not
    /// tried here.
    ///
    /// # Errors
    /// [`KeyError`] if `PGSEAL_PROVIDER_WAIT` is wrong.
    pub fn try_all(&self, keyring: &Keyring, limit: CostLimit) -> Result<Vec<Attempt>, KeyError> {
        let patience = Patience::from_environment()?.once();
        let slots: Vec<Slot<'_>> = keyring.slots().collect();
        let mut attempts = Vec::new();
        for provider in self.providers().iter().filter(|one| !one.needs_person()) {
            let uri = provider.to_string();
            let fits = fitting(provider, &slots);
            // One key for all slots, which is fetched once.
            let mut raw = None;
            for at in fits {
                let Some(slot) = slots.get(at) else { continue };
                let given = match provider {
                    Provider::Plugin(plugin) => {
                        plugin.kek(&keyring.locked(slot.wrapped_kek), patience)
                    }
                    Provider::Passphrase(_) => {
                        provider.kek_within(slot.passphrase, limit, keyring.path())
                    }
                    _ => match &raw {
                        None => provider.kek_within(None, limit, keyring.path()),
                        Some(Ok(kek)) => Ok(Kek::duplicate(kek)),
                        // Once is enough: the first slot has the error.
                        Some(Err(())) => continue,
                    },
                };
                if provider.is_raw() {
                    raw.get_or_insert_with(|| given.as_ref().map(Kek::duplicate).map_err(|_| ()));
                }
                attempts.push(Attempt {
                    provider: provider.clone(),
                    slot: at,
                    is_named: slot.provider == uri,
                    result: given.and_then(|kek| keyring.open_slot(at, &kek).map(|()| kek)),
                });
            }
        }
        Ok(attempts)
    }
}

/// The numbers of the slots whose key this provider could give, those that name it first. If some
/// name it, only they count for a store and for a passphrase.
fn fitting(provider: &Provider, slots: &[Slot<'_>]) -> Vec<usize> {
    let uri = provider.to_string();
    let is_of_kind = |slot: &Slot<'_>| match provider {
        Provider::Plugin(_) => {
            slot.wrapped_kek.is_some() && kind_of(slot.provider) == kind_of(&uri)
        }
        Provider::Passphrase(_) => slot.passphrase.is_some(),
        _ => slot.wrapped_kek.is_none() && slot.passphrase.is_none(),
    };
    let numbered = || slots.iter().enumerate();
    let named = numbered().filter(|(_, slot)| slot.provider == uri).map(|(at, _)| at);
    let mut all: Vec<usize> = named.collect();
    if all.is_empty() || provider.is_raw() {
        let others = numbered().filter(|(_, slot)| slot.provider != uri && is_of_kind(slot));
        all.extend(others.map(|(at, _)| at));
    }
    all
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use pgseal_core::Suite;

    use super::*;

    #[test]
    fn every_source_is_tried_with_every_slot_that_it_fits() {
        let dir = tempfile::tempdir().unwrap();
        let key = |name: &str, digit: &str| {
            let path = dir.path().join(name);
            fs::write(&path, digit.repeat(64)).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            Provider::parse(&format!("file:{}", path.display())).unwrap()
        };
        let [main, next, stray] =
            [("main", "1"), ("next", "2"), ("stray", "3")].map(|(name, digit)| key(name, digit));
        let missing = Provider::parse("file:/nowhere/at/all").unwrap();
        let glass = Provider::parse("passphrase:command=echo open sesame").unwrap();
        let person = Provider::parse("passphrase:").unwrap();
        let kek = |provider: &Provider| provider.kek_for_new().unwrap();
        let own = kek(&main);
        let mut ring = Keyring::create(Suite::Aes256Gcm, &main.to_string(), &own).unwrap();
        ring.add_recipient(&own, "next", &kek(&next), &next.to_string()).unwrap();
        ring.add_recipient(&own, "glass", &kek(&glass), &glass.to_string()).unwrap();
        let source = Source::Providers(vec![next, missing, stray, glass, person, main]);
        let attempts = source.try_all(&ring, CostLimit::Sensible).unwrap();
        let opened: Vec<(usize, bool)> = attempts
            .iter()
            .filter(|one| one.result.is_ok())
            .map(|one| (one.slot, one.is_named))
            .collect();
        assert_eq!(opened, [(1, true), (2, true), (0, true)]);
        let failed = |uri: &str| {
            let of = attempts.iter().filter(|one| one.provider.to_string().contains(uri));
            of.filter_map(|one| one.result.as_ref().err().map(KeyError::exit_code))
                .collect::<Vec<_>>()
        };
        // A missing key is looked for once, and a wrong one is tried with each slot of a raw key.
        assert_eq!(failed("nowhere"), [10]);
        assert_eq!(failed("stray"), [11, 11]);
        assert_eq!(ring.slots_opened_by(&own), [0]);
        assert!(Source::Descriptor(5).try_all(&ring, CostLimit::Sensible).unwrap().is_empty());
    }
}
