//! A locked configuration (`pgseal config`): the server records the changes that it makes itself,
//! and refuses every other change at its start and at a reload.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use pgseal_scenarios::files::copy_tree;
use pgseal_scenarios::{Keys, Node, Outcome, not_applicable};

const LOCKED: &str = "the configuration of this data directory is locked";

fn config(node: &Node, task: &str, more: &[&str]) -> Outcome {
    let dir = node.data().display().to_string();
    node.pgseal(&[&["config", task, &dir][..], more].concat())
}

#[track_caller]
fn done(outcome: &Outcome) {
    assert_eq!(outcome.code, 0, "{}", outcome.text);
}

fn lock(node: &Node) {
    done(&config(node, "lock", &[]));
}

fn accept(node: &Node) {
    done(&config(node, "accept", &["--yes"]));
}

/// A stopped sealed cluster with a locked configuration, whose postgresql.conf includes a
/// directory.
fn locked() -> Node {
    let node = Node::sealed(&[]);
    let dir = node.file("conf.d");
    fs::create_dir(&dir).expect("a directory");
    fs::write(dir.join("a.conf"), "work_mem = '5MB'\n").expect("a file");
    node.configure("include_dir = 'conf.d'\ninclude_if_exists = 'local.conf'");
    give(&node, &dir);
    lock(&node);
    assert_same(&node);
    node
}

/// Gives a file to the user of the server.
fn give(node: &Node, path: &Path) {
    use std::os::unix::fs::{MetadataExt, chown};
    let meta = fs::metadata(node.data()).expect("the data directory");
    chown(path, Some(meta.uid()), Some(meta.gid())).expect("chown");
    if path.is_dir() {
        for item in fs::read_dir(path).expect("a listing") {
            give(node, &item.expect("an entry").path());
        }
    }
}

#[track_caller]
fn assert_same(node: &Node) {
    let status = config(node, "status", &[]);
    assert!(status.code == 0 && status.text.contains("Locked, and as recorded"), "{}", status.text);
}

#[track_caller]
fn assert_refused(node: &mut Node, file: &str) {
    let log = node.try_start().expect_err("a start that must be refused");
    assert!(log.contains(&format!("{file}\" ")) && log.contains(LOCKED), "{file}:\n{log}");
    let status = config(node, "status", &[]);
    assert_eq!(status.code, 1, "{}", status.text);
    assert!(status.text.contains(&format!(": {file}")), "{file}: {}", status.text);
}

/// Changes a file, expects the start of the server to be refused, and undoes the change.
#[track_caller]
fn refused_until_undone(node: &mut Node, file: &str, change: impl FnOnce(&Path)) {
    let path = node.file(file);
    let before = fs::read(&path).ok();
    change(&path);
    if path.exists() {
        give(node, &path);
    }
    assert_refused(node, file);
    match before {
        Some(bytes) => fs::write(&path, bytes).expect("the file as it was"),
        None => fs::remove_file(&path).expect("the file that was added"),
    }
    if path.exists() {
        give(node, &path);
    }
    assert_same(node);
}

fn append(line: &'static str) -> impl Fn(&Path) {
    move |path| {
        let text = fs::read_to_string(path).expect("a text");
        fs::write(path, format!("{text}{line}\n")).expect("it can be written");
    }
}

/// The library has only said what is normal.
fn assert_no_complaint(node: &Node) {
    let log = node.log();
    let complains = log.lines().any(|line| line.contains("pgseal: ") && !line.contains(": LOG: "));
    assert!(!complains, "{log}");
}

#[test]
fn a_server_with_another_configuration_does_not_start() {
    let mut node = locked();
    node.start();
    assert_eq!(node.sql("show work_mem"), "5MB");
    assert_no_complaint(&node);
    node.stop();
    refused_until_undone(&mut node, "postgresql.conf", append("archive_mode = on"));
    refused_until_undone(&mut node, "postgresql.auto.conf", append("work_mem = '9MB'"));
    refused_until_undone(&mut node, "pg_hba.conf", append("host all all 0.0.0.0/0 trust"));
    refused_until_undone(&mut node, "pg_ident.conf", append("m a postgres"));
    refused_until_undone(&mut node, "conf.d/a.conf", append("work_mem = '9MB'"));
    refused_until_undone(&mut node, "conf.d/a.conf", |path| {
        fs::remove_file(path).expect("removed")
    });
    refused_until_undone(&mut node, "conf.d/b.conf", |path| {
        fs::write(path, "work_mem = '9MB'\n").expect("a file");
    });
    refused_until_undone(&mut node, "local.conf", |path| {
        fs::write(path, "work_mem = '9MB'\n").expect("a file");
    });
    for signal in ["standby.signal", "recovery.signal"] {
        refused_until_undone(&mut node, signal, |path| fs::write(path, "").expect("a file"));
    }
    node.start();
    assert_eq!(node.sql("show work_mem"), "5MB");
    node.stop();

    // "pgseal config accept" shows the difference and accepts it.
    append("work_mem = '7MB'")(&node.file("conf.d/a.conf"));
    let asked = config(&node, "accept", &[]);
    assert!(asked.code == 22 && asked.text.contains("\n+work_mem = '7MB'\n"), "{}", asked.text);
    assert_refused(&mut node, "conf.d/a.conf");
    accept(&node);
    assert_same(&node);
    node.start();
    assert_eq!(node.sql("show work_mem"), "7MB");
    node.stop();
    node.assert_authentic();
}

/// Waits until a condition is true.
fn wait_until(node: &Node, what: &str, is_so: impl Fn() -> bool) {
    let waited = (0..600).any(|_| {
        let so = is_so();
        if !so {
            thread::sleep(Duration::from_millis(100));
        }
        so
    });
    assert!(waited, "{what}:\n{}", node.log());
}

/// Waits for lines that the server writes to its log.
fn wait_for_log(node: &Node, words: &str, count: usize) {
    wait_until(node, words, || node.log().matches(words).count() >= count);
}

#[test]
fn a_reload_keeps_the_old_settings() {
    let mut node = locked();
    node.start();
    let hba =
        node.sql("select md5(string_agg(line_number || auth_method, ',')) from pg_hba_file_rules");
    // A change of any one file makes the server ignore the whole reload.
    for (count, file) in
        ["postgresql.conf", "conf.d/a.conf", "conf.d/b.conf", "postgresql.auto.conf"]
            .iter()
            .enumerate()
    {
        let path = node.file(file);
        let before = fs::read(&path).ok();
        let text = before.clone().unwrap_or_default();
        let text = [&text[..], b"\nwork_mem = '9MB'\n"].concat();
        fs::write(&path, text).expect("it can be written");
        give(&node, &path);
        node.sql("select pg_reload_conf()");
        wait_for_log(&node, LOCKED, count + 1);
        wait_for_log(&node, "no changes were applied", count + 1);
        assert_eq!(node.sql("show work_mem"), "5MB", "{file}");
        match before {
            Some(bytes) => fs::write(&path, bytes).expect("as it was"),
            None => fs::remove_file(&path).expect("as it was"),
        }
    }
    let path = node.file("pg_hba.conf");
    let before = fs::read_to_string(&path).expect("pg_hba.conf");
    fs::write(&path, "local all all reject\n").expect("it can be written");
    node.sql("select pg_reload_conf()");
    wait_for_log(&node, "pg_hba.conf was not reloaded", 1);
    assert_eq!(node.sql("select 1"), "1", "the new rules count");
    fs::write(&path, &before).expect("as it was");
    let path = node.file("pg_ident.conf");
    let ident = fs::read_to_string(&path).expect("pg_ident.conf");
    fs::write(&path, "m a postgres\n").expect("it can be written");
    node.sql("select pg_reload_conf()");
    wait_for_log(&node, "pg_ident.conf was not reloaded", 1);
    fs::write(&path, ident).expect("as it was");
    node.sql("select pg_reload_conf()");
    let again = "select md5(string_agg(line_number || auth_method, ',')) from pg_hba_file_rules";
    assert_eq!(node.sql(again), hba);
    assert_same(&node);

    // A change that is accepted while the server runs takes effect at the next reload.
    fs::write(node.file("conf.d/b.conf"), "work_mem = '8MB'\n").expect("a file");
    give(&node, &node.file("conf.d/b.conf"));
    accept(&node);
    node.sql("select pg_reload_conf()");
    wait_until(&node, "what was accepted is not loaded", || node.sql("show work_mem") == "8MB");
    node.stop();
}

#[test]
fn what_the_server_writes_itself_is_recorded() {
    let mut node = locked();
    node.start();
    node.sql("alter system set work_mem = '6MB'");
    assert_same(&node);
    node.sql("alter system set maintenance_work_mem = '70MB'");
    assert_same(&node);
    node.sql("create table t as select 1 as a");
    node.kill9();
    node.start();
    assert_eq!(node.sql("show work_mem"), "6MB");
    node.sql("alter system reset all");
    node.stop();
    assert_same(&node);
    let text = fs::read_to_string(node.file("postgresql.auto.conf")).expect("a text");
    assert!(!text.contains("work_mem"), "{text}");
    node.start();
    assert_eq!(node.sql("show work_mem"), "5MB");
    // Another file differs: the server refuses to write its own changes to such a directory.
    append("# changed")(&node.file("pg_hba.conf"));
    let refused = node.try_sql("alter system set work_mem = '6MB'");
    assert!(refused.is_err(), "{refused:?}");
    let text = fs::read_to_string(node.file("postgresql.auto.conf")).expect("a text");
    assert!(!text.contains("work_mem"), "{text}");
    // A base backup still works: it sends the files as they are.
    let copy = node.standby(&node, "copy", Keys::Own("aes-256-gcm"));
    let text = fs::read_to_string(copy.file("pg_hba.conf")).expect("a text");
    assert!(text.ends_with("# changed\n"), "{text}");
    node.stop_at_once();
}

/// A process that reads the configuration while another process changes it sees the old or the new
/// configuration, and never a mismatch with the record.
#[test]
fn alter_system_and_reloads_at_the_same_time() {
    let mut node = locked();
    node.start();
    thread::scope(|scope| {
        let changes = scope.spawn(|| {
            for number in 0..40 {
                node.sql(&format!("alter system set work_mem = '{}MB'", 10 + number % 7));
            }
        });
        while !changes.is_finished() {
            node.sql("select pg_reload_conf()");
        }
    });
    node.sql("select pg_reload_conf()");
    wait_until(&node, "the last change is not loaded", || node.sql("show work_mem") == "14MB");
    assert_no_complaint(&node);
    node.stop();
    assert_same(&node);
}

#[test]
fn a_server_that_was_locked_while_it_ran_takes_note() {
    let mut node = Node::sealed(&[]);
    node.start();
    lock(&node);
    node.sql("alter system set work_mem = '6MB'");
    assert_same(&node);
    append("work_mem = '9MB'")(&node.file("postgresql.conf"));
    node.sql("select pg_reload_conf()");
    wait_for_log(&node, LOCKED, 1);
    done(&config(&node, "unlock", &[]));
    node.sql("alter system set work_mem = '3MB'");
    node.stop();
    node.start();
    assert_eq!(node.sql("show work_mem"), "3MB");
    node.stop();
    let status = config(&node, "status", &[]);
    assert!(status.code == 1 && status.text.contains("Not locked"), "{}", status.text);
}

#[test]
fn the_lock_cannot_be_taken_away() {
    let mut node = locked();
    let record = node.file("pgseal/config");
    let bytes = fs::read(&record).expect("a record");
    // The record is removed, replaced by that of another cluster, or damaged.
    fs::remove_file(&record).expect("removed");
    let log = node.try_start().expect_err("a start without the record");
    assert!(log.contains("pgseal/config\": it is gone"), "{log}");
    let other = locked();
    fs::copy(other.file("pgseal/config"), &record).expect("a copy");
    give(&node, &record);
    let log = node.try_start().expect_err("a start with another cluster's record");
    assert!(log.contains("it is that of another cluster"), "{log}");
    for at in [30, bytes.len() - 1] {
        let mut bad = bytes.clone();
        bad[at] ^= 1;
        fs::write(&record, bad).expect("it can be written");
        assert!(node.try_start().is_err());
    }
    // An older record and the files that belong to it are restored (rollback).
    fs::write(&record, &bytes).expect("as it was");
    give(&node, &record);
    let old = node.home().join("old");
    copy_tree(node.data(), &old);
    append("work_mem = '4MB'")(&node.file("conf.d/a.conf"));
    accept(&node);
    for name in ["pgseal/config", "conf.d/a.conf"] {
        fs::copy(old.join(name), node.file(name)).expect("a copy");
        give(&node, &node.file(name));
    }
    let log = node.try_start().expect_err("a start with an older record");
    assert!(log.contains("it is an older copy of the record"), "{log}");
    // The keyring says that the configuration is locked, and the MAC protects the keyring.
    let keyring = node.file("pgseal/keyring");
    let text = fs::read_to_string(&keyring).expect("a keyring");
    let line = text.lines().find(|line| line.contains("\"config_lock\"")).expect("the lock");
    fs::write(&keyring, text.replace(&format!("{line}\n"), "")).expect("it can be written");
    let log = node.try_start().expect_err("a start with a changed keyring");
    assert!(log.contains("MAC does not hold"), "{log}");
    fs::write(&keyring, &text).expect("as it was");
    accept(&node);
    node.start();
    node.stop();

    // A rollback of keyring, record and files together is noticed only with PGSEAL_CONFIG=locked.
    for name in ["pgseal/config", "pgseal/keyring", "conf.d/a.conf"] {
        fs::copy(old.join(name), node.file(name)).expect("a copy");
        give(&node, &node.file(name));
    }
    node.start();
    node.stop();
    let dir = node.data().display().to_string();
    let env = node.pgseal(&["env", "-D", &dir]);
    assert!(env.text.contains("PGSEAL_CONFIG=locked"), "{}", env.text);
    done(&config(&node, "unlock", &[]));
    node.start();
    node.stop();
    node.set_env("PGSEAL_CONFIG", "locked");
    let log = node.try_start().expect_err("a start without the lock that is asked for");
    assert!(log.contains("is not locked, and PGSEAL_CONFIG=locked asks for it"), "{log}");
    lock(&node);
    node.start();
    node.stop();
}

#[test]
fn a_promotion_is_recorded_and_a_signal_file_is_not_lost() {
    let mut primary = Node::sealed(&[]);
    primary.start();
    primary.sql("create table t as select 1 as a");
    let mut standby = primary.standby(&primary, "standby", Keys::Same);
    // The standby is a directory of its own, whose configuration is locked separately.
    lock(&standby);
    standby.start();
    assert_eq!(standby.sql("select pg_is_in_recovery()"), "t");
    standby.stop();
    // Without standby.signal, the standby would become a second primary.
    let signal = standby.file("standby.signal");
    fs::remove_file(&signal).expect("removed");
    assert_refused(&mut standby, "standby.signal");
    fs::write(&signal, "").expect("a file");
    give(&standby, &signal);
    standby.start();
    standby.sql("select pg_promote()");
    assert_eq!(standby.sql("select pg_is_in_recovery()"), "f");
    assert!(!signal.exists());
    assert_same(&standby);
    standby.kill9();
    standby.start();
    standby.sql("insert into t values (2)");
    standby.stop();
    // If an attacker put the signal file back, the server would recover from an archive of the
    // attacker's choice.
    fs::write(&signal, "").expect("a file");
    give(&standby, &signal);
    assert_refused(&mut standby, "standby.signal");
    primary.stop();
}

#[test]
fn keys_change_and_the_lock_stays() {
    let mut node = locked();
    let dir = node.data().display().to_string();
    let key = format!("file:{}", node.new_key("next").display());
    done(&node.pgseal(&["key", "rotate", &dir, "-K", &key]));
    assert_same(&node);
    done(&node.pgseal(&["rekey", &dir]));
    assert_same(&node);
    done(&node.pgseal(&["key", "forget", &dir, "--no-backup-has-them"]));
    assert_same(&node);
    node.start();
    node.sql("alter system set work_mem = '6MB'");
    node.stop();
    assert_same(&node);
    refused_until_undone(&mut node, "pg_hba.conf", append("host all all 0.0.0.0/0 trust"));
    // A raw copy of the data directory contains the record.
    let copy = node.home().join("copy");
    copy_tree(node.data(), &copy);
    node.set_data(&copy);
    give(&node, &copy);
    assert_same(&node);
    node.start();
    node.stop();
}

/// The server's TLS key and certificate are part of the locked configuration.
#[test]
fn tls_files_are_part_of_it() {
    let mut node = Node::sealed(&[]);
    let dir = node.data().display().to_string();
    let ca = node.home().join("ca").display().to_string();
    let bin = pgseal_testkit::bindir().expect("PostgreSQL is installed").display().to_string();
    let made = node.pgseal(&["tls", "init", &dir, "--ca-dir", &ca, "--bindir", &bin]);
    if made.text.contains("built without TLS") && !bin.starts_with("/usr/lib/postgresql") {
        return not_applicable("tls_files_are_part_of_it", "this server was built without TLS");
    }
    done(&made);
    lock(&node);
    node.start();
    assert_eq!(node.sql("show ssl"), "on");
    node.stop();
    refused_until_undone(&mut node, "server.crt", append("x"));
    let status = config(&node, "status", &[]);
    assert!(!status.text.contains("PRIVATE KEY"), "{}", status.text);
    node.start();
    node.stop();
    done(
        &node.pgseal(&["tls", "init", &dir, "--ca-dir", &ca, "--bindir", &bin, "--host", "x.test"]),
    );
    let log = node.try_start().expect_err("a start with files that nobody accepted");
    assert!(log.contains(LOCKED), "{log}");
    accept(&node);
    node.start();
    node.stop();
}

/// The lock does not cover libraries, so a library in the data directory leads to a warning.
#[test]
fn code_in_the_data_directory_is_named() {
    let node = Node::sealed(&[]);
    node.configure("session_preload_libraries = './planted'");
    let refused = config(&node, "lock", &[]);
    assert!(refused.code == 21 && refused.text.contains("./planted"), "{}", refused.text);
    let dir = node.data().display().to_string();
    node.configure(&format!(
        "session_preload_libraries = ''\narchive_command = '{dir}/archive.sh %p'"
    ));
    let made = config(&node, "lock", &[]);
    assert!(made.code == 0 && made.text.contains("WARNING: a command names"), "{}", made.text);
    let again = config(&node, "lock", &[]);
    assert_eq!(again.code, 0, "{}", again.text);
    assert!(again.text.contains("nothing was changed"), "{}", again.text);
}
