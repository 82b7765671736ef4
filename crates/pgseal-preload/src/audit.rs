//! The start-up audit: every I/O function that the running program imports from the C library must
//! be in the table of [`crate::symbols`]. One that is not would go past the seal, so the program
//! does not start.

use core::ffi::{CStr, c_int, c_void};

use crate::log::{self, Shown};
use crate::module;
use crate::program;
use crate::symbols::{self, Treatment};

/// What the program's dynamic section points to.
#[derive(Default)]
struct Dynamic {
    symbols: usize,
    strings: usize,
    tables: Vec<(usize, usize)>,
}

const DT_PLTRELSZ: i64 = 2;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_JMPREL: i64 = 23;

#[repr(C)]
struct DynamicEntry {
    tag: i64,
    value: u64,
}

/// Ends the process if the program imports an I/O function that the table does not know or that
/// cannot be made safe.
pub fn check_program() {
    let mut bad = imports();
    bad.retain(|name| goes_past_the_seal(name));
    if bad.is_empty() {
        return;
    }
    log::line(format_args!(
        "FATAL: \"{}\" uses {} which pgseal does not handle; it is not started, because data could be written unsealed. Use a newer pgseal, or report the program and its version",
        Shown(&program::name()),
        bad.join(", ")
    ));
    // SAFETY: ends the process before it has done anything.
    unsafe { libc::_exit(127) };
}

/// The functions that a module imports and that go past the seal. Cheap: a backend loads modules.
pub fn bad_imports(module: &CStr) -> Vec<String> {
    let mut bad = Vec::new();
    module::for_each_import(module, &mut |name| {
        if goes_past_the_seal(name) {
            bad.push(name.to_owned());
        }
    });
    bad.sort_unstable();
    bad.dedup();
    bad
}

fn goes_past_the_seal(name: &str) -> bool {
    match symbols::treatment_of(name) {
        Some(treatment) => treatment == Treatment::Refused,
        None => symbols::may_touch_files(name) && is_libc(name),
    }
}

/// Whether the function is the C library's own, and not one of another library whose name only
/// sounds like it (`BIO_read`, `SSL_write`).
fn is_libc(name: &str) -> bool {
    let Ok(name) = std::ffi::CString::new(name) else { return true };
    // SAFETY: `name` is a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if found.is_null() {
        return false;
    }
    let mut info = core::mem::MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: an address of a loaded object, and room for the answer.
    if unsafe { libc::dladdr(found, info.as_mut_ptr()) } == 0 {
        return true;
    }
    // SAFETY: `dladdr` succeeded and filled the structure.
    let info = unsafe { info.assume_init() };
    if info.dli_fname.is_null() {
        return true;
    }
    // SAFETY: the linker's C string.
    let file = unsafe { CStr::from_ptr(info.dli_fname) }.to_bytes();
    let base = file.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    [&b"libc.so"[..], b"libc-", b"libpthread", b"librt", b"liburing", b"libaio"]
        .iter()
        .any(|prefix| base.starts_with(prefix))
}

/// The names of the functions that the main program imports.
fn imports() -> Vec<String> {
    let mut dynamic = Dynamic::default();
    // SAFETY: the callback gets `dynamic` back as its data and stops at the first object, which
    // is the main program.
    unsafe { libc::dl_iterate_phdr(Some(look_at_program), (&raw mut dynamic).cast()) };
    let mut names = Vec::new();
    if dynamic.symbols == 0 || dynamic.strings == 0 {
        return names;
    }
    for (start, len) in &dynamic.tables {
        for index in 0..len / size_of::<libc::Elf64_Rela>() {
            let relocation =
                (start + index * size_of::<libc::Elf64_Rela>()) as *const libc::Elf64_Rela;
            // SAFETY: within the table that the dynamic section describes.
            let info = unsafe { (*relocation).r_info };
            let symbol = (dynamic.symbols + (info >> 32) as usize * size_of::<libc::Elf64_Sym>())
                as *const libc::Elf64_Sym;
            // SAFETY: relocations name symbols of the table.
            let symbol = unsafe { &*symbol };
            if symbol.st_shndx != 0 || symbol.st_name == 0 {
                continue;
            }
            let name = (dynamic.strings + symbol.st_name as usize) as *const core::ffi::c_char;
            // SAFETY: names are C strings within the string table.
            let name = unsafe { CStr::from_ptr(name) };
            names.push(name.to_string_lossy().into_owned());
        }
    }
    names.sort_unstable();
    names.dedup();
    names
}

unsafe extern "C" fn look_at_program(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    data: *mut c_void,
) -> c_int {
    // SAFETY: the linker's structure, valid during the call.
    let info = unsafe { &*info };
    // SAFETY: what `imports` passed.
    let dynamic = unsafe { &mut *data.cast::<Dynamic>() };
    for index in 0..usize::from(info.dlpi_phnum) {
        // SAFETY: within the program headers.
        let header = unsafe { info.dlpi_phdr.add(index) };
        // SAFETY: as above; the linker keeps them mapped.
        let header = unsafe { &*header };
        if header.p_type == libc::PT_DYNAMIC {
            read_dynamic(info.dlpi_addr as usize + header.p_vaddr as usize, dynamic);
        }
    }
    1
}

fn read_dynamic(start: usize, dynamic: &mut Dynamic) {
    let (mut rela, mut rela_len, mut plt, mut plt_len) = (0, 0, 0, 0);
    let mut cursor = start as *const DynamicEntry;
    loop {
        // SAFETY: the dynamic section ends with a null entry, at which we stop.
        let entry = unsafe { &*cursor };
        let value = entry.value as usize;
        match entry.tag {
            0 => break,
            DT_STRTAB => dynamic.strings = value,
            DT_SYMTAB => dynamic.symbols = value,
            DT_RELA => rela = value,
            DT_RELASZ => rela_len = value,
            DT_JMPREL => plt = value,
            DT_PLTRELSZ => plt_len = value,
            _ => {}
        }
        // SAFETY: the entry was not the last.
        cursor = unsafe { cursor.add(1) };
    }
    dynamic.tables = vec![(rela, rela_len), (plt, plt_len)];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_imports_of_this_very_program_are_found() {
        let imports = imports();
        // Not "write": a test program has ours built in.
        for name in ["posix_spawn", "memcpy", "readlink"] {
            assert!(imports.iter().any(|import| import == name), "{name}: {imports:?}");
        }
    }
}
