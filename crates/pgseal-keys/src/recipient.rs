//! Recipients: further keys that open a keyring, each from a provider of its own
//! (`spec/key-hierarchy.md`, section 3).

use crate::body;
use crate::error::KeyError;
use crate::kek::Kek;
use crate::keyring::{Keyring, check_provider, wrapped_copy};
use crate::slot::{MAX_RECIPIENTS, Recipient, is_name};
use crate::wrap;

impl Keyring {
    /// Adds a recipient: `new` opens the keyring from now on, too. `kek` is a key that opens it
    /// already.
    ///
    /// # Errors
    /// As [`Keyring::unlock`]; [`KeyError::Recipient`] if the name is taken or no name, if there is
    /// no room, or if two keys would be in environment variables; [`KeyError::BadUri`] as for
    /// [`Keyring::create`].
    pub fn add_recipient(
        &mut self,
        kek: &Kek,
        name: &str,
        new: &Kek,
        uri: &str,
    ) -> Result<(), KeyError> {
        check_provider(uri, new)?;
        self.expect_new_recipient(name)?;
        let keyring_key = self.open(kek)?;
        let (id, mut body) = (self.id(), self.body().clone());
        body.recipients.push(Recipient {
            name: name.to_owned(),
            created: body::now()?,
            provider: uri.to_owned(),
            passphrase: new.params().cloned(),
            wrapped_kek: wrapped_copy(new, id)?,
            key_check: wrap::key_check(new.expose(), id)?,
            keyring_key: wrap::wrap(new.expose(), &wrap::recipient_aad(id, name), &keyring_key)?,
        });
        body.check_slots().map_err(|what| self.refused(name, what))?;
        self.put(body, &keyring_key)
    }

    /// Fails unless a recipient of this name can be added.
    ///
    /// # Errors
    /// [`KeyError::Recipient`].
    pub fn expect_new_recipient(&self, name: &str) -> Result<(), KeyError> {
        let recipients = &self.body().recipients;
        if !is_name(name) {
            return Err(self.refused(name, "a name is 1 to 64 of a-z, 0-9, '.', '_' and '-'"));
        }
        if recipients.iter().any(|recipient| recipient.name == name) {
            return Err(self.refused(name, "there is one of this name"));
        }
        match recipients.len() < MAX_RECIPIENTS {
            true => Ok(()),
            false => Err(self.refused(name, "the keyring has no room for another one")),
        }
    }

    /// Removes a recipient. Its key still opens older copies of the keyring. If no recipient is
    /// left and `kek` is the key of the keyring's own provider, the keyring key is replaced as
    /// well. Returns the URI of the provider of the removed recipient.
    ///
    /// # Errors
    /// As [`Keyring::unlock`]; [`KeyError::Recipient`] if there is no recipient of this name.
    pub fn remove_recipient(&mut self, kek: &Kek, name: &str) -> Result<String, KeyError> {
        let keyring_key = self.open(kek)?;
        let mut body = self.body().clone();
        let at = body.recipients.iter().position(|recipient| recipient.name == name);
        let at = at.ok_or_else(|| {
            let mut names: Vec<&str> = Vec::new();
            names.extend(self.body().recipients.iter().map(|recipient| recipient.name.as_str()));
            let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            self.refused(name, &format!("there is no such recipient (there is: {known})"))
        })?;
        let removed = body.recipients.remove(at);
        let id = self.id();
        let is_own = wrap::same(&wrap::key_check(kek.expose(), id)?, &body.key_check);
        let keyring_key = match body.recipients.is_empty() && is_own {
            true => self.renew_keyring_key(&mut body, &keyring_key)?,
            false => keyring_key,
        };
        if is_own {
            body.keyring_key = wrap::wrap(kek.expose(), &wrap::keyring_key_aad(id), &keyring_key)?;
        }
        self.put(body, &keyring_key)?;
        Ok(removed.provider)
    }

    fn refused(&self, name: &str, what: &str) -> KeyError {
        KeyError::Recipient {
            path: self.path().to_owned(),
            name: name.to_owned(),
            what: what.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use pgseal_core::Suite;

    use super::*;
    use crate::kek::kek;

    fn parsed(ring: &Keyring) -> Keyring {
        Keyring::parse(&ring.to_bytes(), Path::new("/data/pgseal/keyring")).unwrap()
    }

    fn with_two() -> Keyring {
        let mut ring = Keyring::create(Suite::Aes256Gcm, "env:MAIN", &kek(1)).unwrap();
        ring.add_recipient(&kek(1), "escrow", &kek(2), "file:/mnt/offline/key").unwrap();
        // A recipient's key adds one as well.
        ring.add_recipient(&kek(2), "dr-site", &kek(3), "command:get-key").unwrap();
        parsed(&ring)
    }

    fn data_keys(ring: &Keyring, kek: &Kek) -> Vec<u8> {
        let keys = ring.unlock(kek).unwrap();
        crate::handover::encode_keys(&keys, None, "").to_vec()
    }

    #[test]
    fn each_recipient_opens_the_keyring_and_no_other_key_does() {
        let ring = with_two();
        let all = data_keys(&ring, &kek(1));
        for byte in [2, 3] {
            assert_eq!(data_keys(&ring, &kek(byte)), all);
        }
        assert!(matches!(ring.unlock(&kek(4)), Err(KeyError::Wrong { .. })));
        assert_eq!(ring.reencode().unwrap(), ring.to_bytes());
    }

    #[test]
    fn a_removed_recipient_opens_nothing_any_more() {
        let mut ring = with_two();
        assert_eq!(ring.remove_recipient(&kek(3), "escrow").unwrap(), "file:/mnt/offline/key");
        assert!(matches!(parsed(&ring).unlock(&kek(2)), Err(KeyError::Wrong { .. })));
        assert_eq!(data_keys(&parsed(&ring), &kek(3)), data_keys(&ring, &kek(1)));
        let error = ring.remove_recipient(&kek(1), "escrow").unwrap_err().to_string();
        assert!(error.contains("dr-site"), "{error}");
        let before = with_two();
        ring.remove_recipient(&kek(1), "dr-site").unwrap();
        assert!(parsed(&ring).unlock(&kek(3)).is_err() && ring.unlock(&kek(1)).is_ok());
        assert!(before.unlock(&kek(3)).is_ok(), "an older copy still opens");
    }

    /// The keyring key is the one that the older copies of the keyring have, or not.
    fn keyring_key(ring: &Keyring, byte: u8) -> [u8; 32] {
        *ring.open(&kek(byte)).unwrap()
    }

    #[test]
    fn the_keyring_key_is_replaced_when_nobody_else_needs_it() {
        let mut ring = with_two();
        let before = keyring_key(&ring, 1);
        ring.rotate_kek(&kek(1), &kek(9), "env:NEXT").unwrap();
        assert_eq!(keyring_key(&ring, 2), before, "the recipients' copies are under it");
        assert_eq!(keyring_key(&ring, 9), before);
        assert!(matches!(parsed(&ring).unlock(&kek(1)), Err(KeyError::Wrong { .. })));
        ring.remove_recipient(&kek(9), "escrow").unwrap();
        assert_eq!(keyring_key(&ring, 3), before);
        ring.remove_recipient(&kek(9), "dr-site").unwrap();
        assert_ne!(keyring_key(&ring, 9), before);
        let now = keyring_key(&ring, 9);
        ring.rotate_kek(&kek(9), &kek(1), "env:MAIN").unwrap();
        assert_ne!(keyring_key(&parsed(&ring), 1), now);
    }

    #[test]
    fn names_are_checked_and_used_once() {
        let mut ring = with_two();
        let text = ring.to_bytes();
        for (name, uri, words) in [
            ("escrow", "file:/k", "one of this name"),
            ("Escrow", "file:/k", "a name is"),
            ("", "file:/k", "a name is"),
            ("-a", "file:/k", "a name is"),
            ("a b", "file:/k", "a name is"),
            ("next", "env:OTHER", "two keys in environment variables"),
        ] {
            let error = ring.add_recipient(&kek(1), name, &kek(5), uri).unwrap_err();
            assert!(matches!(error, KeyError::Recipient { .. }), "{error}");
            assert!(error.to_string().contains(words), "{error}");
        }
        assert!(ring.add_recipient(&kek(7), "next", &kek(5), "file:/k").is_err(), "a wrong key");
        assert_eq!(ring.to_bytes(), text, "a refused change changes nothing");
        for number in 2..MAX_RECIPIENTS {
            ring.add_recipient(&kek(1), &format!("r{number}"), &kek(5), "file:/k").unwrap();
        }
        let error = ring.add_recipient(&kek(1), "more", &kek(5), "file:/k").unwrap_err();
        assert!(error.to_string().contains("no room"), "{error}");
        parsed(&ring).unlock(&kek(5)).unwrap();
    }

    /// Nothing of a recipient can be changed or exchanged.
    #[test]
    fn a_changed_recipient_is_noticed() {
        let ring = with_two();
        let text = String::from_utf8(ring.to_bytes()).unwrap();
        let slots: Vec<_> = ring.body().slots().collect();
        let (own, other) = (slots[0].keyring_key, slots[1].keyring_key);
        let hex = |bytes: &[u8]| data_encoding::HEXLOWER.encode(bytes);
        for (from, to) in [
            ("dr-site".to_owned(), "dr-sine".to_owned()),
            ("command:get-key".to_owned(), "command:got-key".to_owned()),
            (hex(&other.wrapped), hex(&own.wrapped)),
            (hex(slots[1].key_check), hex(slots[2].key_check)),
            (hex(&other.nonce), hex(&own.nonce)),
        ] {
            let changed = text.replace(&from, &to);
            assert_ne!(changed, text);
            let changed = Keyring::parse(changed.as_bytes(), Path::new("/k")).unwrap();
            for byte in [1, 2, 3] {
                assert!(changed.unlock(&kek(byte)).is_err(), "{from} as {to}, key {byte}");
            }
        }
    }
}
