//! Backups that are made before the key changes, and while it changes again and again.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use pgseal_scenarios::backup::{
    SUM, add_row, archived, archiving, assert_archive_sound, assert_shows_nothing, base_backup,
    base_backup_command, ends_sound, fails, low_level_backup, prepared, recovered, restore_by_cp,
    text,
};
use pgseal_scenarios::files::copy_tree;
use pgseal_scenarios::{Ledger, Node};

fn rotate(node: &Node, key: &Path) {
    let provider = format!("file:{}", key.display());
    let rotated = node.pgseal(&["key", "rotate", &text(node.data()), "-K", &provider]);
    assert_eq!(rotated.code, 0, "{}", rotated.text);
}

/// A backup opens with the key that was in use when it was made. It can also replay WAL that was
/// archived after the change, since the data keys stay the same. If the old key is lost, the
/// current keyring opens the backup.
#[test]
#[ignore = "long: make test-scenarios"]
fn restore_of_a_backup_made_before_a_key_rotation() {
    let (mut node, backup, archive) = archiving();
    add_row(&node, 9001);
    let next = node.new_key("next");
    rotate(&node, &next);
    add_row(&node, 9002);
    archived(&node);
    // The server uses the new key from its next start on.
    node.stop();
    node.start();
    add_row(&node, 9003);
    archived(&node);
    let truth = node.sql(SUM);
    node.stop();
    assert_archive_sound(&node, &archive);

    let restore = restore_by_cp(&archive);
    let copy = recovered(&node, &backup, "old-key", &restore, "");
    assert_eq!(copy.sql(SUM), truth);
    ends_sound(copy);

    // The old key is gone.
    fs::rename(node.home().join("key"), node.home().join("key.lost")).expect("it is there");
    let mut copy = prepared(&node, &backup, "lost", &restore, "");
    let said = copy.try_start().expect_err("a start without the key");
    assert!(said.contains("key"), "{said}");
    fs::copy(node.file("pgseal/keyring"), copy.file("pgseal/keyring")).expect("it can be written");
    copy.start();
    copy.wait_until("select not pg_is_in_recovery()");
    assert_eq!(copy.sql(SUM), truth);
    ends_sound(copy);
}

struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The key changes again and again while base backups and raw copies are made under load. Each copy
/// has one complete keyring, and opens with the key that this keyring names.
#[test]
#[ignore = "long: make test-scenarios"]
fn backups_made_during_key_rotations() {
    let (mut node, _, archive) = archiving();
    let truth = node.sql(SUM);
    let mut ledger = Ledger::create(&node, 2);
    ledger.start(&node);
    let keys = [node.home().join("key"), node.new_key("second"), node.new_key("third")];
    let before: u64 = node.sql("select count(*) from ledger").parse().expect("a number");
    let done = AtomicBool::new(false);
    let copies = thread::scope(|scope| {
        // If a step fails, the other thread must stop as well.
        let _end = SetAtEnd(&done);
        let rotations = scope.spawn(|| {
            let mut count = 0;
            while !done.load(Ordering::Relaxed) {
                rotate(&node, &keys[(count + 1) % keys.len()]);
                count += 1;
                thread::sleep(Duration::from_millis(20));
            }
            count
        });
        let mut copies = Vec::new();
        for number in 0..3 {
            let name = format!("during{number}");
            copies.push(base_backup(&node, &name, &["-X", "stream", "--max-rate=20M"]));
            let raw = format!("raw{number}");
            copies.push(low_level_backup(&node, &raw, |dir| copy_tree(node.data(), dir)));
        }
        done.store(true, Ordering::Relaxed);
        let count = rotations.join().expect("no rotation fails");
        assert!(count > 3, "only {count} changes of the key");
        copies
    });
    ledger.join();
    archived(&node);
    node.stop();
    assert_archive_sound(&node, &archive);
    for (number, backup) in copies.iter().enumerate() {
        assert_shows_nothing(backup);
        let name = format!("restored{number}");
        let copy = recovered(&node, backup, &name, &restore_by_cp(&archive), "");
        assert_eq!(copy.sql(SUM), truth);
        ledger.check_copy(&copy, before);
        ends_sound(copy);
    }
    let mut refused = base_backup_command(&node, &node.home().join("x"));
    refused.env("PGSEAL_KEYRING_FROM", node.home().join("no-such-keyring"));
    node.start();
    let said = fails(&mut refused);
    assert!(said.contains("no-such-keyring"), "{said}");
    node.stop();
}
