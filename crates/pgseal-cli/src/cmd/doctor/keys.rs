//! Checks of keys: whether the key opens the files, where it is kept, whether there is an escrow
//! copy; and of backups.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use pgseal_keys::{KeyPolicy, Provider, escrow};

use super::context::{Context, KeyLook};
use super::verdict::{Verdict, fail, ok, skip, warn};
use crate::cmd::key::check::{Report, State};
use crate::escrow_record;
use crate::key_policy::{Facts, Look, State as PolicyState};

/// If a provider takes longer than this, a start of the server may time out.
const SLOW_MS: u64 = 5000;

fn judge(report: &Report) -> Verdict {
    if let Some(reason) = report.first_fault() {
        return fail(reason);
    }
    let files = format!("the headers of {} open", crate::out::count(report.sealed_files, "file"));
    match &report.provider {
        Some(provider) if provider.ms > SLOW_MS => {
            warn(format!("{files}; the provider took {} ms to answer", provider.ms))
        }
        Some(provider) => ok(format!("{files}; the provider answered in {} ms", provider.ms)),
        None => ok(files),
    }
}

pub fn key(context: &Context) -> Verdict {
    match &context.key {
        Ok(report) => judge(report),
        Err(why) => skip(why.clone()),
    }
}

pub fn key_place(context: &Context) -> Verdict {
    let Some(provider) = &context.provider else { return skip("the provider is not known") };
    let Provider::File(path) = provider else {
        return ok(format!("{}: not a file", Provider::shown(&provider.to_string())));
    };
    judge_place(path, &context.dir.root)
}

fn judge_place(key: &Path, dir: &Path) -> Verdict {
    let shown = key.display();
    let (Ok(key), Ok(dir)) = (key.canonicalize(), dir.canonicalize()) else {
        return skip(format!("{shown} cannot be looked at"));
    };
    if key.starts_with(&dir) {
        return fail(format!("{shown} is in the data directory: every copy of it has its key"));
    }
    match (fs::metadata(&key), fs::metadata(&dir)) {
        (Ok(key), Ok(dir)) if key.dev() == dir.dev() => {
            warn(format!("{shown} is on the disk of the data: who takes one has both"))
        }
        (Ok(_), Ok(_)) => ok(format!("{shown}, on another disk than the data")),
        _ => skip(format!("{shown} cannot be looked at")),
    }
}

pub fn escrow(context: &Context) -> Verdict {
    let Some(keyring) = &context.keyring else { return skip("there is no keyring to compare") };
    let Some(last) = escrow_record::read(&context.dir) else {
        return warn("none is known: a lost key or keyring is lost data");
    };
    if last.keyring_id != keyring.id().to_string() {
        return warn("the last one was of another keyring");
    }
    let held: Vec<u32> = last.generations.iter().map(|(number, _)| *number).collect();
    let summary = keyring.summary();
    let all = summary.generations.iter().map(|entry| entry.generation);
    let lacking: Vec<u32> = all.filter(|number| !held.contains(number)).collect();
    match lacking.is_empty() {
        true => ok(format!("made {}, opened by {}", last.made, last.opened_by)),
        false => warn(format!(
            "the last one, of {}, lacks generations {}",
            last.made,
            escrow::ranges(&lacking)
        )),
    }
}

pub fn recipients(context: &Context) -> Verdict {
    let Ok(report) = &context.key else { return skip("no source of a key was asked") };
    let keys = &report.sources.keys;
    if keys.len() < 2 {
        return skip("there is none: only the keyring's own key opens it");
    }
    let named = |wanted: &dyn Fn(State) -> bool| {
        let rows = keys.iter().filter(|row| wanted(row.state));
        let names = rows.map(|row| match &row.name {
            Some(name) => format!("recipient {name}"),
            None => "the keyring's own key".to_owned(),
        });
        names.collect::<Vec<_>>().join(", ")
    };
    let closed = named(&|state| !matches!(state, State::Opens | State::NotAsked));
    let not_asked = match named(&|state| state == State::NotAsked) {
        names if names.is_empty() => names,
        names => format!("; not asked: {names}"),
    };
    match closed.is_empty() {
        true => {
            let opening = named(&|state| state == State::Opens);
            match opening.is_empty() {
                true => skip(format!("nothing was asked{not_asked}")),
                false => ok(format!("opened by {opening}{not_asked}")),
            }
        }
        false => warn(format!("not opened by {closed}{not_asked}")),
    }
}

pub fn policy(context: &Context) -> Verdict {
    // The one that was unlocked: somebody may have put another one in its place meanwhile.
    let opened = context.key.as_ref().ok().and_then(|report| report.opened.as_ref());
    let Some(keyring) = opened.or(context.keyring.as_ref()) else {
        return skip("there is no keyring to judge");
    };
    let Some(look) = Look::at(keyring, &Facts::of(keyring)) else {
        return skip(format!("there is none: no {}", KeyPolicy::path().display()));
    };
    judge_policy(&look, opened.is_some())
}

fn judge_policy(look: &Look, is_open: bool) -> Verdict {
    if let Some(error) = &look.error {
        return fail(error.clone());
    }
    // What nobody authenticated can be good news that somebody wrote.
    let read = if is_open { "" } else { "; the keyring is not unlocked, so this is not sure" };
    let of = |state| -> Vec<String> {
        let rows = look.rules.iter().filter(|row| row.state == state);
        rows.map(|row| format!("{}: {}", row.rule, row.found)).collect()
    };
    let (broken, unknown) = (of(PolicyState::Broken), of(PolicyState::Unknown));
    let all = [broken.as_slice(), unknown.as_slice()].concat().join("; ");
    let met = crate::out::count(look.set_rules() as u64, "rule");
    match (broken.is_empty(), unknown.is_empty()) {
        (false, _) => fail(format!("{all}{read}")),
        (true, false) => warn(format!("{all}{read}")),
        (true, true) if look.set_rules() == 0 => skip(format!("{} has no rule", look.file)),
        (true, true) if is_open => ok(format!("{met} met")),
        (true, true) => warn(format!("{met} met{read}")),
    }
}

pub fn backups(context: &Context) -> Verdict {
    if context.backups.is_empty() {
        return skip("none was named; give --backup PATH");
    }
    let closed = |(path, look): &(std::path::PathBuf, KeyLook)| match look {
        Err(why) => Some(why.clone()),
        Ok(report) if report.sealed_files == 0 => {
            Some(format!("{}: there is no sealed file in it", path.display()))
        }
        Ok(report) => report.first_fault().map(|fault| format!("{}: {fault}", path.display())),
    };
    let wrong: Vec<String> = context.backups.iter().filter_map(closed).collect();
    match wrong.is_empty() {
        true => {
            let files = context.backups.iter().filter_map(|(_, look)| look.as_ref().ok());
            let files = files.map(|report| report.sealed_files).sum();
            ok(format!("the headers of {} open", crate::out::count(files, "file")))
        }
        false => fail(wrong.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::verdict::State;
    use super::*;
    use crate::key_policy::Row;

    #[test]
    fn the_policy_is_judged() {
        let look = |state| Look {
            file: "/etc/pgseal/policy.conf".to_owned(),
            error: None,
            rules: vec![Row {
                rule: "escrow",
                wanted: None,
                state,
                found: "words".to_owned(),
                days_left: None,
            }],
        };
        for (state, is_open, wanted) in [
            (PolicyState::Met, true, State::Ok),
            (PolicyState::Met, false, State::Warn),
            (PolicyState::Unknown, true, State::Warn),
            (PolicyState::Broken, true, State::Fail),
            (PolicyState::Unset, true, State::Skipped),
        ] {
            assert_eq!(judge_policy(&look(state), is_open).state, wanted, "{state:?}");
        }
        let refused = Look { error: Some("x".to_owned()), ..look(PolicyState::Met) };
        assert_eq!(judge_policy(&refused, true).state, State::Fail);
    }

    #[test]
    fn the_place_of_a_key_file_is_judged() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("data");
        fs::create_dir(&dir).unwrap();
        let (inside, beside) = (dir.join("key"), temp.path().join("key"));
        fs::write(&inside, "x").unwrap();
        fs::write(&beside, "x").unwrap();
        assert_eq!(judge_place(&inside, &dir).state, State::Fail);
        assert_eq!(judge_place(&beside, &dir).state, State::Warn);
        assert_eq!(judge_place(Path::new("/proc/version"), &dir).state, State::Ok);
        assert_eq!(judge_place(Path::new("/nowhere"), &dir).state, State::Skipped);
    }
}
