//! `pgseal key renew`: a new data key while the server runs, under load, interrupted, and with
//! backups and standbys.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use pgseal_core::header::{self, Kind};
use pgseal_scenarios::backup::{base_backup, ends_sound, text};
use pgseal_scenarios::{Keys, Ledger, Node, assert_same_contents};

/// The table `t`, and a marker in it.
const MARKER: &str = "renewed-and-still-secret";

fn filled(settings: &[(&str, &str)]) -> Node {
    let mut node = Node::sealed(settings);
    node.start();
    node.sql(&format!(
        "create extension amcheck;;
         create table t (id int primary key, v text);;
         insert into t select g, '{MARKER}' || g from generate_series(1, 5000) g;;
         create unlogged table u as select * from t"
    ));
    node
}

fn renew(node: &Node, options: &[&str]) -> String {
    let data = text(node.data());
    let done = node.pgseal(&[&["key", "renew", &data], options].concat());
    assert_eq!(done.code, 0, "{}", done.text);
    done.text
}

/// The generations in the headers of all sealed files, without those of temporary files.
fn generations(dir: &Path) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    for item in fs::read_dir(dir).expect("a directory").flatten() {
        let path = item.path();
        if path.is_dir() {
            found.extend(generations(&path));
        } else if let Ok(bytes) = fs::read(&path)
            && let Ok(Kind::Sealed(header)) = header::classify(&bytes)
            && !header.generation.is_ephemeral()
        {
            found.insert(header.generation.0);
        }
    }
    found
}

/// Renews under load again and again. Old and new sessions, new tables, a crash and a restart see
/// the data; then the older keys are forgotten, and the files do not need them.
#[test]
fn a_new_data_key_under_load() {
    let mut node = filled(&[]);
    let mut old_session = node.session();
    old_session.sql("select count(*) from t");
    // This session has files open that get their headers from others, under newer keys.
    let empty = |number: u32| format!("empty{number}");
    for number in 2..6 {
        old_session.sql(&format!("create table {} (a int)", empty(number)));
        old_session.sql(&format!("select * from {}", empty(number)));
    }
    let mut ledger = Ledger::create(&node, 3);
    ledger.start(&node);
    for number in 2..6 {
        ledger.write_for(Duration::from_millis(700));
        let said = renew(&node, &[]);
        assert!(
            said.contains(&format!("data key {number} is in use. The server, process")),
            "{said}"
        );
        node.sql(&format!("insert into {} select generate_series(1, 700)", empty(number)));
        let seen = old_session.sql(&format!("select count(*) from {}", empty(number)));
        assert_eq!(seen.trim(), "700");
        node.sql(&format!("create table after{number} as select * from t"));
        assert_eq!(old_session.sql(&format!("select count(*) from after{number}")).trim(), "5000");
        let relation = node.data().join(node.relation(&format!("after{number}")));
        let head = fs::read(relation).expect("it is there");
        let Ok(Kind::Sealed(header)) = header::classify(&head) else { panic!("not sealed") };
        assert_eq!(header.generation.0, number);
        assert!(!node.file("pgseal/renewal").exists());
    }
    ledger.join();
    let said = renew(&node, &["--finish", "--json"]);
    assert!(said.contains("\"generation\": 5") && said.contains("\"left\": []"), "{said}");
    assert_eq!(generations(node.data()), BTreeSet::from([5]));
    assert!(node.log().contains("data key 5 is in use"), "{}", node.log());
    ledger.check(&node);
    node.kill9();
    node.start();
    ledger.check(&node);
    node.assert_authentic();
    // A clean stop writes a manifest, with which a renewal of the stopped directory is compatible.
    node.stop();
    let said = renew(&node, &[]);
    assert!(said.contains("data key 6 is in use. No server runs."), "{said}");
    assert_eq!(generations(node.data()), BTreeSet::from([6]));
    node.start();
    node.stop();
    let data = text(node.data());
    let forgotten = node.pgseal(&["key", "forget", &data, "--no-backup-has-them"]);
    assert!(forgotten.text.contains("Removed: generation 1, 2, 3, 4, 5"), "{}", forgotten.text);
    node.start();
    ledger.check(&node);
    assert_eq!(node.sql("select count(*) from after4"), "5000");
    node.stop_sound(MARKER);
}

/// The program is killed in the middle, and so is the server. What was begun is finished later.
#[test]
fn a_renewal_that_is_cut_off() {
    let mut node = filled(&[]);
    // Enough files that a renewal takes a while.
    for part in 0..4 {
        node.sql(&format!(
            "do $$ begin for n in 1..250 loop
               execute format('create table many%s_%s (a int primary key)', {part}, n);
             end loop; end $$"
        ));
    }
    let data = text(node.data());
    let mut was_cut = 0;
    for wait in [0, 3, 10, 20, 40, 80, 160, 320] {
        let mut command = node.pgseal_command(&["key", "renew", &data]);
        let mut child =
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("pgseal runs");
        thread::sleep(Duration::from_millis(wait));
        let _ = child.kill();
        let ended = child.wait().expect("it ends");
        was_cut += u32::from(!ended.success());
        node.sql(&format!("create table cut{wait} as select 1 as a; select * from cut{wait}"));
        assert_eq!(node.sql("select count(*) from t"), "5000");
        if wait == 40 {
            node.kill9();
            node.start();
        }
    }
    assert!(was_cut > 1, "the renewals were too quick");
    renew(&node, &["--finish"]);
    assert_eq!(generations(node.data()).len(), 1);
    node.sql("insert into t values (9999, 'after')");
    node.stop();
    node.start();
    assert_eq!(node.sql("select count(*) from t"), "5001");
    node.stop_sound(MARKER);
}

/// Base backups that are made meanwhile are whole, and a standby, which has a keyring of its own,
/// is renewed on its own.
#[test]
fn backups_and_standbys_during_renewals() {
    let mut node = filled(&[("wal_level", "replica"), ("max_wal_senders", "8")]);
    let mut standby = node.standby(&node, "standby", Keys::Own("aes-256-xts"));
    standby.start();
    let done = AtomicBool::new(false);
    let backups = thread::scope(|scope| {
        let renewals = scope.spawn(|| {
            let mut count = 0;
            while !done.load(Ordering::Relaxed) && count < 15 {
                renew(&node, &[]);
                renew(&standby, &[]);
                count += 1;
            }
            count
        });
        let backups: Vec<_> = (0..2)
            .map(|number| base_backup(&node, &format!("during{number}"), &["-X", "stream"]))
            .collect();
        node.sql("insert into t select g, 'more' from generate_series(5001, 9000) g");
        done.store(true, Ordering::Relaxed);
        assert!(renewals.join().expect("no renewal fails") > 0);
        backups
    });
    standby.catch_up(&node);
    assert_same_contents(&node, &[&standby]);
    standby.stop();
    standby.start();
    standby.catch_up(&node);
    for dir in &backups {
        let outcome = node.verify_dir(dir);
        assert_eq!(outcome.code, 0, "{}", outcome.text);
    }
    // A standby with a copy of the primary's keyring gets the new key with the next copy.
    let mut twin = node.standby(&node, "twin", Keys::Same);
    twin.start();
    renew(&node, &[]);
    fs::copy(node.file("pgseal/keyring"), twin.file("pgseal/keyring")).expect("it can be written");
    let before = generations(twin.data());
    let said = renew(&twin, &["--finish"]);
    assert!(said.contains("The server, process"), "{said}");
    let newest = generations(node.data());
    assert!(newest.len() == 1 && newest.is_disjoint(&before), "{newest:?} {before:?}");
    assert_eq!(generations(twin.data()), newest);
    node.sql("insert into t values (100001, 'twin')");
    twin.catch_up(&node);
    assert_same_contents(&node, &[&twin]);
    twin.stop_sound(MARKER);
    standby.stop_sound(MARKER);
    node.stop_sound(MARKER);
    let mut restored = Node::at(&node, &backups[0]);
    restored.start();
    restored.sql("select count(*) from t");
    ends_sound(restored);
}

/// What is refused: a lock file whose process is not here, a renewal file that somebody else left,
/// and more keys than a server can keep.
#[test]
fn what_a_renewal_refuses() {
    let mut node = filled(&[]);
    let data = text(node.data());
    // Nobody's file: it stays unused, and the log says so.
    let forged = node.file("pgseal/renewal");
    fs::write(&forged, [7; 96]).expect("it can be written");
    node.sql("select pg_reload_conf()");
    node.wait_until("select pg_stat_file('pgseal/renewal', true) is null");
    let refused = node.file("pgseal/renewal.refused");
    assert!(refused.exists() && !forged.exists());
    assert!(node.log().contains("the data key in it is not used"), "{}", node.log());
    node.sql("create table still (a int)");
    assert_eq!(generations(node.data()), BTreeSet::from([1]));
    // A key that the server could not take: nothing is changed, and it has it after a restart.
    for _ in 0..16 {
        renew(&node, &[]);
    }
    let full = node.pgseal(&["key", "renew", &data]);
    assert_eq!(full.code, 22, "{}", full.text);
    assert!(full.text.contains("did not take the new data key"), "{}", full.text);
    assert_eq!(generations(node.data()), BTreeSet::from([17]));
    node.stop();
    node.start();
    renew(&node, &["--finish"]);
    assert_eq!(generations(node.data()), BTreeSet::from([18]));
    node.kill9();
    let stale = node.pgseal(&["key", "renew", &data]);
    assert_eq!(stale.code, 22, "{}", stale.text);
    assert!(
        stale.text.contains("postmaster.pid") && stale.text.contains("container"),
        "{}",
        stale.text
    );
    node.start();
    node.stop_sound(MARKER);
}
