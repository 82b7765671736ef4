//! Reads and writes `pgseal/control`, in place and a sector at a time. [`super::position`] writes
//! the second part, which changes with each commit.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

use pgseal_core::KeySet;
use pgseal_core::broken::{self, Order};
use pgseal_core::random::Random;
use pgseal_keys::control::{
    CONTROL_LEN, Controls, Flushed, NONCE_LEN, Part, Sealer, open_controls, open_flushed, whole,
};

use crate::file::own_file::{self, Unusable};
use crate::keys::load;
use crate::os::log::{self, Shown};
use crate::os::memory::with_reserve;
use crate::os::random::KernelRandom;
use crate::os::real::Errno;
use crate::os::sys;
use crate::place::datadir::{self, Root};
use crate::place::program::{self, Role};
use crate::place::texts::{self, State};

/// The path of the record below a data directory.
const CONTROL: &[u8] = b"pgseal/control";

/// Why a server does not start with the record.
enum Refused {
    Unusable(Unusable),
    /// It is not that of this `pg_control`.
    Differs,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Unusable(why) => why.fmt(f),
            Refused::Differs => f.write_str(
                "\"global/pg_control\" is not the one that the server wrote last: one of the two is an older copy, or somebody changed it",
            ),
        }
    }
}

impl From<Unusable> for Refused {
    fn from(why: Unusable) -> Refused {
        Refused::Unusable(why)
    }
}

fn read(root: &Root) -> Result<Vec<u8>, Unusable> {
    own_file::read(root, CONTROL, CONTROL_LEN)
}

/// What the record says of the flushed position, if this `pg_control` is one of its versions.
/// `is_backup`: the directory was restored from a base backup, and any `pg_control` will do.
fn known(root: &Root, keys: &KeySet, control: &[u8], is_backup: bool) -> Result<Flushed, Refused> {
    let file = read(root)?;
    let controls = open_controls(&file, keys).map_err(Unusable::Record)?;
    if !is_backup && !controls.fit(control) {
        return Err(Refused::Differs);
    }
    Ok(open_flushed(&file, keys).map_err(Unusable::Record)?)
}

/// Compares `pg_control` with the record when a server starts, and returns up to where the WAL is
/// on the disk. A directory without a record gets one, if its server was shut down cleanly or if it
/// was restored from a base backup.
pub fn server_starts(root: &'static Root, keys: &KeySet, control: &[u8]) -> Result<Flushed, Errno> {
    let is_backup = has_backup_label(root);
    match known(root, keys, control, is_backup) {
        Ok(flushed) => Ok(flushed),
        Err(Refused::Unusable(Unusable::Gone))
            if is_backup || texts::state(control) == Some(State::Stopped) =>
        {
            write_whole(root, keys, &Controls::of(control, control, 0), Flushed::default())?;
            Ok(Flushed::default())
        }
        Err(why) => {
            log::line(format_args!(
                "ERROR: \"{}\": {why}; restore the data directory from a backup, or, if it is as you want it, run \"pgseal wal accept {}\"",
                Shown(&datadir::join(root.path(), CONTROL)),
                Shown(root.path())
            ));
            Err(libc::EACCES)
        }
    }
}

/// Whether the directory was restored from a base backup and not started since: its `pg_control` is
/// that of the end of the backup, and `backup_label` says where recovery begins.
pub fn has_backup_label(root: &Root) -> bool {
    let path = datadir::join(root.path(), b"backup_label").into_c();
    path.is_ok_and(|path| sys::stat(&path).is_some())
}

/// To be called before `new` is written to the control file of a root: from then on either content
/// is right. The record is on the disk when this returns.
pub fn before_control(root: &'static Root, new: &[u8]) -> Result<(), Errno> {
    let is_server = matches!(program::role(), Role::Server | Role::Standalone);
    if !is_server && has_backup_label(root) {
        return Ok(());
    }
    with_reserve(|| {
        let old = datadir::control_file(root);
        let known = match read(root) {
            Ok(file) => Some(file),
            Err(Unusable::Gone) if is_server => None,
            // A tool makes none, and a server will say what is wrong with this one.
            Err(_) if !is_server => return Ok(()),
            Err(why) => return Err(failed(root, &why)),
        };
        let keys = load::of(root)?;
        let epoch = match EPOCH.load(Ordering::Relaxed) {
            0 => known.as_deref().map_or(0, |file| epoch_in(file, keys).unwrap_or(0)),
            epoch => epoch,
        };
        let controls = Controls::of(old.as_deref().unwrap_or(new), new, epoch);
        if program::role() == Role::Resetwal || known.is_none() {
            // pg_resetwal begins new WAL: an act of the administrator.
            return write_whole(root, keys, &controls, Flushed::default());
        }
        write_controls(root, keys, &controls)
    })
}

/// Writes the first part, and syncs it.
fn write_controls(root: &Root, keys: &KeySet, controls: &Controls) -> Result<(), Errno> {
    let sealer = Sealer::new(Part::Controls, keys, &KernelRandom);
    let part = nonce().and_then(|nonce| {
        sealer.and_then(|sealer| sealer.controls(nonce, controls)).map_err(|_| libc::EIO)
    });
    let fd = open_to_write(root)?;
    part.and_then(|part| sys::pwrite_all(fd.0, &part, Part::Controls.offset() as u64))
        .and_then(|()| match broken::is(Order::ControlUnsynced) {
            true => Ok(()),
            false => sys::sync_data(fd.0),
        })
        .map_err(|errno| failed(root, &Unusable::Errno(errno)))
}

/// The epoch that the server of this process began; 0: it has no anchor.
static EPOCH: AtomicU64 = AtomicU64::new(0);

fn epoch_in(file: &[u8], keys: &KeySet) -> Option<u64> {
    open_controls(file, keys).ok().map(|controls| controls.epoch)
}

/// The epoch that the record has; `None`: there is no record, or it does not open.
pub fn epoch(root: &Root, keys: &KeySet) -> Option<u64> {
    epoch_in(&read(root).ok()?, keys)
}

/// Begins an epoch, to be called after [`server_starts`]. The record has it when this returns.
pub fn begin_epoch(root: &Root, keys: &KeySet, epoch: u64) -> Result<(), Errno> {
    let known = read(root).and_then(|file| open_controls(&file, keys).map_err(Unusable::Record));
    let controls = known.map_err(|why| failed(root, &why))?;
    EPOCH.store(epoch, Ordering::Relaxed);
    write_controls(root, keys, &Controls { epoch, ..controls })
}

fn failed(root: &Root, why: &Unusable) -> Errno {
    let path = datadir::join(root.path(), CONTROL);
    log::line(format_args!(
        "ERROR: \"{}\" cannot be written: {why}; make room, or give the server's user the right to write there",
        Shown(&path)
    ));
    libc::EIO
}

fn nonce() -> Result<[u8; NONCE_LEN], Errno> {
    let mut nonce = [0; NONCE_LEN];
    KernelRandom.fill(&mut nonce).map_err(|_| libc::EIO)?;
    Ok(nonce)
}

fn write_whole(
    root: &Root,
    keys: &KeySet,
    controls: &Controls,
    flushed: Flushed,
) -> Result<(), Errno> {
    let file = whole(controls, flushed, keys, &KernelRandom).map_err(|_| libc::EIO)?;
    own_file::replace(root, CONTROL, &file)
}

pub fn open_to_write(root: &Root) -> Result<sys::Fd, Errno> {
    let path = datadir::join(root.path(), CONTROL).into_c()?;
    sys::open(&path, libc::O_RDWR | libc::O_CLOEXEC | libc::O_NOFOLLOW, 0)
}
