//! Plans and exhibits, without servers.

use std::collections::BTreeMap;

use super::plan::{SERIES, place_of, plan};
use super::{Scale, exhibits};
use crate::Analysis;
use crate::environment::Environment;
use crate::exhibits::{ChartKind, fault_of_sentence};
use crate::experiments::cost::plan::{Work, spec_of};
use crate::mock;
use crate::plan::Plan;
use crate::profile::Profile;
use crate::results::Sample;

fn planned(name: &str, set: &[&str], version: &str) -> Result<Plan, String> {
    let mut profile = Profile::load(&Scale, name).map_err(|error| error.to_string())?;
    for assignment in set {
        profile.set(assignment).map_err(|error| error.to_string())?;
    }
    let mut machine = Environment::look(std::path::Path::new("/tmp"), None);
    machine.postgresql = vec![format!("postgres (PostgreSQL) {version} (Debian {version}-1)")];
    plan(&profile, &machine).map_err(|error| error.to_string())
}

fn ids(plan: &Plan) -> Vec<&str> {
    plan.cases.iter().map(|case| case.id.as_str()).collect()
}

#[test]
fn each_series_has_its_cases_and_io_workers_need_18() {
    let plan = planned("full", &[], "15.18").unwrap();
    let of = |name: &str| {
        let cases = plan.cases.iter().filter(|case| place_of(case).unwrap().series == name);
        cases.map(|case| place_of(case).unwrap().x).collect::<Vec<_>>()
    };
    let numbers = |list: &[f64]| list.iter().map(|x| Some(*x)).collect::<Vec<_>>();
    assert_eq!(of("readers"), numbers(&[1.0, 4.0, 16.0, 64.0]));
    assert_eq!(of("workers"), numbers(&[0.0, 1.0, 2.0, 4.0, 8.0]));
    assert_eq!(of("tables"), numbers(&[1000.0, 10_000.0, 50_000.0]));
    assert_eq!(of("operations"), [None; 6]);
    assert!(of("io-workers").is_empty());
    assert!(ids(&planned("full", &[], "18.1").unwrap()).contains(&"io-workers-8"));
    for name in ["tiny", "quick", "full"] {
        let plan = planned(name, &[], "18.1").unwrap();
        assert!(plan.cases.iter().all(|case| spec_of(case).is_ok()), "{name}");
        assert_eq!(plan.again().unwrap().id, "plain-again");
        let mut unique = ids(&plan);
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), plan.cases.len(), "{name}");
    }
}

#[test]
fn a_case_has_what_its_place_says() {
    let plan = planned("full", &[], "15.18").unwrap();
    let spec = |id: &str| spec_of(plan.cases.iter().find(|case| case.id == id).unwrap()).unwrap();
    // Of 310 MB of data half, and what a server needs besides.
    assert_eq!(spec("memory-50").memory_limit_bytes, Some(155_000_000 + (64 << 20)));
    assert_eq!(spec("readers-4").memory_limit_bytes, None);
    assert!(matches!(spec("writers-16").work, Work::Steady { clients: 16, .. }));
    let Work::Sql { before, .. } = spec("dirty-10").work else { panic!("not SQL") };
    assert!(before.last().unwrap().ends_with("LIMIT 78080"), "{before:?}");
}

#[test]
fn a_profile_that_cannot_be_measured_says_why() {
    let wrong = |set: &[&str]| planned("tiny", set, "15.18").unwrap_err();
    assert!(wrong(&["suites=[]"]).contains("suites"));
    assert!(wrong(&["dirty_mb=[14]"]).contains("larger scale"));
    assert!(wrong(&["writer=[1]"]).contains("writer"));
    let none = ["readers", "writers", "inserters", "workers", "io_workers", "dirty_mb", "tables"];
    let mut none: Vec<String> = none.iter().map(|name| format!("{name}=[]")).collect();
    none.push("operations=false".to_owned());
    let none: Vec<&str> = none.iter().map(String::as_str).collect();
    assert!(wrong(&none).contains("every series is empty"));
}

#[test]
fn each_series_that_was_measured_is_a_chart_and_the_worst_case_is_named() {
    let plan = planned("quick", &[], "15.18").unwrap();
    let cost = |case: &str, arm: &str| match (case, arm) {
        (_, "plain" | "plain-again") => 1.0,
        // More sessions, more cost; a throughput.
        ("readers-1", _) => 0.98,
        ("readers-4", _) => 0.96,
        ("readers-16", _) => 0.8,
        _ => 1.1,
    };
    let measured = ["readers-1", "readers-4", "readers-16", "restart", "recovery"];
    let mut samples = Vec::new();
    for case in measured {
        for arm in ["plain", "plain-again", "aes-256-gcm"] {
            samples.extend((0..5).map(|round| Sample {
                case: case.to_owned(),
                arm: arm.to_owned(),
                round,
                place: 0,
                value: 100.0 * cost(case, arm) * (1.0 + 0.001 * f64::from(round)),
                extra: BTreeMap::from([
                    ("server_cpu_s_per_op".to_owned(), 1.0),
                    ("client_cpu_s_per_op".to_owned(), 3.0),
                ]),
                facts: BTreeMap::new(),
                load: 0.1,
                step_s: 1.0,
            }));
        }
    }
    let results = mock::results_of(plan, samples);
    let seen = exhibits::exhibits(&results, &Analysis::of(&results)).unwrap();
    let kinds: Vec<(&str, ChartKind)> =
        seen.charts.iter().map(|chart| (chart.id.as_str(), chart.kind)).collect();
    assert_eq!(kinds, [("scale-readers", ChartKind::Lines), ("scale-operations", ChartKind::Bars)]);
    let sealed = seen.charts[0].series.iter().find(|one| one.arm == "aes-256-gcm").unwrap();
    let heights: Vec<f64> = sealed.points.iter().map(|point| point.y.round()).collect();
    assert_eq!(heights, [2.0, 4.0, 25.0]);
    let text: Vec<&str> = seen.findings.iter().map(|one| one.text.as_str()).collect();
    assert_eq!(
        text,
        [
            "aes-256-gcm costs most in readers-16: 25.0 % more time than plain.",
            "In 5 cases the client takes half of the CPU time or more.",
        ]
    );
    for finding in &seen.findings {
        assert_eq!(fault_of_sentence(&finding.text), None, "{}", finding.text);
    }
    for table in &seen.tables {
        assert!(table.rows.iter().all(|row| row.len() == table.columns.len()), "{}", table.id);
    }
    assert_eq!(seen.tables[0].rows.len(), 2 * measured.len());
    assert!(SERIES.len() > seen.charts.len());
}
