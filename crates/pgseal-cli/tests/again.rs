//! What a second run of a command does: nothing where the wanted state is there and can be shown to
//! be the same; otherwise it refuses, and says what to do.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs;

use common::{Answer, Fixture, snapshot};
use pgseal_keys::{Provider, keyring_path, update};
use serde_json::json;

fn key(fixture: &Fixture, name: &str) -> String {
    fixture.ok(&["key", "new", "-o", name]);
    format!("file:{}", fixture.path(name).display())
}

/// A command that must succeed and change no file.
#[track_caller]
fn changes_nothing(fixture: &Fixture, args: &[&str]) -> Answer {
    let before = snapshot(&fixture.data());
    let answer = fixture.run(args);
    assert_eq!(answer.code, 0, "{answer:?}");
    assert_eq!(snapshot(&fixture.data()), before, "{args:?}");
    answer
}

#[test]
fn what_cannot_be_shown_to_be_the_same_is_refused() {
    let fixture = Fixture::sealed();
    key(&fixture, "lock");
    fixture.run(&["key", "new", "-o", "lock"]).fails_with(5, "use it (-K file:PATH)");
    let backup = ["key", "backup", "data", "--lock", "file:lock", "-o", "escrow.txt"];
    fixture.ok(&backup);
    let copy = fs::read(fixture.path("escrow.txt")).unwrap();
    fixture.run(&backup).fails_with(5, "pgseal key check DIR --escrow FILE");
    assert_eq!(fs::read(fixture.path("escrow.txt")).unwrap(), copy);
    let before = snapshot(&fixture.data());
    let initdb = ["initdb", "-k", "-K", "file:lock", "data"];
    fixture.run(&initdb).fails_with(5, "a sealed data directory already, which was left alone");
    // A name that is not there may be a mistake in writing, and the key would go on opening it.
    let remove = ["key", "remove-recipient", "nobody", "data"];
    fixture.run(&remove).fails_with(2, "no such recipient");
    assert_eq!(snapshot(&fixture.data()), before);
}

#[test]
fn a_second_restore_of_the_same_copy_changes_nothing() {
    let fixture = Fixture::sealed();
    key(&fixture, "lock");
    let next = key(&fixture, "next");
    fixture.ok(&["key", "backup", "data", "--lock", "file:lock", "-o", "escrow.txt"]);
    fixture.ok(&["key", "backup", "data", "--shares", "2-of-3", "-o", "share"]);
    fs::remove_file(fixture.file("pgseal/keyring")).unwrap();
    let from = |copies: &[&'static str]| -> Vec<&str> {
        let all = [&["key", "restore", "data"][..], copies, &["-K", &next]].concat();
        // Both borrow longer than the call.
        all
    };
    let locked = [from(&["escrow.txt"]), vec!["--unlock", "file:lock"]].concat();
    let shares = from(&["share-1", "share-3"]);
    fixture.ok(&locked);
    for again in [&locked, &shares] {
        assert!(changes_nothing(&fixture, again).out.contains("nothing was changed"));
        let json = changes_nothing(&fixture, &[&again[..], &["--json"]].concat()).json();
        assert_eq!((&json["changed"], &json["generations"]), (&json!(false), &json!([1])));
    }
    // The secret of the copy cannot be had: nothing shows that the keyring is the copy's.
    let refused = "there is a keyring already";
    fixture.run(&from(&["escrow.txt"])).fails_with(5, refused);
    // Another new key is another wish.
    let other = key(&fixture, "other");
    let elsewhere = ["key", "restore", "data", "share-1", "share-2", "-K", &other];
    fixture.run(&elsewhere).fails_with(5, refused);
    // The key file has another key now, under the same name.
    fs::remove_file(fixture.path("next")).unwrap();
    key(&fixture, "next");
    fixture.run(&locked).fails_with(5, refused);
}

/// A keyring that has more than the copy is more than the copy can give.
#[test]
fn a_second_restore_leaves_newer_data_keys_alone() {
    let fixture = Fixture::sealed();
    let uri = format!("file:{}", fixture.key_file().display());
    fixture.ok(&["key", "backup", "data", "--shares", "2-of-2", "-o", "share"]);
    let kek = Provider::parse(&uri).unwrap().kek(None).unwrap();
    update(&keyring_path(&fixture.data()), |keyring| keyring.add_generation(&kek)).unwrap();
    let restore = ["key", "restore", "data", "share-1", "share-2", "-K", &uri, "--json"];
    let json = changes_nothing(&fixture, &restore).json();
    assert_eq!((&json["changed"], &json["generations"]), (&json!(false), &json!([1, 2])));
    // A copy of another cluster's keyring is none of this one.
    let foreign = Fixture::sealed();
    let share = fixture.path("foreign").display().to_string();
    foreign.ok(&["key", "backup", "data", "--shares", "2-of-2", "-o", &share]);
    let restore = ["key", "restore", "data", "foreign-1", "foreign-2", "-K", &uri];
    fixture.run(&restore).fails_with(5, "there is a keyring already");
}

#[test]
fn a_recipient_is_added_once() {
    let fixture = Fixture::sealed();
    let escrow = key(&fixture, "escrow");
    let add = ["key", "add-recipient", "escrow", "-K", &escrow, "data", "--json"];
    let first = fixture.run(&add);
    assert_eq!(first.json()["changed"], true, "{first:?}");
    let second = changes_nothing(&fixture, &add).json();
    assert_eq!((&second["changed"], &second["recipients"]), (&json!(false), &json!(1)));
    let text = changes_nothing(&fixture, &add[..6]).out;
    assert!(text.contains("already; nothing was changed"), "{text}");
    // The same name with another source, and with another key in the same file.
    let other = key(&fixture, "other");
    let elsewhere = ["key", "add-recipient", "escrow", "-K", &other, "data"];
    fixture.run(&elsewhere).fails_with(2, "there is one of this name");
    fs::remove_file(fixture.path("escrow")).unwrap();
    key(&fixture, "escrow");
    fixture.run(&add).fails_with(2, "there is one of this name");
}
