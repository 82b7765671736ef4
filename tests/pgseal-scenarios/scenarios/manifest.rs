//! The manifest (`spec/manifest.md`): what somebody changes, removes or puts back between a clean
//! shutdown and the next start is noticed, and nothing else is.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use pgseal_scenarios::backup::base_backup;
use pgseal_scenarios::files::{
    PAGE, TAG_ENTRY, copy_tree, flip_bit, len, page_off, read, replace, restore_tree, tag_off,
    truncate, write, zero,
};
use pgseal_scenarios::{Node, Outcome};

const MANIFEST: &str = "pgseal/manifest";

/// A stopped server with the tables `t` and `other`, a copy of its data directory, and a later
/// state of `t`.
struct Stopped {
    node: Node,
    table: String,
    other: String,
    older: std::path::PathBuf,
}

impl Stopped {
    fn new(settings: &[(&str, &str)]) -> Stopped {
        let mut node = Node::sealed(settings);
        node.start();
        node.sql(
            "create table t as select g as id, repeat('x', 200) as v from generate_series(1, 9000) g;;
             create table other as select 1 as v;; vacuum t;; create extension amcheck",
        );
        let (table, other) = (node.relation("t"), node.relation("other"));
        node.stop();
        let older = node.home().join("older");
        copy_tree(node.data(), &older);
        node.start();
        node.sql("update t set v = repeat('y', 200) where id % 2 = 0");
        node.stop();
        Stopped { node, table, other, older }
    }

    fn file(&self) -> std::path::PathBuf {
        self.node.file(&self.table)
    }

    fn manifest(&self, task: &str) -> Outcome {
        self.node.pgseal(&["manifest", task, &self.node.data().display().to_string()])
    }

    /// The exit status and the output of `pgseal manifest check`.
    fn check(&self) -> (i32, String) {
        let outcome = self.manifest("check");
        (outcome.code, outcome.text)
    }

    fn accept(&self) {
        let outcome = self.manifest("write");
        assert_eq!(outcome.code, 0, "{}", outcome.text);
    }
}

#[test]
fn every_change_of_a_file_of_a_stopped_server_is_noticed() {
    let mut lab = Stopped::new(&[]);
    assert_eq!(lab.check().0, 0, "{}", lab.check().1);
    let kept = lab.node.home().join("kept");
    fs::copy(lab.file(), &kept).expect("it can be copied");
    let older = lab.older.join(&lab.table);
    let tag = |path: &Path| read(path, tag_off(2), TAG_ENTRY);
    type Change<'a> = (&'a str, Box<dyn Fn(&Path) + 'a>);
    let changes: [Change<'_>; 7] = [
        ("an older copy", Box::new(|path| replace(path, &older))),
        (
            "an older page with its tag",
            Box::new(|path| {
                write(path, page_off(2), &read(&older, page_off(2), PAGE));
                write(path, tag_off(2), &tag(&older));
            }),
        ),
        (
            "a page and its tag zeroed",
            Box::new(|path| {
                zero(path, page_off(2), PAGE);
                zero(path, tag_off(2), TAG_ENTRY);
            }),
        ),
        ("cut", Box::new(|path| truncate(path, page_off(20)))),
        ("emptied", Box::new(|path| truncate(path, 0))),
        ("nothing but zeros", Box::new(|path| zero(path, 0, len(path)))),
        ("a tag changed", Box::new(|path| flip_bit(path, tag_off(2) + 20))),
    ];
    for (name, change) in changes {
        change(&lab.file());
        let (code, text) = lab.check();
        assert_eq!(code, 1, "{name}: {text}");
        assert!(text.contains(&lab.table), "{name}: {text}");
        let verify = lab.node.verify();
        assert_eq!(verify.code, 1, "{name}: {}", verify.text);
        let rekey = lab.node.pgseal_command(&["rekey", "--check"]).arg(lab.node.data()).output();
        assert!(!rekey.expect("it runs").status.success(), "{name}: rekey would hide it");

        lab.node.start();
        let error = lab.node.try_sql("select count(*), max(v) from t").expect_err(name);
        assert!(error.contains("invalid page"), "{name}: {error}");
        lab.node.try_sql("insert into t values (1, 'z')").expect_err(name);
        assert_eq!(lab.node.sql("select v from other"), "1", "{name}");
        let line = format!("\"{}\" (table public.t of database postgres): it", lab.table);
        assert!(lab.node.log().contains(&line), "{name}: {}", lab.node.log());
        lab.node.stop();
        // The shutdown does not accept the file, and neither does one after which nobody read it.
        assert_eq!(lab.check().0, 1, "{name}");
        lab.node.start();
        lab.node.stop();
        assert_eq!(lab.check().0, 1, "{name}");
        replace(&lab.file(), &kept);
        assert_eq!(lab.check().0, 0, "{name}: {}", lab.check().1);
    }
    lab.node.start();
    assert_eq!(lab.node.sql("select count(*) from t"), "9000");
    lab.node.stop_sound("yyyyyyyyyyyyyyyy");
}

/// The server can be left running with the file that differs: the table is dropped or emptied as
/// any damaged one, and then nothing differs any more.
#[test]
fn a_relation_that_differs_can_be_dropped_or_emptied() {
    for way in ["drop table t", "truncate t"] {
        let mut lab = Stopped::new(&[]);
        replace(&lab.file(), &lab.older.join(&lab.table));
        lab.node.start();
        lab.node.try_sql("select count(*) from t").expect_err("it differs");
        lab.node.sql(way);
        lab.node.stop();
        assert_eq!(lab.check().0, 0, "{way}: {}", lab.check().1);
        assert_eq!(lab.node.verify().code, 0, "{way}");
    }
}

/// A visibility map that is older says that rows are visible to all which are not.
#[test]
fn an_older_visibility_map_counts_as_none() {
    let mut lab = Stopped::new(&[]);
    let map = format!("{}_vm", lab.table);
    replace(&lab.node.file(&map), &lab.older.join(&map));
    assert_eq!(lab.check().0, 1);
    lab.node.start();
    lab.node.sql("create index on t (id)");
    let by_index = "set enable_seqscan = off;; set enable_bitmapscan = off;; ".to_owned();
    assert_eq!(lab.node.sql(&(by_index + "select count(id) from t where id > 0")), "9000");
    let line = format!("\"{map}\" (table public.t of database postgres): it");
    assert!(lab.node.log().contains(&line), "{}", lab.node.log());
    lab.node.sql("vacuum t");
    lab.node.stop();
    assert_eq!(lab.check().0, 0, "{}", lab.check().1);
}

#[test]
fn an_older_transaction_status_and_a_missing_prepared_transaction_refuse_the_start() {
    let mut lab = Stopped::new(&[("max_prepared_transactions", "4")]);
    let kept = lab.node.home().join("kept");
    let xact = lab.node.file("pg_xact/0000");
    fs::copy(&xact, &kept).expect("it can be copied");
    replace(&xact, &lab.older.join("pg_xact/0000"));
    assert!(lab.node.try_start().is_err(), "transactions would be lost");
    assert!(
        lab.node.log().contains("\"pg_xact/0000\": it is not the version"),
        "{}",
        lab.node.log()
    );
    replace(&xact, &kept);

    lab.node.start();
    lab.node.sql("begin;; insert into other values (2);; prepare transaction 'p'");
    lab.node.stop();
    let prepared = fs::read_dir(lab.node.file("pg_twophase")).expect("it is there").flatten();
    let prepared = prepared.map(|entry| entry.path()).next().expect("a prepared transaction");
    fs::rename(&prepared, &kept).expect("it can be moved");
    assert!(lab.node.try_start().is_err(), "a prepared transaction would be lost");
    let log = lab.node.log();
    assert!(log.contains("it was removed after the server had stopped"), "{log}");
    fs::rename(&kept, &prepared).expect("it can be moved back");
    lab.node.start();
    lab.node.sql("commit prepared 'p'");
    assert_eq!(lab.node.sql("select count(*) from other"), "2");
    lab.node.stop();
    assert_eq!(lab.check().0, 0);
}

#[test]
fn a_manifest_that_is_missing_changed_or_older_refuses_the_start() {
    let mut lab = Stopped::new(&[]);
    let manifest = lab.node.file(MANIFEST);
    let kept = lab.node.home().join("kept");
    fs::copy(&manifest, &kept).expect("it can be copied");
    let refused = |lab: &mut Stopped, why: &str| {
        let (code, text) = lab.check();
        assert_eq!(code, 1, "{text}");
        assert!(text.contains("REFUSED") && text.contains("pgseal manifest write"), "{text}");
        assert_eq!(lab.node.verify().code, 1);
        assert!(lab.node.try_start().is_err(), "{why}");
        assert!(lab.node.log().contains(why), "{why}: {}", lab.node.log());
        replace(&lab.node.file(MANIFEST), &lab.node.home().join("kept"));
    };
    fs::remove_file(&manifest).expect("it is there");
    refused(&mut lab, "it is gone");
    flip_bit(&manifest, 100);
    refused(&mut lab, "it does not authenticate");
    replace(&manifest, &lab.older.join(MANIFEST));
    refused(&mut lab, "is not that of the last shutdown");
    let other = Node::sealed(&[]);
    replace(&manifest, &other.file(MANIFEST));
    refused(&mut lab, "it is that of another cluster");
    let control = lab.node.file("global/pg_control");
    let control_kept = lab.node.home().join("control");
    fs::copy(&control, &control_kept).expect("it can be copied");
    replace(&control, &lab.older.join("global/pg_control"));
    refused(&mut lab, "is not that of the last shutdown");
    replace(&control, &control_kept);

    // Restored on purpose: the administrator accepts it.
    replace(&lab.file(), &lab.older.join(&lab.table));
    fs::remove_file(&manifest).expect("it is there");
    lab.accept();
    assert_eq!(lab.check().0, 0);
    lab.node.start();
    lab.node.sql("select count(*) from other");
    lab.node.stop();
    // Everything back, manifest included: that is another story (anchors), and starts.
    restore_tree(&lab.older, lab.node.data());
    lab.node.start();
    assert_eq!(lab.node.sql("select count(*) from t where v like 'x%'"), "9000");
    lab.node.stop();
}

/// After a crash there is nothing to compare with, and the server says so.
#[test]
fn after_a_crash_the_server_starts_and_says_what_is_not_known() {
    let mut lab = Stopped::new(&[]);
    lab.node.start();
    lab.node.sql("insert into t values (0, 'new')");
    lab.node.kill9();
    let (code, text) = lab.check();
    assert_eq!(code, 22, "{text}");
    let verify = lab.node.verify();
    assert!(verify.text.contains("is not known"), "{}", verify.text);
    lab.node.start();
    assert_eq!(lab.node.sql("select count(*) from t"), "9001");
    assert!(lab.node.log().contains("there is no manifest to tell"), "{}", lab.node.log());
    // A backend that crashes makes the postmaster start all processes anew, and nothing differs.
    lab.node.try_sql("select pg_terminate_backend(pg_backend_pid())").expect_err("it ends");
    lab.node.stop();
    assert_eq!(lab.check().0, 0, "{}", lab.check().1);
    lab.node.start();
    assert_eq!(lab.node.sql("select count(*) from t"), "9001");
    lab.node.stop_sound("xxxxxxxxxxxxxxxx");
}

/// The startup process of some versions writes `pg_multixact` before `pg_control` says that a
/// server runs. A server that ends in between does not refuse its own directory.
#[test]
fn a_server_that_ends_while_it_starts_can_start_again() {
    let mut node = Node::sealed(&[]);
    node.start();
    node.sql("create table t as select g as id from generate_series(1, 100) g");
    let (mut one, mut two) = (node.session(), node.session());
    for session in [&mut one, &mut two] {
        session.sql("begin; select count(*) from (select from t for key share) s");
    }
    drop((one, two));
    node.stop();
    // Whoever writes pg_control is killed before the write.
    let control = node.file("global/pg_control").display().to_string();
    let mut server = node.command_at(Path::new("/usr/bin/strace"));
    let kill = "inject=write,pwrite64:signal=KILL";
    server.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=write,pwrite64", "-e", kill]);
    server.args(["-P", &control]).arg(node.bindir().join("postgres")).arg("-D").arg(node.data());
    let output = server.output().expect("strace runs; scripts/setup.sh test installs it");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("was terminated by signal 9"), "{said}");
    let state = node.succeed(node.bare("pg_controldata").arg(node.data()));
    assert!(state.contains("shut down"), "{state}");
    node.start();
    assert_eq!(node.sql("select count(*) from t"), "100");
    node.stop();
    node.assert_authentic();
    let check = node.pgseal(&["manifest", "check", &node.data().display().to_string()]);
    assert_eq!(check.code, 0, "{}", check.text);
}

/// A base backup has a manifest of its own, until a server uses it. So does any copy for which
/// somebody has one written.
#[test]
fn a_backup_has_a_manifest() {
    let mut lab = Stopped::new(&[]);
    lab.node.start();
    let backup = base_backup(&lab.node, "backup", &[]);
    let copy = lab.node.home().join("copy");
    // A raw copy of a server that was killed stands for one that a tool made of a running server.
    lab.node.kill9();
    copy_tree(lab.node.data(), &copy);
    let task =
        |task: &str, dir: &Path| lab.node.pgseal(&["manifest", task, &dir.display().to_string()]);
    assert_eq!(task("check", &copy).code, 22);
    let written = task("write", &copy);
    assert_eq!(written.code, 0, "{}", written.text);

    for dir in [&backup, &copy] {
        let check = || task("check", dir);
        assert_eq!(check().code, 0, "{}", check().text);
        type Change<'a> = (&'a str, Box<dyn Fn(&Path) + 'a>);
        let changes: [Change<'_>; 3] = [
            ("cut", Box::new(|path| truncate(path, page_off(20)))),
            (
                "a page and its tag zeroed",
                Box::new(|path| {
                    zero(path, page_off(2), PAGE);
                    zero(path, tag_off(2), TAG_ENTRY);
                }),
            ),
            ("removed", Box::new(|path| fs::remove_file(path).expect("it can be removed"))),
        ];
        for (name, change) in changes {
            let used = lab.node.home().join("used");
            copy_tree(dir, &used);
            change(&used.join(&lab.table));
            let check = task("check", &used);
            assert_eq!(check.code, 1, "{name}: {}", check.text);
            assert!(check.text.contains("table public.t of database"), "{name}: {}", check.text);
            let verify = lab.node.pgseal(&["verify", &used.display().to_string()]);
            assert_eq!(verify.code, 1, "{name}: {}", verify.text);
            // The server notices it, too.
            let mut server = Node::at(&lab.node, &used);
            server.start();
            server.try_sql("select count(*), max(v) from t").expect_err(name);
            assert_eq!(server.sql("select v from other"), "1", "{name}");
            server.stop();
            fs::remove_dir_all(&used).expect("it can be removed");
        }
        assert_eq!(check().code, 0, "{}", check().text);
        let mut server = Node::at(&lab.node, dir);
        server.start();
        assert_eq!(server.sql("select count(*) from t"), "9000");
        assert!(!server.log().contains("there is no manifest"), "{}", server.log());
        // Crashed meanwhile, the directory is no backup any more.
        server.kill9();
        assert_eq!(task("check", dir).code, 22);
        server.start();
        assert_eq!(server.sql("select count(*) from t"), "9000");
        server.stop();
        assert_eq!(task("check", dir).code, 0);
    }
}

/// Without room for the manifest the shutdown fails, and the next start recovers: `pg_control`
/// never says "shut down" without it.
#[test]
fn a_shutdown_without_room_for_the_manifest_is_a_crash_and_nothing_more() {
    let mut lab = Stopped::new(&[]);
    lab.node.start();
    lab.node.sql("insert into t values (0, 'new')");
    let own = lab.node.file("pgseal");
    let mode = |bits| fs::set_permissions(&own, fs::Permissions::from_mode(bits));
    mode(0o500).expect("it is ours");
    let _ = lab.node.command("pg_ctl").arg("-D").arg(lab.node.data()).args(["-w", "stop"]).output();
    mode(0o700).expect("it is ours");
    lab.node.ended();
    assert!(lab.node.log().contains("cannot be written"), "{}", lab.node.log());
    lab.node.start();
    assert_eq!(lab.node.sql("select count(*) from t"), "9001");
    lab.node.stop();
    assert_eq!(lab.check().0, 0, "{}", lab.check().1);
}

/// `postgres -C` prints a setting and nothing else, and in a directory that its group may read the
/// manifest has the mode of the other files.
#[test]
fn programs_read_settings_and_group_members_the_manifest() {
    let mut lab = Stopped::new(&[]);
    lab.node.start();
    lab.node.kill9();
    let mut postgres = lab.node.command("postgres");
    let printed =
        lab.node.succeed(postgres.arg("-D").arg(lab.node.data()).args(["-C", "data_checksums"]));
    assert_eq!(printed.trim().lines().last(), Some("on"));
    assert!(!printed.contains("pgseal: LOG"), "{printed}");

    let mode = |name: &str, bits| {
        fs::set_permissions(lab.node.file(name), fs::Permissions::from_mode(bits))
    };
    mode("pgseal", 0o750).expect("it is ours");
    mode("pgseal/keyring", 0o640).expect("it is ours");
    lab.node.start();
    lab.node.stop();
    let meta = fs::metadata(lab.node.file(MANIFEST)).expect("it is there");
    assert_eq!(meta.permissions().mode() & 0o777, 0o640);
}

/// PostgreSQL's programs that change a stopped data directory leave one that starts.
#[test]
fn programs_that_change_a_stopped_directory_are_known() {
    let mut lab = Stopped::new(&[]);
    let run = |lab: &Stopped, program: &str, options: &[&str]| {
        let mut command = lab.node.command(program);
        lab.node.succeed(command.args(options).arg("-D").arg(lab.node.data()));
    };
    // Only pg_control is written: the list stays.
    run(&lab, "pg_resetwal", &["-c", "0,0"]);
    assert_eq!(lab.check().0, 0, "{}", lab.check().1);
    run(&lab, "pg_checksums", &["--disable"]);
    assert_eq!(lab.check().0, 0, "{}", lab.check().1);
    replace(&lab.file(), &lab.older.join(&lab.table));
    assert_eq!(lab.check().0, 1, "no program hides it");
    // No page needs another checksum, so nothing is written.
    run(&lab, "pg_checksums", &["--enable"]);
    assert_eq!(lab.check().0, 1, "{}", lab.check().1);
    // A program that changes a file: nobody can tell any more. (truncate stands for pg_upgrade.)
    lab.node.set_env("PGSEAL_PROGRAMS", "truncate");
    let mut truncate = lab.node.command_at(Path::new("truncate"));
    lab.node.succeed(truncate.args(["-s", "8192"]).arg(lab.node.file(&lab.other)));
    lab.node.unset_env("PGSEAL_PROGRAMS");
    let (code, text) = lab.check();
    assert_eq!(code, 22, "{text}");
    assert!(text.contains("truncate"), "{text}");
    lab.node.start();
    assert!(lab.node.log().contains("truncate changed this data directory"), "{}", lab.node.log());
    lab.node.sql("select count(*) from t");
    lab.node.stop();
    assert_eq!(lab.check().0, 0, "{}", lab.check().1);
}
