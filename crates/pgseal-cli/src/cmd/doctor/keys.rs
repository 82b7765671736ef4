//! Checks of keys: whether the key opens the files, where it is kept, whether there is an escrow
//! copy; and of backups.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use pgseal_keys::{Provider, escrow};

use super::context::{Context, KeyLook};
use super::verdict::{Verdict, fail, ok, skip, warn};
use crate::cmd::key::check::Report;
use crate::escrow_record;

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
