//! `pgseal lab cost` from end to end, in its tiny profile: who works when, and that all of it ends.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::AtomicBool;

use pgseal_cluster::process::send;
use pgseal_cluster::{Patience, Signal};
use pgseal_lab::executor::Silent;
use pgseal_lab::experiments;
use pgseal_lab::results::{Because, Results};
use pgseal_lab::session::{self, Request};
use tempfile::TempDir;

const LAB: &str = env!("CARGO_BIN_EXE_pgseal-lab");
/// The cases that are measured in slices.
const STEADY: [&str; 6] = ["select-memory", "scan", "select-64mb", "connect", "tpcb", "insert"];

/// A directory for clusters that the user of the servers can reach.
fn work() -> TempDir {
    let work = tempfile::Builder::new().prefix("cost-").tempdir_in("/tmp").unwrap();
    fs::set_permissions(work.path(), fs::Permissions::from_mode(0o755)).unwrap();
    work
}

/// The processes that work below a directory: servers, each in its data directory.
fn processes_below(dir: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    all.filter(|path| fs::read_link(path.join("cwd")).is_ok_and(|cwd| cwd.starts_with(dir)))
        .collect()
}

#[test]
fn every_arm_works_in_its_own_slices_alone_and_is_held_against_its_aim() {
    let (dir, work) = (tempfile::tempdir().unwrap(), work());
    let built = pgseal_testkit::built_programs().unwrap();
    let request = Request {
        profile: "tiny".to_owned(),
        output: dir.path().to_owned(),
        work: Some(work.path().to_owned()),
        bindir: Some(pgseal_testkit::bindir().unwrap()),
        pgseal: built.pgseal,
        lab: LAB.into(),
        library: built.library,
        guard: built.guard,
        ..Request::default()
    };
    let experiment = experiments::named("cost").unwrap();
    let results = session::run(&*experiment, &request, &Silent, &AtomicBool::new(false)).unwrap();
    assert!(results.finished && results.missing.is_empty(), "{:?}", results.missing);
    assert_eq!(results.plan.cases.len(), 10);
    for case in &results.plan.cases {
        let end = results.end_of(&case.id).unwrap();
        assert_eq!((end.because, end.blocks), (Because::Rounds, 1), "{}", case.id);
        for (arm, storage) in [
            ("plain", "rows readable on disk"),
            ("plain-again", "rows readable on disk"),
            ("aes-256-gcm", "aes-256-gcm by header, no readable row on disk"),
        ] {
            let samples: Vec<_> = results.of(&case.id, arm).collect();
            assert_eq!(samples.len(), 1, "{} {arm}", case.id);
            for sample in samples {
                let at = format!("{} {arm}: {sample:?}", case.id);
                assert!(sample.value > 0.0 && sample.extra["wall_s_per_op"] > 0.0, "{at}");
                assert!(sample.extra["server_cpu_s_per_op"] > 0.0, "{at}");
                assert_eq!(
                    sample.extra.contains_key("cipher_s_per_page"),
                    arm == "aes-256-gcm",
                    "{at}"
                );
                let others = sample.extra.get("work_of_stopped_arms");
                assert_eq!(others.is_some(), STEADY.contains(&case.id.as_str()), "{at}");
                assert_eq!(others.copied().unwrap_or(0.0), 0.0, "{at}");
                assert_eq!(sample.facts["storage"], storage, "{at}");
            }
        }
    }
    // A new table is written to files; rows in shared_buffers are read from there.
    let bytes = |case| results.of(case, "plain").next().unwrap().extra["file_bytes_per_op"];
    assert!(bytes("ctas") > 1e7, "{}", bytes("ctas"));
    assert!(bytes("select-memory") < 100.0, "{}", bytes("select-memory"));
    assert!(processes_below(work.path()).is_empty());
    assert_eq!(fs::read_dir(work.path()).unwrap().count(), 0);
    let directory = dir.path().join("cost");
    for file in ["results.json", "results.csv", "report.html", "samples.jsonl"] {
        assert!(fs::metadata(directory.join(file)).unwrap().len() > 0, "{file}");
    }
    let page = fs::read_to_string(directory.join("report.html")).unwrap();
    // An aim stands beside a ratio, which a machine that is busy may make impossible: then it is
    // withheld.
    assert!(page.contains("(noise floor)") && page.contains("with the aim of each measure"));
    as_the_spec_says(&fs::read_to_string(directory.join("results.json")).unwrap(), &results);
}

/// Members and types of spec/lab-report.md.
fn as_the_spec_says(text: &str, results: &Results) {
    assert_eq!(serde_json::from_str::<Results>(text).unwrap().ends, results.ends);
    let json: serde_json::Value = serde_json::from_str(text).unwrap();
    let spec =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/lab-report.md"));
    let spec = spec.unwrap();
    let section = spec.split("## 1. results.json").nth(1).unwrap().split("\n## ").next().unwrap();
    let named: BTreeSet<&str> =
        section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let found: BTreeSet<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(found, named);
    for end in json["ends"].as_array().unwrap() {
        for member in end.as_object().unwrap().keys() {
            assert!(spec.contains(&format!("`{member}`")), "{member} is not in the spec");
        }
    }
}

/// A run that does not end by itself, in slices by now.
fn endless(work: &Path, output: &Path) -> Child {
    let built = pgseal_testkit::built_programs().unwrap();
    let mut command = Command::new(LAB);
    command.args(["cost", "--profile", "tiny", "--rounds", "100000", "--loads", "select-memory"]);
    command.args(["--until", "0.0001%", "--max-time", "1h"]);
    command.arg("--bindir").arg(pgseal_testkit::bindir().unwrap());
    command.arg("--pgseal").arg(built.pgseal).arg("--work").arg(work).arg("--output").arg(output);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let samples = output.join("cost/samples.jsonl");
    let some = Patience::seconds(120).wait_until(|| {
        let lines = fs::read_to_string(&samples).unwrap_or_default();
        child.try_wait().unwrap().is_some() || lines.matches(r#""line":"sample""#).count() > 4
    });
    assert!(some && child.try_wait().unwrap().is_none());
    assert!(!processes_below(work).is_empty());
    child
}

fn ended_by(signal: Signal, output: &Path, work: &Path) -> ExitStatus {
    let mut child = endless(work, output);
    send(child.id(), signal);
    let status = child.wait().unwrap();
    let gone = Patience::seconds(60).wait_until(|| processes_below(work).is_empty());
    assert!(gone, "{:?}", processes_below(work));
    status
}

#[test]
fn a_signal_ends_the_run_with_all_servers_and_keeps_the_samples() {
    let (dir, work) = (tempfile::tempdir().unwrap(), work());
    let status = ended_by(Signal::INT, dir.path(), work.path());
    assert_eq!(status.code(), Some(130));
    assert_eq!(fs::read_dir(work.path()).unwrap().count(), 0);
    assert!(dir.path().join("cost/report.html").exists());
}

#[test]
fn no_server_stays_stopped_when_the_lab_is_killed() {
    let (dir, work) = (tempfile::tempdir().unwrap(), work());
    let status = ended_by(Signal::KILL, dir.path(), work.path());
    assert_eq!(status.code(), None);
}
