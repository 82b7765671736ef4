//! The keyring on disk: found, read, locked, and replaced so that a crash leaves one whole version.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use rustix::fs::OFlags;

use crate::config_record::{CONFIG_RECORD_FILE, MAX_RECORD_LEN};
use crate::error::KeyError;
use crate::keyring::Keyring;
use crate::wrap;

/// The directory of pgseal inside a data directory.
pub const KEYRING_DIR: &str = "pgseal";
/// The keyring inside [`KEYRING_DIR`].
pub const KEYRING_FILE: &str = "keyring";
/// The longest keyring file, in bytes.
pub const MAX_KEYRING_LEN: usize = 1 << 20;

/// `DATADIR/pgseal/keyring`.
#[must_use]
pub fn keyring_path(datadir: &Path) -> PathBuf {
    datadir.join(KEYRING_DIR).join(KEYRING_FILE)
}

/// Whether the last part of a path may be a symbolic link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Links {
    /// It is followed.
    Followed,
    /// It is no regular file.
    Refused,
}

/// Opens a regular file for reading. Anything else is never opened, only looked at: a FIFO would
/// make the program wait, and to open a device may already do something.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] for what is no regular file; those of the file system.
pub fn open_regular(path: &Path) -> io::Result<File> {
    open_regular_as(path, Links::Followed)
}

pub(crate) fn open_regular_as(path: &Path, links: Links) -> io::Result<File> {
    let mut flags = OFlags::PATH;
    if links == Links::Refused {
        flags |= OFlags::NOFOLLOW;
    }
    let flags = i32::try_from(flags.bits()).map_err(io::Error::other)?;
    // A handle that names the file without opening it, so that it cannot be exchanged in between.
    let named = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !named.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    File::open(format!("/proc/self/fd/{}", named.as_raw_fd())).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => io::Error::other("/proc is not mounted"),
        _ => error,
    })
}

/// The data directory of a keyring that lies in its place; else nothing.
pub(crate) fn datadir_of(keyring: &Path) -> Option<&Path> {
    let datadir = keyring.parent()?.parent()?;
    (keyring_path(datadir) == keyring).then_some(datadir)
}

/// Whoever owns the keyring can write it. One that belongs neither to root nor to the owner of the
/// data directory, nor to the present user, was put there by somebody else.
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
    /// [`KeyError::KeyringMissing`], [`KeyError::KeyringDamaged`], [`KeyError::Insecure`] for one of
    /// a stranger's, [`KeyError::Io`].
    pub fn load(path: &Path) -> Result<Keyring, KeyError> {
        let file = open_regular(path).map_err(|err| match err.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                KeyError::KeyringMissing { path: path.to_owned() }
            }
            io::ErrorKind::InvalidInput => KeyError::damaged(path, "it is not a regular file"),
            _ => KeyError::io(path, "open the keyring", err),
        })?;
        let meta = file.metadata().map_err(|err| KeyError::io(path, "stat the keyring", err))?;
        expect_owner(path, meta.uid())?;
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

    /// Writes the keyring over the one at `path`, or where there is none: a new file beside it,
    /// synced, renamed over it, and the directory synced. Until the rename the old one stands.
    ///
    /// # Errors
    /// [`KeyError::Io`]; the old keyring is then as it was, unless only the last sync of the
    /// directory failed.
    pub fn store_atomically(&self, path: &Path) -> Result<(), KeyError> {
        let dir = parent(path)?;
        make_private_dir(dir)?;
        let _lock = alone(dir);
        self.replace(dir, path)
    }

    fn replace(&self, dir: &Path, path: &Path) -> Result<(), KeyError> {
        put_in_place(NewFile::write(dir, path, KEYRING_FILE, &self.to_bytes())?, dir, path)
    }

    /// As [`Keyring::store_atomically`], but never over another keyring.
    ///
    /// # Errors
    /// [`KeyError::KeyringExists`], [`KeyError::Io`].
    pub fn store_new(&self, path: &Path) -> Result<(), KeyError> {
        let dir = parent(path)?;
        make_private_dir(dir)?;
        let _lock = alone(dir);
        let new = NewFile::write(dir, path, KEYRING_FILE, &self.to_bytes())?;
        // A link, unlike a rename, fails when the name is taken. The drop removes the other name.
        fs::hard_link(&new.path, path).map_err(|err| match err.kind() {
            io::ErrorKind::AlreadyExists => KeyError::KeyringExists { path: path.to_owned() },
            _ => KeyError::io(path, "put the new keyring in place", err),
        })?;
        drop(new);
        sync_dir(dir)
    }
}

/// Loads the keyring at `path`, changes it and stores it, alone: of two at the same time the
/// second waits and then sees what the first one wrote.
///
/// # Errors
/// Those of [`Keyring::load`], of `change`, and of [`Keyring::store_atomically`].
pub fn update<T>(
    path: &Path,
    change: impl FnOnce(&mut Keyring) -> Result<T, KeyError>,
) -> Result<T, KeyError> {
    let dir = parent(path)?;
    // The lock is on the directory, since the file itself is replaced. It ends with the handle.
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

/// The lock of [`update`], for one that writes a keyring without reading the old one; none where the
/// file system knows no locks.
fn alone(dir: &Path) -> Option<File> {
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
    let mut bytes = Vec::new();
    let limit = u64::try_from(MAX_RECORD_LEN + 1).unwrap_or(u64::MAX);
    match open_regular_as(&path, Links::Refused)
        .and_then(|file| file.take(limit).read_to_end(&mut bytes))
    {
        Ok(_) => Ok(Some(bytes)),
        Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(err) => Err(KeyError::io(&path, "read the record of the configuration", err)),
    }
}

/// Writes the configuration record over the one that is there, as [`Keyring::store_atomically`] does
/// the keyring. Within [`update`], whose lock keeps everybody else off it.
///
/// # Errors
/// [`KeyError::Io`].
pub fn write_config_record(datadir: &Path, bytes: &[u8]) -> Result<(), KeyError> {
    let path = config_record_path(datadir);
    let dir = parent(&path)?;
    put_in_place(NewFile::write(dir, &path, CONFIG_RECORD_FILE, bytes)?, dir, &path)
}

/// `DATADIR/pgseal/config`.
#[must_use]
pub fn config_record_path(datadir: &Path) -> PathBuf {
    datadir.join(KEYRING_DIR).join(CONFIG_RECORD_FILE)
}

fn put_in_place(new: NewFile, dir: &Path, path: &Path) -> Result<(), KeyError> {
    fs::rename(&new.path, path)
        .map_err(|err| KeyError::io(path, "put the new file in place", err))?;
    new.in_place();
    sync_dir(dir)
}

/// Whether a file in [`KEYRING_DIR`] has the name of a keyring or a configuration record in the
/// making. Where no command runs that changes it, one was cut off before the new file was put in
/// place, and the old one stands. The file holds nothing that is not sealed; the next command that
/// writes a keyring removes it.
#[must_use]
pub fn is_unfinished(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    let random = [KEYRING_FILE, CONFIG_RECORD_FILE]
        .into_iter()
        .find_map(|stem| name.strip_prefix(stem.as_bytes())?.strip_prefix(b".new."));
    random.is_some_and(|hex| hex.len() == 16 && hex.iter().all(u8::is_ascii_hexdigit))
}

/// Removes the keyrings in the making that commands left which were cut off. The caller holds the
/// lock, so none of them is being written.
fn remove_unfinished(dir: &Path) {
    let Ok(listing) = fs::read_dir(dir) else { return };
    for item in listing.flatten().filter(|item| is_unfinished(&item.file_name())) {
        // It does no harm, so it stops nobody.
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

/// The owner and group that a file in `dir` must have: those of the directory, so that a keyring
/// written by root can be read by the server.
fn owner_to_set(dir: &Path) -> Result<Option<(u32, u32)>, KeyError> {
    let meta = fs::metadata(dir).map_err(|err| KeyError::io(dir, "stat the directory", err))?;
    let me = rustix::process::geteuid().as_raw();
    Ok((meta.uid() != me).then(|| (meta.uid(), meta.gid())))
}

/// Whether the group of a directory, and nobody else, may read what is in it: in a data directory made with `initdb
/// --allow-group-access`, who backs it up copies the keyring as well, or the copy could not be opened.
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
    // The umask may have taken away even the owner's rights.
    fs::set_permissions(dir, fs::Permissions::from_mode(mode))
        .map_err(|err| KeyError::io(dir, "set the mode of the directory", err))?;
    let above = parent(dir)?;
    if let Some((uid, gid)) = owner_to_set(above)? {
        std::os::unix::fs::chown(dir, Some(uid), Some(gid))
            .map_err(|err| KeyError::io(dir, "give the directory its owner", err))?;
    }
    sync_dir(above)
}

pub(crate) fn sync_dir(dir: &Path) -> Result<(), KeyError> {
    File::open(dir)
        .and_then(|handle| handle.sync_all())
        .map_err(|err| KeyError::io(dir, "sync the directory", err))
}

/// A synced new file with a temporary name, removed unless it was put in place.
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
        // The umask may have taken away even the owner's rights.
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
            // Nothing more can be done; what stays holds wrapped keys only.
            let _ = fs::remove_file(&self.path);
        }
    }
}
