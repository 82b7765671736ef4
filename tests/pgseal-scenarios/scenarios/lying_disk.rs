//! A server on a disk that does wrong: errors of reads and syncs, no room, writes that are lost or
//! go elsewhere, a sync that does not return. A plain server is the control where it is about what
//! PostgreSQL does. `spec/media.md` says what is asked of a disk, `docs/damage.md` what is done.
//!
//! `PGSEAL_LYING_STRIDE` is how many moments the long tests step over; 1 tries each.

#![allow(clippy::panic, reason = "a test ends where a step fails")]

use std::time::Duration;

use pgseal_cluster::Patience;
use pgseal_power::{Call, Fault, Rule};

#[path = "lying_disk/each.rs"]
mod each;
#[path = "lying_disk/machine.rs"]
mod machine;

use machine::{Machine, SUM_T, SUM_U, assert_says};

/// A read error of one page: that page is an error that names the file, everything else works, and
/// so does the page once the disk reads again. The same for the tag block and the header of a
/// sealed file, also if the first look at the file since the start is the one that fails.
#[test]
fn a_read_error_of_a_relation_is_an_error_and_not_damage() {
    for sealed in [true, false] {
        let Some(mut machine) = Machine::new("lying_disk::reads", sealed) else { return };
        let name = machine.t.file_name().expect("a name").to_string_lossy().into_owned();
        let mut places = vec![("a page", machine.page(2))];
        if sealed {
            places.push(("the tag block", 8192..16384));
            places.push(("the header", 0..512));
        }
        for (what, bytes) in places {
            let what = format!("sealed {sealed}, {what}");
            machine.remount();
            let rule = Rule::new(Call::Read, &machine.t, Fault::Error).bytes(bytes);
            machine.faults(vec![rule]);
            machine.node.start();
            let truth = machine.node.sql(SUM_U);
            let error = machine.node.try_sql(SUM_T).expect_err(&what);
            assert_says(&error, &[&name, "Input/output error"], &what);
            assert!(machine.disk().fault_counts()[0].1 > 0, "{what}: the disk did no wrong");
            machine.node.sql("insert into ack values (1);; checkpoint");
            machine.heal();
            assert_eq!(machine.node.sql(SUM_T), truth, "{what}: the two tables have the same rows");
            let log = machine.node.log();
            for word in ["PANIC", "authenticate", "not the version"] {
                assert!(!log.contains(word), "{what}: {word}\n{log}");
            }
            machine.node.stop();
            machine.assert_sound(&what);
        }
    }
}

/// Recovery that cannot read WAL. PostgreSQL takes that for the end of the WAL, and a plain server
/// starts without the commits behind it. A sealed server does not start, and has overwritten
/// nothing: when the disk reads again, everything is there.
#[test]
fn a_read_error_of_wal_does_not_end_recovery_in_silence() {
    for sealed in [true, false] {
        let Some(mut machine) = Machine::new("lying_disk::wal_reads", sealed) else { return };
        machine.node.start();
        machine.node.sql("insert into ack values (1);; select pg_switch_wal()");
        machine.node.sql("insert into ack select g from generate_series(2, 100) g");
        let segment = machine.node.sql("select pg_walfile_name(pg_current_wal_insert_lsn())");
        machine.node.kill9();
        machine.remount();
        let path = format!("data/pg_wal/{segment}");
        machine.faults(vec![Rule::new(Call::Read, &path, Fault::Error)]);
        let started = machine.node.try_start();
        assert!(machine.disk().fault_counts()[0].1 > 0, "the disk did no wrong");
        if sealed {
            let log = started.expect_err("commits would be lost");
            assert_says(&log, &[&segment], "WAL that cannot be read");
            machine.heal();
            machine.node.start();
            assert_eq!(machine.node.sql("select count(*), max(n) from ack"), "100|100");
            machine.node.stop();
            machine.assert_sound("after WAL could not be read");
        } else if started.is_ok() {
            let rows = machine.node.sql("select count(*) from ack");
            assert_eq!(rows, "1", "the control: a plain server goes on without the commits");
            machine.end();
        }
    }
}

/// A read error of the transaction status: no start, or an error of the query; never a transaction
/// that is taken for aborted.
#[test]
fn a_read_error_of_transaction_status_is_an_error() {
    for sealed in [true, false] {
        let Some(mut machine) = Machine::new("lying_disk::xact_reads", sealed) else { return };
        machine.node.start();
        machine.node.sql("insert into ack values (1)");
        machine.node.stop();
        machine.remount();
        machine.faults(vec![Rule::new(Call::Read, "data/pg_xact/0000", Fault::Error)]);
        if let Err(log) = machine.node.try_start() {
            assert_says(&log, &["pg_xact/0000", "Input/output error"], "no start");
        } else {
            let error = machine.node.try_sql("select * from ack").expect_err("no status");
            assert_says(&error, &["pg_xact/0000", "Input/output error"], "no query");
            machine.end();
        }
        assert!(machine.disk().fault_counts()[0].1 > 0, "the disk did no wrong");
        machine.heal();
        machine.node.start();
        assert_eq!(machine.node.sql("select count(*) from ack"), "1");
        machine.node.stop();
        machine.assert_sound("after pg_xact could not be read");
    }
}

/// A sync that fails: the server PANICs and ends, as PostgreSQL promises. What no sync had covered
/// may be gone from the disk then, and recovery brings back everything that was acknowledged.
#[test]
fn a_failed_sync_is_a_panic_and_nothing_acknowledged_is_lost() {
    let sealed_only = [("the control record", "data/pgseal/control", "checkpoint")];
    let both = [
        ("WAL", "data/pg_wal/0", "insert into ack values (0)"),
        ("a relation", "data/base/", "checkpoint"),
        ("pg_xact", "data/pg_xact/", "checkpoint"),
        ("pg_control", "data/global/pg_control", "checkpoint"),
    ];
    for sealed in [true, false] {
        let Some(mut machine) = Machine::new("lying_disk::syncs", sealed) else { return };
        let more = if sealed { &sealed_only[..] } else { &[] };
        for (seed, (what, path, statement)) in (1..).zip(both.iter().chain(more)) {
            let what = format!("sealed {sealed}: {what}");
            let prepared = machine.prepared.clone();
            machine.put(prepared);
            machine.disk().begin();
            machine.node.start();
            machine.node.sql("insert into ack select generate_series(1, 50);; update t set v = v || 'x' where id % 50 = 0");
            let truth = machine.node.sql(SUM_T);
            machine.faults(vec![Rule::new(Call::Sync, path, Fault::Error).only(1)]);
            machine.node.try_sql(statement).expect_err(&what);
            machine.ended_by_itself(&what);
            assert_eq!(machine.disk().fault_counts()[0].1, 1, "{what}: the disk did no wrong");
            let log = machine.node.log();
            assert_says(&log, &["PANIC:", "Input/output error"], &what);
            let image = machine.after_a_cut(seed);
            machine.put(image);
            machine.node.start();
            assert_eq!(machine.node.sql("select count(*) from ack where n > 0"), "50", "{what}");
            assert_eq!(machine.node.sql(SUM_T), truth, "{what}");
            machine.node.sql("vacuum;; checkpoint");
            machine.node.stop();
            machine.assert_sound(&what);
        }
    }
}

/// The sync of the manifest fails: the shutdown is none, and the next start recovers.
#[test]
fn a_failed_sync_of_the_manifest_is_a_crash_and_nothing_more() {
    let Some(mut machine) = Machine::new("lying_disk::manifest", true) else { return };
    machine.disk().begin();
    machine.node.start();
    machine.node.sql("insert into ack select generate_series(1, 50)");
    machine.faults(vec![Rule::new(Call::Sync, "data/pgseal/manifest", Fault::Error).only(1)]);
    let mut stop = machine.node.command("pg_ctl");
    let _ = stop.arg("-D").arg(machine.node.data()).args(["-w", "stop"]).output();
    machine.ended_by_itself("a shutdown without a manifest");
    assert_eq!(machine.disk().fault_counts()[0].1, 1, "the disk did no wrong");
    assert_says(&machine.node.log(), &["PANIC:", "manifest"], "the shutdown");
    let image = machine.after_a_cut(7);
    machine.put(image);
    machine.node.start();
    assert_eq!(machine.node.sql("select count(*) from ack"), "50");
    machine.node.stop();
    machine.assert_sound("after a shutdown without a manifest");
}

/// What the disk does with the checkpoint's write of a page, and what a sealed server must notice.
struct Lie {
    what: &'static str,
    /// Which of the two writes go wrong: that of the page, that of its tag.
    page: Option<Fault>,
    tag: Option<Fault>,
    /// The manifest knows at the next start that the file is not the one that the server left.
    by_manifest: bool,
    /// The other table is hit too.
    hits_u: bool,
}

/// One write of a page is lost, or goes over another page or into another table. The server does
/// not know. After a clean stop, `pgseal verify` finds it, and so does the first read, or before
/// that the manifest. A plain server reads the older page in silence: it is valid, with its
/// checksum.
#[test]
fn a_lost_or_misdirected_page_is_found() {
    let Some(mut machine) = Machine::new("lying_disk::lost", true) else { return };
    let (t, u) = (machine.t.clone(), machine.u.clone());
    let lost = Some(Fault::Lost);
    let lies = [
        Lie {
            what: "the page is lost",
            page: lost.clone(),
            tag: None,
            by_manifest: false,
            hits_u: false,
        },
        Lie {
            what: "its tag is lost",
            page: None,
            tag: lost.clone(),
            by_manifest: true,
            hits_u: false,
        },
        Lie {
            what: "both are lost",
            page: lost.clone(),
            tag: lost,
            by_manifest: true,
            hits_u: false,
        },
        Lie {
            what: "the page went over another page",
            page: Some(Fault::Elsewhere(t.clone(), machine.page(5).start)),
            tag: None,
            by_manifest: false,
            hits_u: false,
        },
        Lie {
            what: "the page went into another table",
            page: Some(Fault::Elsewhere(u.clone(), machine.page(5).start)),
            tag: None,
            by_manifest: false,
            hits_u: true,
        },
        Lie {
            what: "the tag went into another table",
            page: None,
            tag: Some(Fault::Elsewhere(u, machine.tag(5).start)),
            by_manifest: true,
            hits_u: true,
        },
    ];
    for lie in lies {
        let what = lie.what;
        let prepared = machine.prepared.clone();
        machine.put(prepared);
        machine.node.start();
        write_page_2(&machine, &lie.page, &lie.tag);
        machine.node.stop();
        machine.remount();
        let verify = machine.node.verify();
        assert_eq!(verify.code, 1, "{what}: {}", verify.text);
        let file = |path: &std::path::Path| {
            path.strip_prefix("data").expect("in it").display().to_string()
        };
        assert_says(&verify.text, &[&file(&machine.t)], what);
        machine.node.start();
        let error = machine.node.try_sql(SUM_T).expect_err(what);
        assert_says(&error, &["invalid page in block"], what);
        let other = machine.node.try_sql(SUM_U);
        assert_eq!(other.is_err(), lie.hits_u, "{what}: {other:?}");
        if lie.hits_u {
            assert_says(&verify.text, &[&file(&machine.u)], what);
        }
        let log = machine.node.log();
        let line = format!(
            "\"{}\" (table public.t of database postgres): it is not the version",
            file(&machine.t)
        );
        let by_manifest = log.contains(&line);
        assert_eq!(by_manifest, lie.by_manifest, "{what}: {log}");
        assert!(by_manifest || log.contains("does not authenticate"), "{what}: {log}");
        machine.node.sql("insert into ack values (1)");
        machine.end();
    }
}

/// How many rows [`write_page_2`] has changed.
const CHANGED: &str = "select count(*) from t where v = 'changed'";

/// Changes page 2 of `t` and has a checkpoint write it to a disk that does these things to it.
fn write_page_2(machine: &Machine, page: &Option<Fault>, tag: &Option<Fault>) {
    machine.node.sql("update t set v = 'changed' where ctid = '(2,1)'");
    // Sets the hint bits, so that nothing but the checkpoint writes the page.
    assert_eq!(machine.node.sql(CHANGED), "1");
    let rule = |fault: &Fault, bytes| {
        Rule::new(Call::Write, &machine.t, fault.clone()).bytes(bytes).only(1)
    };
    // Entries of other pages are writes of their own, unless pages are written together.
    let rules: Vec<Rule> = page
        .iter()
        .map(|fault| rule(fault, machine.page(2)))
        .chain(tag.iter().map(|fault| rule(fault, machine.tag(2))))
        .collect();
    let count = rules.len();
    machine.faults(rules);
    machine.node.sql("checkpoint");
    let struck: u64 = machine.disk().fault_counts().iter().map(|(_, struck)| struck).sum();
    assert_eq!(struck, count as u64, "writes of the page that went wrong");
    machine.heal();
}

/// The control: a plain server with checksums reads an older page as if it were the newest.
#[test]
fn a_plain_server_reads_a_lost_page_in_silence() {
    let Some(mut machine) = Machine::new("lying_disk::lost_plain", false) else { return };
    machine.node.start();
    write_page_2(&machine, &Some(Fault::Lost), &None);
    machine.node.stop();
    machine.remount();
    machine.node.start();
    assert_eq!(machine.node.sql(CHANGED), "0", "the row is as it was before");
    machine.end();
}

/// What the manifest cannot know: page and tag are lost, and the kernel forgets what it had of them
/// before the server stops. Then the older page is what the server leaves behind.
#[test]
fn what_the_kernel_forgot_before_the_stop_is_not_known_to_the_manifest() {
    let Some(mut machine) = Machine::new("lying_disk::forgotten", true) else { return };
    machine.node.start();
    write_page_2(&machine, &Some(Fault::Lost), &Some(Fault::Lost));
    machine.forget(&machine.t);
    machine.node.stop();
    machine.remount();
    machine.assert_sound("an older page with its tag");
    machine.node.start();
    assert_eq!(machine.node.sql(CHANGED), "0", "the row is as it was before");
    machine.end();
}

/// Writes that are done in part: the rest is written with the next call.
#[test]
fn short_writes_are_completed() {
    let Some(mut machine) = Machine::new("lying_disk::short", true) else { return };
    machine.node.start();
    let rules = ["data/base", "data/pg_wal", "data/pg_xact", "data/pgseal", "data/global"];
    machine.faults(
        rules.iter().map(|path| Rule::new(Call::Write, path, Fault::Short(100)).only(1)).collect(),
    );
    machine.node.sql("update t set v = v || 'x' where id % 50 = 0");
    let truth = machine.node.sql(SUM_T);
    machine.node.sql("insert into ack values (1);; checkpoint");
    machine.node.stop();
    let counts = machine.disk().fault_counts();
    assert!(counts.iter().filter(|(_, struck)| *struck > 0).count() >= 4, "{counts:?}");
    machine.heal();
    machine.remount();
    machine.assert_sound("after short writes");
    machine.node.start();
    assert_eq!(machine.node.sql(SUM_T), truth);
    machine.node.stop();
}

/// A sync that does not return: the commit waits and is not acknowledged, readers go on, and when
/// the sync returns everything is as it would have been. A stuck sync of a data file or of
/// `pg_control` holds up the checkpoint and no commit.
#[test]
fn a_stuck_sync_holds_up_only_those_who_need_it() {
    let Some(mut machine) = Machine::new("lying_disk::stuck", true) else { return };
    machine.node.start();
    let truth = machine.node.sql(SUM_T);
    machine.faults(vec![Rule::new(Call::Sync, "data/pg_wal/0", Fault::Stuck)]);
    let commits = [
        machine.in_background("insert into ack values (1)"),
        machine.in_background("insert into ack values (2)"),
    ];
    wait_for_stuck(&machine);
    // Both have had time to be answered.
    std::thread::sleep(Duration::from_millis(500));
    assert!(commits.iter().all(|commit| !commit.is_finished()), "a commit without a sync");
    assert_eq!(machine.node.sql(SUM_T), truth, "a reader");
    assert_eq!(machine.node.sql("select count(*) from ack"), "0", "nothing is committed yet");
    let before = machine.disk().now();
    machine.heal();
    machine.disk().release();
    for commit in commits {
        assert_eq!(commit.join().expect("it ends").as_deref(), Some(""));
    }
    assert_eq!(machine.node.sql("select count(*) from ack"), "2");

    // Not of the control record: FUSE lets nobody write to a file that is being synced.
    let t = machine.t.display().to_string();
    for path in [t.as_str(), "data/global/pg_control"] {
        machine.node.sql("update t set v = v where id = 7");
        machine.faults(vec![Rule::new(Call::Sync, path, Fault::Stuck).only(1)]);
        let checkpoint = machine.in_background("checkpoint");
        wait_for_stuck(&machine);
        let commit = machine.in_background("insert into ack values (3)");
        let patience = Patience::every(Duration::from_millis(20), 20);
        assert!(patience.wait_until(|| commit.is_finished()), "{path}: a commit waits for it");
        assert_eq!(commit.join().expect("it ends").as_deref(), Some(""), "{path}");
        assert!(!checkpoint.is_finished(), "{path}: the checkpoint does not wait");
        machine.heal();
        machine.disk().release();
        assert_eq!(checkpoint.join().expect("it ends").as_deref(), Some(""), "{path}");
    }
    assert_eq!(machine.node.sql("select count(*) from ack"), "4");
    assert_eq!(machine.node.sql(SUM_T), truth);
    machine.node.stop();
    machine.assert_sound("after stuck syncs");

    // The machine dies while the sync is stuck: nothing of it was promised, and all else is there.
    machine.put(before);
    machine.node.start();
    assert_eq!(machine.node.sql(SUM_T), truth);
    machine.node.stop();
    machine.assert_sound("after a sync that never returned");
}

fn wait_for_stuck(machine: &Machine) {
    let patience = Patience::every(Duration::from_millis(10), 20);
    assert!(patience.wait_until(|| machine.disk().stuck() > 0), "no sync is stuck");
}

/// The disk is full from some moment on.
fn full() -> each::Plan {
    each::Plan { call: Call::Allocate, fault: Fault::Full, stays: true, cut: false }
}

/// A disk that is full from the n-th allocation on: errors, and no damage. When there is room
/// again, everything that was acknowledged is there, and nothing else.
#[test]
fn a_full_disk_at_some_moments_costs_nothing() {
    each::some("lying_disk::full", &full(), 5);
}

#[test]
#[ignore = "long: make test-lying-disk"]
fn a_full_disk_at_each_moment_costs_nothing() {
    each::all("lying_disk::full_at_each", &full(), true);
}

/// The control: what a plain server does is right, so the checks above are.
#[test]
#[ignore = "long: make test-lying-disk"]
fn a_full_disk_costs_a_plain_server_nothing() {
    each::all("lying_disk::full_plain", &full(), false);
}

/// One allocation fails, and the next has room again.
#[test]
#[ignore = "long: make test-lying-disk"]
fn one_allocation_after_the_other_fails() {
    let plan = each::Plan { stays: false, ..full() };
    each::all("lying_disk::full_once", &plan, true);
}

/// One write fails with EIO.
#[test]
#[ignore = "long: make test-lying-disk"]
fn one_write_after_the_other_fails() {
    let plan = each::Plan { call: Call::Write, fault: Fault::Error, stays: false, cut: false };
    each::all("lying_disk::writes", &plan, true);
}

/// One sync fails, and what no other sync covered may be gone.
#[test]
#[ignore = "long: make test-lying-disk"]
fn one_sync_after_the_other_fails() {
    let plan = each::Plan { call: Call::Sync, fault: Fault::Error, stays: false, cut: true };
    each::all("lying_disk::each_sync", &plan, true);
}
