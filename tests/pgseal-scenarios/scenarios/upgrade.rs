//! `pg_upgrade` from each older major version on this machine to the one under test, in each of its
//! modes. The new cluster has the keyring of the old one. Each test ends by checking the rows,
//! searching all files that `pg_upgrade` has written (also its dumps) for the marker, and running
//! `pgseal verify`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use pgseal_scenarios::files::{HEADER, changes, copy_tree, fingerprint, names_in, read};
use pgseal_scenarios::mount::{Btrfs, is_shared};
use pgseal_scenarios::{
    Node, Older, Outcome, SUM, assert_hidden, from_major, is_root, not_applicable, older, programs,
    server_major,
};
use pgseal_testkit::{Cluster, Sealing, bindir};

const MARKER: &str = "canary-upgrade-Zq7x";

/// A cluster of an older major version, an empty one of the version under test, and the content of
/// the old one.
struct Pair {
    /// The directory for attempts, if they run on another file system.
    place: Option<Btrfs>,
    from: Older,
    old: Node,
    old_data: PathBuf,
    new_data: PathBuf,
    truth: Vec<(&'static str, String)>,
    /// The file of table `t`, below either data directory.
    relation: PathBuf,
}

impl Pair {
    /// The directory of everything that an attempt reads and writes.
    fn place(&self) -> &Path {
        self.place.as_ref().map_or(self.old.home(), Btrfs::path)
    }
}

/// Questions whose answers an upgrade must not change.
const QUESTIONS: [&str; 8] = [
    SUM,
    "select count(*), min(v), max(v) from in_ts",
    "select count(*) from unlogged",
    "select convert_from(lo_get(4711), 'UTF8')",
    "select nextval('seq')",
    "select f()",
    "select obj_description('t'::regclass)",
    "select string_agg(datname, ',' order by datname) from pg_database",
];

/// A stopped cluster of an older major version with each kind of object that pg_upgrade transfers
/// in its own way. Returns also its content, and the file of table `t`.
fn old_cluster(older: &Older) -> (Node, Vec<(&'static str, String)>, PathBuf) {
    let builder = Cluster::builder().bindir(&older.bindir).programs(older.programs.clone());
    let mut node = Node::create(builder.sealed(Sealing::default()), &[]);
    let tablespace = node.make_dir("ts");
    node.start();
    node.sql(&format!(
        "create table t (id int primary key, v text);;
         insert into t select g, '{MARKER} ' || repeat(md5(g::text), 8) \
         from generate_series(1, 5000) g;;
         create index on t (v);;
         comment on table t is '{MARKER} comment';;
         create function f() returns text language sql as $$ select '{MARKER} body' $$;;
         create unlogged table unlogged as select * from t where id < 100;;
         create sequence seq;; select setval('seq', 4711);;
         select lo_from_bytea(4711, '{MARKER}'::bytea);;
         create tablespace ts location '{}';;
         create table in_ts tablespace ts as select '{MARKER} frequent'::text as v \
         from generate_series(1, 1000);;
         create database other;;
         vacuum analyze;; update t set v = v || 'x' where id % 7 = 0",
        tablespace.display()
    ));
    let mut lockers = [node.session(), node.session()];
    for locker in &mut lockers {
        locker.sql("begin; select * from t where id = 1 for share");
    }
    for locker in &mut lockers {
        locker.sql("commit");
    }
    make_known_to_the_new(&node);
    let truth = QUESTIONS.iter().map(|question| (*question, node.sql(question))).collect();
    // The questions called nextval, so reset the sequence.
    node.sql("select setval('seq', 4711)");
    let relation = PathBuf::from(node.relation("t"));
    node.stop();
    (node, truth, relation)
}

/// Minor releases since November 2026 give every column an option `pg_attver`, which older releases
/// of newer major versions do not know. `pg_upgrade` fails for such a pair, sealed or plain. If the
/// new version is that old, this removes the options.
fn make_known_to_the_new(old: &Node) {
    let postgres = bindir().expect("PostgreSQL is there").join("postgres");
    let program = fs::read(postgres).expect("the server's program");
    if !program.windows(9).any(|bytes| bytes == b"pg_attver") {
        old.sql(
            "update pg_attribute set attoptions = null \
             where attrelid >= 16384 and attoptions::text like '{pg_attver=%'",
        );
    }
}

/// An empty cluster of the version under test beside the old one.
fn new_cluster(old: &mut Node, name: &str, how: &[&str]) -> PathBuf {
    let dir = old.home().join(name);
    // Copy the guard module of the new version to a place where its server can read it.
    let guards = old.home().join("guard");
    if !guards.is_dir() {
        let made = old.make_dir("guard");
        fs::copy(programs().guard.expect("the guard is built"), made.join("pgseal_guard.so"))
            .expect("a copy");
    }
    let guard = guards.join("pgseal_guard.so").display().to_string();
    old.set_env("PGSEAL_GUARD_MODULE", &guard);
    let programs = bindir().expect("PostgreSQL is there").display().to_string();
    let text = dir.display().to_string();
    let mut arguments = vec!["initdb", "--bindir", &programs];
    arguments.extend(how);
    arguments.extend([&*text, "--", "-U", "postgres", "--auth=trust", "--no-sync", "-E", "UTF8"]);
    arguments.extend(["--locale=C", "--wal-segsize=1"]);
    let outcome = old.pgseal(&arguments);
    assert_eq!(outcome.code, 0, "{}", outcome.text);
    dir
}

fn pair(from: &Older) -> Pair {
    let (mut old, truth, relation) = old_cluster(from);
    let old_data = old.data().to_owned();
    let text = old_data.display().to_string();
    let new_data = new_cluster(&mut old, "new", &["--keyring-of", &text]);
    // Both configurations are locked, before pg_upgrade and from then on.
    old.lock_configuration();
    Node::at(&old, &new_data).lock_configuration();
    Pair { place: None, from: from.clone(), old, old_data, new_data, truth, relation }
}

/// `pg_upgrade` of the version under test.
fn pg_upgrade(pair: &Pair, old: &Path, new: &Path, options: &[&str]) -> Outcome {
    let programs = bindir().expect("PostgreSQL is there");
    let mut command = pair.old.command_at(&programs.join("pg_upgrade"));
    command.arg("-b").arg(&pair.from.bindir).arg("-B").arg(&programs);
    command.arg("-d").arg(old).arg("-D").arg(new).args(["-U", "postgres"]).args(options);
    command.output().expect("pg_upgrade runs").into()
}

/// Copies of both clusters and of the old one's tablespace, which an attempt may use up.
fn copies(pair: &Pair, what: &str) -> (PathBuf, PathBuf) {
    let place = pair.place();
    let (old, new) = (place.join(format!("old{what}")), place.join(format!("new{what}")));
    copy_tree(&pair.old_data, &old);
    copy_tree(&pair.new_data, &new);
    let tablespace = place.join(format!("ts{what}"));
    copy_tree(&pair.old.home().join("ts"), &tablespace);
    for link in names_in(&old.join("pg_tblspc")) {
        let link = old.join("pg_tblspc").join(link);
        fs::remove_file(&link).expect("it is there");
        symlink(&tablespace, &link).expect("a link");
    }
    (old, new)
}

/// The new cluster as a server.
fn serve(pair: &Pair, dir: &Path) -> Node {
    let mut new = Node::at(&pair.old, dir);
    new.set_bindir(&bindir().expect("PostgreSQL is there"));
    new.configure(&format!("unix_socket_directories = '{}'", pair.old.home().display()));
    new.configure("listen_addresses = ''\nfsync = off\nautovacuum = off");
    new.assert_refused("the configuration of this data directory is locked");
    new.accept_configuration();
    // The server gets its anchor after the upgrade.
    new.use_anchor("anchors");
    new
}

fn assert_truth(pair: &Pair, new: &Node, what: &str) {
    for (question, answer) in &pair.truth {
        assert_eq!(&new.sql(question), answer, "{what}: {question}");
    }
    new.sql("select setval('seq', 4711)");
}

/// Upgrades copies of both clusters and checks the result.
fn upgrade(pair: &Pair, mode: &[&str]) {
    let what = format!("{} to {} {mode:?}", pair.from.major, server_major());
    let (old, new) = copies(pair, "-try");
    let home = pair.old.home().to_owned();
    // It says when the configuration of the new cluster was locked, and is otherwise the old one's.
    let keyring = fs::read(new.join("pgseal/keyring")).expect("a keyring");
    if mode == ["--link"] {
        // The plain logs of pg_upgrade can be directed to another disk.
        symlink(pair.old.make_dir("output"), new.join("pg_upgrade_output.d")).expect("a link");
    }
    let options = [mode, &["--retain", "-j", "2"]].concat();
    let outcome = pg_upgrade(pair, &old, &new, &options);
    assert_eq!(outcome.code, 0, "{what}: {}\n{}", outcome.text, logs(&new));
    // With --retain, pg_upgrade keeps its files: dumps, which contain statistics in newer versions,
    // and logs.
    let kept = new.join("pg_upgrade_output.d");
    let dumps =
        names_in(&kept).iter().flat_map(|run| names_in(&kept.join(run).join("dump"))).count();
    assert!(dumps >= 3, "{what}: {dumps} dumps");
    let tablespace = pair.place().join("ts-try");
    assert_hidden(&[&old, &new, &tablespace, &kept], MARKER);
    // A file that was linked or moved has its old header; a copied file has a new one.
    if mode != ["--swap"] {
        let [before, after] = [&old, &new].map(|dir| read(&dir.join(&pair.relation), 0, HEADER));
        let as_it_is = matches!(mode, ["--link" | "--clone"]);
        assert_eq!(before == after, as_it_is, "{what}: headers of {}", pair.relation.display());
        let shared = pair.place.is_some() && is_shared(&new.join(&pair.relation));
        assert_eq!(shared, mode == ["--clone"], "{what}: blocks on the disk");
    }
    assert_eq!(fs::read(new.join("pgseal/keyring")).expect("a keyring"), keyring, "{what}");

    let mut server = serve(pair, &new);
    server.start();
    assert_truth(pair, &server, &what);
    // Reading the row that two transactions had locked together needs pg_multixact.
    assert_eq!(server.sql("select xmax <> 0::text::xid from t where id = 1"), "t", "{what}");
    server.sql("select id from t where id = 1 for update");
    // Run the step that pg_upgrade recommends at its end, then use the server.
    server.succeed(server.bare("vacuumdb").args(["--all", "--analyze-in-stages"]));
    server.sql("vacuum (freeze, analyze);; checkpoint");
    server.sql("insert into in_ts values ('after');; delete from in_ts where v = 'after'");
    server.kill9();
    server.start();
    assert_eq!(server.sql("select count(*) from unlogged"), "0", "{what}, after a crash");
    server.sql("insert into unlogged select * from t where id < 100");
    assert_truth(pair, &server, &format!("{what}, after a crash"));

    // Removing the old cluster removes nothing of the new one.
    server.succeed(Command::new("sh").arg(home.join("delete_old_cluster.sh")));
    assert!(!old.exists(), "{what}: {} stays", old.display());
    assert_truth(pair, &server, &format!("{what}, without the old one"));
    server.assert_locked();
    server.restart_with_manifest();
    assert_truth(pair, &server, &format!("{what}, after a restart"));
    server.stop();
    server.assert_sound_at(&new, MARKER);
    assert_hidden(&[&tablespace], MARKER);
    // The next attempt makes these directories again.
    for dir in [&new, &tablespace, &home.join("output")] {
        if dir.exists() {
            fs::remove_dir_all(dir).expect("it can be removed");
        }
    }
}

/// The ends of the logs of a `pg_upgrade` that failed.
fn logs(new: &Path) -> String {
    let kept = new.join("pg_upgrade_output.d");
    let dirs = names_in(&kept).into_iter().map(|run| kept.join(run).join("log"));
    let files = dirs.flat_map(|dir| names_in(&dir).into_iter().map(move |name| dir.join(name)));
    let end = |path: PathBuf| {
        let text = fs::read(&path).unwrap_or_default();
        let text = String::from_utf8_lossy(&text[text.len().saturating_sub(2000)..]).into_owned();
        format!("== {}\n{text}\n", path.display())
    };
    files.map(end).collect()
}

/// From every older major that is here.
fn upgrade_from_each(test: &str, mode: &[&str]) {
    let majors = older();
    if majors.is_empty() {
        return not_applicable(test, "no older major is here");
    }
    for from in &majors {
        upgrade(&pair(from), mode);
    }
}

#[test]
fn pg_upgrade_by_copying() {
    upgrade_from_each("pg_upgrade_by_copying", &[]);
}

#[test]
#[ignore = "long: make test-scenarios"]
fn pg_upgrade_by_linking() {
    upgrade_from_each("pg_upgrade_by_linking", &["--link"]);
}

#[test]
#[ignore = "long: make test-scenarios"]
fn pg_upgrade_by_copy_file_range() {
    let test = "pg_upgrade_by_copy_file_range";
    if from_major(17, test) {
        upgrade_from_each(test, &["--copy-file-range"]);
    }
}

#[test]
#[ignore = "long: make test-scenarios"]
fn pg_upgrade_by_swapping() {
    let test = "pg_upgrade_by_swapping";
    if from_major(18, test) {
        upgrade_from_each(test, &["--swap"]);
    }
}

/// Only some file systems can clone files; root can make one. `--copy-file-range` shares no blocks
/// there.
#[test]
#[ignore = "long: make test-scenarios"]
fn pg_upgrade_by_cloning() {
    let test = "pg_upgrade_by_cloning";
    if !is_root() {
        return not_applicable(test, "mounting needs root");
    }
    if older().is_empty() {
        return not_applicable(test, "no older major is here");
    }
    for (index, from) in older().iter().enumerate() {
        let mut pair = pair(from);
        pair.place = Some(Btrfs::mount(&pair.old.home().join("btrfs")));
        upgrade(&pair, &["--clone"]);
        if index == 0 && server_major().as_str() >= "17" {
            upgrade(&pair, &["--copy-file-range"]);
        }
    }
}

/// On file systems that cannot clone, pg_upgrade fails and changes nothing, with and without
/// pgseal.
#[test]
#[ignore = "long: make test-scenarios"]
fn pg_upgrade_by_cloning_where_the_file_system_cannot() {
    let test = "pg_upgrade_by_cloning_where_the_file_system_cannot";
    let Some(from) = older().pop() else {
        return not_applicable(test, "no older major is here");
    };
    let pair = pair(&from);
    let mut cp = Command::new("cp");
    cp.arg("--reflink=always").arg(pair.old_data.join("PG_VERSION")).arg(pair.old.home().join("x"));
    if cp.output().is_ok_and(|output| output.status.success()) {
        return not_applicable(test, "the file system of /tmp can");
    }
    let (old, new) = copies(&pair, "-try");
    let outcome = pg_upgrade(&pair, &old, &new, &["--clone"]);
    assert_ne!(outcome.code, 0, "{}", outcome.text);
    assert!(outcome.text.contains("could not clone file between"), "{}", outcome.text);
    // The old one was not touched.
    let mut again = Node::at(&pair.old, &old);
    again.accept_configuration();
    again.start();
    assert_truth(&pair, &again, "the old cluster after a refused --clone");
    again.stop();
    again.assert_sound_at(&old, MARKER);
}

#[test]
fn pg_upgrade_that_would_lose_the_seal_or_the_keys_does_not_begin() {
    let test = "pg_upgrade_that_would_lose_the_seal_or_the_keys_does_not_begin";
    let Some(from) = older().into_iter().next() else {
        return not_applicable(test, "no older major is here");
    };
    let mut pair = pair(&from);
    // initdb would refuse a new directory, which is not locked.
    pair.old.unset_env("PGSEAL_CONFIG");
    let key = format!("file:{}", pair.old.home().join("key").display());
    let other = new_cluster(&mut pair.old, "other", &["-k", "-K", &key]);
    let initdb = |bindir: &Path, name: &str| {
        let dir = pair.old.home().join(name);
        let mut command = pair.old.bare("initdb");
        if bindir != pair.from.bindir {
            command = pair.old.bare(&bindir.join("initdb").display().to_string());
        }
        command.arg("-D").arg(&dir).args(["-k", "-U", "postgres", "-E", "UTF8", "--locale=C"]);
        pair.old.succeed(command.args(["--no-sync", "--wal-segsize=1"]));
        dir
    };
    let plain_old = initdb(&pair.from.bindir, "plain-old");
    let plain_new = initdb(&bindir().expect("PostgreSQL is there"), "plain-new");
    let conf = pair.old.make_dir("conf");
    fs::copy(plain_old.join("postgresql.conf"), conf.join("postgresql.conf")).expect("a copy");
    let (sealed_old, sealed_new) = (&pair.old_data, &pair.new_data);
    for (old, new, message) in [
        (
            sealed_old,
            &other,
            "different keyrings; make the new one with \"pgseal initdb --keyring-of",
        ),
        (sealed_old, &plain_new, "the old data directory is sealed and the new one is not"),
        (&plain_old, sealed_new, "the new data directory is sealed and the old one is not"),
        (sealed_old, &conf, "has only the configuration; name the data directory itself"),
    ] {
        for mode in [&[][..], &["--link"]] {
            let before = (fingerprint(old), fingerprint(new));
            let outcome = pg_upgrade(&pair, old, new, mode);
            assert_eq!(outcome.code, 1, "{}", outcome.text);
            assert!(outcome.text.contains(message), "{}", outcome.text);
            assert_eq!(changes(&before.0, &fingerprint(old)), Vec::<String>::new());
            assert_eq!(changes(&before.1, &fingerprint(new)), Vec::<String>::new());
        }
    }
    // Another name of the directory does not evade the check.
    let alias = pair.old.home().join("alias");
    symlink(sealed_old, &alias).expect("a link");
    let outcome = pg_upgrade(&pair, &alias, &plain_new, &[]);
    assert_eq!(outcome.code, 1, "{}", outcome.text);
    assert_hidden(&[&plain_new, sealed_old, sealed_new], MARKER);
}

/// When a check of pg_upgrade fails, it names a report file, which must be plain so that people can
/// read it.
#[test]
fn a_report_of_pg_upgrade_can_be_read() {
    let test = "a_report_of_pg_upgrade_can_be_read";
    let Some(from) = older().into_iter().next() else {
        return not_applicable(test, "no older major is here");
    };
    let mut pair = pair(&from);
    // A function of a library that the new version does not have.
    pair.old.start();
    pair.old.sql(
        "create function gone() returns language_handler \
         as '$libdir/plpgsql', 'plpgsql_call_handler' language c;;
         update pg_proc set probin = '$libdir/gone_library' where proname = 'gone'",
    );
    pair.old.stop();
    let outcome = pg_upgrade(&pair, &pair.old_data, &pair.new_data, &[]);
    assert_eq!(outcome.code, 1, "{}", outcome.text);
    let named = outcome.text.lines().map(str::trim).find(|line| line.ends_with(".txt"));
    let report = PathBuf::from(named.unwrap_or_else(|| panic!("no report:\n{}", outcome.text)));
    let text = String::from_utf8_lossy(&fs::read(&report).expect("the report")).into_owned();
    assert!(text.contains("gone_library"), "{}: sealed", report.display());
    // The definitions are in the dumps beside it, which stay sealed.
    let status = pair.old.pgseal(&["status", "--json", &pair.new_data.display().to_string()]);
    assert!(status.text.contains("\"upgrade-report\""), "{}", status.text);
    assert_hidden(&[report.parent().expect("a directory")], MARKER);
}
