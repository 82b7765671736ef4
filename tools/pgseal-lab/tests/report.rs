//! Reports from recorded results are what they were. After a change that is meant:
//! `PGSEAL_BLESS=1 cargo test -p pgseal-lab --test report as_recorded`, then look at the difference.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs;

use common::{Demo, data, demo_plan, normal, walk};
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
    same("report.txt", &report::text_of(&entry));
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
    }
}

#[test]
fn what_is_missing_and_what_warns_stands_in_every_form() {
    let entry = entry();
    let text = report::text_of(&entry);
    let page = report::html_of(std::slice::from_ref(&entry), Files::Beside);
    let json = String::from_utf8(report::json_of(&entry).unwrap()).unwrap();
    for form in [&text, &page, &json] {
        assert!(form.contains("the mock has no value"), "missing: {form:.200}");
        assert!(form.contains("hypervisor"), "warning: {form:.200}");
    }
    assert!(page.contains("pgseal lab demo --profile tiny"), "how to measure it again");
    assert!(page.contains("Debian GNU/Linux 12 (bookworm)"), "environment");
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
