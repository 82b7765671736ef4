//! New file keys while the server runs: under load, interrupted, with damage, and with backups and
//! standbys.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pgseal_cluster::Patience;
use pgseal_core::header::Stage;
use pgseal_scenarios::backup::{base_backup, ends_sound, text};
use pgseal_scenarios::files::{flip_bit, names_in, page_off};
use pgseal_scenarios::resealing::{
    add_samples, create_functions, create_functions_in, header_of, reseal, start, wait_for_worker,
};
use pgseal_scenarios::{Keys, Ledger, Node, assert_same_contents};

/// In the table `t`.
const MARKER: &str = "resealed-and-still-secret";

/// A node with a table of 2000 pages and more, with TOAST, maps, indexes, a sequence; and an
/// unlogged table.
fn filled(settings: &[(&str, &str)]) -> Node {
    // A test that wants the server to reseal by itself says so.
    let settings = [&[("pgseal.auto_reseal", "off")][..], settings].concat();
    let mut node = Node::sealed(&settings);
    node.start();
    node.sql(&format!(
        "create extension amcheck;;
         create table t (id serial primary key, v text, big text);;
         alter table t alter big set storage external;;
         insert into t (v, big) select '{MARKER}' || g || repeat('x', 300),
           case when g % 100 = 0 then repeat('{MARKER}', 150) end
           from generate_series(1, 40000) g;;
         create index on t using hash (v);; create index on t using gin (to_tsvector('simple', v));;
         create unlogged table u as select * from t where id < 5000;;
         create materialized view m as select * from t where id < 3000;; vacuum t, u, m"
    ));
    create_functions(&node);
    node.sql("checkpoint");
    node
}

const CONTENTS: &str =
    "select md5(string_agg(id || v || coalesce(big, ''), ',' order by id)) from t";

/// The keys of all files of a relation, each once.
fn keys_of(node: &Node, relation: &str) -> String {
    node.sql(&format!(
        "select string_agg(distinct file_key || case when resealing then '+' else '' end, ' ')
         from file_keys('{relation}')"
    ))
}

/// What `pgseal inspect` says of the main file of a relation.
fn inspected(node: &Node, relation: &str) -> String {
    let path = node.data().join(node.relation(relation));
    node.pgseal(&["inspect", &text(&path)]).text
}

/// A relation and then a whole database under load, with sessions that had the files open before.
#[test]
fn new_file_keys_under_load() {
    let mut node = filled(&[("shared_buffers", "4MB")]);
    let contents = node.sql(CONTENTS);
    let mut old_session = node.session();
    old_session.sql("select count(*), count(big) from t");
    let mut ledger = Ledger::create(&node, 3);
    ledger.start(&node);
    for number in 2..5 {
        reseal(&node, "'t', 0, false");
        assert!(!node.log().contains("that keep two keys"), "{}", node.log());
        assert_eq!(keys_of(&node, "t"), number.to_string());
        assert_eq!(keys_of(&node, "t_pkey"), number.to_string());
        assert_eq!(keys_of(&node, "t_v_idx"), number.to_string());
        assert_eq!(keys_of(&node, "u"), "1");
        let said = inspected(&node, "t");
        assert!(said.contains(&format!("File key     {number}\n")), "{said}");
        assert_eq!(node.sql(CONTENTS), contents);
        old_session.sql("update t set v = v where id % 50 = 0");
        assert_eq!(old_session.sql(CONTENTS).trim(), contents);
    }
    // The sequence belongs to the column, and is a relation of its own.
    assert_eq!(keys_of(&node, "t_id_seq"), "1");
    reseal(&node, "null, 0, false");
    ledger.write_for(Duration::from_millis(500));
    assert_eq!(node.sql("select count(*) from progress"), "0");
    assert_eq!((keys_of(&node, "t"), keys_of(&node, "u")), ("5".to_owned(), "2".to_owned()));
    assert_eq!(keys_of(&node, "pg_class"), "2");
    assert_eq!(keys_of(&node, "pg_authid"), "2");
    ledger.join();
    ledger.check(&node);
    assert_eq!(node.sql(CONTENTS), contents);
    node.amcheck();
    node.assert_authentic();
    node.kill9();
    node.start();
    ledger.check(&node);
    assert_eq!(node.sql(CONTENTS), contents);
    node.stop();
    node.start();
    assert_eq!(node.sql(CONTENTS), contents);
    node.stop_sound(MARKER);
}

/// The server is killed while files have two keys. Both keys open their pages, and the next run
/// goes on from there.
#[test]
fn a_resealing_that_is_cut_off() {
    let mut node = filled(&[("shared_buffers", "4MB"), ("checkpoint_timeout", "30s")]);
    let contents = node.sql(CONTENTS);
    let mut ledger = Ledger::create(&node, 2);
    for round in 0..4 {
        ledger.start(&node);
        start(&node, "'t', 50, false");
        // The older key opens pages of the table, and the newer one, too.
        node.wait_until(
            "select pages_left > 0 and pages_done > 0 from file_keys('t') where fork = 'main'",
        );
        ledger.write_for(Duration::from_millis(200 * round));
        if round == 1 {
            // The data keys are renewed meanwhile, and both file keys are wrapped anew.
            let done = node.pgseal(&["key", "renew", &text(node.data())]);
            assert_eq!(done.code, 0, "{}", done.text);
        }
        node.kill9();
        ledger.join();
        node.start();
        ledger.check(&node);
        assert_eq!(node.sql(CONTENTS), contents);
        node.assert_authentic();
    }
    assert_eq!(node.sql("select bool_or(pages_left > 0) from progress"), "t");
    assert!(inspected(&node, "t").contains(", and the one before it"), "{}", inspected(&node, "t"));
    // A directory with two keys is stopped and started like any other, and the tools know it.
    node.stop();
    node.assert_authentic();
    node.start();
    reseal(&node, "null, 0, true");
    assert_eq!(node.sql("select count(*) from progress"), "0");
    assert!(!inspected(&node, "t").contains("the one before it"), "{}", inspected(&node, "t"));
    ledger.check(&node);
    assert_eq!(node.sql(CONTENTS), contents);
    node.amcheck();
    node.stop_sound(MARKER);
}

/// A page that does not open keeps the older key, and the log says which file. The other files get
/// new keys.
#[test]
fn a_damaged_page_keeps_the_older_key() {
    let mut node = filled(&[]);
    let path = node.data().join(node.relation("t"));
    node.stop();
    flip_bit(&path, page_off(7) + 4000);
    node.set_env("PGSEAL_MANIFEST", "ignore");
    node.start();
    reseal(&node, "'t', 0, false");
    let log = node.log();
    assert!(log.contains("files that keep two keys, or their old one: 1;"), "{log}");
    assert!(log.contains("block 7"), "{log}");
    assert_eq!(keys_of(&node, "t_pkey"), "2");
    assert!(keys_of(&node, "t").contains("2+"), "{}", keys_of(&node, "t"));
    // It stays so until the page is mended: here by throwing it away.
    reseal(&node, "'t', 0, true");
    assert!(keys_of(&node, "t").contains("2+"), "{}", keys_of(&node, "t"));
    node.sql(
        "set zero_damaged_pages = on;; create table t2 as select * from t;; drop table t cascade",
    );
    reseal(&node, "'t2', 0, false");
    assert_eq!(keys_of(&node, "t2"), "2");
    node.stop_sound(MARKER);
}

/// Backups that are made meanwhile are whole. A standby replays the pages under keys of its own,
/// and does not reseal.
#[test]
fn backups_and_standbys_during_a_resealing() {
    let mut node = filled(&[("wal_level", "replica"), ("max_wal_senders", "8")]);
    let mut standby = node.standby(&node, "standby", Keys::Own("aes-256-gcm"));
    standby.start();
    start(&node, "null, 3000, false");
    let backups: Vec<_> = (0..2)
        .map(|number| base_backup(&node, &format!("during{number}"), &["-X", "stream"]))
        .collect();
    wait_for_worker(&node);
    assert_eq!(keys_of(&node, "t"), "2");
    standby.catch_up(&node);
    assert_same_contents(&node, &[&standby]);
    assert_eq!(keys_of(&standby, "t"), "1");
    let refused = standby.try_sql("select reseal('t', 0, false)").expect_err("it is a standby");
    assert!(refused.contains("a standby cannot give its files new keys"), "{refused}");
    for dir in &backups {
        let outcome = node.verify_dir(dir);
        assert_eq!(outcome.code, 0, "{}", outcome.text);
    }
    let contents = node.sql(CONTENTS);
    standby.stop_sound(MARKER);
    node.stop_sound(MARKER);
    let mut restored = Node::at(&node, &backups[1]);
    restored.start();
    assert_eq!(restored.sql(CONTENTS), contents);
    ends_sound(restored);
}

/// Lets the server look at once what it would look at in a minute.
fn wake(node: &Node) {
    node.sql("select pg_reload_conf()");
}

/// A restart or a crash interrupts a resealing, and the server goes on by itself, in a database in
/// which nobody is, and with the files that all databases share.
#[test]
fn the_server_goes_on_by_itself() {
    let mut node = filled(&[("pgseal.auto_reseal", "begun"), ("shared_buffers", "4MB")]);
    let contents = node.sql(CONTENTS);
    node.sql("create database other");
    let in_other = |sql: &str| node.sql_in("other", sql);
    in_other("create table big as select g, repeat('y', 500) v from generate_series(1, 20000) g");
    create_functions_in(&node, "other");
    let other = node.data().join(in_other("select pg_relation_filepath('big')"));
    let shared = node.data().join(node.relation("pg_authid"));
    for round in 1..3 {
        start(&node, "'t', 50, false");
        start(&node, "'pg_authid', 1, false");
        node.sql_in("other", "select reseal('big', 50, false)");
        node.wait_until(
            "select pages_left > 0 and pages_done > 0 from file_keys('t') where fork = 'main'",
        );
        match round {
            1 => node.stop(),
            _ => node.kill9(),
        }
        assert_eq!(header_of(&other).key_number, 1 + round);
        assert_ne!(header_of(&other).stage, Stage::Settled);
        node.start();
        node.wait_until("select count(*) = 0 from progress");
        wait_for_worker(&node);
        for path in [&other, &node.data().join(node.relation("t")), &shared] {
            // One database after the other: the worker of the next one may not have begun yet.
            let settled = || header_of(path).stage == Stage::Settled;
            assert!(Patience::seconds(60).wait_until(settled), "{}", path.display());
        }
        assert_eq!(header_of(&other).key_number, 1 + round);
        assert_eq!(node.sql(CONTENTS), contents);
    }
    // Nothing but what had begun.
    assert_eq!(keys_of(&node, "m"), "1");
    assert!(node.log().contains("get new keys"), "{}", node.log());
    // Without the setting, files keep two keys; a reload with it is enough.
    node.sql("alter system set pgseal.auto_reseal = off");
    wake(&node);
    start(&node, "'t', 50, false");
    node.wait_until(
        "select pages_left > 0 and pages_done > 0 from file_keys('t') where fork = 'main'",
    );
    node.stop();
    node.start();
    std::thread::sleep(Duration::from_secs(2));
    assert_ne!(node.sql("select count(*) from progress"), "0");
    node.sql("alter system reset pgseal.auto_reseal");
    wake(&node);
    node.wait_until("select count(*) = 0 from progress");
    wait_for_worker(&node);
    assert_eq!(node.sql(CONTENTS), contents);
    node.amcheck();
    node.stop_sound(MARKER);
}

/// Writes the pages of the table `w` until a sample was counted.
fn write_until_counted(node: &Node, until: impl Fn() -> bool) {
    let mut rounds = 0..1500;
    while !until() {
        assert!(rounds.next().is_some(), "no sample in 1500 times 1500 writes");
        node.sql("update w set n = n + 1;; checkpoint");
    }
}

/// Writes are counted; at half of the limit the log warns once, and the server gives the file
/// another key.
#[test]
fn a_key_that_is_used_up_is_replaced() {
    let mut node = filled(&[("fsync", "off"), ("max_wal_size", "2GB")]);
    // A page for each row.
    node.sql(
        "create table w (n int, fill text) with (fillfactor = 10);;
         alter table w alter fill set storage plain;;
         insert into w select 0, repeat('w', 700) from generate_series(1, 1500)",
    );
    let path = node.data().join(node.relation("w"));
    write_until_counted(&node, || header_of(&path).samples > 0);
    let counted = header_of(&path);
    assert_eq!((counted.key_number, counted.stage), (1, Stage::Settled));
    assert!(counted.samples < 20, "{} samples", counted.samples);
    let writes = || node.sql("select writes from file_keys('w') where fork = 'main'");
    assert_eq!(writes(), counted.writes().to_string());
    // It outlives a renewal of the data key, a restart, and a crash.
    let data = text(node.data());
    assert_eq!(node.pgseal(&["key", "renew", &data]).code, 0);
    assert_eq!(header_of(&path).samples, counted.samples);
    node.stop();
    node.start();
    node.kill9();
    node.start();
    assert!(header_of(&path).samples >= counted.samples);

    // One sample before half of the limit.
    node.sql("update w set n = n + 1;; checkpoint");
    let due = 1 << 15;
    add_samples(&node, &path, due - 1 - header_of(&path).samples);
    node.clear_log();
    write_until_counted(&node, || header_of(&path).samples >= due);
    write_until_counted(&node, || header_of(&path).samples > due);
    let log = node.log();
    let warning = "half of the limit of 2^32; the server gives it a new one if pgseal.auto_reseal";
    assert_eq!(log.matches(warning).count(), 1, "{log}");
    assert!(log.contains("(table public.w of database"), "{log}");
    let bindir = text(node.bindir());
    let doctor = node.pgseal(&["doctor", &data, "--bindir", &bindir]).text;
    let line = doctor.lines().find(|line| line.contains(" file-keys "));
    assert!(line.is_some_and(|line| line.starts_with("WARN")), "{doctor}");
    let status = node.pgseal(&["status", &data]).text;
    assert!(status.contains("Most used key: that of base/"), "{status}");
    let metrics = node.pgseal(&["status", "--prometheus", "--files", &data]).text;
    let line = metrics.lines().find(|line| line.starts_with("pgseal_file_key_writes_max{"));
    let value = line.and_then(|line| line.rsplit(' ').next()).and_then(|n| n.parse::<u64>().ok());
    assert!(value.is_some_and(|value| value > 1 << 31), "{metrics}");

    // The other files are left alone.
    let others = keys_of(&node, "t");
    node.sql("alter system set pgseal.auto_reseal = on");
    wake(&node);
    node.wait_until(
        "select file_key = 2 and not resealing from file_keys('w') where fork = 'main'",
    );
    wait_for_worker(&node);
    // Of the 1500 writes with the new key, some may be samples by chance.
    assert!(header_of(&path).samples < 20);
    assert_eq!(keys_of(&node, "t"), others);
    // And while the server runs on: the next file that comes there.
    node.sql("update w set n = n + 1;; checkpoint");
    add_samples(&node, &path, due - 1 - header_of(&path).samples);
    write_until_counted(&node, || header_of(&path).samples >= due);
    wake(&node);
    node.wait_until(
        "select file_key = 3 and not resealing from file_keys('w') where fork = 'main'",
    );
    wait_for_worker(&node);
    assert_eq!(node.sql("select count(*), min(length(fill)) from w"), "1500|700");
    node.stop_sound(MARKER);
}

/// PostgreSQL makes a new file in the place of a segment of WAL whose keys are used up.
#[test]
fn wal_with_used_up_keys_is_not_used_again() {
    let mut node = filled(&[("min_wal_size", "96MB"), ("max_wal_size", "128MB")]);
    let wal = node.data().join("pg_wal");
    let segments = || {
        let names = names_in(&wal).into_iter();
        let is_segment = |name: &String| name.len() == 24 && !name.contains('.');
        names.filter(is_segment).map(|name| wal.join(name)).collect::<Vec<_>>()
    };
    let current = wal.join(node.sql("select pg_walfile_name(pg_current_wal_lsn())"));
    add_samples(&node, &current, 40_000);
    let worn = header_of(&current).file_id;
    let has_worn = || segments().iter().any(|path| header_of(path).file_id == worn);
    assert!(has_worn());
    let mut names: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for _ in 0..24 {
        node.sql("insert into t (v) values ('wal');; select pg_switch_wal();; checkpoint");
        for path in segments() {
            names.entry(header_of(&path).file_id).or_default().insert(path);
        }
    }
    assert!(!has_worn());
    let log = node.log();
    assert!(log.contains("makes a new one with new keys"), "{log}");
    // Others are used again, with their keys.
    assert!(names.iter().any(|(id, names)| *id != worn && names.len() > 1), "{}", names.len());
    assert!(names.get(&worn).is_none_or(|names| names.len() == 1));
    node.kill9();
    node.start();
    node.stop_sound(MARKER);
}

/// `pgseal reseal` drives the running server.
#[test]
fn the_command() {
    let mut node = filled(&[]);
    let data = text(node.data());
    let (host, port) = (node.sql("show unix_socket_directories"), node.port().to_string());
    let run = |node: &Node, more: &[&str]| {
        let at = ["reseal", &data, "--host", &host, "--port", &port, "-U", "postgres"];
        node.pgseal(&[&at[..], more].concat())
    };
    let database = node.sql("select current_database()");
    let done =
        run(&node, &["-d", &database, "-r", "t", "-r", "public.m", "--pages-per-second", "0"]);
    assert_eq!((done.code, done.text.contains(": done")), (0, true), "{}", done.text);
    let keys = ["t", "m", "u"].map(|name| keys_of(&node, name));
    assert_eq!(keys, ["2", "2", "1"]);
    // All databases.
    let done = run(&node, &["--json"]);
    assert_eq!(done.code, 0, "{}", done.text);
    assert!(done.text.contains("\"database\": \"template1\""), "{}", done.text);
    assert!(done.text.contains("\"failed\": 0"), "{}", done.text);
    assert_eq!(keys_of(&node, "u"), "2");
    // In the background, and its state.
    let slow = ["-d", &database, "-r", "t", "--pages-per-second", "50", "--no-wait"];
    let begun = run(&node, &slow);
    assert!(begun.code == 0 && begun.text.contains("is at work"), "{}", begun.text);
    node.wait_until("select pages_done > 0 from file_keys('t') where fork = 'main'");
    let state = run(&node, &["--status", "-d", &database]);
    assert_eq!(state.code, 1, "{}", state.text);
    assert!(state.text.contains("t, main, segment 0: key 4 and the one before"), "{}", state.text);
    assert!(state.text.contains("1 worker of the server"), "{}", state.text);
    // Stopped by hand, and gone on with.
    node.sql("select pg_terminate_backend(pid) from pg_stat_activity where backend_type = 'pgseal reseal'");
    let state = run(&node, &["--status", "--wait", "-d", &database]);
    assert!(state.code == 1 && state.text.contains("--begun"), "{}", state.text);
    let done = run(&node, &["--begun", "--pages-per-second", "0"]);
    assert_eq!(done.code, 0, "{}", done.text);
    // Its indexes had not begun.
    let keys = || (keys_of(&node, "t"), keys_of(&node, "t_pkey"), keys_of(&node, "u"));
    let before = keys();
    assert!(before.0.contains('4') && !before.0.contains('+'), "{before:?}");
    assert_eq!((&before.1[..], &before.2[..]), ("3", "2"));
    // A key that is used up.
    node.sql("update u set v = v;; checkpoint");
    add_samples(&node, &node.data().join(node.relation("u")), 50_000);
    let state = run(&node, &["--status"]);
    assert!(state.code == 0 && state.text.contains("u, main, segment 0"), "{}", state.text);
    assert_eq!(run(&node, &["--due"]).code, 0);
    assert_eq!((keys().0, keys().1), (before.0, before.1));
    assert!(keys().2.contains('3'), "{:?}", keys());
    // A file that cannot get a new key.
    let wrong = run(&node, &["-d", &database, "-r", "no_such"]);
    assert!(wrong.code == 22 && wrong.text.contains("no_such"), "{}", wrong.text);
    // The server of another directory.
    let mut other = Node::sealed(&[]);
    other.start();
    let there = text(other.data());
    let wrong =
        node.pgseal(&["reseal", &there, "--host", &host, "--port", &port, "-U", "postgres"]);
    assert!(wrong.code == 22 && wrong.text.contains("of another data directory"), "{}", wrong.text);
    other.stop();
    node.stop();
    let stopped = run(&node, &[]);
    assert!(stopped.code == 22 && stopped.text.contains("pgseal rekey"), "{}", stopped.text);
    node.start();
    node.stop_sound(MARKER);
}
