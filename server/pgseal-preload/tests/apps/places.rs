//! The position of a file, the program that opens it, and the earlier content of its path.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use crate::support::{
    Arena, MAGIC, MARKER, PLAIN, SEALED, contains, data_directory, finish, new_keyring,
};

/// Writes a relation file through the library, and returns the program that did so.
fn write_one(arena: &Arena, path: &str) -> std::path::PathBuf {
    let program = arena.compile("open_trunc", "open_trunc", &[]);
    let seen = arena.run_sealed(&program, &[path]);
    assert!(seen.status.success(), "{}", seen.stderr);
    program
}

/// Files that are bound to no place, because PostgreSQL does not know their names.
#[test]
fn renamed_and_linked_files_stay_readable() {
    crate::support::same_on("names", &["base/notes", "pg_wal/notes"]);
}

/// A file that was written under an unknown name opens under the name that it is renamed to.
#[test]
fn a_rename_binds_a_file_to_its_place() {
    let paths = ["base/1/16384", "base/1/pg_filenode.map", "pg_twophase/000002E1", "pg_xact/0000"];
    crate::support::same_on("rename_unknown", &paths);
}

/// A file opens under the name that PostgreSQL renames it to, and under no name of another file of
/// the cluster.
#[test]
fn a_file_opens_at_its_place_only() {
    let twophase = "pg_twophase/000002E1";
    for (made, renamed, elsewhere) in [
        ("base/1/16384", "base/1/16384", "base/1/16385"),
        ("base/1/16384", "base/1/16384", "base/5/16384"),
        ("base/1/16384", "base/1/16384", "base/1/16384_vm"),
        ("base/1/16384", "base/1/16384", "pg_stat/pgstat.stat"),
        ("base/1/pg_filenode.map.tmp", "base/1/pg_filenode.map", "base/5/pg_filenode.map"),
        ("base/1/pg_internal.init.4711", "base/1/pg_internal.init", "base/5/pg_internal.init"),
        ("pg_stat/pgstat.tmp", "pg_stat/pgstat.stat", twophase),
        ("pg_wal/xlogtemp.4711", "pg_wal/000000010000000000000001", "pg_xact/0000"),
        ("pg_xact/0000", "pg_xact/0000", "pg_wal/000000010000000000000001"),
    ] {
        let arena = Arena::new();
        let copy = arena.compile("copy_by_reading", "copies", &[]);
        for path in [made, renamed, elsewhere] {
            let dir = arena.sealed().join(path);
            fs::create_dir_all(dir.parent().unwrap()).unwrap();
        }
        fs::write(arena.sealed().join("plain.conf"), MARKER.repeat(500)).unwrap();
        let run = |from: &str, to: &str| arena.run_sealed(&copy, &[from, to]);
        assert!(run("plain.conf", made).status.success(), "{made}");
        fs::rename(arena.sealed().join(made), arena.sealed().join(renamed)).unwrap();
        assert!(run(renamed, "out.conf").status.success(), "{renamed}");
        assert_eq!(arena.raw("out.conf"), MARKER.repeat(500), "{renamed}");

        fs::remove_file(arena.sealed().join("out.conf")).unwrap();
        fs::rename(arena.sealed().join(renamed), arena.sealed().join(elsewhere)).unwrap();
        let seen = run(elsewhere, "out.conf");
        assert!(seen.stderr.contains(elsewhere), "{elsewhere}: {}", seen.stderr);
        let got = fs::read(arena.sealed().join("out.conf")).unwrap_or_default();
        assert!(!contains(&got, MARKER), "{renamed} opened as {elsewhere}");
    }
}

/// The file is empty when it is opened, and replaced before it is read.
#[test]
fn a_file_that_is_exchanged_under_an_open_one_is_refused() {
    let arena = Arena::new();
    let copy = arena.compile("copy_by_reading", "copies", &[]);
    fs::write(arena.sealed().join("plain.conf"), MARKER.repeat(500)).unwrap();
    assert!(arena.run_sealed(&copy, &["plain.conf", "base/1/16384"]).status.success());
    let late = arena.compile("late", "late", &[]);
    let seen = arena.run_sealed(&late, &["base/1/16385", "base/1/16384"]);
    assert!(
        seen.stdout.contains("read(fd, page, PAGE) = -1 EIO"),
        "{} {}",
        seen.stdout,
        seen.stderr
    );
    assert!(seen.stderr.contains("this is the file of \"base/1/16384\""), "{}", seen.stderr);
}

#[test]
fn a_plain_file_in_a_sealed_class_is_refused_and_untouched() {
    for path in SEALED {
        let arena = Arena::new();
        let program = arena.compile("open_refused", "open_refused", &[]);
        let planted = [MARKER, b" planted"].concat().repeat(400);
        fs::write(arena.sealed().join(path), &planted).unwrap();
        let seen = arena.run_sealed(&program, &[path]);
        // The file opens, and is neither read nor changed.
        assert!(seen.stdout.contains("truncate(argv[i], 5) = -1 EIO"), "{path}: {}", seen.stdout);
        assert!(seen.stderr.contains("is a plain file where only sealed ones may be"));
        assert_eq!(arena.raw(path), planted);
        let copy = arena.tmp.path().join("copy");
        let copies = arena.compile("copy_by_reading", "copies", &[]);
        let seen = arena.run_sealed(&copies, &[path, copy.to_str().unwrap()]);
        let got = fs::read(&copy).unwrap_or_default();
        assert!(!contains(&got, MARKER), "{path}: {}", seen.stderr);
    }
}

/// An administrator may put plain files where the class allows it; they are read, never written.
#[test]
fn a_plain_file_that_may_be_there_is_only_read() {
    let arena = Arena::new();
    let program = arena.compile("open_refused", "open_refused", &[]);
    let planted = MARKER.repeat(20);
    fs::write(arena.sealed().join("base/notes"), &planted).unwrap();
    let seen = arena.run_sealed(&program, &["base/notes"]);
    assert!(seen.stdout.contains("opens(argv[i], O_RDONLY) = 0"), "{}", seen.stdout);
    assert!(seen.stdout.contains("content: 340 bytes"), "{}", seen.stdout);
    assert_eq!(arena.raw("base/notes"), planted);
}

#[test]
fn a_bystander_sees_sealed_bytes_and_its_copy_is_sealed() {
    let arena = Arena::new();
    write_one(&arena, SEALED[0]);
    let cp = arena.compile("copy_by_reading", "cp", &[]);
    let out = arena.tmp.path().join("archived");
    let seen = arena.run_bystander(&cp, &[SEALED[0], out.to_str().unwrap()]);
    assert!(seen.status.success(), "{}", seen.stderr);
    assert_eq!(fs::read(&out).unwrap(), arena.raw(SEALED[0]));

    // A program that PGSEAL_PROGRAMS lists sees the plain content.
    let seen = arena.run_sealed(&cp, &[SEALED[0], out.to_str().unwrap()]);
    assert!(seen.status.success(), "{}", seen.stderr);
    assert!(contains(&fs::read(&out).unwrap(), MARKER));
}

/// A file outside every data directory is sealed or plain according to its first bytes.
#[test]
fn a_file_elsewhere_is_what_it_is() {
    for (path, starts) in SEALED.map(|path| (path, MAGIC)).into_iter().chain([(PLAIN, MARKER)]) {
        let arena = Arena::new();
        let writes = arena.compile("open_write", "open_write", &[]);
        let program = arena.compile("open_found", "open_found", &[]);
        for dir in [arena.plain(), arena.sealed()] {
            let writer = match dir == arena.plain() {
                true => arena.run_plain(&writes, &[path]),
                false => arena.run_sealed(&writes, &[path]),
            };
            assert!(writer.status.success(), "{}", writer.stderr);
        }
        let twin = arena.tmp.path().join("twin");
        let elsewhere = arena.tmp.path().join("elsewhere");
        fs::copy(arena.plain().join(path), &twin).unwrap();
        fs::copy(arena.sealed().join(path), &elsewhere).unwrap();
        let expected = arena.run_plain(&program, &[twin.to_str().unwrap()]);
        let mut command = arena.preloaded(&program, &[elsewhere.to_str().unwrap()]);
        let seen = finish(command.env("PGSEAL_DATA", arena.sealed()));
        assert_eq!(seen.stdout, expected.stdout, "{path}: {}", seen.stderr);
        assert!(seen.status.success(), "{path}: {}", seen.stderr);
        assert!(fs::read(&elsewhere).unwrap().starts_with(starts), "{path}");
    }
}

#[test]
fn a_data_directory_in_dev_shm_is_one_like_others() {
    let arena = Arena::new();
    let shm = tempfile::TempDir::new_in("/dev/shm").unwrap();
    let dir = shm.path().join("data");
    data_directory(&dir, Some(&new_keyring()));
    for (index, app) in ["open_trunc", "open_write", "truncate"].into_iter().enumerate() {
        let program = arena.compile(app, app, &[]);
        let path = dir.join(format!("base/1/{}", 20_001 + index));
        let path = path.to_str().unwrap();
        let expected = arena.run_plain(&program, &[&format!("base/1/{}", 20_001 + index)]).stdout;
        let mut command = arena.preloaded(&program, &[path]);
        let seen = finish(command.current_dir("/"));
        assert_eq!(seen.stdout, expected, "{app}: {}", seen.stderr);
        let raw = fs::read(path).unwrap();
        assert!(raw.starts_with(MAGIC) && !contains(&raw, MARKER), "{app} wrote a plain file");
    }
}

/// Only the whole name of the executable counts: listed names that merely resemble it do not match.
#[test]
fn a_copy_under_another_name_is_a_bystander() {
    let arena = Arena::new();
    write_one(&arena, SEALED[0]);
    let other = arena.compile("copy_by_reading", "other", &[]);
    let mut command = arena.preloaded(&other, &[SEALED[0], "other.conf"]);
    assert!(finish(command.env("PGSEAL_PROGRAMS", "othe:otherr:cp")).status.success());
    assert_eq!(arena.raw("other.conf"), arena.raw(SEALED[0]));
}

#[test]
fn walks_do_not_meet_pgseal() {
    let arena = Arena::new();
    // A program that lists data directories.
    let program = arena.compile("listing", "pg_verifybackup", &[]);
    let expected = arena.run_plain(&program, &[]);
    let seen = finish(arena.preloaded(&program, &[]).env_remove("PGSEAL_PROGRAMS"));
    assert_eq!(seen.stdout, expected.stdout, "{}", seen.stderr);
    assert!(!seen.stdout.contains("pgseal"), "{}", seen.stdout);
    arena.assert_sealed("base/7/77");

    // The directory walks of the C library: names and sizes.
    for options in [&[][..], &["-D_FILE_OFFSET_BITS=64"]] {
        for path in SEALED {
            let arena = Arena::new();
            let program = arena.compile("walks", "pg_verifybackup", options);
            let expected = arena.run_plain(&program, &[path]);
            assert!(expected.stdout.contains("8197"), "{}", expected.stdout);
            let seen = finish(arena.preloaded(&program, &[path]).env_remove("PGSEAL_PROGRAMS"));
            assert_eq!(seen.stdout, expected.stdout, "{}", seen.stderr);
            assert!(!seen.stdout.contains("pgseal"), "{}", seen.stdout);
            arena.assert_sealed(path);
        }
    }

    fs::remove_dir_all(arena.sealed().join("base/7")).unwrap();
    let program = arena.compile("listing", "listing", &[]);
    assert!(arena.run_bystander(&program, &[]).stdout.contains("\npgseal\n"));
}

#[test]
fn absolute_paths_and_symbolic_links_lead_to_the_same_seal() {
    let arena = Arena::new();
    let program = arena.compile("open_write", "open_write", &[]);
    let expected = arena.run_plain(&program, &[SEALED[0]]).stdout;
    let tmp = arena.tmp.path();
    symlink(arena.sealed(), tmp.join("link")).unwrap();
    // pg_wal as a link to another directory, as initdb --waldir makes it.
    fs::remove_dir(arena.sealed().join("pg_wal")).unwrap();
    fs::create_dir(tmp.join("wal")).unwrap();
    symlink(tmp.join("wal"), arena.sealed().join("pg_wal")).unwrap();
    // A tablespace.
    let space = tmp.join("space/PG_15_202209061/1");
    fs::create_dir_all(&space).unwrap();
    symlink(tmp.join("space"), arena.sealed().join("pg_tblspc/16400")).unwrap();

    let wal = "000000010000000000000001";
    let paths = [
        (arena.sealed().join("base/1/20001"), arena.sealed().join("base/1/20001")),
        (tmp.join("link/base/1/20002"), arena.sealed().join("base/1/20002")),
        ("base/../base/1/./20003".into(), arena.sealed().join("base/1/20003")),
        ("pg_wal/000000010000000000000001".into(), tmp.join("wal").join(wal)),
        ("pg_tblspc/16400/PG_15_202209061/1/20004".into(), space.join("20004")),
        (space.join("20005"), space.join("20005")),
    ];
    for (path, lies) in paths {
        let seen = arena.run_sealed(&program, &[path.to_str().unwrap()]);
        assert_eq!(seen.stdout, expected, "{}: {}", path.display(), seen.stderr);
        let raw = fs::read(lies).unwrap();
        assert!(raw.starts_with(MAGIC) && !contains(&raw, MARKER), "{}", path.display());
    }
    // Runs in another directory, with an absolute path.
    let path = arena.sealed().join("base/1/20006");
    let mut command = arena.preloaded(&program, &[path.to_str().unwrap()]);
    assert_eq!(finish(command.current_dir("/")).stdout, expected);
    arena.assert_sealed("base/1/20006");
}

/// A file of another cluster opens if `PGSEAL_DATA` names that cluster; else the message says what
/// to do.
#[test]
fn a_file_of_another_keyring() {
    let arena = Arena::new();
    let program = write_one(&arena, SEALED[0]);
    let expected = arena.run_plain(&program, &[SEALED[0]]);
    let shows = arena.compile("open_refused", "open_refused", &[]);
    let other = arena.tmp.path().join("other");
    data_directory(&other, Some(&new_keyring()));
    fs::copy(arena.sealed().join(SEALED[0]), other.join(SEALED[0])).unwrap();
    let before = fs::read(other.join(SEALED[0])).unwrap();

    let mut command = arena.preloaded(&shows, &[SEALED[0]]);
    let seen = finish(command.current_dir(&other));
    assert!(seen.stderr.contains("PGSEAL_DATA"), "{}", seen.stderr);
    assert_eq!(fs::read(other.join(SEALED[0])).unwrap(), before);
    let content = |stdout: &str| stdout.lines().last().unwrap_or_default().to_owned();
    let invalid = content(&seen.stdout);

    let mut command = arena.preloaded(&shows, &[SEALED[0]]);
    let seen = finish(command.current_dir(&other).env("PGSEAL_DATA", arena.sealed()));
    assert_ne!(content(&seen.stdout), invalid, "{}", seen.stderr);
    assert!(expected.status.success());
}

/// WAL that a server restores from the archive of another cluster is sealed with the server's own
/// keys: it can be read, and written when the segment is recycled, without the other keyring.
#[test]
fn restored_wal_of_another_keyring_is_sealed_anew() {
    let arena = Arena::new();
    let segment = "pg_wal/000000010000000000000001";
    write_one(&arena, segment);
    let server = arena.compile("rename_recovered", "postgres", &[]);
    let run = |dir: &std::path::Path, names: &[&str], data: &str| {
        let mut command = arena.preloaded(&server, names);
        finish(command.current_dir(dir).env("PGSEAL_GUARD", "off").env("PGSEAL_DATA", data))
    };
    let expected = run(&arena.sealed(), &[segment], "").stdout;
    assert!(expected.starts_with("content: 20 bytes"), "{expected}");
    let other = arena.tmp.path().join("other");
    data_directory(&other, Some(&new_keyring()));
    let restored = other.join("pg_wal/RECOVERYXLOG");
    fs::copy(arena.sealed().join(segment), &restored).unwrap();
    let before = fs::read(&restored).unwrap();
    fs::set_permissions(&restored, fs::Permissions::from_mode(0o640)).unwrap();

    let names = ["pg_wal/RECOVERYXLOG", segment];
    let seen = run(&other, &names, "");
    assert!(seen.stdout.contains("rename(argv[1], argv[2]) = -1 EACCES"), "{}", seen.stdout);
    assert!(seen.stderr.contains("PGSEAL_DATA"), "{}", seen.stderr);
    assert_eq!(fs::read(&restored).unwrap(), before);

    let seen = run(&other, &names, arena.sealed().to_str().unwrap());
    assert!(seen.stdout.contains("rename(argv[1], argv[2]) = 0"), "{}", seen.stderr);
    assert!(seen.stdout.ends_with(&expected), "{}", seen.stdout);
    assert_eq!(fs::read_dir(other.join("pg_wal")).unwrap().count(), 1, "something was left behind");
    assert_eq!(fs::metadata(other.join(segment)).unwrap().mode() & 0o777, 0o640);
    let seen = run(&other, &[segment], "");
    assert_eq!(seen.stdout, expected, "{}", seen.stderr);
    let raw = fs::read(other.join(segment)).unwrap();
    assert!(raw.starts_with(MAGIC) && raw[..4096] != before[..4096] && !contains(&raw, MARKER));
}

/// Without the key no sealed file opens and nothing is written.
#[test]
fn without_the_key_nothing_is_written() {
    let arena = Arena::new();
    let program = arena.compile("open_trunc", "open_trunc", &[]);
    let mut command = arena.preloaded(&program, &[SEALED[0]]);
    let seen = finish(command.env_remove("PGSEAL_KEY"));
    assert!(seen.stdout.contains("-1 EBADF"), "{}", seen.stdout);
    assert!(seen.stderr.contains("PGSEAL_KEY"), "{}", seen.stderr);
    assert!(!arena.sealed().join(SEALED[0]).exists());
    // A file of a plain class needs no key.
    let mut command = arena.preloaded(&program, &[PLAIN]);
    let seen = finish(command.env_remove("PGSEAL_KEY"));
    assert!(seen.status.success() && seen.stderr.is_empty(), "{}", seen.stderr);
}

/// A program with a refused import does not start; a bystander may have such an import.
#[test]
fn a_program_with_a_refused_import_does_not_start() {
    let arena = Arena::new();
    let program = arena.compile("unknown_import", "unknown_import", &[]);
    let seen = arena.run_sealed(&program, &[SEALED[0]]);
    assert_eq!(seen.status.code(), Some(127), "{}", seen.stdout);
    assert!(seen.stderr.contains("\"unknown_import\" uses aio_"), "{}", seen.stderr);
    assert!(seen.stderr.contains("aio_write"), "{}", seen.stderr);
    assert!(!arena.sealed().join(SEALED[0]).exists());
    assert!(arena.run_bystander(&program, &[PLAIN]).status.success());
}

/// If a copy has a tablespace at another path, the files there are sealed if the copy is sealed,
/// and plain if the copy is plain. The program's working directory, the data directories that it
/// reads and those that its environment names make no difference.
#[test]
fn a_moved_tablespace_belongs_to_the_copy() {
    let arena = Arena::new();
    let home = arena.tmp.path();
    let file = "PG_15_202209061/5/16384";
    let shows = arena.compile("open_refused", "open_refused", &[]);
    let other = home.join("other");
    data_directory(&other, Some(&new_keyring()));
    let new_key = ("PGSEAL_PROVIDER", "env:PGSEAL_KEY");
    let unsealed = ("PGSEAL_UNSEALED_COPY", "yes");
    for (number, (name, option, backup, setting)) in [
        ("pg_basebackup", "-D", None, Some(new_key)),
        ("pg_basebackup", "-D", None, Some(unsealed)),
        ("pg_combinebackup", "-o", Some("sealed"), Some(new_key)),
        ("pg_combinebackup", "-o", Some("sealed"), Some(unsealed)),
        ("pg_combinebackup", "-o", Some("sealed"), None),
        ("pg_combinebackup", "-o", Some("plain"), None),
    ]
    .into_iter()
    .enumerate()
    {
        let program = arena.compile("tablespace", name, &[]);
        let (target, moved) = (home.join(format!("t{number}")), home.join(format!("m{number}")));
        let backup = backup.map(|name| home.join(name));
        let mapping = format!("/old={}", moved.display());
        let mut args = vec![option, target.to_str().unwrap(), "-T", &mapping];
        args.extend(backup.as_ref().map(|dir| dir.to_str().unwrap()));
        let mut command = arena.preloaded(&program, &args);
        command.env_remove("PGSEAL_PROVIDER").env_remove("PGSEAL_PROGRAMS").envs(setting);
        let seen = finish(command.current_dir(&other).env("PGDATA", &other));
        assert!(seen.status.success(), "{number}: {:?} {}", seen.status, seen.stderr);
        let raw = fs::read(moved.join(file)).unwrap();
        let sealed = target.join("pgseal/keyring").exists();
        assert_eq!(sealed, [0, 2, 4].contains(&number), "{number}");
        assert_eq!(raw.starts_with(MAGIC), sealed, "{number}: not sealed as the copy is");
        // A server on the copy opens it.
        let path = moved.join(file);
        let mut command = arena.preloaded(&shows, &[path.to_str().unwrap()]);
        let seen = finish(command.current_dir(&target));
        assert!(seen.stdout.contains("opens(argv[i], O_RDONLY) = 0"), "{number}: {}", seen.stderr);
    }
}

/// The tablespaces of a plain cluster are plain, even if the environment names a sealed data
/// directory.
#[test]
fn the_tablespace_of_a_plain_directory_is_plain() {
    let arena = Arena::new();
    let program = arena.compile("open_write", "open_write", &[]);
    let space = arena.tmp.path().join("space");
    fs::create_dir_all(space.join("PG_15_202209061/1")).unwrap();
    symlink(&space, arena.plain().join("pg_tblspc/16400")).unwrap();
    let path = arena.plain().join("pg_tblspc/16400/PG_15_202209061/1/20004");
    let mut command = arena.preloaded(&program, &[path.to_str().unwrap()]);
    let seen = finish(command.current_dir("/").env("PGDATA", arena.sealed()));
    assert!(seen.status.success(), "{}", seen.stderr);
    assert!(!fs::read(&path).unwrap().starts_with(MAGIC), "sealed with the keys of another");
}

/// Timeline history is plain, whether the server writes it (under the temporary name of a new
/// segment) or finds a sealed one in an archive. Existing sealed history files are readable.
#[test]
fn timeline_history_becomes_plain() {
    let arena = Arena::new();
    let server = arena.compile("rename_recovered", "postgres", &[]);
    let run = |names: &[&str], data: &std::path::Path| {
        let mut command = arena.preloaded(&server, names);
        finish(command.env("PGSEAL_GUARD", "off").env("PGSEAL_DATA", data))
    };
    let temporary = "pg_wal/xlogtemp.77";
    write_one(&arena, temporary);
    let old = arena.raw(temporary);
    assert!(old.starts_with(MAGIC));
    let expected = run(&[temporary], "".as_ref()).stdout;
    assert!(expected.starts_with("content: 20 bytes"), "{expected}");

    let other = arena.tmp.path().join("other");
    data_directory(&other, Some(&new_keyring()));
    let program = arena.compile("open_trunc", "open_trunc", &[]);
    let wal = "pg_wal/000000010000000000000001";
    assert!(finish(arena.preloaded(&program, &[wal]).current_dir(&other)).status.success());
    fs::copy(other.join(wal), arena.sealed().join("pg_wal/RECOVERYHISTORY")).unwrap();
    for (from, history) in [
        (temporary, "pg_wal/00000002.history"),
        ("pg_wal/RECOVERYHISTORY", "pg_wal/00000003.history"),
    ] {
        let mode = fs::metadata(arena.sealed().join(from)).unwrap().mode();
        let seen = run(&[from, history], &other);
        assert!(seen.stdout.contains("rename(argv[1], argv[2]) = 0"), "{from}: {}", seen.stderr);
        assert!(seen.stdout.ends_with(&expected), "{from}: {}", seen.stdout);
        let raw = arena.raw(history);
        assert!(raw.len() == 20 && contains(&raw, MARKER), "{from}: not plain");
        assert_eq!(fs::metadata(arena.sealed().join(history)).unwrap().mode(), mode);
    }
    fs::write(arena.sealed().join("pg_wal/00000004.history"), &old).unwrap();
    let seen = run(&["pg_wal/00000004.history"], "".as_ref());
    assert_eq!(seen.stdout, expected, "{}", seen.stderr);
    assert_eq!(fs::read_dir(arena.sealed().join("pg_wal")).unwrap().count(), 3, "a left-over");
    // After it is overwritten, the file is plain, too.
    assert!(arena.run_sealed(&program, &["pg_wal/00000004.history"]).status.success());
    assert!(contains(&arena.raw("pg_wal/00000004.history"), MARKER));
}
