//! `pgseal lab instance` from end to end, in its tiny profile.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use pgseal_lab::executor::Silent;
use pgseal_lab::session::{self, Request};
use pgseal_lab::{Analysis, LabError, Results, experiments};

fn request(output: &Path) -> Request {
    let built = pgseal_testkit::built_programs().unwrap();
    Request {
        profile: "tiny".to_owned(),
        output: output.to_owned(),
        work: Some("/tmp".into()),
        bindir: Some(pgseal_testkit::bindir().unwrap()),
        pgseal: built.pgseal,
        lab: env!("CARGO_BIN_EXE_pgseal-lab").into(),
        library: built.library,
        guard: built.guard,
        ..Request::default()
    }
}

fn run(request: &Request) -> Result<Results, LabError> {
    let experiment = experiments::named("instance").unwrap();
    session::run(&*experiment, request, &Silent, &AtomicBool::new(false))
}

#[test]
fn every_case_of_every_arm_is_measured_and_each_arm_stores_what_it_says() {
    let dir = tempfile::tempdir().unwrap();
    let results = run(&request(dir.path())).unwrap();
    assert!(results.finished && results.missing.is_empty(), "{:?}", results.missing);
    for case in &results.plan.cases {
        for (arm, storage) in [
            ("plain", "rows readable on disk"),
            ("plain-again", "rows readable on disk"),
            ("aes-256-gcm", "aes-256-gcm by header, no readable row on disk"),
        ] {
            let samples: Vec<_> = results.of(&case.id, arm).collect();
            assert_eq!(samples.len(), 1, "{} {arm}", case.id);
            assert!(samples[0].value > 0.0);
            assert_eq!(samples[0].facts["storage"], storage, "{} {arm}", case.id);
        }
    }
    let extra =
        |case: &str, arm: &str, name: &str| results.of(case, arm).next().unwrap().extra[name];
    for arm in ["plain", "plain-again", "aes-256-gcm"] {
        // The scan reads the table, once, and where it comes from was looked at.
        let blocks = extra("scan-warm", arm, "blocks_read_per_op");
        assert!((1500.0..3000.0).contains(&blocks), "{arm}: {blocks}");
        let cached = |case| extra(case, arm, "os_cache_share");
        assert!(cached("scan-cold") <= 0.01, "{arm}: {}", cached("scan-cold"));
        // Not all of it: a kernel may take pages back meanwhile, and some do without being short.
        assert!(cached("scan-warm") >= 0.5, "{arm}: {}", cached("scan-warm"));
        // Few buffers are read into for most transactions, many are not.
        let read = |case| extra(case, arm, "blocks_read_per_op");
        assert!(read("select-4mb") > read("select-64mb") + 0.3, "{arm}");
        // Each page goes into the WAL as a whole.
        assert!(extra("wal-full-pages", arm, "wal_bytes_per_op") > 1600.0 * 8000.0, "{arm}");
    }

    // What the figures become.
    let experiment = experiments::named("instance").unwrap();
    let analysis = Analysis::of(&results);
    let exhibits = experiment.exhibits(&results, &analysis).unwrap();
    let sweep = exhibits.tables.iter().find(|table| table.id == "instance-sweep").unwrap();
    let ratios: Vec<f64> = sweep.rows.iter().map(|row| row[1].value.unwrap()).collect();
    assert!(ratios[0] > 3.0 && ratios[1] < 0.5, "data to buffers: {ratios:?}");
    let chart = exhibits.charts.iter().find(|c| c.id == "instance-cost-over-buffers").unwrap();
    // A busy machine may give a figure that cannot be, which is withheld.
    let withheld = |case: &str, arm: &str| analysis.arm(case, arm).unwrap().withheld.is_some();
    for series in &chart.series {
        let missing = ["select-4mb", "select-64mb"].map(|case| withheld(case, &series.arm));
        let shown = missing.iter().filter(|missing| !**missing).count();
        assert_eq!(series.points.len(), shown, "{chart:?}");
    }
    // The finding on the study is about the two ends of the sweep.
    let has_figure = |case| !withheld(case, "aes-256-gcm");
    if ["select-4mb", "select-64mb"].into_iter().any(has_figure) {
        assert!(exhibits.findings.iter().any(|finding| finding.study.is_some()));
    }
    for file in ["results.json", "results.csv", "report.html", "samples.jsonl"] {
        assert!(fs::metadata(dir.path().join("instance").join(file)).unwrap().len() > 0, "{file}");
    }
}

#[test]
fn a_peer_that_does_not_mount_is_missing_and_the_rest_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let profile = dir.path().join("peer.toml");
    let text = include_str!("../profiles/instance-tiny.toml");
    let text = text.replace("gocryptfs = false", "gocryptfs = true");
    fs::write(&profile, text).unwrap();
    let mut request = request(&dir.path().join("out"));
    request.profile = profile.display().to_string();
    request.only = vec!["scan-warm".to_owned()];
    let results = run(&request).unwrap();
    assert_eq!(results.of("scan-warm", "plain").count(), 1);
    // Where it mounts it is measured, and nothing readable lies behind it.
    match results.of("scan-warm", "gocryptfs").next() {
        Some(sample) => assert_eq!(sample.facts["storage"], "no readable row on disk"),
        None => {
            let missing = results.missing_of("scan-warm", "gocryptfs").unwrap();
            assert_eq!(missing.what, "gocryptfs");
            assert!(missing.remedy.contains("install gocryptfs"), "{missing:?}");
        }
    }
}
