//! The check of the audit trail.

use std::fs;

use pgseal_keys::Keyring;

use super::context::Context;
use super::verdict::{Verdict, fail, ok, skip, warn};
use crate::audit::TrailLook;
use crate::{environment, proc};

/// The variables that say where the trail goes.
const VARIABLES: [&str; 3] = ["PGSEAL_AUDIT_CONF", "PGSEAL_AUDIT", "PGSEAL_AUDIT_REQUIRED"];

pub fn audit_trail(context: &Context) -> Verdict {
    let id = context.keyring.as_ref().map(Keyring::id);
    let verdict = judge(&TrailLook::at(&context.dir.root, id));
    let environ = context.server_pid.and_then(|pid| fs::read(format!("/proc/{pid}/environ")).ok());
    let own = |name: &str| environment::variable(name).ok().flatten();
    let differs =
        |name: &str| environ.as_ref().is_some_and(|all| proc::variable(all, name) != own(name));
    match VARIABLES.iter().copied().find(|name| differs(name)) {
        None => verdict,
        Some(name) => warn(format!(
            "{name} has another value in the server's environment, which counts for its start; here: \
             {}",
            verdict.saw
        )),
    }
}

fn judge(look: &TrailLook) -> Verdict {
    let failures = look.failures().join("; ");
    if !failures.is_empty() {
        // Then no key is used, and no server starts.
        return match look.required || look.error.is_some() {
            true => fail(failures),
            false => warn(failures),
        };
    }
    if look.destinations.is_empty() {
        return skip("there is none: no use of a key is recorded here");
    }
    let unsound = look.destinations.iter().find_map(|to| {
        let check = to.verified.as_ref().filter(|check| !check.sound)?;
        Some(format!(
            "{}: the verification of {} found lines that are wrong, or none of this cluster",
            to.destination, check.when
        ))
    });
    if let Some(saw) = unsound {
        return fail(saw);
    }
    let words = look.destinations.iter().map(|to| {
        let mut words = to.destination.clone();
        if let Some(last) = &to.last {
            words += &format!(", last line {last}");
        }
        match &to.verified {
            Some(check) => words += &format!(", verified {}", check.when),
            None if to.destination.starts_with("file:") => {
                words += ", not verified on this machine"
            }
            None => {}
        }
        words
    });
    let words = words.collect::<Vec<_>>().join("; ");
    let required = if look.required { "; it is required" } else { "" };
    ok(format!("{words}{required}"))
}

#[cfg(test)]
mod tests {
    use super::super::verdict::State;
    use super::*;
    use crate::audit::DestinationLook;
    use crate::memory::Check;

    #[test]
    fn the_trail_is_judged() {
        let look = |error: Option<&str>, sound: Option<bool>, required| TrailLook {
            error: None,
            required,
            destinations: vec![DestinationLook {
                destination: "file:/var/log/pgseal/audit.log".to_owned(),
                error: error.map(str::to_owned),
                last: Some("2026-01-31T12:00:00Z".to_owned()),
                verified: sound.map(|sound| Check {
                    path: String::new(),
                    command: String::new(),
                    when: "2026-01-30T12:00:00Z".to_owned(),
                    sound,
                }),
            }],
        };
        for (look, state, words) in [
            (look(None, None, false), State::Ok, "not verified on this machine"),
            (
                look(None, Some(true), true),
                State::Ok,
                "verified 2026-01-30T12:00:00Z; it is required",
            ),
            (look(None, Some(false), false), State::Fail, "found lines that are wrong"),
            (look(Some("no room"), None, false), State::Warn, "no room"),
            (look(Some("no room"), None, true), State::Fail, "no room"),
            (TrailLook::default(), State::Skipped, "there is none"),
            (
                TrailLook { error: Some("line 1".to_owned()), ..TrailLook::default() },
                State::Fail,
                "line 1",
            ),
        ] {
            let verdict = judge(&look);
            assert_eq!(verdict.state, state, "{}", verdict.saw);
            assert!(verdict.saw.contains(words), "{}", verdict.saw);
        }
    }
}
