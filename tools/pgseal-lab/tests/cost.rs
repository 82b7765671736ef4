//! `pgseal lab cost` from end to end, in its tiny profile, and what the demo asks of it.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::sync::atomic::AtomicBool;

use pgseal_lab::executor::Silent;
use pgseal_lab::experiments;
use pgseal_lab::session::{self, Request};

#[test]
fn every_case_of_every_arm_is_measured_and_held_against_its_aim() {
    let dir = tempfile::tempdir().unwrap();
    let built = pgseal_testkit::built_programs().unwrap();
    let request = Request {
        profile: "tiny".to_owned(),
        output: dir.path().to_owned(),
        work: Some("/tmp".into()),
        bindir: Some(pgseal_testkit::bindir().unwrap()),
        pgseal: built.pgseal,
        lab: env!("CARGO_BIN_EXE_pgseal-lab").into(),
        library: built.library,
        guard: built.guard,
        ..Request::default()
    };
    let experiment = experiments::named("cost").unwrap();
    let results = session::run(&*experiment, &request, &Silent, &AtomicBool::new(false)).unwrap();
    assert!(results.finished && results.missing.is_empty(), "{:?}", results.missing);
    assert_eq!(results.plan.cases.len(), 10);
    for case in &results.plan.cases {
        for (arm, storage) in [
            ("plain", "rows readable on disk"),
            ("plain-again", "rows readable on disk"),
            ("aes-256-gcm", "aes-256-gcm by header, no readable row on disk"),
        ] {
            let samples: Vec<_> = results.of(&case.id, arm).collect();
            assert_eq!(samples.len(), 1, "{} {arm}", case.id);
            assert!(samples[0].value > 0.0, "{} {arm}", case.id);
            assert!(samples[0].extra["server_cpu_s_per_op"] >= 0.0, "{} {arm}", case.id);
            assert_eq!(samples[0].facts["storage"], storage, "{} {arm}", case.id);
        }
    }
    let directory = dir.path().join("cost");
    for file in ["results.json", "results.csv", "report.html", "samples.jsonl"] {
        assert!(fs::metadata(directory.join(file)).unwrap().len() > 0, "{file}");
    }
    let page = fs::read_to_string(directory.join("report.html")).unwrap();
    assert!(page.contains("at most 1.18") && page.contains("(noise floor)"));
}
