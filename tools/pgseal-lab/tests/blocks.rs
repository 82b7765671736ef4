//! A case ends when its intervals are narrow or its time is up, and says which.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::atomic::AtomicBool;

use pgseal_lab::executor::Silent;
use pgseal_lab::mock::{Mock, plan};
use pgseal_lab::plan::Until;
use pgseal_lab::results::Because;
use pgseal_lab::runner::Run;
use pgseal_lab::{Analysis, Environment, LabError, Plan, Results};

fn blocks(percent: f64, max_s: f64) -> Plan {
    let mut plan = plan(2000);
    let until = Until { percent, max_s, least_blocks: 20 };
    for case in &mut plan.cases {
        case.parameters.insert("until".to_owned(), serde_json::to_value(until).unwrap());
    }
    plan
}

fn walk(plan: &Plan, output: &Path, resume: bool, mock: &mut Mock) -> Result<Results, LabError> {
    Run {
        plan,
        environment: &Environment::default(),
        command: "pgseal lab mock",
        output,
        resume,
        progress: &Silent,
        limit: None,
        interrupted: &AtomicBool::new(false),
        after_case: &mut |_: &Path, _: &Results| Ok(()),
    }
    .walk(mock)
}

fn mock(noise: f64) -> Mock {
    Mock { noise, ..Mock::new([("a", 100.0), ("a-again", 100.0), ("b", 80.0)]) }
}

#[test]
fn a_case_ends_with_the_first_narrow_look_and_each_block_has_each_arm_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut mock = mock(0.05);
    let results = walk(&blocks(2.0, 600.0), dir.path(), false, &mut mock).unwrap();
    assert!(results.finished && results.ends.len() == 2);
    let analysis = Analysis::of(&results);
    for end in &results.ends {
        assert_eq!(end.because, Because::Narrow, "{end:?}");
        assert!((20..2000).contains(&end.blocks) && end.width_percent.unwrap() <= 2.0, "{end:?}");
        for arm in ["a", "a-again", "b"] {
            assert_eq!(results.of(&end.case, arm).count(), end.blocks as usize);
        }
        let ratio = analysis.arm(&end.case, "b").unwrap().ratio.unwrap();
        assert!(ratio.low <= 0.8 && 0.8 <= ratio.high, "{ratio:?}");
    }
    // In each block the arms come once each, in any order; in a hundred places no order rules.
    let places: Vec<&str> = results
        .samples
        .iter()
        .filter(|sample| sample.case == "rate" && sample.place == 0)
        .map(|sample| sample.arm.as_str())
        .collect();
    for arm in ["a", "a-again", "b"] {
        let first = places.iter().filter(|place| **place == arm).count();
        assert!(first * 5 > places.len(), "{arm} was first in {first} of {} blocks", places.len());
    }
    // It is done: a run that goes on has nothing to do, and reads why the cases ended.
    let steps = mock.steps.len();
    let again = walk(&blocks(2.0, 600.0), dir.path(), true, &mut mock).unwrap();
    assert_eq!(mock.steps.len(), steps);
    assert_eq!(again.ends, results.ends);
}

#[test]
fn noise_that_never_settles_ends_when_the_time_is_up_and_the_result_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let results = walk(&blocks(0.001, 0.05), dir.path(), false, &mut mock(0.5)).unwrap();
    for end in &results.ends {
        assert_eq!(end.because, Because::TimeUp, "{end:?}");
        assert!(end.blocks < 2000 && end.width_percent.is_none_or(|width| width > 0.001));
    }
    let text = std::fs::read_to_string(dir.path().join("samples.jsonl")).unwrap();
    assert!(text.contains(r#""line":"end""#) && text.contains(r#""because":"time-up""#), "{text}");
}

#[test]
fn an_interrupted_case_goes_on_with_the_blocks_that_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let whole = tempfile::tempdir().unwrap();
    let straight = walk(&blocks(2.0, 600.0), whole.path(), false, &mut mock(0.05)).unwrap();
    let mut breaks = Mock { fail_at: Some(40), ..mock(0.05) };
    walk(&blocks(2.0, 600.0), dir.path(), false, &mut breaks).unwrap_err();
    breaks.fail_at = None;
    let resumed = walk(&blocks(2.0, 600.0), dir.path(), true, &mut breaks).unwrap();
    let values = |results: &Results| -> Vec<(String, u32, f64)> {
        results.samples.iter().map(|s| (s.arm.clone(), s.round, s.value)).collect()
    };
    assert_eq!(values(&resumed), values(&straight));
}
