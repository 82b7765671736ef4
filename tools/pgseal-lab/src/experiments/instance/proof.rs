//! Checks that sealed files contain no plain text, that the plain ones do, and that all arms hold
//! the same data.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use memchr::memmem;

use super::cache::files_below;
use crate::cluster::{Cluster, Tools};
use crate::context::output_of;
use crate::error::LabError;

/// A query whose answer sums up a table, independent of the order of its rows.
pub const ANSWER: &str = "SELECT count(*), sum(aid::bigint * (bid + 1)), sum(hashtext(filler)::bigint) FROM pgbench_accounts";

/// A text that is in one row only, and long enough to prove a leak when found.
const CANARY: &str = "lab-canary-4c1f-no-sealed-file-may-hold-this-line";

/// Statements that put the canary into a table and into the WAL, and write both to disk.
pub fn plant() -> [String; 3] {
    [
        "DROP TABLE IF EXISTS lab_canary".to_owned(),
        format!(
            "CREATE TABLE lab_canary AS SELECT i, '{CANARY}' AS words FROM generate_series(1, 2000) i"
        ),
        "CHECKPOINT".to_owned(),
    ]
}

/// Looks for the canary in all files below a directory: the data directory, or the encrypted
/// directory behind its mount. `file` is the path of the canary's table in the data directory.
///
/// # Errors
/// [`LabError::Broken`] if the canary is found where it must not be, or is missing where it must
/// be.
pub fn look(
    tools: &Tools,
    cluster: &Cluster,
    behind: &Path,
    encrypted: bool,
    file: &str,
) -> Result<String, LabError> {
    let mut holds = Vec::new();
    for path in files_below(behind)? {
        if contains(&path)? {
            holds.push(path);
        }
    }
    let what = format!("cluster {}", cluster.name);
    let broken = |expected: &str, found: String| {
        Err(LabError::Broken { what: what.clone(), expected: expected.to_owned(), found })
    };
    match (encrypted, holds.first()) {
        (true, Some(path)) => return broken("no readable row on disk", path.display().to_string()),
        (false, None) => return broken("readable rows on disk", "none".to_owned()),
        _ => {}
    }
    let Some(suite) = &cluster.suite else {
        return Ok(
            if encrypted { "no readable row on disk" } else { "rows readable on disk" }.to_owned()
        );
    };
    let path = cluster.data.join(file);
    let text = output_of(tools.program(&tools.pgseal).args(["inspect", "--json"]).arg(&path))?;
    let header: serde_json::Value =
        serde_json::from_str(&text).map_err(|error| LabError::Output {
            command: format!("pgseal inspect --json {}", path.display()),
            wanted: format!("header ({error})"),
        })?;
    match header.get("suite").and_then(|found| found.as_str()) {
        Some(found) if found == suite => Ok(format!("{suite} by header, no readable row on disk")),
        found => broken(suite, found.unwrap_or("no suite in the header").to_owned()),
    }
}

fn contains(path: &PathBuf) -> Result<bool, LabError> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        // The server may remove files meanwhile.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(LabError::io(path, "open the file")(error)),
    };
    let finder = memmem::Finder::new(CANARY);
    let mut buffer = vec![0; 1 << 20];
    let mut kept = 0;
    loop {
        let free = buffer.get_mut(kept..).unwrap_or_default();
        let read = file.read(free).map_err(LabError::io(path, "read the file"))?;
        let filled = kept + read;
        if finder.find(buffer.get(..filled).unwrap_or_default()).is_some() {
            return Ok(true);
        }
        if read == 0 {
            return Ok(false);
        }
        // A canary may begin at the end of one piece and end in the next.
        let tail = filled.min(CANARY.len() - 1);
        buffer.copy_within(filled - tail..filled, 0);
        kept = tail;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_canary_is_found_also_where_two_pieces_meet() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        for before in [0, 5, (1 << 20) - 20, (1 << 20) - 1, 3 << 20] {
            let mut bytes = vec![b'l'; before];
            bytes.extend(CANARY.as_bytes());
            std::fs::write(&path, &bytes).unwrap();
            assert!(contains(&path).unwrap(), "{before}");
            bytes.pop();
            std::fs::write(&path, &bytes).unwrap();
            assert!(!contains(&path).unwrap(), "{before}");
        }
    }
}
