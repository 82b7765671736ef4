//! Refusals: each is one clear line, and changes no file.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use pgseal_scenarios::files::{self, changes, copy_tree, fingerprint, restore_tree};
use pgseal_scenarios::{Node, Outcome, is_fips};
use pgseal_testkit::{Cluster, Sealing, bindir};

/// A sealed cluster with a table, stopped.
fn stopped() -> Node {
    let mut node = Node::sealed(&[]);
    node.start();
    node.sql("create table t as select g from generate_series(1, 100) g");
    node.stop();
    node
}

/// Tries to start; the log must say `message`, and no file of the data directory may have changed.
fn refuses_untouched(node: &mut Node, message: &str) {
    let before = fingerprint(node.data());
    let log = node.try_start().expect_err("a start that must be refused");
    assert!(log.contains(message), "expected \"{message}\", got:\n{log}");
    assert!(!log.contains("could not create lock file"), "{log}");
    let changed = changes(&before, &fingerprint(node.data()));
    assert!(changed.is_empty(), "changed: {changed:?}\n{log}");
}

/// The last line of a log.
fn last_line(log: &str) -> &str {
    log.lines().rfind(|line| !line.is_empty()).unwrap_or_default()
}

/// The same; the reason must also be the last line, and stand in the log once.
fn refuses_with_last_line(node: &mut Node, message: &str) {
    let before = fingerprint(node.data());
    let log = node.try_start().expect_err("a start that must be refused");
    let last = last_line(&log);
    assert!(last.starts_with("pgseal: ") && last.contains(message), "last line of:\n{log}");
    assert_eq!(log.matches(message).count(), 1, "{log}");
    assert_eq!(changes(&before, &fingerprint(node.data())), Vec::<String>::new(), "{log}");
}

/// Whoever sees the end of the log of a failed start sees the cause.
#[test]
fn the_last_line_of_a_failed_start_is_the_cause() {
    let mut node = stopped();
    let key = fs::read_to_string(key_file(&node)).expect("the key file");
    fs::write(key_file(&node), "00".repeat(32)).expect("it can be written");
    refuses_with_last_line(&mut node, "wrong key");
    fs::write(key_file(&node), &key).expect("it can be written");

    node.set_env("PGSEAL_KEYRING_ID", &"0".repeat(32));
    refuses_with_last_line(&mut node, "PGSEAL_KEYRING_ID names");
    node.unset_env("PGSEAL_KEYRING_ID");

    // The helper is killed, as the kernel does when memory is short.
    let killed = node.home().join("killed");
    fs::write(&killed, "#!/bin/sh\nkill -9 $$\n").expect("it can be written");
    fs::set_permissions(&killed, fs::Permissions::from_mode(0o755)).expect("chmod");
    node.set_env("PGSEAL_HELPER", &killed.display().to_string());
    refuses_with_last_line(&mut node, "ended by signal 9");
    node.unset_env("PGSEAL_HELPER");

    // Without the guard module the postmaster ends before it has started any other process.
    let conf = fs::read_to_string(node.file("postgresql.conf")).expect("a configuration");
    node.configure("shared_preload_libraries = ''");
    let before = fingerprint(node.data());
    let log = node.try_start().expect_err("a start without the guard module");
    assert!(log.contains("pgseal: FATAL: the guard module is not loaded"), "{log}");
    assert!(!log.contains("startup process") && !log.contains("could not"), "{log}");
    assert_eq!(changes(&before, &fingerprint(node.data())), Vec::<String>::new(), "{log}");
    fs::write(node.file("postgresql.conf"), conf).expect("it can be written");
    still_works(&mut node);
}

/// A normal start logs one line that says what protects the cluster.
#[test]
fn a_start_logs_what_protects_the_cluster() {
    let mut node = stopped();
    node.start();
    let log = node.log();
    let shown = node.pgseal(&["key", "show", "--json", &node.data().display().to_string()]).text;
    let id = shown.split("\"keyring_id\": \"").nth(1).expect("an identity");
    let id = id.split('"').next().expect("an identity");
    let line = format!(
        "LOG:  data directory is sealed: pgseal {}{}, keyring {}, data key 1, aes-256-gcm, key from \
         file:{}",
        env!("CARGO_PKG_VERSION"),
        if is_fips() { " (FIPS build)" } else { "" },
        id,
        key_file(&node).display()
    );
    assert_eq!(log.matches("data directory is sealed").count(), 1, "{log}");
    assert!(log.lines().any(|logged| logged.ends_with(&line)), "no \"{line}\" in:\n{log}");
    node.stop();

    // A command is shown without what may be a secret.
    node.set_env("PGSEAL_PROVIDER", &format!("command:cat '{}'", key_file(&node).display()));
    node.start();
    let log = node.log();
    assert!(log.contains("key from command:cat ...\n"), "{log}");
    node.stop();

    // With the logging collector the line is in its file, and nowhere else.
    node.configure("logging_collector = on");
    node.configure("log_directory = 'log'");
    node.start();
    assert!(!node.log().contains("data directory is sealed"), "{}", node.log());
    node.stop();
    let collected = fs::read_dir(node.file("log")).expect("the collector's directory");
    let collected: String = collected
        .map(|item| fs::read_to_string(item.expect("an entry").path()).expect("a log"))
        .collect();
    assert_eq!(collected.matches("LOG:  data directory is sealed").count(), 1, "{collected}");
}

/// Checks that the cluster still works.
fn still_works(node: &mut Node) {
    node.start();
    assert_eq!(node.sql("select count(*) from t"), "100");
    node.stop();
    node.assert_authentic();
}

fn key_file(node: &Node) -> PathBuf {
    node.home().join("key")
}

#[test]
fn keys_that_are_wrong_missing_or_open_to_others() {
    let mut node = stopped();
    let key = fs::read_to_string(key_file(&node)).expect("the key file");

    fs::write(key_file(&node), "00".repeat(32)).expect("it can be written");
    refuses_untouched(&mut node, "wrong key");
    assert_eq!(node.verify().code, 11);

    fs::write(key_file(&node), "not a key").expect("it can be written");
    refuses_untouched(&mut node, "pgseal: ");

    fs::write(key_file(&node), &key).expect("it can be written");
    for mode in [0o640, 0o604, 0o644] {
        fs::set_permissions(key_file(&node), fs::Permissions::from_mode(mode)).expect("chmod");
        refuses_untouched(&mut node, "chmod");
        assert_eq!(node.verify().code, 12, "mode {mode:o}");
    }

    let away = node.home().join("away");
    fs::rename(key_file(&node), &away).expect("a move");
    refuses_untouched(&mut node, "no key");
    assert_eq!(node.verify().code, 10);

    fs::rename(&away, key_file(&node)).expect("a move");
    fs::set_permissions(key_file(&node), fs::Permissions::from_mode(0o600)).expect("chmod");
    still_works(&mut node);
}

/// A key that came in the environment is not visible to commands of the server, nor in `/proc`.
#[test]
fn a_key_from_the_environment_is_in_no_process_of_the_server() {
    let mut node = stopped();
    let key = fs::read_to_string(key_file(&node)).expect("the key file");
    let key = key.trim();
    node.set_env("PGSEAL_PROVIDER", "env:PGSEAL_TEST_SECRET");
    node.set_env("PGSEAL_TEST_SECRET", key);
    node.start();
    let leaked = node.sql(&format!(
        "create temp table seen (line text); \
         copy seen from program 'env' with (format csv, delimiter E'\\x01', quote E'\\x02'); \
         select count(*) from seen where line like '%{}%'",
        &key[..32]
    ));
    assert_eq!(leaked.lines().last(), Some("0"), "{leaked}");
    let postmaster = fs::read_to_string(node.file("postmaster.pid")).expect("a running server");
    let postmaster = postmaster.lines().next().expect("a pid").to_owned();
    let environ = fs::read(format!("/proc/{postmaster}/environ")).expect("our own child");
    let environ = String::from_utf8_lossy(&environ).into_owned();
    assert!(environ.contains("PGSEAL_HELPER=") && !environ.contains(key), "{environ}");
    node.stop();
}

#[test]
fn keyrings_that_are_missing_damaged_or_of_another_cluster() {
    let mut node = stopped();
    let other = stopped();
    let keyring = node.file("pgseal/keyring");
    let own = fs::read(&keyring).expect("a keyring");

    files::flip_bit(&keyring, files::len(&keyring) - 10);
    refuses_untouched(&mut node, "the keyring is damaged");
    assert_eq!(node.verify().code, 14);

    // Both clusters have the same key, but the keyring does not fit these files.
    files::replace(&keyring, &other.file("pgseal/keyring"));
    refuses_untouched(&mut node, "does not fit this data directory; put its own back");
    assert_eq!(node.verify().code, 15);

    fs::remove_file(&keyring).expect("it is there");
    refuses_untouched(&mut node, "there is no keyring");
    assert_eq!(node.verify().code, 16);
    // A tool must not take the directory for a plain one: pg_resetwal would remove the WAL.
    let before = fingerprint(node.data());
    let reset = node.command("pg_resetwal").arg("-f").arg(node.data()).output().expect("it runs");
    assert!(!reset.status.success());
    let said = String::from_utf8_lossy(&reset.stderr);
    assert!(said.contains("there is no keyring"), "{said}");
    assert_eq!(changes(&before, &fingerprint(node.data())), Vec::<String>::new());

    fs::write(&keyring, own).expect("it can be written");
    if pgseal_scenarios::is_root() {
        let mut chown = Command::new("chown");
        node.succeed(chown.arg("postgres:").arg(&keyring));
    }
    fs::set_permissions(&keyring, fs::Permissions::from_mode(0o600)).expect("chmod");
    still_works(&mut node);
}

#[test]
fn a_server_started_by_hand_without_the_library() {
    let mut node = stopped();
    let before = fingerprint(node.data());
    let log = node.try_start_bare().expect_err("a start without the library");
    assert!(log.contains("the library libpgseal.so is not loaded"), "{log}");
    assert!(log.contains("pgseal run -- pg_ctl"), "what to do next: {log}");
    assert_eq!(changes(&before, &fingerprint(node.data())), Vec::<String>::new());

    // pg_ctl says the same.
    let mut pg_ctl = node.bare("pg_ctl");
    let log_file = node.home().join("pg_ctl.log");
    pg_ctl.arg("-D").arg(node.data()).arg("-l").arg(&log_file).args(["-w", "start"]);
    let status = pg_ctl.stdout(node.output_file("pg_ctl.out")).status().expect("pg_ctl runs");
    assert!(!status.success());
    let log = fs::read_to_string(log_file).expect("a log");
    assert!(log.contains("the library libpgseal.so is not loaded"), "{log}");
    assert_eq!(changes(&before, &fingerprint(node.data())), Vec::<String>::new());
    still_works(&mut node);
}

/// The guard module was removed from the configuration, and the library is not loaded: the server
/// stops because it cannot read the sealed WAL. Before that it writes a few files, none of which
/// contains or contained user data.
#[test]
fn a_server_without_library_and_without_guard_module() {
    let mut node = stopped();
    let copy = node.home().join("before");
    copy_tree(node.data(), &copy);
    node.configure("shared_preload_libraries = ''");
    let before = fingerprint(node.data());
    let log = node.try_start_bare().expect_err("a start without the library");
    assert!(log.contains("PANIC") || log.contains("FATAL"), "{log}");
    let changed = changes(&before, &fingerprint(node.data()));
    let is_known = |name: &String| UNGUARDED.iter().any(|known| name.starts_with(known));
    assert!(changed.iter().all(is_known), "changed: {changed:?}\n{log}");

    // With the library, it does not serve without the guard module either.
    restore_tree(&copy, node.data());
    node.configure("shared_preload_libraries = ''");
    let log = node.try_start().expect_err("a start without the guard module");
    assert!(log.contains("add pgseal_guard to shared_preload_libraries"), "{log}");

    restore_tree(&copy, node.data());
    still_works(&mut node);
}

/// The files that a server without library and guard module changes before it stops.
const UNGUARDED: [&str; 2] = ["postmaster.opts", "postmaster.pid"];

#[test]
fn a_program_that_imports_an_unknown_call() {
    let node = stopped();
    let dir = node.make_dir("programs");
    let source = dir.join("unknown.c");
    let text = "#include <aio.h>\n#include <fcntl.h>\n#include <stdio.h>\n#include <string.h>\n\
                #include <unistd.h>\n\
                int main(int argc, char **argv)\n{\n\
                \tchar text[] = \"written past the library\";\n\
                \tint fd = open(argv[1], O_CREAT | O_WRONLY, 0600);\n\
                \tstruct aiocb cb;\n\
                \tmemset(&cb, 0, sizeof cb);\n\
                \tcb.aio_fildes = fd;\n\tcb.aio_buf = text;\n\tcb.aio_nbytes = sizeof text;\n\
                \treturn aio_write(&cb) != 0 || sleep(1) != 0;\n}\n";
    fs::write(&source, text).expect("it can be written");
    // A program with the name of one of PostgreSQL's, one that PGSEAL_PROGRAMS names, and another
    // one.
    for (name, named, refused) in
        [("pg_waldump", false, true), ("backup-tool", true, true), ("backup-tool", false, false)]
    {
        let program = dir.join(name);
        let mut cc = Command::new("cc");
        node.succeed(cc.arg("-o").arg(&program).arg(&source));
        let target = node.home().join("target");
        let _ = fs::remove_file(&target);
        let mut command = node.command_at(&program);
        if named {
            command.env("PGSEAL_PROGRAMS", name);
        }
        let outcome = Outcome::from(command.arg(&target).output().expect("it runs"));
        if refused {
            assert_eq!(outcome.code, 127, "{}", outcome.text);
            assert!(outcome.text.contains("aio_write"), "{}", outcome.text);
            assert!(!target.exists(), "it has made a file");
        } else {
            // The library leaves other programs alone, because they do not see plain content.
            assert_eq!(outcome.code, 0, "{}", outcome.text);
        }
    }
}

/// Where the library cannot read what a program imports, it cannot know that nothing goes past it.
#[test]
fn a_program_whose_tables_cannot_be_read() {
    let node = stopped();
    let dir = node.make_dir("programs");
    let source = dir.join("empty.c");
    fs::write(&source, "int main(void)\n{\n\treturn 0;\n}\n").expect("it can be written");
    let program = dir.join("pg_waldump");
    let mut cc = Command::new("cc");
    node.succeed(cc.arg("-o").arg(&program).arg(&source));
    let run = || Outcome::from(node.command_at(&program).output().expect("it runs"));
    assert_eq!(run().code, 0, "{}", run().text);
    // The segment with the dynamic section is writable and, as the header says, not readable. The
    // processor and the linker read it all the same.
    let mut bytes = fs::read(&program).expect("it can be read");
    let word =
        |at: usize| usize::try_from(u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()));
    let headers: Vec<[usize; 4]> = (0..usize::from(bytes[56]))
        .map(|index| word(32).unwrap() + index * 56)
        .map(|at| [at, bytes[at].into(), word(at + 16).unwrap(), word(at + 40).unwrap()])
        .collect();
    let [_, _, dynamic, _] = *headers.iter().find(|header| header[1] == 2).expect("PT_DYNAMIC");
    let [load, ..] = *headers
        .iter()
        .find(|[_, kind, start, len]| *kind == 1 && (*start..start + len).contains(&dynamic))
        .expect("PT_LOAD");
    assert_eq!(bytes[load + 4], 6);
    bytes[load + 4] = 2;
    fs::write(&program, &bytes).expect("it can be written");
    let outcome = run();
    assert_eq!(outcome.code, 127, "{}", outcome.text);
    assert!(outcome.text.contains("its tables cannot be read"), "{}", outcome.text);
    // Without the library it runs.
    node.succeed(&mut Command::new(&program));
}

#[test]
fn settings_under_which_pages_could_not_be_repaired() {
    let mut node = stopped();
    // full_page_writes is checked at the start and while the server runs.
    node.configure("full_page_writes = off");
    refuses_untouched(&mut node, "needs full_page_writes, and it is off");
    node.configure("full_page_writes = on");
    node.start();
    node.configure("full_page_writes = off");
    node.sql("select pg_reload_conf()");
    files::wait_for("a refusal in the log", || {
        node.log().contains("full_page_writes cannot be switched off")
    });
    assert_eq!(node.sql("show full_page_writes"), "on");
    let error = node.try_sql("alter system set full_page_writes = off").expect_err("refused");
    assert!(error.contains("full_page_writes"), "{error}");
    node.configure("full_page_writes = on");
    node.stop();

    // Data checksums are checked when the cluster is made and later. CTR needs them.
    let dir = node.home().join("unchecked");
    let key = format!("file:{}", key_file(&node).display());
    let programs = bindir().expect("PostgreSQL is there").display().to_string();
    let dir_text = dir.display().to_string();
    let initdb = ["initdb", "-K", &key, "--bindir", &programs, "--suite", "ctr"];
    let outcome = node.pgseal(&[&initdb[..], &["--no-data-checksums", &dir_text]].concat());
    assert_eq!(outcome.code, 21, "{}", outcome.text);
    assert!(outcome.text.contains("use -k, or --suite aes-256-gcm"), "{}", outcome.text);
    assert!(!dir.exists());

    let mut disable = node.command("pg_checksums");
    node.succeed(disable.arg("--disable").arg("-D").arg(node.data()));
    refuses_untouched(&mut node, "needs wal_log_hints or data checksums, and both are off");
    let mut enable = node.command("pg_checksums");
    node.succeed(enable.arg("--enable").arg("-D").arg(node.data()));
    still_works(&mut node);
}

/// XTS stores no nonce or tag for a page, so neither setting is required.
#[test]
fn xts_needs_neither_checksums_nor_full_page_images() {
    let sealing = Sealing { suite: "aes-256-xts".to_owned(), ..Sealing::default() };
    let builder = Cluster::builder().sealed(sealing).programs(pgseal_scenarios::programs());
    let mut node = Node::create(builder, &[("full_page_writes", "off")]);
    node.start();
    node.sql("create table t as select g from generate_series(1, 100) g");
    node.kill9();
    still_works(&mut node);
    let mut disable = node.command("pg_checksums");
    node.succeed(disable.arg("--disable").arg("-D").arg(node.data()));
    still_works(&mut node);
}

#[test]
fn a_directory_that_is_no_data_directory() {
    let node = stopped();
    let empty = node.make_dir("empty");
    let missing = node.home().join("missing");
    let file = node.file("PG_VERSION");
    for dir in [&empty, &missing, &file] {
        for command in ["verify", "status"] {
            let outcome = node.pgseal(&[command, &dir.display().to_string()]);
            assert_eq!(outcome.code, 3, "{command} {}: {}", dir.display(), outcome.text);
            assert!(outcome.text.contains(&dir.display().to_string()), "{}", outcome.text);
        }
    }
    let key = format!("file:{}", key_file(&node).display());
    let data = node.data().display().to_string();
    let before = fingerprint(node.data());
    let programs = bindir().expect("PostgreSQL is there").display().to_string();
    let outcome = node.pgseal(&["initdb", "-k", "-K", &key, "--bindir", &programs, &data]);
    assert_eq!(outcome.code, 5, "a second initdb: {}", outcome.text);
    assert_eq!(changes(&before, &fingerprint(node.data())), Vec::<String>::new());
    assert!(is_empty(&empty));

    let plain = Node::plain(&[]);
    let outcome = node.pgseal(&["verify", &plain.data().display().to_string()]);
    assert_ne!(outcome.code, 0, "a plain cluster is not sound: {}", outcome.text);
}

fn is_empty(dir: &Path) -> bool {
    fs::read_dir(dir).is_ok_and(|mut listing| listing.next().is_none())
}

/// An attacker must not be able to insert rows with a plain file.
#[test]
fn a_plain_relation_file_in_the_place_of_a_sealed_one() {
    let mut plain = Node::plain(&[]);
    plain.start();
    plain.sql("create table t as select 666 as g from generate_series(1, 100);; checkpoint");
    let foreign = plain.file(&plain.relation("t"));
    plain.stop();

    let mut node = stopped();
    node.start();
    let path = node.relation("t");
    node.stop();
    files::replace(&node.file(&path), &foreign);
    let verify = node.verify();
    assert_eq!(verify.code, 1);
    assert!(verify.text.contains("must be sealed"), "{}", verify.text);
    node.start();
    let before = fs::read(node.file(&path)).expect("the file");
    let error = node.try_sql("select count(*) from t").expect_err("a plain file is read");
    assert!(error.contains("invalid page in block 0"), "{error}");
    assert!(node.log().contains("is a plain file where only sealed ones may be"), "{}", node.log());
    assert!(node.try_sql("insert into t values (1)").is_err());
    assert_eq!(fs::read(node.file(&path)).expect("the file"), before, "it was written to");
    node.stop();
}

/// A limit of 24 MB for each file simulates a full disk.
#[test]
fn a_disk_that_is_full() {
    let mut node = stopped();
    node.limit_file_size(Some(24 << 10));
    node.start();
    node.sql("create table big (v text);; alter table big alter v set storage external");
    let fill = "insert into big select repeat(md5(g::text), 60) from generate_series(1, 4000) g";
    let mut filled = 0;
    let error = loop {
        match node.try_sql(fill) {
            Ok(_) => filled += 4000,
            Err(error) => break error,
        }
        assert!(filled < 200_000, "nothing stopped it");
    };
    assert!(error.contains("could not extend file"), "{error}");
    // The server continues: committed rows are there, and other tables can be written.
    assert_eq!(node.sql("select count(*) from big"), filled.to_string());
    node.sql("insert into t select g from generate_series(101, 200) g;; checkpoint");
    assert_eq!(node.sql("select count(*) from t"), "200");
    // A spill reaches the same limit, and leaves no file behind.
    let error = node
        .try_sql("set work_mem = '64kB';; select md5(g::text) from generate_series(1, 2000000) g order by 1 offset 1999999")
        .expect_err("a spill of more than the quota");
    assert!(error.contains("could not write to file"), "{error}");
    node.stop();
    let verify = node.verify();
    assert_eq!(verify.code, 0, "{}", verify.text);

    // With free space again, writing continues.
    node.limit_file_size(None);
    node.start();
    node.sql(fill);
    assert_eq!(node.sql("select count(*) from big"), (filled + 4000).to_string());
    node.stop();
    node.assert_authentic();
}
