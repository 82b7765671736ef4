//! Plans and exhibits, without servers.

use std::collections::BTreeMap;

use super::plan::{lacks_checksums, plan, spec_of};
use super::{Costs, findings, table};
use crate::Analysis;
use crate::cost::is_suite;
use crate::exhibits::{Tone, fault_of_sentence};
use crate::experiments::Experiment;
use crate::mock;
use crate::plan::Plan;
use crate::profile::Profile;
use crate::results::{Because, End, Results, Sample};

fn planned(name: &str, set: &[&str]) -> Result<Plan, String> {
    let mut profile = Profile::load(&Costs, name).map_err(|error| error.to_string())?;
    for assignment in set {
        profile.set(assignment).map_err(|error| error.to_string())?;
    }
    plan(&profile).map_err(|error| error.to_string())
}

#[test]
fn every_profile_has_all_cases_and_plain_twice() {
    let cases = "select-memory scan select-64mb connect tpcb insert vacuum vacuum-full ctas init";
    for (name, _) in Costs.profiles() {
        let plan = planned(name, &[]).unwrap();
        let ids: Vec<&str> = plan.cases.iter().map(|case| case.id.as_str()).collect();
        assert_eq!(ids.join(" "), cases);
        assert_eq!(plan.again().unwrap().id, "plain-again");
        for case in &plan.cases {
            assert!(spec_of(case).is_ok(), "{name} {}", case.id);
            assert_eq!(plan.baseline_of(case).unwrap().id, "plain");
        }
    }
    let estimate_s = planned("full", &[]).unwrap().estimate_s();
    assert!((600.0..3600.0).contains(&estimate_s), "{estimate_s}");
    let chosen = planned("quick", &[r#"suites=["aes-128-ctr"]"#, "gocryptfs=true"]).unwrap();
    let ids: Vec<&str> = chosen.arms.iter().map(|arm| arm.id.as_str()).collect();
    assert_eq!(ids, ["plain", "plain-again", "aes-128-ctr", "gocryptfs"]);
    let without = r#"suites=["plain-without-checksums", "aes-256-gcm-without-checksums"]"#;
    let chosen = planned("quick", &[without]).unwrap();
    let arms = chosen.arms.iter().skip(2);
    let seen =
        arms.map(|arm| (arm.title.as_str(), arm.attributes.get("suite"), lacks_checksums(arm)));
    let suite = serde_json::Value::from("aes-256-gcm");
    assert_eq!(
        seen.collect::<Vec<_>>(),
        [
            ("plain, no checksums", None, true),
            ("sealed, aes-256-gcm, no checksums", Some(&suite), true)
        ]
    );
    // Both may be faster than the plain server with checksums.
    for arm in &chosen.arms {
        assert!(!Costs.only_adds(&chosen.cases[0], arm), "{}", arm.id);
    }
    let sealed = planned("quick", &[]).unwrap();
    assert!(Costs.only_adds(&sealed.cases[0], &sealed.arms[2]));
    assert!(planned("quick", &["suites=[]"]).unwrap_err().contains("suites"));
    assert!(planned("quick", &["suite=1"]).unwrap_err().contains("suite"));
}

/// Results of the quick plan: `values` for each case and arm, in five rounds with a spread of 1 %.
fn recorded(values: &[(&str, &str, f64)]) -> Results {
    let mut plan = planned("quick", &[r#"suites=["aes-256-gcm", "aes-256-xts"]"#]).unwrap();
    plan.rounds = 5;
    let samples = values.iter().flat_map(|(case, arm, value)| {
        (0..5).map(move |round| Sample {
            case: (*case).to_owned(),
            arm: (*arm).to_owned(),
            round,
            place: 0,
            value: value * (1.0 + 0.0025 * (f64::from(round) - 2.0)),
            // Two pages for each operation, which lasts 25 times as long as the cipher takes for
            // one.
            extra: BTreeMap::from([
                ("server_cpu_s_per_op".to_owned(), *value),
                ("file_bytes_per_op".to_owned(), 16_384.0),
                ("wall_s_per_op".to_owned(), 25e-6),
            ])
            .into_iter()
            .chain(is_suite(arm).then(|| ("cipher_s_per_page".to_owned(), 1e-6)))
            .collect(),
            facts: BTreeMap::new(),
            load: 0.1,
            step_s: 1.0,
        })
    });
    mock::results_of(plan, samples.collect())
}

#[test]
fn the_first_arm_is_the_measure_of_the_others_and_aims_are_judged() {
    let mut results = recorded(&[
        ("scan", "plain", 2.0),
        ("scan", "plain-again", 2.0),
        ("scan", "aes-256-gcm", 3.0),
        ("scan", "aes-256-xts", 2.1),
        ("tpcb", "plain", 1000.0),
        ("tpcb", "plain-again", 1000.0),
        ("tpcb", "aes-256-gcm", 990.0),
    ]);
    results.ends.push(End {
        case: "scan".to_owned(),
        because: Because::Narrow,
        blocks: 5,
        width_percent: Some(1.0),
        took_s: 1.0,
    });
    let analysis = Analysis::of(&results);
    let tables = table::tables(&results, &analysis, &specs_of(&results));
    let lines: Vec<String> = tables[0]
        .rows
        .iter()
        .map(|row| row.iter().map(|cell| cell.text.as_str()).collect::<Vec<_>>().join(" | "))
        .collect();
    let scan = "sequential scan, 16 MB of buffers (time)";
    let tpcb = "TPC-B, 4 clients (throughput)";
    assert_eq!(
        lines,
        [
            format!(
                "{scan} | plain-again | 1.000 | 1.000 to 1.000 | 1.000 (1.000 to 1.000) |  | \
                 (noise floor) |  | narrow enough, 5 blocks"
            ),
            format!(
                "{scan} | aes-256-gcm | 1.500 | 1.500 to 1.500 | 1.500 (1.500 to 1.500) | 1.080 | \
                 at most 1.18 | MISSED | narrow enough, 5 blocks"
            ),
            format!(
                "{scan} | aes-256-xts | 1.050 | 1.050 to 1.050 | 1.050 (1.050 to 1.050) | 1.080 | \
                 at most 1.13 | met | narrow enough, 5 blocks"
            ),
            format!(
                "{tpcb} | plain-again | 1.000 | 1.000 to 1.000 | 1.000 (1.000 to 1.000) |  | \
                 (noise floor) |  | "
            ),
            format!(
                "{tpcb} | aes-256-gcm | 0.990 | 0.990 to 0.990 | 0.990 (0.990 to 0.990) | 0.926 | \
                 at least 0.97 | met | "
            ),
        ]
    );
    assert_eq!(tables[0].rows[1][7].tone, Tone::Bad);
    for table in &tables {
        assert!(table.rows.iter().all(|row| row.len() == table.columns.len()), "{}", table.id);
    }
    let found = findings::findings(&results, &analysis, &specs_of(&results));
    let text = found.iter().map(|finding| finding.text.as_str()).collect::<Vec<_>>().join("\n");
    let has = |words: &str| assert!(text.contains(words), "{words} in {text}");
    has("aes-256-gcm meets all aims but 1.");
    has("aes-256-gcm misses the aim of scan, with 50.0 % more time than plain.");
    has("aes-256-xts meets all 1 aims.");
    has("the server's CPU time grows most in scan, to 1.50 times that of plain.");
    for finding in &found {
        assert_eq!(fault_of_sentence(&finding.text), None, "{}", finding.text);
    }
    assert_eq!(table::charts(&results, &analysis)[0].series.len(), 3);
}

#[test]
fn nothing_measured_yet_gives_no_findings() {
    let results = recorded(&[]);
    let analysis = Analysis::of(&results);
    assert!(findings::findings(&results, &analysis, &specs_of(&results)).is_empty());
    assert!(table::charts(&results, &analysis).is_empty());
    assert_eq!(table::tables(&results, &analysis, &specs_of(&results)).len(), 1);
}

fn specs_of(results: &Results) -> super::plan::Specs {
    super::plan::Specs::of(&results.plan).unwrap()
}
