//! Refuses the first write after a recovery that ended before acknowledged commits.
//!
//! PostgreSQL takes WAL that it cannot read for the end of the WAL, and goes on writing there. What
//! it writes then differs from what is on the disk below the published position, and nothing else
//! ever does: pages that are written again have the same bytes up to that position.

use pgseal_core::error::SealError;
use pgseal_keys::control::Flushed;
use pgseal_pgdata::{WalPosition, WalSegment};

use super::flushed::{self, Shared};
use crate::os::log::{self, Shown};
use crate::os::memory::with_reserve;
use crate::os::real::Errno;
use crate::place::datadir;
use crate::place::symbol::Symbol;

/// `bool XLogInsertAllowed(void)`, `access/xlog.h`: false in the process that writes the WAL that a
/// standby receives.
static INSERTS: Symbol = Symbol::new(c"XLogInsertAllowed");

/// `pid_t PostmasterPid`, `utils/init/globals.c`; 0 in a single-user server.
static POSTMASTER: Symbol = Symbol::new(c"PostmasterPid");

/// Asks the postmaster for an immediate shutdown. PostgreSQL's answer to the failed write is the
/// PANIC of one process; if that is the checkpointer, the postmaster would begin the same recovery
/// again, without end.
fn end_server() {
    // SAFETY: no pointers involved.
    let parent = unsafe { libc::getppid() };
    let postmaster = POSTMASTER.number().and_then(|pid| libc::pid_t::try_from(pid).ok());
    if postmaster == Some(parent) && parent > 1 {
        // SAFETY: no pointers involved.
        unsafe { libc::kill(parent, libc::SIGQUIT) };
    }
}

/// Bytes that are compared at once.
const PIECE: usize = 8192;

/// To be called before `new` is written to a WAL file at a plain offset. `read` reads the file as
/// it is.
#[inline]
pub fn before_write(
    path: &[u8],
    off: u64,
    new: &[u8],
    read: impl FnMut(&mut [u8], u64) -> Result<usize, SealError>,
) -> Result<(), Errno> {
    match flushed::shared() {
        Some(shared) => match shared.end() {
            Some(end) => check(shared, end, path, off, new, read),
            None => Ok(()),
        },
        None => Ok(()),
    }
}

#[cold]
fn check(
    shared: &Shared,
    end: Flushed,
    path: &[u8],
    off: u64,
    new: &[u8],
    mut read: impl FnMut(&mut [u8], u64) -> Result<usize, SealError>,
) -> Result<(), Errno> {
    let Some(segment) = WalSegment::of_name(datadir::base_name(path)) else { return Ok(()) };
    let Some(start) = segment.start(shared.segment_bytes()) else { return Ok(()) };
    // SAFETY: `bool XLogInsertAllowed(void)`, `access/xlog.h`.
    let inserts = unsafe { INSERTS.function::<unsafe extern "C" fn() -> bool>() };
    // SAFETY: this is a process of the server that writes WAL.
    let is_received = inserts.is_some_and(|inserts| !unsafe { inserts() });
    if is_received || segment.timeline < end.timeline {
        return Ok(());
    }
    if segment.timeline > end.timeline {
        // Recovery to a target, or a promotion: a new timeline begins.
        shared.end_is_reached();
        return Ok(());
    }
    let at = start + off;
    let below = usize::try_from(end.position.saturating_sub(at)).unwrap_or(usize::MAX);
    let kept = new.get(..below).unwrap_or(new);
    let differs = with_reserve(|| {
        let mut old = [0; PIECE];
        for (index, piece) in kept.chunks(PIECE).enumerate() {
            let before = index * PIECE;
            let target = &mut old[..piece.len()];
            // What cannot be read differs.
            let got = read(target, off + before as u64).unwrap_or(0);
            let same = target[..got].iter().zip(piece).take_while(|(a, b)| a == b).count();
            if same < piece.len() {
                return Some((before + same) as u64);
            }
        }
        None
    });
    if let Some(same) = differs {
        let lost = WalSegment::at(end.timeline, at + same, shared.segment_bytes());
        log::line(format_args!(
            "ERROR: \"{}\": recovery ended at {} or before, but the WAL was on the disk up to {}, and commits up to there were acknowledged: WAL from segment {lost} on is damaged, missing or an older copy; nothing was overwritten: restore these segments from the archive or a standby and start again, or accept the loss with \"pgseal wal accept --lose-after {}\"",
            Shown(path),
            WalPosition(at + same),
            WalPosition(end.position),
            WalPosition(at + same)
        ));
        end_server();
        return Err(libc::EIO);
    }
    if at + new.len() as u64 >= end.position {
        shared.end_is_reached();
    }
    Ok(())
}
