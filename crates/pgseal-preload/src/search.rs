//! Where the dynamic linker will find a library: `ld.so(8)`, in its order. What it finds has to be
//! looked at before it is loaded, and the linker cannot be asked without its loading it.

use core::ffi::CStr;
use std::collections::TryReserveError;
use std::ffi::CString;

use crate::module::{Mapped, Module, is_ours};
use crate::sys;

/// The list of libraries that `ldconfig` makes.
const CACHE: &CStr = c"/etc/ld.so.cache";
const CACHE_MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const CACHE_HEAD: usize = 48;
const CACHE_ENTRY: usize = 24;
/// What `$LIB` is on Debian and its children; it is `lib64` elsewhere.
const MULTIARCH: &str =
    if cfg!(target_arch = "aarch64") { "lib/aarch64-linux-gnu" } else { "lib/x86_64-linux-gnu" };
/// The last places, of Debian's C library and of others.
const DEFAULT_PLACES: [&str; 8] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
];

/// The value of `LD_LIBRARY_PATH` at the start of the process: the linker looks at no later one.
static LIBRARY_PATH: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();

/// Keeps what the linker has read of the environment.
pub fn start() {
    let _ = LIBRARY_PATH.set(sys::env(c"LD_LIBRARY_PATH").unwrap_or_default());
}

/// What one who asks for a library says about the places.
#[derive(Clone, Copy, Default)]
pub struct Places<'a> {
    /// `DT_RPATH`.
    pub rpath: Option<&'a CStr>,
    /// `DT_RUNPATH`.
    pub runpath: Option<&'a CStr>,
    /// Whether the default places count for it.
    pub no_default: bool,
    /// Its directory, which is `$ORIGIN`.
    pub origin: &'a [u8],
}

impl<'a> Places<'a> {
    /// Of a module at this path.
    pub fn of(module: &Module<'a>, path: &'a [u8]) -> Places<'a> {
        Places {
            rpath: module.rpath(),
            runpath: module.runpath(),
            no_default: module.shuns_default_places(),
            origin: directory(path),
        }
    }
}

/// The directory of a path.
fn directory(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(0) => b"/",
        Some(at) => &path[..at],
        None => b".",
    }
}

/// A library that was found.
pub struct Found {
    /// Its path.
    pub path: CString,
    /// Its bytes.
    pub map: Mapped,
}

/// No memory.
#[derive(Debug)]
pub struct NoMemory;

impl From<TryReserveError> for NoMemory {
    fn from(_: TryReserveError) -> NoMemory {
        NoMemory
    }
}

/// One search after another, with what they share.
#[derive(Default)]
pub struct Search {
    cache: Option<Option<Mapped>>,
}

impl Search {
    /// What the linker would take for `name`. `chain` is who asks, then who had that one loaded, and
    /// so on to the program. Variants for newer processors are given as well as the plain file: which
    /// of them is taken is the linker's affair.
    pub fn find(&mut self, name: &[u8], chain: &[Places<'_>]) -> Result<Vec<Found>, NoMemory> {
        let mut found = Vec::new();
        let asks = chain.first().copied().unwrap_or_default();
        if name.contains(&b'/') {
            if let Some(path) = expanded(name, asks.origin)? {
                take(&path, &mut found)?;
            }
            return Ok(found);
        }
        if asks.runpath.is_none() {
            for place in chain {
                if let Some(list) = place.rpath {
                    in_list(list.to_bytes(), place.origin, name, &mut found)?;
                    if !found.is_empty() {
                        return Ok(found);
                    }
                }
            }
        }
        let program = chain.last().copied().unwrap_or_default();
        let library_path = LIBRARY_PATH.get().map_or(&[][..], Vec::as_slice);
        for (list, origin) in
            [(Some(library_path), program.origin), (asks.runpath.map(CStr::to_bytes), asks.origin)]
        {
            in_list(list.unwrap_or_default(), origin, name, &mut found)?;
            if !found.is_empty() {
                return Ok(found);
            }
        }
        if asks.no_default {
            return Ok(found);
        }
        let cache = self.cache.get_or_insert_with(|| Mapped::new(CACHE));
        if let Some(cache) = cache {
            in_cache(cache.bytes(), name, &mut found)?;
        }
        for dir in DEFAULT_PLACES {
            if !found.is_empty() {
                break;
            }
            in_directory(dir.as_bytes(), name, &mut found)?;
        }
        Ok(found)
    }
}

/// A copy as a C string; `None` if that cannot be one.
pub fn owned(bytes: &[u8]) -> Result<Option<CString>, NoMemory> {
    let mut text = Vec::new();
    text.try_reserve_exact(bytes.len() + 1)?;
    text.extend_from_slice(bytes);
    Ok(CString::new(text).ok())
}

/// Looks at a path, and takes it if it is an object of this machine.
fn take(path: &[u8], found: &mut Vec<Found>) -> Result<(), NoMemory> {
    let Some(path) = owned(path)? else { return Ok(()) };
    if let Some(map) = Mapped::new(&path).filter(|map| is_ours(map.bytes())) {
        found.try_reserve(1)?;
        found.push(Found { path, map });
    }
    Ok(())
}

/// In a list of directories, to the first that has it.
fn in_list(
    list: &[u8],
    origin: &[u8],
    name: &[u8],
    found: &mut Vec<Found>,
) -> Result<(), NoMemory> {
    for dir in list.split(|byte| matches!(byte, b':' | b';')) {
        if list.is_empty() || !found.is_empty() {
            break;
        }
        // An empty entry is the working directory.
        let dir = if dir.is_empty() { &b"."[..] } else { dir };
        if let Some(dir) = expanded(dir, origin)? {
            in_directory(&dir, name, found)?;
        }
    }
    Ok(())
}

fn in_directory(dir: &[u8], name: &[u8], found: &mut Vec<Found>) -> Result<(), NoMemory> {
    const LEVELS: [&[u8]; 4] =
        [b"", b"/glibc-hwcaps/x86-64-v2", b"/glibc-hwcaps/x86-64-v3", b"/glibc-hwcaps/x86-64-v4"];
    let mut path = Vec::new();
    path.try_reserve(dir.len() + name.len() + 32)?;
    path.extend_from_slice(dir);
    path.extend_from_slice(b"/glibc-hwcaps");
    let variants = sys::c_path(&path).is_ok_and(|path| sys::stat(&path).is_some());
    for level in &LEVELS[..if variants { LEVELS.len() } else { 1 }] {
        path.truncate(dir.len());
        path.extend_from_slice(level);
        path.push(b'/');
        path.extend_from_slice(name);
        take(&path, found)?;
    }
    Ok(())
}

/// In the list of `ldconfig`; a file that is not of the form of glibc 2.2 and newer says nothing.
fn in_cache(cache: &[u8], name: &[u8], found: &mut Vec<Found>) -> Result<(), NoMemory> {
    let Some(base) = new_form(cache) else { return Ok(()) };
    let u32_at = |at: usize| -> Option<usize> {
        let bytes = base.get(at..)?.first_chunk()?;
        usize::try_from(u32::from_le_bytes(*bytes)).ok()
    };
    let text = |at: usize| Some(CStr::from_bytes_until_nul(base.get(at..)?).ok()?.to_bytes());
    for index in 0..u32_at(20).unwrap_or(0) {
        let entry = CACHE_HEAD + index * CACHE_ENTRY;
        let (Some(key), Some(value)) = (u32_at(entry + 4), u32_at(entry + 8)) else { break };
        // Without its end, which is not looked for in every name.
        let starts = base.get(key..).is_some_and(|rest| rest.starts_with(name));
        if starts
            && base.get(key + name.len()) == Some(&0)
            && let Some(path) = text(value)
        {
            take(path, found)?;
        }
    }
    Ok(())
}

/// The part of the file from which its offsets count; an older form may stand before it.
fn new_form(cache: &[u8]) -> Option<&[u8]> {
    if cache.starts_with(CACHE_MAGIC) {
        return Some(cache);
    }
    let old = cache.strip_prefix(b"ld.so-1.7.0\0")?;
    let count = u32::from_le_bytes(*old.first_chunk()?);
    let at = 16 + usize::try_from(count).ok()?.checked_mul(12)?;
    cache.get(at.next_multiple_of(8)..).filter(|rest| rest.starts_with(CACHE_MAGIC))
}

/// A path with `$ORIGIN` and `$LIB` in it put in; `None` if it has something else that only the
/// linker knows.
fn expanded(path: &[u8], origin: &[u8]) -> Result<Option<Vec<u8>>, NoMemory> {
    let mut out = Vec::new();
    out.try_reserve(path.len() + 2 * origin.len() + 64)?;
    let mut rest = path;
    while let Some((first, behind)) = rest.split_first() {
        if *first != b'$' {
            out.push(*first);
            rest = behind;
            continue;
        }
        let word = |name: &[u8]| {
            let braced = behind.strip_prefix(b"{").and_then(|text| text.strip_prefix(name));
            braced.and_then(|text| text.strip_prefix(b"}")).or_else(|| behind.strip_prefix(name))
        };
        if let Some(after) = word(b"ORIGIN") {
            out.try_reserve(origin.len() + after.len())?;
            out.extend_from_slice(origin);
            rest = after;
        } else if let Some(after) = word(b"LIB") {
            let multiarch = sys::stat(c"/etc/debian_version").is_some();
            out.extend_from_slice(if multiarch { MULTIARCH } else { "lib64" }.as_bytes());
            rest = after;
        } else {
            return Ok(None);
        }
    }
    Ok(Some(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_linker_are_put_in() {
        let of = |path: &str| {
            expanded(path.as_bytes(), b"/opt/x")
                .unwrap()
                .map(|path| String::from_utf8(path).unwrap())
        };
        assert_eq!(of("$ORIGIN/../lib").as_deref(), Some("/opt/x/../lib"));
        assert_eq!(of("${ORIGIN}").as_deref(), Some("/opt/x"));
        assert_eq!(of("/plain").as_deref(), Some("/plain"));
        assert_eq!(of("/$PLATFORM"), None);
    }

    #[test]
    fn libraries_of_the_system_are_found() {
        let found = Search::default().find(b"libc.so.6", &[]).unwrap();
        assert!(found[0].path.to_bytes().ends_with(b"/libc.so.6"), "{:?}", found[0].path);
        let module = Module::of_file(found[0].map.bytes()).unwrap();
        assert_eq!(module.soname(), Some(c"libc.so.6"));
        assert!(Search::default().find(b"libno-such.so.7", &[]).unwrap().is_empty());
    }

    /// No list, however broken, makes it read beyond its end.
    #[test]
    fn a_broken_cache_says_nothing() {
        let Ok(mut cache) = std::fs::read("/etc/ld.so.cache") else { return };
        for len in [0, 12, 20, 47, 48, 60, 500] {
            in_cache(&cache[..len.min(cache.len())], b"libc.so.6", &mut Vec::new()).unwrap();
        }
        for at in 0..200.min(cache.len()) {
            let old = cache[at];
            cache[at] = 0xFF;
            in_cache(&cache, b"libc.so.6", &mut Vec::new()).unwrap();
            cache[at] = old;
        }
    }
}
