//! New file keys while the server runs: under load, interrupted, with damage, and with backups and
//! standbys.

use std::time::Duration;

use pgseal_scenarios::backup::{base_backup, ends_sound, text};
use pgseal_scenarios::files::{flip_bit, page_off};
use pgseal_scenarios::resealing::{create_functions, reseal, start, wait_for_worker};
use pgseal_scenarios::{Keys, Ledger, Node, assert_same_contents};

/// In the table `t`.
const MARKER: &str = "resealed-and-still-secret";

/// A node with a table of 2000 pages and more, with TOAST, maps, indexes, a sequence; and an unlogged
/// table.
fn filled(settings: &[(&str, &str)]) -> Node {
    let mut node = Node::sealed(settings);
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

/// The server is killed while files have two keys. Both keys open their pages, and the next run goes
/// on from there.
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

/// Backups that are made meanwhile are whole. A standby replays the pages under keys of its own, and
/// does not reseal.
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
