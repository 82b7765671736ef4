//! docs/keys.md as an administrator follows it in an emergency: the test reads the commands of the
//! page, types them into a shell, and answers the prompts for passphrases on a terminal. Paths of
//! the page (`/etc/pgseal`, `/mnt/offline`, `/backup`, `DIR`) are those of the test.

use std::fs;

use pgseal_scenarios::backup::shell;
use pgseal_scenarios::files::copy_tree;
use pgseal_scenarios::pages::blocks;
use pgseal_scenarios::{Node, Outcome, assert_hidden, is_root, succeeds};
use pgseal_testkit::Terminal;

const PAGE: &str = include_str!("../../../docs/keys.md");
const PASSPHRASE: &str = "six random words would be here";
const MARKER: &str = "canary-runbook-Hw8d";

/// The only block between two headings.
fn block(from: &str, to: &str) -> String {
    <[String; 1]>::try_from(blocks(PAGE, from, to))
        .map(|[only]| only)
        .expect("one block of commands")
}

/// A cluster under the key `/etc/pgseal/main.key` of the page, with a table.
fn cluster() -> Node {
    let mut node = Node::sealed(&[]);
    for dir in ["etc", "offline", "backups"] {
        let _made = node.make_dir(dir);
    }
    succeeds(&script(&node, "pgseal key new -o /etc/pgseal/main.key"));
    succeeds(&script(&node, "pgseal key rotate DIR -K file:/etc/pgseal/main.key"));
    fs::remove_file(node.home().join("key")).expect("the first key goes");
    node.start();
    node.sql(&format!(
        "create table t (id int primary key, v text);;
         insert into t select g, '{MARKER}' || g from generate_series(1, 1000) g;; checkpoint"
    ));
    node.stop();
    node
}

/// The page's text with the paths of the test, and where its programs are.
fn adapted(node: &Node, text: &str) -> String {
    let home = node.home().display().to_string();
    let text = text
        // The server's user owns all of the test's directories.
        .replace("sudo chown postgres: ", "test -f ")
        .replace("sudo ", "")
        .replace("/etc/pgseal", &format!("{home}/etc"))
        .replace("/mnt/offline", &format!("{home}/offline"))
        .replace("/backup/", &format!("{home}/backups/"))
        .replace(" DIR", &format!(" {}", node.data().display()));
    let program = node.pgseal_program();
    let bin = program.parent().expect("a directory").display().to_string();
    format!("export PATH={bin}:{}:/usr/bin:/bin\n{text}", node.bindir().display())
}

/// Runs commands. A server that they start keeps no pipe of the test open.
fn script(node: &Node, text: &str) -> Outcome {
    let out = node.home().join("out");
    let text = format!("{{\n{}\n}} >{} 2>&1", adapted(node, text), out.display());
    let mut outcome: Outcome = shell(node, &text, &[]).output().expect("bash runs").into();
    outcome.text = fs::read_to_string(&out).unwrap_or_default() + &outcome.text;
    outcome
}

/// Runs commands on a terminal, and types the passphrase so many times.
fn typed(node: &Node, text: &str, prompts: &[&str]) -> Outcome {
    let text = adapted(node, text);
    let bash = ["/bin/bash", "-euo", "pipefail", "-c", &text];
    let as_server_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", "--"];
    let argv = match is_root() {
        true => [&as_server_user[..], &bash[..]].concat(),
        false => bash.to_vec(),
    };
    let mut terminal = Terminal::start(&argv, |command| {
        command.current_dir(node.home());
    });
    for prompt in prompts {
        terminal.answer_hidden(prompt, PASSPHRASE);
    }
    let (status, text) = terminal.end();
    assert!(!text.contains(PASSPHRASE), "the terminal shows the passphrase: {text}");
    Outcome { code: status.code().unwrap_or(-1), text }
}

/// The server does not start, and `pgseal key check` says the same.
#[track_caller]
fn refuses(node: &mut Node, code: i32, words: &str) {
    let log = node.try_start().expect_err("a start without its keys");
    assert!(log.contains(words), "{log}");
    let check = script(node, "pgseal key check DIR");
    assert_eq!(check.code, code, "{}", check.text);
    assert!(check.text.contains(words), "{}", check.text);
}

#[track_caller]
fn works(node: &mut Node) {
    node.start();
    assert_eq!(node.sql(&format!("select count(*) from t where v like '{MARKER}%'")), "1000");
    node.stop();
    assert_hidden(&[node.data()], MARKER);
}

/// The first lines of "What to keep where": an escrow copy under a passphrase, and shares.
fn escrow_copies(node: &Node) {
    let all = block("## What to keep where", "## Where a server finds its key");
    let lines: Vec<&str> = all.lines().collect();
    let [passphrase, shares, key] = <[&str; 3]>::try_from(lines).expect("three commands");
    succeeds(&typed(node, passphrase, &["New passphrase for pgseal:", "again:"]));
    succeeds(&script(node, shares));
    succeeds(&script(node, "pgseal key new -o /mnt/offline/escrow.key"));
    succeeds(&script(node, key));
}

#[test]
fn the_key_is_lost() {
    let mut node = cluster();
    escrow_copies(&node);
    succeeds(&script(&node, &blocks(PAGE, "## Before you need it", "## The drill")[0]));
    fs::remove_file(node.home().join("etc/main.key")).expect("the key");
    refuses(&mut node, 10, "no key");
    let restored = typed(
        &node,
        &block("### The key is lost", "### The keyring is lost"),
        &["Passphrase for pgseal:"],
    );
    succeeds(&restored);
    assert!(node.file("pgseal/keyring.replaced.1").exists(), "{}", restored.text);
    works(&mut node);
}

#[test]
fn the_keyring_is_lost() {
    let mut node = cluster();
    escrow_copies(&node);
    fs::remove_file(node.file("pgseal/keyring")).expect("the keyring");
    refuses(&mut node, 16, "there is no keyring");
    succeeds(&script(&node, &block("### The keyring is lost", "### The key store is down")));
    works(&mut node);
}

#[test]
fn the_key_store_is_down() {
    let mut node = cluster();
    let (key, offline) = (node.home().join("etc/main.key"), node.home().join("offline/main.key"));
    fs::rename(&key, &offline).expect("only the offline copy is left");
    refuses(&mut node, 10, "no key");
    let commands = block("### The key store is down", "### Another machine");
    let started = script(&node, &commands);
    succeeds(&started);
    let count = node.sql("select count(*) from t");
    succeeds(&script(&node, "pgseal run -- pg_ctl -D DIR stop"));
    assert_eq!(count, "1000");
    fs::rename(&offline, &key).expect("the store is back");
    works(&mut node);
}

#[test]
fn another_machine() {
    let mut node = cluster();
    escrow_copies(&node);
    // As the other machine has it: the backup, the escrow copy, and nothing else.
    copy_tree(node.data(), &node.home().join("backups/base"));
    fs::remove_file(node.home().join("etc/main.key")).expect("the key");
    fs::remove_dir_all(node.data()).expect("the data directory");
    let commands = block("### Another machine", "## Destroying the data");
    let restored = typed(&node, &commands, &["Passphrase for pgseal:"]);
    succeeds(&restored);
    assert!(restored.text.contains("Opens: the headers of"), "{}", restored.text);
    works(&mut node);
}
