//! A column key, with the derived keys and key schedules that sealing and opening values needs.

use core::fmt;

use aws_lc_rs::hkdf;
use zeroize::{Zeroize, Zeroizing};

use crate::error::ColumnError;
use crate::ff1::{Ff1Native, TWEAK_BYTES};
use crate::gcm::Gcm;
use crate::header::{
    Header, HeaderBytes, MAX_HEADER_BYTES, MAX_PLAIN_BYTES, Mode, NONCE_BYTES, TAG_BYTES,
};
use crate::labels;
use crate::siv::{Associated, Siv};
use pgseal_crypto::{Service, fill_random};

/// Bytes of a column key and of a KEK.
pub const KEY_BYTES: usize = 32;
/// The most key material that is accepted, in bytes.
pub const MAX_MATERIAL_BYTES: usize = 64;
/// The highest type code of FF1. For authenticated values, S2V is precomputed up to this code.
pub const MAX_SHORT_TYPE_CODE: u32 = 63;

/// The number of a domain, a set of columns that share keys and can be joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Domain(pub u64);

/// The type of an authenticated value, which is bound into its ciphertext: any number but 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TypeCode(u32);

impl TypeCode {
    /// Checks a code.
    ///
    /// # Errors
    /// [`ColumnError::BadArgument`] for 0.
    pub fn new(code: u32) -> Result<TypeCode, ColumnError> {
        if code == 0 { Err(ColumnError::BadArgument) } else { Ok(TypeCode(code)) }
    }

    /// The number.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }
}

/// The type of a format-preserving value: 1 to [`MAX_SHORT_TYPE_CODE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NumberCode(u8);

impl NumberCode {
    /// Checks a code.
    ///
    /// # Errors
    /// [`ColumnError::BadArgument`] for 0 and for more than [`MAX_SHORT_TYPE_CODE`].
    pub fn new(code: u32) -> Result<NumberCode, ColumnError> {
        match u8::try_from(code) {
            Ok(short) if (1..=MAX_SHORT_TYPE_CODE).contains(&code) => Ok(NumberCode(short)),
            _ => Err(ColumnError::BadArgument),
        }
    }
}

/// The keys of one domain and key version.
pub struct ColumnKey {
    domain: Domain,
    key_version: u32,
    ff1: Ff1Native,
    siv: Siv,
    gcm: Gcm,
    deterministic: HeaderBytes,
    randomised: HeaderBytes,
    /// S2V over the associated data of each short type code.
    associated: [Associated; MAX_SHORT_TYPE_CODE as usize + 1],
}

impl ColumnKey {
    /// From 32 to 64 bytes of key material.
    ///
    /// # Errors
    /// [`ColumnError::KeyLength`]; [`ColumnError::BadArgument`] for key version 0.
    pub fn new(material: &[u8], domain: Domain, key_version: u32) -> Result<Self, ColumnError> {
        if !(KEY_BYTES..=MAX_MATERIAL_BYTES).contains(&material.len()) {
            return Err(ColumnError::KeyLength);
        }
        if key_version == 0 {
            return Err(ColumnError::BadArgument);
        }
        pgseal_crypto::check(Service::AesSiv)?;
        pgseal_crypto::check(Service::Ff1)?;
        let root = hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(material);
        let context = [&domain.0.to_le_bytes()[..], &key_version.to_le_bytes()].concat();
        let derive = |label: &str, key: &mut [u8]| {
            let info = [label.as_bytes(), context.as_slice()];
            let okm = root.expand(&info, Length(key.len())).map_err(|_| ColumnError::Internal)?;
            okm.fill(key).map_err(|_| ColumnError::Internal)
        };
        let mut ff1_key = Zeroizing::new([0; 32]);
        derive(labels::KDF_FF1, &mut *ff1_key)?;
        let mut siv_key = Zeroizing::new([0; 64]);
        derive(labels::KDF_SIV, &mut *siv_key)?;
        let mut gcm_key = Zeroizing::new([0; 32]);
        derive(labels::KDF_GCM, &mut *gcm_key)?;

        let siv = Siv::new(&*siv_key)?;
        let deterministic = Header { mode: Mode::Deterministic, key_version }.to_bytes();
        let randomised = Header { mode: Mode::Randomised, key_version }.to_bytes();
        let associated = core::array::from_fn(|code| {
            let data = AssociatedData::new(&deterministic, domain, TypeCode(code as u32));
            siv.associate(&[data.get()])
        });
        Ok(ColumnKey {
            domain,
            key_version,
            ff1: Ff1Native::new(&*ff1_key)?,
            siv,
            gcm: Gcm::new(&*gcm_key)?,
            deterministic,
            randomised,
            associated,
        })
    }

    /// The domain.
    #[must_use]
    pub fn domain(&self) -> Domain {
        self.domain
    }

    /// The key version.
    #[must_use]
    pub fn key_version(&self) -> u32 {
        self.key_version
    }

    /// The tweak of FF1: domain and type.
    #[inline]
    fn tweak(&self, type_code: NumberCode) -> [u8; TWEAK_BYTES] {
        let mut tweak = [0; TWEAK_BYTES];
        let (domain, code) = tweak.split_at_mut(8);
        domain.copy_from_slice(&self.domain.0.to_le_bytes());
        code.fill(type_code.0);
        tweak
    }

    /// FF1 of a 32-bit number.
    #[must_use]
    pub fn encrypt32(&self, type_code: NumberCode, plain: u32) -> u32 {
        self.ff1.encrypt32(&self.tweak(type_code), plain)
    }

    /// The inverse of [`ColumnKey::encrypt32`].
    #[must_use]
    pub fn decrypt32(&self, type_code: NumberCode, sealed: u32) -> u32 {
        self.ff1.decrypt32(&self.tweak(type_code), sealed)
    }

    /// FF1 of a 64-bit number.
    #[must_use]
    pub fn encrypt64(&self, type_code: NumberCode, plain: u64) -> u64 {
        self.ff1.encrypt64(&self.tweak(type_code), plain)
    }

    /// The inverse of [`ColumnKey::encrypt64`].
    #[must_use]
    pub fn decrypt64(&self, type_code: NumberCode, sealed: u64) -> u64 {
        self.ff1.decrypt64(&self.tweak(type_code), sealed)
    }

    /// FF1 of a number below 2^60.
    ///
    /// # Errors
    /// [`ColumnError::Domain`] for any other.
    pub fn encrypt60(&self, type_code: NumberCode, plain: u64) -> Result<u64, ColumnError> {
        self.ff1.encrypt60(&self.tweak(type_code), plain)
    }

    /// The inverse of [`ColumnKey::encrypt60`].
    ///
    /// # Errors
    /// [`ColumnError::Domain`] for a number of 2^60 or more.
    pub fn decrypt60(&self, type_code: NumberCode, sealed: u64) -> Result<u64, ColumnError> {
        self.ff1.decrypt60(&self.tweak(type_code), sealed)
    }

    /// The length of a sealed value whose plain value has `plain_len` bytes.
    #[must_use]
    pub fn sealed_len(&self, mode: Mode, plain_len: usize) -> usize {
        plain_len.saturating_add(self.header(mode).get().len() + mode.overhead_bytes())
    }

    fn header(&self, mode: Mode) -> &HeaderBytes {
        match mode {
            Mode::Deterministic => &self.deterministic,
            Mode::Randomised => &self.randomised,
        }
    }

    /// Seals `plain` into the beginning of `sealed`. Returns the number of bytes written.
    ///
    /// # Errors
    /// [`ColumnError::TooLong`], [`ColumnError::BufferTooSmall`], [`ColumnError::NoRandom`].
    pub fn seal(
        &self,
        mode: Mode,
        type_code: TypeCode,
        plain: &[u8],
        sealed: &mut [u8],
    ) -> Result<usize, ColumnError> {
        if plain.len() > MAX_PLAIN_BYTES {
            return Err(ColumnError::TooLong);
        }
        let len = self.sealed_len(mode, plain.len());
        let header = self.header(mode);
        let sealed = sealed.get_mut(..len).ok_or(ColumnError::BufferTooSmall)?;
        let (head, body) = sealed.split_at_mut(header.get().len());
        head.copy_from_slice(header.get());
        match mode {
            Mode::Deterministic => {
                let (iv, body) = body.split_first_chunk_mut().ok_or(ColumnError::Internal)?;
                *iv = self.siv.seal(&self.associated_of(type_code), plain, body)?;
            }
            Mode::Randomised => {
                let (nonce, body) =
                    body.split_first_chunk_mut::<NONCE_BYTES>().ok_or(ColumnError::Internal)?;
                let (body, tag) = body.split_last_chunk_mut().ok_or(ColumnError::Internal)?;
                fill_random(nonce)?;
                let associated = AssociatedData::new(header, self.domain, type_code);
                *tag = self.gcm.seal(nonce, associated.get(), plain, body)?;
            }
        }
        Ok(len)
    }

    /// Opens `sealed` into the beginning of `plain`. Returns the number of bytes written. If the
    /// value is not authentic, the bytes written to `plain` are zeroed.
    ///
    /// # Errors
    /// [`ColumnError::NotSealed`], [`ColumnError::OtherMode`], [`ColumnError::OtherVersion`],
    /// [`ColumnError::NotAuthentic`], [`ColumnError::BufferTooSmall`].
    pub fn open(
        &self,
        mode: Mode,
        type_code: TypeCode,
        sealed: &[u8],
        plain: &mut [u8],
    ) -> Result<usize, ColumnError> {
        let (header, body) = Header::parse(sealed)?;
        if header.mode != mode {
            return Err(ColumnError::OtherMode);
        }
        if header.key_version != self.key_version {
            return Err(ColumnError::OtherVersion);
        }
        let len = body.len().checked_sub(mode.overhead_bytes()).ok_or(ColumnError::NotSealed)?;
        let plain = plain.get_mut(..len).ok_or(ColumnError::BufferTooSmall)?;
        match mode {
            Mode::Deterministic => {
                let (iv, body) = body.split_first_chunk().ok_or(ColumnError::NotSealed)?;
                self.siv.open(&self.associated_of(type_code), iv, body, plain)?;
            }
            Mode::Randomised => {
                let (nonce, body) = body.split_first_chunk().ok_or(ColumnError::NotSealed)?;
                let (body, tag) =
                    body.split_last_chunk::<TAG_BYTES>().ok_or(ColumnError::NotSealed)?;
                let associated = AssociatedData::new(&self.randomised, self.domain, type_code);
                self.gcm.open(*nonce, associated.get(), body, tag, plain)?;
            }
        }
        Ok(len)
    }

    /// S2V over the associated data: precomputed for short type codes, computed here for the
    /// others.
    fn associated_of(&self, type_code: TypeCode) -> Associated {
        let kept = usize::try_from(type_code.0).ok().and_then(|code| self.associated.get(code));
        kept.copied().unwrap_or_else(|| {
            let data = AssociatedData::new(&self.deterministic, self.domain, type_code);
            self.siv.associate(&[data.get()])
        })
    }
}

impl Drop for ColumnKey {
    fn drop(&mut self) {
        self.associated.iter_mut().for_each(Zeroize::zeroize);
    }
}

impl fmt::Debug for ColumnKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ColumnKey of domain {} version {}", self.domain.0, self.key_version)
    }
}

/// header || domain (u64) || type code (u8); above 63: header || domain (u64) || 0 || type code
/// (u32).
struct AssociatedData {
    bytes: [u8; MAX_HEADER_BYTES + 8 + 5],
    len: usize,
}

impl AssociatedData {
    fn new(header: &HeaderBytes, domain: Domain, type_code: TypeCode) -> AssociatedData {
        let short = type_code.0 <= MAX_SHORT_TYPE_CODE;
        let [a, b, c, d] = type_code.0.to_le_bytes();
        let (code, code_len) = if short { ([a, 0, 0, 0, 0], 1) } else { ([0, a, b, c, d], 5) };
        let header = header.get();
        let parts = header.iter().copied().chain(domain.0.to_le_bytes()).chain(code);
        let mut bytes = [0; MAX_HEADER_BYTES + 8 + 5];
        for (to, from) in bytes.iter_mut().zip(parts) {
            *to = from;
        }
        AssociatedData { bytes, len: header.len() + 8 + code_len }
    }

    fn get(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// The length of an output of HKDF, in bytes.
pub(crate) struct Length(pub(crate) usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}
