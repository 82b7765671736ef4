//! An experiment that measures nothing and shows every kind of exhibit.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use pgseal_lab::answer::{Answer, Question, Subject};
use pgseal_lab::cost::change;
use pgseal_lab::executor::Silent;
use pgseal_lab::exhibits::{
    Axis, Cell, Chart, ChartKind, Column, Finding, Point, Series, Table, Tone,
};
use pgseal_lab::mock::{self, Mock};
use pgseal_lab::report::format::{quantity, significant};
use pgseal_lab::runner::Run;
use pgseal_lab::{
    Analysis, Arm, Better, Case, Context, Environment, Executor, Exhibits, Experiment, LabError,
    Plan, Profile, Results, Warning,
};

const PROFILE: &str = "rounds = 7\nseed = 11\n[parameters]\nsizes = [16, 256, 1024, 8192]\n";

/// Throughput of three made-up ciphers by block size.
pub struct Demo;

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    sizes: Vec<u32>,
}

impl Experiment for Demo {
    fn name(&self) -> &'static str {
        "demo"
    }

    fn title(&self) -> &'static str {
        "Demonstration: three ciphers by the size of a block"
    }

    fn study(&self) -> &'static str {
        "a study that was never made (Nobody, 2026)"
    }

    fn profiles(&self) -> &'static [(&'static str, &'static str)] {
        &[("tiny", PROFILE)]
    }

    fn needs_postgres(&self) -> bool {
        false
    }

    fn plan(&self, profile: &Profile, _: &Environment) -> Result<Plan, LabError> {
        let parameters: Parameters = profile.parameters()?;
        let arm = |id: &str, title: &str, again| Arm {
            id: id.to_owned(),
            title: title.to_owned(),
            again,
            attributes: BTreeMap::new(),
        };
        let case = |size: &u32| Case {
            id: format!("encrypt-{size}"),
            title: format!("Encrypt, {}", quantity(f64::from(*size), "bytes")),
            unit: "bytes/s".to_owned(),
            better: Better::Higher,
            arms: Vec::new(),
            baseline: None,
            parameters: [("bytes".to_owned(), (*size).into())].into(),
            rounds: None,
            estimate_s: 0.01,
        };
        Ok(Plan {
            experiment: "demo".to_owned(),
            profile: profile.name.clone(),
            arms: vec![
                arm("ctr", "AES-256-CTR", false),
                arm("ctr-again", "AES-256-CTR again", true),
                arm("gcm", "AES-256-GCM", false),
                arm("slow", "AES-256-CTR <without instructions>", false),
                arm("gone", "RC4", false),
            ],
            cases: parameters.sizes.iter().map(case).collect(),
            rounds: profile.rounds,
            warmups: profile.warmups,
            seed: profile.seed,
            parameters: profile.parameters.clone(),
        })
    }

    fn executor(&self, _: &Plan, _: &Context) -> Result<Box<dyn Executor>, LabError> {
        Ok(Box::new(ciphers()))
    }

    fn exhibits(&self, results: &Results, analysis: &Analysis) -> Result<Exhibits, LabError> {
        let top = results.plan.cases.last().map_or("", |case| case.id.as_str());
        let of = |arm: &str| analysis.median(top, arm).unwrap_or(f64::NAN);
        let finding = Finding::with_study(
            format!(
                "At the largest block AES-256-GCM takes {} times as long as AES-256-CTR.",
                significant(of("ctr") / of("gcm"))
            ),
            "CTR 3.10 GB/s at 8 KiB, on a machine of 2018.",
        );
        let hostile = Finding::new("Text & <b>markup</b> \"quoted\" stays text.");
        Ok(Exhibits {
            findings: vec![finding, hostile],
            tables: vec![table(results, analysis)],
            charts: vec![lines(results, analysis), ratios(results, analysis), bars(analysis, top)],
            answer: answer(results, analysis),
        })
    }
}

fn answer(results: &Results, analysis: &Analysis) -> Option<Answer> {
    let cases = results.plan.cases.iter();
    Question {
        subject: Subject::Cipher,
        experiment: &Demo,
        results,
        analysis,
        base: "AES-256-CTR",
        arm: (results.plan.arm("gcm")?, "AES-256-GCM"),
        cases: cases.map(|case| (case.id.as_str(), case.title.as_str(), Some(1.2))).collect(),
        study: "CTR 3.10 GB/s".to_owned(),
    }
    .answer()
}

fn bytes_of(case: &Case) -> f64 {
    case.parameter("bytes").unwrap().unwrap_or(0.0)
}

fn lines(results: &Results, analysis: &Analysis) -> Chart {
    let series = |arm: &str, title: &str| Series {
        name: title.to_owned(),
        points: results
            .plan
            .cases
            .iter()
            .filter_map(|case| {
                let found = analysis.arm(&case.id, arm).filter(|found| found.n > 0)?;
                let point = Point::at(bytes_of(case), found.median);
                Some(point.between(found.interval.0, found.interval.1))
            })
            .collect(),
        ..Series::default()
    };
    let study = Series {
        name: "AES-256-CTR".to_owned(),
        origin: pgseal_lab::exhibits::Origin::Study,
        points: [(16.0, 0.7e9), (256.0, 2.1e9), (1024.0, 2.9e9), (8192.0, 3.1e9)]
            .map(|(x, y)| Point::at(x, y))
            .to_vec(),
        ..Series::default()
    };
    Chart {
        id: "speed".to_owned(),
        title: "Speed by the size of a block".to_owned(),
        kind: ChartKind::Lines,
        x: Axis { title: "Block".to_owned(), unit: "bytes".to_owned(), log: true },
        y: Axis { title: "Throughput".to_owned(), unit: "bytes/s".to_owned(), log: false },
        series: vec![
            series("ctr", "AES-256-CTR"),
            series("gcm", "AES-256-GCM"),
            series("slow", "AES-256-CTR <without instructions>"),
            study,
        ],
        note: Some("Error bars are 95 % intervals of the median.".to_owned()),
    }
}

fn ratios(results: &Results, analysis: &Analysis) -> Chart {
    let point = |case: &Case| {
        let ratio = analysis.arm(&case.id, "gcm")?.ratio?;
        Some(Point::label(case.title.clone(), ratio.value).between(ratio.low, ratio.high))
    };
    Chart {
        id: "ratio".to_owned(),
        title: "GCM against CTR".to_owned(),
        kind: ChartKind::Lines,
        x: Axis { title: "Case".to_owned(), ..Axis::default() },
        y: Axis { title: "Ratio".to_owned(), unit: "ratio".to_owned(), log: false },
        series: vec![Series {
            name: "AES-256-GCM".to_owned(),
            points: results.plan.cases.iter().filter_map(point).collect(),
            ..Series::default()
        }],
        note: None,
    }
}

fn bars(analysis: &Analysis, case: &str) -> Chart {
    let point = |arm: &str, label: &str| {
        let found = analysis.arm(case, arm).filter(|found| found.n > 0)?;
        let point = Point::label(label, found.median);
        Some(point.between(found.interval.0, found.interval.1))
    };
    let labels = [
        ("ctr", "AES-256-CTR"),
        ("gcm", "AES-256-GCM"),
        ("slow", "AES-256-CTR without the CPU's AES instructions"),
    ];
    Chart {
        id: "bars".to_owned(),
        title: "The largest block".to_owned(),
        kind: ChartKind::Bars,
        x: Axis::default(),
        y: Axis { title: "Throughput".to_owned(), unit: "bytes/s".to_owned(), log: false },
        series: vec![
            Series {
                name: "measured".to_owned(),
                points: labels.iter().filter_map(|(arm, label)| point(arm, label)).collect(),
                ..Series::default()
            },
            Series {
                name: "the study's".to_owned(),
                origin: pgseal_lab::exhibits::Origin::Study,
                points: vec![Point::label("AES-256-CTR", 3.1e9)],
                ..Series::default()
            },
        ],
        note: None,
    }
}

fn table(results: &Results, analysis: &Analysis) -> Table {
    let row = |case: &Case| {
        let of = |arm: &str| match analysis.median(&case.id, arm) {
            Some(value) => Cell::number(value, quantity(value, "bytes/s")),
            None => Cell::missing("the mock has no value"),
        };
        let ratio = analysis.arm(&case.id, "gcm").and_then(|arm| arm.ratio);
        let change = ratio.map_or(Cell::default(), |ratio| {
            let tone = if ratio.value < 1.0 { Tone::Bad } else { Tone::Good };
            Cell::number(ratio.value, change(1.0 / ratio.value))
                .hint(format!("{:.3} to {:.3}", ratio.low, ratio.high))
                .tone(tone)
        });
        vec![
            Cell::number(bytes_of(case), case.title.clone()),
            of("ctr"),
            of("gcm"),
            change,
            of("gone"),
            Cell::number(3.1e9, "3.10 GB/s"),
        ]
    };
    Table {
        id: "speed".to_owned(),
        title: "Speed".to_owned(),
        columns: vec![
            Column::text("Case"),
            Column::number("CTR", ""),
            Column::number("GCM", ""),
            Column::number("GCM against CTR", ""),
            Column::number("RC4", ""),
            Column::study("CTR", ""),
        ],
        rows: results.plan.cases.iter().map(row).collect(),
        note: Some("Medians.".to_owned()),
    }
}

/// Known speeds, noise of 1 %.
pub fn ciphers() -> Mock {
    let mut mock =
        Mock::new([("ctr", 3.4e9), ("ctr-again", 3.4e9), ("gcm", 2.9e9), ("slow", 0.35e9)]);
    mock.noise = 0.01;
    mock
}

/// A machine that never was.
pub fn machine() -> Environment {
    Environment {
        cpu_model: "Recorded CPU @ 3.00GHz".to_owned(),
        cpu_flags: ["aes", "avx2", "hypervisor", "vaes"].map(str::to_owned).to_vec(),
        cpus: 2,
        virtual_cpu: Some("CPU flag hypervisor".to_owned()),
        governor: None,
        frequency_mhz: Some(2999.5),
        memory_bytes: 8 << 30,
        kernel: "Linux 6.1.0 x86_64".to_owned(),
        distribution: "Debian GNU/Linux 12 (bookworm)".to_owned(),
        file_system: "ext4 rw,relatime".to_owned(),
        postgresql: vec!["postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)".to_owned()],
        openssl: Some("OpenSSL 3.0.20 7 Apr 2026".to_owned()),
        pgseal: "0.1.0".to_owned(),
        load_before: 0.21,
        others_before: Some(0.02),
        time_unix_s: 1_795_239_000,
    }
}

/// The demonstration's plan.
pub fn demo_plan() -> Plan {
    let profile = Profile::load(&Demo, "tiny").unwrap();
    Demo.plan(&profile, &machine()).unwrap()
}

/// Walks a plan with an executor; nothing but samples is written.
pub fn walk(
    plan: &Plan,
    output: &Path,
    resume: bool,
    executor: &mut dyn Executor,
) -> Result<Results, LabError> {
    Run {
        plan,
        environment: &machine(),
        command: "pgseal lab demo --profile tiny",
        output,
        resume,
        progress: &Silent,
        limit: None,
        interrupted: &AtomicBool::new(false),
        after_case: &mut |_, _| Ok(()),
    }
    .walk(executor)
}

/// Without what depends on the machine and the moment.
pub fn normal(mut results: Results) -> Results {
    for sample in results.samples.iter_mut().chain(&mut results.warmups) {
        sample.load = 0.25;
        sample.step_s = 0.5;
    }
    results
}

/// Recorded results of the demonstration, in `tests/data`.
pub fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

/// A small plan and a fresh directory.
pub fn small() -> (Plan, tempfile::TempDir) {
    (mock::plan(3), tempfile::tempdir().unwrap())
}

/// The kinds of warnings.
pub fn kinds(warnings: &[Warning]) -> Vec<&'static str> {
    warnings.iter().map(Warning::kind).collect()
}
