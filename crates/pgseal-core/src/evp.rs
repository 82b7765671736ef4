//! AES-XTS, AES-CTR and GMAC over two pieces through AWS-LC's EVP interface, which `aws-lc-rs` does
//! not offer; and a hint to the processor.
//!
//! XTS-AES-256 is AWS-LC's own; XTS-AES-128, which AWS-LC does not have, is put together from its
//! AES-128-ECB as IEEE 1619, section 5.3 describes, for data of whole 16-byte blocks. Tests check
//! both against the standard's vectors.

#![allow(unsafe_code)]

use core::ptr;
use std::ptr::NonNull;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use pgseal_crypto::{Gcm, NonceBytes, Service, TagBytes, sys};

use crate::error::SealError;
use crate::memory::KeyBytes;

const ENCRYPT: i32 = 1;
const DECRYPT: i32 = 0;

/// Asks the processor to load the start of `memory` into its cache, without waiting for it.
#[inline]
pub fn prefetch<T: ?Sized>(memory: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint; it reads nothing and cannot fault, whatever the address.
        unsafe { _mm_prefetch(core::ptr::from_ref(memory).cast(), _MM_HINT_T0) };
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above (PRFM).
    unsafe {
        core::arch::asm!(
            "prfm pldl1keep, [{at}]",
            at = in(reg) core::ptr::from_ref(memory).cast::<u8>(),
            options(readonly, nostack, preserves_flags),
        );
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = memory;
}

/// An initialised `EVP_CIPHER_CTX` with its key schedule.
pub(crate) struct Context(NonNull<sys::EVP_CIPHER_CTX>);

// SAFETY: a context is a plain heap object without thread affinity; it is only used through
// `&mut self`, so never by two threads at once.
unsafe impl Send for Context {}

impl Context {
    /// Sets up `cipher` with `key`, whose length must be the cipher's.
    fn new(
        cipher: *const sys::EVP_CIPHER,
        key: &[u8],
        direction: i32,
    ) -> Result<Context, SealError> {
        // SAFETY: no arguments; returns null or a fresh context that we own.
        let raw = unsafe { sys::EVP_CIPHER_CTX_new() };
        let context = Context(NonNull::new(raw).ok_or(SealError::OutOfMemory)?);
        // SAFETY: `cipher` is one of AWS-LC's static cipher tables.
        let wanted = unsafe { sys::EVP_CIPHER_key_length(cipher) };
        if wanted as usize != key.len() {
            return Err(SealError::Cipher("key length"));
        }
        // SAFETY: the context is ours, the cipher static, and `key` has the length that the cipher
        // reads; no IV is given yet.
        let ok = unsafe {
            sys::EVP_CipherInit_ex(
                context.0.as_ptr(),
                cipher,
                ptr::null_mut(),
                key.as_ptr(),
                ptr::null(),
                direction,
            )
        };
        if ok != 1 {
            // All of our ciphers accept a key of the right length, except that XTS refuses equal
            // halves, which `Xts::new` has already refused. So the only possible cause is a lack of
            // memory for the key schedule.
            return Err(SealError::OutOfMemory);
        }
        // SAFETY: the context is initialised; padding off is valid for every cipher.
        unsafe { sys::EVP_CIPHER_CTX_set_padding(context.0.as_ptr(), 0) };
        Ok(context)
    }

    /// Starts a message with a 16-byte IV, keeping the key schedule.
    fn start(&mut self, iv: &[u8; 16]) -> Result<(), SealError> {
        // SAFETY: the context is initialised with key and direction (-1 keeps it); every cipher
        // that we give an IV reads 16 bytes of it.
        let ok = unsafe {
            sys::EVP_CipherInit_ex(
                self.0.as_ptr(),
                ptr::null(),
                ptr::null_mut(),
                ptr::null(),
                iv.as_ptr(),
                -1,
            )
        };
        if ok == 1 { Ok(()) } else { Err(SealError::Cipher("IV rejected")) }
    }

    /// Runs the cipher over `data` in place.
    fn run(&mut self, data: &mut [u8]) -> Result<(), SealError> {
        let pointer = data.as_mut_ptr();
        // SAFETY: `pointer` is valid for reads and writes of `data.len()` bytes; AWS-LC allows
        // input and output to be the same buffer, and without padding none of our ciphers writes
        // more than it reads.
        let done = unsafe { sys::EVP_Cipher(self.0.as_ptr(), pointer, pointer, data.len()) };
        if done >= 0 { Ok(()) } else { Err(SealError::Cipher("data rejected")) }
    }

    /// Runs the cipher from `input` to `output` of the same length.
    fn run_between(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), SealError> {
        if input.len() != output.len() {
            return Err(SealError::Cipher("buffer length"));
        }
        // SAFETY: both buffers are valid for `input.len()` bytes and do not overlap (one is
        // borrowed mutably); no cipher of ours writes more than it reads.
        let done = unsafe {
            sys::EVP_Cipher(self.0.as_ptr(), output.as_mut_ptr(), input.as_ptr(), input.len())
        };
        if done >= 0 { Ok(()) } else { Err(SealError::Cipher("data rejected")) }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context is ours and not used after this; AWS-LC wipes the key schedule.
        unsafe { sys::EVP_CIPHER_CTX_free(self.0.as_ptr()) };
    }
}

/// XTS-AES over data units of up to 8192 bytes, whole 16-byte blocks only.
pub(crate) struct Xts(XtsKind);

enum XtsKind {
    Native { encrypt: Context, decrypt: Context },
    FromEcb { encrypt: Context, decrypt: Context, tweak: Context },
}

impl Xts {
    /// A cipher for two independent keys, one behind the other: 32 bytes for XTS-AES-128, 64 for
    /// XTS-AES-256. Equal halves are refused (FIPS 140-3 IG C.I).
    pub(crate) fn new(keys: &[u8]) -> Result<Xts, SealError> {
        let (data_key, tweak_key) = keys.split_at(keys.len() / 2);
        if data_key == tweak_key {
            return Err(SealError::Cipher("XTS key halves are equal"));
        }
        Ok(Xts(match keys.len() {
            64 => {
                // SAFETY: no arguments; returns a static table.
                let cipher = unsafe { sys::EVP_aes_256_xts() };
                XtsKind::Native {
                    encrypt: Context::new(cipher, keys, ENCRYPT)?,
                    decrypt: Context::new(cipher, keys, DECRYPT)?,
                }
            }
            32 => {
                pgseal_crypto::check(Service::Xts128)?;
                // SAFETY: no arguments; returns a static table.
                let cipher = unsafe { sys::EVP_aes_128_ecb() };
                XtsKind::FromEcb {
                    encrypt: Context::new(cipher, data_key, ENCRYPT)?,
                    decrypt: Context::new(cipher, data_key, DECRYPT)?,
                    tweak: Context::new(cipher, tweak_key, ENCRYPT)?,
                }
            }
            _ => return Err(SealError::Cipher("XTS key length")),
        }))
    }

    /// Encrypts the start of data unit `unit`, from `input` to `output`.
    pub(crate) fn encrypt(
        &mut self,
        unit: u64,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(), SealError> {
        check_blocks(input)?;
        match &mut self.0 {
            XtsKind::Native { encrypt, .. } => {
                encrypt.start(&tweak_of(unit))?;
                encrypt.run_between(input, output)
            }
            XtsKind::FromEcb { encrypt, tweak, .. } => {
                output.copy_from_slice(input);
                run_from_ecb(encrypt, tweak, unit, output)
            }
        }
    }

    /// Decrypts the start of data unit `unit` in place.
    pub(crate) fn decrypt(&mut self, unit: u64, data: &mut [u8]) -> Result<(), SealError> {
        check_blocks(data)?;
        match &mut self.0 {
            XtsKind::Native { decrypt, .. } => {
                decrypt.start(&tweak_of(unit))?;
                decrypt.run(data)
            }
            XtsKind::FromEcb { decrypt, tweak, .. } => run_from_ecb(decrypt, tweak, unit, data),
        }
    }
}

fn check_blocks(data: &[u8]) -> Result<(), SealError> {
    if data.is_empty() || !data.len().is_multiple_of(16) {
        return Err(SealError::Cipher("XTS needs whole blocks"));
    }
    Ok(())
}

/// The tweak of a data unit: its number, little-endian (IEEE 1619, section 5.1).
fn tweak_of(unit: u64) -> [u8; 16] {
    u128::from(unit).to_le_bytes()
}

/// XTS from ECB: `C = E_K1(P xor T) xor T` with `T = E_K2(unit) * alpha^j` (IEEE 1619, 5.3.1).
fn run_from_ecb(
    ecb: &mut Context,
    tweak: &mut Context,
    unit: u64,
    data: &mut [u8],
) -> Result<(), SealError> {
    let mut first = tweak_of(unit);
    tweak.run(&mut first)?;
    let mut power = u128::from_le_bytes(first);
    for chunk in data.chunks_mut(1024) {
        let mut mask = [0_u8; 1024];
        let mask = mask.get_mut(..chunk.len()).ok_or(SealError::Cipher("chunk"))?;
        for cell in mask.chunks_exact_mut(16) {
            cell.copy_from_slice(&power.to_le_bytes());
            power = times_alpha(power);
        }
        xor(chunk, mask);
        ecb.run(chunk)?;
        xor(chunk, mask);
    }
    Ok(())
}

/// Multiplication by the primitive element of GF(2^128) (IEEE 1619, section 5.2).
fn times_alpha(power: u128) -> u128 {
    (power << 1) ^ ((power >> 127) * 0x87)
}

fn xor(data: &mut [u8], mask: &[u8]) {
    data.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
}

/// AES-CTR with a 96-bit nonce and a 32-bit counter from 0.
pub(crate) struct Ctr(Context);

impl Ctr {
    /// A cipher for a key of 16, 24 or 32 bytes.
    pub(crate) fn new(key: &[u8]) -> Result<Ctr, SealError> {
        let cipher = match key.len() {
            // SAFETY: no arguments; returns a static table.
            16 => unsafe { sys::EVP_aes_128_ctr() },
            // SAFETY: as above.
            24 => unsafe { sys::EVP_aes_192_ctr() },
            // SAFETY: as above.
            32 => unsafe { sys::EVP_aes_256_ctr() },
            _ => return Err(SealError::Cipher("CTR key length")),
        };
        Ok(Ctr(Context::new(cipher, key, ENCRYPT)?))
    }

    /// Encrypts `input` into `output` under `nonce`.
    pub(crate) fn seal(
        &mut self,
        nonce: [u8; 12],
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(), SealError> {
        self.0.start(&counter_block(nonce))?;
        self.0.run_between(input, output)
    }

    /// Decrypts `data` in place under `nonce`.
    pub(crate) fn open(&mut self, nonce: [u8; 12], data: &mut [u8]) -> Result<(), SealError> {
        self.0.start(&counter_block(nonce))?;
        self.0.run(data)
    }
}

fn counter_block(nonce: [u8; 12]) -> [u8; 16] {
    let mut block = [0_u8; 16];
    block[..12].copy_from_slice(&nonce);
    block
}

/// What the key of a [`Gmac`] is derived for.
const MAC_INFO: &[u8] = b"pgseal wal mac";

/// The key of the MAC of the file with this key: HKDF-SHA256 (RFC 5869), no salt.
fn mac_key(file_key: &[u8]) -> Result<KeyBytes<32>, SealError> {
    let mut key = KeyBytes::<32>::zeros()?;
    // SAFETY: no arguments; returns a static table.
    let sha256 = unsafe { sys::EVP_sha256() };
    // SAFETY: every pointer is valid for the length beside it; a salt of length 0 is not read.
    let ok = unsafe {
        sys::HKDF(
            key.as_mut_ptr(),
            key.len(),
            sha256,
            file_key.as_ptr(),
            file_key.len(),
            ptr::null(),
            0,
            MAC_INFO.as_ptr(),
            MAC_INFO.len(),
        )
    };
    if ok != 1 {
        // The output is short enough, so the only possible cause is a lack of memory.
        return Err(SealError::OutOfMemory);
    }
    Ok(key)
}

/// GMAC (SP 800-38D, section 3) under AES-256, with a key derived from the file key. Takes nothing
/// from the heap after [`Gmac::new`].
pub(crate) enum Gmac {
    /// Over two pieces of memory, with any nonce.
    Pieces(Context),
    /// As AES-GCM without a text, because the FIPS module draws nonces only there. What is
    /// authenticated lies in `room` in one piece.
    Module { key: Gcm, room: Box<[u8]> },
}

impl Gmac {
    /// The longest input: the associated data and the cells of a page.
    const ROOM: usize = 32 + 8192;

    /// The MAC of the file with this key.
    pub(crate) fn new(file_key: &[u8]) -> Result<Gmac, SealError> {
        let key = mac_key(file_key)?;
        if pgseal_crypto::FIPS { Gmac::of_module(&key) } else { Gmac::of_pieces(&key) }
    }

    fn of_pieces(key: &KeyBytes<32>) -> Result<Gmac, SealError> {
        // SAFETY: no arguments; returns a static table.
        let cipher = unsafe { sys::EVP_aes_256_gcm() };
        Ok(Gmac::Pieces(Context::new(cipher, &key[..], ENCRYPT)?))
    }

    fn of_module(key: &KeyBytes<32>) -> Result<Gmac, SealError> {
        let mut room = Vec::new();
        room.try_reserve_exact(Gmac::ROOM).map_err(|_| SealError::OutOfMemory)?;
        room.resize(Gmac::ROOM, 0);
        Ok(Gmac::Module { key: Gcm::new(&key[..])?, room: room.into_boxed_slice() })
    }

    /// Makes the tag over `first` and then `second`. In a FIPS build, `nonce` is replaced.
    pub(crate) fn tag(
        &mut self,
        nonce: &mut NonceBytes,
        first: &[u8],
        second: &[u8],
    ) -> Result<TagBytes, SealError> {
        match self {
            Gmac::Pieces(context) => tag_of_pieces(context, *nonce, [first, second]),
            Gmac::Module { key, room } => {
                Ok(key.seal(nonce, joined(room, first, second)?, &mut [])?)
            }
        }
    }

    /// Whether `tag` is the one over `first` and then `second`.
    pub(crate) fn fits(
        &mut self,
        nonce: NonceBytes,
        tag: &TagBytes,
        first: &[u8],
        second: &[u8],
    ) -> Result<bool, SealError> {
        Ok(match self {
            Gmac::Pieces(context) => {
                let made = tag_of_pieces(context, nonce, [first, second])?;
                verify_slices_are_equal(&made, tag).is_ok()
            }
            Gmac::Module { key, room } => {
                key.open(&nonce, joined(room, first, second)?, tag, &mut []).is_ok()
            }
        })
    }
}

fn joined<'a>(room: &'a mut [u8], first: &[u8], second: &[u8]) -> Result<&'a [u8], SealError> {
    let room = room.get_mut(..first.len() + second.len());
    let room = room.ok_or(SealError::Cipher("buffer length"))?;
    let (one, two) = room.split_at_mut(first.len());
    one.copy_from_slice(first);
    two.copy_from_slice(second);
    Ok(room)
}

fn tag_of_pieces(
    context: &mut Context,
    nonce: NonceBytes,
    pieces: [&[u8]; 2],
) -> Result<TagBytes, SealError> {
    // GCM reads the first 12 bytes.
    context.start(&counter_block(nonce))?;
    for part in pieces {
        // SAFETY: the context is a GCM context with key and nonce; without an output, the
        // input, valid for its length, is associated data.
        let done = unsafe {
            sys::EVP_Cipher(context.0.as_ptr(), ptr::null_mut(), part.as_ptr(), part.len())
        };
        if done < 0 {
            return Err(SealError::Cipher("data not authenticated"));
        }
    }
    // SAFETY: as above; without input and output, the call ends the message.
    let done = unsafe { sys::EVP_Cipher(context.0.as_ptr(), ptr::null_mut(), ptr::null(), 0) };
    let mut tag = [0; 16];
    // SAFETY: the message has ended; the call writes 16 bytes to `tag`.
    let got = unsafe {
        sys::EVP_CIPHER_CTX_ctrl(
            context.0.as_ptr(),
            sys::EVP_CTRL_AEAD_GET_TAG,
            16,
            tag.as_mut_ptr().cast(),
        )
    };
    if done >= 0 && got == 1 { Ok(tag) } else { Err(SealError::Cipher("no tag")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
    }

    /// IEEE 1619-2007, annex B, vectors 1 and 2 (XTS-AES-128; vector 1 has equal halves and is
    /// refused here on purpose) and 10 (XTS-AES-256).
    #[test]
    fn ieee_1619_vectors() {
        assert!(Xts::new(&[0; 32]).is_err());
        let keys = [[0x11; 16], [0x22; 16]].concat();
        match Xts::new(&keys) {
            Ok(mut xts) => {
                let plain = vec![0x44; 32];
                let mut sealed = vec![0; 32];
                xts.encrypt(0x33_3333_3333, &plain, &mut sealed).unwrap();
                assert_eq!(
                    sealed,
                    bytes("c454185e6a16936e39334038acef838bfb186fff7480adc4289382ecd6d394f0")
                );
                xts.decrypt(0x33_3333_3333, &mut sealed).unwrap();
                assert_eq!(sealed, plain);
            }
            Err(error) => assert!(matches!(error, SealError::NotApproved(_)), "{error}"),
        }

        let keys = bytes(concat!(
            "2718281828459045235360287471352662497757247093699959574966967627",
            "3141592653589793238462643383279502884197169399375105820974944592"
        ));
        let mut xts = Xts::new(&keys).unwrap();
        let plain: Vec<u8> = (0..512).map(|i| (i % 256) as u8).collect();
        let mut sealed = vec![0; 512];
        xts.encrypt(0xff, &plain, &mut sealed).unwrap();
        assert_eq!(
            sealed[..32],
            bytes("1c3b3a102f770386e4836c99e370cf9bea00803f5e482357a4ae12d414a3e63b")
        );
        xts.decrypt(0xff, &mut sealed).unwrap();
        assert_eq!(sealed, plain);
    }

    /// The tag is that of AES-256-GCM, from the other interface of AWS-LC, over no text; the key is
    /// that of HKDF-SHA256, from the other interface as well.
    #[test]
    fn gmac_is_gcm_without_a_text() {
        use aws_lc_rs::{aead, hkdf};
        struct Key;
        impl hkdf::KeyType for Key {
            fn len(&self) -> usize {
                32
            }
        }
        let file_key: Vec<u8> = (0..64).collect();
        let mut key = [0; 32];
        let prk = hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(&file_key);
        prk.expand(&[b"pgseal wal mac"], Key).unwrap().fill(&mut key).unwrap();
        let gcm = aead::LessSafeKey::new(aead::UnboundKey::new(&aead::AES_256_GCM, &key).unwrap());
        let derived = mac_key(&file_key).unwrap();
        assert_eq!(derived[..], key);
        for mut mac in [Gmac::of_pieces(&derived).unwrap(), Gmac::of_module(&derived).unwrap()] {
            for (first, second) in [(32, 8192), (32, 16), (0, 0), (5, 11), (32, 8176)] {
                let bytes: Vec<u8> = (0..first + second).map(|i: usize| (i * 7) as u8).collect();
                let nonce = [second as u8; 12];
                let unique = aead::Nonce::assume_unique_for_key(nonce);
                let tag = gcm.seal_in_place_separate_tag(unique, aead::Aad::from(&bytes), &mut []);
                let tag = *tag.unwrap().as_ref().first_chunk().unwrap();
                let (one, two) = bytes.split_at(first);
                assert!(mac.fits(nonce, &tag, one, two).unwrap());
                let mut drawn = nonce;
                let made = mac.tag(&mut drawn, one, two).unwrap();
                assert!(mac.fits(drawn, &made, one, two).unwrap());
                let keeps = matches!(mac, Gmac::Pieces(_)) || !pgseal_crypto::FIPS;
                assert_eq!(keeps, (drawn, made) == (nonce, tag));
                drawn[0] ^= 1;
                assert!(!mac.fits(drawn, &made, one, two).unwrap());
            }
        }
    }

    /// The sealed start of a unit is the same whether the whole unit or only its start is sealed.
    #[test]
    fn prefix_of_a_unit_does_not_depend_on_its_length() {
        for len in [32, 64] {
            let keys: Vec<u8> = (0..len).collect();
            if pgseal_crypto::FIPS && len == 32 {
                continue;
            }
            let mut xts = Xts::new(&keys).unwrap();
            let plain: Vec<u8> = (0..8192_u32).map(|i| (i * 7) as u8).collect();
            let mut whole = vec![0; 8192];
            xts.encrypt(5, &plain, &mut whole).unwrap();
            let mut part = vec![0; 1040];
            xts.encrypt(5, &plain[..1040], &mut part).unwrap();
            assert_eq!(whole[..1040], part);
        }
    }

    /// SP 800-38A, F.5.1 style: with counter block nonce || 0, key stream = E_K(nonce || ctr).
    #[test]
    fn ctr_keystream_is_the_cipher_of_the_counter() {
        // The third block of the key stream must be the ECB encryption of the counter block with
        // counter 2.
        for len in [16_u8, 24, 32] {
            let key: Vec<u8> = (0..len).collect();
            let mut ctr = Ctr::new(&key).unwrap();
            let mut stream = vec![0; 48];
            ctr.seal([9; 12], &[0; 48], &mut stream).unwrap();
            if len == 16 {
                // SAFETY: no arguments; returns a static table.
                let cipher = unsafe { sys::EVP_aes_128_ecb() };
                let mut ecb = Context::new(cipher, &key, ENCRYPT).unwrap();
                let mut block = counter_block([9; 12]);
                block[15] = 2;
                ecb.run(&mut block).unwrap();
                assert_eq!(stream[32..48], block);
            }
            ctr.open([9; 12], &mut stream).unwrap();
            assert_eq!(stream, vec![0; 48]);
        }
    }
}
