//! What a backend holds in memory of its own that has opened many files: little more than a backend
//! of the plain server that has done the same, however many files are open.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::fs;

use pgseal_scenarios::{Node, Session};

/// How much more a sealed backend may hold, in KiB.
const MORE_KIB: i64 = 2048;
/// How many tables the backends read. Each is four files: the table and three indexes.
const TABLES: [usize; 2] = [300, 550];
const FILES_OF_TABLE: usize = 4;

fn node(sealed: bool) -> Node {
    let settings =
        [("max_files_per_process", "2500"), ("max_locks_per_transaction", "200"), ("jit", "off")];
    let mut node = if sealed { Node::sealed(&settings) } else { Node::plain(&settings) };
    node.run_before_start("ulimit -n 3000");
    node.start();
    for first in (1..TABLES[1]).step_by(50) {
        // Without a column that may lie elsewhere, so that there is no fifth and sixth file.
        node.sql(&format!(
            "do $$ begin for i in {first}..{} loop execute format( \
               'create table t%s (id int primary key, txt name, other int unique, key name unique)', i); \
             execute format('insert into t%s select g, %L, -g, g from generate_series(1, 50) g', i, 'x'); \
             end loop; end $$",
            first + 49
        ));
    }
    node.sql("checkpoint");
    node
}

/// Reads so many tables, and looks into their indexes.
fn read(session: &mut Session, tables: usize) {
    session.sql(&format!(
        "do $$ declare n bigint; begin \
         for i in 1..{tables} loop \
           execute format('select sum(id) from t%s', i) into n; \
           assert n = 1275; \
         end loop; \
         set local enable_seqscan = off; \
         set local enable_bitmapscan = off; \
         for i in 1..{tables} loop \
           execute format('select sum(id) from t%s where id = 7', i) into n; \
           assert n = 7; \
           execute format('select sum(id) from t%s where other = -8', i) into n; \
           assert n = 8; \
           execute format('select sum(id) from t%s where key = %L', i, '9') into n; \
           assert n = 9; \
         end loop; end $$"
    ));
}

/// What a process holds in memory that is no other process's, in KiB, and how many files it has
/// open. Memory that the processes of a server share counts once for the server, and so not here.
fn held(pid: &str) -> (i64, usize) {
    let smaps = fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
    let (mut held_kib, mut is_private) = (0, false);
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        let (name, value) = (words.next().unwrap(), words.next().unwrap_or_default());
        if name.contains('-') && !name.ends_with(':') {
            is_private = value.ends_with('p');
        } else if name == "Private_Dirty:" && is_private {
            held_kib += value.parse::<i64>().unwrap();
        }
    }
    (held_kib, fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count())
}

/// Files that a session has open and has not used for a while are read, written, lengthened and cut
/// as all others.
fn use_files_again(node: &mut Node) {
    let (mut session, tables) = (node.session(), TABLES[0]);
    read(&mut session, tables);
    read(&mut session, tables);
    let size = "select sum(pg_relation_size(oid)) from pg_class where relname ~ '^t[0-9]+$'";
    let before = session.sql(size);
    // Each page is written by this session or by another process, and read again.
    for change in [
        "insert into t%s select g, 'y', -g, g from generate_series(51, 150) g",
        "delete from t%s where id > 50",
    ] {
        session.sql(&format!(
            "do $$ begin for i in 1..{tables} loop execute format($x$ {change} $x$, i); end loop; end $$"
        ));
    }
    assert_ne!(session.sql(size), before);
    session.sql("vacuum; checkpoint");
    assert_eq!(session.sql(size), before, "the pages are cut off again");
    read(&mut session, tables);
    assert!(!node.log().contains("ERROR:"), "{}", node.log());
    node.kill9();
    node.start();
    read(&mut node.session(), tables);
}

#[test]
fn a_backend_with_many_open_files_holds_little_more_than_a_plain_one() {
    let mut held_of = Vec::new();
    for sealed in [false, true] {
        let mut node = node(sealed);
        held_of.push(TABLES.map(|tables| {
            let mut session = node.session();
            let pid = session.sql("select pg_backend_pid()");
            read(&mut session, tables);
            let (held_kib, files) = held(&pid);
            assert!(
                files >= FILES_OF_TABLE * tables,
                "{files} files are open after {tables} tables"
            );
            held_kib
        }));
        if sealed {
            use_files_again(&mut node);
        }
        node.stop();
        if sealed {
            node.assert_authentic();
        }
    }
    for (at, tables) in TABLES.into_iter().enumerate() {
        let (plain, sealed) = (held_of[0][at], held_of[1][at]);
        println!("{tables} tables: {} KiB more than the plain {plain}", sealed - plain);
        assert!(sealed - plain <= MORE_KIB, "{tables} tables: {sealed} KiB, plain {plain} KiB");
    }
}
