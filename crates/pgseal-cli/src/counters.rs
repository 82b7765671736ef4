//! Reads the counters of a running server (`pgseal_pgdata::counters`). The postmaster has their
//! memory open as a file; root and the server's own user can open it through `/proc/PID/fd`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use pgseal_pgdata::counters::{HEADER_BYTES, MAGIC, MEMORY_NAME, TEXT_OFF, VERSION};
use serde::Serialize;

/// Larger than the counters of any server, in bytes.
const LIMIT: u64 = 16 << 20;

/// The counters of a server since its start. The names come from the server's library, which may
/// have another version than this program.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// The version of the library in the server.
    pub library_version: String,
    /// When the server started, seconds since 1970.
    pub started_unix_s: u64,
    /// For each class of files: the name and value of each counter.
    pub classes: BTreeMap<String, BTreeMap<String, u64>>,
    /// The counters of sealed column values.
    pub columns: BTreeMap<String, u64>,
}

/// Why there are no counters.
#[derive(Debug, thiserror::Error)]
pub enum NoCounters {
    /// No server runs.
    #[error("no server runs on it")]
    NoServer,
    /// The server's process is another user's.
    #[error("process {0} is another user's; run pgseal as root or as the user of the server")]
    NotAllowed(u32),
    /// A server without the library, or with an older one.
    #[error("process {0} counts nothing; is it a server with the library, of this version?")]
    NotThere(u32),
    /// Memory of a layout that this program does not know.
    #[error(
        "the server counts in a way that this pgseal does not know; use the pgseal that it runs with"
    )]
    Unknown,
    /// The operating system refused something.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file below `/proc`.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Counters {
    /// Reads what the server with this process number has counted.
    ///
    /// # Errors
    /// When there are no counters to read.
    pub fn of_server(pid: Option<u32>) -> Result<Counters, NoCounters> {
        let pid = pid.ok_or(NoCounters::NoServer)?;
        let dir = PathBuf::from(format!("/proc/{pid}/fd"));
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source: io::Error| match source.kind() {
                io::ErrorKind::PermissionDenied => NoCounters::NotAllowed(pid),
                io::ErrorKind::NotFound => NoCounters::NoServer,
                _ => NoCounters::Io { path, source },
            }
        };
        let wanted = format!("/memfd:{}", MEMORY_NAME.to_string_lossy());
        for entry in fs::read_dir(&dir).map_err(failed(&dir))? {
            let path = entry.map_err(failed(&dir))?.path();
            // The descriptor may have been closed meanwhile.
            let Ok(target) = fs::read_link(&path) else { continue };
            let target = target.to_string_lossy();
            if target.strip_suffix(" (deleted)").unwrap_or(&target) != wanted {
                continue;
            }
            let mut bytes = Vec::new();
            let file = File::open(&path).map_err(failed(&path))?;
            file.take(LIMIT).read_to_end(&mut bytes).map_err(failed(&path))?;
            return decode(&bytes).ok_or(NoCounters::Unknown);
        }
        Err(NoCounters::NotThere(pid))
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
}

fn decode(bytes: &[u8]) -> Option<Counters> {
    if !bytes.starts_with(&MAGIC) || u32_at(bytes, 8)? != VERSION {
        return None;
    }
    let [slots, slot_bytes, classes, counters, columns] = [12, 16, 20, 24, 28].map(|at| {
        // No number may exceed the length of the file, so that no product below overflows.
        u32_at(bytes, at).map(|number| number as usize).filter(|number| *number <= bytes.len())
    });
    let (slots, slot_bytes, classes, counters, columns) =
        (slots?, slot_bytes?, classes?, counters?, columns?);
    let text = bytes.get(TEXT_OFF..TEXT_OFF.checked_add(u32_at(bytes, 40)? as usize)?)?;
    let mut lines = std::str::from_utf8(text).ok()?.lines();
    let library_version = lines.next()?.to_owned();
    let mut names = |number: usize| -> Option<Vec<String>> {
        let names: Vec<_> = lines.next()?.split(' ').map(str::to_owned).collect();
        (names.len() == number).then_some(names)
    };
    let (class_names, counter_names, column_names) =
        (names(classes)?, names(counters)?, names(columns)?);
    if slot_bytes < (classes * counters + columns) * 8 {
        return None;
    }
    let sum = |word: usize| {
        (0..slots).try_fold(0_u64, |sum, slot| {
            let value = u64_at(bytes, HEADER_BYTES + slot * slot_bytes + word * 8)?;
            Some(sum.wrapping_add(value))
        })
    };
    let first_column = classes * counters;
    let named = |names: &[String], first: usize| -> Option<BTreeMap<String, u64>> {
        names.iter().zip(first..).map(|(name, word)| Some((name.clone(), sum(word)?))).collect()
    };
    let classes: Option<_> = class_names
        .into_iter()
        .enumerate()
        .map(|(at, name)| Some((name, named(&counter_names, at * counters)?)))
        .collect();
    Some(Counters {
        library_version,
        started_unix_s: u64_at(bytes, 32)?,
        columns: named(&column_names, first_column)?,
        classes: classes?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two slots, two classes of two counters, one counter of columns.
    fn memory() -> Vec<u8> {
        let text = "9.9\nrelation wal\nsealed opened\nvalues\n";
        let mut bytes = [&MAGIC[..], &VERSION.to_le_bytes()].concat();
        for number in [2_u32, 64, 2, 2, 1] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(1_700_000_000_u64.to_le_bytes());
        bytes.extend((text.len() as u32).to_le_bytes());
        bytes.extend(text.bytes());
        bytes.resize(HEADER_BYTES, 0);
        for slot in 0..2_u64 {
            for word in 0..8_u64 {
                bytes.extend((word + slot * 100).to_le_bytes());
            }
        }
        bytes
    }

    #[test]
    fn counters_are_summed_over_the_slots_under_the_servers_own_names() {
        let counters = decode(&memory()).unwrap();
        assert_eq!(counters.library_version, "9.9");
        assert_eq!(counters.started_unix_s, 1_700_000_000);
        assert_eq!(counters.classes["relation"]["opened"], 102);
        assert_eq!(counters.classes["wal"]["sealed"], 104);
        assert_eq!(counters.columns["values"], 108);
    }

    #[test]
    fn memory_of_another_kind_is_told() {
        let good = memory();
        assert!(decode(&[]).is_none());
        for at in [0, 8, 20, 24, 28] {
            let mut other = good.clone();
            other[at] ^= 1;
            assert!(decode(&other).is_none(), "byte {at}");
        }
        for at in [12, 16, 40] {
            let mut other = good.clone();
            other[at + 3] = 0xFF;
            assert!(decode(&other).is_none(), "byte {at}");
        }
        assert!(decode(&good[..good.len() - 25]).is_none());
    }
}
