//! The lab's tables of docs/costs.md are those of the runs below `tools/pgseal-lab/results`, which
//! are whole. `PGSEAL_BLESS=1 cargo test -p pgseal-lab --test costs` writes the tables.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};

use pgseal_lab::{Analysis, Results, report};

const BEGIN: &str =
    "<!-- lab: begin (written by a test of pgseal-lab from tools/pgseal-lab/results) -->";
const END: &str = "<!-- lab: end -->";

/// Label, experiment, case, arms in the order of the columns of their section.
struct Section {
    experiment: &'static str,
    columns: &'static [(&'static str, &'static str)],
    rows: &'static [(&'static str, &'static str)],
}

const SECTIONS: [Section; 3] = [
    Section {
        experiment: "instance",
        columns: &[
            ("sealed, GCM-256", "aes-256-gcm"),
            ("sealed, XTS-256", "aes-256-xts"),
            ("gocryptfs", "gocryptfs"),
        ],
        rows: &[
            ("`pgbench -S`, 8 MB of buffers, throughput", "select-8mb"),
            ("`pgbench -S`, all data in 256 MB of buffers, throughput", "select-256mb"),
            ("TPC-B, throughput", "tpcb"),
            ("new connections, throughput", "churn"),
            ("scan from the OS cache, time", "scan-warm"),
            ("index build, time", "index"),
            ("VACUUM FULL, time", "vacuum-full"),
        ],
    },
    Section {
        experiment: "tls",
        columns: &[
            ("TLS 1.3, AES-256-GCM", "TLS_AES_256_GCM_SHA384"),
            ("TLS 1.3, ChaCha20", "TLS_CHACHA20_POLY1305_SHA256"),
        ],
        rows: &[
            ("the study's query, connections kept, throughput", "row-persistent"),
            ("the study's query, a connection each, throughput", "row-connect"),
            ("100 rows, throughput", "rows-100"),
            ("1 MB in one value, throughput", "value-1mb"),
        ],
    },
    Section {
        experiment: "columns",
        columns: &[
            ("sealed columns, all", "sealed-det"),
            ("the sensitive ones", "sealed-some"),
            ("pgcrypto, raw AES", "raw"),
        ],
        rows: &[
            ("load with INSERTs, time", "insert"),
            ("load with COPY, time", "copy"),
            ("load with COPY and keys, time", "copy-keys"),
            ("size on disk", "size"),
            ("query 1, time", "q1"),
            ("query 3, time", "q3"),
            ("query 5, time", "q5"),
            ("lookup by primary key, throughput", "lookup-keys"),
        ],
    },
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn results(experiment: &str) -> Results {
    report::read_results(&root().join("tools/pgseal-lab/results").join(experiment)).unwrap()
}

fn cell(analysis: &Analysis, case: &str, arm: &str) -> String {
    let ratio = analysis.arm(case, arm).and_then(|arm| arm.ratio);
    ratio.map_or("-".to_owned(), |ratio| match ratio.value {
        value if value < 0.001 => format!("{value:.5}"),
        value if value < 0.1 => format!("{value:.3}"),
        value => format!("{value:.2}"),
    })
}

fn table() -> String {
    let mut text = String::new();
    for section in &SECTIONS {
        let results = results(section.experiment);
        let analysis = Analysis::of(&results);
        let titles: Vec<&str> = section.columns.iter().map(|(title, _)| *title).collect();
        let rule = "|---".repeat(titles.len() + 2);
        text += &format!(
            "\n| `lab {}` | {} | A/A |\n{rule}|\n",
            section.experiment,
            titles.join(" | ")
        );
        let again = results.plan.again().unwrap().id.clone();
        for (label, case) in section.rows {
            assert!(analysis.case(case).is_some(), "{}: no case {case}", section.experiment);
            let arms = section.columns.iter().map(|(_, arm)| *arm).chain([again.as_str()]);
            let cells: Vec<String> = arms.map(|arm| cell(&analysis, case, arm)).collect();
            assert!(cells.iter().any(|cell| cell != "-"), "{case}: nothing was measured");
            text += &format!("| {label} | {} |\n", cells.join(" | "));
        }
    }
    text
}

#[test]
fn the_tables_of_the_costs_are_of_the_committed_runs() {
    let path = root().join("docs/costs.md");
    let page = fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let wanted = format!("{before}{BEGIN}\n{}\n{END}{after}", table());
    if std::env::var_os("PGSEAL_BLESS").is_some() {
        fs::write(&path, &wanted).unwrap();
    }
    let now = fs::read_to_string(&path).unwrap();
    assert!(
        now == wanted,
        "the tables of docs/costs.md are not those of tools/pgseal-lab/results; see the top of this file"
    );
}

#[test]
fn the_committed_runs_are_whole_and_of_the_full_profile() {
    for experiment in ["modes", "tls", "instance", "columns"] {
        let results = results(experiment);
        assert!(results.finished, "{experiment}");
        assert_eq!(results.plan.profile, "full", "{experiment}");
        for file in ["report.html", "results.json"] {
            assert!(
                root().join("tools/pgseal-lab/results").join(experiment).join(file).exists(),
                "{experiment}/{file}"
            );
        }
    }
}
