//! How a key is wrapped, and what a wrapped key looks like.
//!
//! ```text
//! 1 byte   1, the version of this form
//! 1 byte   mechanism: 1 CKM_AES_GCM, 2 CKM_AES_KEY_WRAP_PAD, 3 CKM_AES_KEY_WRAP
//! GCM:     12 bytes initialization vector, 32 bytes ciphertext, 16 bytes tag
//! others:  the wrapped generic secret of 48 bytes: the key, then the context
//! ```

use cryptoki::mechanism::aead::GcmParams;
use cryptoki::mechanism::{Mechanism as Cryptoki, MechanismType};
use cryptoki::object::{Attribute, AttributeType, KeyType, ObjectClass};
use cryptoki::types::Ulong;
use pgseal_plugin::{Failure, Fault, Secret, configuration, random};
use zeroize::{Zeroize, Zeroizing};

use crate::failures::{failed, not_opened};
use crate::token::{Key, OpenToken};

const VERSION: u8 = 1;
/// The associated data, before the context.
const LABEL: &[u8] = b"pgseal/pkcs11/v1";
const IV_LEN: usize = 12;
const TAG_BITS: u64 = 128;

/// How a token wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mechanism {
    /// AES-GCM (SP 800-38D), with the context as associated data.
    Gcm,
    /// AES key wrap with padding (RFC 5649, SP 800-38F KWP).
    KeyWrapPad,
    /// AES key wrap (RFC 3394, SP 800-38F KW).
    KeyWrap,
}

impl Mechanism {
    const ALL: [Mechanism; 3] = [Mechanism::Gcm, Mechanism::KeyWrapPad, Mechanism::KeyWrap];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Mechanism::Gcm => "aes-gcm",
            Mechanism::KeyWrapPad => "aes-key-wrap-pad",
            Mechanism::KeyWrap => "aes-key-wrap",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Mechanism> {
        Mechanism::ALL.into_iter().find(|mechanism| mechanism.name() == name)
    }

    fn code(self) -> u8 {
        match self {
            Mechanism::Gcm => 1,
            Mechanism::KeyWrapPad => 2,
            Mechanism::KeyWrap => 3,
        }
    }

    fn kind(self) -> MechanismType {
        match self {
            Mechanism::Gcm => MechanismType::AES_GCM,
            Mechanism::KeyWrapPad => MechanismType::AES_KEY_WRAP_PAD,
            Mechanism::KeyWrap => MechanismType::AES_KEY_WRAP,
        }
    }

    fn fits(self, token: &OpenToken<'_>, key: &Key) -> bool {
        let wraps = self != Mechanism::Gcm;
        let may = if wraps { key.can_wrap } else { key.can_encrypt };
        may && token.offers(self.kind(), wraps)
    }

    /// The wanted mechanism, or the first one that the token and its key allow.
    pub(crate) fn choose(
        token: &OpenToken<'_>,
        key: &Key,
        wanted: Option<Mechanism>,
    ) -> Result<Mechanism, Failure<'static>> {
        match wanted {
            Some(wanted) if wanted.fits(token, key) => Ok(wanted),
            Some(wanted) => {
                Err(configuration(format!("the token or its key does not allow {}", wanted.name())))
            }
            None => Mechanism::ALL.into_iter().find(|one| one.fits(token, key)).ok_or_else(|| {
                configuration(
                    "the token and its key allow neither AES-GCM (CKA_ENCRYPT and CKA_DECRYPT) nor \
                     AES key wrap (CKA_WRAP and CKA_UNWRAP)",
                )
            }),
        }
    }
}

/// Wraps a key.
pub(crate) fn wrap(
    token: &OpenToken<'_>,
    key: &Key,
    mechanism: Mechanism,
    context: &[u8; 16],
    secret: &Secret,
) -> Result<Vec<u8>, Failure<'static>> {
    let mut wrapped = vec![VERSION, mechanism.code()];
    if mechanism == Mechanism::Gcm {
        let mut iv = [0; IV_LEN];
        random(&mut iv)?;
        let aad = [LABEL, context].concat();
        let params = GcmParams::new(&mut iv, &aad, Ulong::from(TAG_BITS))
            .map_err(failed("the parameters of AES-GCM"))?;
        let sealed = token
            .session()
            .encrypt(&Cryptoki::AesGcm(params), key.handle, secret.expose())
            .map_err(failed("the token does not wrap"))?;
        // Some tokens choose the vector themselves, and put it where it was given.
        wrapped.extend_from_slice(&iv);
        wrapped.extend_from_slice(&sealed);
        return Ok(wrapped);
    }
    let value = Zeroizing::new([&secret.expose()[..], context].concat());
    // A key of the session only: it is gone when the plugin ends.
    let mut template = [
        Attribute::Token(false),
        Attribute::Class(ObjectClass::SECRET_KEY),
        Attribute::KeyType(KeyType::GENERIC_SECRET),
        Attribute::Sensitive(false),
        Attribute::Extractable(true),
        Attribute::Value(value.to_vec()),
    ];
    let object = token.session().create_object(&template);
    if let Some(Attribute::Value(copy)) = template.last_mut() {
        copy.zeroize();
    }
    let object = object.map_err(failed("the token takes no key to wrap"))?;
    let sealed = token
        .session()
        .wrap_key(&mechanism.with_no_parameters(), key.handle, object)
        .map_err(failed("the token does not wrap"))?;
    wrapped.extend_from_slice(&sealed);
    Ok(wrapped)
}

/// Unwraps a key.
pub(crate) fn unwrap(
    token: &OpenToken<'_>,
    key: &Key,
    context: &[u8; 16],
    wrapped: &[u8],
) -> Result<Secret, Failure<'static>> {
    let wrong = |what: &str| Failure::new(Fault::Wrong, what);
    let (mechanism, sealed) = match wrapped {
        [VERSION, code, sealed @ ..] => {
            let known = Mechanism::ALL.into_iter().find(|mechanism| mechanism.code() == *code);
            (known.ok_or_else(|| wrong("an unknown mechanism of wrapping"))?, sealed)
        }
        _ => return Err(wrong("no key that this plugin wrapped")),
    };
    let opened = match mechanism {
        Mechanism::Gcm => {
            let (iv, sealed) = sealed
                .split_first_chunk::<IV_LEN>()
                .filter(|(_, sealed)| sealed.len() == 32 + 16)
                .ok_or_else(|| wrong("a wrapped key of another length"))?;
            let mut iv = *iv;
            let aad = [LABEL, context].concat();
            let params = GcmParams::new(&mut iv, &aad, Ulong::from(TAG_BITS))
                .map_err(failed("the parameters of AES-GCM"))?;
            let opened = token
                .session()
                .decrypt(&Cryptoki::AesGcm(params), key.handle, sealed)
                .map_err(not_opened("the token does not unwrap it"))?;
            Zeroizing::new(opened)
        }
        Mechanism::KeyWrapPad | Mechanism::KeyWrap => unwrap_object(token, key, mechanism, sealed)?,
    };
    let bytes = match mechanism {
        Mechanism::Gcm => opened.as_slice(),
        Mechanism::KeyWrapPad | Mechanism::KeyWrap => opened
            .strip_suffix(context)
            .ok_or_else(|| wrong("it was wrapped for another keyring"))?,
    };
    let bytes: &[u8; 32] =
        bytes.try_into().map_err(|_| wrong("the wrapped key is not one of 32 bytes"))?;
    Secret::init_with(|out| {
        out.copy_from_slice(bytes);
        Ok(())
    })
}

fn unwrap_object(
    token: &OpenToken<'_>,
    key: &Key,
    mechanism: Mechanism,
    sealed: &[u8],
) -> Result<Zeroizing<Vec<u8>>, Failure<'static>> {
    let object = token
        .session()
        .unwrap_key(
            &mechanism.with_no_parameters(),
            key.handle,
            sealed,
            &[
                Attribute::Token(false),
                Attribute::Class(ObjectClass::SECRET_KEY),
                Attribute::KeyType(KeyType::GENERIC_SECRET),
                Attribute::Sensitive(false),
                Attribute::Extractable(true),
            ],
        )
        .map_err(not_opened("the token does not unwrap it"))?;
    let values = token
        .session()
        .get_attributes(object, &[AttributeType::Value])
        .map_err(failed("the token does not give out what it unwrapped"))?;
    let mut opened = Zeroizing::new(Vec::new());
    for value in values {
        if let Attribute::Value(mut bytes) = value {
            opened = Zeroizing::new(bytes.clone());
            bytes.zeroize();
        }
    }
    Ok(opened)
}

impl Mechanism {
    fn with_no_parameters(self) -> Cryptoki<'static> {
        match self {
            Mechanism::KeyWrap => Cryptoki::AesKeyWrap,
            Mechanism::KeyWrapPad | Mechanism::Gcm => Cryptoki::AesKeyWrapPad,
        }
    }
}
