//! If the header of a file is damaged, only that file is lost; other files and the server keep
//! working. A sealed server treats such a file as a plain server treats a file with a damaged first
//! page.
//!
//! `damage/cuts.rs` tests files that never reached the disk before a power cut, `damage/standby.rs`
//! tests standbys.

use std::fs;
use std::path::Path;

use pgseal_scenarios::backup::{base_backup, base_backup_command};
use pgseal_scenarios::files::{
    copy_tree, flip_bit, len, page_off, read, replace, restore_tree, truncate, write, zero,
};
use pgseal_scenarios::{Node, programs};
use pgseal_testkit::{Cluster, Sealing};

#[path = "damage/cuts.rs"]
mod cuts;
#[path = "damage/standby.rs"]
mod standby;

/// How a file is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    FlippedBit,
    CutTo100Bytes,
    RandomBytes,
    HeadOfZeros,
    FileOfAnotherCluster,
}

const ALL: [Damage; 5] = [
    Damage::FlippedBit,
    Damage::CutTo100Bytes,
    Damage::RandomBytes,
    Damage::HeadOfZeros,
    Damage::FileOfAnotherCluster,
];

impl Damage {
    fn apply(self, path: &Path, in_other_cluster: &Path) {
        match self {
            // A byte of the file id or, in a plain file, of the header of the first page.
            Damage::FlippedBit => flip_bit(path, 20),
            Damage::CutTo100Bytes => truncate(path, 100),
            Damage::RandomBytes => fs::write(path, noise(len(path))).expect("it can be written"),
            Damage::HeadOfZeros => zero(path, 0, len(path).min(8192)),
            Damage::FileOfAnotherCluster => replace(path, in_other_cluster),
        }
    }
}

/// Bytes that look random and are the same in each run (xorshift).
fn noise(len: u64) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let words = usize::try_from(len).expect("a small file").div_ceil(8);
    std::iter::repeat_with(step).take(words).flatten().take(len as usize).collect()
}

/// The victims: a table or index for each operation on a damaged file, and how its file is found.
const VICTIMS: [(&str, &str); 10] = [
    ("t_select", ""),
    ("t_drop", ""),
    ("t_truncate", ""),
    ("t_full", ""),
    ("i_drop", ""),
    ("i_reindex", ""),
    ("t_vm", "_vm"),
    ("t_fsm", "_fsm"),
    ("t_toast", "toast"),
    ("t_crash", ""),
];

/// The operations on the victims, and whether each has to work although the file is damaged.
const STEPS: [(&str, bool); 14] = [
    ("select count(*), sum(id) from t_select", false),
    ("drop table t_drop", true),
    ("drop index i_drop", true),
    ("reindex index i_reindex", true),
    ("truncate t_truncate", true),
    ("insert into t_truncate values (1, 'anew')", true),
    ("vacuum full t_full", false),
    ("update t_vm set v = v || 'x' where id % 3 = 0", true),
    ("vacuum t_vm", true),
    ("insert into t_fsm select g, repeat('y', 100) from generate_series(1, 500) g", true),
    ("vacuum t_fsm", true),
    ("select sum(length(v)) from t_toast", false),
    ("drop table t_toast", true),
    ("checkpoint", true),
];

const KEEP: &str = "select count(*), sum(hashtext(v)) from keep";

/// A stopped cluster, a copy of it from which each round begins, and the names of the victims'
/// files.
struct Lab {
    node: Node,
    now: std::path::PathBuf,
    files: Vec<String>,
    keep: String,
}

impl Lab {
    fn new(mut node: Node) -> Lab {
        node.start();
        for table in [
            "keep",
            "t_select",
            "t_drop",
            "t_truncate",
            "t_full",
            "t_idx",
            "t_vm",
            "t_fsm",
            "t_crash",
        ] {
            node.sql(&format!(
                "create table {table} (id int, v text);;
                 insert into {table} select g, repeat(md5(g::text), 3) \
                 from generate_series(1, 1500) g"
            ));
        }
        node.sql(
            "create index i_drop on t_idx (id);; create index i_reindex on t_idx (v);;
             create table t_toast (id int, v text);;
             alter table t_toast alter v set storage external;;
             insert into t_toast select g, repeat(md5(g::text), 200) from generate_series(1, 20) g;;
             delete from t_fsm where id % 2 = 0;; vacuum;; checkpoint",
        );
        let files = VICTIMS.iter().map(|(name, fork)| match *fork {
            "toast" => node.sql(
                "select pg_relation_filepath(reltoastrelid) from pg_class \
                 where oid = 't_toast'::regclass",
            ),
            fork => format!("{}{fork}", node.relation(name)),
        });
        let files = files.collect();
        let keep = node.sql(KEEP);
        node.stop();
        let now = node.home().join("now");
        copy_tree(node.data(), &now);
        Lab { node, now, files, keep }
    }

    /// Damages the file of every victim and runs the operations. The rows of `keep` must survive.
    fn try_damage(&mut self, damage: Damage, other: &Path) {
        let node = &mut self.node;
        restore_tree(&self.now, node.data());
        for file in &self.files {
            damage.apply(&node.file(file), &other.join(file));
        }
        node.start();
        backups(node, damage);
        let plain = !node.pgseal_program().is_file();
        for (step, must_work) in STEPS {
            let done = node.try_sql(step);
            assert!(done.is_ok() || !must_work, "{damage:?}: {step}: {done:?}\n{}", node.log());
            // A table without its header must not appear empty. A truncated table does, on a plain
            // server as well.
            let is_silent = damage == Damage::CutTo100Bytes || plain;
            assert!(done.is_err() || must_work || is_silent, "{damage:?}: {step}: {done:?}");
        }
        assert_eq!(node.sql(KEEP), self.keep, "{damage:?}");
        assert_no_panic(node, damage);
        node.stop();

        // Replay of a DROP works, and a dropped table stays dropped.
        node.start();
        node.sql("drop table t_crash");
        node.kill9();
        node.start();
        assert_eq!(node.sql(KEEP), self.keep, "{damage:?}");
        node.sql("insert into keep values (0, 'later');; checkpoint");
        assert_no_panic(node, damage);
        node.stop();
    }
}

fn assert_no_panic(node: &Node, damage: Damage) {
    assert!(!node.log().contains("PANIC"), "{damage:?}\n{}", node.log());
}

/// A base backup that verifies checksums reports the damage; one that does not verify succeeds.
fn backups(node: &Node, damage: Damage) {
    let plain = !node.pgseal_program().is_file();
    for (name, options) in [("unverified", &["--no-verify-checksums"][..]), ("verified", &[])] {
        let target = node.home().join(name);
        let mut command = base_backup_command(node, &target);
        let output = command.args(options).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // A truncated file has no pages. A plain server also accepts pages of another cluster,
        // pages of zeros, and random pages whose LSN is newer than the backup.
        let silent = damage == Damage::CutTo100Bytes || plain && damage != Damage::FlippedBit;
        let wanted = name == "unverified" || silent;
        assert_eq!(output.status.success(), wanted, "{damage:?}: {name}: {said}\n{}", node.log());
        let complains = said.contains("checksum error occurred");
        assert_eq!(complains, !wanted, "{damage:?}: {name}: {said}");
        if target.exists() {
            fs::remove_dir_all(target).expect("it can be removed");
        }
    }
}

#[test]
fn a_damaged_file_costs_that_file_on_a_sealed_server() {
    let mut lab = Lab::new(Node::sealed(&[]));
    let other = Lab::new(Node::sealed(&[]));
    for damage in ALL {
        lab.try_damage(damage, &other.now);
    }
}

/// In XTS, pages are not authenticated, but the headers of files are.
#[test]
fn a_damaged_file_costs_that_file_in_xts() {
    let xts = || {
        let sealing = Sealing { suite: "aes-256-xts".to_owned(), ..Sealing::default() };
        Cluster::builder().sealed(sealing).programs(programs())
    };
    let mut lab = Lab::new(Node::create(xts(), &[]));
    let other = lab.now.clone();
    for damage in [Damage::FlippedBit, Damage::HeadOfZeros] {
        lab.try_damage(damage, &other);
    }
}

/// The control experiment: a plain server does the same.
#[test]
fn a_damaged_file_costs_that_file_on_a_plain_server() {
    let checksums = || Cluster::builder().initdb_option("--data-checksums");
    let mut lab = Lab::new(Node::create(checksums(), &[]));
    let other = Lab::new(Node::create(checksums(), &[]));
    for damage in ALL {
        lab.try_damage(damage, &other.now);
    }
}

/// A damaged statistics file loses the old statistics, but new statistics are kept.
#[test]
fn damaged_statistics_are_replaced() {
    let mut node = Node::sealed(&[]);
    node.start();
    node.sql("create table t (id int);; insert into t select generate_series(1, 100)");
    node.stop();
    const STATISTICS: &str = "pg_stat/pgstat.stat";
    let file = node.file(STATISTICS);
    let good = fs::read(&file).expect("a clean stop writes them");
    for damage in ALL {
        fs::write(&file, &good).expect("it can be written");
        damage.apply(&file, &node.file("global/1262"));
        node.start();
        node.sql("insert into t values (0)");
        node.sql("select pg_stat_force_next_flush()");
        node.stop();
        node.start();
        let count = node.sql("select n_tup_ins from pg_stat_user_tables where relname = 't'");
        assert_eq!(count, "1", "{damage:?}\n{}", node.log());
        node.stop();
        node.assert_authentic();
    }
}

/// The steps of docs/damage.md: find out which table the file belongs to, and restore its header
/// from a raw copy.
#[test]
fn a_head_that_is_put_back_opens_the_file_again() {
    let mut node = Node::sealed(&[]);
    node.start();
    node.sql("create table t (id int, v text);; insert into t select g, 'x' from generate_series(1, 1000) g");
    let file = node.relation("t");
    node.stop();
    let copy = node.home().join("copy");
    copy_tree(node.data(), &copy);
    node.start();
    node.sql("update t set v = 'y' where id = 1;; checkpoint");
    let filenode = file.rsplit('/').next().expect("a name");
    let whose = |number: &str| node.sql(&format!("select pg_filenode_relation(0, {number})"));
    assert_eq!((whose(filenode), whose("99999")), ("t".to_owned(), String::new()));
    node.stop();
    flip_bit(&node.file(&file), 100);
    assert_eq!(node.verify().code, 1);
    write(&node.file(&file), 0, &read(&copy.join(&file), 0, 512));
    node.assert_authentic();
    node.start();
    assert_eq!(node.sql("select count(*), min(v), max(v) from t"), "1000|x|y");
    node.stop();
}

/// The log and `pgseal verify` name the table or index that a damaged file belongs to, and for an
/// index the command that makes it anew.
#[test]
fn messages_name_the_relation_and_the_next_command() {
    let mut node = Node::sealed(&[]);
    node.start();
    node.sql(
        "create schema \"Sales\";;
         create table \"Sales\".orders (id int primary key, v text);;
         alter table \"Sales\".orders alter v set storage external;;
         insert into \"Sales\".orders select g, repeat(md5(g::text), 100) from generate_series(1, 2000) g;;
         alter index \"Sales\".orders_pkey rename to \"Key\";; checkpoint",
    );
    let database = node.sql("select current_database()");
    let file = |sql: &str| node.sql(&format!("select pg_relation_filepath(({sql})::oid)"));
    let toast = "select reltoastrelid from pg_class where relname = 'orders'";
    let (table, index, toast) =
        (node.relation("\"Sales\".orders"), node.relation("\"Sales\".\"Key\""), file(toast));
    node.kill9();
    // After a crash each page is judged by itself.
    // Of the index not the metapage, which the planner reads for every query.
    let named = [
        (&table, 0, format!("table \"Sales\".orders of database {database}")),
        (&index, 1, format!("index \"Sales\".\"Key\" of database {database}")),
        (&toast, 200, format!("TOAST of table \"Sales\".orders of database {database}")),
    ];
    for (file, block, _) in &named {
        flip_bit(&node.file(file), page_off(*block) + 4000);
    }
    let verify = node.verify().text;
    for (file, _, name) in &named {
        let line = verify.lines().find(|line| line.starts_with(&format!("FAILED  {file}: ")));
        assert!(line.is_some_and(|line| line.contains(&format!("belongs to {name}"))), "{verify}");
    }
    let remedy = "REINDEX INDEX \"Sales\".\"Key\"";
    assert!(verify.contains(remedy), "{verify}");

    node.start();
    for sql in [
        "select count(v) from \"Sales\".orders",
        "set enable_seqscan = off;; set enable_bitmapscan = off;; \
         select id from \"Sales\".orders where id = 1",
        "set enable_seqscan = off;; select sum(length(v)) from \"Sales\".orders where id > 370",
    ] {
        node.try_sql(sql).expect_err(sql);
    }
    let log = node.log();
    for (file, block, name) in &named {
        let wanted = format!("ERROR: block {block} of \"{file}\" ({name}) does not authenticate");
        assert!(log.contains(&wanted), "{wanted}\n{log}");
    }
    assert!(log.contains(&format!("make it anew with: {remedy}")), "{log}");
    // The index can be made anew only of a table that can be read.
    node.sql("set zero_damaged_pages = on;; select count(v) from \"Sales\".orders");
    node.sql(&format!("set zero_damaged_pages = on;; {remedy}"));
    let by_index = "set enable_seqscan = off;; select id from \"Sales\".orders where id = 2000";
    assert_eq!(node.sql(by_index), "2000");
    node.stop();
}

/// A header is damaged while the server has pages of the file in its buffers. The server cannot
/// write these pages until the table is dropped or recovery has run. No commit in another table is
/// lost.
#[test]
fn a_header_damaged_under_a_running_server() {
    let mut node = Node::sealed(&[("checkpoint_timeout", "1d")]);
    node.start();
    for table in ["keep", "dropped", "recovered"] {
        node.sql(&format!(
            "create table {table} (id int, v text);;
             insert into {table} select g, repeat(md5(g::text), 3) from generate_series(1, 1500) g;;
             vacuum (freeze) {table}"
        ));
    }
    node.sql("checkpoint");
    for table in ["dropped", "recovered"] {
        node.sql(&format!("update {table} set v = 'new' where id <= 20"));
        flip_bit(&node.file(&node.relation(table)), 20);
    }
    node.sql("insert into keep values (0, 'late')");
    let truth = node.sql(KEEP);
    let error = node.try_sql("checkpoint").expect_err("pages of two tables cannot be written");
    assert!(error.contains("checkpoint request failed"), "{error}");
    node.sql("drop table dropped");
    node.stop_at_once();
    node.start();
    node.sql("checkpoint");
    assert_eq!(node.sql(KEEP), truth);
    // The page whose image is in the WAL is restored. The other pages are lost, and reading them
    // fails.
    assert_eq!(node.sql("select v from recovered where ctid = '(0,30)'").len(), 96);
    let error = node.try_sql("select count(*) from recovered").expect_err("its pages are lost");
    assert!(error.contains("invalid page in block"), "{error}");
    node.sql("drop table recovered;; checkpoint");
    assert!(!node.log().contains("PANIC"), "{}", node.log());
    node.stop();
    node.assert_authentic();
}

/// A power cut in a shutdown leaves `pg_stat/pgstat.tmp` torn: PostgreSQL writes that file and does
/// not sync it. Nobody reads the file but a base backup, which must not fail.
#[test]
fn a_torn_temporary_file_does_not_stop_a_base_backup() {
    let mut node = Node::sealed(&[("max_wal_senders", "4")]);
    node.start();
    node.stop();
    let whole = fs::read(node.file("pg_stat/pgstat.stat")).unwrap();
    assert!(whole.len() > 8292, "{} bytes", whole.len());
    let mut without_header = whole.clone();
    without_header[..512].fill(0);
    node.start();
    for torn in [&whole[..whole.len() - 100], &without_header] {
        node.stop_at_once();
        fs::write(node.file("pg_stat/pgstat.tmp"), torn).unwrap();
        node.clear_log();
        node.start();
        let removed = "\"pg_stat/pgstat.tmp\" removed: a crash cut off the program that wrote it";
        assert!(node.log().contains(removed), "{}", node.log());
        assert!(!node.file("pg_stat/pgstat.tmp").exists());
        fs::remove_dir_all(base_backup(&node, "backup", &[])).unwrap();
    }
    // What is whole stays, and after a clean shutdown nothing is looked at.
    node.stop();
    fs::write(node.file("pg_stat/pgstat.tmp"), &without_header).unwrap();
    node.clear_log();
    node.start();
    assert!(node.file("pg_stat/pgstat.tmp").exists() && !node.log().contains("removed"));
}
