//! The program `pgseal-lab` itself: what it prints about itself, and what it needs beside it.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use pgseal_lab::report::format::duration;
use pgseal_lab::{experiments, session};
use serde_json::Value;

fn lab() -> Command {
    Command::new(env!("CARGO_BIN_EXE_pgseal-lab"))
}

fn ok(args: &[&str]) -> String {
    let done = lab().args(args).output().unwrap();
    assert!(done.status.success(), "{args:?}: {}", said(&done));
    String::from_utf8(done.stdout).unwrap()
}

fn said(done: &Output) -> String {
    String::from_utf8_lossy(&done.stderr).into_owned()
}

#[test]
fn help_completions_and_manual_page_name_every_command() {
    let help = ok(&["--help"]);
    assert!(!help.contains("child"), "{help}");
    let mut texts = vec![help, ok(&["man"])];
    texts.extend(["bash", "zsh", "fish"].map(|shell| ok(&["completions", shell])));
    let fixed = ["all", "report", "compare", "advise"];
    for text in texts {
        for experiment in experiments::all() {
            assert!(text.contains(experiment.name()), "{}: {text}", experiment.name());
        }
        assert!(fixed.iter().all(|name| text.contains(name)), "{text}");
    }
    assert!(ok(&["man"]).contains(".TH pgseal-lab 1"));
    assert_eq!(ok(&["--version"]), format!("pgseal-lab {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn the_times_in_the_help_are_those_of_the_plans() {
    let sum = |profile: &str| {
        let all = experiments::all();
        let each = all.iter().filter_map(|one| session::usual_s(&**one, profile));
        duration(each.sum())
    };
    let want = format!("Takes about {} (--quick) or {} (full)", sum("quick"), sum("full"));
    let said = ok(&["all", "--help"]);
    assert!(
        said.split_whitespace().collect::<Vec<_>>().join(" ").contains(&want),
        "{want}: {said}"
    );
    assert!(ok(&["tls", "--help"]).contains("(--quick) or"), "each experiment says it too");
    assert!(said.contains("--wait-quiet[=<MINUTES>]") && said.contains("--verbose"), "{said}");
}

/// The committed full runs, on two cores of a busy machine, took no longer, and more than half of
/// it.
#[test]
fn the_times_in_the_help_fit_the_committed_runs() {
    for experiment in experiments::all() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("results").join(experiment.name());
        let Ok(text) = fs::read_to_string(path.join("results.json")) else { continue };
        let results: Value = serde_json::from_str(&text).unwrap();
        let steps = ["samples", "warmups"].into_iter().filter_map(|part| results[part].as_array());
        let taken_s: f64 = steps.flatten().filter_map(|step| step["step_s"].as_f64()).sum();
        let usual_s = session::usual_s(&*experiment, "full").unwrap();
        assert!(
            taken_s <= usual_s && usual_s <= 2.0 * taken_s,
            "{}: {taken_s:.0} s, and the help says {usual_s:.0} s",
            experiment.name()
        );
    }
}

#[test]
fn a_reader_who_goes_away_is_no_error() {
    let recorded = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut child = lab()
        .args(["compare", "--json"])
        .args([&recorded, &recorded])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!((child.wait().unwrap().code(), err.as_str()), (Some(0), ""));
}

#[test]
fn a_program_that_is_missing_is_named_before_anything_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let alone = dir.path().join("pgseal-lab");
    pgseal_testkit::install(Path::new(env!("CARGO_BIN_EXE_pgseal-lab")), &alone).unwrap();
    let output = dir.path().join("out");
    let tiny = ["modes", "--profile", "tiny", "--output"];
    let done = Command::new(&alone).args(tiny).arg(&output).output().unwrap();
    assert_eq!(done.status.code(), Some(20), "{}", said(&done));
    assert!(said(&done).contains("--pgseal") && !output.exists(), "{}", said(&done));

    let pgseal = pgseal_testkit::built_programs().unwrap().pgseal;
    let with = |bindir: &Path| {
        let mut command = Command::new(&alone);
        command.args(tiny).arg(&output).arg("--pgseal").arg(&pgseal);
        command.arg("--bindir").arg(bindir).output().unwrap()
    };
    let done = with(dir.path());
    assert_eq!(done.status.code(), Some(20), "{}", said(&done));
    assert!(said(&done).contains("--bindir") && !output.exists(), "{}", said(&done));
}
