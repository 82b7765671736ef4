//! Parsers for texts of the dynamic linker: the list of libraries that `ldconfig` writes, and the
//! variables in the paths of a library. No list, however broken, makes this code read beyond its
//! bounds. This file uses nothing of the crate, so that `tests/fuzz/` can compile it alone.

use core::ffi::CStr;
use std::collections::TryReserveError;

const CACHE_MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const CACHE_HEAD: usize = 48;
const CACHE_ENTRY: usize = 24;

/// No memory.
#[derive(Debug)]
pub struct NoMemory;

impl From<TryReserveError> for NoMemory {
    fn from(_: TryReserveError) -> NoMemory {
        NoMemory
    }
}

/// Calls `visit` with each path that the list of `ldconfig` has for `name`. A file that has not the
/// format of glibc 2.2 and newer yields no path.
pub fn for_each_in_cache(
    cache: &[u8],
    name: &[u8],
    visit: &mut dyn FnMut(&[u8]) -> Result<(), NoMemory>,
) -> Result<(), NoMemory> {
    let Some(base) = new_form(cache) else { return Ok(()) };
    let u32_at = |at: usize| -> Option<usize> {
        let bytes = base.get(at..)?.first_chunk()?;
        usize::try_from(u32::from_le_bytes(*bytes)).ok()
    };
    let text = |at: usize| Some(CStr::from_bytes_until_nul(base.get(at..)?).ok()?.to_bytes());
    for index in 0..u32_at(20).unwrap_or(0) {
        let entry = CACHE_HEAD + index * CACHE_ENTRY;
        let (Some(key), Some(value)) = (u32_at(entry + 4), u32_at(entry + 8)) else { break };
        // Compares the beginning first, which avoids a search for the end of every name.
        let starts = base.get(key..).is_some_and(|rest| rest.starts_with(name));
        if starts
            && base.get(key + name.len()) == Some(&0)
            && let Some(path) = text(value)
        {
            visit(path)?;
        }
    }
    Ok(())
}

/// The part of the file that its offsets are relative to; a part in the older format may precede
/// it.
fn new_form(cache: &[u8]) -> Option<&[u8]> {
    if cache.starts_with(CACHE_MAGIC) {
        return Some(cache);
    }
    let old = cache.strip_prefix(b"ld.so-1.7.0\0")?;
    let count = u32::from_le_bytes(*old.first_chunk()?);
    let at = 16 + usize::try_from(count).ok()?.checked_mul(12)?;
    cache.get(at.next_multiple_of(8)..).filter(|rest| rest.starts_with(CACHE_MAGIC))
}

/// A path with `$ORIGIN` and `$LIB` expanded; `None` if it has another variable, which only the
/// linker knows.
pub fn expanded(
    path: &[u8],
    origin: &[u8],
    lib: &dyn Fn() -> &'static str,
) -> Result<Option<Vec<u8>>, NoMemory> {
    let mut out = Vec::new();
    out.try_reserve(path.len() + 2 * origin.len() + 64)?;
    let mut rest = path;
    while let Some((first, behind)) = rest.split_first() {
        if *first != b'$' {
            push(&mut out, &[*first])?;
            rest = behind;
            continue;
        }
        let word = |name: &[u8]| {
            let braced = behind.strip_prefix(b"{").and_then(|text| text.strip_prefix(name));
            braced.and_then(|text| text.strip_prefix(b"}")).or_else(|| behind.strip_prefix(name))
        };
        if let Some(after) = word(b"ORIGIN") {
            push(&mut out, origin)?;
            rest = after;
        } else if let Some(after) = word(b"LIB") {
            push(&mut out, lib().as_bytes())?;
            rest = after;
        } else {
            return Ok(None);
        }
    }
    Ok(Some(out))
}

fn push(out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), NoMemory> {
    out.try_reserve(bytes.len())?;
    out.extend_from_slice(bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_linker_are_put_in() {
        let of = |path: &str| {
            expanded(path.as_bytes(), b"/opt/x", &|| "lib64")
                .unwrap()
                .map(|path| String::from_utf8(path).unwrap())
        };
        assert_eq!(of("$ORIGIN/../lib").as_deref(), Some("/opt/x/../lib"));
        assert_eq!(of("${ORIGIN}").as_deref(), Some("/opt/x"));
        assert_eq!(of("/usr/$LIB/${LIB}x").as_deref(), Some("/usr/lib64/lib64x"));
        assert_eq!(of("/plain").as_deref(), Some("/plain"));
        assert_eq!(of("/$PLATFORM"), None);
    }

    /// No list, however broken, makes the parser read beyond its end.
    #[test]
    fn a_broken_cache_says_nothing() {
        let Ok(mut cache) = std::fs::read("/etc/ld.so.cache") else { return };
        let look = |cache: &[u8]| {
            for_each_in_cache(cache, b"libc.so.6", &mut |_| Ok(())).unwrap();
        };
        for len in [0, 12, 20, 47, 48, 60, 500] {
            look(&cache[..len.min(cache.len())]);
        }
        for at in 0..200.min(cache.len()) {
            let old = cache[at];
            cache[at] = 0xFF;
            look(&cache);
            cache[at] = old;
        }
    }
}
