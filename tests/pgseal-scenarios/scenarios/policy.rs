//! The key policy on a real cluster: an administrator sets rules, sees which are broken by
//! `pgseal key policy`, by `pgseal doctor` and by the metrics, mends them, and sees them met. And
//! `pgseal key check`, which tries the key of each recipient.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::thread;
use std::time::Duration;

use pgseal_scenarios::{Node, ends};

const PASSPHRASE: &str = "passphrase:command=echo correct horse battery staple";

/// A sealed cluster on a machine that remembers, with a place for its policy.
fn cluster() -> Node {
    let mut node = Node::sealed(&[]);
    let state = node.make_dir("state").display().to_string();
    let etc = node.make_dir("etc").display().to_string();
    node.set_env("PGSEAL_STATE_DIR", &state);
    node.set_env("PGSEAL_POLICY_FILE", &format!("{etc}/policy.conf"));
    node.set_env("PGSEAL_CLUSTERS_DIR", &format!("{etc}/clusters.d"));
    node
}

#[track_caller]
fn doctor(node: &Node, check: &str, state: &str, words: &str) {
    let found = node.pgseal_dir(&["doctor", "DIR"]);
    let is_it = |line: &&str| line.split_whitespace().nth(1) == Some(check);
    let line = found.text.lines().find(is_it).expect("a line for each check");
    assert!(line.starts_with(state) && line.contains(words), "{state} {words}: {line}");
}

/// Checks for each metric, with the labels behind `datadir`, whether it has this value.
#[track_caller]
fn metrics(node: &Node, wanted: &[(&str, &str, Option<&str>)]) {
    let found = node.pgseal_dir(&["status", "--prometheus", "DIR"]);
    assert_eq!(found.code, 0, "{}", found.text);
    for (name, labels, value) in wanted {
        let start = format!("{name}{{datadir=\"{}\"{labels}}} ", node.data().display());
        let line = found.text.lines().find_map(|line| line.strip_prefix(&start));
        assert_eq!(line, *value, "{name}{labels} in {}", found.text);
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
}

#[test]
fn a_policy_is_set_broken_and_met() {
    let mut node = cluster();
    let policy = |node: &Node| node.pgseal_dir(&["key", "policy", "DIR"]);
    let set = |node: &Node, rule: &str| {
        ends(&node.pgseal(&["key", "policy", "--set", rule]), 0, &["is written"]);
    };
    ends(&policy(&node), 3, &["no rule   escrow", "pgseal key policy --set"]);
    doctor(&node, "policy", "skip", "there is none");
    let refused = node.pgseal(&["key", "policy", "--set", "rotate=5"]);
    ends(&refused, 2, &["there are rotate-days"]);
    for rule in ["rotate-days=365", "renew-days=365", "min-recipients=1", "providers=file"] {
        set(&node, rule);
    }
    set(&node, "escrow=required");
    set(&node, "drill-days=30");

    let open =
        ["NOT MET   min-recipients = 1", "NOT SHOWN escrow = required", "met       rotate-days"];
    ends(&policy(&node), 1, &open);
    let json = node.pgseal_dir(&["key", "policy", "DIR", "--json"]);
    ends(&json, 1, &["\"met\": false", "\"authenticated\": true", "\"state\": \"unknown\""]);
    doctor(&node, "policy", "FAIL", "min-recipients: there is no recipient");
    let status = node.pgseal_dir(&["status", "--brief", "DIR"]);
    ends(&status, 0, &["Key policy      NOT MET: min-recipients, escrow, drill-days"]);
    metrics(
        &node,
        &[
            ("pgseal_policy_usable", "", Some("1")),
            ("pgseal_policy_met", ",rule=\"min-recipients\"", Some("0")),
            ("pgseal_policy_met", ",rule=\"rotate-days\"", Some("1")),
            ("pgseal_policy_days_left", ",rule=\"renew-days\"", Some("364")),
            ("pgseal_recipients", "", Some("0")),
            ("pgseal_escrow_copies", ",keys=\"all\"", Some("0")),
            // Nobody has rotated the key or practised, so there is no time.
            ("pgseal_key_age_seconds", "", None),
            ("pgseal_drill_age_seconds", "", None),
        ],
    );

    // The record of a copy in the data directory, which anybody could have written, meets nothing.
    let state = node.home().join("state").display().to_string();
    node.set_env("PGSEAL_STATE_DIR", "/nowhere/at/all");
    let lock = ["--lock", PASSPHRASE, "-o"];
    ends(&node.pgseal_dir(&[&["key", "backup", "DIR"], &lock[..], &["one.txt"]].concat()), 0, &[]);
    assert!(node.file("pgseal/escrow.json").exists());
    ends(&policy(&node), 1, &["NOT SHOWN escrow = required", "no /var/lib/pgseal"]);
    node.set_env("PGSEAL_STATE_DIR", &state);

    let next = node.new_key_file("next.key");
    ends(&node.pgseal_dir(&["key", "add-recipient", "next", "DIR", "-K", &next]), 0, &[]);
    ends(&node.pgseal_dir(&["key", "check", "DIR", "--escrow", "one.txt"]), 0, &[]);
    // Two copies of one second with the same lock are remembered as one.
    thread::sleep(Duration::from_millis(1100));
    ends(&node.pgseal_dir(&[&["key", "backup", "DIR"], &lock[..], &["two.txt"]].concat()), 0, &[]);
    let main = node.new_key_file("main.key");
    ends(&node.pgseal_dir(&["key", "rotate", "DIR", "-K", &main]), 0, &[]);
    ends(
        &policy(&node),
        0,
        &["met       escrow = required", "got another key", "1 recipient: next"],
    );
    doctor(&node, "policy", "ok", "6 rules met");
    let status = node.pgseal_dir(&["status", "DIR"]);
    ends(&status, 0, &["Key policy      6 rules met", "Recipient       next: file:"]);
    let json = node.pgseal_dir(&["status", "--json", "DIR"]);
    ends(&json, 0, &["\"recipients\": [", "\"key_policy\": {"]);
    metrics(
        &node,
        &[
            ("pgseal_policy_met", ",rule=\"min-recipients\"", Some("1")),
            ("pgseal_policy_met", ",rule=\"drill-days\"", Some("1")),
            ("pgseal_policy_days_left", ",rule=\"drill-days\"", Some("29")),
            ("pgseal_recipients", "", Some("1")),
            ("pgseal_escrow_copies", ",keys=\"all\"", Some("2")),
            ("pgseal_escrow_copies", ",keys=\"some\"", Some("0")),
        ],
    );
    let text = node.pgseal_dir(&["status", "--prometheus", "DIR"]).text;
    for name in ["key_age", "drill_age", "data_key_age", "keyring_age", "recipient_age"] {
        assert!(text.contains(&format!("\npgseal_{name}_seconds{{")), "{name}: {text}");
    }

    set(&node, "providers=vault, pkcs11");
    ends(&policy(&node), 1, &["the keyring: file, recipient next: file"]);
    set(&node, "providers=off");
    ends(&policy(&node), 0, &[]);

    // What the keyring says is judged only when its key has authenticated it.
    let keyring = node.file("pgseal/keyring");
    let whole = fs::read(&keyring).expect("the keyring");
    let changed = String::from_utf8_lossy(&whole).replace("\"next\"", "\"text\"");
    fs::write(&keyring, changed).expect("it can be written");
    ends(&policy(&node), 14, &["the keyring is damaged"]);
    let unread = node.pgseal_dir(&["key", "policy", "DIR", "--no-key"]);
    ends(&unread, 0, &["NOT AUTHENTICATED"]);
    doctor(&node, "policy", "WARN", "not sure");
    let other = Node::sealed(&[]);
    fs::copy(other.file("pgseal/keyring"), &keyring).expect("a copy");
    ends(&policy(&node), 15, &["the keyring of another cluster"]);
    fs::write(&keyring, whole).expect("it can be written");
    ends(&policy(&node), 0, &[]);
}

#[test]
fn a_policy_that_others_can_write_is_refused() {
    let node = cluster();
    let file = node.home().join("etc/policy.conf");
    ends(
        &node.pgseal_dir(&["key", "policy", "--set", "rotate-days=365", "DIR"]),
        0,
        &["rotate-days = 365"],
    );
    let refused = |words: &str| {
        ends(&node.pgseal_dir(&["key", "policy", "DIR"]), 12, &[words]);
        ends(&node.pgseal_dir(&["key", "policy", "--set", "rotate-days=9"]), 12, &[words]);
        doctor(&node, "policy", "FAIL", words);
        metrics(&node, &[("pgseal_policy_usable", "", Some("0"))]);
        ends(
            &node.pgseal_dir(&["status", "--brief", "DIR"]),
            0,
            &["Key policy      REFUSED", words],
        );
    };
    set_mode(&file, 0o666);
    refused("can write it");
    set_mode(&file, 0o644);
    ends(&node.pgseal_dir(&["key", "policy", "DIR"]), 0, &[]);
    let real = node.home().join("etc/real");
    fs::rename(&file, &real).expect("a move");
    symlink(&real, &file).expect("a link");
    refused("a link");
    // A policy in the data directory would be that of the attacker who can write there.
    let mut node = node;
    let inside = node.file("pgseal/policy.conf");
    fs::copy(&real, &inside).expect("a copy");
    node.set_env("PGSEAL_POLICY_FILE", &inside.display().to_string());
    let found = node.pgseal_dir(&["key", "policy", "DIR"]);
    ends(&found, 12, &[]);
}

#[test]
fn key_check_tries_every_key() {
    let node = cluster();
    let [main, next] = ["main.key", "next.key"].map(|name| node.new_key_file(name));
    let check = |words: &[&str]| node.pgseal_dir(&[&["key", "check", "DIR"], words].concat());
    ends(&node.pgseal_dir(&["key", "rotate", "DIR", "-K", &main, "--register"]), 0, &[]);
    let add = |name: &str, uri: &str, more: &[&str]| {
        let words = [&["key", "add-recipient", name, "DIR", "-K", uri], more].concat();
        ends(&node.pgseal_dir(&words), 0, &[]);
    };
    add("next", &next, &["--register"]);
    add("glass", PASSPHRASE, &["--register"]);
    let offline = node.new_key_file("offline.key");
    add("offline", &offline, &[]);
    let all = check(&["--every-recipient"]);
    ends(
        &all,
        0,
        &["its own, file:", "recipient next, file:", "glass, passphrase:command=echo ...: opens"],
    );
    ends(&all, 0, &["offline.key: not asked: a start does not ask its source"]);
    ends(&check(&["-K", &offline]), 0, &["offline.key: opens", "main.key: not asked"]);
    doctor(&node, "recipients", "ok", "not asked: recipient offline");

    let file = |uri: &str| uri.strip_prefix("file:").expect("a key file").to_owned();
    let away = format!("{}.away", file(&next));
    fs::rename(file(&next), &away).expect("the key file moves");
    ends(&check(&[]), 0, &["next.key: NO KEY", "Opens: the headers of"]);
    ends(&check(&["--every-recipient"]), 10, &["next.key: NO KEY"]);
    doctor(&node, "recipients", "WARN", "not opened by recipient next");
    ends(&check(&["--json"]), 0, &["\"state\": \"no-key\"", "\"state\": \"not-asked\""]);
    let _ = node.new_key_file("next.key");
    ends(&check(&[]), 0, &["next.key: WRONG KEY"]);
    ends(&check(&["--every-recipient"]), 11, &["next.key: WRONG KEY"]);
    // The keyring's own key is away: a recipient's opens the files, and the check says so.
    fs::rename(&away, file(&next)).expect("the key file is back");
    fs::rename(file(&main), &away).expect("the key file moves");
    ends(&check(&[]), 0, &["main.key: NO KEY", "next.key: opens"]);
    ends(&check(&["--every-recipient"]), 10, &[]);
}
