//! `pgseal verify` that is stopped, and `--continue`.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use common::{Answer, Fixture};
use pgseal_core::FileKind;

/// The sealed files that are large.
const LARGE: u64 = 24;
/// The blocks of each.
const BLOCKS: u64 = 512;

fn verify(fixture: &Fixture, args: &[&str]) -> Command {
    let state = fixture.path("state");
    fs::create_dir_all(&state).unwrap();
    let mut command = fixture.pgseal();
    command.env("PGSEAL_STATE_DIR", state).args(["verify", "data", "-j", "1"]).args(args);
    command
}

fn run(fixture: &Fixture, args: &[&str]) -> Answer {
    Answer::of(verify(fixture, args).output().unwrap())
}

/// Stops a check while it works. A signal that comes too early or too late is sent again to another
/// run.
fn stopped(fixture: &Fixture, signal: &str) -> Answer {
    for attempt in 1..400 {
        let mut command = verify(fixture, &[]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        thread::sleep(Duration::from_millis(attempt % 100));
        let pid = child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        let has_large = done(fixture).iter().any(|name| name.starts_with("base/5/3"));
        if output.status.code() == Some(130) && has_large {
            return Answer::of(output);
        }
    }
    unreachable!("no signal came in time")
}

/// The files that the stopped check has done.
fn done(fixture: &Fixture) -> Vec<String> {
    let files = fs::read_dir(fixture.path("state")).unwrap().map(|item| item.unwrap().path());
    let name = |path: &std::path::PathBuf| path.to_string_lossy().ends_with(".verify.json");
    let Some(path) = files.into_iter().find(name) else { return Vec::new() };
    let saved: serde_json::Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    saved["done"].as_object().unwrap().keys().cloned().collect()
}

#[test]
fn a_check_that_was_stopped_goes_on_and_reads_again_what_was_changed() {
    let fixture = Fixture::sealed();
    for number in 0..LARGE {
        let plain = vec![0x61; (BLOCKS * 8192) as usize];
        fixture.seal(&format!("base/5/{}", 30_000 + number), FileKind::Relation, &plain);
    }
    run(&fixture, &["--continue"]).fails_with(2, "no check of ");
    let all = BLOCKS * LARGE + 6;
    for signal in ["-INT", "-TERM"] {
        let answer = stopped(&fixture, signal);
        assert!(
            answer.err.contains("stopped; ") && answer.err.contains("--continue"),
            "{answer:?}"
        );
        let before = done(&fixture).len() as u64;
        let json = run(&fixture, &["--continue", "--json"]).json();
        assert_eq!((&json["sound"], &json["files"]["done_before"]), (&true.into(), &before.into()));
        let read = json["blocks"]["authenticated"].as_u64().unwrap();
        assert!(read < all, "{json}");
        // It was complete: there is nothing left to continue.
        run(&fixture, &["--continue"]).fails_with(2, "no check of ");
    }

    // A file that was found sound, and then changed.
    stopped(&fixture, "-INT");
    let victim = done(&fixture).into_iter().find(|name| name.starts_with("base/5/3")).unwrap();
    fixture.damage(&victim, |bytes| bytes[20_000] ^= 1);
    let answer = run(&fixture, &["--continue"]);
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.out.contains(&format!("FAILED  {victim}: ")), "{answer:?}");

    // Without a directory to remember in, a check cannot be continued, and says so.
    let mut command = fixture.pgseal();
    command.env("PGSEAL_STATE_DIR", fixture.path("nowhere"));
    let output = command.args(["verify", "data", "--continue"]).output().unwrap();
    Answer::of(output).fails_with(2, "make /var/lib/pgseal");
}
