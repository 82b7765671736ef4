//! Files outside of the data directory, and files that come from outside: which keys they are
//! sealed with, and which of them stay plain.

use std::fs;
use std::path::Path;
use std::process::Command;

use pgseal_scenarios::backup::{
    MARKER, SUM, add_row, archive_by_cp, archived, assert_is_plain, assert_shows_nothing,
    assert_sound, ends_sound, fill, fill_with_tablespace, restore_by_cp, text,
};
use pgseal_scenarios::{Keys, Node, Outcome, from_major};
use pgseal_testkit::bindir;

const SETTINGS: [(&str, &str); 2] = [("max_wal_senders", "8"), ("wal_keep_size", "64MB")];

/// A running server whose table `u` is in a tablespace.
fn with_tablespace(settings: &[(&str, &str)]) -> (Node, String) {
    let mut node = Node::sealed(settings);
    let tablespace = node.make_dir("tablespace");
    node.start();
    fill_with_tablespace(&node, 3000, &tablespace);
    (node, text(&tablespace))
}

/// A base backup with its own key. The current directory is the data directory of the server, and
/// PGDATA names it: neither may decide which keys the backup gets.
fn moved_backup(node: &Node, name: &str, mapping: &str, options: &[&str]) -> std::path::PathBuf {
    let target = node.home().join(name);
    let mut backup = node.command("pg_basebackup");
    node.connected(&mut backup);
    misleading(node, &mut backup);
    backup.args(["--no-sync", "-c", "fast", "-X", "stream", "-T", mapping]).args(options);
    node.succeed(backup.arg("-D").arg(&target));
    target
}

fn misleading(node: &Node, command: &mut Command) {
    let key = node.home().join("own.key");
    if !key.exists() {
        let _ = node.new_key("own.key");
    }
    command.env("PGSEAL_PROVIDER", format!("file:{}", key.display()));
    command.env("PGDATA", node.data()).current_dir(node.data());
}

/// Every file of the copy and its tablespace opens with the copy's keyring alone.
#[track_caller]
fn stands_alone(node: &Node, copy: &Path, tablespace: &Path, truth: &str) {
    assert_sound(node, copy);
    assert_shows_nothing(tablespace);
    let keyring = text(&copy.join("pgseal/keyring"));
    let verify = node.pgseal(&["verify", "--keyring", &keyring, &text(tablespace)]);
    assert_eq!(verify.code, 0, "{}", verify.text);
    let mut server = Node::at(node, copy);
    server.unset_env("PGSEAL_DATA");
    server.start();
    assert_eq!(server.sql(SUM), truth);
    assert_eq!(server.sql("select count(*) from u"), "3000");
    server.sql("insert into u select * from t;; checkpoint");
    server.stop();
    assert_sound(&server, copy);
    assert_shows_nothing(tablespace);
}

#[test]
fn pg_basebackup_with_a_key_of_its_own_moves_a_tablespace() {
    let (mut node, old) = with_tablespace(&SETTINGS);
    let truth = node.sql(SUM);
    let new = node.home().join("moved");
    let mapping = format!("{old}={}", new.display());
    let backup = moved_backup(&node, "backup", &mapping, &[]);
    let said = node.succeed(node.command("pg_verifybackup").arg(&backup));
    assert!(said.contains("backup successfully verified"), "{said}");
    node.stop();
    stands_alone(&node, &backup, &new, &truth);
}

#[test]
#[ignore = "long: make test-scenarios"]
fn pg_combinebackup_with_a_key_of_its_own_moves_a_tablespace() {
    if !from_major(17, "pg_combinebackup_with_a_key_of_its_own_moves_a_tablespace") {
        return;
    }
    let settings = [SETTINGS[0], SETTINGS[1], ("summarize_wal", "on")];
    let (mut node, old) = with_tablespace(&settings);
    let home = node.home().to_owned();
    let place = |name: &str| home.join(name);
    let mapping = |from: &str, to: &str| format!("{from}={}", place(to).display());
    let full = moved_backup(&node, "full", &mapping(&old, "full-ts"), &[]);
    node.sql("update t set v = v || ' more' where id % 400 = 0");
    add_row(&node, 50_000);
    let truth = node.sql(SUM);
    let manifest = format!("--incremental={}", full.join("backup_manifest").display());
    let next = moved_backup(&node, "next", &mapping(&old, "next-ts"), &[&manifest]);
    let combined = place("combined");
    let mut combine = node.command("pg_combinebackup");
    misleading(&node, &mut combine);
    combine.args(["--no-sync", "-T", &mapping(&text(&place("next-ts")), "new")]);
    node.succeed(combine.arg("-o").arg(&combined).args([&full, &next]));
    let said = node.succeed(node.command("pg_verifybackup").arg(&combined));
    assert!(said.contains("backup successfully verified"), "{said}");
    node.stop();
    stands_alone(&node, &combined, &place("new"), &truth);
}

/// A directory that is removed at the end of the test.
struct Removed(std::path::PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A data directory in memory works like any other, also for programs that use absolute paths.
#[test]
fn a_cluster_in_dev_shm_is_sealed_from_the_first_file_on() {
    let node = Node::sealed(&[]);
    let dir = Removed(format!("/dev/shm/pgseal-scenario-{}", std::process::id()).into());
    let key = format!("file:{}", text(&node.home().join("key")));
    let bindir = text(&bindir().expect("PostgreSQL is there"));
    let made = ["initdb", "-k", "-K", &key, "--bindir", &bindir, &text(&dir.0), "--"];
    let options = ["-U", "postgres", "--auth=trust", "--locale=C", "-E", "UTF8"];
    let made = node.pgseal(&[&made[..], &options].concat());
    assert_eq!(made.code, 0, "{}", made.text);
    assert_sound(&node, &dir.0);

    let mut server = Node::at(&node, &dir.0);
    server.configure(&format!("unix_socket_directories = '{}'", text(node.home())));
    server.configure("listen_addresses = ''");
    server.start();
    fill(&server, 2000);
    let truth = server.sql(SUM);
    server.sql("checkpoint");
    server.kill9();
    server.start();
    assert_eq!(server.sql(SUM), truth);
    server.stop();
    assert_shows_nothing(&dir.0);
    assert_sound(&server, &dir.0);
    // These programs open files by their absolute paths.
    server.succeed(server.command("pg_checksums").arg("--check").arg("-D").arg(&dir.0));
    let said = server.succeed(server.command("pg_controldata").arg("-D").arg(&dir.0));
    assert!(said.contains("shut down"), "{said}");
}

/// Files that users let the server write elsewhere (COPY TO, lo_export) are plain, whatever their
/// names. WAL that the server itself copies there is sealed.
#[test]
fn what_copy_to_and_lo_export_write_elsewhere_is_plain_under_any_name() {
    let mut node = Node::sealed(&SETTINGS);
    node.start();
    fill(&node, 10);
    let names =
        ["base.tar", "16384.tar.gz", "archtemp.1", "000000010000000000000001", "00000002.history"];
    let users = node.make_dir("users");
    let object = node.sql("select lo_from_bytea(0, 'canary')");
    for name in names {
        let path = users.join(name);
        node.sql(&format!("copy t to '{}'", path.display()));
        let raw = fs::read(&path).expect("it is there");
        let raw = String::from_utf8_lossy(&raw);
        assert_eq!(raw.lines().filter(|line| line.contains(MARKER)).count(), 10, "{name}");
        node.sql(&format!("create temp table back (like t);; copy back from '{}'", path.display()));
        node.sql(&format!("select lo_export({object}, '{}')", path.display()));
        assert_eq!(fs::read(&path).expect("it is there"), b"canary", "{name}");
    }
    let target = node.make_dir("server");
    let mut backup = node.command("pg_basebackup");
    node.connected(&mut backup);
    backup.arg(format!("--target=server:{}", target.display()));
    node.succeed(backup.args(["-c", "fast", "-X", "fetch"]));
    assert!(target.join("base.tar").is_file());
    assert_shows_nothing(&target);
    node.stop();
}

/// A running plain server, its programs, and a table.
fn plain_primary(settings: &[(&str, &str)]) -> Node {
    let mut plain = Node::plain(&[settings, &SETTINGS[..]].concat());
    plain.bring_programs();
    plain.start_bare();
    fill(&plain, 2000);
    plain
}

/// A sealed standby of it, with the guard module in its configuration.
fn sealed_standby(plain: &Node, name: &str, suite: &'static str) -> Node {
    let standby = plain.standby(plain, name, Keys::Own(suite));
    let programs = text(&bindir().expect("PostgreSQL is there"));
    let guarded = standby.pgseal(&["guard", "--bindir", &programs, &text(standby.data())]);
    assert_eq!(guarded.code, 0, "{}", guarded.text);
    standby
}

/// The archive of a plain primary is plain. A sealed standby refuses this WAL, unless
/// PGSEAL_PROGRAMS names the program that restores it, which then seals it.
#[test]
#[ignore = "long: make test-scenarios"]
fn a_sealed_standby_restores_from_the_archive_of_its_plain_primary_when_asked_to() {
    let mut plain = plain_primary(&[]);
    let archive = plain.make_dir("archive");
    plain.configure(&archive_by_cp(&archive));
    plain.stop();
    plain.start_bare();
    let mut standby = sealed_standby(&plain, "standby", "aes-256-gcm");
    add_row(&plain, 9001);
    archived(&plain);
    add_row(&plain, 9002);
    archived(&plain);
    let truth = plain.sql(SUM);
    plain.stop();
    assert_is_plain(&archive);

    // The primary is gone, so its last WAL is only in the archive.
    let restore = restore_by_cp(&archive);
    standby.configure(&format!("archive_mode = off\nrestore_command = '{restore}'"));
    let log = standby.try_start().expect_err("plain WAL");
    assert!(log.contains("RECOVERYXLOG\": restore_command brought plain WAL"), "{log}");
    assert!(log.contains("PGSEAL_PROGRAMS=cp cp"), "{log}");
    standby.configure(&format!("restore_command = 'PGSEAL_PROGRAMS=cp {restore}'"));
    standby.start();
    standby.wait_until("select exists (select from t where id = 9002)");
    standby.promote();
    assert_eq!(standby.sql(SUM), truth);
    ends_sound(standby);
}

/// With GCM, recovery repairs torn pages from full-page images. A plain primary may switch them
/// off, but its sealed standby needs them.
#[test]
fn a_standby_whose_wal_has_no_full_page_images_is_refused() {
    let mut plain = plain_primary(&[("full_page_writes", "off")]);
    let mut standby = sealed_standby(&plain, "without", "aes-256-gcm");
    let log = standby.try_start().expect_err("the setting is the primary's");
    assert!(log.contains("needs full_page_writes, and it is off"), "{log}");
    standby.configure("full_page_writes = on");
    let log = standby.try_start().expect_err("the WAL is the primary's, too");
    assert!(log.contains("was written with full_page_writes = off"), "{log}");
    assert!(log.contains("Set full_page_writes = on on the primary"), "{log}");

    // The standby was never started, so doctor can find its PostgreSQL only through PATH.
    let bindir = bindir().expect("PostgreSQL is there");
    let doctor: Outcome = standby
        .pgseal_command(&["doctor", &text(standby.data())])
        .env("PATH", format!("{}:/usr/bin:/bin", bindir.display()))
        .output()
        .expect("pgseal runs")
        .into();
    let doctor = doctor.text;
    let line = doctor.lines().find(|line| line.contains("full-page-writes"));
    let line = line.expect("a line of the check");
    assert!(line.contains("FAIL") && line.contains("off on the primary"), "{doctor}");

    let mut xts = sealed_standby(&plain, "xts", "aes-256-xts");
    xts.start();
    xts.catch_up(&plain);
    assert_eq!(xts.sql(SUM), plain.sql(SUM));
    xts.stop();

    plain.configure("full_page_writes = on");
    plain.sql("select pg_reload_conf()");
    plain.wait_until("select current_setting('full_page_writes') = 'on'");
    plain.sql("checkpoint");
    let mut standby = sealed_standby(&plain, "with", "aes-256-gcm");
    standby.start();
    standby.catch_up(&plain);
    assert_eq!(standby.sql(SUM), plain.sql(SUM));
    // And again from a restart point.
    standby.stop();
    standby.start();
    standby.stop();
    assert_sound(&standby, standby.data());
    plain.stop();
}
