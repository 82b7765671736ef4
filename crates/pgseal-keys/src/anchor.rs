//! The anchor: what is known outside of a data directory of its newest state, so that an older copy
//! of the whole directory is refused (`spec/anchor.md`).

use core::fmt;
use core::str::FromStr;

/// The length of an anchor's value, in bytes.
pub const VALUE_LEN: usize = 48;

const VERSION: u8 = 1;
const RUNNING: u8 = 1;
const STOPPED: u8 = 2;
const ACCEPTED: u8 = 3;

/// What an anchor says of the data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A server began to run on it.
    Running,
    /// A server was shut down cleanly.
    Stopped {
        /// The number of the manifest.
        manifest: u64,
        /// SHA-256 of `global/pg_control`.
        control: [u8; 32],
    },
    /// An administrator accepted the directory as it was (`pgseal anchor accept`).
    Accepted,
}

/// The newest state of a data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Rises with each change of the anchor.
    pub sequence: u64,
    /// What the anchor says.
    pub seen: Seen,
}

/// What a data directory says of itself, all of it authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Directory {
    /// The epoch of the control record; `None`: there is no record.
    pub epoch: Option<u64>,
    /// Whether there is a `backup_label`.
    pub is_backup: bool,
    /// Number of the manifest and SHA-256 of `global/pg_control`, if the server was shut down
    /// cleanly and the two fit.
    pub stopped: Option<(u64, [u8; 32])>,
}

/// Why a data directory is not the one that an anchor knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objection {
    /// The directory is of another run of the server.
    OtherRun,
    /// The directory is of another shutdown.
    OtherShutdown,
    /// The server was shut down cleanly, and the directory says otherwise.
    NotStopped,
    /// The directory is a restored base backup.
    Backup,
}

impl fmt::Display for Objection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Objection::OtherRun => {
                "a server has run since this copy was made: it is an older copy of the data directory"
            }
            Objection::OtherShutdown => {
                "it is not as the last shutdown left it: an older copy of the data directory, or a program changed it since"
            }
            Objection::NotStopped => {
                "the server was shut down cleanly, and this copy says that it was not: it is an older copy of the data directory, or a program changed it since"
            }
            Objection::Backup => "it is a restored base backup",
        })
    }
}

impl State {
    /// The value that a store keeps beside the sequence number.
    #[must_use]
    pub fn value(&self) -> [u8; VALUE_LEN] {
        let mut value = [0; VALUE_LEN];
        value[0] = VERSION;
        value[1] = match self.seen {
            Seen::Running => RUNNING,
            Seen::Stopped { manifest, control } => {
                value[8..16].copy_from_slice(&manifest.to_le_bytes());
                value[16..].copy_from_slice(&control);
                STOPPED
            }
            Seen::Accepted => ACCEPTED,
        };
        value
    }

    /// The state of a number and a value from a store; `None` if this is no such value.
    #[must_use]
    pub fn of(sequence: u64, value: &[u8]) -> Option<State> {
        let value: &[u8; VALUE_LEN] = value.try_into().ok()?;
        let (manifest, control) = (value[8..].first_chunk()?, value[16..].first_chunk()?);
        let seen = match value[1] {
            RUNNING => Seen::Running,
            STOPPED => Seen::Stopped { manifest: u64::from_le_bytes(*manifest), control: *control },
            ACCEPTED => Seen::Accepted,
            _ => return None,
        };
        let state = State { sequence, seen };
        (state.value() == *value).then_some(state)
    }

    /// The state that follows this one; `None` after the last number.
    #[must_use]
    pub fn next(&self, seen: Seen) -> Option<State> {
        Some(State { sequence: self.sequence.checked_add(1)?, seen })
    }

    /// Compares a data directory with this state.
    ///
    /// A server writes the number that its anchor will have into the control record first, so the
    /// record may be one number ahead: the store could not be reached then, and nothing else was
    /// changed.
    ///
    /// # Errors
    /// [`Objection`].
    pub fn expect(&self, directory: &Directory) -> Result<(), Objection> {
        let next = self.sequence.checked_add(1);
        let is_this_run = directory
            .epoch
            .is_some_and(|epoch| epoch != 0 && (epoch == self.sequence || Some(epoch) == next));
        match self.seen {
            Seen::Accepted if is_this_run => Ok(()),
            Seen::Running | Seen::Stopped { .. } if directory.is_backup => Err(Objection::Backup),
            Seen::Running if is_this_run => Ok(()),
            Seen::Accepted | Seen::Running => Err(Objection::OtherRun),
            Seen::Stopped { manifest, control } => match directory.stopped {
                Some(stopped) if stopped == (manifest, control) => Ok(()),
                Some(_) => Err(Objection::OtherShutdown),
                None => Err(Objection::NotStopped),
            },
        }
    }
}

/// Number and value in hexadecimal, as the library and its helper exchange them.
impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.sequence)?;
        self.value().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for State {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<State, &'static str> {
        let wrong = "not a state of an anchor";
        let (sequence, value) = text.split_at_checked(16).ok_or(wrong)?;
        let is_hex = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let sequence = u64::from_str_radix(sequence, 16).ok().filter(|_| is_hex).ok_or(wrong)?;
        let pairs = (0..value.len()).step_by(2).map(|at| value.get(at..at + 2));
        let value: Option<Vec<u8>> = pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect();
        value.and_then(|value| State::of(sequence, &value)).ok_or(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STOPPED: Seen = Seen::Stopped { manifest: 7, control: [5; 32] };

    fn at(sequence: u64, seen: Seen) -> State {
        State { sequence, seen }
    }

    fn directory(epoch: u64) -> Directory {
        Directory { epoch: Some(epoch), is_backup: false, stopped: None }
    }

    #[test]
    fn a_value_is_read_as_it_was_written_and_nothing_else_is() {
        for seen in [Seen::Running, STOPPED, Seen::Accepted] {
            let state = at(0x0A0B_0304_0506_0708, seen);
            assert_eq!(State::of(state.sequence, &state.value()), Some(state));
            let text = state.to_string();
            assert_eq!(text.parse(), Ok(state));
            for len in 0..text.len() {
                assert!(text[..len].parse::<State>().is_err(), "{len}");
            }
            assert!(text.to_uppercase().parse::<State>().is_err());
            assert!(text.replace('0', "+").parse::<State>().is_err());
        }
        // Reserved bytes, other versions and other states.
        for byte in [0, 1, 2, 7, 8, 47] {
            let mut value = at(1, Seen::Running).value();
            value[byte] ^= 0x40;
            assert_eq!(State::of(1, &value), None, "{byte}");
        }
    }

    #[test]
    fn a_directory_of_another_run_is_refused() {
        for seen in [Seen::Running, Seen::Accepted] {
            assert_eq!(at(9, seen).expect(&directory(9)), Ok(()));
            // The store could not be reached when a server began to run.
            assert_eq!(at(9, seen).expect(&directory(10)), Ok(()));
            for epoch in [0, 1, 8, 11] {
                assert_eq!(at(9, seen).expect(&directory(epoch)), Err(Objection::OtherRun));
            }
            let none = Directory { epoch: None, ..directory(9) };
            assert_eq!(at(9, seen).expect(&none), Err(Objection::OtherRun));
        }
        // No epoch is none, whatever the anchor's number is.
        assert_eq!(at(0, Seen::Running).expect(&directory(0)), Err(Objection::OtherRun));
    }

    #[test]
    fn a_base_backup_is_refused_until_it_is_accepted() {
        let backup = Directory { is_backup: true, ..directory(9) };
        assert_eq!(at(9, Seen::Running).expect(&backup), Err(Objection::Backup));
        assert_eq!(at(9, STOPPED).expect(&backup), Err(Objection::Backup));
        assert_eq!(at(9, Seen::Accepted).expect(&backup), Ok(()));
    }

    #[test]
    fn after_a_shutdown_only_that_shutdown_will_do() {
        let anchor = at(9, STOPPED);
        let stopped = |manifest, control| Directory {
            stopped: Some((manifest, [control; 32])),
            ..directory(8)
        };
        assert_eq!(anchor.expect(&stopped(7, 5)), Ok(()));
        assert_eq!(anchor.expect(&stopped(6, 5)), Err(Objection::OtherShutdown));
        assert_eq!(anchor.expect(&stopped(7, 4)), Err(Objection::OtherShutdown));
        // A pretended crash, also with the number of the anchor.
        for epoch in [8, 9, 10] {
            assert_eq!(anchor.expect(&directory(epoch)), Err(Objection::NotStopped));
        }
    }

    #[test]
    fn numbers_end() {
        assert_eq!(at(1, STOPPED).next(Seen::Running), Some(at(2, Seen::Running)));
        assert_eq!(at(u64::MAX, STOPPED).next(Seen::Running), None);
        assert_eq!(at(u64::MAX, Seen::Running).expect(&directory(0)), Err(Objection::OtherRun));
    }
}
