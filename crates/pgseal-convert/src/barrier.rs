//! What keeps every server, and every program of PostgreSQL that writes, off a data directory in
//! which some files are plain and some sealed.
//!
//! `PG_VERSION` names a version that no program is: each prints that version in its refusal, so it
//! says what to do. `global/pg_control`, without which nothing can be started or changed, lies in
//! `pgseal/` meanwhile: `pg_checksums` does not look at `PG_VERSION`. The preloaded library
//! refuses by the journal (`pgseal/conversion`).

use std::path::{Path, PathBuf};

use crate::control::Control;
use crate::error::ConvertError;
use crate::journal::{Journal, OWN_DIR, Phase, read_whole, sync_dir, write_whole};
use crate::media::Media;

/// The first characters of a `PG_VERSION` that stands for an unfinished conversion.
const MARK: &str = "0-half-converted";

/// The control file in its place.
#[must_use]
pub fn control_file(root: &Path) -> PathBuf {
    root.join("global").join("pg_control")
}

/// The control file while no server may start.
#[must_use]
pub fn held_control_file(root: &Path) -> PathBuf {
    root.join(OWN_DIR).join("pg_control")
}

fn version_file(root: &Path) -> PathBuf {
    root.join("PG_VERSION")
}

/// The text of `PG_VERSION` while a conversion is unfinished. PostgreSQL reads up to 63 characters
/// without a space, and shows them.
#[must_use]
pub fn mark(journal: &Journal) -> String {
    let command = journal.operation.name();
    format!(
        "{MARK}--to-go-on-run--pgseal-{command}\n\
         pgseal {command} was interrupted: some files of this data directory are sealed and some are \
         not.\nRun it again; it goes on where it stopped.\n"
    )
}

/// Puts the barrier up. May be repeated.
///
/// # Errors
/// Those of the file system; [`ConvertError::Stopped`].
pub fn raise<M: Media>(
    media: &M,
    root: &Path,
    journal: &Journal,
    control: &Control,
) -> Result<(), ConvertError> {
    hold(media, &control_file(root), &held_control_file(root), control)?;
    let version = version_file(root);
    let text = mark(journal);
    if read_whole(media, &version)? != text.as_bytes() {
        write_whole(media, &version, text.as_bytes(), &version, control)?;
    }
    Ok(())
}

/// Takes the barrier down. May be repeated.
///
/// # Errors
/// Those of the file system; [`ConvertError::Stopped`].
pub fn lower<M: Media>(
    media: &M,
    root: &Path,
    journal: &Journal,
    control: &Control,
) -> Result<(), ConvertError> {
    hold(media, &held_control_file(root), &control_file(root), control)?;
    let version = version_file(root);
    if read_whole(media, &version)? != journal.pg_version.as_bytes() {
        write_whole(media, &version, journal.pg_version.as_bytes(), &version, control)?;
    }
    Ok(())
}

/// Moves the control file, unless it was moved already.
fn hold<M: Media>(
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
    // The new name first: a power cut may leave two of them, never none.
    for path in [to, from] {
        if let Some(dir) = path.parent() {
            sync_dir(media, dir)?;
        }
    }
    Ok(())
}

/// From a whole data directory to one that no server starts on: the journal, then the keys, which
/// `make_keys` makes, then the barrier.
///
/// # Errors
/// Those of `make_keys` and of the file system. The data directory is then as it was; the next run
/// takes back what was begun ([`undo`]).
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

/// Takes back what a run did that never came to [`Phase::Convert`].
///
/// # Errors
/// Those of the file system.
pub fn undo<M: Media>(
    media: &M,
    root: &Path,
    journal: &Journal,
    control: &Control,
) -> Result<(), ConvertError> {
    lower(media, root, journal, control)?;
    Journal::remove(media, root, control)
}

/// Lets servers in again, when all files are of the new form.
///
/// # Errors
/// Those of the file system; the journal then still says [`Phase::Finish`].
pub fn end<M: Media>(
    media: &M,
    root: &Path,
    journal: &Journal,
    control: &Control,
) -> Result<(), ConvertError> {
    undo(media, root, journal, control)
}

/// Goes on to the next phase, durably.
///
/// # Errors
/// Those of writing.
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
