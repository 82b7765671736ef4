//! `pgseal lab all`, `report` and `compare` end to end, in the tiny profile, with `pgseal-lab`
//! beside `pgseal`.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use pgseal_testkit::{Programs, built_programs, install};
use serde_json::Value;
use tempfile::TempDir;

const EXPERIMENTS: [&str; 6] = ["modes", "tls", "instance", "cost", "scale", "columns"];

/// The programs side by side in a directory, as they are installed.
struct Installed {
    dir: TempDir,
    programs: Programs,
}

impl Installed {
    fn new() -> Installed {
        let dir = tempfile::tempdir().unwrap();
        let programs = built_programs().unwrap().copy_to(&dir.path().join("bin")).unwrap();
        let lab = Path::new(env!("CARGO_BIN_EXE_pgseal-lab"));
        install(lab, &programs.pgseal.with_file_name("pgseal-lab")).unwrap();
        Installed { dir, programs }
    }

    fn lab(&self, args: &[&str], paths: &[&Path]) -> Output {
        let mut command = Command::new(&self.programs.pgseal);
        for variable in ["PGSEAL_LAB", "PGSEAL_LIBRARY", "PGSEAL_GUARD_MODULE"] {
            command.env_remove(variable);
        }
        command.arg("lab").args(args).args(paths).output().unwrap()
    }
}

fn said(done: &Output) -> String {
    String::from_utf8_lossy(&done.stderr).into_owned()
}

fn results(dir: &Path) -> Value {
    serde_json::from_slice(&fs::read(dir.join("results.json")).unwrap()).unwrap()
}

/// A copy of an experiment's directory in which one arm is slower in one case, by more than any
/// noise.
fn slower(from: &Path, to: PathBuf, case: &str, arm: &str) -> PathBuf {
    let mut results = results(from);
    let mut changed = 0;
    for sample in results["samples"].as_array_mut().unwrap() {
        if sample["case"] == case && sample["arm"] == arm {
            let value = sample["value"].as_f64().unwrap();
            sample["value"] = (value / 1e6).into();
            changed += 1;
        }
    }
    assert!(changed > 0, "{case} {arm}");
    fs::create_dir_all(&to).unwrap();
    fs::write(to.join("results.json"), serde_json::to_vec(&results).unwrap()).unwrap();
    to
}

#[test]
#[ignore = "measures for minutes: make test-lab"]
fn all_experiments_end_in_one_page_and_compare_with_themselves() {
    let installed = Installed::new();
    let dir = installed.dir.path();
    let bindir = pgseal_testkit::bindir().unwrap();
    let output = dir.join("out");
    let bindir = bindir.to_str().unwrap();
    let run = ["all", "--profile", "tiny", "--bindir", bindir, "--work", "/tmp", "--output"];
    let done = installed.lab(&run, &[&output]);
    assert!(done.status.success(), "{}", said(&done));
    // Which experiment of how many, and when all will be done; the findings, and no tables.
    let progress = said(&done);
    for (at, name) in EXPERIMENTS.iter().enumerate() {
        assert!(progress.contains(&format!("lab: {} of 5: {name}, about ", at + 1)), "{progress}");
    }
    assert!(progress.contains("all will be done at about "), "{progress}");
    let findings = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(findings.contains("\n* ") && !findings.contains("baseline\n"), "{findings}");

    let page = fs::read_to_string(output.join("report.html")).unwrap();
    for name in EXPERIMENTS {
        let results = results(&output.join(name));
        assert_eq!(results["finished"], true, "{name}");
        assert!(!results["samples"].as_array().unwrap().is_empty(), "{name}");
        assert!(
            page.contains(&format!("{name}/results.json")),
            "{name} is not in the page over all"
        );
    }
    // One file: nothing is loaded from anywhere.
    for outside in ["src=\"http", "href=\"http", "@import", "url(http"] {
        assert!(!page.contains(outside), "{outside}");
    }

    // What is there is not overwritten.
    let again = installed.lab(&run, &[&output]);
    assert!(!again.status.success());
    assert!(said(&again).contains("--resume"), "{}", said(&again));

    // The page is made anew from what was recorded.
    fs::remove_file(output.join("report.html")).unwrap();
    let report = installed.lab(&["report"], &[&output]);
    assert!(report.status.success(), "{}", said(&report));
    assert!(output.join("report.html").exists());

    // A run is no worse than itself; it is than one in which an arm was faster.
    let same = installed.lab(&["compare"], &[&output, &output]);
    assert_eq!(same.status.code(), Some(0), "{}", said(&same));
    let text = String::from_utf8_lossy(&same.stdout).into_owned();
    assert!(text.trim_end().lines().last().unwrap().contains("Summary: 0 worse, "), "{text}");
    let modes = output.join("modes");
    let slow = slower(&modes, dir.join("slow"), "aes-256-gcm", "aws-lc");
    let worse = installed.lab(&["compare", "--json"], &[&modes, &slow]);
    assert_eq!(worse.status.code(), Some(1), "{}", said(&worse));
    let found: Value = serde_json::from_slice(&worse.stdout).unwrap();
    let rows = found[0]["rows"].as_array().unwrap();
    let verdict = |case: &str, arm: &str| {
        let row = rows.iter().find(|row| row["case"] == case && row["arm"] == arm).unwrap();
        row["verdict"].as_str().unwrap().to_owned()
    };
    assert_eq!(verdict("aes-256-gcm", "aws-lc"), "worse");
    assert_ne!(verdict("aes-256-ctr", "aws-lc"), "worse");

    // Other plans do not compare.
    let other = installed.lab(&["compare"], &[&modes, &output.join("tls")]);
    assert_eq!(other.status.code(), Some(2), "{}", said(&other));
    assert!(said(&other).contains("modes and tls are different experiments"), "{}", said(&other));
    assert_eq!(said(&other).lines().count(), 1, "{}", said(&other));
}
