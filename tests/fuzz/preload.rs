//! The bodies of the fuzz targets for the preloaded library's own parsers: of ELF objects, of the
//! list of `ldconfig`, of small texts, and of paths. The unit tests of `pgseal-preload` run them on
//! a stable toolchain.
//!
//! The module that includes this file must contain the library's modules `linker`, `module`,
//! `paths` and `texts`. A fuzz target includes the files of these modules and not the library,
//! because the hooks of the library would replace those of the sanitizer.

#![allow(clippy::unwrap_used)]

use pgseal_pgdata::{Class, classify, classify_in_tablespace, tablespace_relative};

use super::module::{Module, is_ours};
use super::paths::{self, PathText};
use super::{linker, texts};

/// Parses any bytes as an ELF object. Parsing ends, each name lies within the object's bytes, and
/// parsing again gives the same result.
pub fn elf(data: &[u8]) {
    let within = |text: &core::ffi::CStr| {
        let range = data.as_ptr_range();
        range.contains(&text.as_ptr().cast()) && text.to_bytes_with_nul().len() <= data.len()
    };
    let Ok(module) = Module::of_file(data) else { return };
    assert!(is_ours(data));
    for text in [module.soname(), module.rpath(), module.runpath()].into_iter().flatten() {
        assert!(within(text));
    }
    assert!(module.runpath().is_none() || module.rpath().is_none());
    let look = || {
        let (mut seen, mut first) = (0_usize, None);
        let imports = module.for_each_import(&mut |import| {
            assert!(within(import.name));
            first.get_or_insert(import.name);
            seen += 1;
        });
        let needed = module.for_each_needed(&mut |name| {
            assert!(within(name));
            seen += 1;
        });
        // A symbol's entry takes 24 bytes, a needed library's 16.
        assert!(seen <= data.len() / 8, "{seen} names in {} bytes", data.len());
        (imports, needed, seen, first)
    };
    let found = look();
    assert_eq!(found, look());
    if let Some(name) = found.3 {
        let _ = module.calls(name);
    }
    let _ = module.shuns_default_places();
}

/// Parses any bytes as a name, a path and the list of `ldconfig`. Parsing ends, and each result
/// lies within the list's bytes.
pub fn linker(data: &[u8]) {
    let mut parts = data.splitn(3, |byte| *byte == b'\n');
    let (name, path) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let cache = parts.next().unwrap_or_default();
    let range = cache.as_ptr_range();
    let mut found = 0;
    linker::for_each_in_cache(cache, name, &mut |path| {
        assert!(range.contains(&path.as_ptr()) && !path.contains(&0));
        found += 1;
        Ok(())
    })
    .unwrap();
    assert!(found <= cache.len() / 24);
    let of = |path: &[u8]| linker::expanded(path, name, &|| "lib64").unwrap();
    if let Some(put_in) = of(path) {
        let words = path.iter().filter(|byte| **byte == b'$').count();
        assert!(put_in.len() <= path.len() + words * (name.len() + 5));
        assert!(words > 0 || put_in == path);
        if !name.contains(&b'$') {
            assert_eq!(of(&put_in).as_deref(), Some(&*put_in), "nothing is left to put in");
        }
    } else {
        assert!(path.contains(&b'$'));
    }
}

/// Any bytes as each of the small files that the library reads: what is too short says nothing.
pub fn texts(data: &[u8]) {
    assert!(data.len() >= 20 || texts::state(data).is_none());
    let lines = data.iter().filter(|byte| **byte == b'\n').count();
    assert!(lines >= 7 || texts::says_it_starts(data).is_none());
}

/// Classifies any bytes as a path in a data directory and as an absolute path. The class does not
/// depend on the spelling of the path, and a path that leads out of the directory has no class.
pub fn path(data: &[u8]) {
    let class = classify(data);
    let parts: Vec<&[u8]> = data.split(|byte| *byte == b'/').collect();
    let leads_up = parts.contains(&&b".."[..]);
    assert!(!leads_up || class == Class::Unknown);
    let plain: Vec<&[u8]> =
        parts.iter().copied().filter(|part| !part.is_empty() && *part != b".").collect();
    for sep in [&b"/"[..], b"//", b"/./", b"/.//./"] {
        let mut other = plain.join(sep);
        assert_eq!(classify(&other), class);
        other.extend_from_slice(sep);
        assert_eq!(classify(&other), class, "with a slash behind it");
        other.splice(0..0, *b"./");
        assert_eq!(classify(&other), class, "with a dot before it");
    }
    let (_, _, _) = (class.policy(), class.renewal(data), class.is_rebuilt(data));
    // Only the last component decides whether the file is a configuration file.
    let last = plain.last().copied().unwrap_or_default();
    let has = |end: &[u8]| last.windows(end.len()).any(|window| window == end);
    assert!(class != Class::Config || has(b".conf") || has(b".signal") || last == b"recovery.done");
    if !plain.is_empty() {
        let through_link = [b"pg_tblspc/1/", data].concat();
        assert_eq!(classify_in_tablespace(data), classify(&through_link));
    }

    walk(data, &plain, leads_up, class);
    tablespace(data);
}

/// Compares the code that makes a path absolute with a model that uses a list of names.
fn walk(data: &[u8], plain: &[&[u8]], leads_up: bool, class: Class) {
    const ROOT: [&[u8]; 3] = [b"", b"srv", b"data"];
    let mut text = PathText::of(&ROOT.join(&b'/'));
    text.walk(data);
    let mut model: Vec<&[u8]> = ROOT.to_vec();
    for part in plain {
        match *part {
            b".." => model.truncate(1.max(model.len() - 1)),
            part => model.push(part),
        }
    }
    let wanted = if model.len() == 1 { b"/".to_vec() } else { model.join(&b'/') };
    let is_cut = wanted.len() >= 8000 || data.len() >= 8000;
    assert!(is_cut || text[..] == wanted[..]);
    // Normalising the result again does not change it.
    let mut again = PathText::new();
    again.walk(&text);
    assert_eq!(again[..], text[..]);
    assert_eq!(paths::join(paths::parent(&text), paths::base_name(&text))[..], text[..]);
    let is_c = text.into_c().is_ok();
    assert!(!is_c || !data.contains(&0) || leads_up);
    // A relative path has the class of its absolute path.
    if !leads_up
        && !is_cut
        && let Some(inside) = wanted.strip_prefix(b"/srv/data")
    {
        assert_eq!(classify(inside), class);
    }
}

fn tablespace(data: &[u8]) {
    let Some(len) = tablespace_relative(data) else { return };
    assert!(data.starts_with(b"/") && data[..len].ends_with(b"/"));
    let mut parts = data[len..].split(|byte| *byte == b'/');
    assert!(parts.next().is_some_and(|version| version.starts_with(b"PG_")));
    // The path of the tablespace's root does not matter.
    let moved = [b"/", &data[len..]].concat();
    assert_eq!(tablespace_relative(&moved), Some(1));
    if !data.split(|byte| *byte == b'/').any(|part| part == b"..") {
        let through_link = [b"pg_tblspc/1/", &data[len..]].concat();
        assert_eq!(classify_in_tablespace(&data[len..]), classify(&through_link));
    }
}
