//! How far a check has come, so that a check that was stopped can be continued.
//!
//! The file is `KEYRING-ID.verify.json` beside what `memory` remembers, never in the data
//! directory: whoever can write there could name a damaged file as checked.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pgseal_core::KeyringId;
use serde::{Deserialize, Serialize};

use crate::error::CliError;
use crate::scan::Entry;
use crate::{json_file, memory, small_file};

/// How often it is written while the check runs.
const INTERVAL: Duration = Duration::from_secs(20);

/// What tells that a file is still the one that was checked: device, inode, length, and the times
/// of modification and change in nanoseconds.
type Identity = (u64, u64, u64, i64, i64);

/// The content of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Saved {
    /// The directory that is checked.
    path: String,
    /// When the first run began: RFC 3339.
    began: String,
    /// The sealed files without a finding.
    done: BTreeMap<String, Identity>,
}

/// The progress of one check.
#[derive(Debug)]
pub struct Progress {
    file: PathBuf,
    saved: Mutex<(Saved, Instant)>,
    stop: Arc<AtomicBool>,
}

impl Progress {
    /// Begins a check, or continues the one that was stopped. `None`: this machine has no directory
    /// to remember in, so the check cannot be continued later.
    ///
    /// # Errors
    /// When there is nothing to continue.
    pub fn new(
        id: KeyringId,
        root: &Path,
        began: &str,
        continues: bool,
    ) -> Result<Option<Progress>, CliError> {
        let Some(dir) = memory::directory() else {
            return match continues {
                false => Ok(None),
                true => Err(CliError::Usage(
                    "verify --continue: this machine has no directory that remembers how far a check \
                     came; make /var/lib/pgseal, owned by the user who verifies, or set \
                     PGSEAL_STATE_DIR"
                        .to_owned(),
                )),
            };
        };
        let file = dir.join(format!("{id}.verify.json"));
        let root = root.canonicalize().map_err(CliError::io(root, "resolve the path"))?;
        let path = root.display().to_string();
        let mut saved = Saved { path, began: began.to_owned(), done: BTreeMap::new() };
        if continues {
            let known = small_file::read_up_to(&file, MAX_LEN).ok();
            let known = known.and_then(|bytes| serde_json::from_slice::<Saved>(&bytes).ok());
            saved = known.filter(|known| known.path == saved.path).ok_or_else(|| {
                CliError::Usage(format!(
                    "verify --continue: no check of {} was stopped on this machine; run it without \
                     --continue",
                    saved.path
                ))
            })?;
        }
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            // A second signal ends the program at once.
            signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))?;
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
        }
        Ok(Some(Progress { file, saved: Mutex::new((saved, Instant::now())), stop }))
    }

    /// Whether somebody wants the check to stop.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// When the first run of this check began.
    pub fn began(&self) -> String {
        self.saved.lock().unwrap_or_else(PoisonError::into_inner).0.began.clone()
    }

    /// Whether an earlier run has checked this file, and nobody changed it since.
    pub fn is_done(&self, entry: &Entry) -> bool {
        let saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
        let known = saved.0.done.get(&entry.name());
        known.is_some() && known.copied() == identity(entry)
    }

    /// Adds a file that is sound. `before`: its [`identity`] before it was read.
    pub fn add(&self, entry: &Entry, before: Option<Identity>) {
        let Some(known) = before.filter(|before| identity(entry) == Some(*before)) else { return };
        let mut saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
        saved.0.done.insert(entry.name(), known);
        if saved.1.elapsed() >= INTERVAL {
            saved.1 = Instant::now();
            // Continuing is a convenience: the check itself goes on.
            let _ = json_file::write(&self.file, memory::MODE, &saved.0);
        }
    }

    /// Writes how far the check came, and returns the number of files that are done.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn save(&self) -> Result<usize, CliError> {
        let saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
        let written = json_file::write(&self.file, memory::MODE, &saved.0);
        written.map_err(CliError::io(&self.file, "write how far the check came"))?;
        Ok(saved.0.done.len())
    }

    /// The check is complete: there is nothing to continue.
    pub fn forget(&self) {
        // There may be no file.
        let _ = fs::remove_file(&self.file);
    }
}

/// The longest file that is read: several million files fit.
const MAX_LEN: u64 = 1 << 30;

/// What the file is now.
pub fn identity(entry: &Entry) -> Option<Identity> {
    let meta = fs::metadata(&entry.path).ok()?;
    let nanos =
        |seconds: i64, rest: i64| seconds.saturating_mul(1_000_000_000).saturating_add(rest);
    let modified = nanos(meta.mtime(), meta.mtime_nsec());
    Some((meta.dev(), meta.ino(), meta.len(), modified, nanos(meta.ctime(), meta.ctime_nsec())))
}
