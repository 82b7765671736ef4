//! Runs of the mock executor: order, resuming, what goes wrong with plans and disks, comparing.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Demo, kinds, machine, normal, small, walk};
use pgseal_lab::analysis::{Analysis, Verdict};
use pgseal_lab::compare::Comparison;
use pgseal_lab::executor::{Progress, Silent};
use pgseal_lab::mock::{self, Mock};
use pgseal_lab::report;
use pgseal_lab::runner::Run;
use pgseal_lab::session::{self, Request};
use pgseal_lab::store::{RESULTS, SAMPLES};
use pgseal_lab::{LabError, Plan, Results};

fn executor() -> Mock {
    let mut mock = Mock::new([("a", 100.0), ("a-again", 100.0), ("b", 80.0)]);
    mock.noise = 0.01;
    mock
}

fn counted(executor: &Mock) -> Vec<&String> {
    executor.steps.iter().filter(|step| !step.contains("/w")).collect()
}

#[test]
fn every_arm_is_measured_in_every_round_in_an_order_that_changes() {
    let (plan, dir) = small();
    let mut mock = executor();
    let results = walk(&plan, dir.path(), false, &mut mock).unwrap();
    assert!(results.finished && mock.open.is_empty());
    assert_eq!(results.samples.len(), 2 * 3 * 3);
    assert_eq!(results.warmups.len(), 2 * 3, "warm-ups are kept apart");
    let order = |case: &str, round: u32| -> Vec<String> {
        let of = results.samples.iter().filter(|s| s.case == case && s.round == round);
        of.map(|sample| sample.arm.clone()).collect()
    };
    for case in ["rate", "time"] {
        for round in 0..3 {
            let mut arms = order(case, round);
            arms.sort();
            assert_eq!(arms, ["a", "a-again", "b"]);
        }
    }
    let orders: std::collections::BTreeSet<_> =
        ["rate", "time"].iter().flat_map(|case| (0..3).map(|r| order(case, r))).collect();
    assert!(orders.len() > 1, "always the same order");
}

#[test]
fn an_interrupted_run_goes_on_to_the_same_samples_in_the_same_order() {
    let (plan, whole_dir) = small();
    let whole = walk(&plan, whole_dir.path(), false, &mut executor()).unwrap();
    // At each step in turn, warm-ups too.
    for fail_at in 0..2 * 3 * 4 {
        let dir = tempfile::tempdir().unwrap();
        let mut first = executor();
        first.fail_at = Some(fail_at);
        let error = walk(&plan, dir.path(), false, &mut first).unwrap_err();
        assert!(error.to_string().contains("told to fail"), "{error}");
        assert!(first.open.is_empty(), "the case was not ended after an error");
        let mut second = executor();
        let resumed = walk(&plan, dir.path(), true, &mut second).unwrap();
        assert_eq!(normal(resumed).samples, normal(whole.clone()).samples, "at {fail_at}");
        let twice = counted(&first).len() + counted(&second).len();
        assert_eq!(twice, 2 * 3 * 3, "no counted step is taken twice (at {fail_at})");
    }
}

#[test]
fn a_line_that_was_torn_by_a_power_cut_is_measured_again() {
    let (plan, dir) = small();
    let whole = walk(&plan, dir.path(), false, &mut executor()).unwrap();
    let path = dir.path().join(SAMPLES);
    let text = fs::read(&path).unwrap();
    fs::write(&path, &text[..text.len() - 20]).unwrap();
    let resumed = walk(&plan, dir.path(), true, &mut executor()).unwrap();
    assert_eq!(normal(resumed).samples, normal(whole).samples);
    // Damage in the middle is not passed over.
    let mut lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    lines[3] = b"{\"line\": \"sample\"}\n";
    fs::write(&path, lines.concat()).unwrap();
    let error = walk(&plan, dir.path(), true, &mut executor()).unwrap_err().to_string();
    assert!(error.contains("line 4") && error.contains(SAMPLES), "{error}");
}

#[test]
fn results_are_never_overwritten_and_never_mixed_with_those_of_another_plan() {
    let (plan, dir) = small();
    walk(&plan, dir.path(), false, &mut executor()).unwrap();
    let error = walk(&plan, dir.path(), false, &mut executor()).unwrap_err();
    assert!(matches!(&error, LabError::Exists { .. }) && error.to_string().contains("--resume"));
    let other = mock::plan(4);
    let error = walk(&other, dir.path(), true, &mut executor()).unwrap_err();
    assert!(matches!(error, LabError::OtherPlan { .. }));
    for hash in [plan.plan_hash().unwrap(), other.plan_hash().unwrap()] {
        assert!(error.to_string().contains(&hash), "{error}");
    }
}

#[test]
fn a_plan_s_hash_is_of_all_of_it_and_of_nothing_else() {
    let plan = mock::plan(3);
    let hash = plan.plan_hash().unwrap();
    assert_eq!(hash.len(), 64);
    assert_eq!(mock::plan(3).plan_hash().unwrap(), hash);
    let changes: [fn(&mut Plan); 5] = [
        |plan| plan.seed += 1,
        |plan| plan.rounds += 1,
        |plan| plan.cases[0].parameters = [("x".to_owned(), 1.into())].into(),
        |plan| plan.arms[2].attributes = [("x".to_owned(), 1.into())].into(),
        |plan| plan.parameters = [("x".to_owned(), 1.into())].into(),
    ];
    for change in changes {
        let mut changed = plan.clone();
        change(&mut changed);
        assert_ne!(changed.plan_hash().unwrap(), hash);
    }
    let text = serde_json::to_string(&plan).unwrap();
    let read: Plan = serde_json::from_str(&text).unwrap();
    assert_eq!(read.plan_hash().unwrap(), hash, "the hash survives a file");
}

#[test]
fn a_full_disk_ends_the_run_with_the_next_step_in_its_message() {
    let (plan, dir) = small();
    symlink("/dev/full", dir.path().join(SAMPLES)).unwrap();
    let error = walk(&plan, dir.path(), true, &mut executor()).unwrap_err().to_string();
    assert!(error.contains("No space left") && error.contains("make room"), "{error}");
    assert!(error.contains(SAMPLES), "{error}");
    // A report that does not fit leaves the old one whole, and no half one.
    fs::write(dir.path().join("old"), "old").unwrap();
    symlink("/dev/full", dir.path().join("old.new")).unwrap();
    let full = pgseal_lab::store::replace_file(&dir.path().join("old"), &[7; 10_000]);
    assert!(full.unwrap_err().to_string().contains("make room"));
    assert_eq!(fs::read(dir.path().join("old")).unwrap(), b"old");
    assert!(!dir.path().join("old.new").exists());
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    let (plan, dir) = small();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    // For root too: no directory can be below a file, none made in /proc.
    for place in [file.join("results"), Path::new("/proc/results").to_owned()] {
        let mut mock = executor();
        let error = walk(&plan, &place, false, &mut mock).unwrap_err().to_string();
        assert!(error.contains("make the directory for results"), "{error}");
        assert!(error.contains(&place.display().to_string()), "{error}");
        assert!(mock.steps.is_empty(), "it measured before it could keep anything");
    }
}

#[test]
fn a_missing_arm_is_told_and_the_others_are_measured() {
    let (plan, dir) = small();
    let mut mock = executor();
    mock.values.remove("b");
    let results = walk(&plan, dir.path(), false, &mut mock).unwrap();
    let missing: Vec<_> = results.missing.iter().map(|m| (&*m.case, m.arm.as_deref())).collect();
    assert_eq!(missing, [("rate", Some("b")), ("time", Some("b"))]);
    assert_eq!(results.samples.len(), 2 * 2 * 3);
    let analysis = Analysis::of(&results);
    assert_eq!(analysis.arm("rate", "b").unwrap().verdict, Verdict::Missing);
}

#[test]
fn a_signal_stops_after_the_step_at_hand_and_nothing_is_lost() {
    struct StopAt<'a>(&'a AtomicBool);
    impl Progress for StopAt<'_> {
        fn say(&self, text: &str) {
            if text.contains("round 2 of 3") {
                self.0.store(true, Ordering::Relaxed);
            }
        }
    }
    let (plan, dir) = small();
    let interrupted = AtomicBool::new(false);
    let mut written = 0;
    let error = Run {
        plan: &plan,
        environment: &machine(),
        command: "",
        output: dir.path(),
        resume: false,
        progress: &StopAt(&interrupted),
        limit: None,
        interrupted: &interrupted,
        after_case: &mut |_, results: &Results| {
            written = results.samples.len();
            Ok(())
        },
    }
    .walk(&mut executor())
    .unwrap_err();
    assert!(matches!(error, LabError::Interrupted { .. }));
    assert!(error.to_string().contains("--resume"));
    assert!((3..=5).contains(&written), "{written} samples in the reports");
    let resumed = walk(&plan, dir.path(), true, &mut executor()).unwrap();
    assert_eq!(resumed.samples.len(), 2 * 3 * 3);
}

#[test]
fn a_difference_is_told_from_noise_and_a_noisy_machine_is_called_noisy() {
    let plan = mock::plan(15);
    let run = |noise: f64, b: f64| {
        let dir = tempfile::tempdir().unwrap();
        let mut mock = Mock::new([("a", 100.0), ("a-again", 100.0), ("b", b)]);
        mock.noise = noise;
        Analysis::of(&walk(&plan, dir.path(), false, &mut mock).unwrap())
    };
    let quiet = run(0.005, 80.0);
    assert_eq!(quiet.arm("rate", "b").unwrap().verdict, Verdict::Worse, "less throughput");
    assert_eq!(quiet.arm("time", "b").unwrap().verdict, Verdict::Better, "less time");
    assert_eq!(quiet.arm("rate", "a").unwrap().verdict, Verdict::Baseline);
    assert_eq!(quiet.arm("rate", "a-again").unwrap().verdict, Verdict::NoDifference);
    // Steps of the mock take no time at all; its times are long enough.
    assert_eq!(kinds(&quiet.warnings), ["too-short"], "{:?}", quiet.warnings);
    let noisy = run(0.4, 99.0);
    assert_eq!(noisy.arm("rate", "b").unwrap().verdict, Verdict::NoDifference);
    assert!(kinds(&noisy.warnings).contains(&"noisy-machine"));
}

#[test]
fn only_runs_of_the_same_plan_compare_and_what_got_worse_is_found() {
    let plan = mock::plan(15);
    let run = |plan: &Plan, scale: f64, b: f64| {
        let dir = tempfile::tempdir().unwrap();
        let mut mock =
            Mock::new([("a", 100.0 * scale), ("a-again", 100.0 * scale), ("b", b * scale)]);
        mock.noise = 0.005;
        walk(plan, dir.path(), false, &mut mock).unwrap()
    };
    let (one, two) = (Path::new("one"), Path::new("two"));
    let before = run(&plan, 1.0, 80.0);
    let same = run(&plan, 1.0, 80.0);
    assert!(!Comparison::of((&before, one), (&same, two)).unwrap().is_worse());

    let mut after = run(&plan, 1.0, 70.0);
    after.environment.kernel = "Linux 7.0".to_owned();
    let found = Comparison::of((&before, one), (&after, two)).unwrap();
    let verdict = |case: &str, arm: &str| {
        found.rows.iter().find(|row| row.case == case && row.arm == arm).unwrap().verdict
    };
    assert_eq!(verdict("rate", "b"), Verdict::Worse);
    assert_eq!(verdict("time", "b"), Verdict::Better);
    assert_eq!(verdict("rate", "a"), Verdict::Baseline, "a baseline is never worse");
    assert!(found.is_worse());
    assert_eq!(found.differing.len(), 1, "{:?}", found.differing);

    // On a machine that is faster as a whole the cost of b is the same.
    let faster = run(&plan, 3.0, 80.0);
    let found = Comparison::of((&before, one), (&faster, two)).unwrap();
    let row = found.rows.iter().find(|row| row.case == "rate" && row.arm == "b").unwrap();
    assert!((row.ratio.value - 3.0).abs() < 0.05);
    assert_eq!(row.verdict, Verdict::NoDifference);

    // A machine that is slower as a whole is no worse, nor is its baseline.
    let slower = run(&plan, 0.2, 80.0);
    let found = Comparison::of((&before, one), (&slower, two)).unwrap();
    assert!(!found.is_worse());
    assert_eq!(found.summary().words(), "Summary: 0 worse, 0 better, 2 not distinguishable.");

    let mut foreign = run(&plan, 1.0, 80.0);
    foreign.experiment = "tls".to_owned();
    let error = Comparison::of((&before, one), (&foreign, two)).unwrap_err().to_string();
    assert_eq!(error, "mock and tls are different experiments: there is nothing to compare");

    let other = run(&mock::plan(14), 1.0, 80.0);
    let error = Comparison::of((&before, one), (&other, two)).unwrap_err();
    assert!(matches!(error, LabError::OtherPlan { .. }));
}

#[test]
fn a_session_writes_every_form_of_its_report_and_leaves_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let work = tempfile::tempdir().unwrap();
    let request = Request {
        profile: "tiny".to_owned(),
        rounds: Some(2),
        only: vec!["encrypt-1*".to_owned()],
        set: vec!["sizes=[16, 64, 1024]".to_owned()],
        output: dir.path().to_owned(),
        work: Some(work.path().to_owned()),
        ..Request::default()
    };
    let run = |request: &Request| session::run(&Demo, request, &Silent, &AtomicBool::new(false));
    let results = run(&request).unwrap();
    let cases: Vec<_> = results.plan.cases.iter().map(|case| case.id.as_str()).collect();
    assert_eq!(cases, ["encrypt-16", "encrypt-1024"]);
    assert!(results.command.contains("--rounds 2 --only 'encrypt-1*' --set 'sizes="));
    let mut files: Vec<_> = fs::read_dir(dir.path().join("demo"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    assert_eq!(files, [report::HTML, report::CSV, RESULTS, SAMPLES]);
    assert_eq!(fs::read_dir(work.path()).unwrap().count(), 0, "the working directory is gone");
    let read = report::read_results(&dir.path().join("demo")).unwrap();
    assert_eq!(read, results, "what is written is what was measured");

    let refused = |change: fn(&mut Request), named: &str| {
        let mut request = request.clone();
        change(&mut request);
        let error = run(&request).unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    };
    refused(|r| r.profile = "huge".to_owned(), "tiny");
    refused(|r| r.profile = "/nowhere/p.toml".to_owned(), "/nowhere/p.toml");
    refused(|r| r.set = vec!["size=3".to_owned()], "size");
    refused(|r| r.set = vec!["size".to_owned()], "NAME=VALUE");
    refused(|r| r.only = vec!["nothing".to_owned()], "encrypt-16");
    refused(|r| r.rounds = Some(0), "--rounds");
    refused(|r| r.work = Some("/nowhere".into()), "/nowhere");
}
