//! Where the dynamic linker will find a library: `ld.so(8)`, in its order. What it finds has to be
//! looked at before it is loaded, and the linker cannot be asked without its loading it.

use core::ffi::CStr;
use std::ffi::CString;

use crate::os::linker;
pub use crate::os::linker::NoMemory;
use crate::os::mapped::Mapped;
use crate::os::module::{Module, is_ours};
use crate::os::sys;

/// The list of libraries that `ldconfig` makes.
const CACHE: &CStr = c"/etc/ld.so.cache";
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
            linker::for_each_in_cache(cache.bytes(), name, &mut |path| take(path, &mut found))?;
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

/// A path with the linker's words put in; `None` if it has one that only the linker knows.
fn expanded(path: &[u8], origin: &[u8]) -> Result<Option<Vec<u8>>, NoMemory> {
    let lib = || {
        let multiarch = sys::stat(c"/etc/debian_version").is_some();
        if multiarch { MULTIARCH } else { "lib64" }
    };
    linker::expanded(path, origin, &lib)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_of_the_system_are_found() {
        let found = Search::default().find(b"libc.so.6", &[]).unwrap();
        assert!(found[0].path.to_bytes().ends_with(b"/libc.so.6"), "{:?}", found[0].path);
        let module = Module::of_file(found[0].map.bytes()).unwrap();
        assert_eq!(module.soname(), Some(c"libc.so.6"));
        assert!(Search::default().find(b"libno-such.so.7", &[]).unwrap().is_empty());
    }
}
