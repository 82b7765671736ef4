//! The C functions for KEKs, wrapped column keys, column keys and raw keys.

use core::ffi::{c_char, c_int};

use super::handles::{borrow, free, give};
use super::{bytes, bytes_mut, call, need, put};
use crate::error::ColumnError;
use crate::kek::{Argon2idCost, Kek, WRAPPED_BYTES};
use crate::key::{ColumnKey, Domain, KEY_BYTES};
use crate::raw::{RawKey, RawMode};

/// `pgseal_column_kek_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgseal_column_kek_new(
    kek: *const u8,
    kek_len: usize,
    handle: *mut *mut Kek,
) -> c_int {
    call(|| {
        need(handle)?;
        // SAFETY: the contract of the header.
        let kek = Kek::new(unsafe { bytes(kek, kek_len) }?)?;
        // SAFETY: the contract of the header.
        unsafe { give(handle, kek) }
    })
}

/// `pgseal_column_kek_from_passphrase`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgseal_column_kek_from_passphrase(
    passphrase: *const u8,
    passphrase_len: usize,
    salt: *const u8,
    salt_len: usize,
    memory_kib: u32,
    passes: u32,
    lanes: u32,
    handle: *mut *mut Kek,
) -> c_int {
    call(|| {
        need(handle)?;
        // SAFETY: the contract of the header.
        let passphrase = unsafe { bytes(passphrase, passphrase_len) }?;
        // SAFETY: the contract of the header.
        let salt = unsafe { bytes(salt, salt_len) }?;
        let cost = Argon2idCost { memory_kib, passes, lanes };
        let kek = Kek::from_passphrase(passphrase, salt, cost)?;
        // SAFETY: the contract of the header.
        unsafe { give(handle, kek) }
    })
}

/// `pgseal_column_kek_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgseal_column_kek_free(handle: *mut Kek) {
    // SAFETY: the contract of the header.
    unsafe { free(handle) };
}

/// `pgseal_column_wrap_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgseal_column_wrap_new(
    kek: *const Kek,
    domain_id: u64,
    key_version: u32,
    wrapped: *mut [u8; WRAPPED_BYTES],
) -> c_int {
    call(|| {
        need(wrapped)?;
        // SAFETY: the contract of the header.
        let new = unsafe { borrow(kek) }?.wrap_new(Domain(domain_id), key_version)?;
        // SAFETY: the contract of the header.
        unsafe { put(wrapped, new) }
    })
}

/// `pgseal_column_wrap`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgseal_column_wrap(
    kek: *const Kek,
    domain_id: u64,
    key_version: u32,
    column_key: *const u8,
    column_key_len: usize,
    wrapped: *mut [u8; WRAPPED_BYTES],
) -> c_int {
    call(|| {
        need(wrapped)?;
        // SAFETY: the contract of the header.
        let column_key: &[u8; KEY_BYTES] = unsafe { bytes(column_key, column_key_len) }?
            .try_into()
            .map_err(|_| ColumnError::KeyLength)?;
        // SAFETY: the contract of the header.
        let new = unsafe { borrow(kek) }?.wrap(Domain(domain_id), key_version, column_key)?;
        // SAFETY: the contract of the header.
        unsafe { put(wrapped, new) }
    })
}

/// `pgseal_column_rewrap`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgseal_column_rewrap(
    from: *const Kek,
    to: *const Kek,
    domain_id: u64,
    key_version: u32,
    wrapped: *const u8,
    wrapped_len: usize,
    rewrapped: *mut [u8; WRAPPED_BYTES],
) -> c_int {
    call(|| {
        need(rewrapped)?;
        // SAFETY: the contract of the header.
        let old = unsafe { bytes(wrapped, wrapped_len) }?;
        // SAFETY: the contract of the header.
        let from = unsafe { borrow(from) }?;
        // SAFETY: the contract of the header.
        let new = unsafe { borrow(to) }?.rewrap(from, Domain(domain_id), key_version, old)?;
        // SAFETY: the contract of the header.
        unsafe { put(rewrapped, new) }
    })
}

/// `pgseal_column_unwrap`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgseal_column_unwrap(
    kek: *const Kek,
    domain_id: u64,
    key_version: u32,
    wrapped: *const u8,
    wrapped_len: usize,
    column_key: *mut [u8; KEY_BYTES],
) -> c_int {
    call(|| {
        need(column_key)?;
        // SAFETY: the contract of the header.
        let wrapped = unsafe { bytes(wrapped, wrapped_len) }?;
        // SAFETY: the contract of the header.
        let key = unsafe { borrow(kek) }?.unwrap(Domain(domain_id), key_version, wrapped)?;
        // SAFETY: the contract of the header.
        let out = unsafe { bytes_mut(column_key.cast(), KEY_BYTES) }?;
        out.copy_from_slice(&*key);
        Ok(())
    })
}

/// `pgseal_column_key_unwrap`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgseal_column_key_unwrap(
    kek: *const Kek,
    domain_id: u64,
    key_version: u32,
    wrapped: *const u8,
    wrapped_len: usize,
    handle: *mut *mut ColumnKey,
) -> c_int {
    call(|| {
        need(handle)?;
        // SAFETY: the contract of the header.
        let wrapped = unsafe { bytes(wrapped, wrapped_len) }?;
        // SAFETY: the contract of the header.
        let key = unsafe { borrow(kek) }?.column_key(Domain(domain_id), key_version, wrapped)?;
        // SAFETY: the contract of the header.
        unsafe { give(handle, key) }
    })
}

/// `pgseal_column_key_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgseal_column_key_new(
    material: *const u8,
    material_len: usize,
    domain_id: u64,
    key_version: u32,
    handle: *mut *mut ColumnKey,
) -> c_int {
    call(|| {
        need(handle)?;
        // SAFETY: the contract of the header.
        let material = unsafe { bytes(material, material_len) }?;
        let key = ColumnKey::new(material, Domain(domain_id), key_version)?;
        // SAFETY: the contract of the header.
        unsafe { give(handle, key) }
    })
}

/// `pgseal_column_key_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgseal_column_key_free(handle: *mut ColumnKey) {
    // SAFETY: the contract of the header.
    unsafe { free(handle) };
}

/// `pgseal_column_key_domain`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgseal_column_key_domain(handle: *const ColumnKey) -> u64 {
    // SAFETY: the contract of the header.
    unsafe { borrow(handle) }.map_or(0, |key| key.domain().0)
}

/// `pgseal_column_key_version`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgseal_column_key_version(handle: *const ColumnKey) -> u32 {
    // SAFETY: the contract of the header.
    unsafe { borrow(handle) }.map_or(0, ColumnKey::key_version)
}

/// `pgseal_column_raw_mode`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgseal_column_raw_mode(
    name: *const c_char,
    name_len: usize,
    mode: *mut c_int,
) -> c_int {
    call(|| {
        need(mode)?;
        // SAFETY: the contract of the header.
        let name = unsafe { bytes(name.cast(), name_len) }?;
        let name = core::str::from_utf8(name).map_err(|_| ColumnError::BadArgument)?;
        let found = RawMode::from_name(name).ok_or(ColumnError::BadArgument)?;
        // SAFETY: the contract of the header.
        unsafe { put(mode, found.number()) }
    })
}

/// `pgseal_column_raw_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgseal_column_raw_new(
    key: *const u8,
    key_len: usize,
    mode: c_int,
    handle: *mut *mut RawKey,
) -> c_int {
    call(|| {
        need(handle)?;
        // SAFETY: the contract of the header.
        let key = unsafe { bytes(key, key_len) }?;
        let mode = RawMode::from_number(mode).ok_or(ColumnError::BadArgument)?;
        let raw = RawKey::new(key, mode)?;
        // SAFETY: the contract of the header.
        unsafe { give(handle, raw) }
    })
}

/// `pgseal_column_raw_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pgseal_column_raw_free(handle: *mut RawKey) {
    // SAFETY: the contract of the header.
    unsafe { free(handle) };
}
