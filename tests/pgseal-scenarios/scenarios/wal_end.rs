//! The end of the WAL (`spec/control.md`): a recovery that ends before acknowledged commits is
//! refused, whatever happened to the WAL, and no other recovery is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pgseal_pgdata::{WalPosition, WalSegment};
use pgseal_scenarios::files::{
    copy_tree, flip_bit, read, replace, restore_tree, truncate, wal_off, write, zero,
};
use pgseal_scenarios::{Keys, Node, Outcome};
use pgseal_testkit::{Cluster, Sealing};

/// A server that was killed after commits; none of them is in a checkpoint.
struct Killed {
    node: Node,
    /// The position behind the last commit.
    end: u64,
    /// The data directory as the kill left it.
    kept: PathBuf,
    /// A copy of the last segment from before the last commits.
    older: PathBuf,
    /// The control record of that moment.
    older_record: PathBuf,
}

const ROWS: usize = 40;
/// What the scenarios' clusters are made with (`initdb --wal-segsize`).
const SEGMENT_BYTES: u64 = 1 << 20;
const RECORD: &str = "pgseal/control";

impl Killed {
    fn new(settings: &[(&str, &str)]) -> Killed {
        // The clusters of other tests have it off.
        let mut node = Node::sealed(&[&[("fsync", "on")], settings].concat());
        node.start();
        // What the tests change lies in one segment, of which the rows fill some pages.
        node.sql(
            "create extension amcheck;; create table t (id int, v text);; checkpoint;;
             select pg_switch_wal()",
        );
        let segment = |node: &Node| {
            node.sql("select 'pg_wal/' || pg_walfile_name(pg_current_wal_insert_lsn())")
        };
        let (mut older, mut older_record) = (PathBuf::new(), PathBuf::new());
        for id in 1..=ROWS {
            if id == ROWS / 2 {
                older = node.home().join("older");
                fs::copy(node.file(&segment(&node)), &older).expect("it can be copied");
                older_record = node.home().join("older-record");
                fs::copy(node.file(RECORD), &older_record).expect("it can be copied");
            }
            node.sql(&format!("insert into t values ({id}, repeat('w', 300))"));
        }
        let end = lsn(&node.sql("select pg_current_wal_flush_lsn()"));
        assert!((end - 1) % SEGMENT_BYTES / 8192 >= 2, "the tests change three pages");
        node.kill9();
        let kept = node.home().join("kept");
        copy_tree(node.data(), &kept);
        Killed { node, end, kept, older, older_record }
    }

    /// The segment with this position, and the offset of the position in the file on disk.
    fn at(&self, position: u64) -> (PathBuf, u64) {
        (segment_at(&self.node, position), wal_off(position % SEGMENT_BYTES))
    }

    fn status(&self) -> Outcome {
        wal(&self.node, &["status"])
    }

    fn has_all_rows(&self) -> bool {
        self.node.sql("select count(*) from t") == ROWS.to_string()
    }
}

fn wal(node: &Node, task: &[&str]) -> Outcome {
    let data = node.data().display().to_string();
    node.pgseal(&[&["wal"], task, &[&data]].concat())
}

fn lsn(text: &str) -> u64 {
    WalPosition::parse(text).expect("a position").0
}

/// The segment of the first timeline that has this position.
fn segment_at(node: &Node, position: u64) -> PathBuf {
    node.file(&format!("pg_wal/{}", WalSegment::at(1, position, SEGMENT_BYTES)))
}

#[test]
fn damaged_wal_does_not_end_recovery_in_silence() {
    let mut lab = Killed::new(&[]);
    assert!(lab.status().text.contains(&format!("reach {} ", WalPosition(lab.end))));
    let (last, last_off) = lab.at(lab.end - 1);
    let (_, page_off) = lab.at((lab.end - 1) & !8191);
    let older = lab.older.clone();
    type Change<'a> = (&'a str, Box<dyn Fn(&Path) + 'a>);
    let changes: [Change<'_>; 7] = [
        ("one bit of the last commit", Box::new(|path| flip_bit(path, last_off - 3))),
        ("the last page zeroed", Box::new(|path| zero(path, page_off, 8192))),
        ("the page before zeroed", Box::new(|path| zero(path, page_off - 8192, 8192))),
        (
            "two pages swapped",
            Box::new(|path| {
                let (a, b) = (read(path, page_off, 8192), read(path, page_off - 8192, 8192));
                write(path, page_off, &b);
                write(path, page_off - 8192, &a);
            }),
        ),
        ("an older copy of the segment", Box::new(|path| replace(path, &older))),
        ("cut", Box::new(|path| truncate(path, page_off - 8192))),
        (
            "an older copy of one page",
            Box::new(|path| write(path, page_off, &read(&older, page_off, 8192))),
        ),
    ];
    for (name, change) in changes {
        restore_tree(&lab.kept, lab.node.data());
        change(&last);
        let log = lab.node.try_start().expect_err(name);
        assert!(log.contains("recovery ended at"), "{name}: {log}");
        // Nothing was overwritten: with the right segment, every row is there.
        let file = last.file_name().expect("a name");
        replace(&last, &lab.kept.join("pg_wal").join(file));
        lab.node.start();
        assert!(lab.has_all_rows(), "{name}");
        lab.node.stop_at_once();
    }
}

/// A power cut leaves an older control record. Then the flush records beside the pages say how far
/// the WAL was, but for what was synced since the last page was begun.
#[test]
fn the_wal_itself_says_how_far_it_was() {
    let mut lab = Killed::new(&[]);
    let (last, page_off) = lab.at((lab.end - 1) & !8191);
    let file = last.file_name().expect("a name").to_owned();
    type Change = fn(&Path, u64);
    let changes: [(&str, Change, bool); 4] = [
        ("untouched", |_, _| {}, false),
        ("a page whose commits were acknowledged", |path, off| flip_bit(path, off - 4000), true),
        ("an older page", |path, off| zero(path, off - 8192, 8192), true),
        ("a header of a page", |path, off| flip_bit(path, off - 8192 + 1), true),
    ];
    for (name, change, is_refused) in changes {
        restore_tree(&lab.kept, lab.node.data());
        replace(&lab.node.file(RECORD), &lab.older_record);
        change(&last, page_off);
        let started = lab.node.try_start();
        let log = started.as_ref().err().cloned().unwrap_or_default();
        assert_eq!(log.contains("recovery ended at"), is_refused, "{name}: {log}");
        if is_refused {
            replace(&last, &lab.kept.join("pg_wal").join(&file));
            lab.node.start();
        }
        assert!(lab.has_all_rows(), "{name}");
        lab.node.stop_at_once();
    }
}

/// A page whose content still makes sense to PostgreSQL is not read either, if it is not the page
/// that was written.
#[test]
fn a_page_below_the_position_must_be_the_one_that_was_written() {
    let mut lab = Killed::new(&[]);
    let (last, page_off) = lab.at((lab.end - 1) & !8191);
    // The entry of the page before the last one: any bit of it.
    let page = (page_off - wal_off(0)) / 8192 - 1;
    let entry = 8192 + page / 16 * 512 + page % 16 * 28;
    flip_bit(&last, entry + 20);
    let log = lab.node.try_start().expect_err("the page has no MAC that fits");
    assert!(log.contains("restore this segment from the archive"), "{log}");
    assert!(log.contains("recovery ended at"), "{log}");
}

#[test]
fn nothing_is_refused_that_was_not_touched_and_a_loss_can_be_accepted() {
    let mut lab = Killed::new(&[]);
    lab.node.start();
    assert!(lab.has_all_rows());
    lab.node.stop();
    assert_eq!(lab.status().code, 0, "{}", lab.status().text);

    restore_tree(&lab.kept, lab.node.data());
    let (last, last_off) = lab.at(lab.end - 1);
    flip_bit(&last, last_off - 3);
    let log = lab.node.try_start().expect_err("the last commit is damaged");
    let advice = log.split("--lose-after ").nth(1).expect("the log has the command");
    let after = advice.split('"').next().expect("a position").to_owned();
    let done = wal(&lab.node, &["accept", "--lose-after", &after]);
    assert_eq!(done.code, 0, "{}", done.text);
    lab.node.start();
    assert_eq!(lab.node.sql("select count(*) from t"), (ROWS - 1).to_string());
    lab.node.sql("insert into t values (0, 'after the loss')");
    lab.node.kill9();
    lab.node.start();
    assert_eq!(lab.node.sql("select count(*) from t"), ROWS.to_string());
    lab.node.stop_sound("wwwwwwwwwwwwwwwwwwwwwwwwwwwwww");
}

/// Whatever makes PostgreSQL sync its WAL, the position is known before the client is.
#[test]
fn the_position_is_exact_with_each_wal_sync_method() {
    for method in ["fdatasync", "fsync", "open_datasync", "open_sync"] {
        let lab = Killed::new(&[("wal_sync_method", method)]);
        let wanted = format!("reach {} ", WalPosition(lab.end));
        assert!(lab.status().text.contains(&wanted), "{method}: {wanted}: {}", lab.status().text);
    }
    let mut lab = Killed::new(&[("fsync", "off")]);
    assert!(lab.node.log().contains("fsync is off"), "{}", lab.node.log());
    assert!(lab.status().text.contains("No position"), "{}", lab.status().text);
    lab.node.start();
    assert!(lab.has_all_rows());
}

/// The record is mapped into each process. Whoever cuts the file ends no process, and the position
/// is recorded again from then on.
#[test]
fn a_record_that_is_cut_under_a_running_server_is_written_again() {
    let mut node = Node::sealed(&[("fsync", "on"), ("checkpoint_timeout", "1d")]);
    node.start();
    node.sql("create table t (id int)");
    let mut session = node.session();
    session.sql("insert into t values (1);");
    truncate(&node.file(RECORD), 0);
    session.sql("insert into t values (2);");
    node.sql("checkpoint");
    session.sql("insert into t values (3);");
    node.sql("insert into t values (4)");
    let end = lsn(&node.sql("select pg_current_wal_flush_lsn()"));
    node.kill9();
    let recorded = wal(&node, &["status"]);
    assert!(recorded.text.contains(&format!("reach {} ", WalPosition(end))), "{}", recorded.text);
    node.start();
    assert_eq!(node.sql("select count(*) from t"), "4");
}

#[test]
fn segments_of_other_sizes_are_known() {
    for megabytes in [16, 64] {
        let builder =
            Cluster::builder().sealed(Sealing::default()).programs(pgseal_scenarios::programs());
        let mut node = Node::with_segments(
            builder,
            megabytes,
            &[("fsync", "on"), ("min_wal_size", "256MB"), ("max_wal_size", "1GB")],
        );
        node.start();
        node.sql("create table t as select 1 as v");
        node.sql("select pg_switch_wal()");
        node.sql("insert into t values (2)");
        let name = node.sql("select pg_walfile_name(pg_current_wal_flush_lsn())");
        node.kill9();
        let status = wal(&node, &["status"]);
        assert!(status.text.contains(&name), "{megabytes} MB: {name}: {}", status.text);
        fs::remove_file(node.file(&format!("pg_wal/{name}"))).expect("it is there");
        let log = node.try_start().expect_err("the newest segment is gone");
        assert!(log.contains("recovery ended at") && log.contains(&name), "{megabytes}: {log}");
    }
}

/// A standby whose own WAL is damaged receives it anew, and goes on.
#[test]
fn a_standby_with_damaged_wal_receives_it_again() {
    let mut primary = Node::sealed(&[("fsync", "on"), ("checkpoint_timeout", "1d")]);
    primary.start();
    let mut standby = primary.standby(&primary, "standby", Keys::Own("aes-256-gcm"));
    standby.start();
    primary.sql("create table t (id int, v text)");
    for id in 1..=ROWS {
        primary.sql(&format!("insert into t values ({id}, repeat('s', 300))"));
    }
    standby.catch_up(&primary);
    let end = lsn(&standby.sql("select pg_last_wal_receive_lsn()"));
    standby.kill9();
    let recorded = wal(&standby, &["status"]).text;
    assert!(recorded.contains(&WalPosition(end).to_string()), "{recorded}");
    let page_off = wal_off(((end - 1) & !8191) % SEGMENT_BYTES);
    flip_bit(&segment_at(&standby, end), page_off - 8192 + 4000);
    standby.start();
    primary.sql("insert into t values (0, 'later')");
    standby.catch_up(&primary);
    assert_eq!(standby.sql("select count(*) from t"), (ROWS + 1).to_string());
    assert!(standby.log().contains("restore this segment"), "{}", standby.log());

    // Promoted, it has a timeline of its own, and is checked on that one.
    standby.promote();
    standby.sql("insert into t values (-1, 'promoted')");
    standby.kill9();
    let recorded = wal(&standby, &["status"]).text;
    assert!(recorded.contains("on timeline 2 "), "{recorded}");
    standby.start();
    assert_eq!(standby.sql("select count(*) from t"), (ROWS + 2).to_string());
}

/// A commit costs as many syncs as on a plain server.
#[test]
fn a_commit_makes_no_sync_more() {
    let count = |mut node: Node| {
        node.start();
        node.sql("create table t (id int)");
        let pid = fs::read_to_string(node.data().join("postmaster.pid")).expect("it runs");
        let pid = pid.lines().next().expect("a process number");
        let out = node.home().join("syncs");
        let mut strace = Command::new("strace")
            .args(["-f", "-qq", "-e", "trace=fsync,fdatasync,sync_file_range,msync", "-o"])
            .arg(&out)
            .args(["-p", pid])
            .spawn()
            .expect("strace runs; scripts/setup.sh test installs it");
        std::thread::sleep(std::time::Duration::from_secs(1));
        for id in 0..50 {
            node.sql(&format!("insert into t values ({id})"));
        }
        // Only those of the sessions: background processes sync when they like.
        let text = fs::read_to_string(&out).unwrap_or_default();
        let _ = strace.kill();
        let _ = strace.wait();
        node.stop_at_once();
        text.lines().filter(|line| line.contains("fdatasync(")).count()
    };
    let settings =
        [("fsync", "on"), ("wal_sync_method", "fdatasync"), ("checkpoint_timeout", "1d")];
    let (plain, sealed) = (count(Node::plain(&settings)), count(Node::sealed(&settings)));
    // Each insert syncs once; the walwriter may add one for all.
    assert!((50..=53).contains(&plain), "plain: {plain}");
    assert!((50..=53).contains(&sealed), "sealed: {sealed}, plain: {plain}");
}
