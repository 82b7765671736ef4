//! Changes to files of a server that was killed or is running: WAL, temporary files.
#![allow(clippy::panic, reason = "a test ends where a step fails")]

use std::fs;
use std::path::PathBuf;

use pgseal_cluster::Patience;
use pgseal_scenarios::Session;
use pgseal_scenarios::files::{
    HEADER, PAGE, TAG_BLOCK, copy_tree, flip_bit, len, read, replace, restore_tree, truncate,
    write, zero,
};

use crate::lab::{Lab, Outcome};
use crate::table::ByVerify;

/// Bytes of a WAL segment of these clusters.
const SEGMENT: u64 = 1 << 20;

/// Changes to WAL between committed records, which a killed server has to replay.
pub fn wal(lab: &mut Lab) {
    restore_tree(&lab.now, lab.node.data());
    lab.node.start();
    // On each major the records lie behind the middle of a segment, all in it, and the checkpoint's
    // apart from the pages that are changed.
    let here = lab.node.sql("select pg_current_wal_insert_lsn() - '0/0'");
    let here = here.parse::<u64>().expect("a number") % SEGMENT;
    let wanted = SEGMENT / 2 + SEGMENT / 16;
    let fill = if here < wanted { wanted - here } else { SEGMENT - here + wanted };
    let message = |len| format!("select pg_logical_emit_message(false, 'x', repeat('x', {len}))");
    lab.node.sql(&format!("{};; checkpoint;; {}", message(fill), message(20_000)));
    let first = lab.node.sql("select pg_walfile_name(pg_current_wal_insert_lsn())");
    let before = lab.node.sql("select pg_current_wal_insert_lsn() - '0/0'");
    let before_crash = lab.node.home().join("segment");
    fs::copy(lab.file("pg_wal").join(&first), &before_crash).expect("a copy of the segment");
    for id in 65..=127 {
        lab.node.sql(&format!("insert into fresh values ({id})"));
    }
    // However long these records are, their page is far behind the position that was flushed, and
    // the last commit is not at the very start of a page.
    lab.node.sql(&format!("{};; insert into fresh values (128)", message(20_000)));
    let flushed = loop {
        let flushed = lab.node.sql("select pg_current_wal_flush_lsn() - '0/0'");
        let flushed = flushed.parse::<u64>().expect("a number") % SEGMENT;
        if flushed % PAGE > 500 {
            break flushed;
        }
        lab.node.sql("select pg_logical_emit_message(true, 'x', repeat('x', 500))");
    };
    let last = lab.node.sql("select pg_walfile_name(pg_current_wal_insert_lsn())");
    assert_eq!(first, last, "all in one segment");
    lab.node.kill9();
    let crashed = lab.node.home().join("crashed");
    copy_tree(lab.node.data(), &crashed);

    let segment = format!("pg_wal/{last}");
    // The first of the new records, in a segment of 1 MB, which has one tag block.
    let at = HEADER + TAG_BLOCK + before.parse::<u64>().expect("a number") % SEGMENT + 3000;
    let (kept_now, kept_truth) = (lab.now.clone(), lab.truth.clone());
    lab.now.clone_from(&crashed);
    lab.truth[1] = format!("128|{}", (1..=128).sum::<u64>());
    lab.try_change("WAL, then recovery", "nothing, for comparison", |_| ());
    lab.try_change("WAL, then recovery", "one bit among committed records", |lab| {
        flip_bit(&lab.file(&segment), at);
    });
    // Of the page with that record.
    let start = (at - HEADER) / PAGE * PAGE + HEADER;
    lab.try_change("WAL, then recovery", "a page of 8 KiB zeroed", |lab| {
        zero(&lab.file(&segment), start, PAGE);
    });
    lab.try_change("WAL, then recovery", "8 KiB across two pages zeroed", |lab| {
        zero(&lab.file(&segment), start + 512, PAGE);
    });
    lab.try_change("WAL, then recovery", "two blocks of 8 KiB swapped", |lab| {
        let path = lab.file(&segment);
        let (a, b) = (read(&path, start, PAGE), read(&path, start + PAGE, PAGE));
        write(&path, start, &b);
        write(&path, start + PAGE, &a);
    });
    lab.try_change("WAL, then recovery", "one bit of the last commit", |lab| {
        flip_bit(&lab.file(&segment), HEADER + TAG_BLOCK + flushed - 20);
    });
    lab.try_change("WAL, then recovery", "an older copy of the segment", |lab| {
        replace(&lab.file(&segment), &before_crash);
    });
    lab.try_change("WAL, then recovery", "one bit of the header", |lab| {
        flip_bit(&lab.file(&segment), 100);
    });
    lab.try_change("WAL, then recovery", "header zeroed", |lab| {
        zero(&lab.file(&segment), 0, HEADER);
    });
    lab.try_change("WAL, then recovery", "header of another file", |lab| {
        write(&lab.file(&segment), 0, &read(&lab.file("pg_xact/0000"), 0, HEADER));
    });
    lab.try_change("WAL, then recovery", "segment cut to half", |lab| {
        truncate(&lab.file(&segment), HEADER + TAG_BLOCK + (1 << 19));
    });
    lab.try_change("WAL, then recovery", "segment removed", |lab| {
        fs::remove_file(lab.file(&segment)).expect("it is there");
    });
    (lab.now, lab.truth) = (kept_now, kept_truth);
}

/// A change of a file: its description, and the function that makes it.
type Change = (&'static str, fn(&PathBuf));

/// Changes to a spilled file of a sort while the running server reads it.
pub fn temp_file(lab: &mut Lab) {
    restore_tree(&lab.now, lab.node.data());
    lab.node.start();
    let changes: [Change; 4] = [
        ("one bit", |path| flip_bit(path, len(path) / 2)),
        ("two blocks swapped", |path| {
            let stride = 12 + PAGE + 16;
            let (a, b) = (
                read(path, HEADER + 20 * stride, stride),
                read(path, HEADER + 21 * stride, stride),
            );
            write(path, HEADER + 20 * stride, &b);
            write(path, HEADER + 21 * stride, &a);
        }),
        ("a block zeroed", |path| {
            let stride = 12 + PAGE + 16;
            zero(path, HEADER + 20 * stride, stride);
        }),
        ("file cut to half", |path| truncate(path, len(path) / 2)),
    ];
    for (change, make) in changes {
        let mut session = lab.node.session();
        spill(&mut session);
        make(&newest_spill(lab));
        let said = session.run("fetch all from c").unwrap_or_else(|| "connection lost".to_owned());
        let outcome = if said.contains("ERROR:") {
            Outcome::Error(said)
        } else if said.lines().count() == 49_999 {
            Outcome::Right
        } else {
            Outcome::Wrong
        };
        drop(session);
        lab.note("temp file, while it is used", change, outcome, ByVerify::NotAsked);
        wait_until_empty(lab);
    }
    lab.node.stop();
}

fn spill(session: &mut Session) {
    session.sql("set work_mem = '64kB'; set max_parallel_workers_per_gather = 0");
    session.sql(
        "begin; declare c cursor for \
         select md5(g::text) from generate_series(1, 50000) g order by 1",
    );
    session.sql("fetch 1 from c");
}

/// The file of the sort. The function wrote its input earlier, to a file with a lower number.
fn newest_spill(lab: &Lab) -> PathBuf {
    let listing = fs::read_dir(lab.file("base/pgsql_tmp")).expect("pgsql_tmp").flatten();
    let number = |path: &PathBuf| -> u32 {
        path.extension().and_then(|text| text.to_str()?.parse().ok()).unwrap_or(0)
    };
    listing.map(|item| item.path()).max_by_key(number).expect("a spill")
}

/// Waits until the spill is removed, so that the next case does not see it.
fn wait_until_empty(lab: &Lab) {
    let is_empty =
        || fs::read_dir(lab.file("base/pgsql_tmp")).is_ok_and(|mut dir| dir.next().is_none());
    let gone = Patience::seconds(60).wait_until(is_empty);
    assert!(gone, "a spill stays after its session has ended");
}
