//! The steady state: the cost of a page beyond the program's own call.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[path = "apps/support.rs"]
#[allow(dead_code, reason = "shared with the other tests")]
mod support;

use std::collections::BTreeMap;
use std::process::Command;

use support::{Arena, SEALED, finish};

/// The number of system calls of each kind in a run of this many rounds, by `strace -c`.
fn calls(arena: &Arena, what: &str, rounds: &str) -> BTreeMap<String, u64> {
    let program = arena.tmp.path().join("bin/steady");
    let counts = arena.tmp.path().join("counts");
    let app = arena.preloaded(&program, &[SEALED[0], what, rounds]);
    let mut strace = Command::new("strace");
    // Without -f: this counts only the program itself, not the helper.
    strace.args(["-qq", "-c", "-U", "name,calls", "-o"]).arg(&counts);
    for (name, value) in app.get_envs() {
        strace.arg("-E").arg(format!(
            "{}={}",
            name.to_str().unwrap(),
            value.unwrap().to_str().unwrap()
        ));
    }
    strace.arg(&program).args([SEALED[0], what, rounds]).current_dir(arena.sealed());
    let run = finish(&mut strace);
    assert!(run.status.success(), "{what}: {} (is strace installed?)", run.stderr);
    let text = std::fs::read_to_string(&counts).unwrap();
    let rows = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
    });
    rows.filter(|(name, _)| name != "total").collect()
}

/// Beyond the calls that its pages need, a call of the program costs at most one more system call,
/// for tags. The pages alternate between two groups.
#[test]
fn a_call_costs_at_most_one_more() {
    let arena = Arena::new();
    arena.compile("steady", "steady", &["-fno-builtin"]);
    for (what, pages) in [("r", 1), ("w", 1), ("R", 1), ("W", 1), ("l", 0), ("v", 2), ("V", 2)] {
        let (few, many) = (calls(&arena, what, "100"), calls(&arena, what, "1100"));
        let mut extra: BTreeMap<&str, u64> = BTreeMap::new();
        for (name, count) in &many {
            let more = count - few.get(name).copied().unwrap_or(0).min(*count);
            if more > 10 {
                extra.insert(name, more);
            }
        }
        // Before Linux 6.11 random numbers need a system call: one for the nonces of each write.
        let drawn = extra.remove("getrandom").unwrap_or(0);
        assert!(
            drawn <= if "wWV".contains(what) { 1000 * pages + 50 } else { 0 },
            "{what}: {drawn}"
        );
        let total: u64 = extra.values().sum();
        // The difference between the two runs is 1000 rounds.
        assert!(total <= 1000 * (pages + 1) + 50, "{what}: {extra:?}");
        assert!(total >= 1000, "{what}: nothing was counted: {extra:?}");
    }
}

/// After the first calls on a descriptor, no call allocates memory.
#[test]
fn no_heap_allocation_in_the_steady_state() {
    for path in SEALED {
        let arena = Arena::new();
        let program = arena.compile("steady", "steady", &["-fno-builtin"]);
        for what in ["r", "w", "R", "W", "l", "v", "V"] {
            let run = arena.run_sealed(&program, &[path, what, "500"]);
            assert!(run.status.success(), "{path} {what}: {}", run.stderr);
            assert!(run.stderr.contains("allocations: 0\n"), "{path} {what}: {}", run.stderr);
        }
    }
}

/// A new file is not truncated first: ext4 flushes a truncated and rewritten file when it is
/// closed, and the process waits for that.
#[test]
fn a_new_file_is_not_cut() {
    let arena = Arena::new();
    arena.compile("steady", "steady", &["-fno-builtin"]);
    let made = calls(&arena, "w", "10");
    assert!(made.get("pwrite64").is_some_and(|count| *count >= 10), "{made:?}");
    assert_eq!(made.get("ftruncate"), None, "{made:?}");
}
