//! What a module that is about to be loaded imports: read from its file, before any code of it runs.

use core::ffi::CStr;

use crate::real;
use crate::sys;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_RELA: u64 = 7;
const DT_RELASZ: u64 = 8;
const DT_JMPREL: u64 = 23;
const DT_PLTRELSZ: u64 = 2;
const RELA_LEN: u64 = 24;
const SYMBOL_LEN: u64 = 24;

/// Calls `visit` with each imported name. Does nothing for a file that is no 64-bit ELF module: the
/// dynamic linker will say so itself.
pub fn for_each_import(path: &CStr, visit: &mut dyn FnMut(&str)) {
    let Ok(fd) = sys::open_read(path) else { return };
    let Some(st) = sys::fstat(fd.0).filter(|st| sys::is_regular(st.st_mode)) else { return };
    let Some(len) = usize::try_from(st.st_size).ok().filter(|len| *len > 64) else { return };
    // SAFETY: a private map of a file for reading, at an address of the kernel's choice.
    let map = unsafe {
        real::mmap(core::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_PRIVATE, fd.0, 0)
    };
    if map == libc::MAP_FAILED {
        return;
    }
    // SAFETY: the map is valid for `len` bytes until it is unmapped below. A module that is cut
    // short meanwhile kills the process, as it would when the dynamic linker maps it.
    let bytes = unsafe { core::slice::from_raw_parts(map.cast::<u8>(), len) };
    let _ = walk(bytes, visit);
    // SAFETY: the map made above; `bytes` is not used any more.
    unsafe { libc::munmap(map, len) };
}

fn at<const N: usize>(bytes: &[u8], off: u64) -> Option<[u8; N]> {
    let off = usize::try_from(off).ok()?;
    bytes.get(off..off.checked_add(N)?)?.try_into().ok()
}

fn u16_at(bytes: &[u8], off: u64) -> Option<u16> {
    at(bytes, off).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], off: u64) -> Option<u32> {
    at(bytes, off).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], off: u64) -> Option<u64> {
    at(bytes, off).map(u64::from_le_bytes)
}

/// The walk itself (`elf(5)`); `None` at the first thing that is not as it should be.
fn walk(bytes: &[u8], visit: &mut dyn FnMut(&str)) -> Option<()> {
    // 64 bits, little-endian.
    if !bytes.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (start, size) = (u64_at(bytes, 32)?, u64::from(u16_at(bytes, 54)?));
    let headers = (0..u64::from(u16_at(bytes, 56)?)).map(|index| start.checked_add(index * size));
    let headers: Vec<u64> = headers.collect::<Option<_>>()?;
    let kind = |header: u64| u32_at(bytes, header);
    // From an address in the loaded module to an offset in the file.
    let offset_of = |address: u64| {
        headers.iter().find_map(|header| {
            let (off, from) = (u64_at(bytes, header + 8)?, u64_at(bytes, header + 16)?);
            let within = address.checked_sub(from)?;
            let len = u64_at(bytes, header + 32)?;
            if kind(*header)? != PT_LOAD || within >= len { None } else { off.checked_add(within) }
        })
    };
    let dynamic = *headers.iter().find(|header| kind(**header) == Some(PT_DYNAMIC))?;
    let mut entry = u64_at(bytes, dynamic + 8)?;
    let (mut strings, mut symbols) = (0, 0);
    let (mut rela, mut rela_len, mut plt, mut plt_len) = (0, 0, 0, 0);
    loop {
        let value = u64_at(bytes, entry.checked_add(8)?)?;
        match u64_at(bytes, entry)? {
            0 => break,
            DT_STRTAB => strings = value,
            DT_SYMTAB => symbols = value,
            DT_RELA => rela = value,
            DT_RELASZ => rela_len = value,
            DT_JMPREL => plt = value,
            DT_PLTRELSZ => plt_len = value,
            _ => {}
        }
        entry += 16;
    }
    let (strings, symbols) = (offset_of(strings)?, offset_of(symbols)?);
    for (table, len) in [(rela, rela_len), (plt, plt_len)] {
        let Some(table) = offset_of(table).filter(|_| len > 0) else { continue };
        for index in 0..len / RELA_LEN {
            let symbol = u64_at(bytes, table.checked_add(index * RELA_LEN + 8)?)? >> 32;
            let symbol = symbols.checked_add(symbol * SYMBOL_LEN)?;
            let name = u32_at(bytes, symbol)?;
            if name == 0 || u16_at(bytes, symbol + 6)? != 0 {
                continue;
            }
            let from = usize::try_from(strings.checked_add(u64::from(name))?).ok()?;
            let name = CStr::from_bytes_until_nul(bytes.get(from..)?).ok()?;
            visit(name.to_str().unwrap_or_default());
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_imports_of_this_very_program_are_found() {
        let mut names = Vec::new();
        for_each_import(c"/proc/self/exe", &mut |name| names.push(name.to_owned()));
        assert!(names.iter().any(|name| name == "memcpy"), "{names:?}");
    }

    /// No file, however broken, makes it read beyond its end.
    #[test]
    fn broken_files_are_left_to_the_linker() {
        let mut bytes = std::fs::read("/proc/self/exe").unwrap();
        for len in [0, 6, 63, 64, 500, 5000] {
            let _ = walk(&bytes[..len], &mut |_| {});
        }
        for at in 0..1200 {
            let old = bytes[at];
            bytes[at] = 0xFF;
            let _ = walk(&bytes, &mut |_| {});
            bytes[at] = old;
        }
    }
}
