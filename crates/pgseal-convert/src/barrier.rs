//! The barrier keeps every server, and every program of PostgreSQL that writes, away from a data
//! directory in which some files are plain and some are sealed.
//!
//! `PG_VERSION` then names a version that does not exist. Each program prints this version when it
//! refuses to work, so the text says what to do. `global/pg_control` lies in `pgseal/` meanwhile,
//! because `pg_checksums` does not look at `PG_VERSION`; without the control file, no program can
//! start or change anything. The preloaded library refuses when it sees the journal
//! (`pgseal/conversion`).

use std::path::{Path, PathBuf};

use crate::control::Control;
use crate::error::ConvertError;
use crate::files::{read_whole, sync_dir, write_whole};
use crate::journal::{Journal, OWN_DIR, Phase};
use crate::media::Media;

/// How `PG_VERSION` begins while a conversion is unfinished.
const MARK: &str = "0-half-converted";

/// The usual path of the control file.
#[must_use]
pub fn control_file(root: &Path) -> PathBuf {
    root.join("global").join("pg_control")
}

/// The path of the control file while no server may start.
#[must_use]
pub fn held_control_file(root: &Path) -> PathBuf {
    root.join(OWN_DIR).join("pg_control")
}

fn version_file(root: &Path) -> PathBuf {
    root.join("PG_VERSION")
}

/// The text of `PG_VERSION` while a conversion is unfinished. PostgreSQL reads the first word, up
/// to 63 characters, and shows it.
#[must_use]
pub fn mark(journal: &Journal) -> String {
    let command = journal.operation.name();
    format!(
        "{MARK}--to-go-on-run--pgseal-{command}\n\
         pgseal {command} was interrupted: some files of this data directory are sealed and some are \
         not.\nRun it again; it goes on where it stopped.\n"
    )
}

/// Raises the barrier. May be called again.
///
/// # Errors
/// Errors of the file system; [`ConvertError::Stopped`].
pub fn raise<M: Media>(
    media: &M,
    root: &Path,
    journal: &Journal,
    control: &Control,
) -> Result<(), ConvertError> {
    move_control_file(media, &control_file(root), &held_control_file(root), control)?;
    let version = version_file(root);
    let text = mark(journal);
    if read_whole(media, &version)? != text.as_bytes() {
        write_whole(media, &version, text.as_bytes(), &version, control)?;
    }
    Ok(())
}

/// Lowers the barrier. May be called again.
///
/// # Errors
/// Errors of the file system; [`ConvertError::Stopped`].
pub fn lower<M: Media>(
    media: &M,
    root: &Path,
    journal: &Journal,
    control: &Control,
) -> Result<(), ConvertError> {
    move_control_file(media, &held_control_file(root), &control_file(root), control)?;
    let version = version_file(root);
    if read_whole(media, &version)? != journal.pg_version.as_bytes() {
        write_whole(media, &version, journal.pg_version.as_bytes(), &version, control)?;
    }
    Ok(())
}

/// Moves the control file, unless it was moved already.
fn move_control_file<M: Media>(
    media: &M,
    from: &Path,
    to: &Path,
    control: &Control,
) -> Result<(), ConvertError> {
    if media.exists(from).map_err(ConvertError::io(from, "look for the control file"))? {
        control.step()?;
        media.rename(from, to).map_err(ConvertError::io(from, "put the control file away"))?;
    }
    control.step()?;
    // The new name is synced first: a power cut may leave both names, but never none.
    for path in [to, from] {
        if let Some(dir) = path.parent() {
            sync_dir(media, dir)?;
        }
    }
    Ok(())
}

/// Begins a conversion: stores the journal, calls `make_keys`, raises the barrier, and enters
/// [`Phase::Convert`].
///
/// # Errors
/// Errors of `make_keys` and of the file system. No file has been converted then; the next run
/// undoes what was begun ([`undo`]).
pub fn begin<M: Media, K, E: From<ConvertError>>(
    media: &M,
    root: &Path,
    journal: &mut Journal,
    control: &Control,
    make_keys: impl FnOnce() -> Result<K, E>,
) -> Result<K, E> {
    journal.store(media, root, control)?;
    let keys = make_keys()?;
    raise(media, root, journal, control)?;
    advance(media, root, journal, Phase::Convert, control)?;
    Ok(keys)
}

/// Undoes the changes of a run that never reached [`Phase::Convert`].
///
/// # Errors
/// Errors of the file system.
pub fn undo<M: Media>(
    media: &M,
    root: &Path,
    journal: &Journal,
    control: &Control,
) -> Result<(), ConvertError> {
    lower(media, root, journal, control)?;
    Journal::remove(media, root, control)
}

/// Lets servers start again, after all files have been converted.
///
/// # Errors
/// Errors of the file system; the journal then still says [`Phase::Finish`].
pub fn end<M: Media>(
    media: &M,
    root: &Path,
    journal: &Journal,
    control: &Control,
) -> Result<(), ConvertError> {
    undo(media, root, journal, control)
}

/// Stores in the journal that the next phase has begun.
///
/// # Errors
/// Errors of writing the journal.
pub fn advance<M: Media>(
    media: &M,
    root: &Path,
    journal: &mut Journal,
    phase: Phase,
    control: &Control,
) -> Result<(), ConvertError> {
    journal.phase = phase;
    journal.store(media, root, control)
}
