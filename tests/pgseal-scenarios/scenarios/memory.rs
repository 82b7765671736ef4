//! Backends that run out of memory: their client gets an error, and other sessions are not
//! affected. A plain server does the same work under the same limits.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;
use std::fs;

use pgseal_scenarios::{Node, limit_address_space};

/// How much memory each backend may allocate after it is ready for its first query, in KiB.
const HEADROOMS_KIB: [u64; 5] = [0, 64, 256, 1024, 4096];

/// Queries that open files, read at random and in sequence, write, spill and fill WAL segments of 1
/// MB. The last one needs more memory than the limit allows.
const QUERIES: [&str; 12] = [
    "select sum((select length(txt) from t where id = g * 7919 % 20000)) from generate_series(1, 2000) g",
    "select sum(length(txt)) from t",
    "insert into w select g, repeat('w', 500) from generate_series(1, 800) g",
    "update w set txt = repeat('v', 400) where id % 10 = 3",
    "set work_mem = '64kB'",
    "select count(*) from (select txt from t order by txt desc offset 10) s",
    "create table n as select * from t where id < 3000",
    "create index on n (txt)",
    "truncate n",
    "drop table if exists n",
    "vacuum w",
    "select length(string_agg(txt, '')) from t",
];

fn node(sealed: bool) -> Node {
    let settings = [
        ("shared_buffers", "1MB"),
        ("max_parallel_workers_per_gather", "0"),
        ("max_parallel_maintenance_workers", "0"),
        ("restart_after_crash", "on"),
    ];
    let mut node = if sealed { Node::sealed(&settings) } else { Node::plain(&settings) };
    node.start();
    node.sql(
        "create extension amcheck;; create table t (id int primary key, txt text);; \
         create table w (id int, txt text);; \
         insert into t select g, md5(g::text) || repeat('t', 400) from generate_series(0, 19999) g;; \
         checkpoint",
    );
    node
}

/// The size of the address space of a process, in bytes.
fn address_space(pid: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Runs the queries in limited backends. Returns the errors, and how often each occurred.
fn run(node: &mut Node, name: &str) -> BTreeMap<String, u32> {
    let mut errors = BTreeMap::new();
    for headroom_kib in HEADROOMS_KIB {
        for first in 0..QUERIES.len() {
            let mut session = node.session();
            session.sql("\\set VERBOSITY verbose\nselect 1");
            let pid = session.sql("select pg_backend_pid()");
            limit_address_space(&pid, address_space(&pid) + headroom_kib * 1024);
            // Each query is once the first query of a backend.
            for query in QUERIES.iter().cycle().skip(first).take(QUERIES.len()) {
                let Some(said) = session.run(query) else {
                    panic!("{name}: {headroom_kib} KiB: {query}\n{}", node.log());
                };
                for line in said.lines().filter(|line| line.starts_with("ERROR:")) {
                    // Remove the name of the file and the number of the block.
                    let mut quoted = line.split('"');
                    let text = [quoted.next(), quoted.nth(1)].map(Option::unwrap_or_default);
                    *errors.entry(text.join("...")).or_insert(0) += 1;
                }
            }
        }
    }
    errors
}

/// Checks that no process crashed.
fn assert_no_crash(node: &Node, name: &str) {
    let log = node.log();
    for word in ["terminated by signal", "PANIC", "memory allocation of", "all server processes"] {
        assert_eq!(log.matches(word).count(), 0, "{name}: {word}\n{log}");
    }
}

#[test]
fn a_backend_without_memory_fails_alone() {
    for (name, sealed) in [("plain", false), ("sealed", true)] {
        let mut node = node(sealed);
        let started = node.sql("select pg_postmaster_start_time()");
        let errors = run(&mut node, name);
        println!("{name}: {errors:#?}");
        assert_no_crash(&node, name);
        assert!(node.is_running());
        assert_eq!(node.sql("select pg_postmaster_start_time()"), started);
        let out_of_memory = |text: &str| {
            text.starts_with("ERROR:  53200") || text.contains("Cannot allocate memory")
        };
        assert!(errors.keys().any(|text| text.starts_with("ERROR:  53200")), "{name}: {errors:#?}");
        for text in errors.keys().filter(|text| !out_of_memory(text)) {
            // A statement that failed may make the next one fail: a table is missing, or exists.
            assert!(text.starts_with("ERROR:  42P0"), "{name}: {text}");
        }
        let sum = "select count(*), sum(length(txt)), sum(id) from t";
        assert_eq!(node.sql(sum), "20000|8640000|199990000", "{name}");
        node.amcheck();
        node.stop();
        if sealed {
            node.assert_authentic();
        }
    }
}
