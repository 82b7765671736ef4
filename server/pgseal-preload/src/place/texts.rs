//! Parsers for small files of PostgreSQL. The files may hold any bytes; none make this code read
//! beyond its bounds. The helper reads the keyring, the journal and the files of a cluster. This
//! file uses nothing of the crate, so that `tests/fuzz/` can compile it alone.

/// What the control file says about recovery and the last shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The server is in recovery.
    Recovering,
    /// The server may be in recovery: before the first record the state is that at the crash, and
    /// both the last checkpoint of a recovery and that of a shutdown are made under "shutting
    /// down".
    Perhaps,
    /// The server was shut down cleanly.
    Stopped,
    /// A standby was shut down cleanly. The next start replays WAL again from the last
    /// restartpoint.
    StoppedInRecovery,
}

impl State {
    /// Whether the server was shut down cleanly, as a primary or as a standby.
    pub fn is_stopped(self) -> bool {
        matches!(self, State::Stopped | State::StoppedInRecovery)
    }
}

/// The state in `global/pg_control` (`DBState`, `catalog/pg_control.h`), if it is one of these.
pub fn state(control: &[u8]) -> Option<State> {
    const SHUT_DOWN: u32 = 1;
    const SHUT_DOWN_IN_RECOVERY: u32 = 2;
    const SHUTTING_DOWN: u32 = 3;
    const IN_CRASH_RECOVERY: u32 = 4;
    const IN_ARCHIVE_RECOVERY: u32 = 5;
    const IN_PRODUCTION: u32 = 6;
    let bytes = control.get(16..20)?.first_chunk()?;
    match u32::from_le_bytes(*bytes) {
        IN_CRASH_RECOVERY | IN_ARCHIVE_RECOVERY => Some(State::Recovering),
        SHUTTING_DOWN | IN_PRODUCTION => Some(State::Perhaps),
        SHUT_DOWN => Some(State::Stopped),
        SHUT_DOWN_IN_RECOVERY => Some(State::StoppedInRecovery),
        _ => None,
    }
}

/// The state of the postmaster in its lock file: whether it waits for the startup process.
pub fn says_it_starts(lock_file: &[u8]) -> Option<bool> {
    let status = lock_file.split(|byte| *byte == b'\n').nth(7).map(<[u8]>::trim_ascii);
    let status = status.filter(|status| !status.is_empty())?;
    Some(matches!(status, b"starting" | b"standby"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_the_control_file_is_read() {
        let file = |state: u32| [&[0; 16][..], &state.to_le_bytes(), &[0; 8]].concat();
        for (number, wanted) in [
            (0, None),
            (1, Some(State::Stopped)),
            (2, Some(State::StoppedInRecovery)),
            (3, Some(State::Perhaps)),
            (4, Some(State::Recovering)),
            (5, Some(State::Recovering)),
            (6, Some(State::Perhaps)),
            (7, None),
        ] {
            assert_eq!(state(&file(number)), wanted, "{number}");
        }
        assert_eq!(state(&file(5)[..19]), None);
    }

    #[test]
    fn a_postmaster_says_whether_it_starts() {
        let file = |status: &str| format!("12\n/data\n17\n5432\n/tmp\n\n  1  2\n{status}");
        for (status, starts) in [
            ("starting\n", Some(true)),
            ("standby \n", Some(true)),
            ("ready   \n", Some(false)),
            ("stopping\n", Some(false)),
            ("", None),
        ] {
            assert_eq!(says_it_starts(file(status).as_bytes()), starts, "{status}");
        }
        assert_eq!(says_it_starts(b"-12\n/data\n"), None);
    }
}
