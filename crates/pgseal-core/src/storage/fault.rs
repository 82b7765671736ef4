//! Storage that fails when a plan says so.
//!
//! A plan is a comma-separated list of `KIND@OP#N`: `KIND` is `eio`, `enospc` or `short-read`, `OP`
//! is `read`, `write`, `len`, `set-len`, `sync` or `grow`, `N` counts the operations of that sort
//! from 1; `N+` means this one and all that follow. `grow` is a write or a change of length that
//! makes the file longer: `enospc@grow#1+` is a full disk. `:BYTES` behind it says how many bytes
//! are read or written before the failure, for example `enospc@write#2:100`.

use core::fmt;
use core::str::FromStr;
use std::io;
use std::sync::{Mutex, PoisonError};

use super::{Accelerator, Storage};
use crate::units::{SealedLen, SealedOff};

/// How an operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// An input/output error.
    Eio,
    /// The disk is full.
    Enospc,
    /// No error, but the file seems to end early (only reads).
    ShortRead,
}

/// A sort of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// [`Storage::read_at`].
    Read = 0,
    /// [`Storage::write_at`].
    Write = 1,
    /// [`Storage::len`].
    Len = 2,
    /// [`Storage::set_len`].
    SetLen = 3,
    /// [`Storage::sync`].
    Sync = 4,
    /// A write or a change of length that makes the file longer.
    Grow = 5,
}

/// One entry of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fault {
    kind: FaultKind,
    op: Op,
    number: u64,
    and_after: bool,
    bytes: usize,
}

/// When to fail; parsed from text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan(Vec<Fault>);

/// Why a text is not a valid plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadPlan {
    /// The entry as given.
    pub entry: String,
    /// What is wrong with the entry, and what would be valid.
    pub what: &'static str,
}

impl fmt::Display for BadPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fault plan entry \"{}\": {}", self.entry, self.what)
    }
}

impl std::error::Error for BadPlan {}

impl FromStr for Plan {
    type Err = BadPlan;

    fn from_str(text: &str) -> Result<Plan, BadPlan> {
        if text.trim().is_empty() {
            return Ok(Plan::default());
        }
        let parse = |entry: &str| {
            parse_entry(entry).map_err(|what| BadPlan { entry: entry.to_owned(), what })
        };
        text.split(',').map(|entry| parse(entry.trim())).collect::<Result<_, _>>().map(Plan)
    }
}

fn parse_entry(entry: &str) -> Result<Fault, &'static str> {
    let (kind, rest) = entry.split_once('@').ok_or("no \"@\"; write KIND@OP#N, eio@write#3")?;
    let (op, rest) = rest.split_once('#').ok_or("no \"#\"; write KIND@OP#N, eio@write#3")?;
    let kind = match kind {
        "eio" => FaultKind::Eio,
        "enospc" => FaultKind::Enospc,
        "short-read" => FaultKind::ShortRead,
        _ => return Err("unknown kind; use eio, enospc or short-read"),
    };
    let op = match op {
        "read" => Op::Read,
        "write" => Op::Write,
        "len" => Op::Len,
        "set-len" => Op::SetLen,
        "sync" => Op::Sync,
        "grow" => Op::Grow,
        _ => return Err("unknown operation; use read, write, len, set-len, sync or grow"),
    };
    let (number, bytes) = match rest.split_once(':') {
        Some((number, bytes)) => {
            if !matches!(op, Op::Read | Op::Write | Op::Grow) {
                return Err("only read, write and grow take a number of bytes");
            }
            (number, bytes.parse().map_err(|_| "the number of bytes is no number")?)
        }
        None => (rest, 0),
    };
    let (number, and_after) = match number.strip_suffix('+') {
        Some(number) => (number, true),
        None => (number, false),
    };
    let number = number.parse().map_err(|_| "the number of the operation is no number")?;
    if number == 0 {
        return Err("operations are counted from 1");
    }
    if kind == FaultKind::ShortRead && op != Op::Read {
        return Err("only a read can be short");
    }
    Ok(Fault { kind, op, number, and_after, bytes })
}

/// The error of an injected failure, inside an [`io::Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Injected {
    /// The kind of the failure.
    pub kind: FaultKind,
    /// The sort of operation that failed.
    pub op: Op,
    /// The number of the operation among those of its sort, from 1.
    pub number: u64,
}

impl Injected {
    /// The injected failure inside an error, if there is one.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<Injected> {
        error.get_ref()?.downcast_ref().copied()
    }
}

impl fmt::Display for Injected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "injected {:?} at {:?} {}", self.kind, self.op, self.number)
    }
}

impl std::error::Error for Injected {}

/// A storage around another one that fails as planned.
#[derive(Debug, Default)]
pub struct FaultStorage<S> {
    inner: S,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    plan: Plan,
    done: [u64; 6],
    struck: u64,
}

impl<S> FaultStorage<S> {
    /// Wraps a storage; nothing fails until a plan is given.
    pub fn new(inner: S) -> FaultStorage<S> {
        FaultStorage { inner, state: Mutex::default() }
    }

    /// From now on, counted from 1 again, operations fail as `plan` says.
    pub fn arm(&self, plan: Plan) {
        *self.lock() = State { plan, ..State::default() };
    }

    /// Failures injected since the plan was given.
    pub fn struck(&self) -> u64 {
        self.lock().struck
    }

    /// Operations of a sort since the plan was given.
    pub fn count(&self, op: Op) -> u64 {
        self.lock().done[op as usize]
    }

    /// The storage inside.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an operation. Returns the failure to inject, if any, and the number of bytes to read
    /// or write before it.
    fn meet(&self, op: Op) -> Option<(Injected, usize)> {
        let mut state = self.lock();
        state.done[op as usize] += 1;
        let number = state.done[op as usize];
        let fault = *state.plan.0.iter().find(|fault| {
            fault.op == op && (fault.number == number || fault.and_after && fault.number < number)
        })?;
        state.struck += 1;
        Some((Injected { kind: fault.kind, op, number }, fault.bytes))
    }

    fn fail(injected: Injected) -> io::Error {
        let kind = match injected.kind {
            FaultKind::Enospc => io::ErrorKind::StorageFull,
            FaultKind::Eio | FaultKind::ShortRead => io::ErrorKind::Other,
        };
        io::Error::new(kind, injected)
    }
}

impl<S: Storage> Storage for FaultStorage<S> {
    fn read_at(&self, buf: &mut [u8], off: SealedOff) -> io::Result<usize> {
        match self.meet(Op::Read) {
            None => self.inner.read_at(buf, off),
            Some((injected, bytes)) => {
                let bytes = bytes.min(buf.len());
                let got = self.inner.read_at(&mut buf[..bytes], off)?;
                if injected.kind == FaultKind::ShortRead {
                    Ok(got)
                } else {
                    Err(Self::fail(injected))
                }
            }
        }
    }

    fn write_at(&self, buf: &[u8], off: SealedOff) -> io::Result<()> {
        let met = match self.meet(Op::Write) {
            None if off.0 + buf.len() as u64 > self.inner.len()?.0 => self.meet(Op::Grow),
            met => met,
        };
        match met {
            None => self.inner.write_at(buf, off),
            Some((injected, bytes)) => {
                if bytes > 0 {
                    self.inner.write_at(&buf[..bytes.min(buf.len())], off)?;
                }
                Err(Self::fail(injected))
            }
        }
    }

    fn len(&self) -> io::Result<SealedLen> {
        match self.meet(Op::Len) {
            None => self.inner.len(),
            Some((injected, _)) => Err(Self::fail(injected)),
        }
    }

    fn set_len(&self, len: SealedLen) -> io::Result<()> {
        let met = match self.meet(Op::SetLen) {
            None if len > self.inner.len()? => self.meet(Op::Grow),
            met => met,
        };
        match met {
            None => self.inner.set_len(len),
            Some((injected, _)) => Err(Self::fail(injected)),
        }
    }

    fn sync(&self) -> io::Result<()> {
        match self.meet(Op::Sync) {
            None => self.inner.sync(),
            Some((injected, _)) => Err(Self::fail(injected)),
        }
    }
}

impl<S: Storage> Accelerator for FaultStorage<S> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::mem::MemStorage;

    #[test]
    fn fails_where_the_plan_says() {
        let storage = FaultStorage::new(MemStorage::default());
        storage.arm("enospc@write#2:3, eio@sync#1,short-read@read#1:2".parse().unwrap());
        storage.write_at(b"first", SealedOff(0)).unwrap();
        let error = storage.write_at(b"second", SealedOff(5)).unwrap_err();
        let want = Injected { kind: FaultKind::Enospc, op: Op::Write, number: 2 };
        assert_eq!(Injected::of(&error), Some(want));
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(*storage.inner().bytes(), b"firstsec");
        assert!(storage.sync().is_err());
        assert!(storage.sync().is_ok());
        assert_eq!(storage.read_at(&mut [0; 8], SealedOff(0)).unwrap(), 2);
        assert_eq!(storage.struck(), 3);
        storage.arm("enospc@grow#2+".parse().unwrap());
        assert!(storage.write_at(b"over", SealedOff(0)).is_ok());
        assert!(storage.set_len(SealedLen(9)).is_ok());
        assert!(storage.set_len(SealedLen(10)).is_err());
        assert!(storage.write_at(b"behind", SealedOff(8)).is_err());
        assert!(storage.set_len(SealedLen(8)).is_ok());
        storage.arm("eio@write#2+".parse().unwrap());
        assert!(storage.write_at(b"a", SealedOff(0)).is_ok());
        assert!(storage.write_at(b"a", SealedOff(0)).is_err());
        assert!(storage.write_at(b"a", SealedOff(0)).is_err());
        assert_eq!(Injected::of(&io::Error::other("disk")), None);
    }

    #[test]
    fn bad_plans_say_what_is_wrong() {
        for (text, what) in [
            ("eio", "no \"@\""),
            ("eio@write", "no \"#\""),
            ("emfile@write#1", "unknown kind"),
            ("eio@open#1", "unknown operation"),
            ("eio@write#x", "no number"),
            ("eio@write#0", "counted from 1"),
            ("eio@sync#1:5", "only read, write and grow"),
            ("eio@write#1:many", "bytes is no number"),
            ("short-read@write#1", "only a read"),
            ("eio@read#1,,", "no \"@\""),
        ] {
            let error = text.parse::<Plan>().unwrap_err().to_string();
            assert!(error.contains(what), "{text}: {error}");
        }
        assert_eq!("".parse::<Plan>(), Ok(Plan::default()));
    }
}
