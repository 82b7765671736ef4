//! `pgseal doctor` on a real server: first all checks succeed, then one thing after another is
//! broken, and doctor names each one with its fix.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use pgseal_scenarios::{Node, Outcome, server_major};
use pgseal_testkit::bindir;

/// The output of `pgseal doctor`: one line for each check.
struct Diagnosis(Outcome);

impl Diagnosis {
    fn of(node: &Node, arguments: &[&str]) -> Diagnosis {
        let dir = node.data().display().to_string();
        let mut all = vec!["doctor", &dir];
        all.extend(arguments);
        Diagnosis(node.pgseal(&all))
    }

    fn line(&self, check: &str) -> &str {
        let is_it = |line: &&str| line.split_whitespace().nth(1) == Some(check);
        self.0.text.lines().find(is_it).expect("a line for each check")
    }

    #[track_caller]
    fn is(self, check: &str, state: &str, words: &str) -> Diagnosis {
        let line = self.line(check);
        assert!(line.starts_with(state) && line.contains(words), "{state} {words}: {line}");
        if state == "FAIL" {
            assert_eq!(self.0.code, 2, "{}", self.0.text);
        }
        self
    }
}

#[track_caller]
fn names(node: &Node, check: &str, state: &str, words: &str) {
    let found = Diagnosis::of(node, &[]).is(check, state, words);
    let line = found.line(check).to_owned();
    let next = found.0.text.lines().skip_while(|l| *l != line).nth(1).unwrap_or_default();
    assert!(next.contains("fix: "), "no fix behind: {line}");
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
}

#[test]
fn doctor_finds_a_running_server_well_and_names_what_is_broken() {
    let mut node = Node::sealed(&[]);
    node.start();
    node.sql("create table t as select g from generate_series(1, 100) g;; checkpoint");
    let well = Diagnosis::of(&node, &[]);
    assert_ne!(well.0.code, 2, "{}", well.0.text);
    // Doctor warns of a release candidate.
    let version = if server_major() == "19" { "WARN" } else { "ok" };
    assert!(well.line("postgresql-version").starts_with(version), "{}", well.0.text);
    for check in [
        "server",
        "library",
        "library-version",
        "library-loaded",
        "audit",
        "guard",
        "environment",
        "key",
        "permissions",
        "plain-files",
        "unreadable",
        "checksums",
        "full-page-writes",
        "log-statements",
        "connections",
        "watched-pages",
    ] {
        assert!(well.line(check).starts_with("ok"), "{}", well.0.text);
    }
    // These checks warn here: tests switch fsync off, the key lies on the disk of the data, and
    // there is no escrow copy yet.
    let well = well.is("fsync", "WARN", "off").is("key-place", "WARN", "disk of the data");
    drop(well.is("escrow", "WARN", "none is known"));
    let dir = node.data().display().to_string();
    let lock = "passphrase:command=echo correct horse";
    let made = node.pgseal(&["key", "backup", &dir, "--lock", lock, "-o", "escrow.txt"]);
    assert_eq!(made.code, 0, "{}", made.text);
    drop(Diagnosis::of(&node, &[]).is("escrow", "ok", "opened by a passphrase"));

    let key = node.home().join("key");
    set_mode(&key, 0o644);
    names(&node, "key", "FAIL", "chmod 600");
    set_mode(&key, 0o600);
    set_mode(&node.file("pgseal/keyring"), 0o640);
    names(&node, "permissions", "FAIL", "has mode 0640");
    set_mode(&node.file("pgseal/keyring"), 0o600);
    set_mode(node.data(), 0o755);
    names(&node, "permissions", "FAIL", "has mode 0755");
    set_mode(node.data(), 0o700);

    let plain = node.file("base/1/99999");
    fs::write(&plain, vec![7; 8192]).expect("a plain file");
    names(&node, "plain-files", "FAIL", "1 plain file: base/1/99999");
    fs::remove_file(&plain).expect("it is there");
    let link = node.file("pg_tblspc/99999");
    symlink("/nowhere/at/all", &link).expect("a link");
    names(&node, "unreadable", "FAIL", "/nowhere/at/all");
    fs::remove_file(&link).expect("it is there");

    for (lines, undo, check, state, words) in [
        ("full_page_writes = off", "full_page_writes = on", "full-page-writes", "FAIL", "off"),
        ("log_statement = all", "log_statement = ddl", "log-statements", "WARN", "= all"),
        (
            "log_min_duration_statement = 0",
            "log_min_duration_statement = -1",
            "log-statements",
            "WARN",
            "parameters",
        ),
        ("listen_addresses = '*'", "listen_addresses = ''", "connections", "WARN", "ssl = off"),
        ("shared_preload_libraries = ''", "", "guard", "FAIL", "is not in it"),
    ] {
        node.configure(lines);
        names(&node, check, state, words);
        node.configure(undo);
    }
    node.stop();
}

#[test]
fn doctor_looks_at_a_stopped_cluster_at_its_environment_and_at_backups() {
    let mut node = Node::sealed(&[]);
    node.set_env("PGSEAL_PROGRAMS", "tar");
    node.start();
    names(&node, "environment", "WARN", "lets tar see plain content");
    node.sql("create table t as select g from generate_series(1, 100) g;; select pg_switch_wal()");
    node.stop();
    let found = Diagnosis::of(&node, &[]).is("server", "ok", "no server runs");
    drop(found.is("library-loaded", "skip", "no server runs").is("audit", "ok", "postgres"));

    // An archive of WAL of this cluster, and one of another.
    let other = Node::sealed(&[]);
    for (from, name) in [(&node, "ours"), (&other, "theirs")] {
        let archive = node.make_dir(name);
        let wal = fs::read_dir(from.file("pg_wal")).expect("WAL").flatten();
        let is_segment =
            |name: &str| name.len() == 24 && name.bytes().all(|b| b.is_ascii_hexdigit());
        for item in wal.filter(|item| is_segment(&item.file_name().to_string_lossy())) {
            fs::copy(item.path(), archive.join(item.file_name())).expect("a copy");
        }
        set_mode(&archive, 0o755);
        for item in fs::read_dir(&archive).expect("the archive").flatten() {
            set_mode(&item.path(), 0o644);
        }
    }
    drop(Diagnosis::of(&node, &["--backup", "ours"]).is("backups", "ok", "the headers of"));
    let both = Diagnosis::of(&node, &["--backup", "ours", "--backup", "theirs"]);
    drop(both.is("backups", "FAIL", "another cluster"));

    let disable = ["--disable", "-D"];
    node.succeed(node.command("pg_checksums").args(disable).arg(node.data()));
    names(&node, "checksums", "FAIL", "off");
    fs::rename(node.file("pgseal/keyring"), node.home().join("keyring")).expect("a move");
    names(&node, "key", "FAIL", "there is no keyring");

    let plain = Node::plain(&[]);
    let dir = plain.data().display().to_string();
    let refused = node.pgseal(&["doctor", &dir]);
    assert_eq!(refused.code, 4, "{}", refused.text);
}

#[test]
fn doctor_of_a_cluster_that_never_ran_asks_the_server_of_its_major() {
    let node = Node::sealed(&[]);
    let of_another_major = node.make_dir("bin");
    let postgres = of_another_major.join("postgres");
    fs::write(&postgres, "#!/bin/sh\necho 'postgres (PostgreSQL) 9.6.24'\n").expect("a program");
    set_mode(&postgres, 0o755);
    let bindir = bindir().expect("PostgreSQL is there");
    let ask = |path: String| {
        let mut doctor = node.pgseal_command(&["doctor", &node.data().display().to_string()]);
        let found: Outcome = doctor.env("PATH", path).output().expect("pgseal runs").into();
        Diagnosis(found).is("audit", "ok", "postgres").0.text
    };
    let well = ask(format!("{}:/usr/bin:/bin", bindir.display()));
    let behind = format!("{}:{}:/usr/bin:/bin", of_another_major.display(), bindir.display());
    assert_eq!(ask(behind), well);
}
