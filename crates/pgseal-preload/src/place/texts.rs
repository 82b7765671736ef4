//! What the library reads out of small files of a data directory, and of the file of a cluster. The
//! texts may be anybody's: no text makes this code read beyond its bounds.
//! Nothing of the crate is used here, so that `fuzz/` can have this file alone.

/// The value of the first member of this name in a text of JSON, if it is a string: its bytes as they
/// stand there, escapes included.
fn string_member<'a>(json: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut rest = json;
    loop {
        let at = rest.windows(name.len() + 2).position(|window| {
            window[0] == b'"'
                && window[name.len() + 1] == b'"'
                && window[1..=name.len()] == *name.as_bytes()
        })?;
        rest = rest.get(at + name.len() + 2..)?;
        // Else it is a value.
        if let Some(value) = rest.trim_ascii_start().strip_prefix(b":") {
            let text = value.trim_ascii_start().strip_prefix(b"\"")?;
            let end = text.iter().position(|byte| *byte == b'"')?;
            return text.get(..end);
        }
    }
}

/// The provider URI in the text of a keyring.
pub fn provider_of(keyring: &[u8]) -> Option<&[u8]> {
    string_member(keyring, "provider")
}

/// Which conversion a journal names (`pgseal/conversion`); of one that names none, the first there is.
pub fn interrupted_command(journal: &[u8]) -> &'static str {
    match string_member(journal, "operation") {
        Some(b"decrypt") => "decrypt",
        Some(b"rekey") => "rekey",
        _ => "encrypt",
    }
}

/// The value of the line `provider = URI`.
pub fn provider_in(text: &[u8]) -> Option<&[u8]> {
    fn value(line: &[u8]) -> Option<&[u8]> {
        let rest = line.trim_ascii().strip_prefix(b"provider")?.trim_ascii_start();
        Some(rest.strip_prefix(b"=")?.trim_ascii())
    }
    text.split(|byte| *byte == b'\n').find_map(value)
}

/// What the control file says of recovery and of the last stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The server recovers.
    Recovering,
    /// It may: before the first record the state is what the crash left, and the last checkpoint of a
    /// recovery is, like that of a stop, made under "shutting down".
    Perhaps,
    /// It was stopped in order.
    Stopped,
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
        SHUT_DOWN | SHUT_DOWN_IN_RECOVERY => Some(State::Stopped),
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
    fn the_provider_is_read_from_the_file_of_a_cluster() {
        let text = b"# provider = env:A\n\n  provider\t=  env:PGSEAL_KEY \r\n";
        assert_eq!(provider_in(text), Some(&b"env:PGSEAL_KEY"[..]));
        assert_eq!(provider_in(b"providers = x\nprovider"), None);
    }

    #[test]
    fn the_provider_is_read_from_the_keyring_text() {
        let text = br#"{"version": 1, "provider": "env:PGSEAL_KEY", "suite": "x"}"#;
        assert_eq!(provider_of(text), Some(&b"env:PGSEAL_KEY"[..]));
        assert_eq!(
            provider_of(br#"{"created":"provider", "provider" : "env:A"}"#),
            Some(&b"env:A"[..])
        );
        for text in [
            &b"{}"[..],
            br#"{"provider": 1, "a": "b"}"#,
            br#"{"provider": "env:"#,
            br#""provider""#,
        ] {
            assert_eq!(provider_of(text), None);
        }
    }

    #[test]
    fn a_journal_names_a_command() {
        for command in ["encrypt", "decrypt", "rekey"] {
            let text =
                format!("{{\n  \"operation\": \"{command}\",\n  \"config_file\": \"rekey\"\n}}\n");
            assert_eq!(interrupted_command(text.as_bytes()), command);
        }
        assert_eq!(interrupted_command(b""), "encrypt");
    }

    #[test]
    fn the_state_of_the_control_file_is_read() {
        let file = |state: u32| [&[0; 16][..], &state.to_le_bytes(), &[0; 8]].concat();
        for (number, wanted) in [
            (0, None),
            (1, Some(State::Stopped)),
            (2, Some(State::Stopped)),
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
