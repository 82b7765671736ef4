//! Conversions that were interrupted before or after their first file: what the next command
//! undoes, what it leaves alone, and what `pgseal doctor` says meanwhile.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use pgseal_scenarios::files::{changes, fingerprint, own_as_parent};
use pgseal_scenarios::{Node, Outcome, with_file_limit};
use pgseal_testkit::{Cluster, bindir};

/// A stopped plain cluster with a table, and a key for it.
fn plain() -> (Node, String) {
    let mut node = Node::create(Cluster::builder(), &[]);
    node.bring_programs();
    let key = format!("file:{}", node.new_key("key").display());
    node.start_bare();
    node.sql("create table t as select g, 'row ' || g as v from generate_series(1, 20000) g");
    node.stop();
    (node, key)
}

fn arguments(node: &Node, command: &str, options: &[&str]) -> Vec<String> {
    let bindir = bindir().expect("PostgreSQL is there").display().to_string();
    let dir = node.data().display().to_string();
    let mut all: Vec<String> = [command, "--bindir", &bindir].map(str::to_owned).to_vec();
    all.extend(options.iter().map(|option| (*option).to_owned()));
    all.push(dir);
    all
}

fn convert(node: &Node, command: &str, options: &[&str]) -> Outcome {
    let arguments = arguments(node, command, options);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    node.pgseal(&arguments)
}

#[track_caller]
fn converts(node: &Node, command: &str, options: &[&str]) {
    let outcome = convert(node, command, options);
    assert_eq!(outcome.code, 0, "{command}: {}", outcome.text);
}

/// Makes a conversion fail after it has written its journal and before it converts the first file:
/// it cannot move the control file, because a directory has its new name.
#[track_caller]
fn stopped_before_the_first_file(node: &Node, command: &str, options: &[&str]) {
    let own = node.file("pgseal");
    let is_new = !own.exists();
    let in_the_way = node.file("pgseal/pg_control");
    fs::create_dir_all(&in_the_way).expect("a directory");
    for dir in [&own, &in_the_way].into_iter().skip(usize::from(!is_new)) {
        own_as_parent(dir);
    }
    if is_new {
        fs::set_permissions(&own, fs::Permissions::from_mode(0o700)).expect("chmod");
    }
    let outcome = convert(node, command, options);
    fs::remove_dir(&in_the_way).expect("it is empty");
    assert_eq!(outcome.code, 40, "{}", outcome.text);
    let journal = fs::read_to_string(node.file("pgseal/conversion")).expect("the journal");
    assert!(journal.contains("\"phase\": \"prepare\""), "{journal}");
}

fn diagnosis(node: &Node) -> String {
    let found = node.pgseal(&["doctor", &node.data().display().to_string()]);
    assert_eq!(found.code, 2, "{}", found.text);
    found.text
}

#[track_caller]
fn doctor_says(text: &str, check: &str, state: &str, words: &str) {
    let is_it = |line: &&str| line.split_whitespace().nth(1) == Some(check);
    let line = text.lines().find(is_it).expect("a line for each check");
    assert!(line.starts_with(state) && line.contains(words), "{state} {words}: {text}");
}

#[test]
fn a_rekey_that_is_taken_back_leaves_the_keyring_as_it_was() {
    let (mut node, key) = plain();
    converts(&node, "encrypt", &["-K", &key]);
    let before = fingerprint(node.data());
    stopped_before_the_first_file(&node, "rekey", &["--suite", "aes-256-xts"]);
    let dir = node.data().display().to_string();
    let other = format!("file:{}", node.new_key("other").display());
    let outcome = node.pgseal(&["key", "rotate", &dir, "-K", &other]);
    assert_eq!(outcome.code, 22, "{}", outcome.text);
    doctor_says(&diagnosis(&node), "conversion", "FAIL", "pgseal rekey");

    // Any conversion first undoes the unfinished one. This one then fails because of a wrong key.
    let outcome = convert(&node, "rekey", &["-K", &other]);
    assert_eq!(outcome.code, 11, "{}", outcome.text);
    assert_eq!(changes(&before, &fingerprint(node.data())), Vec::<String>::new());
    converts(&node, "rekey", &[]);
    let shown = node.pgseal(&["key", "show", "--json", &dir]).text;
    assert!(shown.contains("\"active_generation\": 2"), "{shown}");
    assert!(shown.contains("\"suite\": \"aes-256-gcm\""), "{shown}");
    assert!(!node.file("pgseal/keyring.before").exists());
    assert_eq!(node.verify().code, 0);
    node.start();
    assert_eq!(node.sql("select count(*), max(v) filter (where g = 9) from t"), "20000|row 9");
    node.stop();
}

#[test]
fn an_encrypt_that_is_taken_back_leaves_the_keyring_of_somebody_else() {
    let (node, key) = plain();
    let before = fingerprint(node.data());
    stopped_before_the_first_file(&node, "encrypt", &["-K", &key]);
    doctor_says(&diagnosis(&node), "conversion", "FAIL", "pgseal encrypt");
    // Undoing removes only what the conversion itself made.
    let outcome = convert(&node, "rekey", &[]);
    assert_eq!(outcome.code, 4, "{}", outcome.text);
    assert_eq!(changes(&before, &fingerprint(node.data())), Vec::<String>::new());

    stopped_before_the_first_file(&node, "encrypt", &["-K", &key]);
    let (theirs, path) = (node.home().join("theirs"), node.file("pgseal/keyring"));
    let made = node.make_dir("elsewhere").display().to_string();
    let new = ["helper", "new-keyring", "--dir", &made, "--provider", &key];
    assert_eq!(node.pgseal(&new).code, 0);
    fs::rename(node.home().join("elsewhere/pgseal/keyring"), &theirs).expect("a keyring");
    fs::rename(&theirs, &path).expect("another keyring in its place");
    let keyring = fs::read(&path).expect("it is there");
    let outcome = convert(&node, "encrypt", &["-K", &key]);
    assert_eq!(outcome.code, 5, "{}", outcome.text);
    assert_eq!(fs::read(&path).expect("it was removed"), keyring);
    fs::remove_dir_all(node.file("pgseal")).expect("it is there");
    converts(&node, "encrypt", &["-K", &key]);
    assert_eq!(node.verify().code, 0);
}

#[test]
fn doctor_on_a_half_converted_directory_names_the_command_that_goes_on() {
    let (node, key) = plain();
    let arguments = arguments(&node, "encrypt", &["--skip-check", "-K", &key]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut limited = with_file_limit(&node.pgseal_command(&arguments), 700);
    let outcome = Outcome::from(limited.output().expect("it runs"));
    assert_eq!(outcome.code, 40, "{}", outcome.text);

    let dir = node.data().display();
    let text = diagnosis(&node);
    doctor_says(&text, "conversion", "FAIL", &format!("go on with: pgseal encrypt {dir}"));
    // Checks that would fail for a complete cluster are skipped for a half-converted one.
    doctor_says(&text, "plain-files", "skip", "unfinished");
    doctor_says(&text, "guard", "skip", "unfinished");
    doctor_says(&text, "key", "ok", "open");
    converts(&node, "encrypt", &[]);
    let found = node.pgseal(&["doctor", &node.data().display().to_string()]);
    doctor_says(&found.text, "conversion", "ok", "none");
    doctor_says(&found.text, "plain-files", "ok", "none plain");
    doctor_says(&found.text, "guard", "ok", "pgseal_guard");
}
