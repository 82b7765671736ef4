//! Base backups in every form that `pg_basebackup` has, and its refusals. Each backup is restored
//! and started. `docs/backup.md` describes the commands.

use std::path::{Path, PathBuf};
use std::process::Command;

use pgseal_scenarios::backup::{
    MARKER, SUM, add_row, assert_archive_sound, assert_is_plain, assert_shows_nothing,
    assert_sound, base_backup, base_backup_command, directory_with_keyring, fails, fill,
    fill_with_tablespace, shell, text, unpack,
};
use pgseal_scenarios::files::names_in;
use pgseal_scenarios::{Ledger, Node, from_major, server_major};
use pgseal_testkit::bindir;

const SETTINGS: [(&str, &str); 2] = [("max_wal_senders", "8"), ("wal_keep_size", "256MB")];

/// Starts a copy beside the server, checks it, and stops it again.
fn starts(node: &Node, dir: &Path, check: impl Fn(&Node)) {
    let mut copy = Node::at(node, dir);
    copy.start();
    check(&copy);
    copy.sql("create table after_restore as select * from t;; checkpoint");
    copy.stop();
    assert_sound(&copy, dir);
}

/// Unpacks `base.tar` and `pg_wal.tar` of a sealed tar backup into a data directory.
fn restored(node: &Node, backup: &Path, name: &str, suffix: &str, decompressor: &str) -> PathBuf {
    let dir = directory_with_keyring(node, name, backup);
    unpack(node, &backup.join(format!("base.tar{suffix}")), decompressor, &dir);
    let wal = names_in(backup).into_iter().find(|name| name.starts_with("pg_wal.tar"));
    if let Some(wal) = wal {
        // The client makes pg_wal.tar, so compression by the server does not apply to it.
        let same = wal == format!("pg_wal.tar{suffix}");
        unpack(
            node,
            &backup.join(&wal),
            if same { decompressor } else { "cat" },
            &dir.join("pg_wal"),
        );
    }
    dir
}

/// A short version of the tests below: one sealed tar backup, and each way to an unsealed one.
#[test]
fn pg_basebackup_in_tar_format_is_sealed() {
    let mut node = Node::sealed(&SETTINGS);
    node.start();
    fill(&node, 3000);
    let truth = node.sql(SUM);

    let backup = base_backup(&node, "tar", &["-Ft", "-X", "stream"]);
    let mut names = names_in(&backup);
    names.sort();
    assert_eq!(names, ["backup_manifest", "base.tar", "pg_wal.tar", "pgseal"]);
    assert_sound(&node, &backup);
    let dir = restored(&node, &backup, "restored", "", "cat");
    assert_sound(&node, &dir);
    starts(&node, &dir, |copy| assert_eq!(copy.sql(SUM), truth));

    // Without a key, pg_basebackup refuses to write, to a directory and to standard output.
    let bare = |target: &str| {
        let mut backup = node.command("pg_basebackup");
        node.connected(&mut backup);
        backup.args(["--no-sync", "-c", "fast", "-Ft", "-X", "fetch", "-D", target]);
        backup
    };
    let said = fails(&mut bare("refused"));
    assert!(said.contains("would write an unsealed copy"), "{said}");
    let said = fails(&mut bare("-"));
    assert!(said.contains("unsealed copy to standard output"), "{said}");
    // It also refuses if it cannot find the -D option, which says where the copy's keyring belongs.
    let mut hidden = node.command("pg_basebackup");
    node.connected(&mut hidden);
    hidden.env("PGSEAL_KEYRING_FROM", node.file("pgseal/keyring"));
    let said = fails(hidden.args(["-c", "fast", "-X", "fetch", "-PDhidden"]));
    assert!(said.contains("give -D DIR as an option of its own"), "{said}");
    assert_shows_nothing(node.home());

    // PGSEAL_UNSEALED_COPY asks for a plain tar, in a directory and on standard output.
    node.succeed(bare("plain").env("PGSEAL_UNSEALED_COPY", "yes"));
    assert_is_plain(&node.home().join("plain/base.tar"));
    let output = bare("-").env("PGSEAL_UNSEALED_COPY", "yes").output().expect("it runs");
    assert!(output.status.success() && contains(&output.stdout, MARKER.as_bytes()));
    node.stop();
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

/// The server itself writes the tar files: they are sealed with its own keys.
#[test]
#[ignore = "long: make test-scenarios"]
fn pg_basebackup_into_a_directory_of_the_server() {
    let mut node = Node::sealed(&SETTINGS);
    let tablespace = node.make_dir("tablespace");
    node.start();
    fill_with_tablespace(&node, 3000, &tablespace);
    let truth = node.sql(SUM);
    for (compress, suffix, decompressor) in
        [("none", "", "cat"), ("server-gzip:1", ".gz", "gzip -d")]
    {
        let name = format!("server{suffix}");
        let target = node.make_dir(&name);
        let mut backup = node.command("pg_basebackup");
        node.connected(&mut backup);
        backup.arg(format!("--target=server:{}", target.display()));
        backup.args(["-c", "fast", "-X", "fetch", "--compress", compress]);
        node.succeed(&mut backup);
        assert_archive_sound(&node, &target);
        let tars = names_in(&target).iter().filter(|name| name.contains(".tar")).count();
        assert_eq!(tars, 2, "one of the data directory and one of the tablespace");

        let dir = directory_with_keyring(&node, &format!("restored{suffix}"), node.data());
        let moved = node.make_dir(&format!("moved{suffix}"));
        let unpack = |tar: &str, into: &Path| {
            let script = format!(
                "\"$1\" cat -D \"$2\" \"$3\" | {decompressor} | \
                 PGSEAL_DATA=\"$2\" PGSEAL_PROGRAMS=tar \"$1\" run -- tar -x -C \"$4\""
            );
            let words: [&Path; 4] = [&node.pgseal_program(), &dir, &target.join(tar), into];
            node.succeed(&mut shell(&node, &script, &words));
        };
        unpack(&format!("base.tar{suffix}"), &dir);
        let oid = node.sql("select oid from pg_tablespace where spcname = 'ts'");
        unpack(&format!("{oid}.tar{suffix}"), &moved);
        assert_shows_nothing(&moved);
        // The server makes the link in pg_tblspc from tablespace_map, which names the old
        // directory.
        let map = dir.join("tablespace_map");
        std::fs::write(&map, format!("{oid} {}\n", moved.display())).expect("it can be written");
        starts(&node, &dir, |copy| {
            assert_eq!(copy.sql(SUM), truth);
            assert_eq!(copy.sql("select count(*) from u"), "3000");
        });
    }
    node.stop();

    // Plain, because PGSEAL_UNSEALED_COPY is in the server's environment.
    node.set_env("PGSEAL_UNSEALED_COPY", "yes");
    node.start();
    let target = node.make_dir("plain");
    let mut backup = node.command("pg_basebackup");
    node.connected(&mut backup);
    backup.arg(format!("--target=server:{}", target.display()));
    node.succeed(backup.args(["-c", "fast", "-X", "fetch"]));
    assert_is_plain(&target.join("base.tar"));
    node.stop();
}

/// Formats plain and tar, WAL streamed and fetched, at full speed and throttled, all while clients
/// write.
#[test]
#[ignore = "long: make test-scenarios"]
fn pg_basebackup_under_write_load_in_every_form() {
    let mut node = Node::sealed(&SETTINGS);
    node.start();
    fill(&node, 20_000);
    let truth = node.sql(SUM);
    let mut ledger = Ledger::create(&node, 3);
    ledger.start(&node);
    for (name, options) in [
        ("plain-stream", &["-X", "stream"][..]),
        ("plain-fetch", &["-X", "fetch"]),
        ("tar-stream", &["-Ft", "-X", "stream"]),
        ("tar-fetch", &["-Ft", "-X", "fetch"]),
        ("plain-slow", &["-X", "stream", "--max-rate=10M", "--manifest-checksums=SHA256"]),
        ("tar-slow", &["-Ft", "-X", "stream", "--max-rate=10M"]),
    ] {
        let before: u64 = node.sql("select count(*) from ledger").parse().expect("a number");
        let backup = base_backup(&node, name, options);
        assert_sound(&node, &backup);
        let is_tar = name.starts_with("tar");
        // From 18 on, pg_verifybackup also reads tar files, but cannot look for WAL in them.
        if !is_tar || server_major().parse::<u32>().is_ok_and(|major| major >= 18) {
            let mut verify = node.command("pg_verifybackup");
            if is_tar {
                verify.arg("-n");
            }
            let said = node.succeed(verify.arg(&backup));
            assert!(said.contains("backup successfully verified"), "{said}");
        }
        let dir = match is_tar {
            true => restored(&node, &backup, &format!("{name}-restored"), "", "cat"),
            false => backup,
        };
        starts(&node, &dir, |copy| {
            assert_eq!(copy.sql(SUM), truth);
            ledger.check_copy(copy, before);
        });
    }
    ledger.join();
    ledger.check(&node);
    node.stop();
    assert_sound(&node, node.data());
}

/// Whether the PostgreSQL under test was built with a compression.
fn built_with(name: &str) -> bool {
    let config = bindir().expect("PostgreSQL is installed").join("pg_config");
    let output = Command::new(config).arg("--configure").output().expect("pg_config runs");
    String::from_utf8_lossy(&output.stdout).contains(&format!("--with-{name}"))
}

#[test]
#[ignore = "long: make test-scenarios"]
fn pg_basebackup_compressed_by_client_and_server() {
    let mut node = Node::sealed(&SETTINGS);
    node.start();
    fill(&node, 10_000);
    let truth = node.sql(SUM);
    let methods =
        [("gzip", ".gz", "gzip -d"), ("lz4", ".lz4", "lz4 -d"), ("zstd", ".zst", "zstd -d")];
    for (method, suffix, decompressor) in methods {
        if method != "gzip" && !built_with(method) {
            eprintln!("this PostgreSQL was built without {method}");
            continue;
        }
        for side in ["client", "server"] {
            let compress = format!("--compress={side}-{method}:1");
            let name = format!("{side}-{method}");
            let backup = base_backup(&node, &name, &["-Ft", "-X", "stream", &compress]);
            assert_sound(&node, &backup);
            let base = format!("base.tar{suffix}");
            assert!(names_in(&backup).contains(&base), "{:?}", names_in(&backup));
            let dir = restored(&node, &backup, &format!("{name}-restored"), suffix, decompressor);
            starts(&node, &dir, |copy| assert_eq!(copy.sql(SUM), truth));
        }
        // The server compresses and the client decompresses: the result is an ordinary directory.
        let compress = format!("--compress=server-{method}");
        let dir = base_backup(&node, &format!("plain-{method}"), &["-X", "fetch", &compress]);
        assert_sound(&node, &dir);
        starts(&node, &dir, |copy| assert_eq!(copy.sql(SUM), truth));
    }
    node.stop();
}

/// Tablespaces elsewhere, WAL elsewhere: `-T` and `--waldir`.
#[test]
#[ignore = "long: make test-scenarios"]
fn pg_basebackup_with_moved_tablespace_and_wal() {
    let mut node = Node::sealed(&SETTINGS);
    let (old, wal) = (node.make_dir("tablespace"), node.home().join("moved-wal"));
    let new = node.home().join("moved");
    node.start();
    fill_with_tablespace(&node, 3000, &old);
    let truth = node.sql(SUM);
    let mapping = format!("{}={}", old.display(), new.display());
    let waldir = format!("--waldir={}", wal.display());
    let backup = base_backup(&node, "backup", &["-X", "stream", "-T", &mapping, &waldir]);
    for dir in [&new, &wal] {
        assert_shows_nothing(dir);
    }
    assert_sound(&node, &backup);
    starts(&node, &backup, |copy| {
        assert_eq!(copy.sql(SUM), truth);
        assert_eq!(copy.sql("select count(*) from u"), "3000");
    });
    for dir in [&new, &wal] {
        assert_shows_nothing(dir);
    }
    node.stop();
}

/// A chain of a full backup and two incremental ones, combined by each method that the version and
/// the file system support. PostgreSQL itself refuses chains of tar files. `versions.rs` has a
/// short version of this test.
#[test]
#[ignore = "long: make test-scenarios"]
fn incremental_backups_under_write_load_combined_by_each_method() {
    let name = "incremental_backups_under_write_load_combined_by_each_method";
    if !from_major(17, name) {
        return;
    }
    let settings = [SETTINGS[0], SETTINGS[1], ("summarize_wal", "on")];
    let mut node = Node::sealed(&settings);
    node.start();
    fill(&node, 20_000);
    let mut ledger = Ledger::create(&node, 2);
    ledger.start(&node);
    let manifest = |dir: &Path| format!("--incremental={}", dir.join("backup_manifest").display());
    let full = base_backup(&node, "full", &["-X", "stream"]);
    node.sql("update t set v = v || ' more' where id % 400 = 0");
    let first = base_backup(&node, "first", &["-X", "stream", &manifest(&full)]);
    add_row(&node, 50_000);
    let before: u64 = node.sql("select count(*) from ledger").parse().expect("a number");
    let second = base_backup(&node, "second", &["-X", "stream", &manifest(&first)]);
    let truth = node.sql(SUM);
    ledger.join();
    ledger.check(&node);
    for dir in [&full, &first, &second] {
        assert_sound(&node, dir);
    }

    // A copy that is combined with its own key has another keyring than the backups.
    let mut methods = vec![("--copy-file-range", false), ("--copy", true)];
    if server_major() == "17" {
        methods[1] = ("--no-sync", true);
    } else {
        // This method uses the backups up, so it comes last.
        methods.push(("--link", false));
    }
    for (method, own_key) in methods {
        let combined = node.home().join(format!("combined{method}"));
        let mut combine = node.command("pg_combinebackup");
        if own_key {
            combine.env("PGSEAL_PROVIDER", format!("file:{}", text(&node.home().join("key"))));
        }
        combine.arg(method).arg("-o").arg(&combined).args([&full, &first, &second]);
        node.succeed(&mut combine);
        assert_sound(&node, &combined);
        let said = node.succeed(node.command("pg_verifybackup").arg(&combined));
        assert!(said.contains("backup successfully verified"), "{said}");
        starts(&node, &combined, |copy| {
            assert_eq!(copy.sql(SUM), truth, "{method}");
            ledger.check_copy(copy, before);
        });
    }
    // PGSEAL_UNSEALED_COPY asks for a plain copy.
    let full = base_backup_command(&node, &node.home().join("full2")).output().expect("it runs");
    assert!(full.status.success());
    let plain = node.home().join("plain");
    let mut combine = node.command("pg_combinebackup");
    combine.env("PGSEAL_UNSEALED_COPY", "yes").arg("-o").arg(&plain);
    node.succeed(combine.arg(node.home().join("full2")));
    assert_is_plain(&plain);
    node.stop();
}
