//! Several processes and one file: its creation, and concurrent small writes.

use crate::support::{Arena, MAGIC, SEALED, data_directory, finish, new_keyring};

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

/// Sealing reads each byte of a page once: a page that changes meanwhile must not get a tag that
/// does not fit it.
#[test]
fn a_page_that_changes_while_it_is_sealed_opens() {
    same_for_many("seal_race", &SEALED[..1], 2);
}

#[test]
fn a_file_read_while_empty_and_written_by_another() {
    same_for_many("no_header", &SEALED, 1);
}

/// A combination of sealed backups is sealed with the keyring of the newest one, unless
/// PGSEAL_UNSEALED_COPY asks for a plain copy.
#[test]
fn pg_combinebackup_seals_what_it_makes() {
    let arena = Arena::new();
    let program = arena.compile("combine", "pg_combinebackup", &[]);
    let keyring = |dir: &str| std::fs::read(arena.tmp.path().join(dir).join("pgseal/keyring")).ok();
    let older = arena.tmp.path().join("older");
    data_directory(&older, Some(&new_keyring()));
    let run = |target: &str, backups: &[&str], setting: Option<(&str, &str)>| {
        let mut args = vec!["-o", target];
        args.extend(backups);
        let mut command = arena.preloaded(&program, &args);
        command.env_remove("PGSEAL_PROVIDER").env_remove("PGSEAL_PROGRAMS");
        command.current_dir(arena.tmp.path()).envs(setting);
        let seen = finish(&mut command);
        assert!(seen.status.success(), "{target}: {}", seen.stderr);
        let raw = std::fs::read(arena.tmp.path().join(target).join("base/1/16384")).unwrap();
        raw.starts_with(MAGIC)
    };
    // The keyrings name the provider, so no variable is needed.
    assert!(run("made", &["older", "sealed"], None));
    assert_eq!(keyring("made"), keyring("sealed"));
    assert!(run("other", &["plain"], Some(("PGSEAL_PROVIDER", "env:PGSEAL_KEY"))));
    assert!(keyring("other").is_some());
    assert!(!run("copy", &["older", "sealed"], Some(("PGSEAL_UNSEALED_COPY", "yes"))));
    assert!(!run("of-plain", &["plain"], None));
    assert_eq!((keyring("copy"), keyring("of-plain")), (None, None));
}
