//! Looks up functions of the vDSO (`vdso(7)`), the object that the kernel maps into each process.
//! The dynamic linker is not used: another thread may hold its lock, and in a child that is forked
//! at that moment nobody would ever release the lock.

use core::ffi::CStr;

const PT_DYNAMIC: u32 = 2;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
const DYNAMIC_LEN: usize = 16;
const SYMBOL_LEN: usize = 24;

/// Reads a value in the object.
///
/// # Safety
/// The object has a value of this type there.
unsafe fn at<T: Copy>(address: usize) -> T {
    // SAFETY: the caller's contract.
    unsafe { (address as *const T).read_unaligned() }
}

/// The address of the function with this name.
pub fn function(name: &CStr) -> Option<usize> {
    // SAFETY: no pointers involved.
    let base = usize::try_from(unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) }).ok()?;
    if base == 0 {
        return None;
    }
    // SAFETY: the kernel guarantees that an ELF object is there, which does not change.
    unsafe { lookup(base, name) }
}

/// Looks the name up in the hash table of the object (`DT_GNU_HASH`).
///
/// # Safety
/// A whole ELF object of this machine begins at `base`.
unsafe fn lookup(base: usize, name: &CStr) -> Option<usize> {
    // SAFETY: the caller's contract. Here and below, the object's own headers name each address.
    let head: libc::Elf64_Ehdr = unsafe { at(base) };
    let headers = base + usize::try_from(head.e_phoff).ok()?;
    let dynamic = (0..usize::from(head.e_phnum)).find_map(|index| {
        let place = headers + index * size_of::<libc::Elf64_Phdr>();
        // SAFETY: as above.
        let header: libc::Elf64_Phdr = unsafe { at(place) };
        (header.p_type == PT_DYNAMIC).then_some(header.p_vaddr)
    })?;
    // The C library may have relocated the addresses in the dynamic section.
    let address = |value: u64| {
        let value = usize::try_from(value).ok()?;
        Some(if value < base { base + value } else { value })
    };
    let (mut strings, mut symbols, mut hash) = (None, None, None);
    let mut entry = address(dynamic)?;
    loop {
        // SAFETY: as above.
        let [tag, value]: [u64; 2] = unsafe { at(entry) };
        match tag {
            0 => break,
            DT_STRTAB => strings = address(value),
            DT_SYMTAB => symbols = address(value),
            DT_GNU_HASH => hash = address(value),
            _ => {}
        }
        entry += DYNAMIC_LEN;
    }
    let (strings, symbols, hash) = (strings?, symbols?, hash?);
    // SAFETY: as above.
    let [buckets, first, words, _]: [u32; 4] = unsafe { at(hash) };
    if buckets == 0 {
        return None;
    }
    let table = hash + 16 + words as usize * 8;
    let chains = table + buckets as usize * 4;
    let wanted = hash_of(name);
    // SAFETY: as above.
    let mut index: u32 = unsafe { at(table + (wanted % buckets) as usize * 4) };
    while index >= first {
        // SAFETY: as above.
        let found: u32 = unsafe { at(chains + (index - first) as usize * 4) };
        if found | 1 == wanted | 1 {
            let symbol = symbols + index as usize * SYMBOL_LEN;
            // SAFETY: as above.
            let text = strings + unsafe { at::<u32>(symbol) } as usize;
            // SAFETY: as above: a C string.
            if unsafe { CStr::from_ptr(text as *const core::ffi::c_char) } == name {
                // SAFETY: as above.
                return Some(base + usize::try_from(unsafe { at::<u64>(symbol + 8) }).ok()?);
            }
        }
        if found & 1 == 1 {
            break;
        }
        index += 1;
    }
    None
}

fn hash_of(name: &CStr) -> u32 {
    let step = |hash: u32, byte: &u8| hash.wrapping_mul(33).wrapping_add(u32::from(*byte));
    name.to_bytes().iter().fold(5381, step)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_by_name() {
        let name =
            if cfg!(target_arch = "aarch64") { c"__kernel_gettimeofday" } else { c"__vdso_time" };
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let Some(line) = maps.lines().find(|line| line.ends_with("[vdso]")) else { return };
        let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let range =
            usize::from_str_radix(from, 16).unwrap()..usize::from_str_radix(to, 16).unwrap();
        assert!(range.contains(&function(name).unwrap()));
        assert_eq!(function(c"__vdso_no_such_function"), None);
        assert_eq!(function(c""), None);
    }
}
