//! Finds a library in the same places and the same order as the dynamic linker (`ld.so(8)`). The
//! library must be checked before it is loaded, and the linker cannot be asked without loading the
//! library.

use core::ffi::CStr;
use std::ffi::CString;

use crate::os::linker;
pub use crate::os::linker::NoMemory;
use crate::os::mapped::Mapped;
use crate::os::module::{Module, is_ours};
use crate::os::sys;

/// The list of libraries that `ldconfig` makes.
const CACHE: &CStr = c"/etc/ld.so.cache";
/// The value of `$LIB` on Debian and its derivatives; elsewhere the value is `lib64`.
const MULTIARCH: &str =
    if cfg!(target_arch = "aarch64") { "lib/aarch64-linux-gnu" } else { "lib/x86_64-linux-gnu" };
/// The default directories, of Debian's C library and of others.
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

/// The directories of musl's linker if an administrator named some, and otherwise.
const MUSL_PATH: &CStr = if cfg!(target_arch = "aarch64") {
    c"/etc/ld-musl-aarch64.path"
} else {
    c"/etc/ld-musl-x86_64.path"
};
const MUSL_PLACES: &[u8] = b"/lib:/usr/local/lib:/usr/lib";

/// The value of `LD_LIBRARY_PATH` at the start of the process; the linker ignores later changes.
static LIBRARY_PATH: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();

/// Saves the value that the linker has read from the environment.
pub fn start() {
    let _ = LIBRARY_PATH.set(sys::env(c"LD_LIBRARY_PATH").unwrap_or_default());
}

/// The search settings of an object that needs a library.
#[derive(Clone, Copy, Default)]
pub struct Places<'a> {
    /// `DT_RPATH`.
    pub rpath: Option<&'a CStr>,
    /// `DT_RUNPATH`.
    pub runpath: Option<&'a CStr>,
    /// Whether the object excludes the default directories.
    pub no_default: bool,
    /// The directory of the object, which is `$ORIGIN`.
    pub origin: &'a [u8],
}

impl<'a> Places<'a> {
    /// The search settings of a module at this path.
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
    /// The path of the library.
    pub path: CString,
    /// The bytes of the library.
    pub map: Mapped,
}

/// The directory, below one on the way, of libraries for newer processors, and where they are below
/// that: `glibc-hwcaps`, and on aarch64, up to glibc 2.36, those for its atomic instructions.
const VARIANTS: (&[u8], &[&[u8]]) = if cfg!(target_arch = "aarch64") {
    (b"/atomics", &[b""])
} else {
    (b"/glibc-hwcaps", &[b"/x86-64-v2", b"/x86-64-v3", b"/x86-64-v4"])
};

/// A series of searches, which share the mapped list of `ldconfig`.
#[derive(Default)]
pub struct Search {
    cache: Option<Option<Mapped>>,
}

impl Search {
    /// The files that the linker may load for `name`. `chain` is the object that needs the library,
    /// then the object that had that one loaded, and so on to the program. The result includes
    /// variants for newer processors besides the plain file, since the linker chooses among them.
    pub fn find(&mut self, name: &[u8], chain: &[Places<'_>]) -> Result<Vec<Found>, NoMemory> {
        let mut found = Vec::new();
        let asks = chain.first().copied().unwrap_or_default();
        if name.contains(&b'/') {
            if let Some(path) = expanded(name, asks.origin)? {
                take(&path, &mut found)?;
            }
            return Ok(found);
        }
        if cfg!(target_env = "musl") {
            in_musl(name, chain, &mut found)?;
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

/// The order of musl: `LD_LIBRARY_PATH`, the paths in the object, in the one that needs it and so
/// on to the program, and the directories of the system.
fn in_musl(name: &[u8], chain: &[Places<'_>], found: &mut Vec<Found>) -> Result<(), NoMemory> {
    let program = chain.last().copied().unwrap_or_default();
    let mut look = |list: &[u8], origin: &[u8]| -> Result<bool, NoMemory> {
        for dir in list.split(|byte| matches!(byte, b':' | b'\n')) {
            if !dir.is_empty()
                && let Some(dir) = expanded(dir, origin)?
            {
                in_directory(&dir, name, found)?;
                if !found.is_empty() {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    };
    if look(LIBRARY_PATH.get().map_or(&[][..], Vec::as_slice), program.origin)? {
        return Ok(());
    }
    for place in chain {
        let list = place.runpath.or(place.rpath).map_or(&[][..], CStr::to_bytes);
        if look(list, place.origin)? {
            return Ok(());
        }
    }
    let list = Mapped::new(MUSL_PATH);
    look(list.as_ref().map_or(MUSL_PLACES, Mapped::bytes), b"/")?;
    Ok(())
}

/// A copy as a C string; `None` if the bytes contain a NUL.
pub fn owned(bytes: &[u8]) -> Result<Option<CString>, NoMemory> {
    let mut text = Vec::new();
    text.try_reserve_exact(bytes.len() + 1)?;
    text.extend_from_slice(bytes);
    Ok(CString::new(text).ok())
}

/// Adds the file at a path if it is an object for this machine.
fn take(path: &[u8], found: &mut Vec<Found>) -> Result<(), NoMemory> {
    let Some(path) = owned(path)? else { return Ok(()) };
    if let Some(map) = Mapped::new(&path).filter(|map| is_ours(map.bytes())) {
        found.try_reserve(1)?;
        found.push(Found { path, map });
    }
    Ok(())
}

/// Searches a list of directories up to the first one that has the library.
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
    let (variants, levels) = VARIANTS;
    let mut path = Vec::new();
    path.try_reserve(dir.len() + name.len() + 32)?;
    path.extend_from_slice(dir);
    path.extend_from_slice(variants);
    let has_variants = sys::c_path(&path).is_ok_and(|path| sys::stat(&path).is_some());
    let mut below = |level: Option<&&[u8]>| {
        path.truncate(dir.len());
        if let Some(level) = level {
            path.extend_from_slice(variants);
            path.extend_from_slice(level);
        }
        path.push(b'/');
        path.extend_from_slice(name);
        take(&path, found)
    };
    below(None)?;
    if has_variants { levels.iter().try_for_each(|level| below(Some(level))) } else { Ok(()) }
}

/// A path with the linker's variables expanded; `None` if it has a variable that only the linker
/// knows.
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

    /// The order of musl, which each build has, so that this one is tested with either C library.
    #[test]
    fn musl_looks_in_the_paths_of_all_objects_up_to_the_program() {
        let dir = std::env::temp_dir().join(format!("pgseal-musl-{}", std::process::id()));
        let (near, far) = (dir.join("near"), dir.join("far"));
        for place in [&near, &far] {
            std::fs::create_dir_all(place).unwrap();
            std::fs::copy("/proc/self/exe", place.join("libx.so")).unwrap();
        }
        let path = |dir: &std::path::Path| {
            CString::new([b"/no-such:", dir.as_os_str().as_encoded_bytes()].concat()).unwrap()
        };
        let (runs, needs) = (path(&near), path(&far));
        let of = |runpath| Places { runpath, ..Places::default() };
        let first = |chain: &[Places<'_>]| {
            let mut found = Vec::new();
            in_musl(b"libx.so", chain, &mut found).unwrap();
            found.first().map(|found| found.path.to_string_lossy().into_owned())
        };
        let expected = |dir: &std::path::Path| Some(format!("{}/libx.so", dir.display()));
        assert_eq!(first(&[of(None), of(Some(&runs))]), expected(&near));
        assert_eq!(first(&[of(Some(&needs)), of(Some(&runs))]), expected(&far));
        assert_eq!(first(&[of(None)]), None);
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    #[cfg(target_env = "gnu")]
    fn libraries_of_the_system_are_found() {
        let found = Search::default().find(b"libc.so.6", &[]).unwrap();
        assert!(found[0].path.to_bytes().ends_with(b"/libc.so.6"), "{:?}", found[0].path);
        let module = Module::of_file(found[0].map.bytes()).unwrap();
        assert_eq!(module.soname(), Some(c"libc.so.6"));
        assert!(Search::default().find(b"libno-such.so.7", &[]).unwrap().is_empty());
    }

    /// The linker chooses among the variants, so all of them are checked.
    #[test]
    fn variants_for_newer_processors_are_found_too() {
        let dir = std::env::temp_dir().join(format!("pgseal-search-{}", std::process::id()));
        let (variants, levels) = VARIANTS;
        let level = [&variants[1..], levels[levels.len() - 1]].concat();
        let below = dir.join(str::from_utf8(&level).unwrap());
        std::fs::create_dir_all(&below).unwrap();
        let mut found = Vec::new();
        for (place, wanted) in [(&dir, 1), (&below, 3)] {
            std::fs::copy("/proc/self/exe", place.join("libx.so")).unwrap();
            in_directory(dir.as_os_str().as_encoded_bytes(), b"libx.so", &mut found).unwrap();
            assert_eq!(found.len(), wanted);
        }
        std::fs::remove_dir_all(dir).unwrap();
    }
}
