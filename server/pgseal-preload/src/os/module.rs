//! Reads an ELF object: the libraries that it needs, the directories where they are searched, and
//! for each imported symbol whether it is function or data, and which library's version it asks
//! for.
//!
//! The same reader handles files that are about to be loaded and objects that the dynamic linker
//! has loaded. No file, however broken, makes it read beyond its bounds. This file uses nothing of
//! the crate, so that `tests/fuzz/` can compile it alone.

use core::ffi::CStr;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_NEEDED: u64 = 1;
const DT_PLTRELSZ: u64 = 2;
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_RELA: u64 = 7;
const DT_RELASZ: u64 = 8;
const DT_SONAME: u64 = 14;
const DT_RPATH: u64 = 15;
const DT_JMPREL: u64 = 23;
const DT_RUNPATH: u64 = 29;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
const DT_VERSYM: u64 = 0x6fff_fff0;
const DT_FLAGS_1: u64 = 0x6fff_fffb;
const DT_VERNEED: u64 = 0x6fff_fffe;
const DT_VERNEEDNUM: u64 = 0x6fff_ffff;
const DF_1_NODEFLIB: u64 = 0x800;
const RELA_LEN: u64 = 24;
const SYMBOL_LEN: u64 = 24;
/// More segments than any object has.
const MAX_SEGMENTS: usize = 24;
/// More versions than any object asks for.
const MAX_VERSIONS: usize = 1024;

/// The object does not conform to `elf(5)`.
#[derive(Debug, PartialEq, Eq)]
pub struct Broken;

/// The kind of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Code, which may be called.
    Function,
    /// A variable, also a thread-local one.
    Data,
    /// The object does not say.
    Unknown,
}

/// Which library a symbol belongs to, by the version that the object asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The C library, or one of the libraries that make raw calls of file I/O.
    System,
    /// Another library.
    Other,
    /// The object asks for no version.
    Unversioned,
}

/// A symbol that an object imports.
#[derive(Clone, Copy, Debug)]
pub struct Import<'a> {
    /// The name of the symbol.
    pub name: &'a CStr,
    /// The kind of the symbol.
    pub kind: Kind,
    /// The library that the symbol belongs to.
    pub origin: Origin,
}

/// A segment is mapped by whole pages, so that the rest of its first and of its last page is there
/// as well. Programs that `patchelf` has changed have tables there. Where pages are larger, more is
/// mapped.
const PAGE: u64 = 4096;

/// How many bytes the last page of a segment has behind the segment, which ends at this address.
fn rest_of_page(end: u64) -> u64 {
    end.wrapping_neg() % PAGE
}

/// A segment of an object.
#[derive(Clone, Copy)]
struct Segment<'a> {
    /// Where it begins, and how long it is, as the program header says.
    start: u64,
    len: u64,
    /// Where its first page begins, and the bytes of its pages.
    first: u64,
    bytes: &'a [u8],
}

impl<'a> Segment<'a> {
    const NONE: Segment<'static> = Segment { start: 0, len: 0, first: 0, bytes: &[] };

    fn from(&self, address: u64) -> Option<&'a [u8]> {
        let within = usize::try_from(address.checked_sub(self.first)?).ok()?;
        self.bytes.get(within..).filter(|rest| !rest.is_empty())
    }
}

/// The bytes of an object, by their addresses in the object.
#[derive(Clone, Copy)]
struct Image<'a> {
    segments: [Segment<'a>; MAX_SEGMENTS],
}

impl<'a> Image<'a> {
    fn from(&self, address: u64) -> Result<&'a [u8], Broken> {
        let all = || self.segments.iter();
        let holds = |segment: &&Segment<'_>| {
            address.checked_sub(segment.start).is_some_and(|within| within < segment.len)
        };
        // A segment that has the address comes before one whose pages have it.
        let found = all().filter(holds).find_map(|segment| segment.from(address));
        found.or_else(|| all().find_map(|segment| segment.from(address))).ok_or(Broken)
    }

    fn at<const N: usize>(&self, address: u64) -> Result<[u8; N], Broken> {
        self.from(address)?.first_chunk().copied().ok_or(Broken)
    }

    fn u16(&self, address: u64) -> Result<u16, Broken> {
        self.at(address).map(u16::from_le_bytes)
    }

    fn u32(&self, address: u64) -> Result<u32, Broken> {
        self.at(address).map(u32::from_le_bytes)
    }

    fn u64(&self, address: u64) -> Result<u64, Broken> {
        self.at(address).map(u64::from_le_bytes)
    }

    fn text(&self, address: u64) -> Result<&'a CStr, Broken> {
        CStr::from_bytes_until_nul(self.from(address)?).map_err(|_| Broken)
    }
}

fn add(address: u64, by: u64) -> Result<u64, Broken> {
    address.checked_add(by).ok_or(Broken)
}

/// A shared object or a program.
pub struct Module<'a> {
    image: Image<'a>,
    /// Where the dynamic section begins.
    dynamic: u64,
    /// The offset that the dynamic linker has added to the addresses in the dynamic section.
    bias: u64,
    strings: u64,
    symbols: u64,
    hash: u64,
    gnu_hash: u64,
    versym: u64,
    verneed: u64,
    verneed_count: u64,
    /// Tables of relocations, with their lengths; the second one is for calls.
    relocations: [(u64, u64); 2],
    soname: Option<u64>,
    rpath: Option<u64>,
    runpath: Option<u64>,
    flags: u64,
}

/// A place in a file or in memory.
fn place(off: u64) -> Result<usize, Broken> {
    usize::try_from(off).map_err(|_| Broken)
}

/// A little-endian field of a file.
fn field<const N: usize>(bytes: &[u8], off: u64) -> Result<[u8; N], Broken> {
    bytes.get(place(off)?..).and_then(|rest| rest.first_chunk()).copied().ok_or(Broken)
}

/// Whether the bytes are an object that this process could load: 64 bits, little-endian, for this
/// machine.
pub fn is_ours(bytes: &[u8]) -> bool {
    const MACHINE: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
    bytes.starts_with(b"\x7fELF\x02\x01") && field(bytes, 18).map(u16::from_le_bytes) == Ok(MACHINE)
}

impl<'a> Module<'a> {
    /// Parses the bytes of a file.
    pub fn of_file(bytes: &'a [u8]) -> Result<Module<'a>, Broken> {
        if !is_ours(bytes) {
            return Err(Broken);
        }
        let start = u64::from_le_bytes(field(bytes, 32)?);
        let size = u64::from(u16::from_le_bytes(field(bytes, 54)?));
        let count = u64::from(u16::from_le_bytes(field(bytes, 56)?));
        let (mut image, mut used) = (Image { segments: [Segment::NONE; MAX_SEGMENTS] }, 0);
        let mut dynamic = None;
        for index in 0..count {
            let header = add(start, index * size)?;
            let kind = u32::from_le_bytes(field(bytes, header)?);
            let off = u64::from_le_bytes(field(bytes, add(header, 8)?)?);
            let address = u64::from_le_bytes(field(bytes, add(header, 16)?)?);
            let len = u64::from_le_bytes(field(bytes, add(header, 32)?)?);
            let len_in_memory = u64::from_le_bytes(field(bytes, add(header, 40)?)?);
            match kind {
                PT_LOAD => {
                    let head = (address % PAGE).min(off);
                    let (from, to) = (place(off - head)?, place(add(off, len)?)?);
                    // What is zero in memory follows the bytes of the file.
                    let rest =
                        if len == len_in_memory { rest_of_page(add(address, len)?) } else { 0 };
                    let end = to.saturating_add(place(rest)?).min(bytes.len()).max(to);
                    let held = bytes.get(from..end).ok_or(Broken)?;
                    let first = address - head;
                    let segment = Segment { start: address, len, first, bytes: held };
                    *image.segments.get_mut(used).ok_or(Broken)? = segment;
                    used += 1;
                }
                PT_DYNAMIC => dynamic = Some(address),
                _ => {}
            }
        }
        Module::of_image(image, dynamic.ok_or(Broken)?, 0)
    }

    /// Parses an object that the dynamic linker has loaded.
    ///
    /// # Safety
    /// `info` is what `dl_iterate_phdr` passed, and the object stays loaded during `'a`.
    pub unsafe fn of_loaded(info: &libc::dl_phdr_info) -> Result<Module<'a>, Broken> {
        let (mut image, mut used) = (Image { segments: [Segment::NONE; MAX_SEGMENTS] }, 0);
        let mut dynamic = None;
        for index in 0..usize::from(info.dlpi_phnum) {
            // SAFETY: within the program headers.
            let header = unsafe { info.dlpi_phdr.add(index) };
            // SAFETY: as above; the linker keeps them mapped.
            let header = unsafe { &*header };
            if header.p_type == libc::PT_DYNAMIC {
                dynamic = Some(header.p_vaddr);
            }
            if header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_R != 0 {
                let start = info.dlpi_addr.wrapping_add(header.p_vaddr);
                let head = (start % PAGE).min(header.p_vaddr);
                let end = add(start, header.p_memsz)?;
                let (from, to) = (place(start - head)?, place(add(end, rest_of_page(end))?)?);
                // SAFETY: the caller's contract: a readable segment of a loaded object, which is
                // mapped by whole pages. The tables that are read through it do not change once
                // the object is loaded.
                let held = unsafe { core::slice::from_raw_parts(from as *const u8, to - from) };
                let (start, len) = (header.p_vaddr, header.p_memsz);
                let segment = Segment { start, len, first: start - head, bytes: held };
                *image.segments.get_mut(used).ok_or(Broken)? = segment;
                used += 1;
            }
        }
        Module::of_image(image, dynamic.ok_or(Broken)?, info.dlpi_addr)
    }

    fn of_image(image: Image<'a>, dynamic: u64, bias: u64) -> Result<Module<'a>, Broken> {
        let mut module = Module {
            image,
            dynamic,
            bias,
            strings: 0,
            symbols: 0,
            hash: 0,
            gnu_hash: 0,
            versym: 0,
            verneed: 0,
            verneed_count: 0,
            relocations: [(0, 0); 2],
            soname: None,
            rpath: None,
            runpath: None,
            flags: 0,
        };
        let mut entry = dynamic;
        loop {
            let (tag, value) = module.entry(entry)?;
            match tag {
                0 => break,
                DT_STRTAB => module.strings = module.address(value),
                DT_SYMTAB => module.symbols = module.address(value),
                DT_HASH => module.hash = module.address(value),
                DT_GNU_HASH => module.gnu_hash = module.address(value),
                DT_VERSYM => module.versym = module.address(value),
                DT_VERNEED => module.verneed = module.address(value),
                DT_VERNEEDNUM => module.verneed_count = value,
                DT_RELA => module.relocations[0].0 = module.address(value),
                DT_RELASZ => module.relocations[0].1 = value,
                DT_JMPREL => module.relocations[1].0 = module.address(value),
                DT_PLTRELSZ => module.relocations[1].1 = value,
                DT_SONAME => module.soname = Some(value),
                DT_RPATH => module.rpath = Some(value),
                DT_RUNPATH => module.runpath = Some(value),
                DT_FLAGS_1 => module.flags = value,
                _ => {}
            }
            entry = add(entry, 16)?;
        }
        Ok(module)
    }

    fn entry(&self, at: u64) -> Result<(u64, u64), Broken> {
        Ok((self.image.u64(at)?, self.image.u64(add(at, 8)?)?))
    }

    /// Converts a value of the dynamic section to an address in the object. The linker relocates
    /// most of these values, but not all.
    fn address(&self, value: u64) -> u64 {
        if self.bias != 0 && value >= self.bias { value - self.bias } else { value }
    }

    fn string(&self, off: u64) -> Result<&'a CStr, Broken> {
        self.image.text(add(self.strings, off)?)
    }

    fn optional(&self, off: Option<u64>) -> Option<&'a CStr> {
        off.and_then(|off| self.string(off).ok())
    }

    /// `DT_SONAME`: the name by which other objects need this one.
    pub fn soname(&self) -> Option<&'a CStr> {
        self.optional(self.soname)
    }

    /// `DT_RPATH`, which is ignored if there is a `DT_RUNPATH`.
    pub fn rpath(&self) -> Option<&'a CStr> {
        if self.runpath.is_some() { None } else { self.optional(self.rpath) }
    }

    /// `DT_RUNPATH`.
    pub fn runpath(&self) -> Option<&'a CStr> {
        self.optional(self.runpath)
    }

    /// Whether the object excludes the default directories from the search.
    pub fn shuns_default_places(&self) -> bool {
        self.flags & DF_1_NODEFLIB != 0
    }

    /// Calls `visit` with the name of each library that the object needs.
    pub fn for_each_needed(&self, visit: &mut dyn FnMut(&'a CStr)) -> Result<(), Broken> {
        let mut entry = self.dynamic;
        loop {
            match self.entry(entry)? {
                (0, _) => return Ok(()),
                (DT_NEEDED, name) => visit(self.string(name)?),
                _ => {}
            }
            entry = add(entry, 16)?;
        }
    }

    /// Calls `visit` with each symbol that the object imports.
    pub fn for_each_import(&self, visit: &mut dyn FnMut(Import<'a>)) -> Result<(), Broken> {
        let versions = self.versions()?;
        for index in 1..self.symbol_count()? {
            let symbol = add(self.symbols, index * SYMBOL_LEN)?;
            let fields: [u8; 8] = self.image.at(symbol)?;
            let (name, info) =
                (u32::from_le_bytes([fields[0], fields[1], fields[2], fields[3]]), fields[4]);
            // The symbol is defined here, or has no name.
            if name == 0 || fields[6] != 0 || fields[7] != 0 {
                continue;
            }
            let version = match self.versym {
                0 => 1,
                table => self.image.u16(add(table, index * 2)?)? & 0x7FFF,
            };
            let origin = versions.get(usize::from(version)).copied();
            let kind = match info & 0xF {
                // STT_FUNC, STT_GNU_IFUNC
                2 | 10 => Kind::Function,
                // STT_OBJECT, STT_COMMON, STT_TLS
                1 | 5 | 6 => Kind::Data,
                _ => Kind::Unknown,
            };
            let origin = origin.unwrap_or(Origin::Unversioned);
            visit(Import { name: self.string(u64::from(name))?, kind, origin });
        }
        Ok(())
    }

    /// Whether the object calls the imported symbol of this name. A broken table counts as a call.
    pub fn calls(&self, name: &CStr) -> bool {
        let (table, len) = self.relocations[1];
        let mut entries = (0..len / RELA_LEN).map(|index| -> Result<bool, Broken> {
            let symbol = self.image.u64(add(table, index * RELA_LEN + 8)?)? >> 32;
            let at = self.image.u32(add(self.symbols, symbol * SYMBOL_LEN)?)?;
            Ok(self.string(u64::from(at))? == name)
        });
        // A broken entry ends the search, since the length of the table may be any number.
        entries.any(|same| same != Ok(false))
    }

    /// The origin for each version index.
    fn versions(&self) -> Result<[Origin; MAX_VERSIONS], Broken> {
        let mut versions = [Origin::Unversioned; MAX_VERSIONS];
        let (mut need, mut left) = (self.verneed, MAX_VERSIONS);
        for _ in 0..self.verneed_count {
            let count = self.image.u16(add(need, 2)?)?;
            // The limit ends a list that forms a cycle.
            left = left.checked_sub(usize::from(count).max(1)).ok_or(Broken)?;
            let mut entry = add(need, u64::from(self.image.u32(add(need, 8)?)?))?;
            for _ in 0..count {
                let index = self.image.u16(add(entry, 6)?)? & 0x7FFF;
                let name = self.string(u64::from(self.image.u32(add(entry, 8)?)?))?;
                if let Some(place) = versions.get_mut(usize::from(index)) {
                    *place = origin_of(name.to_bytes());
                }
                entry = add(entry, u64::from(self.image.u32(add(entry, 12)?)?))?;
            }
            need = add(need, u64::from(self.image.u32(add(need, 12)?)?))?;
        }
        Ok(versions)
    }

    /// The number of symbols, which only the hash tables tell.
    fn symbol_count(&self) -> Result<u64, Broken> {
        if self.hash != 0 {
            return Ok(u64::from(self.image.u32(add(self.hash, 4)?)?));
        }
        if self.gnu_hash == 0 {
            // The object exports nothing: only symbols that relocations name matter.
            return self.highest_relocated();
        }
        let buckets = u64::from(self.image.u32(self.gnu_hash)?);
        let first = u64::from(self.image.u32(add(self.gnu_hash, 4)?)?);
        let words = u64::from(self.image.u32(add(self.gnu_hash, 8)?)?);
        let table = add(self.gnu_hash, 16 + words * 8)?;
        let mut last = 0;
        for bucket in 0..buckets {
            last = last.max(u64::from(self.image.u32(add(table, bucket * 4)?)?));
        }
        if last < first {
            // An empty hash table does not cover the imported symbols, so the relocations are read
            // as well.
            return Ok(first.max(self.highest_relocated()?));
        }
        let chains = add(table, buckets * 4)?;
        while self.image.u32(add(chains, (last - first) * 4)?)? & 1 == 0 {
            last += 1;
        }
        Ok(last + 1)
    }

    fn highest_relocated(&self) -> Result<u64, Broken> {
        let mut count = 0;
        for (table, len) in self.relocations {
            for index in 0..len / RELA_LEN {
                let symbol = self.image.u64(add(table, index * RELA_LEN + 8)?)? >> 32;
                count = count.max(symbol + 1);
            }
        }
        Ok(count)
    }
}

/// The origin of symbols of this version. Only the C library's own parts use its private symbols.
fn origin_of(version: &[u8]) -> Origin {
    let system = [&b"GLIBC_"[..], b"LIBAIO_", b"LIBURING_"];
    match system.iter().any(|prefix| version.starts_with(prefix)) && version != b"GLIBC_PRIVATE" {
        true => Origin::System,
        false => Origin::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::mapped::Mapped;

    fn imports_of(bytes: &[u8]) -> Vec<(String, Kind, Origin)> {
        let mut imports = Vec::new();
        let module = Module::of_file(bytes).unwrap();
        module
            .for_each_import(&mut |import| {
                imports.push((
                    import.name.to_str().unwrap().to_owned(),
                    import.kind,
                    import.origin,
                ));
            })
            .unwrap();
        imports
    }

    #[test]
    fn the_imports_of_this_very_program_are_found() {
        let imports = imports_of(Mapped::new(c"/proc/self/exe").unwrap().bytes());
        // The symbols of musl have no versions.
        let origin = if cfg!(target_env = "musl") { Origin::Unversioned } else { Origin::System };
        let wanted = ("memcpy".to_owned(), Kind::Function, origin);
        assert!(imports.contains(&wanted), "{imports:?}");
        let environ = imports.iter().find(|(name, ..)| name == "environ");
        assert!(environ.is_none_or(|(_, kind, _)| *kind != Kind::Function), "{environ:?}");
    }

    /// The loaded program and its file yield the same imports.
    #[test]
    fn loaded_and_file_say_the_same() {
        unsafe extern "C" fn first(
            info: *mut libc::dl_phdr_info,
            _len: usize,
            data: *mut core::ffi::c_void,
        ) -> core::ffi::c_int {
            // SAFETY: the linker's structure.
            let info = unsafe { &*info };
            // SAFETY: the program itself stays loaded.
            let module = unsafe { Module::of_loaded(info) }.unwrap();
            // SAFETY: what the caller below passed.
            let names = unsafe { &mut *data.cast::<Vec<String>>() };
            module
                .for_each_import(&mut |import| names.push(import.name.to_str().unwrap().to_owned()))
                .unwrap();
            module
                .for_each_needed(&mut |name| names.push(name.to_str().unwrap().to_owned()))
                .unwrap();
            1
        }
        let mut loaded: Vec<String> = Vec::new();
        // SAFETY: the callback gets `loaded` back.
        unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut loaded).cast()) };
        let file = Mapped::new(c"/proc/self/exe").unwrap();
        let module = Module::of_file(file.bytes()).unwrap();
        let mut named: Vec<String> =
            imports_of(file.bytes()).into_iter().map(|(name, ..)| name).collect();
        module.for_each_needed(&mut |name| named.push(name.to_str().unwrap().to_owned())).unwrap();
        let library = if cfg!(target_env = "musl") { "libc.so" } else { "libc.so.6" };
        assert!(named.len() > 50 && named.iter().any(|name| name == library), "{named:?}");
        assert_eq!(loaded, named);
    }

    /// The names of the imports.
    fn names(bytes: &[u8]) -> Result<Vec<String>, Broken> {
        let mut names = Vec::new();
        let module = Module::of_file(bytes)?;
        let mut add = |import: Import<'_>| names.push(import.name.to_str().unwrap().to_owned());
        module.for_each_import(&mut add).map(|()| names)
    }

    /// Where the program header of the segment with this address begins, with the segment's offset,
    /// address and length.
    fn segment_of(bytes: &[u8], address: u64) -> (u64, [u64; 3]) {
        let word = |at| u64::from_le_bytes(field(bytes, at).unwrap());
        let size = u64::from(u16::from_le_bytes(field(bytes, 54).unwrap()));
        (0..)
            .map(|index| word(32) + index * size)
            .filter(|at| u32::from_le_bytes(field(bytes, *at).unwrap()) == PT_LOAD)
            .map(|at| (at, [word(at + 8), word(at + 16), word(at + 32)]))
            .find(|(_, [_, start, len])| (*start..start + len).contains(&address))
            .unwrap()
    }

    /// A copy of the file in which these fields of a program header are others.
    fn with(bytes: &[u8], header: u64, fields: &[(u64, u64)]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for (at, value) in fields {
            let at = usize::try_from(header + at).unwrap();
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    /// The tables of a program that `patchelf` has changed may lie behind the segment, in its last
    /// page.
    #[test]
    fn tables_behind_a_segment_in_its_last_page_are_found() {
        let bytes = std::fs::read("/proc/self/exe").unwrap();
        let wanted = names(&bytes).unwrap();
        let table = Module::of_file(&bytes).unwrap().strings;
        let (header, [_, start, len]) = segment_of(&bytes, table);
        let with_end = |end: u64, in_memory: u64| {
            with(&bytes, header, &[(32, end - start), (40, in_memory - start)])
        };
        // Where what is zero in memory follows, the tables have to be within the segment.
        let (mut less, mut enough) = (start, start + len);
        while enough - less > 1 {
            let end = u64::midpoint(less, enough);
            match names(&with_end(end, end + 1)).as_ref() == Ok(&wanted) {
                true => enough = end,
                false => less = end,
            }
        }
        let page = (enough - 1) / PAGE * PAGE;
        assert!(page > start && page + 1 < enough);
        assert_eq!(names(&with_end(page + 1, page + 1)), Ok(wanted));
        assert_eq!(names(&with_end(page, page)), Err(Broken));
    }

    /// They may also lie before a segment, in its first page.
    #[test]
    fn tables_before_a_segment_in_its_first_page_are_found() {
        let bytes = std::fs::read("/proc/self/exe").unwrap();
        let wanted = names(&bytes).unwrap();
        let dynamic = Module::of_file(&bytes).unwrap().dynamic;
        let (header, [off, start, len]) = segment_of(&bytes, dynamic);
        let with_start = |to: u64| {
            let by = to - start;
            let fields = [(8, off + by), (16, to), (32, len - by), (40, len - by)];
            with(&bytes, header, &fields)
        };
        let after = (dynamic + 1..).find(|after| after % PAGE > after - dynamic).unwrap();
        assert_eq!(names(&with_start(after)), Ok(wanted));
        let next_page = dynamic / PAGE * PAGE + PAGE;
        assert_eq!(names(&with_start(next_page)), Err(Broken));
    }

    /// No file, however broken, makes the reader read beyond its end.
    #[test]
    fn broken_files_are_an_error() {
        let mut bytes = std::fs::read("/proc/self/exe").unwrap();
        for len in [0, 6, 63, 64, 500, 5000] {
            assert!(Module::of_file(&bytes[..len]).is_err(), "{len}");
        }
        let look = |bytes: &[u8]| {
            let Ok(module) = Module::of_file(bytes) else { return };
            let _ = module.for_each_import(&mut |import| {
                let _ = import.name;
            });
            let _ = module.for_each_needed(&mut |_| {});
        };
        for at in 0..1200 {
            let old = bytes[at];
            bytes[at] = 0xFF;
            look(&bytes);
            bytes[at] = old;
        }
    }
}
