//! An interleaved plan: every round goes through all cases, and a run that was cut off goes on.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use pgseal_lab::executor::Silent;
use pgseal_lab::mock::{Mock, plan};
use pgseal_lab::runner::{Limit, Run};
use pgseal_lab::{Analysis, Environment, LabError, Plan, Results, Warning};

fn interleaved() -> Plan {
    let mut plan = plan(3);
    plan.parameters.insert("interleave".to_owned(), true.into());
    plan
}

fn walk(plan: &Plan, output: &Path, resume: bool, mock: &mut Mock) -> Result<Results, LabError> {
    walk_within(None, plan, output, resume, mock)
}

fn walk_within(
    time: Option<Duration>,
    plan: &Plan,
    output: &Path,
    resume: bool,
    mock: &mut Mock,
) -> Result<Results, LabError> {
    let mut writes = 0;
    let mut after_case = |_: &Path, _: &Results| {
        writes += 1;
        Ok(())
    };
    let run = Run {
        plan,
        environment: &Environment::default(),
        command: "pgseal lab mock",
        output,
        resume,
        progress: &Silent,
        limit: time.map(Limit::from_now),
        interrupted: &AtomicBool::new(false),
        after_case: &mut after_case,
    };
    let results = run.walk(mock);
    assert!(writes > 0, "reports are written also when it ends early");
    results
}

#[test]
fn every_round_goes_through_all_cases() {
    let dir = tempfile::tempdir().unwrap();
    let mut mock = Mock::new([("a", 100.0), ("a-again", 100.0), ("b", 50.0)]);
    let results = walk(&interleaved(), &dir.path().join("mock"), false, &mut mock).unwrap();
    assert!(results.finished);
    assert_eq!(results.samples.len(), 3 * 2 * 3);
    assert!(mock.open.is_empty());
    let rounds: Vec<u32> = results.samples.iter().map(|sample| sample.round).collect();
    assert!(rounds.is_sorted(), "{rounds:?}");
    for round in 0..3 {
        let cases = |case: &str| {
            results.samples.iter().filter(|s| s.round == round && s.case == case).count()
        };
        assert_eq!((cases("rate"), cases("time")), (3, 3));
    }
}

#[test]
fn what_was_cut_off_goes_on_where_it_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let (plan, output) = (interleaved(), dir.path().join("mock"));
    let values = [("a", 100.0), ("b", 50.0)];
    let mut mock = Mock { fail_at: Some(13), ..Mock::new(values) };
    assert!(walk(&plan, &output, false, &mut mock).is_err());
    let mut mock = Mock::new(values);
    let results = walk(&plan, &output, true, &mut mock).unwrap();
    assert!(results.finished);
    let mut keys: Vec<(String, String, u32)> =
        results.samples.iter().map(|s| (s.case.clone(), s.arm.clone(), s.round)).collect();
    keys.sort();
    let before = keys.len();
    keys.dedup();
    assert_eq!((before, keys.len()), (2 * 2 * 3, 2 * 2 * 3), "nothing twice, nothing left out");
    assert!(results.missing.iter().all(|missing| missing.arm.as_deref() == Some("a-again")));
    let mut again = Mock::new(values);
    walk(&plan, &output, true, &mut again).unwrap();
    assert!(again.steps.is_empty(), "{:?}", again.steps);
}

#[test]
fn when_time_is_up_no_other_round_begins_and_the_results_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let (plan, output) = (interleaved(), dir.path().join("mock"));
    let mut mock = Mock::new([("a", 100.0), ("a-again", 100.0), ("b", 50.0)]);
    let results = walk_within(Some(Duration::ZERO), &plan, &output, false, &mut mock).unwrap();
    assert!(!results.finished && mock.open.is_empty());
    assert_eq!(results.samples.len(), 2 * 3, "one round is taken in any case");
    assert_eq!(results.rounds_done(), 1);
    let up = Warning::TimeUp { rounds: 1, of: 3, limit_s: 0.0 };
    assert!(results.warnings.contains(&up), "{:?}", results.warnings);
    let few = Warning::TooFewRounds { rounds: 1, least: 5 };
    assert!(Analysis::of(&results).warnings.contains(&few));

    let day = Some(Duration::from_secs(86_400));
    let results = walk_within(day, &plan, &output, true, &mut mock).unwrap();
    assert!(results.finished);
    assert_eq!((results.samples.len(), results.rounds_done()), (3 * 2 * 3, 3));
}
