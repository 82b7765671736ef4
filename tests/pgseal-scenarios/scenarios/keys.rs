//! The drills of docs/keys.md on a real cluster: a lost key, a lost keyring, a key store that is
//! down, a restore on another machine. Each time the server refuses to start, `pgseal key check`
//! says why, and the steps of the documentation bring the cluster back.

use std::fs;
use std::path::Path;

use pgseal_scenarios::files::copy_tree;
use pgseal_scenarios::{Node, Outcome, assert_hidden, succeeds};

const MARKER: &str = "canary-keys-Zq7x";
const PASSPHRASE: &str = "passphrase:command=echo correct horse battery staple";

fn cluster() -> Node {
    let mut node = Node::sealed(&[]);
    node.start();
    node.sql(&format!(
        "create table t (id int primary key, v text);;
         insert into t select g, '{MARKER}' || g from generate_series(1, 1000) g;; checkpoint"
    ));
    node.stop();
    node
}

/// `pgseal key TASK DIR ARGUMENTS`, on the node's data directory.
fn key(node: &Node, task: &str, arguments: &[&str]) -> Outcome {
    let dir = node.data().display().to_string();
    let mut all = vec!["key", task, &dir];
    all.extend(arguments);
    node.pgseal(&all)
}

#[track_caller]
fn refuses(node: &mut Node, code: i32, words: &str) {
    let log = node.try_start().expect_err("a start without its keys");
    assert!(log.contains(words), "{log}");
    let check = key(node, "check", &[]);
    assert_eq!(check.code, code, "{}", check.text);
    assert!(check.text.contains(words), "{}", check.text);
}

/// Checks that the server starts and has its rows, that every block authenticates, and that no file
/// shows a row or a key.
#[track_caller]
fn works(node: &mut Node) {
    let check = key(node, "check", &[]);
    succeeds(&check);
    assert!(check.text.contains("Opens: the headers of"), "{}", check.text);
    node.start();
    assert_eq!(node.sql(&format!("select count(*) from t where v like '{MARKER}%'")), "1000");
    node.sql("update t set v = v where id < 10;; checkpoint");
    node.stop();
    succeeds(&node.verify());
    assert_hidden(&[node.home()], MARKER);
}

/// Makes a new key file and returns its URI.
#[test]
fn the_key_is_lost() {
    let mut node = cluster();
    succeeds(&key(&node, "backup", &["--lock", PASSPHRASE, "-o", "escrow.txt"]));
    succeeds(&key(&node, "check", &["--escrow", "escrow.txt"]));
    fs::remove_file(node.home().join("key")).expect("the key file");
    refuses(&mut node, 10, "no key");

    let uri = node.new_key_file("new.key");
    let restore = ["escrow.txt", "--unlock", PASSPHRASE, "-K", &uri];
    let refused = key(&node, "restore", &restore);
    assert_eq!(refused.code, 5, "a keyring was replaced without --force: {}", refused.text);
    succeeds(&key(&node, "restore", &[&restore[..], &["--force"]].concat()));
    assert!(node.file("pgseal/keyring.replaced.1").exists());
    works(&mut node);
}

#[test]
fn the_keyring_is_lost_and_shares_bring_it_back() {
    let mut node = cluster();
    succeeds(&key(&node, "backup", &["--shares", "2-of-3", "-o", "share"]));
    fs::remove_dir_all(node.file("pgseal")).expect("the directory of the keyring");
    refuses(&mut node, 16, "there is no keyring");

    // The old key is still there, so the restored keyring may be wrapped under it again.
    let uri = format!("file:{}", node.home().join("key").display());
    let few = key(&node, "restore", &["share-3", "-K", &uri]);
    assert_eq!(few.code, 10, "{}", few.text);
    let restored = key(&node, "restore", &["share-3", "share-1", "-K", &uri]);
    succeeds(&restored);
    // The directory held the manifest, too.
    assert!(restored.text.contains("pgseal manifest write"), "{}", restored.text);
    assert_eq!(node.verify().code, 1, "the manifest is lost");
    succeeds(&node.pgseal(&["manifest", "write", &node.data().display().to_string()]));
    works(&mut node);
}

/// A rotation changes nothing that the lock, the manifest or the anchor watch, with the server down
/// or up.
#[test]
fn a_rotation_with_a_locked_configuration_and_an_anchor() {
    let mut node = cluster();
    node.lock_configuration();
    node.use_anchor("anchors");
    for is_up in [false, true] {
        if is_up {
            node.start();
        }
        let uri = node.new_key_file(&format!("next-{is_up}"));
        succeeds(&key(&node, "rotate", &["-K", &uri]));
        if is_up {
            node.restart_with_manifest();
            node.stop();
        }
        works(&mut node);
        node.assert_locked();
        node.start();
        node.restart_with_manifest();
        node.stop();
    }
}

/// A running server does not need its key store, but a start does. A copy of the key from another
/// source also works.
#[test]
fn the_key_store_is_down() {
    let mut node = cluster();
    let store = node.home().join("store");
    fs::rename(node.home().join("key"), &store).expect("the key moves into the store");
    let uri = format!("command:cat {}", store.display());
    let old = format!("file:{}", store.display());
    // pgseal never runs a command that only the keyring names. Unless it is registered, the server
    // refuses to start.
    let clusters = node.home().join("clusters.d").display().to_string();
    node.set_env("PGSEAL_CLUSTERS_DIR", &clusters);
    succeeds(&key(&node, "rotate", &["--old", &old, "-K", &uri, "--register"]));
    fs::rename(&clusters, node.home().join("aside")).expect("the file of the cluster goes");
    refuses(&mut node, 12, "write the line \"provider = command:SHELL COMMAND\" into");
    fs::rename(node.home().join("aside"), &clusters).expect("and comes back");
    node.start();
    let away = node.home().join("away");
    fs::rename(&store, &away).expect("the store goes down");
    assert_eq!(node.sql("select count(*) from t"), "1000", "with the store down");
    node.stop();
    refuses(&mut node, 13, "the command failed");

    let elsewhere = format!("file:{}", away.display());
    succeeds(&key(&node, "check", &["-K", &elsewhere]));
    node.set_env("PGSEAL_PROVIDER", &elsewhere);
    works(&mut node);
    node.unset_env("PGSEAL_PROVIDER");
    fs::rename(&away, &store).expect("the store comes back");
    works(&mut node);
}

/// Further keys open the keyring: a start asks one source after the other, and whoever is removed
/// opens nothing any more.
#[test]
fn recipients_open_the_keyring_when_the_own_key_is_away() {
    let mut node = cluster();
    let [main, next] = ["main.key", "next.key"].map(|name| node.new_key_file(name));
    let glass = "passphrase:command=echo open sesame".to_owned();
    let data = node.data().display().to_string();
    let clusters = node.home().join("clusters.d").display().to_string();
    node.set_env("PGSEAL_CLUSTERS_DIR", &clusters);
    let recipient = |node: &Node, task: &str, name: &str, arguments: &[&str]| {
        let mut all = vec!["key", task, name, &data];
        all.extend(arguments);
        node.pgseal(&all)
    };
    // A file with the recipient's line alone would hide the keyring's own source.
    let refused = recipient(&node, "add-recipient", "next", &["-K", &next, "--register"]);
    assert_eq!(refused.code, 2, "{}", refused.text);
    assert!(refused.text.contains("first have that one written"), "{}", refused.text);
    assert!(!Path::new(&clusters).exists());
    succeeds(&key(&node, "rotate", &["-K", &main, "--register"]));
    node.start();
    for (name, uri) in [("next", &next), ("glass", &glass)] {
        let outcome = recipient(&node, "add-recipient", name, &["-K", uri, "--register"]);
        succeeds(&outcome);
        assert!(outcome.text.contains(&format!("opens it too, as {name}")), "{}", outcome.text);
    }
    let again = recipient(&node, "add-recipient", "next", &["-K", &next]);
    succeeds(&again);
    assert!(again.text.contains("nothing was changed"), "{}", again.text);
    let other = recipient(&node, "add-recipient", "next", &["-K", &glass]);
    assert_eq!(other.code, 2, "{}", other.text);
    assert!(other.text.contains("there is one of this name"), "{}", other.text);
    let shown = key(&node, "show", &[]).text;
    assert!(shown.contains("Recipient   next: file:") && shown.contains("glass"), "{shown}");
    node.stop();

    let moved = |uri: &str, from: &str, to: &str| {
        let path = uri.strip_prefix("file:").expect("a key file");
        fs::rename(format!("{path}{from}"), format!("{path}{to}")).expect("the key file moves");
    };
    let away = |uri: &str| moved(uri, "", ".away");
    let back = |uri: &str| moved(uri, ".away", "");
    away(&main);
    works(&mut node);
    assert!(node.log().contains("the key came from the next source"), "{}", node.log());
    away(&next);
    works(&mut node);
    // The passphrase is removed with its own key, and the keys that are left are away.
    let removed = recipient(&node, "remove-recipient", "glass", &["-K", &glass]);
    succeeds(&removed);
    assert!(removed.text.contains("Remove the line \"provider = passphrase:"), "{}", removed.text);
    let refused = "none of 3 sources gives a key that opens the keyring";
    refuses(&mut node, 13, refused);
    back(&next);
    works(&mut node);
    // With a rotation the recipient stays.
    back(&main);
    let third = node.new_key_file("third.key");
    succeeds(&key(&node, "rotate", &["-K", &third, "--register"]));
    away(&third);
    works(&mut node);
    back(&third);
    succeeds(&recipient(&node, "remove-recipient", "next", &[]));
    away(&third);
    refuses(&mut node, 13, refused);
    back(&third);
    works(&mut node);
}

/// The machine is lost. Only a file-level backup and the escrow copy are left.
#[test]
fn a_restore_on_another_machine() {
    let node = cluster();
    succeeds(&key(&node, "backup", &["--lock", PASSPHRASE, "-o", "escrow.txt"]));
    let backup = node.home().join("backup");
    copy_tree(node.data(), &backup);
    fs::remove_file(node.home().join("key")).expect("the key file");
    fs::remove_dir_all(node.data()).expect("the data directory");

    let mut other = Node::at(&node, &backup);
    refuses(&mut other, 10, "no key");
    let uri = other.new_key_file("new.key");
    let restore = ["escrow.txt", "--unlock", PASSPHRASE, "-K", &uri, "--force"];
    succeeds(&key(&other, "restore", &restore));
    works(&mut other);
    let json = key(&other, "check", &["--json", "--escrow", "escrow.txt"]);
    assert!(json.text.contains("\"same_keyring\": true"), "{}", json.text);
    assert!(Path::new(&backup).exists());
}
