//! What happens when somebody changes the files of a server: one change at a time, then the server
//! is started and the data is read, and `pgseal verify` has its say.
//!
//! The verdicts are compared with the table in `spec/threat-model.md`, which this test writes:
//! `UPDATE_EXPECT=1 cargo test -p pgseal-scenarios --test tamper`. Whatever the table says, no
//! change of a relation's page may lead to wrong rows where the table claims detection: a
//! verdict is what happened, never what should have happened.

use std::fs;

use pgseal_scenarios::files::{
    HEADER, PAGE, TAG_ENTRY, flip_bit, len, page_off, read, replace, tag_off, truncate, write, zero,
};
use pgseal_scenarios::{Node, server_major};

#[path = "tamper/lab.rs"]
mod lab;
#[path = "tamper/live.rs"]
mod live;
#[path = "tamper/table.rs"]
mod table;

use lab::Lab;
use table::Verdict;

/// The page that most changes are made to.
const BLOCK: u64 = 3;

/// A bit of a page or of its entry.
fn bits(lab: &mut Lab) {
    lab.try_change("relation", "one bit of a page", |lab| {
        flip_bit(&lab.file(&lab.victim), page_off(BLOCK) + 4000);
    });
    lab.try_change("relation", "one bit of a nonce", |lab| {
        flip_bit(&lab.file(&lab.victim), tag_off(BLOCK) + 2);
    });
    lab.try_change("relation", "one bit of a tag", |lab| {
        flip_bit(&lab.file(&lab.victim), tag_off(BLOCK) + 20);
    });
    lab.try_change("relation", "one bit of the rest of a tag entry", |lab| {
        flip_bit(&lab.file(&lab.victim), tag_off(BLOCK) + 31);
    });
}

/// Pages and entries in the place of others, or wiped.
fn pages(lab: &mut Lab) {
    let page = |lab: &Lab, name: &str, block| read(&lab.file(name), page_off(block), PAGE);
    let tag = |lab: &Lab, name: &str, block| read(&lab.file(name), tag_off(block), TAG_ENTRY);

    lab.try_change("relation", "two pages swapped", |lab| {
        let (a, b) = (page(lab, &lab.victim, 3), page(lab, &lab.victim, 4));
        write(&lab.file(&lab.victim), page_off(4), &a);
        write(&lab.file(&lab.victim), page_off(3), &b);
    });
    lab.try_change("relation", "two pages swapped, with their tags", |lab| {
        let (a, b) = (page(lab, &lab.victim, 3), page(lab, &lab.victim, 4));
        let (ta, tb) = (tag(lab, &lab.victim, 3), tag(lab, &lab.victim, 4));
        write(&lab.file(&lab.victim), page_off(4), &a);
        write(&lab.file(&lab.victim), page_off(3), &b);
        write(&lab.file(&lab.victim), tag_off(4), &ta);
        write(&lab.file(&lab.victim), tag_off(3), &tb);
    });
    lab.try_change("relation", "a page of another table", |lab| {
        write(&lab.file(&lab.victim), page_off(BLOCK), &page(lab, &lab.other, BLOCK));
    });
    lab.try_change("relation", "a page of another table, with its tag", |lab| {
        write(&lab.file(&lab.victim), page_off(BLOCK), &page(lab, &lab.other, BLOCK));
        write(&lab.file(&lab.victim), tag_off(BLOCK), &tag(lab, &lab.other, BLOCK));
    });
    lab.try_change("relation", "a page zeroed", |lab| {
        zero(&lab.file(&lab.victim), page_off(BLOCK), PAGE);
    });
    lab.try_change("relation", "a page and its tag zeroed", |lab| {
        zero(&lab.file(&lab.victim), page_off(BLOCK), PAGE);
        zero(&lab.file(&lab.victim), tag_off(BLOCK), TAG_ENTRY);
    });
    lab.try_change("relation", "a tag zeroed", |lab| {
        zero(&lab.file(&lab.victim), tag_off(BLOCK), TAG_ENTRY);
    });
}

fn relation(lab: &mut Lab) {
    bits(lab);
    lab.try_change("relation", "one bit of the header's clear part", |lab| {
        flip_bit(&lab.file(&lab.victim), 20);
    });
    lab.try_change("relation", "one bit of the wrapped key", |lab| {
        flip_bit(&lab.file(&lab.victim), 450);
    });
    lab.try_change("relation", "one bit of the header's reserved bytes", |lab| {
        flip_bit(&lab.file(&lab.victim), 300);
    });
    lab.try_change("relation", "one bit of the place", |lab| {
        flip_bit(&lab.file(&lab.victim), 70);
    });
    lab.try_change("relation", "one bit of the header's padding", |lab| {
        flip_bit(&lab.file(&lab.victim), HEADER - 1);
    });
    lab.try_change("relation", "header zeroed", |lab| zero(&lab.file(&lab.victim), 0, HEADER));
    lab.try_change("relation", "header of another file", |lab| {
        write(&lab.file(&lab.victim), 0, &read(&lab.file(&lab.other), 0, HEADER));
    });
    pages(lab);
    lab.try_change("relation", "file cut in the middle of a page", |lab| {
        truncate(&lab.file(&lab.victim), page_off(10) + 3000);
    });
    lab.try_change("relation", "file cut to half, at a page", |lab| {
        let path = lab.file(&lab.victim);
        let pages = (len(&path) - page_off(0)) / PAGE;
        truncate(&path, page_off(pages / 2));
    });
    lab.try_change("relation", "file emptied", |lab| truncate(&lab.file(&lab.victim), 0));
    lab.try_change("relation", "file removed", |lab| {
        fs::remove_file(lab.file(&lab.victim)).expect("it is there");
    });
    lab.try_change("relation", "an older copy of a page", |lab| {
        let old = read(&lab.older.join(&lab.victim), page_off(BLOCK), PAGE);
        write(&lab.file(&lab.victim), page_off(BLOCK), &old);
    });
    lab.try_change("relation", "an older copy of a page, with its tag", |lab| {
        let older = lab.older.join(&lab.victim);
        write(&lab.file(&lab.victim), page_off(BLOCK), &read(&older, page_off(BLOCK), PAGE));
        write(&lab.file(&lab.victim), tag_off(BLOCK), &read(&older, tag_off(BLOCK), TAG_ENTRY));
    });
    lab.try_change("relation", "an older copy of the file", |lab| {
        replace(&lab.file(&lab.victim), &lab.older.join(&lab.victim));
    });
    lab.try_change("relation", "the file of another table", |lab| {
        replace(&lab.file(&lab.victim), &lab.file(&lab.other));
    });
    lab.try_change("relation", "a file in XTS of the same cluster", |lab| {
        replace(&lab.file(&lab.victim), &lab.file("pg_xact/0000"));
    });
    lab.try_change("relation", "`pg_authid`: a table of one's own", |lab| {
        replace(&lab.file("global/1260"), &lab.file(&lab.other));
    });
    lab.try_change("relation", "a plain file", |lab| {
        fs::write(lab.file(&lab.victim), vec![0x41; 8192 * 4]).expect("it can be written");
    });
    for (class, fork) in [("free space map", "_fsm"), ("visibility map", "_vm")] {
        lab.try_change(class, "one bit of a page", |lab| {
            flip_bit(&lab.file(&format!("{}{fork}", lab.victim)), page_off(0) + 100);
        });
        lab.try_change(class, "one bit of the header", |lab| {
            flip_bit(&lab.file(&format!("{}{fork}", lab.victim)), 100);
        });
        lab.try_change(class, "header zeroed", |lab| {
            zero(&lab.file(&format!("{}{fork}", lab.victim)), 0, HEADER);
        });
    }
}

/// Files that are overwritten in place: transaction status, the relation map.
fn in_place(lab: &mut Lab) {
    const XACT: &str = "pg_xact/0000";
    const MAP: &str = "global/pg_filenode.map";
    // 64 rows of transactions of their own: about 16 bytes with two bits each.
    let xids = |lab: &Lab| {
        let control = lab.node.succeed(lab.node.bare("pg_controldata").arg(&lab.now));
        let next = control.lines().find_map(|line| line.split("NextXID:").nth(1));
        let next = next.and_then(|text| text.trim().rsplit(':').next()?.parse::<u64>().ok());
        let byte = (next.expect("pg_controldata tells NextXID") - 32) / 4;
        // 484 bytes in a sector of 512, behind nonce and tag.
        HEADER + byte / 484 * 512 + 28 + byte % 484
    };
    lab.try_change("pg_xact", "one bit of a page", |lab| flip_bit(&lab.file(XACT), xids(lab)));
    lab.try_change("pg_xact", "a sector zeroed", |lab| {
        zero(&lab.file(XACT), xids(lab) / 512 * 512, 512);
    });
    lab.try_change("pg_xact", "the last 16 bytes of a sector zeroed", |lab| {
        zero(&lab.file(XACT), xids(lab) / 512 * 512 + 496, 16);
    });
    lab.try_change("pg_xact", "the file of pg_subtrans", |lab| {
        replace(&lab.file(XACT), &lab.file("pg_subtrans/0000"));
    });
    lab.try_change("pg_xact", "two sectors swapped", |lab| {
        let path = lab.file(XACT);
        let start = xids(lab) / 512 * 512;
        let (a, b) = (read(&path, start, 512), read(&path, start + 512, 512));
        write(&path, start, &b);
        write(&path, start + 512, &a);
    });
    lab.try_change("pg_xact", "one bit of the header", |lab| flip_bit(&lab.file(XACT), 100));
    lab.try_change("pg_xact", "header of another file", |lab| {
        write(&lab.file(XACT), 0, &read(&lab.file(MAP), 0, HEADER));
    });
    lab.try_change("pg_xact", "header zeroed", |lab| zero(&lab.file(XACT), 0, HEADER));
    lab.try_change("pg_xact", "file cut to its header", |lab| truncate(&lab.file(XACT), HEADER));
    lab.try_change("pg_xact", "an older copy of the file", |lab| {
        replace(&lab.file(XACT), &lab.older.join(XACT));
    });
    lab.try_change("relation map", "one bit", |lab| flip_bit(&lab.file(MAP), HEADER + 140));
    lab.try_change("relation map", "a sector zeroed", |lab| zero(&lab.file(MAP), HEADER, 512));
    lab.try_change("relation map", "that of another database", |lab| {
        replace(&lab.file(MAP), &lab.file("base/5/pg_filenode.map"));
    });
    lab.try_change("relation map", "one bit of the header", |lab| flip_bit(&lab.file(MAP), 100));
}

/// Files written once, in authenticated blocks.
fn stream(lab: &mut Lab) {
    let two_phase = |lab: &Lab| {
        let dir = lab.file("pg_twophase");
        let mut listing = fs::read_dir(dir).expect("pg_twophase is there").flatten();
        listing.next().expect("a prepared transaction").path()
    };
    lab.try_change("two-phase state", "one bit", |lab| flip_bit(&two_phase(lab), HEADER + 50));
    lab.try_change("two-phase state", "file cut", |lab| truncate(&two_phase(lab), HEADER + 60));
    lab.try_change("statistics", "one bit", |lab| {
        flip_bit(&lab.file("pg_stat/pgstat.stat"), HEADER + 50);
    });
}

fn keyring(lab: &mut Lab) {
    const KEYRING: &str = "pgseal/keyring";
    // The first digit of the value behind the last place of this text becomes another digit.
    let change_digit = |lab: &Lab, before: &str| {
        let path = lab.file(KEYRING);
        let mut text = fs::read(&path).expect("a keyring");
        let found = text.windows(before.len()).rposition(|window| window == before.as_bytes());
        let at = found.expect("the member is there") + before.len();
        text[at] = if text[at] == b'7' { b'8' } else { b'7' };
        fs::write(&path, text).expect("it can be written");
    };
    for (change, before) in [
        ("a digit of its identity", "\"keyring_id\": \""),
        ("a digit of the key check value", "\"key_check\": \""),
        ("a digit of a wrapped data key", "\"wrapped\": \""),
        ("a digit of its MAC", "mac: "),
    ] {
        lab.try_change("keyring", change, |lab| change_digit(lab, before));
    }
    lab.try_change("keyring", "its provider", |lab| {
        let text = fs::read_to_string(lab.file(KEYRING)).expect("a keyring");
        fs::write(lab.file(KEYRING), text.replace("/key\"", "/kez\"")).expect("can be written");
    });
    lab.try_change("keyring", "cut to half", |lab| {
        truncate(&lab.file(KEYRING), len(&lab.file(KEYRING)) / 2);
    });
    lab.try_change("keyring", "emptied", |lab| truncate(&lab.file(KEYRING), 0));
    lab.try_change("keyring", "removed", |lab| {
        fs::remove_file(lab.file(KEYRING)).expect("it is there");
    });
}

/// Changes of pages after a crash, when only the tags can find them, on a server without data
/// checksums.
fn without_checksums() -> Vec<table::Row> {
    let mut lab = Lab::without_checksums();
    lab.after_a_crash(|lab| {
        bits(lab);
        pages(lab);
    });
    lab.rows
}

#[test]
fn every_change_has_the_verdict_of_the_table() {
    let mut lab = Lab::new();
    lab.try_change("nothing", "for comparison", |_| ());
    assert_eq!(lab.rows.pop().map(|row| row.verdict), Some(Verdict::NoEffect));
    relation(&mut lab);
    in_place(&mut lab);
    stream(&mut lab);
    lab.after_a_crash(|lab| {
        relation(lab);
        in_place(lab);
    });
    lab.while_it_runs(|lab| {
        relation(lab);
        in_place(lab);
    });
    keyring(&mut lab);
    live::wal(&mut lab);
    live::temp_file(&mut lab);
    lab.rows.extend(without_checksums());
    // A change of an authenticated page must always be noticed, whatever the table says.
    for row in lab.rows.iter().filter(|row| row.verdict == Verdict::Not) {
        let is_unlisted = row.class.ends_with(", after a crash") && SILENT.contains(&row.change);
        let is_wal = row.class.starts_with("WAL");
        assert!(is_unlisted || is_wal, "nobody notices: {}: {}", row.class, row.change);
    }
    table::compare(&lab.rows, &server_major());
}

/// Changes that nobody notices after a crash: there is no manifest then, no process remembers
/// anything, and nothing else authenticates the number of pages of a file, or its age.
const SILENT: [&str; 5] = [
    "a page and its tag zeroed",
    "file cut to half, at a page",
    "file emptied",
    "an older copy of a page, with its tag",
    "an older copy of the file",
];

/// PostgreSQL treats a page that does not authenticate like a page with a wrong checksum, and the
/// log names the file and the block.
#[test]
fn a_damaged_page_is_treated_as_people_know_it() {
    let mut node = Node::sealed(&[]);
    node.start();
    node.sql(
        "create table t as select g as id, repeat('x', 100) as v from generate_series(1, 1000) g;;
         checkpoint",
    );
    let path = node.relation("t");
    node.stop();
    flip_bit(&node.file(&path), page_off(2) + 77);

    // pg_checksums counts it.
    let output = node.command("pg_checksums").arg("--check").arg("-D").arg(node.data()).output();
    let output = output.expect("pg_checksums runs");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("Bad checksums:  1"), "{said}");

    // verify names it.
    let verify = node.verify();
    assert_eq!(verify.code, 1, "{}", verify.text);
    assert!(verify.text.contains(&format!("{path}: block 2 ")), "{}", verify.text);

    // A read fails with PostgreSQL's own error, and the statistics count it.
    node.start();
    let error = node.try_sql("select count(*) from t").expect_err("a damaged page is read");
    assert!(error.contains("invalid page in block 2 of relation"), "{error}");
    let log = node.log();
    let line = log.lines().find(|line| line.contains("pgseal: ") && line.contains(&path));
    assert!(line.is_some_and(|line| line.contains("block 2")), "{log}");
    node.sql("select pg_stat_force_next_flush()");
    let failures =
        node.sql("select checksum_failures from pg_stat_database where datname = 'postgres'");
    assert_ne!(failures, "0");

    // There is no plain content to go on with.
    let ignored = node.try_sql("set ignore_checksum_failure = on;; select count(*) from t");
    assert!(ignored.is_err_and(|error| error.contains("invalid page in block 2")));

    // Other pages can be read, and zero_damaged_pages gives up the rows of this one only.
    let rest = node.sql("select count(*) from t where ctid < '(2,0)'::tid");
    assert_ne!(rest, "0");
    let kept = node.sql("set zero_damaged_pages = on;; select count(*) from t");
    let kept: u32 = kept.parse().expect("a number");
    assert!(kept < 1000 && kept > 900, "{kept} of 1000 rows");
    node.stop();
}
