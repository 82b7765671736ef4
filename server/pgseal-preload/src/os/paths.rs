//! Paths as text, built on the stack and normalized without asking the file system. This file uses
//! nothing of the crate, so that `tests/fuzz/` can compile it alone.

use core::ffi::{CStr, c_int};
use core::fmt::{self, Write};
use core::mem::MaybeUninit;
use core::ops::Deref;

/// Room for a path: the longest name that the kernel accepts, below the longest directory.
const PATH_ROOM: usize = 2 * libc::PATH_MAX as usize;

/// A path that is built on the stack. The bytes after it are uninitialized: most paths are short,
/// and zeroing all of the room would cost more than the path.
pub struct PathText {
    /// The path, and a NUL.
    bytes: [MaybeUninit<u8>; PATH_ROOM],
    len: usize,
    /// Whether the path was too long and was truncated.
    cut: bool,
}

impl PathText {
    /// An empty path.
    pub const fn new() -> PathText {
        let mut bytes = [MaybeUninit::uninit(); PATH_ROOM];
        bytes[0] = MaybeUninit::new(0);
        PathText { bytes, len: 0, cut: false }
    }

    /// A path with these bytes.
    pub fn of(bytes: &[u8]) -> PathText {
        let mut text = PathText::new();
        text.push(bytes);
        text
    }

    /// Appends bytes. There is always room for a NUL after them.
    pub fn push(&mut self, bytes: &[u8]) {
        let room = PATH_ROOM - 1 - self.len;
        self.cut |= bytes.len() > room;
        let take = bytes.len().min(room);
        self.bytes[self.len..self.len + take].write_copy_of_slice(&bytes[..take]);
        self.len += take;
        self.bytes[self.len].write(0);
    }

    /// Keeps the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
        self.bytes[self.len].write(0);
    }

    fn with_nul(&self) -> &[u8] {
        // SAFETY: `push` and `truncate` write each byte before they count it, and the NUL behind
        // them.
        unsafe { self.bytes[..=self.len].assume_init_ref() }
    }
}

impl Deref for PathText {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.with_nul()[..self.len]
    }
}

impl Write for PathText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

/// A path as a C string, on the stack.
pub struct CPath(PathText);

impl Deref for CPath {
    type Target = CStr;

    fn deref(&self) -> &CStr {
        // Every `PathText` ends with a NUL.
        CStr::from_bytes_until_nul(self.0.with_nul()).unwrap_or_default()
    }
}

/// A path as a C string; an error if the path is too long or contains a NUL.
pub fn c_path(path: &[u8]) -> Result<CPath, c_int> {
    PathText::of(path).into_c()
}

impl PathText {
    /// As a C string; an error if the path was too long or contains a NUL.
    pub fn as_c(&self) -> Result<&CStr, c_int> {
        if self.cut {
            return Err(libc::ENAMETOOLONG);
        }
        CStr::from_bytes_with_nul(self.with_nul()).map_err(|_| libc::EINVAL)
    }

    /// As a C string that lives on. A move copies all of the room; [`PathText::as_c`] does not.
    pub fn into_c(self) -> Result<CPath, c_int> {
        self.as_c()?;
        Ok(CPath(self))
    }
}

/// Whether a path is relative and has neither `.`, `..` nor empty parts: then it is the same path
/// when it is [walked](PathText::walk).
pub fn is_walked(path: &[u8]) -> bool {
    !path.split(|byte| *byte == b'/').any(|part| matches!(part, b"" | b"." | b".."))
}

impl PathText {
    /// Extends an absolute path (an empty one stands for `/`) by another path, without `.`, `..`
    /// and doubled slashes. Symbolic links are not resolved.
    pub fn walk(&mut self, path: &[u8]) {
        if self[..] == *b"/" {
            self.truncate(0);
        }
        for part in path.split(|byte| *byte == b'/') {
            match part {
                b"" | b"." => {}
                b".." => {
                    let keep = self.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                    self.truncate(keep);
                }
                part => {
                    self.push(b"/");
                    self.push(part);
                }
            }
        }
        if self.is_empty() {
            self.push(b"/");
        }
    }
}

/// `dir/name`.
pub fn join(dir: &[u8], name: &[u8]) -> PathText {
    let mut path = PathText::of(dir.strip_suffix(b"/").unwrap_or(dir));
    path.push(b"/");
    path.push(name);
    path
}

/// The part before the last slash.
pub fn parent(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(0) => b"/",
        Some(at) => &path[..at],
        None => b".",
    }
}

/// The part after the last slash.
pub fn base_name(path: &[u8]) -> &[u8] {
    path.iter().rposition(|byte| *byte == b'/').map_or(path, |at| &path[at + 1..])
}

/// System directories, in which no data directory may lie. Paths below them are not searched for a
/// data directory: a server opens many files there.
const SYSTEM: [&[u8]; 12] = [
    b"/usr/share/",
    b"/usr/lib/",
    b"/usr/lib64/",
    b"/usr/bin/",
    b"/usr/sbin/",
    b"/lib/",
    b"/lib64/",
    b"/bin/",
    b"/etc/",
    b"/proc/",
    b"/sys/",
    b"/dev/",
];
/// Directories below these in which a data directory may lie.
const NOT_SYSTEM: [&[u8]; 1] = [b"/dev/shm/"];

/// Whether an absolute path is below a directory in which no data directory may lie.
pub fn is_system(path: &[u8]) -> bool {
    let below = |dirs: &[&[u8]]| dirs.iter().any(|dir| path.starts_with(dir));
    below(&SYSTEM) && !below(&NOT_SYSTEM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_has_no_room_names_no_file() {
        let mut path = PathText::of(b"/a/");
        path.push(&[b'x'; PATH_ROOM]);
        assert_eq!(path.len(), PATH_ROOM - 1);
        assert!(matches!(path.into_c(), Err(libc::ENAMETOOLONG)));
        assert!(matches!(c_path(b"/a\0b"), Err(libc::EINVAL)));
        let mut path = PathText::of(b"/a/bcd");
        path.truncate(3);
        path.push(b"e");
        assert_eq!(path.into_c().ok().as_deref(), Some(c"/a/e"));
    }

    #[test]
    fn only_directories_of_the_system_are_not_searched() {
        for path in [&b"/usr/share/postgresql/15/timezone/UTC"[..], b"/dev/null", b"/proc/1/stat"] {
            assert!(is_system(path));
        }
        // A file system in memory, and PostgreSQL's own default.
        for path in [&b"/dev/shm/data/base/1/1"[..], b"/usr/local/pgsql/data/base/1/1", b"/devel/x"]
        {
            assert!(!is_system(path));
        }
    }

    #[test]
    fn paths_are_walked_without_following_links() {
        let walked = |from: &[u8], path: &[u8]| {
            let mut text = PathText::of(from);
            text.walk(path);
            text.to_vec()
        };
        assert_eq!(walked(b"", b"/a//b/./c/../d"), b"/a/b/d");
        assert_eq!(walked(b"", b"/.."), b"/");
        assert_eq!(walked(b"/", b"x/"), b"/x");
        assert_eq!(walked(b"/data", b"./base/../../etc"), b"/etc");
        assert_eq!(parent(b"/a/b"), b"/a");
        assert_eq!(parent(b"/a"), b"/");
        assert_eq!(base_name(b"/a/b"), b"b");
        assert_eq!(base_name(b"b"), b"b");
        for path in [&b"a"[..], b"base/1/2", b".a/..b/c."] {
            assert!(is_walked(path));
            assert_eq!(walked(b"", path)[1..], *path);
        }
        for path in [&b""[..], b"/a", b"a//b", b"a/", b"./a", b"a/./b", b"..", b"a/../b"] {
            assert!(!is_walked(path));
        }
    }
}
