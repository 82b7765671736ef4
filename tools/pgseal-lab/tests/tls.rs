//! `pgseal lab tls` on a real server: what was asked for is what was negotiated, or there is no
//! sample.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use pgseal_lab::cluster::tools_of;
use pgseal_lab::context::ordinary_account;
use pgseal_lab::executor::{Executor, Silent};
use pgseal_lab::exhibits::fault_of_sentence;
use pgseal_lab::experiments::named;
use pgseal_lab::runner::Run;
use pgseal_lab::{
    Analysis, Arm, Context, Environment, Experiment, LabError, Observation, Plan, Profile, Results,
    Step,
};
use serde_json::json;
use tempfile::TempDir;

fn experiment() -> Box<dyn Experiment> {
    named("tls").unwrap()
}

fn plan_of(profile: &str) -> Plan {
    let profile = Profile::load(experiment().as_ref(), profile).unwrap();
    experiment().plan(&profile, &Environment { cpus: 2, ..Environment::default() }).unwrap()
}

/// A short directory of the servers' user.
fn context() -> (TempDir, Context) {
    let dir = tempfile::Builder::new().prefix("lab").tempdir_in("/tmp").unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let context = Context {
        bindir: pgseal_testkit::bindir().unwrap(),
        // Never run here; as root the lab copies it to where its user can reach it.
        pgseal: std::env::current_exe().unwrap(),
        lab: env!("CARGO_BIN_EXE_pgseal-lab").into(),
        library: None,
        guard: None,
        work_dir: dir.path().join("w"),
        output_dir: dir.path().join("o"),
        cpus: None,
        account: ordinary_account().unwrap(),
    };
    fs::create_dir(&context.work_dir).unwrap();
    tools_of(&context).unwrap().give(&context.work_dir).unwrap();
    (dir, context)
}

fn walk(plan: &Plan, output: &Path, executor: &mut dyn Executor) -> Results {
    let mut after_case = |_: &Path, _: &Results| Ok(());
    let run = Run {
        plan,
        environment: &Environment::default(),
        command: "pgseal lab tls",
        output,
        resume: false,
        progress: &Silent,
        limit: None,
        interrupted: &AtomicBool::new(false),
        after_case: &mut after_case,
    };
    run.walk(executor).unwrap()
}

#[test]
fn the_tiny_profile_measures_what_it_says_and_names_what_is_gone() {
    let (dir, context) = context();
    let plan = plan_of("tiny");
    let mut executor = experiment().executor(&plan, &context).unwrap();
    let results = walk(&plan, &dir.path().join("results"), executor.as_mut());
    drop(executor);
    assert!(results.finished);
    for sample in &results.samples {
        let fact = |name: &str| sample.facts.get(name).map(String::as_str).unwrap_or("-");
        let arm = plan.arm(&sample.arm).unwrap();
        match arm.attributes.get("tls") {
            None => assert_eq!((fact("ssl"), fact("cipher")), ("f", "-"), "{sample:?}"),
            Some(wanted) => {
                assert_eq!(fact("ssl"), "t");
                assert_eq!(fact("cipher"), wanted["suite"], "{sample:?}");
                assert_eq!(fact("version"), wanted["version"], "{sample:?}");
                assert_eq!(fact("certificate"), wanted["certificate"], "{sample:?}");
            }
        }
        assert!(sample.value > 0.0);
    }
    // The system counts in hundredths of a second: a step may have used none, not all of them.
    for extra in ["client_cpu_s_per_op", "server_cpu_s_per_op"] {
        let all = || results.samples.iter().map(|sample| sample.extra[extra]);
        assert!(
            all().all(|seconds| seconds >= 0.0) && all().any(|seconds| seconds > 0.0),
            "{extra}"
        );
    }
    let of = |case: &str, arm: &str| results.of(case, arm).count();
    for arm in ["plain", "plain-again", "TLS_CHACHA20_POLY1305_SHA256", "AES128-SHA"] {
        assert_eq!(of("row-persistent", arm), 1, "{arm}");
    }
    for case in ["row-connect", "rows-100", "value-1mb"] {
        assert_eq!(of(case, "plain"), 1, "{case}");
    }
    assert_eq!(of("row-connect", "ecdsa-p256"), 1);
    assert_eq!(of("value-1mb", "DHE-RSA-AES256-SHA"), 1);
    // OpenSSL has had no RC4 in its default provider since 3.0; should it be there, it is measured.
    let missing = |arm: &str| results.missing.iter().any(|m| m.arm.as_deref() == Some(arm));
    assert!(missing("RC4-SHA") || of("row-persistent", "RC4-SHA") == 1);
    assert!(missing("X25519MLKEM768") || of("row-connect", "X25519MLKEM768") == 1);

    let analysis = Analysis::of(&results);
    let exhibits = experiment().exhibits(&results, &analysis).unwrap();
    assert_eq!(exhibits.tables.len(), 4);
    for table in &exhibits.tables {
        assert!(table.rows.iter().all(|row| row.len() == table.columns.len()), "{}", table.id);
    }
    let words: Vec<&str> = exhibits.findings.iter().map(|finding| finding.text.as_str()).collect();
    if missing("RC4-SHA") {
        assert!(words.iter().any(|text| text.contains("RC4-SHA")), "{words:?}");
    }
}

/// One step of one arm, in the first case.
fn one(arm: Arm) -> Result<Observation, LabError> {
    let (_dir, context) = context();
    let mut plan = plan_of("tiny");
    plan.cases[0].arms.push(arm.id.clone());
    plan.arms.push(arm.clone());
    let mut executor = experiment().executor(&plan, &context).unwrap();
    executor.begin_case(&plan, &plan.cases[0], &Silent).unwrap();
    let case = &plan.cases[0];
    let step = Step { plan: &plan, case, arm: &arm, round: 0, warmup: false };
    let seen = executor.run(&step);
    executor.end_case(&plan, case).unwrap();
    seen
}

#[test]
fn a_server_that_takes_more_than_what_was_asked_for_gives_no_sample() {
    // A TLS 1.2 suite under TLS 1.3: nothing keeps the server from its usual ones.
    let wanted = json!({"version": "TLSv1.3", "suite": "AES128-SHA", "certificate": "rsa-2048",
                        "group": "prime256v1"});
    let arm = Arm {
        id: "x".to_owned(),
        title: "x".to_owned(),
        again: false,
        attributes: [("tls".to_owned(), wanted)].into(),
    };
    match one(arm) {
        Err(LabError::Broken { what, expected, found }) => {
            assert!(what.contains("suites"), "{what}");
            assert!(expected == "AES128-SHA" && found.contains("TLS_AES_256"), "{found}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn profiles_have_the_study_s_arms_and_fit_their_time() {
    let (quick, full) = (plan_of("quick"), plan_of("full"));
    assert!(quick.estimate_s() < 120.0, "{}", quick.estimate_s());
    assert!(full.estimate_s() < 1200.0, "{}", full.estimate_s());
    for plan in [&quick, &full] {
        for suite in ["AES128-SHA", "DHE-RSA-AES256-SHA", "RC4-SHA"] {
            assert!(plan.arm(suite).is_some(), "{suite}");
        }
        assert_eq!(plan.again().unwrap().id, "plain-again");
        assert_eq!(plan.arms[0].id, "plain");
        let options: Vec<String> = plan.required("pgbench").unwrap();
        assert_eq!(options[..6], ["-M", "prepared", "-c", "16", "-j", "4"].map(str::to_owned));
        assert_eq!(plan.parameter::<u32>("rows").unwrap(), Some(1_000_000));
    }
    for suite in ["TLS_AES_128_GCM_SHA256", "ECDHE-RSA-CHACHA20-POLY1305", "DHE-RSA-AES128-SHA256"]
    {
        assert!(full.arm(suite).is_some(), "{suite}");
    }
    for arm in ["rsa-3072", "ecdsa-p256", "secp384r1", "X25519MLKEM768"] {
        assert!(full.case("row-connect").unwrap().arms.iter().any(|id| id == arm), "{arm}");
    }
}

#[test]
fn a_profile_that_makes_no_sense_is_refused_by_name() {
    let tls = experiment();
    for (change, words) in [
        ("seconds=5", "either seconds or transactions"),
        ("persistent={suites=['NO-SUCH']}", "NO-SUCH"),
        ("connect={certificates=['dsa-1024']}", "dsa-1024"),
        ("rows=1", "100 or more"),
        ("color=1", "unknown field"),
    ] {
        let mut profile = Profile::load(tls.as_ref(), "full").unwrap();
        if change.starts_with("seconds") {
            profile.set("transactions=1").unwrap();
        }
        profile.set(change).unwrap();
        let error = tls.plan(&profile, &Environment::default()).unwrap_err().to_string();
        assert!(error.contains(words), "{change}: {error}");
    }
}

/// Results of the quick profile as they might be: all arms at 1000 a second but those named.
fn recorded(values: &[(&str, &str, f64, f64)]) -> Results {
    let plan = plan_of("quick");
    let mut samples = Vec::new();
    for case in &plan.cases {
        for arm in plan.arms_of(case) {
            let named = values.iter().find(|v| (v.0, v.1) == (case.id.as_str(), arm.id.as_str()));
            let (value, cpu_us) = named.map_or((1000.0, 50.0), |v| (v.2, v.3));
            for round in 0..3 {
                // A little noise, the same for all arms of a round.
                let noise = 1.0 + f64::from(round) / 1000.0;
                let extra = [("server_cpu_s_per_op", cpu_us / 1e6), ("client_cpu_s_per_op", 20e-6)];
                samples.push(json!({
                    "case": case.id, "arm": arm.id, "round": round, "place": 0,
                    "value": value * noise, "load": 0.0, "step_s": 1.0,
                    "extra": extra.into_iter().collect::<std::collections::BTreeMap<_, _>>(),
                }));
            }
        }
    }
    serde_json::from_value(json!({
        "schema": "pgseal-lab/1", "experiment": "tls", "plan": plan, "plan_hash": plan.plan_hash().unwrap(),
        "environment": Environment::default(), "started_unix_s": 0, "finished": true,
        "samples": samples,
    }))
    .unwrap()
}

#[test]
fn findings_say_what_the_figures_say() {
    let results = recorded(&[
        ("row-persistent", "TLS_AES_256_GCM_SHA384", 900.0, 60.0),
        ("row-persistent", "AES128-SHA", 800.0, 70.0),
        ("row-connect", "plain", 1000.0, 1000.0),
        ("row-connect", "ecdsa-p256", 500.0, 2000.0),
        ("row-connect", "X25519MLKEM768", 400.0, 2500.0),
        ("value-1mb", "TLS_AES_256_GCM_SHA384", 250.0, 90.0),
    ]);
    let exhibits = experiment().exhibits(&results, &Analysis::of(&results)).unwrap();
    let text: Vec<&str> = exhibits.findings.iter().map(|finding| finding.text.as_str()).collect();
    let has = |words: &str| assert!(text.iter().any(|t| t.contains(words)), "{words} in {text:#?}");
    has("TLS_AES_256_GCM_SHA384 takes 11.1 % more time for the study's small rows.");
    has("AES128-SHA takes 25.0 % more time for the study's small rows, the most of all.");
    has("TLS_AES_256_GCM_SHA384 costs the server 10.0 us more CPU time for each small row.");
    has("A TLS handshake (TLSv1.3, ecdsa-p256) costs the server 1000 us of CPU time.");
    // 1000 us of handshake, 10 us of a small result
    has("as much as TLS for 100 small rows");
    has("Group X25519MLKEM768 takes 25.0 % more time than prime256v1 for a new connection.");
    has("TLS_AES_256_GCM_SHA384 takes 4.00 times as long for a value of a megabyte.");
    for text in &text {
        assert_eq!(fault_of_sentence(text), None, "{text}");
    }
    let study = exhibits.findings[0].study.as_deref().unwrap();
    assert!(
        study.contains("RC4-SHA +13.2 %") && study.contains("DHE-RSA-AES256-SHA +36.3 %"),
        "{study}"
    );
    let answer = exhibits.answer.as_ref().unwrap();
    assert_eq!(answer.study, "2013: +13 to +36 % time");
    assert_eq!(answer.range, "1.00 to 4.00 times the time");

    // The study's figures stand in columns of their own, beside ours.
    let table = &exhibits.tables[0];
    let row = table.rows.iter().find(|row| row[0].text.starts_with("AES128-SHA")).unwrap();
    let column = |title: &str| table.columns.iter().position(|c| c.title == title).unwrap();
    assert_eq!(row[column("Against no TLS")].text, "+25.0 %");
    assert_eq!(row[column("Study: against no TLS")].text, "+34.6 %");
}
