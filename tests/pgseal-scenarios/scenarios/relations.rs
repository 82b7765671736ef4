//! Commands and extensions that rewrite, inspect and cache relations, while clients write or
//! processes are killed. Each test ends by checking the rows, running `pgseal verify` and searching
//! all written files for the marker.

use std::env;
use std::fs;
use std::time::Duration;

use pgseal_scenarios::files::{HEADER, PAGE, TAG_BLOCK, len, wait_for};
use pgseal_scenarios::{Ledger, Node, SUM, not_applicable};
use pgseal_testkit::bindir;

const MARKER: &str = "canary-relations-Zq7x";

/// A running sealed server with a table over some pages.
fn node(settings: &[(&str, &str)]) -> Node {
    let mut node = Node::sealed(settings);
    node.start();
    node.sql(&format!(
        "create table t (id int primary key, v text);;
         insert into t select g, '{MARKER} ' || repeat(md5(g::text), 8) \
         from generate_series(1, 10000) g;;
         create index t_v on t (v);; vacuum (analyze) t;; checkpoint"
    ));
    node
}

/// Runs all statements repeatedly while clients write. Returns the number of rounds.
fn under_load(node: &Node, ledger: &mut Ledger, statements: &[&str], time: Duration) -> u32 {
    let before = ledger.committed();
    ledger.start(node);
    ledger.write_for(Duration::ZERO);
    let end = std::time::Instant::now() + time;
    let mut rounds = 0;
    while std::time::Instant::now() < end || rounds == 0 {
        for statement in statements {
            // Statements may lock in different orders; the server then ends one with a deadlock
            // error.
            if let Err(error) = node.try_sql(statement) {
                assert!(error.contains("deadlock detected"), "{statement}: {error}");
            }
        }
        rounds += 1;
    }
    ledger.join();
    assert!(ledger.committed() > before, "nothing was written meanwhile");
    rounds
}

#[test]
fn vacuum_full_cluster_and_reindex_concurrently_under_load() {
    rewrites_under_load(Duration::from_secs(2), 1);
}

#[test]
#[ignore = "long: make test-scenarios"]
fn vacuum_full_cluster_and_reindex_concurrently_under_load_for_a_minute() {
    rewrites_under_load(Duration::from_secs(15), 4);
}

fn rewrites_under_load(time: Duration, kills: u32) {
    let mut node = node(&[("deadlock_timeout", "100ms"), ("max_wal_size", "16MB")]);
    let truth = node.sql(SUM);
    let mut ledger = Ledger::create(&node, 3);
    // Not `reindex table concurrently ledger`: on plain servers as well, the index of a TOAST table
    // may then lack rows that a client adds meanwhile (docs/versions.md).
    let statements = [
        "reindex index concurrently ledger_pkey",
        "reindex index concurrently ledger_account_amount_idx",
        "reindex index concurrently ledger_memo_idx",
        "reindex table concurrently account",
        "reindex index concurrently account_pkey",
        "vacuum full account",
        "cluster ledger using ledger_pkey",
        "vacuum full pg_attribute",
        "reindex database postgres",
        "vacuum (full, analyze) t",
        "cluster t using t_v",
    ];
    for _ in 0..kills {
        let rounds = under_load(&node, &mut ledger, &statements, time);
        assert!(rounds > 0);
        ledger.check(&node);
        // After kill -9, recovery restores the rewritten relations from WAL.
        node.kill9();
        node.start();
        ledger.check(&node);
        assert_eq!(node.sql(SUM), truth);
        node.amcheck_with_parents();
    }
    let left = node.sql("select count(*) from pg_index where not indisvalid");
    assert_eq!(left, "0", "indexes that REINDEX CONCURRENTLY left behind");
    node.stop();
    node.assert_sound(MARKER);
}

#[test]
#[ignore = "long: make test-scenarios"]
fn pg_prewarm_and_its_list_of_blocks() {
    let mut node = Node::sealed(&[]);
    node.preload_module("pg_prewarm");
    node.configure("pg_prewarm.autoprewarm = on\npg_prewarm.autoprewarm_interval = 0");
    node.start();
    node.sql(&format!(
        "create extension pg_prewarm;; create extension pg_buffercache;;
         create table t as select g as id, '{MARKER} ' || repeat('.', 500) as v \
         from generate_series(1, 5000) g;; checkpoint"
    ));
    let pages = node.sql("select pg_relation_size('t') / 8192");
    let truth = node.sql(SUM);
    for how in ["read", "prefetch", "buffer"] {
        assert_eq!(node.sql(&format!("select pg_prewarm('t', '{how}')")), pages, "{how}");
    }
    // The main fork: an autovacuum in between makes the others.
    let cached = "select count(*) from pg_buffercache \
                  where relfilenode = pg_relation_filenode('t') and relforknumber = 0";
    assert_eq!(node.sql(cached), pages);
    node.sql("select autoprewarm_dump_now();; checkpoint");
    // The list of blocks that were in memory. pgseal has no class for this file, so it is sealed.
    let list = fs::read(node.file("autoprewarm.blocks")).expect("the list is there");
    assert!(list.starts_with(b"\x89PGSEAL\n"), "the list of blocks is plain");
    node.kill9();
    node.start();
    wait_for("the blocks of the list", || {
        node.log().contains("autoprewarm successfully prewarmed")
    });
    assert_eq!(node.sql(cached), pages);
    assert_eq!(node.sql(SUM), truth);
    node.stop();
    node.assert_sound(MARKER);
}

#[test]
fn pageinspect_and_pg_visibility() {
    let mut node = node(&[]);
    node.sql("create extension pageinspect;; create extension pg_visibility");
    // The pages in the buffers were read from disk.
    node.stop();
    node.start();
    // The server shows the plain page, and the checksum is that of the plain page.
    let seen = node.sql("select position('canary-relations'::bytea in get_raw_page('t', 0)) > 0");
    assert_eq!(seen, "t");
    let sums = node.sql(
        "select count(*) from generate_series(0, 9) b, lateral page_header(get_raw_page('t', b)) h \
         where h.checksum = page_checksum(get_raw_page('t', b), b)",
    );
    assert_eq!(sums, "10");
    let items = node.sql("select count(*) > 0 from heap_page_items(get_raw_page('t', 0))");
    assert_eq!(items, "t");
    let fork = |fork: &str| format!("select length(get_raw_page('t', '{fork}', 0))");
    assert_eq!(node.sql(&fork("vm")), "8192");
    assert_eq!(node.sql(&fork("fsm")), "8192");
    assert_eq!(node.sql("select count(*) > 0 from bt_page_items('t_pkey', 1)"), "t");

    let pages = node.sql("select pg_relation_size('t') / 8192");
    node.sql("vacuum (freeze, disable_page_skipping) t");
    let all = "select all_visible || '|' || all_frozen from pg_visibility_map_summary('t')";
    assert_eq!(node.sql(all), format!("{pages}|{pages}"));
    node.sql("update t set v = v || 'x' where id = 1;; checkpoint");
    assert_eq!(node.sql("select (pg_visibility_map('t', 0)).all_visible"), "f");
    node.sql("select pg_truncate_visibility_map('t')");
    assert_eq!(node.sql("select all_visible from pg_visibility_map_summary('t')"), "0");
    node.kill9();
    node.start();
    assert_eq!(node.sql("select all_visible from pg_visibility_map_summary('t')"), "0");
    node.sql("vacuum (freeze) t");
    assert_eq!(node.sql(all), format!("{pages}|{pages}"));
    for check in ["pg_check_frozen", "pg_check_visible"] {
        assert_eq!(node.sql(&format!("select count(*) from {check}('t')")), "0", "{check}");
    }
    node.stop();
    node.assert_sound(MARKER);
}

#[test]
fn unlogged_tables_across_a_crash() {
    let mut node = node(&[]);
    let truth = node.sql(SUM);
    let fill = "insert into u select * from t;; insert into kept select * from t";
    node.sql(&format!(
        "create unlogged table u (like t including all);;
         create unlogged table kept (like t including all);; {fill};; checkpoint"
    ));
    let of = |table: &str| SUM.replace("from t", &format!("from {table}"));
    assert_eq!(node.sql(&of("u")), truth);
    // A clean shutdown keeps the rows of unlogged tables.
    node.stop();
    node.start();
    assert_eq!(node.sql(&of("u")), truth);
    // The table that is now logged survives a crash. The other one is reset from its init fork.
    node.sql("alter table kept set logged");
    node.kill9();
    node.start();
    assert_eq!(node.sql("select count(*) from u"), "0");
    assert_eq!(node.sql(&of("kept")), truth);
    node.sql("insert into u select * from t;; alter table kept set unlogged");
    assert_eq!(node.sql(&of("u")), truth);
    assert_eq!(node.sql("set enable_seqscan = off;; select count(*) from u where id < 10"), "9");
    node.amcheck_with_parents();
    node.kill9();
    node.start();
    assert_eq!(node.sql("select count(*) from u;; select count(*) from kept"), "0\n0");
    assert_eq!(node.sql(SUM), truth);
    node.stop();
    node.assert_sound(MARKER);
}

/// pg_repack rewrites tables while clients write.
#[test]
#[ignore = "long: make test-scenarios"]
fn pg_repack_under_load() {
    let test = "pg_repack_under_load";
    let bindir = bindir().expect("PostgreSQL is installed");
    if !bindir.join("pg_repack").is_file() {
        assert!(
            !bindir.starts_with("/usr/lib/postgresql"),
            "pg_repack is missing: run scripts/setup.sh scenarios"
        );
        return not_applicable(test, "no pg_repack comes with this build of the server");
    }
    let mut node = node(&[("max_wal_size", "16MB")]);
    node.sql("create extension pg_repack");
    let truth = node.sql(SUM);
    let mut ledger = Ledger::create(&node, 3);
    ledger.start(&node);
    ledger.write_for(Duration::from_secs(2));
    let before = node.sql("select relfilenode from pg_class where relname = 'ledger'");
    for table in ["ledger", "t"] {
        node.succeed(node.bare("pg_repack").args(["-d", "postgres", "-t", table, "-D"]));
    }
    node.succeed(node.bare("pg_repack").args([
        "-d",
        "postgres",
        "--only-indexes",
        "-t",
        "account",
    ]));
    ledger.join();
    let after = node.sql("select relfilenode from pg_class where relname = 'ledger'");
    assert_ne!(before, after, "it was not rewritten");
    ledger.check(&node);
    node.kill9();
    node.start();
    ledger.check(&node);
    assert_eq!(node.sql(SUM), truth);
    node.amcheck_with_parents();
    node.stop();
    node.assert_sound(MARKER);
}

/// A table of more than 1 GB, with several segments, its maps, and operations across the boundary.
#[test]
#[ignore = "long: make test-scenarios"]
fn a_relation_of_several_segments() {
    const SEGMENT_PAGES: u64 = 131_072;
    let rows: u64 =
        env::var("PGSEAL_LARGE_ROWS").ok().and_then(|n| n.parse().ok()).unwrap_or(150_000);
    // Rows written to a table that was created in the same transaction need no WAL.
    let mut node = Node::sealed(&[("wal_level", "minimal"), ("max_wal_senders", "0")]);
    node.start();
    node.sql(&format!(
        "create extension pg_visibility;;
         begin; create table big (id int, v text); alter table big alter v set storage plain; \
         insert into big select g, '{MARKER} ' || repeat(md5(g::text), 230) \
         from generate_series(1, {rows}) g; commit;;
         create index on big (id);; vacuum (analyze) big;; checkpoint"
    ));
    assert!(rows > SEGMENT_PAGES);
    let first = node.file(&node.relation("big"));
    let second = first.with_extension("1");
    // A segment is full at 1 GB of plain pages; on disk its header and tag blocks come on top.
    let groups = |pages: u64| pages.div_ceil(256);
    let sealed = |pages: u64| HEADER + pages * PAGE + groups(pages) * TAG_BLOCK;
    assert_eq!(len(&first), sealed(SEGMENT_PAGES));
    assert_eq!(len(&second), sealed(rows - SEGMENT_PAGES));
    let pages = "select pg_relation_size('big') / 8192";
    assert_eq!(node.sql(pages), rows.to_string());
    let sum = "select count(*), sum(hashtext(v)::bigint) from big";
    let truth = node.sql(sum);

    // Change rows on both sides of the boundary, and let recovery repeat this from WAL.
    let border =
        format!("ctid >= '({},0)' and ctid < '({},0)'", SEGMENT_PAGES - 50, SEGMENT_PAGES + 50);
    assert_eq!(
        node.sql(&format!(
            "update big set id = -id where {border};; select count(*) from big where id < 0"
        )),
        "100"
    );
    node.kill9();
    node.start();
    assert_eq!(node.sql("select count(*) from big where id < 0"), "100");
    assert_eq!(node.sql(sum), truth);
    let of_map = "select count(*) from pg_visibility_map('big')";
    assert_eq!(node.sql(of_map), node.sql(pages));

    // The table shrinks: the second segment becomes empty, and grows again later.
    node.sql(&format!("delete from big where ctid >= '({},0)';; vacuum big", SEGMENT_PAGES - 1000));
    assert_eq!(node.sql(pages), (SEGMENT_PAGES - 1000).to_string());
    // The empty segment keeps its header.
    assert_eq!(len(&second), HEADER);
    node.kill9();
    node.start();
    let kept = node.sql(sum);
    node.sql(&format!(
        "insert into big select g, '{MARKER} ' || repeat(md5(g::text), 230) \
         from generate_series(1, 1500) g;; checkpoint"
    ));
    assert_eq!(len(&second), sealed(500));
    node.sql(&format!("delete from big where ctid >= '({},0)'", SEGMENT_PAGES - 1000));
    assert_eq!(node.sql(sum), kept);
    node.amcheck_with_parents();
    node.sql("vacuum full big");
    assert_eq!(node.sql(sum), kept);
    node.stop();
    node.assert_sound(MARKER);
}
