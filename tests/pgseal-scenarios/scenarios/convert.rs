//! Conversion in place, plain to sealed and back: whole clusters, every kind of file, every kind of
//! interruption.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use pgseal_scenarios::files::{self, changes, fingerprint};
use pgseal_scenarios::{Node, Outcome, is_root, not_applicable, with_file_limit};
use pgseal_testkit::{Cluster, bindir, canary};

const MARKER: &str = "canary-convert-Zq7x";

/// A cluster with files of many classes, and the directory of its tablespace.
struct Plain {
    node: Node,
    tablespace: PathBuf,
    key: String,
}

/// A cluster with or without data checksums, shut down cleanly.
fn plain(checksums: bool) -> Plain {
    let settings = [
        ("wal_level", "logical"),
        ("max_prepared_transactions", "4"),
        ("shared_preload_libraries", "pg_stat_statements"),
    ];
    let mut node = Node::create(Cluster::builder(), &settings);
    node.bring_programs();
    let key = format!("file:{}", node.new_key("key").display());
    if !checksums {
        let mut disable = node.bare("pg_checksums");
        node.succeed(disable.arg("--disable").arg("-D").arg(node.data()));
    }
    let tablespace = node.make_dir("tablespace");
    node.start_bare();
    node.sql(&format!(
        "create table t (id int primary key, v text);;
         insert into t select g, '{MARKER}' || g from generate_series(1, 5000) g;;
         create table big (v text);; alter table big alter v set storage external;;
         insert into big select repeat('{MARKER}', 500) from generate_series(1, 50);;
         create unlogged table u as select '{MARKER}'::text as v;;
         create tablespace ts location '{}';;
         create table in_ts tablespace ts as select '{MARKER}'::text as v;;
         select lo_from_bytea(4711, '{MARKER}'::bytea);;
         create extension pg_stat_statements;; select count(*) from pg_am as \"{MARKER}\";;
         select pg_create_logical_replication_slot('decoding', 'test_decoding');;
         select pg_create_physical_replication_slot('standby', true);;
         create table decoded (v text);; insert into decoded select '{MARKER}' from generate_series(1, 50);;
         begin; insert into t values (0, '{MARKER}'); prepare transaction '{MARKER}';;
         vacuum t",
        tablespace.display()
    ));
    node.stop();
    Plain { node, tablespace, key }
}

impl Plain {
    /// `pgseal COMMAND OPTIONS DIR`.
    fn convert(&self, command: &str, options: &[&str]) -> Outcome {
        let arguments = self.arguments(command, options);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.node.pgseal(&arguments)
    }

    fn arguments(&self, command: &str, options: &[&str]) -> Vec<String> {
        let bindir = bindir().expect("PostgreSQL is there").display().to_string();
        let mut all = vec![command.to_owned(), "--bindir".to_owned(), bindir];
        all.extend(options.iter().map(|option| (*option).to_owned()));
        if command == "encrypt" && !options.contains(&"-K") {
            all.extend(["-K".to_owned(), self.key.clone()]);
        }
        if command == "decrypt" {
            all.push("--yes-write-plain".to_owned());
        }
        all.push(self.node.data().display().to_string());
        all
    }

    #[track_caller]
    fn converts(&self, command: &str, options: &[&str]) -> String {
        let outcome = self.convert(command, options);
        assert_eq!(outcome.code, 0, "{command}: {}", outcome.text);
        outcome.text
    }

    /// All files except those in pgseal's own directory.
    fn files(&self) -> std::collections::BTreeMap<String, u64> {
        let mut all = fingerprint(self.node.data());
        all.retain(|name, _| !name.starts_with("pgseal/") && name != "postmaster.opts");
        for (name, hash) in fingerprint(&self.tablespace) {
            all.insert(format!("tablespace/{name}"), hash);
        }
        all
    }

    /// The files that show the marker.
    fn shown(&self) -> Vec<canary::Hit> {
        let dirs = [self.node.data(), &self.tablespace];
        canary::scan(&dirs, &[MARKER]).expect("the files can be read")
    }

    fn check_rows(&self) {
        let node = &self.node;
        let expected = format!("5000|{MARKER}5000");
        assert_eq!(node.sql("select count(*), max(v) filter (where id = 5000) from t"), expected);
        assert_eq!(node.sql("select v from u"), MARKER);
        assert_eq!(node.sql("select v from in_ts"), MARKER);
        assert_eq!(node.sql("select count(*) from big where length(v) > 9000"), "50");
        assert_eq!(node.sql("select convert_from(lo_get(4711), 'UTF8')"), MARKER);
        assert_eq!(
            node.sql(
                "select string_agg(slot_name, ',' order by slot_name) from pg_replication_slots"
            ),
            "decoding,standby"
        );
        assert_eq!(node.sql("select gid from pg_prepared_xacts"), MARKER);
        let decoded = node
            .sql("select count(*) > 50 from pg_logical_slot_peek_changes('decoding', null, null)");
        assert_eq!(decoded, "t");
    }

    /// Checks that the cluster is sealed: it starts with the library, has all rows, and no file
    /// shows the marker.
    fn works_sealed(&mut self) {
        let verify = self.node.verify();
        assert_eq!(verify.code, 0, "{}", verify.text);
        assert_eq!(self.shown(), vec![]);
        self.node.start();
        self.check_rows();
        self.node.stop();
        assert_eq!(self.shown(), vec![]);
        assert_eq!(self.node.verify().code, 0);
        let log = self.node.try_start_bare().expect_err("a sealed cluster without the library");
        assert!(log.contains("the library libpgseal.so is not loaded"), "{log}");
    }

    /// Checks that the cluster is plain: it starts without the library and has all rows.
    fn works_plain(&mut self) {
        self.node.start_bare();
        self.check_rows();
        self.node.stop();
        assert!(!self.shown().is_empty());
    }

    /// Neither a plain nor a sealed server starts, and both say what to do.
    fn nothing_starts(&mut self, command: &str) {
        let before = fingerprint(self.node.data());
        let log = self.node.try_start_bare().expect_err("a plain server on it");
        assert!(log.contains(&format!("to-go-on-run--pgseal-{command}")), "{log}");
        // Started by a service with the variables of pgseal env.
        let mut sealed = self.node.bare("postgres");
        let helper = self.node.pgseal_program();
        sealed.env("LD_PRELOAD", self.node.library()).env("PGSEAL_HELPER", helper);
        let outcome =
            Outcome::from(sealed.arg("-D").arg(self.node.data()).output().expect("it runs"));
        assert_ne!(outcome.code, 0, "{}", outcome.text);
        assert!(
            outcome.text.contains(&format!("run \"pgseal {command}\" again")),
            "{}",
            outcome.text
        );
        // Through pgseal itself.
        let log = self.node.try_start().expect_err("a sealed server on it");
        assert!(log.contains("was interrupted here"), "{log}");
        assert_eq!(changes(&before, &fingerprint(self.node.data())), Vec::<String>::new());
    }
}

#[test]
fn encrypt_rekey_change_the_suite_and_decrypt_byte_for_byte() {
    let mut cluster = plain(true);
    let before = cluster.files();
    assert!(!cluster.shown().is_empty(), "a scan that cannot see proves nothing");
    let checked = cluster.converts("encrypt", &["--check"]);
    assert!(checked.contains("all sound"), "{checked}");
    assert_eq!(changes(&before, &cluster.files()), Vec::<String>::new());

    cluster.converts("encrypt", &[]);
    assert_eq!(cluster.shown(), vec![]);
    assert_eq!(cluster.node.verify().code, 0);
    cluster.converts("rekey", &[]);
    cluster.converts("rekey", &["--suite", "aes-256-xts"]);
    assert_eq!(cluster.shown(), vec![]);
    let status =
        cluster.node.pgseal(&["status", "--json", &cluster.node.data().display().to_string()]);
    assert!(status.text.contains("aes-256-xts in-place, generation 3"), "{}", status.text);
    assert!(!status.text.contains("generation 1\""), "{}", status.text);

    // `pgseal key forget` removes the old data keys, since no file needs them any more.
    let data = cluster.node.data().display().to_string();
    let outcome = cluster.node.pgseal(&["key", "forget", &data]);
    assert_eq!(outcome.code, 2, "{}", outcome.text);
    assert!(outcome.text.contains("generation 1, 2"), "{}", outcome.text);
    let outcome = cluster.node.pgseal(&["key", "forget", "--no-backup-has-them", &data]);
    assert_eq!(outcome.code, 0, "{}", outcome.text);
    assert_eq!(cluster.node.verify().code, 0);
    cluster.converts("decrypt", &[]);
    assert_eq!(changes(&before, &cluster.files()), Vec::<String>::new());

    // The same, with a server running between the conversions.
    cluster.converts("encrypt", &[]);
    cluster.works_sealed();
    cluster.converts("rekey", &["--suite", "xts"]);
    cluster.works_sealed();
    cluster.converts("decrypt", &[]);
    cluster.works_plain();
}

/// A locked configuration stays locked through `rekey`, also one that was killed, and ends with
/// `decrypt`. Each conversion of a server with an anchor is accepted with one command.
#[test]
fn a_locked_configuration_and_an_anchor_through_the_conversions() {
    let mut cluster = plain(true);
    cluster.converts("encrypt", &[]);
    cluster.node.lock_configuration();
    cluster.node.use_anchor("anchors");
    cluster.works_sealed();
    for options in [&[][..], &["--suite", "aes-256-xts"], &["--suite", "aes-256-gcm"]] {
        if !kill_at_work(&cluster, "rekey", options, Duration::from_millis(60)) {
            eprintln!("rekey {options:?} was faster than the signal");
        }
        go_on(&cluster, "rekey", options);
        cluster.node.assert_locked();
        cluster.node.assert_refused("pgseal anchor accept");
        cluster.node.accept_anchor();
        cluster.works_sealed();
        cluster.node.start();
        cluster.node.sql("alter system set work_mem = '6MB'");
        cluster.node.restart_with_manifest();
        cluster.check_rows();
        cluster.node.stop();
        cluster.node.assert_locked();
    }
    cluster.converts("decrypt", &[]);
    cluster.works_plain();
    // Sealed again, it has a new keyring, and is not locked.
    cluster.converts("encrypt", &[]);
    cluster.node.assert_refused("PGSEAL_CONFIG");
    cluster.node.lock_configuration();
    cluster.node.assert_refused("pgseal anchor accept");
    cluster.node.accept_anchor();
    cluster.works_sealed();
    cluster.node.assert_locked();
}

#[test]
#[ignore = "long: make test-scenarios"]
fn encrypt_and_decrypt_in_every_suite_with_and_without_checksums() {
    for checksums in [true, false] {
        for suite in [
            "aes-256-gcm",
            "aes-128-gcm",
            "aes-256-xts",
            "aes-128-xts",
            "aes-256-ctr",
            "aes-192-ctr",
            "aes-128-ctr",
            "aegis-256x2",
        ] {
            let mut cluster = plain(checksums);
            let before = cluster.files();
            let outcome = cluster.convert("encrypt", &["--suite", suite]);
            if !checksums && !suite.ends_with("xts") {
                assert_eq!(outcome.code, 21, "{suite}: {}", outcome.text);
                assert!(outcome.text.contains("pg_checksums --enable"), "{}", outcome.text);
                assert_eq!(changes(&before, &cluster.files()), Vec::<String>::new());
                continue;
            }
            assert_eq!(outcome.code, 0, "{suite}: {}", outcome.text);
            cluster.converts("decrypt", &[]);
            assert_eq!(changes(&before, &cluster.files()), Vec::<String>::new());
            cluster.converts("encrypt", &["--suite", suite]);
            cluster.works_sealed();
            cluster.converts("decrypt", &[]);
            cluster.works_plain();
        }
    }
}

/// Starts a conversion, waits until it is replacing files, then kills it. Returns false if the
/// conversion replaced all files before the signal came.
fn kill_at_work(cluster: &Plain, command: &str, options: &[&str], delay: Duration) -> bool {
    let arguments = cluster.arguments(command, options);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut program = cluster.node.pgseal_command(&arguments);
    let mut child = program.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
    let journal = cluster.node.file("pgseal/conversion");
    let at_work = || {
        let text = fs::read_to_string(&journal).unwrap_or_default();
        text.contains(command) && text.contains("\"phase\": \"convert\"")
    };
    while !at_work() && matches!(child.try_wait(), Ok(None)) {
        thread::sleep(Duration::from_micros(200));
    }
    thread::sleep(delay);
    // It may have ended meanwhile.
    let _ = child.kill();
    child.wait().expect("our own child");
    at_work()
}

/// Continues a killed conversion, unless it was complete.
fn go_on(cluster: &Plain, command: &str, options: &[&str]) {
    let is_sealed = cluster.node.file("pgseal/keyring").exists();
    let is_done = match command {
        "encrypt" => is_sealed,
        "decrypt" => !is_sealed,
        // Running the command once more does no harm.
        _ => false,
    };
    if cluster.node.file("pgseal/conversion").exists() || !is_done {
        cluster.converts(command, options);
    }
}

/// How many conversions may be faster than the signal before the test fails.
const MISSES: u64 = 30;

/// After a conversion that was faster than the signal: completes it and converts back. A rekey need
/// not be undone, because it can be repeated.
fn undo(cluster: &Plain, command: &str, options: &[&str]) {
    go_on(cluster, command, options);
    match command {
        "encrypt" => drop(cluster.converts("decrypt", &["--skip-check"])),
        "decrypt" => drop(cluster.converts("encrypt", &["--skip-check"])),
        _ => {}
    }
}

/// Kills each conversion this many times before it may end, or as often as the signal is in time.
fn killed_again_and_again(kills: u64) {
    let mut cluster = plain(true);
    let before = cluster.files();
    let mut milliseconds = 0;
    for (command, options) in [
        ("encrypt", &["--skip-check"][..]),
        ("rekey", &["--skip-check", "--suite", "aes-128-gcm"]),
        ("decrypt", &["--skip-check"]),
    ] {
        let (mut hits, mut misses) = (0, 0);
        while hits < kills {
            milliseconds = (milliseconds * 7 + hits * 13 + 5) % 60;
            let delay = Duration::from_millis(if misses == 0 { milliseconds } else { 0 });
            if kill_at_work(&cluster, command, options, delay) {
                hits += 1;
                if hits == 1 {
                    cluster.nothing_starts(command);
                }
            } else if hits > 0 {
                break;
            } else {
                misses += 1;
                assert!(misses < MISSES, "no signal hits {command} at work");
                undo(&cluster, command, options);
            }
        }
        go_on(&cluster, command, options);
        if command != "decrypt" {
            assert_eq!(cluster.shown(), vec![], "after {command}");
            assert_eq!(cluster.node.verify().code, 0);
        }
    }
    assert_eq!(changes(&before, &cluster.files()), Vec::<String>::new());
    cluster.works_plain();
}

#[test]
fn encrypt_rekey_and_decrypt_killed_with_signal_9_go_on() {
    killed_again_and_again(3);
}

#[test]
#[ignore = "long: make test-scenarios"]
fn encrypt_rekey_and_decrypt_killed_with_signal_9_at_many_points_go_on() {
    for _ in 0..3 {
        killed_again_and_again(25);
    }
}

/// `decrypt` undoes an unfinished `encrypt`.
#[test]
fn decrypt_takes_back_an_encrypt_that_was_killed() {
    let mut cluster = plain(true);
    let before = cluster.files();
    let options = &["--skip-check"];
    let mut misses = 0;
    while !kill_at_work(&cluster, "encrypt", options, Duration::from_millis(10 >> misses)) {
        misses += 1;
        assert!(misses < MISSES, "no signal hits it at work");
        undo(&cluster, "encrypt", options);
    }
    let verify = cluster.node.verify();
    assert_eq!(verify.code, 22, "{}", verify.text);
    let status = cluster.node.pgseal(&["status", &cluster.node.data().display().to_string()]);
    assert!(status.text.contains("UNFINISHED"), "{}", status.text);
    let outcome = cluster.convert("rekey", &[]);
    assert_eq!(outcome.code, 22, "{}", outcome.text);
    cluster.converts("decrypt", &[]);
    assert_eq!(changes(&before, &cluster.files()), Vec::<String>::new());
    cluster.works_plain();
}

/// A limit on file sizes simulates a full disk.
#[test]
fn encrypt_on_a_disk_that_is_full_goes_on_when_there_is_room() {
    let mut cluster = plain(true);
    let arguments = cluster.arguments("encrypt", &["--skip-check"]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let limited = cluster.node.pgseal_command(&arguments);
    let mut limited = with_file_limit(&limited, 700);
    let outcome = Outcome::from(limited.output().expect("it runs"));
    assert_eq!(outcome.code, 40, "{}", outcome.text);
    assert!(outcome.text.contains("File too large"), "{}", outcome.text);
    cluster.nothing_starts("encrypt");
    cluster.converts("encrypt", &[]);
    cluster.works_sealed();
}

#[test]
fn encrypt_stops_at_a_damaged_page_or_takes_it_along_as_it_is() {
    let mut cluster = plain(true);
    cluster.node.start_bare();
    let table = cluster.node.relation("t");
    cluster.node.stop();
    files::flip_bit(&cluster.node.file(&table), 3 * files::PAGE + 5000);
    let before = cluster.files();
    let outcome = cluster.convert("encrypt", &[]);
    assert_eq!(outcome.code, 1, "{}", outcome.text);
    assert!(outcome.text.contains(&format!("{table}: blocks 3")), "{}", outcome.text);
    assert_eq!(changes(&before, &cluster.files()), Vec::<String>::new());

    let outcome = cluster.convert("encrypt", &["--keep-damaged"]);
    assert_eq!(outcome.code, 1, "{}", outcome.text);
    cluster.node.start();
    let error = cluster.node.try_sql("select count(*) from t").expect_err("a damaged page");
    assert!(error.contains("invalid page in block 3"), "{error}");
    assert_eq!(cluster.node.sql("select v from in_ts"), MARKER);
    cluster.node.stop();

    // A page that does not authenticate is treated in the same way.
    files::flip_bit(&cluster.node.file(&table), files::page_off(5) + 77);
    let outcome = cluster.convert("decrypt", &[]);
    assert_eq!(outcome.code, 1, "{}", outcome.text);
    assert!(outcome.text.contains("blocks 3, 5"), "{}", outcome.text);
    let outcome = cluster.convert("decrypt", &["--keep-damaged"]);
    assert_eq!(outcome.code, 1, "{}", outcome.text);
    cluster.node.start_bare();
    for block in [3, 5] {
        let read = format!("select v from t where ctid = '({block},1)'");
        let error = cluster.node.try_sql(&read).expect_err("a damaged page");
        assert!(error.contains(&format!("invalid page in block {block}")), "{error}");
    }
    cluster.node.stop();
}

#[test]
fn encrypt_and_rekey_refuse_what_they_cannot_do_and_change_nothing() {
    let mut cluster = plain(true);
    cluster.node.start_bare();
    let outcome = cluster.convert("encrypt", &[]);
    assert_eq!(outcome.code, 22, "{}", outcome.text);
    assert!(outcome.text.contains("pg_ctl -D"), "{}", outcome.text);
    cluster.node.stop_at_once();
    let before = cluster.files();
    let outcome = cluster.convert("encrypt", &[]);
    assert_eq!(outcome.code, 22, "{}", outcome.text);
    assert!(outcome.text.contains("not shut down cleanly"), "{}", outcome.text);
    assert_eq!(changes(&before, &cluster.files()), Vec::<String>::new());
    cluster.node.start_bare();
    // Recovery after the crash has emptied the unlogged table.
    cluster.node.sql(&format!("insert into u values ('{MARKER}')"));
    cluster.node.stop();

    // Missing keys and unsuitable settings are refused.
    let before = cluster.files();
    let missing = format!("file:{}/nowhere", cluster.node.home().display());
    let outcome = cluster.convert("encrypt", &["-K", &missing]);
    assert_eq!(outcome.code, 10, "{}", outcome.text);
    let data = cluster.node.data().display().to_string();
    let outcome = cluster.node.pgseal(&["encrypt", &data]);
    assert_eq!(outcome.code, 2, "{}", outcome.text);
    let outcome = cluster.node.pgseal(&["decrypt", &data]);
    assert_eq!(outcome.code, 2, "{}", outcome.text);
    let outcome = cluster.convert("rekey", &[]);
    assert_eq!(outcome.code, 4, "{}", outcome.text);
    assert_eq!(changes(&before, &cluster.files()), Vec::<String>::new());
    let conf = fs::read(cluster.node.file("postgresql.conf")).expect("it is there");
    cluster.node.configure("full_page_writes = off");
    let outcome = cluster.convert("encrypt", &["--check"]);
    assert_eq!(outcome.code, 21, "{}", outcome.text);
    fs::write(cluster.node.file("postgresql.conf"), conf).expect("it can be written");

    // A link that PostgreSQL did not make, and one of its own that leads nowhere.
    let dangling = cluster.node.file("base/5/12345678");
    std::os::unix::fs::symlink("/nowhere", &dangling).expect("a link");
    let outcome = cluster.convert("encrypt", &[]);
    assert_eq!(outcome.code, 22, "{}", outcome.text);
    assert!(outcome.text.contains("leads nowhere"), "{}", outcome.text);
    fs::remove_file(dangling).expect("it is there");
    assert_eq!(changes(&before, &cluster.files()), Vec::<String>::new());

    cluster.converts("encrypt", &[]);
    let outcome = cluster.convert("encrypt", &[]);
    assert_eq!(outcome.code, 5, "{}", outcome.text);
    let other = format!("file:{}", cluster.node.new_key("other").display());
    let before = cluster.files();
    for command in ["rekey", "decrypt"] {
        let outcome = cluster.convert(command, &["-K", &other]);
        assert_eq!(outcome.code, 11, "{}", outcome.text);
    }
    assert_eq!(changes(&before, &cluster.files()), Vec::<String>::new());
    cluster.works_sealed();
}

/// `encrypt --check` sees what the real run would meet: a file system that is mounted read-only.
#[test]
fn encrypt_check_sees_a_read_only_file_system() {
    let test = "encrypt_check_sees_a_read_only_file_system";
    if !is_root() {
        return not_applicable(test, "needs root, to mount");
    }
    let cluster = plain(true);
    let before = cluster.files();
    let mount = "mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro \"$1\" || exit 99; shift; exec \"$@\"";
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", mount, "sh"])
        .arg(cluster.node.data())
        .arg(cluster.node.pgseal_program())
        .args(cluster.arguments("encrypt", &["--check"]))
        .output()
        .expect("unshare runs");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    if output.status.code() == Some(99) || said.contains("unshare failed") {
        return not_applicable(test, "this root may not mount");
    }
    assert_eq!(output.status.code(), Some(22), "{said}");
    let remedy = "mount the file system for writing (mount -o remount,rw)";
    assert!(said.contains("cannot be written") && said.contains(remedy), "{said}");
    assert_eq!(changes(&before, &cluster.files()), Vec::<String>::new());
}

#[test]
fn encrypt_leaves_what_is_not_postgresqls_and_says_so() {
    let cluster = plain(true);
    let notes = cluster.node.file("notes.txt");
    fs::write(&notes, "an administrator's").expect("it can be written");
    let text = cluster.converts("encrypt", &["--json"]);
    assert!(text.contains("\"left_alone\": [\n    \"notes.txt\"\n  ]"), "{text}");
    assert!(text.contains("\"done\": true"), "{text}");
    assert_eq!(fs::read_to_string(notes).expect("it is there"), "an administrator's");
}
