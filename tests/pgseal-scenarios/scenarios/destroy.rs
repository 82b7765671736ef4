//! `pgseal key destroy` on a real cluster (docs/keys.md, "Destroying the data by destroying keys"):
//! the data directory opens with nothing any more; copies open until what the command lists is
//! destroyed, too; then nothing opens.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;

use pgseal_scenarios::files::copy_tree;
use pgseal_scenarios::{Node, ends};

const PASSPHRASE: &str = "passphrase:command=echo correct horse battery staple";
const MARKER: &str = "canary-destroy-Qk3v";

/// Every command that opens a data directory fails, with one of these exit statuses, and none of
/// them shows a row.
#[track_caller]
fn opens_not(node: &Node, dir: &Path, codes: &[i32]) {
    let at = dir.display().to_string();
    let table = node.home().join("table").display().to_string();
    let file = fs::read_to_string(&table).expect("the name of the table's file");
    let file = format!("{at}/{file}");
    for words in [
        &["verify", &at][..],
        &["key", "check", &at],
        &["key", "rotate", &at, "-K", "file:/nowhere/at/all"],
        &["key", "backup", &at, "--lock", PASSPHRASE],
        &["key", "renew", &at],
        &["cat", "-D", &at, &file],
        &["decrypt", "--yes-write-plain", &at],
        &["manifest", "check", &at],
    ] {
        let outcome = node.pgseal(words);
        assert!(codes.contains(&outcome.code), "{words:?}: {} {}", outcome.code, outcome.text);
        assert!(!outcome.text.contains(MARKER), "{words:?} shows a row");
    }
}

/// The names in the directory `pgseal`.
fn names(dir: &Path) -> Vec<String> {
    let listing = fs::read_dir(dir.join("pgseal")).expect("the directory");
    let names = listing.map(|item| item.expect("a file").file_name().into_string());
    let mut names: Vec<String> = names.flatten().collect();
    names.sort();
    names
}

#[test]
fn nothing_opens_when_all_that_is_listed_is_destroyed() {
    let mut node = Node::sealed(&[]);
    let trail = node.audit_to_file();
    node.start();
    node.sql(&format!(
        "create table t (id int primary key, v text);;
         insert into t select g, '{MARKER}' || g from generate_series(1, 500) g;; checkpoint"
    ));
    let file = node.sql("select pg_relation_filepath('t')");
    fs::write(node.home().join("table"), &file).expect("the name");
    let dir = node.data().display().to_string();
    let spare = node.new_key_file("spare.key");
    ends(&node.pgseal(&["key", "add-recipient", "spare", &dir, "-K", &spare]), 0, &[]);
    let escrow = ["key", "backup", &dir, "--lock", PASSPHRASE, "-o", "escrow.txt"];
    ends(&node.pgseal(&escrow), 0, &[]);
    ends(&node.pgseal(&["config", "lock", &dir]), 0, &[]);
    let id = node.pgseal(&["key", "show", "--json", &dir]).text;
    let id = id.split("\"keyring_id\": \"").nth(1).and_then(|rest| rest.get(..32));
    let id = id.expect("the identity").to_owned();

    // Not while a server runs, not without the identity, and not with a wrong one.
    let destroy = ["key", "destroy", &dir, "--yes-destroy", &id];
    ends(&node.pgseal(&destroy), 22, &["a server runs"]);
    node.stop();
    let before = names(node.data());
    ends(
        &node.pgseal(&["key", "destroy", &dir]),
        2,
        &["--yes-destroy", &id, "nothing was changed"],
    );
    let wrong = "0".repeat(32);
    let refused = node.pgseal(&["key", "destroy", &dir, "--yes-destroy", &wrong]);
    ends(&refused, 2, &["not the identity"]);
    let inside = format!("{dir}/receipt");
    let refused = node.pgseal(&[&destroy[..], &["--receipt", &inside]].concat());
    ends(&refused, 2, &["must not lie in the data directory"]);
    assert_eq!(names(node.data()), before);

    // A copy of the directory, and leftovers that hold the keyring too.
    let copy = node.home().join("copy");
    copy_tree(node.data(), &copy);
    let keyring = node.file("pgseal/keyring");
    fs::hard_link(&keyring, node.file("pgseal/keyring.before")).expect("a second name");
    for name in ["keyring.replaced.1", "keyring.new.0123456789abcdef", "keyring-01234567.retired"] {
        let (copy, meta) = (node.file("pgseal").join(name), fs::metadata(&keyring));
        let meta = meta.expect("the keyring");
        fs::copy(&keyring, &copy).expect("a copy");
        chown(&copy, Some(meta.uid()), Some(meta.gid())).expect("chown");
    }
    // A third name outside of the directory, as a backup with hard links has it.
    let linked = node.home().join("linked");
    fs::hard_link(&keyring, &linked).expect("a third name");

    let done = node.pgseal(&[&destroy[..], &["--receipt", "receipt.json"]].concat());
    let key = node.home().join("key").display().to_string();
    ends(
        &done,
        0,
        &[
            "Destroyed: ",
            &format!("the key of the keyring: file:{key}"),
            &format!("shred -u '{key}'"),
            "the key of recipient spare: file:",
            "the escrow copy of 2",
            "opened by a passphrase",
            "base backups",
            "SSDs",
        ],
    );
    assert_eq!(names(node.data()), [""; 0], "{}", done.text);
    let bytes = fs::read(&linked).expect("the third name");
    assert!(!bytes.is_empty() && bytes.iter().all(|byte| *byte == 0), "it was not overwritten");
    let receipt = fs::read_to_string(node.home().join("receipt.json")).expect("the receipt");
    for words in [&id[..], "\"destroyed\": [", "keyring.replaced.1", "\"left\": ["] {
        assert!(receipt.contains(words), "{words} in {receipt}");
    }
    let all = fs::read_to_string(&trail).expect("the trail");
    let last = all.lines().last().expect("a line");
    for words in ["\"event\":\"destroy\"", "\"outcome\":\"done\"", &id] {
        assert!(last.contains(words), "{words} in {last}");
    }

    // The data directory opens with nothing, though the key is still there.
    opens_not(&node, node.data(), &[16]);
    let log = node.try_start().expect_err("a start without a keyring");
    assert!(log.contains("there is no keyring"), "{log}");
    ends(
        &node.pgseal(&["key", "destroy", &dir, "--yes-destroy", &id]),
        16,
        &["there is no keyring"],
    );

    // The copy opens with each key that the list names, one after the other.
    let at = copy.display().to_string();
    ends(&node.pgseal(&["key", "check", &at]), 0, &[]);
    fs::remove_file(&key).expect("the key is destroyed");
    ends(&node.pgseal(&["key", "check", &at, "-K", &spare]), 0, &[]);
    fs::remove_file(node.home().join("spare.key")).expect("the recipient's key is destroyed");
    opens_not(&node, &copy, &[10, 13]);
    let new = node.new_key_file("new.key");
    let restore = ["key", "restore", &dir, "escrow.txt", "--unlock", PASSPHRASE, "-K", &new];
    ends(&node.pgseal(&restore), 0, &[]);
    ends(&node.pgseal(&["key", "check", &dir]), 0, &[]);
    ends(&node.pgseal(&["key", "destroy", &dir, "--yes-destroy", &id]), 0, &[]);
    fs::remove_file(node.home().join("escrow.txt")).expect("the escrow copy is destroyed");
    fs::remove_file(node.home().join("new.key")).expect("the newer key is destroyed");

    // Nothing opens any more: neither directory, with no key that is left, and no file has a row.
    opens_not(&node, node.data(), &[16]);
    opens_not(&node, &copy, &[10, 13]);
    let other = node.new_key_file("other.key");
    ends(&node.pgseal(&["key", "check", &at, "-K", &other]), 11, &["wrong key"]);
    pgseal_scenarios::assert_hidden(&[node.data(), &copy], MARKER);
}
