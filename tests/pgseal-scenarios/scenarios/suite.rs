//! Another suite while the server runs: `pgseal key renew --suite`, and `pgseal reseal --rewrite`,
//! under load, interrupted, with backups and standbys.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use pgseal_cluster::{Patience, process};
use pgseal_core::header::{self, Kind};
use pgseal_core::{Layout, Suite};
use pgseal_scenarios::backup::{base_backup, ends_sound, text};
use pgseal_scenarios::files::own_as_parent;
use pgseal_scenarios::resealing::{guard_of, header_of};
use pgseal_scenarios::{Keys, Ledger, Node, assert_same_contents, programs};
use pgseal_testkit::{Cluster, Sealing};
use rustix::process::{Pid, Signal, kill_process};

/// In the table `t`.
const MARKER: &str = "in-another-suite-and-still-secret";

/// A started node of a suite, with relations of each kind, and a second database.
fn filled(suite: &str, settings: &[(&str, &str)]) -> Node {
    let sealing = Sealing { suite: suite.to_owned(), ..Sealing::default() };
    let builder = Cluster::builder().sealed(sealing).programs(programs());
    let mut node = Node::create(builder, settings);
    node.start();
    node.sql(&format!(
        "create extension amcheck;;
         create table t (id serial primary key, v text, big text);;
         alter table t alter big set storage external;;
         insert into t (v, big) select '{MARKER}' || g || repeat('x', 300),
           case when g % 100 = 0 then repeat('{MARKER}', 150) end
           from generate_series(1, 20000) g;;
         create index on t using gin (to_tsvector('simple', v));;
         create table \"odd \t\"\"name\" (a int generated always as identity primary key);;
         create unlogged table u as select * from t where id < 3000;;
         create table p (a int primary key) partition by range (a);;
         create table p1 partition of p for values from (0) to (10);;
         create materialized view m as select * from t where id < 2000;; vacuum t, u, m"
    ));
    node.sql("create database second");
    node.sql("checkpoint");
    node
}

const CONTENTS: &str =
    "select md5(string_agg(id || v || coalesce(big, ''), ',' order by id)) from t";

fn change(node: &Node, suite: &str) -> String {
    let done = node.pgseal(&["key", "renew", &text(node.data()), "--suite", suite]);
    assert_eq!(done.code, 0, "{}", done.text);
    done.text
}

/// The arguments of `pgseal reseal --rewrite`.
fn rewrite_arguments(node: &Node, more: &[&str]) -> Vec<String> {
    let (host, port) = (node.sql("show unix_socket_directories"), node.port().to_string());
    let data = text(node.data());
    let all = ["reseal", &data, "--rewrite", "--host", &host, "--port", &port, "-U", "postgres"];
    [&all[..], more].concat().into_iter().map(str::to_owned).collect()
}

fn rewrite(node: &Node, more: &[&str]) -> (i32, String) {
    let arguments = rewrite_arguments(node, more);
    let done = node.pgseal(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    (done.code, done.text)
}

/// The suites of the relations below a directory: of paged and in-place files.
fn suites(dir: &Path) -> BTreeSet<&'static str> {
    let mut found = BTreeSet::new();
    for item in fs::read_dir(dir).expect("a directory").flatten() {
        let path = item.path();
        if path.is_dir() {
            found.extend(suites(&path));
        } else if let Ok(bytes) = fs::read(&path)
            && let Ok(Kind::Sealed(header)) = header::classify(&bytes)
            && matches!(header.layout, Layout::Paged | Layout::InPlace)
            && !header.generation.is_ephemeral()
        {
            found.insert(header.suite.name());
        }
    }
    found
}

fn suite_of(node: &Node, relation: &str) -> Suite {
    header_of(&node.data().join(node.relation(relation))).suite
}

/// Has the server make everything anew, also the databases that allow no connections.
fn rewrite_all(node: &Node) {
    let (code, said) = rewrite(node, &["--pages-per-second", "0"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("pgseal key forget"), "{said}");
}

/// The view of the extension, from the function of the guard module.
fn create_progress(node: &Node) {
    let guard = guard_of(node);
    node.sql(&format!(
        "create function file_suites(relation regclass, out fork text, out segment int,
           out suite text, out is_older bool, out bytes int8)
         returns setof record language c strict as '{guard}', 'pgseal_guard_file_suites';;
         create view progress as select c.oid::regclass as relation, s.*
           from pg_class as c, lateral file_suites(c.oid) as s
           where c.relkind in ('r', 'i', 'S', 't', 'm') and c.relpersistence <> 't' and s.is_older"
    ));
}

/// From XTS to GCM under load, with crashes, a backup, and sessions that had the files open before.
#[test]
fn from_a_suite_without_tags_to_one_with_tags() {
    let mut node = filled("aes-256-xts", &[("wal_level", "replica"), ("max_wal_senders", "4")]);
    let data = text(node.data());
    let contents = node.sql(CONTENTS);
    let value = node.sql("select nextval('t_id_seq')");
    let mut old_session = node.session();
    old_session.sql("create table empty_before (a int); select count(*) from t, empty_before");
    let mut ledger = Ledger::create(&node, 3);
    ledger.start(&node);
    let said = change(&node, "aes-256-gcm");
    assert!(said.contains("stay until they are made anew: pgseal reseal"), "{said}");
    assert!(node.log().contains("relations: aes-256-gcm"), "{}", node.log());
    assert_eq!(suite_of(&node, "t"), Suite::Aes256Xts);
    // Old and new sessions make files in the new suite, and use both.
    old_session.sql("create table after_old as select * from t");
    node.sql("create table after_new as select * from t");
    old_session.sql("insert into empty_before values (1)");
    assert_eq!(old_session.sql("select count(*) from after_new").trim(), "20000");
    node.sql("checkpoint");
    for table in ["after_old", "after_new"] {
        assert_eq!(suite_of(&node, table), Suite::Aes256Gcm);
    }
    node.assert_authentic();
    let status = node.pgseal(&["status", &data]).text;
    assert!(status.contains("Made in an older suite: "), "{status}");
    let doctor = node.pgseal(&["doctor", &data]).text;
    assert!(doctor.contains("in an older suite, "), "{doctor}");
    // full_page_writes was free before, and is not any more.
    node.sql("alter system reset all");
    assert!(node.try_sql("alter system set full_page_writes = off").is_err());
    let backup = base_backup(&node, "mixed", &["-X", "stream"]);
    let verified = node.verify_dir(&backup);
    assert_eq!(verified.code, 0, "{}", verified.text);
    assert_eq!(
        suites(&backup),
        BTreeSet::from(["aes-256-gcm"]),
        "the copy has the suite of new files"
    );

    // The server is killed while relations are made anew, and the next run goes on.
    for wait in [100, 400, 900] {
        let arguments = rewrite_arguments(&node, &["--pages-per-second", "300"]);
        let mut command =
            node.pgseal_command(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        let mut child =
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("pgseal runs");
        thread::sleep(Duration::from_millis(wait));
        node.kill9();
        ledger.join();
        let _ = child.wait();
        node.start();
        ledger.check(&node);
        assert_eq!(node.sql(CONTENTS), contents);
        node.assert_authentic();
        ledger.start(&node);
    }
    // A base backup while relations are made anew, slowly; a view tells how far that is.
    create_progress(&node);
    let left = |node: &Node| -> u64 {
        node.sql("select count(*) from progress").parse().expect("a number")
    };
    let mut slow = {
        let arguments = rewrite_arguments(&node, &["--pages-per-second", "30"]);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        node.pgseal_command(&arguments).spawn().expect("pgseal runs")
    };
    node.wait_until(
        "select count(*) = 1 from pg_stat_activity where backend_type = 'pgseal reseal' \
         and query like 'pgseal: VACUUM (FULL)%'",
    );
    assert!(left(&node) > 0);
    let (code, said) = rewrite(&node, &["--status"]);
    assert!(code == 1 && said.contains("At work: ") && said.contains("VACUUM (FULL)"), "{said}");
    let during = base_backup(&node, "during", &["-X", "stream"]);
    assert!(left(&node) > 0, "the worker kept to the pace");
    node.sql(
        "select pg_terminate_backend(pid) from pg_stat_activity \
         where backend_type = 'pgseal reseal'",
    );
    let stopped = slow.wait().expect("it ends");
    assert_eq!(stopped.code(), Some(1));
    rewrite_all(&node);
    assert_eq!(left(&node), 0);
    ledger.write_for(Duration::from_millis(300));
    ledger.join();
    ledger.check(&node);
    assert_eq!(node.sql(CONTENTS), contents);
    assert_eq!(suites(node.data()), BTreeSet::from(["aes-256-gcm"]));
    let next: i64 = node.sql("select nextval('t_id_seq')").parse().expect("a number");
    assert!(next > value.parse::<i64>().expect("a number"), "{next} after {value}");
    node.amcheck();

    // Files of the older suite are refused once it is forgotten, and not before.
    let made = node.data().join(node.relation("t"));
    let stray = made.with_file_name("999999");
    node.stop();
    let forgotten = node.pgseal(&["key", "forget", &data, "--no-backup-has-them"]);
    assert!(forgotten.text.contains("suite aes-256-xts"), "{}", forgotten.text);
    let shown = node.pgseal(&["key", "show", &data]).text;
    assert!(!shown.contains("aes-256-xts") && shown.contains("aes-256-gcm"), "{shown}");
    assert!(!stray.exists());
    node.start();
    ledger.check(&node);
    assert_eq!(node.sql(CONTENTS), contents);
    node.stop_sound(MARKER);
    for backup in [backup, during] {
        let mut restored = Node::at(&node, &backup);
        restored.start();
        assert_eq!(restored.sql(CONTENTS), contents);
        ends_sound(restored);
    }
}

/// From GCM to CTR and to XTS. An older suite that files have is kept, and a file of a suite that
/// was forgotten is refused.
#[test]
fn between_other_suites_and_a_file_of_a_forgotten_one() {
    let mut node = filled("aes-256-gcm", &[]);
    let data = text(node.data());
    let contents = node.sql(CONTENTS);
    change(&node, "aes-256-ctr");
    node.sql("create table c as select * from t");
    change(&node, "aes-256-xts");
    node.sql("create table x as select * from t;; checkpoint");
    for (table, suite) in
        [("t", Suite::Aes256Gcm), ("c", Suite::Aes256Ctr), ("x", Suite::Aes256Xts)]
    {
        assert_eq!(suite_of(&node, table), suite);
    }
    node.kill9();
    node.start();
    for table in ["t", "c", "x"] {
        assert_eq!(node.sql(&CONTENTS.replace("from t", &format!("from {table}"))), contents);
    }
    node.stop();
    node.assert_authentic();
    let kept = node.pgseal(&["key", "forget", &data, "--no-backup-has-them"]);
    assert!(kept.text.contains("Kept: suite aes-256-gcm, aes-256-ctr"), "{}", kept.text);
    // One relation alone; the table in CTR goes away.
    node.start();
    let database = node.sql("select current_database()");
    let (code, said) = rewrite(&node, &["-d", &database, "-r", "m"]);
    assert!(code == 1 && said.contains("relations made anew in aes-256-xts"), "{said}");
    assert_eq!(suite_of(&node, "m"), Suite::Aes256Xts);
    assert_eq!(suite_of(&node, "t"), Suite::Aes256Gcm);
    let path = node.data().join(node.relation("c"));
    node.sql("checkpoint");
    let ctr = fs::read(&path).expect("the table in CTR");
    node.sql("drop table c;; checkpoint");
    node.stop();
    let forgotten = node.pgseal(&["key", "forget", &data, "--no-backup-has-them"]);
    assert!(forgotten.text.contains("suite aes-256-ctr"), "{}", forgotten.text);
    assert!(forgotten.text.contains("Kept: suite aes-256-gcm"), "{}", forgotten.text);
    fs::write(&path, ctr).expect("it can be put back");
    let verified = node.verify_dir(node.data());
    assert_eq!(verified.code, 1, "{}", verified.text);
    assert!(
        verified.text.contains("aes-256-ctr in the paged layout, as no file here"),
        "{}",
        verified.text
    );
    fs::remove_file(&path).expect("it is there");
    node.start();
    rewrite_all(&node);
    assert_eq!(suites(node.data()), BTreeSet::from(["aes-256-xts"]));
    assert_eq!(node.sql(CONTENTS), contents);
    node.amcheck();
    node.stop();
    // Rekey makes everything anew, and no older suite is left.
    let rekeyed = node.pgseal(&["rekey", &data]);
    assert_eq!(rekeyed.code, 0, "{}", rekeyed.text);
    let shown = node.pgseal(&["key", "show", &data]).text;
    assert!(!shown.contains("Older"), "{shown}");
    node.start();
    assert_eq!(node.sql(CONTENTS), contents);
    node.stop_sound(MARKER);
}

/// Between two suites with tags, of which one counts its writes and the other does not.
#[test]
fn from_gcm_to_aegis_and_back() {
    let mut node = filled("aes-256-gcm", &[("wal_level", "replica"), ("max_wal_senders", "4")]);
    let database = node.sql("select current_database()");
    let contents = node.sql(CONTENTS);
    let table = ["-d", &database, "-r", "t"];
    change(&node, "aegis-256x2");
    node.sql("create table a as select * from t;; create temp table s as select * from t");
    let (_, said) = rewrite(&node, &table);
    assert!(said.contains("made anew in aegis-256x2"), "{said}");
    node.sql("update a set v = v || 'x'");
    node.kill9();
    node.start();
    assert_eq!(suite_of(&node, "t"), Suite::Aegis256X2);
    assert_eq!(suite_of(&node, "a"), Suite::Aegis256X2);
    assert_eq!(node.sql(CONTENTS), contents);
    assert_eq!(node.sql("select count(*) from a where v like '%x'"), "20000");
    // A new file key, as in any suite with tags.
    let mut reseal = rewrite_arguments(&node, &table);
    reseal.retain(|argument| argument != "--rewrite");
    let done = node.pgseal(&reseal.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(done.code, 0, "{}", done.text);
    let path = node.data().join(node.relation("t"));
    assert_eq!(header_of(&path).key_number, 2);
    let backup = base_backup(&node, "aegis", &["-X", "stream"]);
    let verified = node.verify_dir(&backup);
    assert_eq!(verified.code, 0, "{}", verified.text);
    assert_eq!(suites(&backup), BTreeSet::from(["aegis-256x2"]));
    node.stop();

    // The last byte of the random part of a nonce.
    let mut changed = fs::read(&path).expect("the table");
    let bytes = changed.clone();
    changed[8192 + 14] ^= 4;
    fs::write(&path, changed).expect("it can be changed");
    let verified = node.verify_dir(node.data());
    assert_eq!(verified.code, 1, "{}", verified.text);
    fs::write(&path, bytes).expect("it can be put back");
    node.start();
    change(&node, "aes-256-gcm");
    let (_, said) = rewrite(&node, &table);
    assert!(said.contains("made anew in aes-256-gcm"), "{said}");
    assert_eq!(suite_of(&node, "t"), Suite::Aes256Gcm);
    assert_eq!(suite_of(&node, "a"), Suite::Aegis256X2);
    assert_eq!(node.sql(CONTENTS), contents);
    node.amcheck();
    node.stop_sound(MARKER);
}

/// A server whose settings do not do for the suite goes on in its own, also after a restart.
#[test]
fn a_server_without_the_settings_refuses_the_suite() {
    let sealing = Sealing { suite: "aes-256-xts".to_owned(), ..Sealing::default() };
    let builder = Cluster::builder().without_checksums().sealed(sealing).programs(programs());
    let mut node = Node::create(builder, &[]);
    node.start();
    node.sql(&format!("create extension amcheck;; create table t as select '{MARKER}' as v"));
    let data = text(node.data());
    let ask = |node: &Node, suite: &str| node.pgseal(&["key", "renew", &data, "--suite", suite]);
    let refused = ask(&node, "aes-256-gcm");
    assert_eq!(refused.code, 22, "{}", refused.text);
    assert!(refused.text.contains("wal_log_hints"), "{}", refused.text);
    assert!(node.log().contains("its suite needs wal_log_hints"), "{}", node.log());
    let shown = node.pgseal(&["key", "show", &data]).text;
    assert!(!shown.contains("gcm"), "{shown}");
    node.sql("create table t2 as select * from t");
    node.stop();
    node.configure("wal_log_hints = on");
    node.start();
    node.sql("create table t3 as select * from t2");
    assert_eq!(ask(&node, "aes-256-ctr").code, 22, "it needs data checksums");
    assert!(node.log().contains("its suite needs data checksums"), "{}", node.log());
    change(&node, "aes-256-gcm");
    node.sql("create table t4 as select * from t3;; checkpoint");
    assert_eq!(suite_of(&node, "t4"), Suite::Aes256Gcm);
    rewrite_all(&node);
    node.stop();
    // From now on the settings must stay.
    node.configure("wal_log_hints = off");
    let said = node.try_start().expect_err("it must not start");
    assert!(said.contains("wal_log_hints") || node.log().contains("needs wal_log_hints"), "{said}");
    node.configure("wal_log_hints = on");
    node.start();
    node.stop_sound(MARKER);
}

/// Each node of a cluster has the suite of its own keyring, and gets new files by replay.
#[test]
fn standbys_change_on_their_own() {
    let mut node = filled("aes-256-xts", &[("wal_level", "replica"), ("max_wal_senders", "8")]);
    let mut own = node.standby(&node, "own", Keys::Own("aes-256-xts"));
    let mut twin = node.standby(&node, "twin", Keys::Same);
    own.start();
    twin.start();
    change(&node, "aes-256-gcm");
    change(&own, "aes-256-gcm");
    fs::copy(node.file("pgseal/keyring"), twin.file("pgseal/keyring")).expect("it can be written");
    let done = twin.pgseal(&["key", "renew", "--finish", &text(twin.data())]);
    assert_eq!(done.code, 0, "{}", done.text);
    rewrite_all(&node);
    node.sql("insert into t (v) values ('more');; checkpoint");
    for standby in [&mut own, &mut twin] {
        standby.catch_up(&node);
        assert_same_contents(&node, &[standby]);
        let (code, said) = rewrite(standby, &[]);
        assert!(code == 22 && said.contains("standby"), "{said}");
        standby.stop();
        standby.start();
        standby.catch_up(&node);
        assert_same_contents(&node, &[standby]);
        assert_eq!(suite_of(standby, "t"), Suite::Aes256Gcm);
    }
    own.stop_sound(MARKER);
    twin.stop_sound(MARKER);
    node.stop_sound(MARKER);
}

fn postmaster_of(node: &Node) -> Pid {
    let found = process::postmaster(node.data()).and_then(|pid| i32::try_from(pid).ok());
    found.and_then(Pid::from_raw).expect("a server runs")
}

/// A server that does not answer goes on in its suite, and so does its next start; the same command
/// changes it later. A command that was killed leaves a change that the server takes.
#[test]
fn a_server_that_does_not_answer_keeps_its_suite() {
    let mut node = filled("aes-256-xts", &[]);
    let data = text(node.data());
    let (contents, postmaster) = (node.sql(CONTENTS), postmaster_of(&node));
    let command = ["key", "renew", &data, "--suite", "aes-256-gcm", "--timeout", "1"];
    kill_process(postmaster, Signal::STOP).expect("it runs");
    let silent = node.pgseal(&command);
    kill_process(postmaster, Signal::CONT).expect("it runs");
    assert_eq!(silent.code, 22, "{}", silent.text);
    assert!(silent.text.contains("new files stay in aes-256-xts"), "{}", silent.text);
    assert!(!node.file("pgseal/renewal").exists());
    let shown = node.pgseal(&["key", "show", &data]).text;
    assert!(!shown.contains("gcm"), "{shown}");
    // The signal that it got meanwhile changes nothing.
    node.sql("create table one as select * from t;; checkpoint");
    assert_eq!(suite_of(&node, "one"), Suite::Aes256Xts);
    node.kill9();
    node.start();
    node.sql("create table two as select * from t;; checkpoint");
    assert_eq!(suite_of(&node, "two"), Suite::Aes256Xts);

    // The command is killed while it waits.
    let postmaster = postmaster_of(&node);
    kill_process(postmaster, Signal::STOP).expect("it runs");
    let mut child = node.pgseal_command(&command[..5]);
    let mut child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
    let is_there = || node.file("pgseal/renewal").exists();
    let _ = Patience::every(Duration::from_millis(10), 60).wait_until(is_there);
    let _ = child.kill();
    let _ = child.wait();
    let doctor = node.pgseal(&["doctor", &data]).text;
    kill_process(postmaster, Signal::CONT).expect("it runs");
    assert!(doctor.contains("pgseal key renew --finish"), "{doctor}");
    let done = node.pgseal(&["key", "renew", &data, "--finish"]);
    assert_eq!(done.code, 0, "{}", done.text);
    node.sql("create table three as select * from t;; checkpoint");
    assert_eq!(suite_of(&node, "three"), Suite::Aes256Gcm);
    node.kill9();
    node.start();
    for table in ["t", "one", "two", "three"] {
        assert_eq!(node.sql(&CONTENTS.replace("from t", &format!("from {table}"))), contents);
    }
    node.stop_sound(MARKER);
}

/// From keys of 128 bits to 256 and back. Files that PostgreSQL does not make anew keep the length
/// of their key until `pgseal rekey`.
#[test]
#[ignore = "long: make test-scenarios"]
fn between_keys_of_128_and_256_bits() {
    for (from, to) in [("aes-128-gcm", "aes-256-gcm"), ("aes-256-xts", "aes-128-xts")] {
        let mut node = filled(from, &[]);
        let data = text(node.data());
        let contents = node.sql(CONTENTS);
        let of_status = |node: &Node| header_of(&node.file("pg_xact/0000")).suite;
        let before = of_status(&node);
        // As a crash may leave it: no relation has this file.
        let left = node.file(&node.relation("t")).with_file_name("99997");
        fs::copy(node.file(&node.relation("t")), &left).expect("a copy");
        own_as_parent(&left);
        change(&node, to);
        let (code, said) = rewrite(&node, &["--pages-per-second", "0"]);
        assert!(code == 1 && said.contains("/99997\n"), "{said}");
        assert!(said.contains("No relation has them"), "{said}");
        fs::remove_file(&left).expect("the copy");
        let (code, said) = rewrite(&node, &["--pages-per-second", "0"]);
        assert_eq!(code, 0, "{said}");
        assert!(said.contains("keep keys of another length"), "{said}");
        assert_eq!(suites(&node.file("base")), BTreeSet::from([to]));
        node.kill9();
        node.start();
        // Old transaction status, and new: 40,000 subtransactions fill more than a page of it.
        node.sql(
            "create table n (a int);; do $$ begin for i in 1..40000 loop begin \
             insert into n values (i); exception when others then raise; end; end loop; end $$",
        );
        node.sql("insert into t (v) values ('more');; delete from t where v = 'more'");
        node.kill9();
        node.start();
        assert_eq!(node.sql("select count(*) from n"), "40000");
        assert_eq!(node.sql(CONTENTS), contents);
        assert_eq!(of_status(&node), before, "it keeps the length of its key");
        node.stop();
        node.assert_authentic();
        let forgotten = node.pgseal(&["key", "forget", &data, "--no-backup-has-them"]);
        assert!(forgotten.text.contains(&format!("Kept: suite {from}")), "{}", forgotten.text);
        let rekeyed = node.pgseal(&["rekey", &data]);
        assert_eq!(rekeyed.code, 0, "{}", rekeyed.text);
        assert_ne!(of_status(&node), before);
        let shown = node.pgseal(&["key", "show", &data]).text;
        assert!(!shown.contains("Older"), "{shown}");
        node.start();
        assert_eq!(node.sql(CONTENTS), contents);
        node.stop_sound(MARKER);
    }
}
