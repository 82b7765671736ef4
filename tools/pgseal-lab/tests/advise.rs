//! Advice from results of each experiment: what is decided by the figures changes with them.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;

use pgseal_lab::advise::{self, Advice, Basis, Recommendation, Site, Topic, text_of};
use pgseal_lab::report::Entry;
use pgseal_lab::results::SCHEMA;
use pgseal_lab::{
    Analysis, Arm, Better, Case, Environment, Exhibits, Plan, Results, Sample, Warning,
};
use serde_json::{Value, json};

/// Rounds of every value here; each a little off its median, in the same way for all arms.
const ROUNDS: [f64; 5] = [0.99, 1.0, 1.01, 0.995, 1.005];

/// One case: id, unit, arms with their medians.
struct Row<'a>(&'a str, &'a str, Vec<(&'a str, f64)>);

fn arm(id: &str, again: bool, attributes: Value) -> Arm {
    let Value::Object(attributes) = attributes else { panic!("attributes are an object") };
    let attributes = attributes.into_iter().collect();
    Arm { id: id.to_owned(), title: id.to_owned(), again, attributes }
}

/// Results of an experiment. `noise`: how far the baseline is from itself in the A/A arm.
fn entry(
    experiment: &str,
    arms: Vec<Arm>,
    rows: &[Row<'_>],
    noise: f64,
    extra: impl Fn(&str, &str) -> BTreeMap<String, f64>,
) -> Entry {
    let mut samples = Vec::new();
    let (first, again) = (arms[0].id.clone(), arms[1].id.clone());
    for Row(case, _, values) in rows {
        let base = values.iter().find(|(arm, _)| *arm == first).map(|(_, value)| *value);
        let values =
            values.iter().copied().chain(base.map(|value| (again.as_str(), value * noise)));
        for (arm, value) in values {
            for (round, factor) in ROUNDS.iter().enumerate() {
                samples.push(Sample {
                    case: (*case).to_owned(),
                    arm: arm.to_owned(),
                    round: round as u32,
                    place: 0,
                    value: value * factor,
                    extra: extra(case, arm),
                    facts: BTreeMap::new(),
                    load: 0.0,
                    step_s: 1.0,
                });
            }
        }
    }
    let case = |Row(id, unit, _): &Row<'_>| Case {
        id: (*id).to_owned(),
        title: (*id).to_owned(),
        unit: (*unit).to_owned(),
        better: if unit.ends_with("/s") { Better::Higher } else { Better::Lower },
        arms: Vec::new(),
        baseline: None,
        parameters: BTreeMap::new(),
        rounds: None,
        estimate_s: 1.0,
    };
    let plan = Plan {
        experiment: experiment.to_owned(),
        profile: "full".to_owned(),
        arms,
        cases: rows.iter().map(case).collect(),
        rounds: ROUNDS.len() as u32,
        warmups: 0,
        seed: 1,
        parameters: BTreeMap::new(),
    };
    let results = Results {
        schema: SCHEMA.to_owned(),
        experiment: experiment.to_owned(),
        plan_hash: plan.plan_hash().unwrap(),
        plan,
        environment: Environment { cpu_model: "A CPU".to_owned(), ..Environment::default() },
        started_unix_s: 1,
        finished: true,
        samples,
        warmups: Vec::new(),
        missing: Vec::new(),
        warnings: Vec::new(),
        ends: Vec::new(),
        command: String::new(),
    };
    let analysis = Analysis::of(&results);
    let (title, study) = (experiment.to_owned(), String::new());
    Entry { title, study, results, analysis, exhibits: Exhibits::default(), costs: BTreeMap::new() }
}

fn advise(entries: &[Entry], site: &Site) -> Advice {
    advise::advise(entries, site).unwrap()
}

fn site() -> Site {
    Site {
        cpu_model: "A CPU".to_owned(),
        memory_bytes: 16 << 30,
        aes: true,
        postgres_major: Some(18),
        ml_kem: true,
        data_bytes: Some(8 << 30),
    }
}

fn of(advice: &Advice, topic: Topic) -> &Recommendation {
    advice.recommendations.iter().find(|one| one.topic == topic).unwrap()
}

fn pasted(one: &Recommendation) -> String {
    one.paste.iter().map(|paste| paste.text.as_str()).collect::<Vec<_>>().join("\n")
}

/// A sweep and a scan; `scan_s` of plain, gcm-256, xts-256, gcm-128.
fn instance(scan_s: [f64; 4], gcm_at: [f64; 3]) -> Entry {
    let arms = vec![
        arm("plain", false, json!({})),
        arm("plain-again", true, json!({})),
        arm("aes-256-gcm", false, json!({"suite": "aes-256-gcm"})),
        arm("aes-256-xts", false, json!({"suite": "aes-256-xts"})),
        arm("aes-128-gcm", false, json!({"suite": "aes-128-gcm"})),
    ];
    let select = |gcm: f64| vec![("plain", 1000.0), ("aes-256-gcm", 1000.0 * gcm)];
    let scan = ["plain", "aes-256-gcm", "aes-256-xts", "aes-128-gcm"].into_iter().zip(scan_s);
    let rows = [
        Row("select-16mb", "1/s", select(gcm_at[0])),
        Row("select-64mb", "1/s", select(gcm_at[1])),
        Row("select-256mb", "1/s", select(gcm_at[2])),
        Row("scan-warm", "s", scan.collect()),
    ];
    entry("instance", arms, &rows, 1.004, |case, _| {
        let buffers = case.strip_prefix("select-").and_then(|rest| rest.strip_suffix("mb"));
        let buffers: f64 = buffers.map_or(16.0, |mb| mb.parse().unwrap());
        BTreeMap::from([
            ("data_bytes".to_owned(), 160.0 * 1048576.0),
            ("shared_buffers_bytes".to_owned(), buffers * 1048576.0),
        ])
    })
}

#[test]
fn authentication_is_given_up_only_for_a_large_gain() {
    let advice = advise(&[instance([1.0, 1.25, 1.21, 1.24], [0.8, 0.9, 1.0])], &site());
    let suite = of(&advice, Topic::Suite);
    assert_eq!(suite.basis, Basis::Measured, "{suite:?}");
    assert!(pasted(suite).contains("--suite aes-256-gcm"), "{suite:?}");
    let words = suite.reasons.iter().map(|reason| reason.text.as_str()).collect::<String>();
    assert!(words.contains("in scan-warm: +25.0 % time"), "{words}");
    assert!(words.contains("Against aes-256-xts aes-256-gcm takes +3.3 % time"), "{words}");

    let advice = advise(&[instance([1.0, 2.0, 1.1, 1.95], [0.8, 0.9, 1.0])], &site());
    let suite = of(&advice, Topic::Suite);
    assert!(pasted(suite).contains("--suite aes-256-xts"), "{suite:?}");
    assert!(suite.text.contains("authentication"), "{}", suite.text);

    let advice = advise(&[instance([1.0, 1.5, 1.45, 1.25], [0.8, 0.9, 1.0])], &site());
    assert!(pasted(of(&advice, Topic::Suite)).contains("--suite aes-128-gcm"));
}

#[test]
fn suites_within_the_noise_are_not_decided() {
    let advice = advise(&[instance([1.0, 1.001, 1.002, 0.999], [1.0, 1.0, 1.0])], &site());
    let suite = of(&advice, Topic::Suite);
    assert_eq!(suite.basis, Basis::Undecided, "{suite:?}");
    assert!(pasted(suite).contains("--suite aes-256-gcm"));
    assert_eq!(of(&advice, Topic::SharedBuffers).basis, Basis::Undecided);
}

#[test]
fn shared_buffers_follow_from_where_the_cost_ends() {
    let advice = advise(&[instance([1.0, 1.2, 1.2, 1.2], [0.8, 0.9, 1.0])], &site());
    let buffers = of(&advice, Topic::SharedBuffers);
    assert_eq!(buffers.basis, Basis::Measured);
    // The cost ends at 256 MB over 160 MB of data: 8 GB of data want 12.8 GB, more than two fifths
    // of 16 GB of memory.
    assert!(buffers.text.contains("13 GB would be needed"), "{}", buffers.text);
    assert_eq!(pasted(buffers), "shared_buffers = '6554MB'");
    let small = Site { data_bytes: Some(1 << 30), ..site() };
    let advice = advise(&[instance([1.0, 1.2, 1.2, 1.2], [0.8, 0.9, 1.0])], &small);
    assert_eq!(pasted(of(&advice, Topic::SharedBuffers)), "shared_buffers = '1639MB'");
    // It never ends.
    let advice = advise(&[instance([1.0, 1.2, 1.2, 1.2], [0.8, 0.9, 0.95])], &site());
    let buffers = of(&advice, Topic::SharedBuffers);
    assert!(buffers.text.contains("costs something at every size"), "{}", buffers.text);
}

fn tls(chacha: f64, rsa: f64, hybrid: f64, noise: f64) -> Entry {
    let of = |suite: &str, certificate: &str, group: &str| {
        let tls = json!({"version": "TLSv1.3", "suite": suite, "certificate": certificate, "group": group});
        json!({ "tls": tls })
    };
    let (gcm, chacha20) = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256");
    let arms = vec![
        arm("plain", false, json!({})),
        arm("plain-again", true, json!({})),
        arm(gcm, false, of(gcm, "rsa-2048", "prime256v1")),
        arm(chacha20, false, of(chacha20, "rsa-2048", "prime256v1")),
        arm("ecdsa-p256", false, of(gcm, "ecdsa-p256", "prime256v1")),
        arm("rsa-3072", false, of(gcm, "rsa-3072", "prime256v1")),
        arm("X25519MLKEM768", false, of(gcm, "ecdsa-p256", "X25519MLKEM768")),
    ];
    let rows = [
        Row("row-persistent", "1/s", vec![("plain", 1000.0), (gcm, 950.0), (chacha20, 948.0)]),
        Row("value-1mb", "1/s", vec![("plain", 1000.0), (gcm, 700.0), (chacha20, 700.0 * chacha)]),
        Row(
            "row-connect",
            "1/s",
            vec![
                ("plain", 1000.0),
                ("ecdsa-p256", 400.0),
                (gcm, 400.0 * rsa),
                ("rsa-3072", 400.0 * rsa),
                ("X25519MLKEM768", 400.0 * hybrid),
            ],
        ),
    ];
    entry("tls", arms, &rows, noise, |_, _| BTreeMap::new())
}

#[test]
fn tls_settings_follow_from_what_is_slower() {
    let advice = advise(&[tls(0.6, 0.5, 0.9, 1.003)], &site());
    let ciphers = of(&advice, Topic::TlsCiphers);
    assert_eq!(ciphers.basis, Basis::Measured);
    assert!(
        pasted(ciphers).contains("ssl_tls13_ciphers = 'TLS_AES_256_GCM_SHA384:"),
        "{ciphers:?}"
    );
    let certificate = of(&advice, Topic::Certificate);
    assert_eq!(certificate.basis, Basis::Measured);
    assert!(pasted(certificate).contains("--key ecdsa-p256"));
    let groups = of(&advice, Topic::Groups);
    assert_eq!(groups.basis, Basis::Measured);
    assert!(pasted(groups).contains("ssl_groups = 'X25519MLKEM768:X25519:prime256v1'"));
    let words: String = groups.reasons.iter().map(|reason| reason.text.as_str()).collect();
    assert!(words.contains("X25519MLKEM768 against prime256v1: +11.1 % time"), "{words}");

    // A machine where it is the other way round.
    let advice = advise(&[tls(1.6, 1.4, 1.0, 1.003)], &site());
    let ciphers = pasted(of(&advice, Topic::TlsCiphers));
    assert!(ciphers.contains("ssl_tls13_ciphers = 'TLS_CHACHA20"), "{ciphers}");
    assert!(pasted(of(&advice, Topic::Certificate)).contains("--key rsa-2048"));
    assert_eq!(of(&advice, Topic::Groups).basis, Basis::Undecided);
}

#[test]
fn noise_of_the_a_a_pair_decides_nothing() {
    let advice = advise(&[tls(0.95, 0.96, 0.97, 1.09)], &site());
    for topic in [Topic::TlsCiphers, Topic::Certificate, Topic::Groups] {
        assert_eq!(of(&advice, topic).basis, Basis::Undecided, "{topic:?}");
    }
}

#[test]
fn there_is_no_advice_out_of_a_run_that_was_too_noisy() {
    // Differences that would decide, but the baseline differs from itself by 40 %.
    let advice = advise(&[tls(0.4, 0.4, 0.4, 1.4)], &site());
    for topic in [Topic::TlsCiphers, Topic::Certificate, Topic::Groups] {
        let found = of(&advice, topic);
        assert_eq!(found.basis, Basis::Unmeasurable, "{topic:?}");
        let first = &found.reasons[0].text;
        assert!(first.contains("tls decides nothing") && first.contains("--wait-quiet"), "{first}");
    }
    assert!(
        text_of(&advice).contains("TLS ciphers (cannot be told from these figures; the default)")
    );
    // The defaults are pasted all the same.
    assert!(advice.conf.iter().any(|line| line == "ssl = 'on'"), "{:?}", advice.conf);
}

#[test]
fn old_servers_get_no_settings_that_they_do_not_have() {
    let old = Site { postgres_major: Some(15), ..site() };
    let advice = advise(&[], &old);
    let all: String = advice.recommendations.iter().map(pasted).collect();
    assert!(all.contains("ssl_ecdh_curve = 'prime256v1'"), "{all}");
    assert!(!all.contains("ssl_groups") && !all.contains("ssl_tls13_ciphers"), "{all}");
    let none = Site { postgres_major: None, ..site() };
    let all: String = advise(&[], &none).recommendations.iter().map(pasted).collect();
    assert!(!all.contains("ssl_"), "{all}");
}

fn columns(pgseal: f64, lookup: f64) -> Entry {
    let arms = vec![
        arm("plain", false, json!({})),
        arm("plain-again", true, json!({})),
        arm("raw", false, json!({})),
        arm("pgseal", false, json!({})),
        arm("sealed-instance", false, json!({})),
    ];
    let all = |raw: f64, ours: f64, sealed: f64| {
        vec![("plain", 10.0), ("raw", raw), ("pgseal", ours), ("sealed-instance", sealed)]
    };
    let rows = [
        Row("copy", "s", all(50.0, 20.0, 10.5)),
        Row("size", "bytes", all(38.0, 14.0, 10.0)),
        Row("q1", "s", all(90.0, 10.0 * pgseal, 10.4)),
        Row("q5", "s", all(70.0, 10.0 * pgseal, 10.3)),
        Row("lookup-keys", "1/s", vec![("plain", 1000.0), ("pgseal", 1000.0 / lookup)]),
    ];
    entry("columns", arms, &rows, 1.002, |_, _| BTreeMap::new())
}

#[test]
fn the_cheapest_way_to_seal_columns_is_named_with_its_price() {
    let advice = advise(&[columns(1.8, 1.1)], &site());
    let found = of(&advice, Topic::Columns);
    assert_eq!(found.basis, Basis::Measured);
    assert!(found.text.contains("is pgseal: time of queries +80.0 %"), "{}", found.text);
    assert!(found.text.contains("bytes on disk +40.0 %"), "{}", found.text);
    let measured = "keys may be sealed: look-ups over sealed keys: lookup-keys +10.0 % time";
    assert!(found.text.contains(measured), "{}", found.text);
    let words: String = found.reasons.iter().map(|reason| reason.text.as_str()).collect();
    assert!(words.contains("sealed-instance: time of queries +3.5 %"), "{words}");
    let advice = advise(&[columns(9.0, 40.0)], &site());
    let found = of(&advice, Topic::Columns);
    assert!(found.text.contains("is raw"), "raw AES answers faster now: {}", found.text);
}

#[test]
fn without_any_results_everything_is_called_not_measured() {
    let advice = advise(&[], &site());
    assert_eq!(advice.recommendations.len(), 6);
    assert!(advice.recommendations.iter().all(|one| one.basis == Basis::NotMeasured));
    let text = text_of(&advice);
    assert!(text.contains("TLS ciphers (not measured; the default)"), "{text}");
    let end = text.split("Lines for postgresql.conf\n").nth(1).unwrap();
    let (conf, commands) = end.split_once("\nCommands\n").unwrap();
    assert!(conf.contains("shared_buffers = '4096MB'"), "{text}");
    assert_eq!(conf.lines().count(), 10, "{text}");
    assert_eq!(
        commands.lines().filter(|line| line.contains("pgseal tls init")).count(),
        1,
        "{text}"
    );
    assert!(commands.trim_end().ends_with("pgseal doctor DIR"), "{text}");
    let body = text.split("Lines for postgresql.conf").next().unwrap();
    assert!(!body.contains("ssl_ciphers ="), "each line stands once: {text}");
    assert!(text.lines().all(|line| line.len() <= 100 || line.contains(" = ")), "{text}");
}

#[test]
fn extrapolations_and_warnings_of_one_kind_are_folded() {
    let mut entry = columns(1.8, 1.1);
    for case in ["insert", "copy", "insert-keys"] {
        let (case, arm) = (case.to_owned(), "pgp".to_owned());
        entry.results.warnings.push(Warning::Extrapolated { case, arm, measured_share: 0.1 });
    }
    for case in ["q1", "q5"] {
        let case = case.to_owned();
        entry.results.warnings.push(Warning::TooShort { case, step_s: 0.1, least_s: 1.0 });
    }
    let cautions = advise(&[entry], &site()).cautions;
    let about = |word: &str| cautions.iter().filter(|one| one.contains(word)).collect::<Vec<_>>();
    assert_eq!(about("extrapolated").len(), 1, "{cautions:?}");
    assert!(about("extrapolated")[0].contains("3 figures are extrapolated"), "{cautions:?}");
    assert_eq!(about("Too short").len(), 1, "{cautions:?}");
    assert!(about("Too short")[0].ends_with("And 1 more of this kind."), "{cautions:?}");
}

#[test]
fn results_of_another_machine_and_noise_are_pointed_out() {
    let other = Site { cpu_model: "Another".to_owned(), ..site() };
    let advice = advise(&[tls(0.95, 0.96, 0.97, 1.4)], &other);
    assert!(advice.cautions.iter().any(|one| one.contains("measured on another CPU (A CPU")));
}
