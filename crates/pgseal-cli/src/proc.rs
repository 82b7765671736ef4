//! Parses the texts of `/proc`: limits, maps, environment and options of a server's processes.

use std::fs;
use std::path::{Path, PathBuf};

/// A limit of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// None.
    Unlimited,
    /// In the unit of the limit: bytes.
    Bytes(u64),
}

/// The soft limit with this name in `/proc/PID/limits`.
pub fn soft_limit(text: &str, name: &str) -> Option<Limit> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    match rest.split_whitespace().next()? {
        "unlimited" => Some(Limit::Unlimited),
        number => number.parse().ok().map(Limit::Bytes),
    }
}

/// The `libpgseal.so` that is mapped in `/proc/PID/maps`, and whether its file was replaced since.
pub fn mapped_library(text: &str) -> Option<(PathBuf, bool)> {
    let path =
        text.lines().filter_map(|line| line.find('/').map(|at| &line[at..])).find(|path| {
            let plain = path.strip_suffix(" (deleted)").unwrap_or(path);
            Path::new(plain).file_name().is_some_and(|name| name == "libpgseal.so")
        })?;
    match path.strip_suffix(" (deleted)") {
        Some(plain) => Some((PathBuf::from(plain), true)),
        None => Some((PathBuf::from(path), false)),
    }
}

/// How much memory of a process holds keys: private, writable, and left out of core dumps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyMemory {
    /// In use and locked, in kB.
    pub locked_kib: u64,
    /// In use and not locked, in kB.
    pub unlocked_kib: u64,
}

/// Reads it from `/proc/PID/smaps`.
pub fn key_memory(smaps: &str) -> KeyMemory {
    let (mut memory, mut is_own, mut in_use_kib) = (KeyMemory::default(), false, 0);
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        match words.next().unwrap_or_default() {
            "VmFlags:" => {
                let has = |flag| line.split_whitespace().skip(1).any(|word| word == flag);
                // Memory that is wiped at a fork is the state of a random generator, not a key.
                if is_own && has("dd") && !has("wf") {
                    let sum =
                        if has("lo") { &mut memory.locked_kib } else { &mut memory.unlocked_kib };
                    *sum += in_use_kib;
                }
            }
            "Rss:" => in_use_kib = words.next().and_then(|kib| kib.parse().ok()).unwrap_or(0),
            range if range.contains('-') => is_own = words.next() == Some("rw-p"),
            _ => {}
        }
    }
    memory
}

/// The parent in `/proc/PID/stat`; the program's name, before it, may contain any characters.
pub fn parent(text: &str) -> Option<u32> {
    text.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// The swap areas in `/proc/swaps`: name and type.
pub fn swaps(text: &str) -> Vec<(String, String)> {
    let area = |line: &str| {
        let mut words = line.split_whitespace();
        // The kernel writes a space in a name as \040.
        Some((words.next()?.replace("\\040", " "), words.next()?.to_owned()))
    };
    text.lines().skip(1).filter_map(area).collect()
}

/// A variable in `/proc/PID/environ`.
pub fn variable(environ: &[u8], name: &str) -> Option<String> {
    environ.split(|byte| *byte == 0).find_map(|entry| {
        let value = entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        (!value.is_empty()).then(|| String::from_utf8_lossy(value).into_owned())
    })
}

/// The options in `/proc/PID/cmdline` of a server, without the program's name.
pub fn options(cmdline: &[u8]) -> Vec<String> {
    let words = cmdline.split(|byte| *byte == 0).skip(1).filter(|word| !word.is_empty());
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// The process and its children.
pub fn family(postmaster: u32) -> Vec<u32> {
    let Ok(listing) = fs::read_dir("/proc") else { return vec![postmaster] };
    let mut all = vec![postmaster];
    all.extend(
        listing
            .filter_map(|item| item.ok()?.file_name().to_str()?.parse().ok())
            .filter(|pid| read(*pid, "stat").as_deref().and_then(parent) == Some(postmaster)),
    );
    all
}

/// A file of a process in `/proc`.
pub fn read(pid: u32, name: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/{name}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: &str = "\
Limit                     Soft Limit           Hard Limit           Units     
Max cpu time              unlimited            unlimited            seconds   
Max core file size        0                    unlimited            bytes     
Max locked memory         8388608              8388608              bytes     
";

    #[test]
    fn limits_are_read() {
        assert_eq!(soft_limit(LIMITS, "Max core file size"), Some(Limit::Bytes(0)));
        assert_eq!(soft_limit(LIMITS, "Max locked memory"), Some(Limit::Bytes(8 << 20)));
        assert_eq!(soft_limit(LIMITS, "Max cpu time"), Some(Limit::Unlimited));
        assert_eq!(soft_limit(LIMITS, "Max nonsense"), None);
    }

    #[test]
    fn memory_for_keys_is_what_no_core_dump_has() {
        let mapping = |range: &str, rss: u64, flags: &str| {
            format!("{range} 00000000 00:00 0\nSize: 64 kB\nRss: {rss} kB\nVmFlags: {flags} \n")
        };
        let smaps = [
            mapping("7f00-7f10 rw-p", 12, "rd wr mr mw me ac lo dd"),
            mapping("7f10-7f20 rw-p", 8, "rd wr mr mw me ac dd"),
            mapping("7f20-7f30 rw-p", 4, "rd wr mr mw me wf dd"),
            mapping("7f30-7f40 rw-p", 99, "rd wr mr mw me ac lo"),
            mapping("7f40-7f50 r--p", 7, "rd mr dd"),
            mapping("7f50-7f60 rw-p", 20, "rd wr mr mw me ac lo dd"),
        ];
        let wanted = KeyMemory { locked_kib: 32, unlocked_kib: 8 };
        assert_eq!(key_memory(&smaps.concat()), wanted);
        assert_eq!(key_memory(""), KeyMemory::default());
    }

    #[test]
    fn the_library_is_found_in_the_maps() {
        let maps = "\
55d0c1e00000-55d0c1f00000 r--p 00000000 fe:01 1234   /usr/lib/postgresql/15/bin/postgres
7f0000000000-7f0000100000 r-xp 00000000 fe:01 77     /usr/local/lib/pgseal/libpgseal.so
7ffd00000000-7ffd00100000 rw-p 00000000 00:00 0      [stack]
";
        let path = PathBuf::from("/usr/local/lib/pgseal/libpgseal.so");
        assert_eq!(mapped_library(maps), Some((path.clone(), false)));
        let replaced = maps.replace("libpgseal.so", "libpgseal.so (deleted)");
        assert_eq!(mapped_library(&replaced), Some((path, true)));
        assert_eq!(mapped_library(&maps.replace("libpgseal.so", "libpgseal.so.old")), None);
    }

    #[test]
    fn the_parent_is_read() {
        assert_eq!(parent("42 (post) gres)) S 17 42 42 0"), Some(17));
        assert_eq!(parent("nonsense"), None);
    }

    #[test]
    fn swap_areas_are_read() {
        let text = "Filename\t\t\tType\t\tSize\n/dev/dm-1   partition\t999\t0\t-2\n/my\\040swap file 1 0 -3\n";
        let areas = swaps(text);
        assert_eq!(areas.len(), 2);
        assert_eq!(areas[0], ("/dev/dm-1".to_owned(), "partition".to_owned()));
        assert_eq!(areas[1].0, "/my swap");
        assert!(swaps("Filename\n").is_empty());
    }

    #[test]
    fn the_environment_is_read() {
        let environ = b"A=1\0PGSEAL_PROGRAMS=tar:rsync\0PGSEAL_EMPTY=\0";
        assert_eq!(variable(environ, "PGSEAL_PROGRAMS").as_deref(), Some("tar:rsync"));
        assert_eq!(variable(environ, "PGSEAL_EMPTY"), None);
        assert_eq!(variable(environ, "PGSEAL"), None);
    }

    #[test]
    fn the_options_of_a_server_are_read() {
        let words = options(b"/bin/postgres\0-D\0/my data\0-c\0port=5433\0");
        assert_eq!(words, ["-D", "/my data", "-c", "port=5433"]);
        assert!(options(b"/bin/postgres\0").is_empty() && options(b"").is_empty());
    }
}
