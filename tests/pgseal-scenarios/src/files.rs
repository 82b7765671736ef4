//! Files and directories as an attacker or an administrator handles them: raw bytes.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use pgseal_cluster::Patience;

/// Bytes of the header of a sealed file.
pub const HEADER: u64 = 8192;
/// Bytes of the tag block before each group of 256 pages of a relation file.
pub const TAG_BLOCK: u64 = 8192;
/// Bytes of a page.
pub const PAGE: u64 = 8192;
/// Bytes of a page's entry in its tag block.
pub const TAG_ENTRY: u64 = 32;

/// Where a page of the first group of a sealed relation file starts.
#[must_use]
pub fn page_off(block: u64) -> u64 {
    HEADER + TAG_BLOCK + block * PAGE
}

/// Where a byte of the WAL lies in the first group of a sealed segment.
#[must_use]
pub fn wal_off(plain_off: u64) -> u64 {
    HEADER + TAG_BLOCK + plain_off
}

/// Where the tag entry of this page starts.
#[must_use]
pub fn tag_off(block: u64) -> u64 {
    HEADER + block * TAG_ENTRY
}

/// Flips one bit.
///
/// # Panics
/// When the file is too short.
pub fn flip_bit(path: &Path, off: u64) {
    let mut byte = read(path, off, 1);
    byte[0] ^= 0x10;
    write(path, off, &byte);
}

/// Bytes of a file.
///
/// # Panics
/// When the file does not have these bytes.
#[must_use]
pub fn read(path: &Path, off: u64, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(len).expect("a small length")];
    let file = fs::File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let done = file.read_exact_at(&mut bytes, off);
    done.unwrap_or_else(|error| panic!("{} at {off}: {error}", path.display()));
    bytes
}

/// Overwrites bytes of a file in place.
///
/// # Panics
/// When the write fails.
pub fn write(path: &Path, off: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(path).expect("the file is there");
    file.write_all_at(bytes, off).expect("the file can be written");
}

/// Overwrites bytes with zeros.
pub fn zero(path: &Path, off: u64, len: u64) {
    write(path, off, &vec![0; usize::try_from(len).expect("a small length")]);
}

/// Makes a file of zeros, owned as its directory is.
pub fn leave_zeros(path: &Path, len: u64) {
    fs::write(path, vec![0; usize::try_from(len).expect("small")]).expect("it can be written");
    own_as_parent(path);
}

/// Gives a file or directory to the owner of the directory that it is in.
pub fn own_as_parent(path: &Path) {
    let dir = fs::metadata(path.parent().expect("a directory")).expect("it is there");
    std::os::unix::fs::chown(path, Some(dir.uid()), Some(dir.gid())).expect("it can be given away");
}

/// Truncates a file.
///
/// # Panics
/// When the file cannot be truncated.
pub fn truncate(path: &Path, len: u64) {
    let file = OpenOptions::new().write(true).open(path).expect("the file is there");
    file.set_len(len).expect("the file can be cut");
}

/// The length of a file.
///
/// # Panics
/// When the file does not exist.
#[must_use]
pub fn len(path: &Path) -> u64 {
    fs::metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).len()
}

/// Puts the content of one file into another, which keeps its owner and mode.
///
/// # Panics
/// When a file cannot be read or written.
pub fn replace(path: &Path, with: &Path) {
    let bytes = fs::read(with).unwrap_or_else(|error| panic!("{}: {error}", with.display()));
    fs::write(path, bytes).expect("the file can be written");
}

/// `cp -a`, as an administrator copies a directory. The target must not exist. If a server is
/// running, files may disappear during the copy; that is no failure here. If a file is renamed over
/// another one at that moment, cp copies neither, and the copy is repeated.
///
/// # Panics
/// When there is no cp, or the copy fails.
pub fn copy_tree(from: &Path, to: &Path) {
    for _ in 0..20 {
        let output = Command::new("cp").arg("-a").arg(from).arg(to).output().expect("cp runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if !said.contains("replaced while being copied") {
            let vanished = said.lines().all(|line| line.contains("No such file or directory"));
            assert!(to.is_dir() && (output.status.success() || vanished), "cp -a: {said}");
            return;
        }
        fs::remove_dir_all(to).unwrap_or_else(|error| panic!("{}: {error}", to.display()));
    }
    panic!("{}: files are replaced whenever they are copied", from.display());
}

/// Restores a directory from a copy of it.
///
/// # Panics
/// When the directory cannot be restored.
pub fn restore_tree(copy: &Path, to: &Path) {
    fs::remove_dir_all(to).unwrap_or_else(|error| panic!("{}: {error}", to.display()));
    copy_tree(copy, to);
}

/// For each file below a directory: its path, and a hash of its content, length and mode.
///
/// # Panics
/// When a file cannot be read.
#[must_use]
pub fn fingerprint(dir: &Path) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    collect(dir, dir, &mut all);
    all
}

fn collect(root: &Path, dir: &Path, all: &mut BTreeMap<String, u64>) {
    for item in fs::read_dir(dir).expect("a directory").flatten() {
        let path = item.path();
        let kind = item.file_type().expect("a type");
        if kind.is_dir() {
            collect(root, &path, all);
            continue;
        }
        let mut hasher = DefaultHasher::new();
        if kind.is_symlink() {
            fs::read_link(&path).expect("a link").hash(&mut hasher);
        } else if kind.is_file() {
            fs::read(&path).expect("a file").hash(&mut hasher);
        }
        let name = path.strip_prefix(root).expect("below the root").display().to_string();
        all.insert(name, hasher.finish());
    }
}

/// The names that differ between two fingerprints.
#[must_use]
pub fn changes(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> Vec<String> {
    let names = before.keys().chain(after.keys());
    let mut changed: Vec<String> =
        names.filter(|name| before.get(*name) != after.get(*name)).cloned().collect();
    changed.sort();
    changed.dedup();
    changed
}

/// The names in a directory; empty if the directory does not exist.
#[must_use]
pub fn names_in(dir: &Path) -> Vec<String> {
    let Ok(listing) = fs::read_dir(dir) else { return Vec::new() };
    listing.flatten().map(|item| item.file_name().to_string_lossy().into_owned()).collect()
}

/// Checks ten times a second, for at least a minute, whether a condition holds.
///
/// # Panics
/// When the condition does not become true in time.
pub fn wait_for(what: &str, is_there: impl Fn() -> bool) {
    let patience = Patience::every(Duration::from_millis(100), 60);
    assert!(patience.wait_until(is_there), "waited in vain for {what}");
}
