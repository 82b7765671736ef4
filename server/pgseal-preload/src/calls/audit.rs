//! The audit: if the running program, one of its libraries or a module imports a function of the C
//! library that touches files, the function must be in the table of [`crate::calls::symbols`].
//! Calls of an unknown function would bypass the hooks, so the program does not start, or the
//! module is not loaded.
//!
//! At the start of the program all loaded objects are checked; before a module is loaded, the
//! module and all libraries that will be loaded with it.

use core::ffi::{CStr, c_int, c_void};
use std::collections::BTreeSet;
use std::ffi::CString;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::calls::symbols::{self, Treatment};
use crate::os::log::{self, Shown};
use crate::os::mapped::{Identity, Mapped};
use crate::os::module::{self, Broken, Import, Kind, Module, Origin};
use crate::os::search::{self, NoMemory, Places, Search};
use crate::os::sys;
use crate::place::program;

/// The rank of an object in this process.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rank {
    /// The program itself.
    Program,
    /// A library or a module.
    Library,
}

/// The modules and libraries that the administrator allows despite the audit:
/// `PGSEAL_ALLOW_MODULES`, as set when the program started. Later changes of the environment by
/// code in the server have no effect.
static ALLOWED: OnceLock<Vec<u8>> = OnceLock::new();

/// Ends the process if the program or a library that was loaded with it imports an I/O function
/// that the table does not know or that cannot be made safe.
pub fn check_program() {
    let _ = ALLOWED.set(sys::env(c"PGSEAL_ALLOW_MODULES").unwrap_or_default());
    search::start();
    let mut bad = Vec::new();
    for_each_loaded(&mut |loaded| {
        let rank = if loaded.first { Rank::Program } else { Rank::Library };
        let soname = loaded.module.as_ref().ok().and_then(Module::soname).unwrap_or_default();
        // Parts of the C library are not audited, since the table describes them; nor is this
        // library.
        if loaded.is_own || is_system_library(soname.to_bytes()) {
            return;
        }
        match loaded.module.and_then(|module| bad_imports(&module, rank)) {
            Ok(names) if names.is_empty() => {}
            Ok(names) => bad.push((loaded.path, rank, names.join(", "))),
            Err(Broken) => bad.push((loaded.path, rank, UNREADABLE.to_owned())),
        }
    });
    let name = program::name();
    let mut fatal = false;
    for (path, rank, names) in &bad {
        let path = path.to_bytes();
        if *rank == Rank::Library && is_allowed(path) {
            warn_of(path, path, names);
            continue;
        }
        fatal = true;
        let by = match rank {
            Rank::Program => String::new(),
            Rank::Library => format!(" needs \"{}\", which", Shown(path)),
        };
        log::line(format_args!(
            "FATAL: \"{}\"{by} uses {names} which pgseal does not handle; it is not started, because data could be written unsealed. Use a newer pgseal, or report the program and its version",
            Shown(&name),
        ));
    }
    if fatal {
        // SAFETY: ends the process before it has done anything.
        unsafe { libc::_exit(127) };
    }
}

/// The text of a message in place of the names if they cannot be read.
const UNREADABLE: &str = "calls that cannot be told, because its tables cannot be read, and";

/// Whether the administrator allows this object: by its absolute path, or by its file name.
fn is_allowed(path: &[u8]) -> bool {
    let list = ALLOWED.get().map_or(&[][..], Vec::as_slice);
    list.split(|byte| *byte == b':').any(|entry| {
        !entry.is_empty() && (entry == path || (!entry.contains(&b'/') && entry == base_name(path)))
    })
}

fn base_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

fn warn_of(module: &[u8], object: &[u8], names: &str) {
    let by = if module == object {
        String::new()
    } else {
        format!(" needs \"{}\", which", Shown(object))
    };
    log::line(format_args!(
        "WARNING: \"{}\"{by} uses {names} which pgseal does not handle; it is loaded, because PGSEAL_ALLOW_MODULES names it. What it writes that way is not sealed",
        Shown(module)
    ));
}

/// Checks a module that code at the address `caller` passed to `dlopen`, and all libraries that
/// will be loaded with it. The error is the sentence that says why the module must not be loaded.
pub fn check_load(file: &CStr, caller: usize) -> Result<(), String> {
    let refused = match judge(file, caller) {
        Ok(None) => return Ok(()),
        Ok(Some(refused)) => refused,
        Err(NoMemory) => {
            return Err(format!(
                "\"{}\" cannot be looked at: out of memory",
                Shown(file.to_bytes())
            ));
        }
    };
    let by = match &refused.object {
        Some(object) => format!(" needs \"{}\", which", Shown(object.to_bytes())),
        None => String::new(),
    };
    Err(format!(
        "\"{}\"{by} uses {} which pgseal does not handle; it is not loaded, because data could be written unsealed. Do without this module, report it, or name it in PGSEAL_ALLOW_MODULES",
        Shown(file.to_bytes()),
        refused.names
    ))
}

/// Why a module must not be loaded.
struct Refused {
    /// The library that is the cause, if the cause is not the module itself.
    object: Option<CString>,
    /// The refused functions that the object imports.
    names: String,
}

/// An object that would be loaded.
struct Item {
    path: CString,
    map: Mapped,
    /// The index of the object that needs this one.
    by: Option<usize>,
}

fn judge(file: &CStr, caller: usize) -> Result<Option<Refused>, NoMemory> {
    let loaded = Loaded::now(caller)?;
    if !file.to_bytes().contains(&b'/') && loaded.has(file) {
        return Ok(None);
    }
    let mut search = Search::default();
    let mut items: Vec<Item> = Vec::new();
    // The names for which a file was found: the linker takes the same file for all objects that
    // need the name.
    let mut found_names: Vec<CString> = Vec::new();
    for found in search.find(file.to_bytes(), &[loaded.caller(), loaded.program()])? {
        items.try_reserve(1)?;
        items.push(Item { path: found.path, map: found.map, by: None });
    }
    let mut next = 0;
    while next < items.len() {
        if let Some(refused) = look_at(&items, next, file) {
            return Ok(Some(refused));
        }
        for name in needed_by(&items[next])? {
            if loaded.has(&name) || found_names.contains(&name) {
                continue;
            }
            let brought = search.find(name.to_bytes(), &chain_of(&items, next, &loaded)?)?;
            if !brought.is_empty() {
                found_names.try_reserve(1)?;
                found_names.push(name);
            }
            for found in brought {
                if items.iter().all(|item| item.map.identity != found.map.identity) {
                    items.try_reserve(1)?;
                    items.push(Item { path: found.path, map: found.map, by: Some(next) });
                }
            }
        }
        next += 1;
    }
    Ok(None)
}

/// Checks one object.
fn look_at(items: &[Item], index: usize, file: &CStr) -> Option<Refused> {
    let item = &items[index];
    if is_known_good(&item.map.identity) {
        return None;
    }
    let bad =
        Module::of_file(item.map.bytes()).and_then(|module| bad_imports(&module, Rank::Library));
    let names = match bad {
        Ok(names) if names.is_empty() => {
            remember_good(item.map.identity);
            return None;
        }
        Ok(names) => names.join(", "),
        Err(Broken) => UNREADABLE.to_owned(),
    };
    let object = item.by.map(|_| item.path.clone());
    if is_allowed(item.path.to_bytes()) || is_allowed(items[0].path.to_bytes()) {
        let file = file.to_bytes();
        warn_of(file, object.as_ref().map_or(file, |path| path.to_bytes()), &names);
        return None;
    }
    Some(Refused { object, names })
}

/// The names of the libraries that an object needs.
fn needed_by(item: &Item) -> Result<Vec<CString>, NoMemory> {
    let (mut needed, mut enough) = (Vec::new(), Ok(()));
    let Ok(module) = Module::of_file(item.map.bytes()) else { return Ok(needed) };
    let walked = module.for_each_needed(&mut |name| {
        if enough.is_ok() {
            enough = search::owned(name.to_bytes()).and_then(|name| {
                needed.try_reserve(1)?;
                needed.extend(name);
                Ok(())
            });
        }
    });
    // A broken object was judged before: the administrator allows it.
    let _ = walked;
    enough.map(|()| needed)
}

/// The search settings of an object, of the object that needs it, and so on to the program.
fn chain_of<'a>(
    items: &'a [Item],
    index: usize,
    loaded: &'a Loaded,
) -> Result<Vec<Places<'a>>, NoMemory> {
    let mut chain = Vec::new();
    chain.try_reserve(16)?;
    let mut at = Some(index);
    while let Some(item) = at.and_then(|index| items.get(index)) {
        chain.try_reserve(1)?;
        if let Ok(module) = Module::of_file(item.map.bytes()) {
            chain.push(Places::of(&module, item.path.to_bytes()));
        }
        at = item.by;
    }
    chain.try_reserve(2)?;
    chain.push(loaded.caller());
    chain.push(loaded.program());
    Ok(chain)
}

/// The objects that this process, or the process that it was forked from, has already checked and
/// accepted.
static GOOD: Mutex<Vec<Identity>> = Mutex::new(Vec::new());

fn is_known_good(identity: &Identity) -> bool {
    GOOD.lock().unwrap_or_else(PoisonError::into_inner).contains(identity)
}

/// Caches an accepted object; if memory runs out, the object is checked again next time.
fn remember_good(identity: Identity) {
    let mut good = GOOD.lock().unwrap_or_else(PoisonError::into_inner);
    if good.try_reserve(1).is_ok() {
        good.push(identity);
    }
}

/// The objects that the dynamic linker has loaded.
struct Loaded {
    /// The `DT_SONAME` of each object.
    sonames: Vec<&'static CStr>,
    program: Option<(Module<'static>, Vec<u8>)>,
    caller: Option<(Module<'static>, &'static CStr)>,
}

impl Loaded {
    /// The objects that are loaded now. The caller is the object that has code at this address.
    fn now(caller: usize) -> Result<Loaded, NoMemory> {
        let mut loaded = Loaded { sonames: Vec::new(), program: None, caller: None };
        let mut short = false;
        loaded.sonames.try_reserve(256)?;
        for_each_loaded(&mut |object| {
            // Where nothing can be read, the search has no directories from that object.
            let Ok(module) = object.module else { return };
            if let Some(soname) = module.soname() {
                short |= loaded.sonames.try_reserve(1).is_err();
                if !short {
                    loaded.sonames.push(soname);
                }
            }
            if object.first {
                loaded.program = Some((
                    module,
                    sys::read_link(c"/proc/self/exe").map_or_else(Vec::new, |path| path.to_vec()),
                ));
            } else if object.range.contains(&caller) {
                loaded.caller = Some((module, object.path));
            }
        });
        if short { Err(NoMemory) } else { Ok(loaded) }
    }

    fn has(&self, name: &CStr) -> bool {
        self.sonames.contains(&name)
    }

    fn program(&self) -> Places<'_> {
        self.program
            .as_ref()
            .map_or_else(Places::default, |(module, path)| Places::of(module, path))
    }

    fn caller(&self) -> Places<'_> {
        match &self.caller {
            Some((module, path)) => Places::of(module, path.to_bytes()),
            None => self.program(),
        }
    }
}

/// An object in memory.
struct InMemory {
    /// What its tables say, if they can be read.
    module: Result<Module<'static>, Broken>,
    path: &'static CStr,
    /// Whether the object is the program.
    first: bool,
    /// Whether the object is this library.
    is_own: bool,
    range: core::ops::Range<usize>,
}

/// Calls `visit` with each object that is loaded.
fn for_each_loaded(visit: &mut dyn FnMut(InMemory)) {
    struct Walk<'a> {
        visit: &'a mut dyn FnMut(InMemory),
        first: bool,
    }

    unsafe extern "C" fn next(
        info: *mut libc::dl_phdr_info,
        _len: usize,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: the linker's structure, valid during the call.
        let info = unsafe { &*info };
        // SAFETY: the `walk` that is passed to `dl_iterate_phdr` below.
        let walk = unsafe { &mut *data.cast::<Walk<'_>>() };
        let first = core::mem::take(&mut walk.first);
        // SAFETY: loaded objects. An object that is unloaded later is not used after the call that
        // got it, except for the names in a `dlopen` that races with another thread's `dlclose`.
        let module = unsafe { Module::of_loaded(info) };
        let range = range_of(info);
        let is_own = range.contains(&(next as *const () as usize));
        let path = match info.dlpi_name.is_null() {
            true => c"",
            // SAFETY: the linker's C string, which lives as long as the object.
            false => unsafe { CStr::from_ptr(info.dlpi_name) },
        };
        (walk.visit)(InMemory { module, path, first, is_own, range });
        0
    }

    let mut walk = Walk { visit, first: true };
    // SAFETY: the callback gets `walk` back as its data.
    unsafe { libc::dl_iterate_phdr(Some(next), (&raw mut walk).cast()) };
}

/// The addresses of an object's segments.
fn range_of(info: &libc::dl_phdr_info) -> core::ops::Range<usize> {
    let (mut first, mut end) = (usize::MAX, 0);
    for index in 0..usize::from(info.dlpi_phnum) {
        // SAFETY: within the program headers.
        let header = unsafe { info.dlpi_phdr.add(index) };
        // SAFETY: as above; the linker keeps them mapped.
        let header = unsafe { &*header };
        if header.p_type == libc::PT_LOAD {
            let start = info.dlpi_addr.wrapping_add(header.p_vaddr) as usize;
            first = first.min(start);
            end = end.max(start + header.p_memsz as usize);
        }
    }
    first..end
}

/// The imported functions of an object whose calls would bypass the hooks.
fn bad_imports(module: &Module<'_>, rank: Rank) -> Result<Vec<String>, Broken> {
    let mut bad = Vec::new();
    module.for_each_import(&mut |import| {
        if goes_past_the_seal(&import, module, rank) {
            bad.push(import.name.to_string_lossy().into_owned());
        }
    })?;
    bad.sort_unstable();
    bad.dedup();
    Ok(bad)
}

/// The file functions of the C library that an object imports.
#[derive(Debug, Default)]
pub struct Imports {
    /// Functions that this library exports in their place.
    pub hooked: BTreeSet<String>,
    /// Functions that are left alone.
    pub passed: BTreeSet<String>,
    /// Functions that bypass the hooks: the table refuses them, or does not know them.
    pub bad: BTreeSet<String>,
}

impl Imports {
    /// Adds the imports of another object.
    pub fn add(&mut self, other: Imports) {
        self.hooked.extend(other.hooked);
        self.passed.extend(other.passed);
        self.bad.extend(other.bad);
    }
}

/// The imports of the object at a path; `None` if the file is no object for this machine. One whose
/// tables cannot be read has something bad. For `make hooks-audit`.
#[must_use]
pub fn imports_of(path: &CStr, is_program: bool) -> Option<Imports> {
    let map = Mapped::new(path)?;
    if !module::is_ours(map.bytes()) {
        return None;
    }
    let rank = if is_program { Rank::Program } else { Rank::Library };
    let mut imports = Imports::default();
    let walked = add_imports(&mut imports, map.bytes(), rank);
    if walked.is_err() {
        imports.bad.insert("(its tables cannot be read)".to_owned());
    }
    Some(imports)
}

fn add_imports(imports: &mut Imports, bytes: &[u8], rank: Rank) -> Result<(), Broken> {
    let module = Module::of_file(bytes)?;
    module.for_each_import(&mut |import| {
        let name = import.name.to_string_lossy();
        let treatment = symbols::treatment_of(&name);
        // Without a version, a name that is hooked is found in this library.
        let is_ours = import.origin == Origin::Unversioned && treatment == Some(Treatment::Hooked);
        let places = if goes_past_the_seal(&import, &module, rank) {
            &mut imports.bad
        } else if !is_ours && !belongs_to_system(&import) {
            return;
        } else {
            match treatment {
                Some(Treatment::Hooked) => &mut imports.hooked,
                Some(Treatment::Passed) => &mut imports.passed,
                _ => return,
            }
        };
        places.insert(name.into_owned());
    })
}

fn goes_past_the_seal(import: &Import<'_>, module: &Module<'_>, rank: Rank) -> bool {
    if import.kind == Kind::Data || import.origin == Origin::Other {
        return false;
    }
    // All names of the C library and of PostgreSQL are ASCII; mangled C++ names begin with _Z.
    let Ok(name) = import.name.to_str() else { return false };
    let suspect = match symbols::treatment_of(name) {
        // The server itself gets no ring (calls/rings.rs).
        Some(Treatment::Passed) => rank == Rank::Library && name.starts_with("io_uring_"),
        Some(treatment) => treatment == Treatment::Refused,
        None => !name.starts_with("_Z") && symbols::may_touch_files(name),
    };
    suspect
        && belongs_to_system(import)
        && (import.kind == Kind::Function || module.calls(import.name) || !is_data(import.name))
}

/// Whether the function is the C library's, which with musl no version says.
fn belongs_to_system(import: &Import<'_>) -> bool {
    match import.origin {
        Origin::System => true,
        Origin::Unversioned => is_of_system(import.name),
        Origin::Other => false,
    }
}

#[cfg(target_env = "gnu")]
unsafe extern "C" {
    /// `dladdr1(3)` of glibc.
    fn dladdr1(
        address: *const c_void,
        info: *mut libc::Dl_info,
        extra: *mut *mut c_void,
        flags: c_int,
    ) -> c_int;
}

/// What the linker knows of an address, and the type in its symbol's definition; `None` if the
/// address is in no object.
#[cfg(target_env = "gnu")]
fn described(address: *const c_void) -> Option<(libc::Dl_info, u8)> {
    const RTLD_DL_SYMENT: c_int = 1;
    let mut info = core::mem::MaybeUninit::<libc::Dl_info>::uninit();
    let mut symbol: *mut c_void = core::ptr::null_mut();
    // SAFETY: an address, and room for the answers.
    if unsafe { dladdr1(address, info.as_mut_ptr(), &raw mut symbol, RTLD_DL_SYMENT) } == 0 {
        return None;
    }
    // SAFETY: `dladdr1` succeeded and filled the structure.
    let info = unsafe { info.assume_init() };
    // SAFETY: null, or the entry of the object's table.
    let kind = unsafe { symbol.cast::<libc::Elf64_Sym>().as_ref() };
    Some((info, kind.map_or(0, |symbol| symbol.st_info & 0xF)))
}

/// The same with musl, which does not tell the type: 0, which counts as a function.
#[cfg(target_env = "musl")]
fn described(address: *const c_void) -> Option<(libc::Dl_info, u8)> {
    let mut info = core::mem::MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: an address, and room for the answer.
    if unsafe { libc::dladdr(address, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: `dladdr` succeeded and filled the structure.
    Some((unsafe { info.assume_init() }, 0))
}

/// The file in which an unversioned symbol would be found, and the type in its definition.
fn definition(name: &CStr) -> Option<(&'static CStr, u8)> {
    // SAFETY: `name` is a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if found.is_null() {
        return None;
    }
    let Some((info, kind)) = described(found) else { return Some((c"", 0)) };
    let file = match info.dli_fname.is_null() {
        true => c"",
        // SAFETY: the linker's C string.
        false => unsafe { CStr::from_ptr(info.dli_fname) },
    };
    Some((file, kind))
}

/// Whether the symbol is defined as a variable.
fn is_data(name: &CStr) -> bool {
    definition(name).is_some_and(|(_, kind)| matches!(kind, 1 | 5 | 6))
}

/// Whether an unversioned function is the C library's own, and not a function of another library
/// with a similar name (`BIO_read`, `SSL_write`). A function that is not loaded yet counts as
/// another library's, unless the table knows its name.
fn is_of_system(name: &CStr) -> bool {
    match definition(name) {
        None => name.to_str().is_ok_and(|name| symbols::treatment_of(name).is_some()),
        Some((file, _)) => file.is_empty() || is_system_library(base_name(file.to_bytes())),
    }
}

/// Whether a library is a part of the C library, or one of the libraries that make raw calls of
/// file I/O.
fn is_system_library(base: &[u8]) -> bool {
    [
        &b"libc.so"[..],
        b"libc-",
        b"libpthread",
        b"librt",
        b"ld-linux",
        // musl, which is its dynamic linker, too.
        b"ld-musl",
        b"libc.musl",
        b"linux-vdso",
        b"liburing",
        b"libaio",
    ]
    .iter()
    .any(|prefix| base.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_imports_of_this_very_program_are_fine() {
        let imports = imports_of(c"/proc/self/exe", true).unwrap();
        assert!(imports.bad.is_empty(), "{:?}", imports.bad);
        // Not "write": a test program has ours built in.
        assert!(imports.passed.contains("posix_spawn"), "{:?}", imports.passed);
        assert!(imports_of(c"/etc/passwd", true).is_none());
    }

    #[test]
    fn a_variable_is_no_function() {
        // musl does not tell.
        assert_eq!(is_data(c"environ"), cfg!(target_env = "gnu"));
        assert!(!is_data(c"getpid") && !is_data(c"no_such_symbol"));
        assert!(is_of_system(c"getpid") && !is_of_system(c"no_such_read"));
        assert!(is_of_system(c"aio_write") || definition(c"aio_write").is_none());
    }

    #[test]
    fn what_is_loaded_is_known_by_name() {
        let loaded = Loaded::now(check_program as *const () as usize).unwrap();
        // musl has no name of its own.
        assert_eq!(loaded.has(c"libc.so.6"), cfg!(target_env = "gnu"));
        assert!(!loaded.has(c"libno-such.so.1"));
    }
}
