//! What the audit trail has of decisions that use no key of a command's own: where a key comes
//! from, the rules of the policy, new file keys that a running server makes. And whether doctor,
//! status and the metrics say that the trail works, and what its last verification found.

use std::fs;
use std::path::{Path, PathBuf};

use pgseal_scenarios::resealing::{create_functions, reseal, start, wait_for_worker};
use pgseal_scenarios::{Node, Outcome};

/// A sealed cluster whose audit trail is a file, on a machine that remembers.
fn cluster() -> (Node, PathBuf) {
    let mut node = Node::sealed(&[]);
    let file = node.make_dir("trail").join("audit.log");
    let state = node.make_dir("state").display().to_string();
    let etc = node.make_dir("etc").display().to_string();
    node.set_env("PGSEAL_AUDIT", &format!("file:{}", file.display()));
    node.set_env("PGSEAL_STATE_DIR", &state);
    node.set_env("PGSEAL_POLICY_FILE", &format!("{etc}/policy.conf"));
    node.set_env("PGSEAL_CLUSTERS_DIR", &format!("{etc}/clusters.d"));
    (node, file)
}

/// `pgseal COMMAND DIR`, where the words hold `DIR`.
fn pgseal(node: &Node, words: &[&str]) -> Outcome {
    let dir = node.data().display().to_string();
    let words: Vec<&str> =
        words.iter().map(|word| if *word == "DIR" { dir.as_str() } else { word }).collect();
    node.pgseal(&words)
}

#[track_caller]
fn ends(outcome: &Outcome, code: i32) {
    assert_eq!(outcome.code, code, "{}", outcome.text);
}

fn lines(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Asserts that a line behind the first `seen` ones has all of these words.
#[track_caller]
fn has(file: &Path, seen: usize, words: &[&str]) {
    let new = lines(file).split_off(seen);
    let found = new.iter().any(|line| words.iter().all(|word| line.contains(word)));
    assert!(found, "{words:?} in\n{}", new.join("\n"));
}

const DONE: &str = "\"outcome\":\"done\"";
const BEGUN: &str = "\"outcome\":\"begun\"";
const FAILED: &str = "\"outcome\":\"failed\"";
const RESEAL: &str = "\"event\":\"reseal\"";

#[test]
fn decisions_and_new_file_keys_are_lines() {
    let (mut node, file) = cluster();
    let key = format!("file:{}", node.home().join("key").display());
    ends(&pgseal(&node, &["env", "-D", "DIR", "--register", "-K", &key]), 0);
    has(
        &file,
        0,
        &["\"event\":\"register\"", DONE, "clusters.d", &key, "\"cluster\":\"", "\"mac\""],
    );
    assert_eq!(lines(&file).len(), 1);
    ends(&pgseal(&node, &["env", "-D", "DIR"]), 0);
    assert_eq!(lines(&file).len(), 1, "without --register no key is asked for");

    let set = ["key", "policy", "--set", "rotate-days=365", "--set", "min-recipients=0"];
    ends(&pgseal(&node, &set), 2);
    has(&file, 1, &["\"event\":\"policy-set\"", FAILED, "min-recipients=0", "policy.conf"]);
    ends(&pgseal(&node, &set[..4]), 0);
    has(&file, 2, &["\"event\":\"policy-set\"", DONE, "\"detail\":\"rotate-days=365\""]);
    // What only looks keeps its name.
    ends(&pgseal(&node, &["key", "policy", "DIR"]), 0);
    has(&file, 3, &["\"event\":\"unlock\"", "\"command\":\"key policy\""]);

    // A superuser gives a table new file keys.
    node.start();
    node.sql(
        "create table t as select g as id, repeat('x', 200) as v from generate_series(1, 20000) g",
    );
    create_functions(&node);
    node.sql("create role keeper superuser;; checkpoint");
    let seen = lines(&file).len();
    node.sql("set role keeper;; select reseal('t', 0, false)");
    wait_for_worker(&node);
    let id = pgseal(&node, &["key", "show", "--json", "DIR"]).text;
    let id = id.split("\"keyring_id\": \"").nth(1).and_then(|rest| rest.get(..32)).expect("it");
    let cluster = format!("\"cluster\":\"{id}\"");
    let what = "relation t of database postgres, for role keeper";
    let dir = format!("\"path\":\"{}\"", node.data().display());
    let common = [RESEAL, &cluster, what, &dir, "\"generation\":1", "\"program\":\"postgres\""];
    has(&file, seen, &[&common[..], &[BEGUN]].concat());
    has(&file, seen, &[&common[..], &[DONE, " pages\""]].concat());
    assert_eq!(lines(&file).len(), seen + 2);

    // One that is stopped, and one whose file is damaged.
    let seen = lines(&file).len();
    start(&node, "'t', 50, false");
    node.wait_until("select count(*) > 0 from progress");
    let worker = "from pg_stat_activity where backend_type = 'pgseal reseal'";
    node.sql(&format!("select pg_terminate_backend(pid) {worker}"));
    wait_for_worker(&node);
    has(&file, seen, &[RESEAL, FAILED, "interrupted"]);
    reseal(&node, "null, 0, true");
    has(&file, seen + 2, &[RESEAL, DONE, "all relations of database postgres"]);
    let checked = pgseal(&node, &["audit", "verify", &file.display().to_string(), "-D", "DIR"]);
    ends(&checked, 0);
    node.stop();

    // A trail that is required and takes nothing: no file gets a new key, and the server runs on.
    node.set_env("PGSEAL_AUDIT_REQUIRED", "yes");
    node.start();
    let keys = node.sql("select string_agg(file_key::text, ' ') from file_keys('t')");
    let (trail, away) = (node.home().join("trail"), node.home().join("away"));
    fs::rename(&trail, &away).expect("the directory goes");
    reseal(&node, "'t', 0, false");
    let log = node.log();
    assert!(log.contains("the audit trail is required and did not take the line"), "{log}");
    assert_eq!(node.sql("select string_agg(file_key::text, ' ') from file_keys('t')"), keys);
    let refused = pgseal(&node, &["key", "policy", "--set", "rotate-days=9"]);
    ends(&refused, 23);
    let policy = fs::read_to_string(node.home().join("etc/policy.conf")).expect("the policy");
    assert!(policy.contains("rotate-days = 365") || policy.contains("rotate-days=365"), "{policy}");
    fs::rename(&away, &trail).expect("the directory is back");
    reseal(&node, "'t', 0, false");
    assert_ne!(node.sql("select string_agg(file_key::text, ' ') from file_keys('t')"), keys);
    node.stop();
}

/// The line of a check of `pgseal doctor`.
#[track_caller]
fn doctor(node: &Node, state: &str, words: &str) {
    let found = pgseal(node, &["doctor", "DIR"]).text;
    let is_it = |line: &&str| line.split_whitespace().nth(1) == Some("audit-trail");
    let line = found.lines().find(is_it).expect("a line for each check");
    assert!(line.starts_with(state) && line.contains(words), "{state} {words}: {line}");
}

/// The value of a metric with a destination, or without one.
fn metric(node: &Node, name: &str) -> Option<String> {
    let found = pgseal(node, &["status", "--prometheus", "DIR"]);
    ends(&found, 0);
    let start = format!("{name}{{");
    let line = found.text.lines().find(|line| line.starts_with(&start))?;
    line.rsplit(' ').next().map(str::to_owned)
}

#[test]
fn doctor_and_metrics_know_the_state_of_the_trail() {
    let (mut node, file) = cluster();
    let value = |node: &Node, name: &str| metric(node, &format!("pgseal_audit_{name}"));
    let is = |node: &Node, name: &str, wanted: &str| {
        assert_eq!(value(node, name).as_deref(), Some(wanted), "{name}");
    };
    // Looking makes no file.
    is(&node, "up", "1");
    assert_eq!(value(&node, "last_line_age_seconds"), None);
    assert!(!file.exists());
    node.start();
    is(&node, "usable", "1");
    is(&node, "required", "0");
    is(&node, "up", "1");
    let age: u64 =
        value(&node, "last_line_age_seconds").and_then(|age| age.parse().ok()).expect("it");
    assert!(age < 3600, "{age}");
    assert_eq!(value(&node, "sound"), None);
    doctor(&node, "ok", "not verified on this machine");

    // A verification is remembered; one without the keys of the cluster counts for nothing.
    let path = file.display().to_string();
    ends(&pgseal(&node, &["audit", "verify", &path]), 0);
    assert_eq!(value(&node, "sound"), None);
    ends(&pgseal(&node, &["audit", "verify", &path, "-D", "DIR"]), 0);
    is(&node, "sound", "1");
    assert!(value(&node, "verified_age_seconds").is_some());
    doctor(&node, "ok", ", verified 20");
    let status = pgseal(&node, &["status", "DIR"]).text;
    assert!(status.contains("Audit trail     file:"), "{status}");
    assert!(status.contains(": sound"), "{status}");

    // A line is changed: found by the next verification, and then said everywhere.
    let whole = fs::read_to_string(&file).expect("the trail");
    fs::write(&file, whole.replacen("\"user\":\"", "\"user\":\"x", 1)).expect("a change");
    ends(&pgseal(&node, &["audit", "verify", &path, "-D", "DIR"]), 1);
    is(&node, "sound", "0");
    doctor(&node, "FAIL", "found lines that are wrong");
    fs::write(&file, whole).expect("as it was");
    ends(&pgseal(&node, &["audit", "verify", &path, "-D", "DIR"]), 0);
    is(&node, "sound", "1");

    // It takes no line any more: a warning, and a failure where it is required.
    let (trail, away) = (node.home().join("trail"), node.home().join("away"));
    fs::rename(&trail, &away).expect("the directory goes");
    is(&node, "up", "0");
    doctor(&node, "WARN", "No such file");
    node.set_env("PGSEAL_AUDIT_REQUIRED", "yes");
    is(&node, "required", "1");
    fs::rename(&away, &trail).expect("the directory is back");
    is(&node, "up", "1");
    // The server was started with other variables.
    doctor(&node, "WARN", "PGSEAL_AUDIT_REQUIRED has another value in the server's environment");
    node.stop();
    doctor(&node, "ok", "it is required");

    // The configuration is wrong.
    let conf = node.home().join("etc/audit.conf");
    fs::write(&conf, "to = nowhere\n").expect("the file");
    node.set_env("PGSEAL_AUDIT_CONF", &conf.display().to_string());
    is(&node, "usable", "0");
    assert_eq!(value(&node, "up"), None);
    fs::write(&conf, "to = off\n").expect("the file");
    is(&node, "usable", "1");
    assert_eq!(value(&node, "up"), None);
    doctor(&node, "skip", "no use of a key is recorded");
}
