//! Reports from recorded results are what they were. After a change that is meant:
//! `PGSEAL_BLESS=1 cargo test -p pgseal-lab --test report recorded`, for the pages of the full runs
//! `... full_runs`; then look at the difference and run `make test-report`.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{Demo, data, demo_plan, normal, walk};
use pgseal_lab::Analysis;
use pgseal_lab::exhibits::{Tone, fault_of_sentence};
use pgseal_lab::experiments;
use pgseal_lab::report::{self, Entry, Files};

fn blessing() -> bool {
    std::env::var_os("PGSEAL_BLESS").is_some()
}

fn entry() -> Entry {
    Entry::of(&Demo, report::read_results(&data().join("results.json")).unwrap()).unwrap()
}

/// Records anew, if that is asked for; only the first test does, lest another one reads meanwhile.
fn recorded() -> Entry {
    let path = data().join("results.json");
    if blessing() {
        let dir = tempfile::tempdir().unwrap();
        let results = walk(&demo_plan(), dir.path(), false, &mut common::ciphers()).unwrap();
        let entry = Entry::of(&Demo, normal(results)).unwrap();
        fs::write(&path, report::json_of(&entry).unwrap()).unwrap();
    }
    entry()
}

#[track_caller]
fn same(name: &str, now: &str) {
    let path = data().join(name);
    if blessing() {
        fs::write(&path, now).unwrap();
    }
    let then = fs::read_to_string(&path).unwrap();
    let differing = then.lines().zip(now.lines()).position(|(a, b)| a != b);
    assert!(
        then == now,
        "{name} has changed from line {:?} on; if that is meant, see the top of this file",
        differing.map(|line| line + 1)
    );
}

#[test]
fn reports_of_recorded_results_are_as_recorded() {
    let entry = recorded();
    same("results.json", &String::from_utf8(report::json_of(&entry).unwrap()).unwrap());
    same("results.csv", &String::from_utf8(report::csv_of(&entry.results).unwrap()).unwrap());
    same("report.txt", &report::text_of(&entry, true));
    let short = report::text_of(&entry, false);
    assert!(short.lines().count() < 10, "the terminal gets the findings: {short}");
    assert!(short.contains("times as long as AES-256-CTR") && short.contains("Noise: "), "{short}");
    assert!(short.contains("4 values are missing, 1 warning (--verbose"), "{short}");
    let one = report::html_of(std::slice::from_ref(&entry), Files::Beside);
    same("report.html", &one);
    let mut second = entry.clone();
    second.results.experiment = "second".to_owned();
    same("summary.html", &report::html_of(&[entry, second], Files::Below));

    for page in [&one] {
        assert!(!page.contains("<b>markup</b>"), "text of a finding became markup");
        assert!(page.contains("Text &amp; &lt;b&gt;markup"));
        for remote in ["http://", "https://", "src=\"/", "@import", "url("] {
            assert!(!page.contains(remote), "the page asks for {remote}");
        }
        // Each chart in its wide and its narrow form.
        assert_eq!(page.matches("<svg class=\"plot ").count(), 2 * 3);
        assert_eq!(page.matches("<details class=\"card table\"").count(), 2);
        assert!(page.contains("class=\"series s0 study\""), "the study's line has its own look");
        assert_eq!(page.matches("<article class=\"tile").count(), 1);
        assert!(page.contains(">+17 to +18 % time<") && page.contains("Costs what it should cost"));
    }
}

#[test]
fn what_is_missing_and_what_warns_stands_in_every_form() {
    let entry = entry();
    let text = report::text_of(&entry, true);
    let page = report::html_of(std::slice::from_ref(&entry), Files::Beside);
    let json = String::from_utf8(report::json_of(&entry).unwrap()).unwrap();
    for form in [&text, &page, &json] {
        assert!(form.contains("the mock has no value"), "missing: {form:.200}");
        assert!(form.contains("hypervisor"), "warning: {form:.200}");
    }
    assert!(page.contains("pgseal lab demo --profile tiny"), "how to measure it again");
    assert!(page.contains("Debian GNU/Linux 12 (bookworm)"), "environment");
}

/// The demonstration on a machine where the baseline differs from itself in three cases of four.
fn noisy() -> Entry {
    let mut results = entry().results;
    let cases: Vec<String> =
        results.plan.cases.iter().skip(1).map(|case| case.id.clone()).collect();
    for sample in results.samples.iter_mut().filter(|sample| cases.contains(&sample.case)) {
        if sample.arm == "ctr-again" {
            sample.value *= 0.7 + 0.2 * f64::from(sample.round % 4);
        }
    }
    Entry::of(&Demo, results).unwrap()
}

#[test]
fn a_noisy_machine_gets_a_banner_and_no_bold_findings() {
    let page = |entry: Entry| report::html_of(&[entry], Files::Beside);
    let (quiet, loud) = (page(entry()), page(noisy()));
    assert!(!quiet.contains("class=\"banner\"") && quiet.contains("<b>1."), "figures are bold");
    let banner = loud.find("class=\"banner\"").unwrap();
    assert!(banner < loud.find("class=\"tiles\"").unwrap(), "it comes first");
    assert!(
        loud.contains("too noisy to tell") && loud.contains("in 3 of 4 cases"),
        "what is wrong"
    );
    assert!(loud.contains("pgseal lab demo --profile tiny --wait-quiet"), "what to do");
    assert!(loud.contains("Too noisy here to tell"), "the tile says it too");
    assert!(!loud.contains("<p>At the largest block AES-256-GCM takes <b>"), "no bold finding");
    assert!(report::text_of(&noisy(), false).contains("TOO NOISY TO TELL"));
    // Wide noise is not called "no difference".
    assert!(loud.contains("not distinguishable (noise "));
}

#[test]
fn what_cannot_be_is_withheld_with_the_reason() {
    let mut results = report::read_results(&results_dir("columns")).unwrap();
    let measured = Analysis::of(&results).arm("copy", "sealed-det").unwrap().ratio.unwrap().value;
    for sample in results.samples.iter_mut().filter(|sample| sample.case == "copy") {
        if sample.arm == "sealed-det" {
            sample.value *= 0.26 / measured;
        }
    }
    let entry = Entry::of(&*experiments::named("columns").unwrap(), results).unwrap();
    let found = entry.analysis.arm("copy", "sealed-det").unwrap();
    assert!(
        found.ratio.is_none()
            && found.withheld.as_ref().unwrap().contains("0.26 of the plain time")
    );
    let answer = entry.exhibits.answer.as_ref().unwrap();
    let line = answer.lines.iter().find(|line| line.what == "load, COPY").unwrap();
    assert_eq!(line.cost.text, "withheld");
    assert!(line.cost.hint.as_ref().unwrap().contains("Measure again"), "{line:?}");
    assert!(!answer.range.contains("-7"), "{}", answer.range);
    for finding in &entry.exhibits.findings {
        assert!(!finding.text.contains("less time to load with COPY"), "{}", finding.text);
    }
    let page = report::html_of(&[entry], Files::Beside);
    assert!(page.contains(">withheld</span>") || page.contains(">withheld"), "the page says it");
    // A query of sealed columns may have another plan, and be faster.
    let sf1 = Entry::read(&results_dir("columns-sf1")).unwrap();
    assert!(sf1.analysis.arm("q2-keys", "sealed-det").unwrap().ratio.unwrap().value < 0.3);
}

fn results_dir(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("results").join(name)
}

/// Without `modes`, whose analysis takes too long for a test; its findings are read as recorded.
const RECORDED: [&str; 4] = ["tls", "instance", "columns", "columns-sf1"];

#[test]
fn findings_are_sentences_of_twenty_words_with_one_number() {
    for name in RECORDED {
        let entry = Entry::read(&results_dir(name)).unwrap();
        assert!(entry.exhibits.findings.len() > 5, "{name}");
        for finding in &entry.exhibits.findings {
            let fault = fault_of_sentence(&finding.text);
            assert_eq!(fault, None, "{name}: {}", finding.text);
            assert!(!finding.text.contains("NaN"), "{name}: {}", finding.text);
        }
        let answer = entry.exhibits.answer.as_ref().unwrap();
        assert_eq!(answer.verdict.split(' ').count(), 5, "{name}: {}", answer.verdict);
        assert!(!answer.lines.is_empty() && !answer.study.is_empty(), "{name}");
    }
}

#[test]
fn red_is_only_what_is_worse_than_it_should_be() {
    let red = |entry: &Entry| {
        let red = entry.costs.iter().filter(|(_, cell)| cell.tone == Tone::Bad);
        red.map(|((case, arm), _)| format!("{case} {arm}")).collect::<Vec<_>>()
    };
    // An arm that is slow on purpose is not.
    assert!(red(&entry()).is_empty(), "{:?}", red(&entry()));
    let instance = Entry::read(&results_dir("instance")).unwrap();
    assert!(red(&instance).contains(&"init aes-256-gcm".to_owned()), "{:?}", red(&instance));
    assert!(!red(&instance).iter().any(|one| one.contains("gocryptfs") || one.contains("plain")));
}

#[test]
fn recorded_findings_of_modes_have_the_form() {
    let text = fs::read_to_string(results_dir("modes").join("results.json")).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let findings = value["exhibits"]["findings"].as_array().unwrap();
    assert!(findings.len() > 20, "{}", findings.len());
    for finding in findings {
        let text = finding["text"].as_str().unwrap();
        assert_eq!(fault_of_sentence(text), None, "{text}");
    }
    let issue = "AES-256-GCM costs 0.872 us a page, 1.14 times as fast as AES-256-CTR.";
    assert_eq!(findings[0]["text"], issue);
}

/// The recorded pages of the full runs. `PGSEAL_BLESS=1` writes them anew.
#[test]
fn pages_of_the_full_runs_are_those_of_their_results() {
    for name in RECORDED {
        let dir = results_dir(name);
        let entry = Entry::read(&dir).unwrap();
        let page = report::html_of(std::slice::from_ref(&entry), Files::Beside);
        if blessing() {
            fs::write(dir.join("results.json"), report::json_of(&entry).unwrap()).unwrap();
            fs::write(dir.join("report.html"), &page).unwrap();
        }
        assert!(
            fs::read_to_string(dir.join("report.html")).unwrap() == page,
            "{name}/report.html is not what its results give; if that is meant, see the top of this file"
        );
    }
}

#[test]
fn results_of_another_schema_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("results.json");
    for (text, named) in [
        (r#"{"schema": "pgseal-lab/9"}"#, "pgseal-lab/9"),
        ("{}", "none"),
        ("{", "EOF"),
        (r#"{"schema": "pgseal-lab/1"}"#, "experiment"),
    ] {
        fs::write(&path, text).unwrap();
        let error = report::read_results(dir.path()).unwrap_err().to_string();
        assert!(error.contains(named) && error.contains("results.json"), "{error}");
    }
    let error = report::directories(&dir.path().join("nothing")).unwrap_err().to_string();
    assert!(error.contains("no results"), "{error}");
}
