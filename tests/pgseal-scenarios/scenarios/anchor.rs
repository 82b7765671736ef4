//! The anchor (`spec/anchor.md`): a data directory that is not the newest copy is refused, whatever
//! it pretends, and one command accepts a copy on purpose.

use std::fs;
use std::path::{Path, PathBuf};

use pgseal_scenarios::backup::base_backup;
use pgseal_scenarios::files::{copy_tree, restore_tree};
use pgseal_scenarios::{Node, Outcome};

const OLDER_RUN: &str = "a server has run since this copy was made";
const OTHER_SHUTDOWN: &str = "not as the last shutdown left it";
const NOT_STOPPED: &str = "was shut down cleanly, and this copy says that it was not";
const BACKUP: &str = "it is a restored base backup";

/// A sealed cluster with an anchor, not running.
fn anchored() -> (Node, PathBuf) {
    let mut node = Node::sealed(&[]);
    let anchors = node.make_dir("anchors");
    node.set_env("PGSEAL_ANCHOR", &format!("file:{}", anchors.display()));
    let log = node.try_start().expect_err("there is no anchor yet");
    assert!(log.contains("it has none for this keyring yet"), "{log}");
    done(&anchor(&node, "accept"));
    (node, anchors)
}

fn anchor(node: &Node, task: &str) -> Outcome {
    node.pgseal(&["anchor", task, &node.data().display().to_string()])
}

#[track_caller]
fn done(outcome: &Outcome) {
    assert_eq!(outcome.code, 0, "{}", outcome.text);
}

/// The data directory as it is, beside it.
fn copied(node: &Node, name: &str) -> PathBuf {
    let copy = node.home().join(name);
    copy_tree(node.data(), &copy);
    copy
}

/// Puts a copy in the place of the data directory, which the server refuses for this reason.
#[track_caller]
fn refused(node: &mut Node, copy: &Path, why: &str) {
    restore_tree(copy, node.data());
    let status = anchor(node, "status");
    assert!(status.code == 1 && status.text.contains(why), "{}", status.text);
    let log = node.try_start().expect_err("an older copy");
    assert!(log.contains(why) && log.contains("pgseal anchor accept"), "{log}");
    // The refusal itself changes nothing that a later start would be misled by.
    let log = node.try_start().expect_err("an older copy");
    assert!(log.contains(why), "{log}");
}

#[test]
fn an_older_copy_of_the_whole_directory_is_refused() {
    let (mut node, _) = anchored();
    node.start();
    node.sql("create table t as select 1 as run");
    node.stop();
    let first_stop = copied(&node, "first-stop");
    node.start();
    node.sql("insert into t values (2)");
    node.kill9();
    let crash = copied(&node, "crash");
    node.start();
    assert_eq!(node.sql("select count(*) from t"), "2");
    node.sql("insert into t values (3)");
    node.stop();
    let last_stop = copied(&node, "last-stop");
    done(&anchor(&node, "status"));

    // After a shutdown only its own state will do; a crash cannot be pretended.
    refused(&mut node, &first_stop, OTHER_SHUTDOWN);
    refused(&mut node, &crash, NOT_STOPPED);
    restore_tree(&last_stop, node.data());
    node.start();
    assert_eq!(node.sql("select count(*) from t"), "3");

    // While a server runs, or after its crash, only its own run will do.
    node.sql("insert into t values (4)");
    node.kill9();
    let last_crash = copied(&node, "last-crash");
    refused(&mut node, &first_stop, OLDER_RUN);
    refused(&mut node, &crash, OLDER_RUN);
    refused(&mut node, &last_stop, OLDER_RUN);
    restore_tree(&last_crash, node.data());
    done(&anchor(&node, "status"));
    node.start();
    assert_eq!(node.sql("select count(*) from t"), "4");
    node.stop();
}

#[test]
fn a_copy_is_accepted_by_one_command_and_the_newer_one_is_refused_from_then_on() {
    let (mut node, _) = anchored();
    node.start();
    node.sql("create table t as select 1 as run");
    let backup = base_backup(&node, "backup", &["-X", "stream"]);
    node.stop();
    let older = copied(&node, "older");
    node.start();
    node.sql("insert into t values (2)");
    node.stop();
    let newer = copied(&node, "newer");

    refused(&mut node, &older, OTHER_SHUTDOWN);
    done(&anchor(&node, "accept"));
    node.start();
    assert_eq!(node.sql("select count(*) from t"), "1");
    node.kill9();
    let going_on = copied(&node, "going-on");
    refused(&mut node, &newer, OLDER_RUN);
    restore_tree(&going_on, node.data());
    node.start();
    node.stop();

    // A base backup is an older copy, too, also one of this run of the server.
    refused(&mut node, &backup, BACKUP);
    done(&anchor(&node, "accept"));
    node.start();
    assert_eq!(node.sql("select count(*) from t"), "1");
    let backup = base_backup(&node, "backup-of-this-run", &["-X", "stream"]);
    node.kill9();
    refused(&mut node, &backup, BACKUP);
}

#[test]
fn a_store_that_is_away_stops_a_start_and_not_a_shutdown() {
    let (mut node, anchors) = anchored();
    node.start();
    node.sql("create table t as select 1 as run");
    node.stop();
    let older = copied(&node, "older");
    let away = node.home().join("unmounted");
    fs::rename(&anchors, &away).expect("renamed");
    let log = node.try_start().expect_err("the volume is not mounted");
    assert!(log.contains("anchors: cannot open the directory of the anchors"), "{log}");
    // An empty mount point is not a store without an anchor that the server begins by itself.
    let empty = node.make_dir("anchors");
    let log = node.try_start().expect_err("the volume is not mounted");
    assert!(log.contains("it has none for this keyring yet"), "{log}");
    fs::remove_dir(&empty).expect("removed");
    fs::rename(&away, &anchors).expect("renamed");

    node.start();
    node.sql("insert into t values (2)");
    fs::rename(&anchors, &away).expect("renamed");
    node.stop();
    assert!(node.log().contains("the anchor was not told of this shutdown"), "{}", node.log());
    fs::rename(&away, &anchors).expect("renamed");
    let newest = copied(&node, "newest");
    refused(&mut node, &older, OLDER_RUN);
    restore_tree(&newest, node.data());
    node.start();
    assert_eq!(node.sql("select count(*) from t"), "2");

    // Away while a start tells it, after the directory was found to be right.
    node.kill9();
    let anchor_file = fs::read_dir(&anchors).expect("a directory").next().expect("a file");
    let anchor_file = anchor_file.expect("a file").path();
    let in_the_way =
        anchors.join(format!("{}.new", anchor_file.file_name().expect("a name").to_string_lossy()));
    fs::create_dir(&in_the_way).expect("a directory");
    let log = node.try_start().expect_err("the anchor cannot be written");
    assert!(log.contains("cannot write the anchor"), "{log}");
    fs::remove_dir(&in_the_way).expect("removed");
    done(&anchor(&node, "status"));
    node.start();
    assert_eq!(node.sql("select count(*) from t"), "2");
    node.stop();
}

/// The command of `docs/anchor.md`.
#[test]
fn a_command_keeps_the_anchor() {
    let mut node = Node::sealed(&[]);
    let dir = node.make_dir("far-away");
    let script = dir.join("anchor");
    fs::write(&script, page_script(&dir)).expect("a file");
    node.set_env("PGSEAL_ANCHOR", &format!("command:sh {}", script.display()));
    done(&anchor(&node, "accept"));
    node.start();
    node.sql("create table t as select 1 as run");
    node.stop();
    let older = copied(&node, "older");
    node.start();
    node.stop();
    let newest = copied(&node, "newest");
    refused(&mut node, &older, OTHER_SHUTDOWN);
    restore_tree(&newest, node.data());
    node.start();
    node.stop();
    // Without the variable the server takes any copy: the environment asks for the anchor.
    node.unset_env("PGSEAL_ANCHOR");
    restore_tree(&older, node.data());
    node.start();
    node.stop();
}

/// The script of `docs/anchor.md`, for this directory.
fn page_script(dir: &Path) -> String {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/anchor.md");
    let page = fs::read_to_string(page).expect("the page is there");
    let script = page.split("```sh\n#!/bin/sh").nth(1).and_then(|rest| rest.split("```").next());
    script.expect("the page has the script").replace("/srv/anchors", &dir.display().to_string())
}

#[test]
fn what_is_no_anchor_is_refused_and_a_command_line_says_why() {
    let (mut node, anchors) = anchored();
    let data = node.data().display().to_string();
    let inside = format!("file:{data}/pgseal");
    let outcome = node.pgseal(&["anchor", "status", &data, "--anchor", &inside]);
    assert!(outcome.code == 2 && outcome.text.contains("copied back with it"), "{}", outcome.text);
    node.set_env("PGSEAL_ANCHOR", &inside);
    let log = node.try_start().expect_err("an anchor that is copied back with the directory");
    assert!(log.contains("copied back with it"), "{log}");
    for bad in ["env:HOME", "file:anchors", "nonsense"] {
        let outcome = node.pgseal(&["anchor", "status", &data, "--anchor", bad]);
        assert_eq!(outcome.code, 2, "{bad}: {}", outcome.text);
    }
    node.unset_env("PGSEAL_ANCHOR");
    let outcome = anchor(&node, "status");
    assert!(outcome.code == 2 && outcome.text.contains("which anchor?"), "{}", outcome.text);

    // Two servers on two copies of one directory: the anchor knows one of them.
    node.set_env("PGSEAL_ANCHOR", &format!("file:{}", anchors.display()));
    let twin = node.home().join("twin");
    copy_tree(node.data(), &twin);
    let mut twin = Node::at(&node, &twin);
    twin.set_env("PGSEAL_ANCHOR", &format!("file:{}", anchors.display()));
    node.start();
    let log = twin.try_start().expect_err("a copy of the directory of a running server");
    assert!(log.contains(OLDER_RUN), "{log}");
    node.stop();
    let json = node.pgseal(&["anchor", "status", &data, "--json"]);
    assert!(json.text.contains("\"state\": \"stopped\""), "{}", json.text);
}
