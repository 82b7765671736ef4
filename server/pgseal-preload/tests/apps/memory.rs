//! Out of memory: a call that needs memory fails with `ENOMEM`, no process aborts, no data is lost.

use crate::support::{Arena, Run, SEALED, finish};

/// Runs the program as a server process; `out_of_memory.c` documents `keys` and `all`.
fn walk(arena: &Arena, path: &str, keys: &str, all: &str, reserve_is_dry: bool) -> Run {
    // A server does not start without the relation map.
    let maker = arena.compile("open_write", "open_write", &[]);
    let made = arena.run_sealed(&maker, &["global/pg_filenode.map"]);
    assert!(made.status.success(), "{}", made.stderr);
    // The name of the program makes it a server, which hides `pgseal/` and rewrites history files.
    let program = arena.compile("out_of_memory", "postgres", &["-fno-builtin"]);
    let mut command = arena.preloaded(&program, &[path, keys, all]);
    command.env("PGSEAL_GUARD", "off");
    if reserve_is_dry {
        command.env("PGSEAL_TEST_DRY", "1");
    }
    finish(&mut command)
}

fn number_behind(run: &Run, what: &str) -> u64 {
    let line = run.stdout.lines().find_map(|line| line.strip_prefix(what));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or_else(|| {
        panic!("no \"{what}\" in {} {}", run.stdout, run.stderr);
    })
}

/// Fails each allocation of a backend in turn, then all allocations from each one on; the memory
/// reserve of the library is used up as well.
#[test]
fn every_allocation_of_a_backend_may_fail() {
    for path in SEALED {
        for all in ["one", "all"] {
            let arena = Arena::new();
            let run = walk(&arena, path, "first", all, true);
            assert!(run.status.success(), "{path} {all}: {} {}", run.stdout, run.stderr);
            let taken = number_behind(&run, "allocations:");
            assert!(taken > 20, "{path} {all}: only {taken} allocations were tried");
            arena.assert_no_plaintext();
        }
    }
}

/// The same for a process that has to load the keys first.
#[test]
fn every_allocation_of_a_tool_may_fail() {
    let arena = Arena::new();
    let run = walk(&arena, SEALED[0], "last", "one", true);
    assert!(run.status.success(), "{} {}", run.stdout, run.stderr);
    assert!(number_behind(&run, "allocations:") > 40, "{}", run.stdout);
}

/// A server opens and writes files where it must not fail (WAL, after commit): this works without
/// any memory. Only calls for which the C library itself needs memory fail: streams and listings.
#[test]
fn files_are_opened_and_written_without_any_memory() {
    for path in SEALED {
        let arena = Arena::new();
        let run = walk(&arena, path, "first", "all", false);
        assert!(run.status.success(), "{path}: {} {}", run.stdout, run.stderr);
        let refused = number_behind(&run, "refused without any memory:");
        assert!(refused <= 3, "{path}: {refused} calls were refused");
    }
}
