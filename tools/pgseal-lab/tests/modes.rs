//! Findings, tables and charts of `modes` from samples whose ratios are known.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use pgseal_lab::exhibits::{Exhibits, Origin, fault_of_sentence};
use pgseal_lab::experiments::Experiment;
use pgseal_lab::experiments::modes::Modes;
use pgseal_lab::experiments::modes::algorithm::{Algorithm, Direction, Mode};
use pgseal_lab::experiments::modes::plan::figure;
use pgseal_lab::results::{Missing, SCHEMA};
use pgseal_lab::{Analysis, Environment, Profile, Results, Sample};

/// A little off the median, in the same way for all arms of a round.
const ROUNDS: [f64; 5] = [0.999, 1.0, 1.001, 0.9995, 1.0005];

const ALGORITHMS: &str = "algorithms=[\"aes-128-cbc\", \"aes-128-ctr\", \"aes-192-ctr\", \"aes-256-ctr\", \
     \"aes-256-xts\", \"aes-256-gcm\"]";

/// Bytes per second that the sample of an arm shall have.
type Rate = fn(Algorithm, &str, Direction, usize) -> f64;

/// 1 GB/s; ten times less without AES instructions; VAES doubles XTS; 256 bits take a quarter more
/// time; CBC is decrypted four times as fast; a message costs 100 ns, with set-up 900 ns.
fn planted(algorithm: Algorithm, arm: &str, direction: Direction, bytes: usize) -> f64 {
    let mut rate = 1e9;
    if arm.ends_with("-noaes") {
        rate /= 10.0;
    }
    if algorithm.mode == Mode::Xts && !arm.ends_with("-noaes") && !arm.ends_with("-novaes") {
        rate *= 2.0;
    }
    if algorithm.key_bits == 256 {
        rate /= 1.25;
    }
    if algorithm.mode == Mode::Cbc && direction == Direction::Decrypt {
        rate *= 4.0;
    }
    let start_s = if arm.starts_with("openssl-setup") { 900e-9 } else { 100e-9 };
    bytes as f64 / (start_s + bytes as f64 / rate)
}

fn exhibits(rate: Rate, noise: f64) -> Exhibits {
    let machine = Environment::default();
    let mut profile = Profile::load(&Modes, "quick").unwrap();
    profile.set("keys=[\"rsa-2048\", \"ecdsa-256\"]").unwrap();
    profile.set(ALGORITHMS).unwrap();
    let plan = Modes.plan(&profile, &machine).unwrap();
    let sizes: Vec<usize> = plan.required("sizes").unwrap();
    let mut samples = Vec::new();
    for case in &plan.cases {
        for arm in plan.arms_of(case).filter(|_| case.id != "speed.md2") {
            for (round, factor) in ROUNDS.iter().enumerate() {
                let factor = if arm.again { factor * noise } else { *factor };
                let mut extra = BTreeMap::from([("core_hz".to_owned(), 2e9)]);
                let mut value = if case.id == "sign.ecdsa-256" { 20e3 } else { 1e3 } * factor;
                if let Ok(algorithm) = case.id.parse::<Algorithm>() {
                    for direction in Direction::ALL {
                        for bytes in &sizes {
                            let rate = rate(algorithm, &arm.id, direction, *bytes) * factor;
                            extra.insert(figure(direction, *bytes), rate);
                        }
                    }
                    value = extra[&figure(Direction::Encrypt, 8192)];
                }
                let fact = |name: &str, value: &str| (name.to_owned(), value.to_owned());
                let provider = if case.id == "speed.rc4" { "legacy" } else { "default" };
                samples.push(Sample {
                    case: case.id.clone(),
                    arm: arm.id.clone(),
                    round: round as u32,
                    place: 0,
                    value,
                    extra,
                    facts: [fact("cycles_from", "dependent-chain"), fact("provider", provider)]
                        .into(),
                    load: 0.0,
                    step_s: 0.1,
                });
            }
        }
    }
    let missing = Missing {
        case: "speed.md2".to_owned(),
        arm: Some("openssl".to_owned()),
        what: "md2".to_owned(),
        why: "gone".to_owned(),
        remedy: "none".to_owned(),
    };
    let results = Results {
        schema: SCHEMA.to_owned(),
        experiment: "modes".to_owned(),
        plan_hash: plan.plan_hash().unwrap(),
        plan,
        environment: machine,
        started_unix_s: 1,
        finished: true,
        samples,
        warmups: Vec::new(),
        missing: vec![missing],
        warnings: Vec::new(),
        ends: Vec::new(),
        command: String::new(),
    };
    Modes.exhibits(&results, &Analysis { cases: Vec::new(), warnings: Vec::new() }).unwrap()
}

fn says<'a>(exhibits: &'a Exhibits, begin: &str) -> &'a str {
    let found = exhibits.findings.iter().find(|finding| finding.text.starts_with(begin));
    found.map(|finding| finding.text.as_str()).unwrap_or_default()
}

#[test]
fn findings_have_the_planted_ratios() {
    let shown = exhibits(planted, 1.001);
    let texts: Vec<&str> = shown.findings.iter().map(|finding| finding.text.as_str()).collect();
    let has = |text: &str| assert!(texts.contains(&text), "{text} in {texts:#?}");
    let no =
        |part: &str| assert!(!texts.iter().any(|text| text.contains(part)), "{part}: {texts:#?}");
    has("The CPU's AES instructions make AES-256-XTS 19.6 times as fast (OpenSSL, the most).");
    has("The CPU's AES instructions make AES-128-CBC 9.89 times as fast (OpenSSL, the least).");
    has("VAES (wide AES instructions) makes AES-256-XTS 1.98 times as fast (OpenSSL).");
    no("makes AES-256-GCM");
    has("AES-256-CTR takes 24.7 % more time than AES-128-CTR (OpenSSL).");
    has("AES-256-GCM against AES-256-CTR no difference.");
    assert!(texts.iter().any(|text| text.starts_with("AES-128-CBC decrypts 3.8")), "{texts:#?}");
    no("AES-256-CTR decrypts");
    has(
        "Set-up for each call, as in pgcrypto, adds 800 ns to a short message with AES-256-CTR (OpenSSL).",
    );
    has("This OpenSSL still has 23 algorithms of the second study's table and its day.");
    has("Only through its legacy provider: rc4.");
    has("It does not have md2.");
    has("One core signs 20.0 k/s with ECDSA P-256, 20.0 times as often as with RSA-2048.");
    for text in texts {
        assert_eq!(fault_of_sentence(text), None, "{text}");
    }
    let answer = shown.answer.unwrap();
    // A page takes 10 us at the planted speed.
    assert_eq!(answer.verdict, "No AES instructions: very slow");
    assert!(answer.range.ends_with(" us a page"), "{}", answer.range);
}

#[test]
fn what_lies_within_the_noise_is_not_called_a_difference() {
    let shown = exhibits(planted, 1.5);
    let keys = "AES-256-CTR against AES-128-CTR (OpenSSL): not distinguishable (noise 50 %).";
    assert_eq!(says(&shown, "AES-256-CTR against AES-128-CTR (OpenSSL)"), keys);
    let back: String = shown.findings.iter().map(|finding| finding.text.as_str()).collect();
    assert!(back.contains("CBC decrypts") && !back.contains("XTS decrypts"), "{back}");
}

#[test]
fn the_studies_figures_are_never_mixed_with_measured_ones() {
    let shown = exhibits(planted, 1.0);
    let table = |id: &str| shown.tables.iter().find(|table| table.id == id).unwrap();
    for id in
        ["page", "sizes-openssl", "sizes-setup", "sizes-speed", "sizes-aws-lc", "openssl-speed"]
    {
        let table = table(id);
        assert!(table.rows.iter().all(|row| row.len() == table.columns.len()), "{id}");
    }
    let page = table("page");
    let studied: Vec<usize> =
        (0..page.columns.len()).filter(|at| page.columns[*at].origin == Origin::Study).collect();
    let row = page.rows.iter().find(|row| row[0].text == "AES-128-CTR").unwrap();
    let theirs: Vec<f64> = studied.iter().filter_map(|at| row[*at].value).collect();
    assert_eq!(theirs, [6303976.11 * 1000.0, 656258.39 * 1000.0]);
    let chart = shown.charts.iter().find(|chart| chart.id == "modes-aes").unwrap();
    for series in &chart.series {
        assert_eq!(series.name.contains("(study)"), series.origin == Origin::Study);
    }
    assert!(shown.charts.len() >= 6, "{}", shown.charts.len());
}
