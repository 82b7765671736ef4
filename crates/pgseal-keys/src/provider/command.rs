//! `command:...`: a shell command prints the secret on its standard output, as PostgreSQL's
//! `ssl_passphrase_command` does.

use std::io;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use zeroize::Zeroizing;

use super::MAX_TEXT_LEN;
use super::process::{self, Ended};
use crate::error::KeyError;

/// How long a command may take.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);

/// Runs `/bin/sh -c text` and returns its standard output, which is not empty, and which no error
/// message contains. `shown` is the provider in messages.
pub(super) fn run(
    text: &str,
    shown: &str,
    timeout: Duration,
) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let output = output_of(text, shown, timeout, &[])?;
    if output.trim_ascii().is_empty() {
        return Err(KeyError::Missing {
            what: format!("{shown}: the command printed nothing"),
            remedy: "run it by hand as this user; it must print the key".to_owned(),
        });
    }
    Ok(output)
}

/// Runs the command of an anchor store with these variables, and returns its standard output.
pub(crate) fn for_anchor(
    text: &str,
    shown: &str,
    variables: &[(&str, String)],
) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    output_of(text, shown, TIMEOUT, variables)
}

/// Runs `/bin/sh -c text` and returns its standard output. The command inherits the standard error
/// of this process.
fn output_of(
    text: &str,
    shown: &str,
    timeout: Duration,
    variables: &[(&str, String)],
) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let failed = |what: String| KeyError::ProviderFailed { provider: shown.to_owned(), what };
    let lost = |err: io::Error| failed(format!("the command cannot be run: {err}"));
    let deadline = Instant::now() + timeout;
    let child = Command::new("/bin/sh")
        .arg("-c")
        .arg(text)
        .env_remove("LD_PRELOAD")
        .env_remove("PGSEAL_KEK_FD")
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(lost)?;
    let (text, status) = match process::finish(child, MAX_TEXT_LEN, deadline) {
        Ended::Finished(text, status) => (text, status),
        Ended::TooSlow => return Err(failed(too_slow(timeout))),
        Ended::Lost(err) => return Err(lost(err)),
    };
    let text = text.map_err(|err| failed(format!("cannot read what the command prints: {err}")))?;
    if text.len() > MAX_TEXT_LEN {
        return Err(failed(format!(
            "the command printed more than {MAX_TEXT_LEN} bytes; it must print nothing else"
        )));
    }
    if !status.success() {
        return Err(failed(format!(
            "the command failed ({status}); run it by hand as this user to see why"
        )));
    }
    Ok(text)
}

fn too_slow(timeout: Duration) -> String {
    format!(
        "the command did not end within {} s and was stopped; \
         run it by hand as this user to see what it waits for",
        timeout.as_secs_f32()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_now(text: &str) -> Result<Zeroizing<Vec<u8>>, KeyError> {
        run(text, "command:test", TIMEOUT)
    }

    #[test]
    fn output_is_returned() {
        assert_eq!(&**run_now("echo abc").unwrap(), b"abc\n");
    }

    #[test]
    fn failures_are_clear_and_show_no_output() {
        let err = run_now("echo sekrit; exit 3").unwrap_err();
        assert_eq!(err.exit_code(), 13);
        assert!(err.to_string().contains("exit status: 3"), "{err}");
        assert!(!format!("{err} {err:?}").contains("sekrit"));
        let err = run_now("printf ' \\n'").unwrap_err();
        assert_eq!(err.exit_code(), 10, "{err}");
        let err = run_now("head -c 100000 /dev/zero").unwrap_err();
        assert!(err.to_string().contains("more than"), "{err}");
        assert_eq!(err.exit_code(), 13);
    }

    #[test]
    fn a_command_that_hangs_is_stopped() {
        for text in ["exec sleep 600", "echo x; exec >&-; exec sleep 600", "sleep 30 2>&- & echo x"]
        {
            let err = run(text, "command:test", Duration::from_millis(300)).unwrap_err();
            assert!(err.to_string().contains("did not end"), "{text}: {err}");
            assert_eq!(err.exit_code(), 13);
        }
    }

    #[test]
    fn the_command_does_not_inherit_the_preloaded_library() {
        let text = run_now("echo \"[$LD_PRELOAD][$PGSEAL_KEK_FD]\"").unwrap();
        assert_eq!(&**text, b"[][]\n");
    }
}
