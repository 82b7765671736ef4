//! Plans and exhibits, without servers.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Instance;
use super::plan::{OTHERS, plan, spec_of};
use crate::Analysis;
use crate::environment::Environment;
use crate::error::LabError;
use crate::exhibits::{Exhibits, Tone, fault_of_sentence};
use crate::experiments::Experiment;
use crate::mock;
use crate::plan::Plan;
use crate::profile::Profile;
use crate::results::{Results, Sample};

fn planned(name: &str, set: &[&str]) -> Result<Plan, String> {
    let mut profile = Profile::load(&Instance, name).map_err(|error| error.to_string())?;
    for assignment in set {
        profile.set(assignment).map_err(|error| error.to_string())?;
    }
    let machine = Environment { memory_bytes: 8 << 30, ..Environment::default() };
    plan(&profile, &machine).map_err(|error| error.to_string())
}

#[test]
fn every_profile_makes_a_plan_and_full_knows_all_cases_and_suites() {
    for (name, _) in Instance.profiles() {
        let plan = planned(name, &[]).unwrap();
        assert!(plan.again().is_some() && plan.arms.len() > 2, "{name}");
        for case in &plan.cases {
            assert!(spec_of(case).is_ok(), "{name} {}", case.id);
            assert_eq!(plan.baseline_of(case).unwrap().id, "plain");
        }
    }
    let full = planned("full", &[]).unwrap();
    // Cases without a sync at each commit are left out to save time.
    for id in OTHERS.iter().filter(|id| !id.ends_with("-async")) {
        assert!(full.case(id).is_some(), "{id}");
    }
    let ids: Vec<&str> = full.arms.iter().map(|arm| arm.id.as_str()).collect();
    for suite in ["gcm", "xts", "ctr"] {
        for bits in ["128", "256"] {
            assert!(ids.contains(&format!("aes-{bits}-{suite}").as_str()), "{ids:?}");
        }
    }
    assert!(ids.contains(&"gocryptfs"));
    assert!(full.estimate_s() < 25.0 * 60.0, "{}", full.estimate_s());
    assert!(planned("quick", &[]).unwrap().estimate_s() < 100.0);
}

#[test]
fn suites_of_the_second_rank_take_the_cases_named_and_no_others() {
    let full = planned("full", &[]).unwrap();
    let takes = |case: &str, arm: &str| full.arms_of(full.case(case).unwrap()).any(|a| a.id == arm);
    assert!(takes("select-8mb", "aes-128-ctr") && !takes("select-64mb", "aes-128-ctr"));
    assert!(takes("select-64mb", "aes-256-gcm") && takes("tpcb", "gocryptfs"));
    // The gocryptfs process needs memory too, and the limit would not count it.
    assert!(!takes("beyond-memory", "gocryptfs"));
}

#[test]
fn what_a_profile_asks_for_in_vain_is_named() {
    let error = planned("tiny", &[r#"cases=["coffee"]"#]).unwrap_err();
    assert!(error.contains("coffee") && error.contains("scan-cold"), "{error}");
    let error = planned("tiny", &[r#"more_suites_in=["select-1mb"]"#]).unwrap_err();
    assert!(error.contains("select-1mb"), "{error}");
    let error = planned("tiny", &["buffers_mb=[4000]"]).unwrap_err();
    assert!(error.contains("4000 MB") && error.contains("8192 MB"), "{error}");
    let error = planned("tiny", &["bufers=1"]).unwrap_err();
    assert!(error.contains("bufers"), "{error}");
}

/// Results of the tiny plan: `values` for each case and arm, five rounds with a spread of 1 %.
fn recorded(values: &[(&str, &str, f64)]) -> Results {
    recorded_in(5, planned("tiny", &[]).unwrap(), values)
}

fn recorded_in(rounds: u32, mut plan: Plan, values: &[(&str, &str, f64)]) -> Results {
    plan.rounds = rounds;
    let samples = values.iter().flat_map(|(case, arm, value)| {
        (0..rounds).map(move |round| Sample {
            case: (*case).to_owned(),
            arm: (*arm).to_owned(),
            round,
            place: 0,
            value: value * (1.0 + 0.0025 * (f64::from(round) - 2.0)),
            extra: BTreeMap::from([
                ("server_cpu_s_per_op".to_owned(), 1.0 / value),
                ("blocks_read_per_op".to_owned(), 2.0),
                ("data_bytes".to_owned(), f64::from(16 << 20)),
                ("os_cache_share".to_owned(), 1.0),
            ]),
            facts: BTreeMap::new(),
            load: 0.1,
            step_s: 1.0,
        })
    });
    mock::results_of(plan, samples.collect())
}

#[test]
fn the_summary_tells_what_costs_and_what_does_not() {
    let results = recorded(&[
        ("select-4mb", "plain", 10_000.0),
        ("select-4mb", "plain-again", 10_000.0),
        ("select-4mb", "aes-256-gcm", 8_000.0),
        ("select-64mb", "plain", 20_000.0),
        ("select-64mb", "plain-again", 20_000.0),
        ("select-64mb", "aes-256-gcm", 20_000.0),
        ("scan-warm", "plain", 0.1),
        ("scan-warm", "plain-again", 0.1),
        ("scan-warm", "aes-256-gcm", 0.12),
    ]);
    let Exhibits { findings: all, tables, charts, answer } = exhibits(&results);
    let text = all.iter().map(|finding| finding.text.as_str()).collect::<Vec<_>>().join("\n");
    let has = |words: &str| assert!(text.contains(words), "{words} in {text}");
    has("aes-256-gcm takes 25.0 % more time at shared_buffers=4MB.");
    has("aes-256-gcm at shared_buffers=64MB: no difference.");
    // 25 us more for two blocks.
    has("costs aes-256-gcm 12.5 us more CPU time than plain.");
    for finding in &all {
        assert_eq!(fault_of_sentence(&finding.text), None, "{}", finding.text);
    }
    let answer = answer.unwrap();
    assert_eq!((answer.range.as_str(), answer.tone), ("0 to +25 % time", Tone::Bad));
    assert_eq!(answer.verdict, "Costs more than it should");
    let study: Vec<_> = all.iter().filter_map(|finding| finding.study.as_deref()).collect();
    assert!(study.iter().any(|text| text.contains("close to zero once the data fits")));

    let sweep = tables.iter().find(|table| table.id == "instance-sweep").unwrap();
    let last = sweep.rows.first().unwrap().last().unwrap();
    assert_eq!((last.text.as_str(), last.tone), ("+25.0 %", Tone::Bad));
    for table in &tables {
        assert!(table.rows.iter().all(|row| row.len() == table.columns.len()), "{}", table.id);
    }
    assert_eq!(charts.len(), 3);
}

fn exhibits(results: &Results) -> Exhibits {
    Instance.exhibits(results, &Analysis::of(results)).unwrap()
}

fn words(results: &Results) -> String {
    exhibits(results).findings.into_iter().map(|finding| finding.text + "\n").collect()
}

#[test]
fn beyond_memory_is_claimed_only_of_data_that_do_not_fit() {
    let values = [
        ("beyond-memory", "plain", 10_000.0),
        ("beyond-memory", "plain-again", 10_000.0),
        ("beyond-memory", "aes-256-gcm", 8_000.0),
    ];
    let with_limit = |mb: u32| {
        let limit = format!("memory_limit_mb={mb}");
        let plan = planned("tiny", &[r#"cases=["beyond-memory"]"#, &limit]).unwrap();
        words(&recorded_in(5, plan, &values))
    };
    // The data are 16 MB.
    let beyond = with_limit(15);
    assert!(beyond.contains("25.0 % more time with data larger than the memory"), "{beyond}");
    let fits = with_limit(16);
    assert!(fits.contains("the data fit into its limit of 16 MB"), "{fits}");
    assert!(!fits.contains("larger than"), "{fits}");
}

#[test]
fn of_too_few_rounds_nothing_is_called_noise_or_cost() {
    let values = [
        ("scan-warm", "plain", 0.1),
        ("scan-warm", "plain-again", 0.1),
        ("scan-warm", "aes-256-gcm", 0.1),
    ];
    let plan = || planned("tiny", &[r#"cases=["scan-warm"]"#]).unwrap();
    let few = words(&recorded_in(1, plan(), &values));
    assert!(few.contains("too few rounds to tell cost from noise in 1 workload"), "{few}");
    assert!(!few.contains("no cost beyond the noise"), "{few}");
    let enough = words(&recorded_in(5, plan(), &values));
    assert!(enough.contains("no cost beyond the noise in 1 workload"), "{enough}");
}

#[test]
fn a_sealed_server_that_takes_a_quarter_of_the_time_is_withheld() {
    let values = [
        ("scan-warm", "plain", 0.1),
        ("scan-warm", "plain-again", 0.1),
        ("scan-warm", "aes-256-gcm", 0.026),
    ];
    let plan = planned("tiny", &[r#"cases=["scan-warm"]"#]).unwrap();
    let results = recorded_in(5, plan, &values);
    let text = words(&results);
    assert!(text.contains("a figure that cannot be, and is withheld, in 1 workload"), "{text}");
    assert!(!text.contains("less time"), "{text}");
    let answer = exhibits(&results).answer.unwrap();
    assert_eq!(answer.verdict, "Cannot be true, measure again");
    assert_eq!(answer.lines[0].cost.text, "withheld");
    assert!(answer.bar.is_none(), "nothing is drawn of it");
}

#[test]
fn nothing_measured_yet_is_no_reason_to_fall_over() {
    let shown = exhibits(&recorded(&[]));
    assert!(shown.findings.is_empty() && shown.charts.is_empty() && !shown.tables.is_empty());
}

#[test]
fn a_spec_that_is_not_understood_is_an_error_and_not_a_case_without_one() {
    let mut results = recorded(&[]);
    let case = results.plan.cases.first_mut().unwrap();
    let id = case.id.clone();
    let Some(Value::Object(spec)) = case.parameters.get_mut("spec") else { panic!("a spec") };
    spec.insert("shared_buffers_bytes".to_owned(), Value::from("many"));
    let error = Instance.exhibits(&results, &Analysis::of(&results)).unwrap_err();
    assert!(matches!(error, LabError::Plan { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains(&id) && text.contains("spec") && text.contains("many"), "{text}");
    results.plan.cases.first_mut().unwrap().parameters.clear();
    let text = Instance.exhibits(&results, &Analysis::of(&results)).unwrap_err().to_string();
    assert!(text.contains("spec: missing"), "{text}");
}
