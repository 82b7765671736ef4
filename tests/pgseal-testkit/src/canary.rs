//! Looks for marker strings in raw files, in every encoding that could have been used to store
//! them.

use std::collections::HashSet;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use aho_corasick::AhoCorasick;

/// The encoding in which a marker was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// UTF-8, unchanged.
    Utf8,
    /// UTF-16, low byte first.
    Utf16Le,
    /// UTF-16, high byte first.
    Utf16Be,
    /// Hexadecimal digits of the UTF-8 bytes, a to f.
    HexLower,
    /// Hexadecimal digits of the UTF-8 bytes, A to F.
    HexUpper,
    /// Base64 (RFC 4648, section 4); the number is the marker's offset modulo 3 in the encoded
    /// data.
    Base64(u8),
}

/// A marker that was found. Per file, marker and encoding only the first place is reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// The file.
    pub path: PathBuf,
    /// The byte offset in the file.
    pub off: u64,
    /// Which marker.
    pub marker: String,
    /// The encoding in which it was found.
    pub encoding: Encoding,
}

impl fmt::Display for Hit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Hit { path, off, marker, encoding } = self;
        write!(f, "{}:{off}: \"{marker}\" as {encoding:?}", path.display())
    }
}

/// Bytes read at once.
const CHUNK: usize = 1 << 20;

/// Looks for each marker in the files named and in every file below the directories named. Links
/// are followed, and each file is read once. Files that disappear during the scan are skipped.
///
/// # Errors
/// Errors of reading. A marker must be at least 8 bytes long, so that no encoding of it matches by
/// chance.
pub fn scan<P: AsRef<Path>>(dirs: &[P], markers: &[&str]) -> io::Result<Vec<Hit>> {
    let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidInput, text);
    if let Some(short) = markers.iter().find(|marker| marker.len() < 8) {
        return Err(invalid(format!("the marker \"{short}\" is shorter than 8 bytes")));
    }
    let patterns: Vec<(usize, Encoding, Vec<u8>)> = markers
        .iter()
        .enumerate()
        .flat_map(|(index, marker)| {
            encodings(marker).into_iter().map(move |(encoding, bytes)| (index, encoding, bytes))
        })
        .collect();
    let automaton = AhoCorasick::new(patterns.iter().map(|(_, _, bytes)| bytes))
        .map_err(|error| invalid(error.to_string()))?;
    let longest = patterns.iter().map(|(_, _, bytes)| bytes.len()).max().unwrap_or(1);
    let mut files = Vec::new();
    let mut seen = HashSet::new();
    for dir in dirs {
        collect(dir.as_ref(), &mut seen, &mut files)?;
    }
    files.sort();
    let mut hits = Vec::new();
    for path in files {
        let found = match File::open(&path) {
            Ok(file) => scan_stream(file, &automaton, longest)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for (pattern, off) in found {
            if let Some((index, encoding, _)) = patterns.get(pattern) {
                let marker = markers.get(*index).copied().unwrap_or_default().to_owned();
                hits.push(Hit { path: path.clone(), off, marker, encoding: *encoding });
            }
        }
    }
    Ok(hits)
}

fn collect(
    path: &Path,
    seen: &mut HashSet<(u64, u64)>,
    files: &mut Vec<PathBuf>,
) -> io::Result<()> {
    let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let meta = match fs::metadata(path) {
        Ok(meta) => meta,
        Err(error) if gone(&error) => return Ok(()),
        Err(error) => return Err(error),
    };
    if !seen.insert((meta.dev(), meta.ino())) {
        return Ok(());
    }
    if meta.is_file() {
        files.push(path.to_owned());
    } else if meta.is_dir() {
        match fs::read_dir(path) {
            Ok(listing) => {
                for item in listing {
                    collect(&item?.path(), seen, files)?;
                }
            }
            Err(error) if gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The patterns found in a stream, each with the offset of its first occurrence.
fn scan_stream(
    mut from: impl Read,
    automaton: &AhoCorasick,
    longest: usize,
) -> io::Result<Vec<(usize, u64)>> {
    let overlap = longest.saturating_sub(1);
    let mut buf = vec![0; overlap + CHUNK];
    let (mut kept, mut base) = (0, 0_u64);
    let mut found: Vec<(usize, u64)> = Vec::new();
    loop {
        let got = match from.read(&mut buf[kept..]) {
            Ok(0) => return Ok(found),
            Ok(got) => got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let filled = kept + got;
        for hit in automaton.find_overlapping_iter(&buf[..filled]) {
            let pattern = hit.pattern().as_usize();
            if !found.iter().any(|(known, _)| *known == pattern) {
                found.push((pattern, base + hit.start() as u64));
            }
        }
        let keep = overlap.min(filled);
        buf.copy_within(filled - keep..filled, 0);
        base += (filled - keep) as u64;
        kept = keep;
    }
}

fn encodings(marker: &str) -> Vec<(Encoding, Vec<u8>)> {
    let bytes = marker.as_bytes();
    let hex = |digits: &[u8; 16]| {
        let digit = |value: u8| digits[usize::from(value)];
        bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
    };
    let mut all = vec![
        (Encoding::Utf8, bytes.to_vec()),
        (Encoding::Utf16Le, marker.encode_utf16().flat_map(u16::to_le_bytes).collect()),
        (Encoding::Utf16Be, marker.encode_utf16().flat_map(u16::to_be_bytes).collect()),
        (Encoding::HexLower, hex(b"0123456789abcdef")),
        (Encoding::HexUpper, hex(b"0123456789ABCDEF")),
    ];
    for before in 0..3 {
        all.push((Encoding::Base64(before), base64(bytes, usize::from(before))));
    }
    all
}

/// The base64 digits that depend on the marker alone, when its offset modulo 3 is `before`: without
/// the digits that also encode neighbouring bytes.
fn base64(bytes: &[u8], before: usize) -> Vec<u8> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bit = |at: usize| {
        let byte = at / 8;
        let value = byte.checked_sub(before).and_then(|index| bytes.get(index)).copied();
        value.unwrap_or(0) >> (7 - at % 8) & 1
    };
    let first = (before * 8).div_ceil(6);
    let last = (before + bytes.len()) * 8 / 6;
    (first..last)
        .map(|digit| {
            let value = (0..6).fold(0, |value, at| value << 1 | bit(digit * 6 + at));
            DIGITS[usize::from(value)]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    const MARKER: &str = "canary-7f3A-\u{e9}t\u{e9}";

    fn hits_in(content: &[u8]) -> Vec<(Encoding, u64)> {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), content).unwrap();
        let hits = scan(&[dir.path()], &["another-marker", MARKER]).unwrap();
        hits.into_iter()
            .map(|hit| {
                assert_eq!(hit.marker, MARKER);
                assert!(hit.path.ends_with("file"));
                (hit.encoding, hit.off)
            })
            .collect()
    }

    fn with(before: &[u8], bytes: &[u8]) -> Vec<u8> {
        [before, bytes, b"rest"].concat()
    }

    #[test]
    fn every_encoding_is_seen_where_it_is() {
        let utf16 = |to: fn(u16) -> [u8; 2]| MARKER.encode_utf16().flat_map(to).collect::<Vec<_>>();
        let hex: String = MARKER.bytes().map(|byte| format!("{byte:02x}")).collect();
        for (encoding, bytes) in [
            (Encoding::Utf8, MARKER.as_bytes().to_vec()),
            (Encoding::Utf16Le, utf16(u16::to_le_bytes)),
            (Encoding::Utf16Be, utf16(u16::to_be_bytes)),
            (Encoding::HexLower, hex.clone().into_bytes()),
            (Encoding::HexUpper, hex.to_uppercase().into_bytes()),
        ] {
            assert_eq!(hits_in(&with(b"abc", &bytes)), [(encoding, 3)]);
        }
    }

    /// The program base64 of the system is the judge.
    #[test]
    fn base64_is_seen_at_each_alignment() {
        use std::io::Write;
        for before in 0..6_usize {
            let mut child = Command::new("base64")
                .arg("-w0")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let content = with(&vec![b'x'; before], MARKER.as_bytes());
            child.stdin.take().unwrap().write_all(&content).unwrap();
            let encoded = child.wait_with_output().unwrap().stdout;
            let hits = hits_in(&encoded);
            let at = u8::try_from(before % 3).unwrap();
            assert!(matches!(hits[..], [(Encoding::Base64(found), _)] if found == at), "{hits:?}");
        }
    }

    #[test]
    fn a_marker_across_the_edge_of_two_reads_is_seen() {
        for start in CHUNK - 20..CHUNK + 2 {
            let mut content = vec![b'.'; CHUNK + 100];
            content[start..start + MARKER.len()].copy_from_slice(MARKER.as_bytes());
            assert_eq!(hits_in(&content), [(Encoding::Utf8, start as u64)]);
        }
        let mut far = vec![b'.'; 3 * CHUNK];
        far.extend_from_slice(MARKER.as_bytes());
        assert_eq!(hits_in(&far), [(Encoding::Utf8, 3 * CHUNK as u64)]);
    }

    #[test]
    fn nothing_is_seen_where_nothing_is() {
        assert_eq!(hits_in(&MARKER.as_bytes()[1..]), []);
        assert_eq!(hits_in(b""), []);
        assert!(scan(&["."], &["short"]).is_err());
    }

    #[test]
    fn links_are_followed_and_loops_end() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("segment"), MARKER).unwrap();
        std::os::unix::fs::symlink(outside.path(), dir.path().join("pg_wal")).unwrap();
        std::os::unix::fs::symlink(dir.path(), dir.path().join("loop")).unwrap();
        std::os::unix::fs::symlink("nowhere", dir.path().join("dangling")).unwrap();
        let hits = scan(&[dir.path()], &[MARKER]).unwrap();
        assert_eq!(hits.len(), 1);
        assert!(hits[0].path.ends_with("pg_wal/segment"));
    }
}
