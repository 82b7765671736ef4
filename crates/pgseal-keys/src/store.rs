//! Reads, locks and atomically replaces the keyring and the configuration record. After a crash,
//! either the whole old file or the whole new file is there.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;

use crate::body::MAX_KEYRING_LEN;
use crate::config_record::{CONFIG_RECORD_FILE, MAX_RECORD_LEN};
use crate::control::{CONTROL_FILE, CONTROL_LEN};
use crate::error::KeyError;
use crate::files::{Links, open_regular, open_regular_as, sync_dir};
use crate::keyring::Keyring;
use crate::manifest::{MANIFEST_FILE, MAX_MANIFEST_LEN};
use crate::paths::{
    KEYRING_FILE, config_record_path, control_path, datadir_of, manifest_path, renewal_path,
};
use crate::renewal::RENEWAL_FILE;
use crate::trusted::TrustedFile;
use crate::wrap;

/// Where the keyring of sealed columns belongs.
const OWN_PLACE: &str = "keep the keyring of sealed columns in a file of its own, as in \
                         /etc/pgseal/columns/keyring";

/// Refuses a keyring that belongs neither to root nor to the owner of the data directory nor to the
/// current user: its owner can write it, so a stranger may have put it there.
fn expect_owner(path: &Path, owner: u32) -> Result<(), KeyError> {
    let me = rustix::process::geteuid().as_raw();
    let above = match datadir_of(path) {
        Some(datadir) => datadir,
        None => parent(path)?,
    };
    let meta = fs::metadata(above).map_err(|err| KeyError::io(above, "stat the directory", err))?;
    if owner == 0 || owner == me || owner == meta.uid() {
        return Ok(());
    }
    Err(KeyError::Insecure {
        path: path.to_owned(),
        what: format!(
            "the keyring belongs to user {owner}, neither root nor user {}, who owns {}",
            meta.uid(),
            above.display()
        ),
        remedy: format!(
            "find out who put it there; if it is the right one: chown {} '{}'",
            meta.uid(),
            path.display()
        ),
    })
}

impl Keyring {
    /// Reads and parses the keyring file.
    ///
    /// # Errors
    /// [`KeyError::KeyringMissing`], [`KeyError::KeyringDamaged`], [`KeyError::Io`];
    /// [`KeyError::Insecure`] if a stranger owns the file.
    pub fn load(path: &Path) -> Result<Keyring, KeyError> {
        let file = open_regular(path).map_err(|err| match err.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                KeyError::KeyringMissing { path: path.to_owned() }
            }
            io::ErrorKind::InvalidInput => KeyError::damaged(path, err.to_string()),
            _ => KeyError::io(path, "open the keyring", err),
        })?;
        let meta = file.metadata().map_err(|err| KeyError::io(path, "stat the keyring", err))?;
        expect_owner(path, meta.uid())?;
        Keyring::read(file, path)
    }

    /// As [`Keyring::load`], for a keyring that a setting names, which somebody may have changed
    /// who can write to the data directory `datadir`: the keyring lies in no data directory, and
    /// only root and the current user can write it and the directories above it.
    ///
    /// # Errors
    /// As [`Keyring::load`].
    pub fn load_outside(path: &Path, datadir: Option<&Path>) -> Result<Keyring, KeyError> {
        let why = "it holds the keys of sealed columns";
        if datadir_of(path).is_some() {
            return Err(KeyError::Insecure {
                path: path.to_owned(),
                what: "that is the place of the keyring of a data directory".to_owned(),
                remedy: OWN_PLACE.to_owned(),
            });
        }
        let trusted = TrustedFile { path, why, place: "a directory such as /etc/pgseal/columns" };
        match trusted.open(datadir)? {
            Some(file) => Keyring::read(file, path),
            None => Err(KeyError::Missing {
                what: format!("{}: there is no keyring", path.display()),
                remedy: "put a copy of it there, or make it from an escrow copy (pgseal key \
                         restore)"
                    .to_owned(),
            }),
        }
    }

    fn read(file: File, path: &Path) -> Result<Keyring, KeyError> {
        let meta = file.metadata().map_err(|err| KeyError::io(path, "stat the keyring", err))?;
        if meta.len() > u64::try_from(MAX_KEYRING_LEN).unwrap_or(u64::MAX) {
            return Err(KeyError::damaged(path, "the file is longer than 1 MiB"));
        }
        let limit = u64::try_from(MAX_KEYRING_LEN + 1).unwrap_or(u64::MAX);
        let mut bytes = Vec::new();
        file.take(limit)
            .read_to_end(&mut bytes)
            .map_err(|err| KeyError::io(path, "read the keyring", err))?;
        Keyring::parse(&bytes, path)
    }

    /// Stores the keyring at `path`, replacing an old one: writes a new file beside it, syncs the
    /// new file, renames it over the old one and syncs the directory.
    ///
    /// # Errors
    /// [`KeyError::Io`]. The old keyring is then still there, unless only the sync of the directory
    /// failed.
    pub fn store_atomically(&self, path: &Path) -> Result<(), KeyError> {
        let dir = parent(path)?;
        make_private_dir(dir)?;
        let _lock = try_lock(dir);
        self.replace(dir, path)
    }

    fn replace(&self, dir: &Path, path: &Path) -> Result<(), KeyError> {
        put_in_place(NewFile::write(dir, path, KEYRING_FILE, &self.to_bytes())?, dir, path)
    }

    /// As [`Keyring::store_atomically`], but fails if there is a keyring already.
    ///
    /// # Errors
    /// [`KeyError::KeyringExists`], [`KeyError::Io`].
    pub fn store_new(&self, path: &Path) -> Result<(), KeyError> {
        let dir = parent(path)?;
        make_private_dir(dir)?;
        let _lock = try_lock(dir);
        let new = NewFile::write(dir, path, KEYRING_FILE, &self.to_bytes())?;
        // A link, unlike a rename, fails if the name is taken. Dropping `new` removes the temporary
        // name.
        fs::hard_link(&new.path, path).map_err(|err| match err.kind() {
            io::ErrorKind::AlreadyExists => KeyError::KeyringExists { path: path.to_owned() },
            _ => KeyError::io(path, "put the new keyring in place", err),
        })?;
        drop(new);
        sync_dir(dir)
    }
}

/// Loads the keyring at `path`, changes it and stores it, under a lock. If two processes do this at
/// the same time, the second waits and then loads what the first one stored.
///
/// # Errors
/// Those of [`Keyring::load`], of `change`, and of [`Keyring::store_atomically`].
pub fn update<T>(
    path: &Path,
    change: impl FnOnce(&mut Keyring) -> Result<T, KeyError>,
) -> Result<T, KeyError> {
    let dir = parent(path)?;
    // The lock is on the directory, since the file itself is replaced. Closing the handle unlocks.
    let lock = File::open(dir).map_err(|err| match err.kind() {
        io::ErrorKind::NotFound => KeyError::KeyringMissing { path: path.to_owned() },
        _ => KeyError::io(dir, "open the directory of the keyring", err),
    })?;
    lock.lock().map_err(|err| KeyError::io(dir, "lock the directory of the keyring", err))?;
    remove_unfinished(dir);
    let mut keyring = Keyring::load(path)?;
    let result = change(&mut keyring)?;
    keyring.replace(dir, path)?;
    Ok(result)
}

/// Takes the lock of [`update`], for a caller that writes a keyring without reading the old one.
/// `None` on a file system without locks.
fn try_lock(dir: &Path) -> Option<File> {
    let lock = File::open(dir).ok()?;
    lock.lock().ok()?;
    remove_unfinished(dir);
    Some(lock)
}

/// The bytes of the configuration record of a data directory; `None` if there is none.
///
/// # Errors
/// [`KeyError::Io`].
pub fn read_config_record(datadir: &Path) -> Result<Option<Vec<u8>>, KeyError> {
    let path = config_record_path(datadir);
    read_own(&path, MAX_RECORD_LEN, "read the record of the configuration")
}

/// The bytes of the manifest of a data directory; `None` if there is none.
///
/// # Errors
/// [`KeyError::Io`].
pub fn read_manifest(datadir: &Path) -> Result<Option<Vec<u8>>, KeyError> {
    read_own(&manifest_path(datadir), MAX_MANIFEST_LEN, "read the manifest")
}

/// The bytes of the control record of a data directory; `None` if there is none.
///
/// # Errors
/// [`KeyError::Io`].
pub fn read_control(datadir: &Path) -> Result<Option<Vec<u8>>, KeyError> {
    read_own(&control_path(datadir), CONTROL_LEN, "read the control record")
}

fn read_own(path: &Path, max_len: usize, what: &'static str) -> Result<Option<Vec<u8>>, KeyError> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(max_len + 1).unwrap_or(u64::MAX);
    match open_regular_as(path, Links::Refused)
        .and_then(|file| file.take(limit).read_to_end(&mut bytes))
    {
        Ok(_) => Ok(Some(bytes)),
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(err) => Err(KeyError::io(path, what, err)),
    }
}

/// Stores the configuration record, replacing an old one, in the way of
/// [`Keyring::store_atomically`]. Call it within [`update`], which holds the lock.
///
/// # Errors
/// [`KeyError::Io`].
pub fn write_config_record(datadir: &Path, bytes: &[u8]) -> Result<(), KeyError> {
    write_own(&config_record_path(datadir), CONFIG_RECORD_FILE, bytes)
}

/// Stores the manifest, replacing an old one, in the way of [`Keyring::store_atomically`].
///
/// # Errors
/// [`KeyError::Io`].
pub fn write_manifest(datadir: &Path, bytes: &[u8]) -> Result<(), KeyError> {
    write_own(&manifest_path(datadir), MANIFEST_FILE, bytes)
}

/// Stores the control record, replacing an old one, in the way of [`Keyring::store_atomically`].
///
/// # Errors
/// [`KeyError::Io`].
pub fn write_control(datadir: &Path, bytes: &[u8]) -> Result<(), KeyError> {
    write_own(&control_path(datadir), CONTROL_FILE, bytes)
}

/// Stores the renewal file, in the way of [`Keyring::store_atomically`].
///
/// # Errors
/// [`KeyError::Io`].
pub fn write_renewal(datadir: &Path, bytes: &[u8]) -> Result<(), KeyError> {
    write_own(&renewal_path(datadir), RENEWAL_FILE, bytes)
}

fn write_own(path: &Path, name: &str, bytes: &[u8]) -> Result<(), KeyError> {
    let dir = parent(path)?;
    put_in_place(NewFile::write(dir, path, name, bytes)?, dir, path)
}

fn put_in_place(new: NewFile, dir: &Path, path: &Path) -> Result<(), KeyError> {
    fs::rename(&new.path, path)
        .map_err(|err| KeyError::io(path, "put the new file in place", err))?;
    new.in_place();
    sync_dir(dir)
}

/// Whether a file in [`KEYRING_DIR`](crate::KEYRING_DIR) has the temporary name of a new keyring or
/// a new configuration record, manifest or control record. If no command is writing one, such a
/// file is left over from a command that was interrupted before the rename, and the old file is
/// still valid. The leftover holds only encrypted content, and the next command that writes a
/// keyring removes it.
#[must_use]
pub fn is_unfinished(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    let random = [KEYRING_FILE, CONFIG_RECORD_FILE, MANIFEST_FILE, CONTROL_FILE, RENEWAL_FILE]
        .into_iter()
        .find_map(|stem| name.strip_prefix(stem.as_bytes())?.strip_prefix(b".new."));
    random.is_some_and(|hex| hex.len() == 16 && hex.iter().all(u8::is_ascii_hexdigit))
}

/// Removes the temporary files that interrupted commands left. The caller holds the lock, so no
/// command is writing one of them.
fn remove_unfinished(dir: &Path) {
    let Ok(listing) = fs::read_dir(dir) else { return };
    for item in listing.flatten().filter(|item| is_unfinished(&item.file_name())) {
        // A leftover does no harm, so a failure here is ignored.
        let _ = fs::remove_file(item.path());
    }
}

fn parent(path: &Path) -> Result<&Path, KeyError> {
    match path.parent() {
        Some(dir) if dir.as_os_str().is_empty() => Ok(Path::new(".")),
        Some(dir) => Ok(dir),
        None => {
            let what = io::Error::from(io::ErrorKind::IsADirectory);
            Err(KeyError::io(path, "write a keyring there", what))
        }
    }
}

/// The owner and group that a new file in `dir` must be given; `None` if it has them already. They
/// are those of the directory, so that the server can read a keyring that root wrote.
fn owner_to_set(dir: &Path) -> Result<Option<(u32, u32)>, KeyError> {
    let meta = fs::metadata(dir).map_err(|err| KeyError::io(dir, "stat the directory", err))?;
    let me = rustix::process::geteuid().as_raw();
    Ok((meta.uid() != me).then(|| (meta.uid(), meta.gid())))
}

/// Whether the group of a directory may read it and other users may not. In a data directory made
/// with `initdb --allow-group-access`, a backup program runs as a member of the group, and it must
/// copy the keyring as well: without the keyring, nobody could open the backup.
fn group_reads(dir: &Path) -> Result<bool, KeyError> {
    let meta = fs::metadata(dir).map_err(|err| KeyError::io(dir, "stat the directory", err))?;
    Ok(meta.mode() & 0o077 == 0o050)
}

fn make_private_dir(dir: &Path) -> Result<(), KeyError> {
    let mode = if group_reads(parent(dir)?)? { 0o750 } else { 0o700 };
    match DirBuilder::new().mode(mode).create(dir) {
        Ok(()) => {}
        Err(err) if err.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        Err(err) => return Err(KeyError::io(dir, "make the directory of the keyring", err)),
    }
    // The umask may have removed permissions, even those of the owner.
    fs::set_permissions(dir, fs::Permissions::from_mode(mode))
        .map_err(|err| KeyError::io(dir, "set the mode of the directory", err))?;
    let above = parent(dir)?;
    if let Some((uid, gid)) = owner_to_set(above)? {
        std::os::unix::fs::chown(dir, Some(uid), Some(gid))
            .map_err(|err| KeyError::io(dir, "give the directory its owner", err))?;
    }
    sync_dir(above)
}

/// A new file, synced, with a temporary name. Dropping it removes the file, unless it has been
/// renamed into place.
struct NewFile {
    path: PathBuf,
    keep: bool,
}

impl NewFile {
    fn write(dir: &Path, target: &Path, stem: &str, bytes: &[u8]) -> Result<NewFile, KeyError> {
        let mut random = [0; 8];
        wrap::random(&mut random)?;
        let path = dir.join(format!("{stem}.new.{}", HEXLOWER.encode(&random)));
        let failed = |action| move |err| KeyError::io(target, action, err);
        let mode = if group_reads(dir)? { 0o640 } else { 0o600 };
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&path)
            .map_err(failed("make a new file beside it"))?;
        let new = NewFile { path, keep: false };
        // The umask may have removed permissions, even those of the owner.
        file.set_permissions(fs::Permissions::from_mode(mode))
            .map_err(failed("set the mode of the new file"))?;
        if let Some((uid, gid)) = owner_to_set(dir)? {
            fchown(&file, Some(uid), Some(gid)).map_err(failed("give the new file its owner"))?;
        }
        file.write_all(bytes).map_err(failed("write the new file"))?;
        file.sync_all().map_err(failed("sync the new file"))?;
        Ok(new)
    }

    fn in_place(mut self) {
        self.keep = true;
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.keep {
            // If this fails, the file stays, which does no harm: it holds only encrypted content.
            let _ = fs::remove_file(&self.path);
        }
    }
}
