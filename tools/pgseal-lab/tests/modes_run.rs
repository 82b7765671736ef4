//! `pgseal-lab modes` end to end, in the tiny profile: what must hold of every figure; then
//! `pgseal-lab report` and `pgseal-lab advise` over the same results.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn lab() -> Command {
    Command::new(env!("CARGO_BIN_EXE_pgseal-lab"))
}

/// Where the program `pgseal` is, which does not stand beside a `pgseal-lab` that cargo built for
/// tests.
fn pgseal() -> PathBuf {
    pgseal_testkit::built_programs().unwrap().pgseal
}

fn modes(output: &Path, more: &[&str]) -> Output {
    lab()
        .args(["modes", "--profile", "tiny", "--output"])
        .arg(output)
        .args(more)
        .arg("--pgseal")
        .arg(pgseal())
        .env_remove("OPENSSL_ia32cap")
        .output()
        .unwrap()
}

fn ok(done: &Output) {
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

/// What `/proc/cpuinfo` says, before anybody masked anything.
fn cpu_has(flag: &str) -> bool {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap();
    let flags = info.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    flags.split(' ').any(|known| known == flag)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
fn what_is_measured_is_what_is_said() {
    let dir = tempfile::tempdir().unwrap();
    ok(&modes(dir.path(), &[]));
    let results: Value =
        serde_json::from_slice(&fs::read(dir.path().join("modes/results.json")).unwrap()).unwrap();
    assert_eq!(results["finished"], true);
    let samples = results["samples"].as_array().unwrap();
    let missing = results["missing"].as_array().unwrap();

    // Every arm of every case is measured in every round, or known to be missing.
    for case in results["plan"]["cases"].as_array().unwrap() {
        for arm in case["arms"].as_array().unwrap() {
            let found = samples.iter().filter(|s| s["case"] == case["id"] && s["arm"] == *arm);
            let lost = missing.iter().any(|m| m["case"] == case["id"] && m["arm"] == *arm);
            assert_eq!(found.count(), if lost { 0 } else { 2 }, "{} {arm}", case["id"]);
        }
    }
    let lost: BTreeSet<&str> = missing.iter().map(|missing| text(missing, "case")).collect();
    assert!(lost.contains("speed.md2") && !lost.contains("speed.md5"), "{lost:?}");

    // The children have the instructions that they should have, and no others.
    for sample in samples.iter().filter(|sample| sample["facts"]["core"].is_string()) {
        let arm = text(sample, "arm");
        let aes = cpu_has("aes") && !arm.ends_with("-noaes");
        let said = text(&sample["facts"], "aes_instructions");
        assert!(said == if aes { "on" } else { "off" } || said == "unknown", "{sample}");
        if arm == "aws-lc" || arm == "aws-lc-noaes" {
            assert_ne!(said, "unknown", "AWS-LC always says it");
        }
    }

    // All arms of a case gave the same bytes.
    let mut outputs: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for sample in samples {
        if let Some(hash) = sample["facts"]["output_sha256"].as_str() {
            outputs.entry(text(sample, "case")).or_default().insert(hash);
        }
    }
    assert!(outputs.len() >= 6, "{outputs:?}");
    assert!(outputs.values().all(|hashes| hashes.len() == 1), "{outputs:?}");

    // The value of a case is its page of 8192 bytes; each size is there in both directions.
    for sample in samples.iter().filter(|sample| text(sample, "case").starts_with("aes-")) {
        assert_eq!(sample["value"], sample["extra"]["encrypt_8192_bytes_per_s"]);
        for name in ["encrypt_16", "decrypt_16", "decrypt_8192"] {
            assert!(sample["extra"][format!("{name}_bytes_per_s")].as_f64().unwrap() > 0.0);
        }
    }

    // What libraries say of themselves is held against what they do: without AES instructions a
    // page takes many times as long. No load of a test machine hides a factor of ten in both
    // rounds.
    if cpu_has("aes") && cpu_has("pclmulqdq") {
        let speed = |arm: &str| {
            let of = |s: &&Value| s["case"] == "aes-256-gcm" && s["arm"] == arm;
            median(samples.iter().filter(of).map(|s| s["value"].as_f64().unwrap()).collect())
        };
        for way in ["openssl", "aws-lc"] {
            let (with, without) = (speed(way), speed(&format!("{way}-noaes")));
            assert!(with > 2.0 * without, "{way}: {with} with, {without} without");
        }
    }

    // The report speaks of it, also when it is made anew from the record.
    let report = lab().args(["report", "--verbose"]).arg(dir.path()).output().unwrap();
    ok(&report);
    let words: Vec<&str> =
        std::str::from_utf8(&report.stdout).unwrap().split_ascii_whitespace().collect();
    let words = words.join(" ");
    for part in
        ["The CPU's AES instructions make", "AES-256-GCM-SIV", "the study: ", "does not have md2"]
    {
        assert!(words.contains(part), "{part}: {words}");
    }
    advice_rests_on_it(dir.path());
}

/// `pgseal-lab advise` reads the same results and says of each recommendation what it rests on.
fn advice_rests_on_it(results: &Path) {
    let advise = lab()
        .args(["advise", "--json", "--data-size", "20GB", "--results"])
        .arg(results)
        .arg("--pgseal")
        .arg(pgseal())
        .output()
        .unwrap();
    ok(&advise);
    let advice: Value = serde_json::from_slice(&advise.stdout).unwrap();
    assert_eq!(advice["sources"][0]["profile"], "tiny");
    let cautions = advice["cautions"].as_array().unwrap();
    assert!(cautions.iter().any(|one| one.as_str().unwrap().contains("no measurement")));
    let of = |topic: &str| {
        let all = advice["recommendations"].as_array().unwrap();
        all.iter().find(|one| one["topic"] == topic).unwrap()
    };
    let suite = of("suite");
    assert_eq!(suite["basis"], "estimated");
    assert_eq!(suite["reasons"][0]["source"], "modes aes-256-gcm, arm aws-lc");
    assert!(text(&suite["paste"][0], "text").contains("--suite aes-256-gcm"));
    assert_eq!(of("shared-buffers")["basis"], "not-measured");
    assert_eq!(of("groups")["basis"], "not-measured");
    assert_ne!(of("tls-ciphers")["basis"], "not-measured");
}

#[test]
fn advice_without_results_there_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let done = lab()
        .args(["advise", "--results"])
        .arg(dir.path())
        .arg("--pgseal")
        .arg(pgseal())
        .output()
        .unwrap();
    assert_eq!(done.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&done.stderr).contains("no results of pgseal lab here"));
}

#[test]
fn a_profile_that_makes_no_sense_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (set, says) in [
        ("sizes=[16]", "8192"),
        ("algorithms=[\"aes-257-gcm\"]", "aes-257-gcm: no such algorithm"),
        ("keys=[\"rsa\"]", "rsa-2048"),
        ("burst=1", "burst"),
    ] {
        let done = modes(dir.path(), &["--set", set]);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(2), "{set}: {said}");
        assert!(said.contains(says), "{set}: {said}");
    }
}
