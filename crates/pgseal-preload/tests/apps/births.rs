//! Several processes and one file: its birth, and small writes side by side.

use crate::support::{Arena, SEALED};

fn same_for_many(app: &str, paths: &[&str], rounds: usize) {
    let arena = Arena::new();
    let program = arena.compile(app, app, &[]);
    for path in paths {
        let expected = arena.run_plain(&program, &[path]);
        for round in 0..rounds {
            let _ = std::fs::remove_file(arena.sealed().join(path));
            let seen = arena.run_sealed(&program, &[path]);
            assert_eq!(seen.stdout, expected.stdout, "{path}, round {round}: {}", seen.stderr);
            arena.assert_sealed(path);
        }
    }
}

#[test]
fn a_file_born_by_many_has_one_header() {
    same_for_many("birth_race", &SEALED[..2], 8);
    same_for_many("birth_race", &SEALED[2..], 8);
}

#[test]
fn texts_of_many_writers_do_not_overwrite_each_other() {
    same_for_many("append_race", &["pg_stat_tmp/pgss_query_texts.stat"], 5);
}

#[test]
fn a_file_read_while_empty_and_written_by_another() {
    same_for_many("unborn", &SEALED, 1);
}
