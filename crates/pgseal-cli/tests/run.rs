//! `run`, `env`, and the refusals of `initdb` that come before any server.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::path::Path;

use common::{Answer, Fixture};
use pgseal_testkit::install;

/// A library without functions, which the dynamic linker can load.
fn stand_in_library(fixture: &Fixture) -> std::path::PathBuf {
    let path = fixture.path("libpgseal.so");
    let status = std::process::Command::new("cc")
        .args(["-shared", "-x", "c", "/dev/null", "-o"])
        .arg(&path)
        .status()
        .unwrap();
    assert!(status.success());
    path
}

/// A program that can be run at once.
fn script_file(path: &Path, text: &str) {
    let source = path.with_extension("text");
    fs::write(&source, text).unwrap();
    install(&source, path).unwrap();
}

fn run(fixture: &Fixture, args: &[&str]) -> Answer {
    let mut command = fixture.pgseal();
    command.env("PGSEAL_LIBRARY", fixture.path("libpgseal.so")).arg("run").args(args);
    Answer::of(command.output().unwrap())
}

#[test]
fn the_command_gets_the_variables_and_its_status_is_ours() {
    let fixture = Fixture::sealed();
    let library = stand_in_library(&fixture);
    let script =
        "echo $LD_PRELOAD; echo $PGSEAL_HELPER; echo $PGDATA; echo \"[$PGSEAL_KEK_FD]\"; exit 7";
    let answer = run(&fixture, &["-D", "data", "--", "sh", "-c", script]);
    assert_eq!(answer.code, 7, "{answer:?}");
    let lines: Vec<&str> = answer.out.lines().collect();
    assert_eq!(lines[0], library.to_str().unwrap());
    assert_eq!(lines[1], env!("CARGO_BIN_EXE_pgseal"));
    assert_eq!(lines[2], fixture.data().to_str().unwrap());
    assert_eq!(lines[3], "[]", "a key in a file is not put into memory");
}

#[test]
fn a_library_that_was_preloaded_stays_behind_ours() {
    let fixture = Fixture::plain();
    let library = stand_in_library(&fixture);
    let other = fixture.path("other.so");
    fs::copy(&library, &other).unwrap();
    let answer = Answer::of(
        fixture
            .pgseal()
            .env("PGSEAL_LIBRARY", &library)
            .env("LD_PRELOAD", &other)
            .args(["run", "--", "sh", "-c", "echo $LD_PRELOAD"])
            .output()
            .unwrap(),
    );
    assert_eq!(answer.out.trim(), format!("{}:{}", library.display(), other.display()));
}

/// The passphrase is asked for once; with the inherited descriptor the command opens the keyring
/// without it.
#[test]
fn a_passphrase_is_handed_on_in_memory() {
    let fixture = Fixture::plain();
    stand_in_library(&fixture);
    let count = fixture.path("asked");
    let ask = format!("passphrase:command=echo x >> {}; echo correct horse", count.display());
    let data = fixture.data();
    fixture.ok(&["helper", "new-keyring", "--dir", data.to_str().unwrap(), "--provider", &ask]);
    fs::remove_file(&count).unwrap();
    let helper = "\"$PGSEAL_HELPER\" helper keys --keyring data/pgseal/keyring | wc -c";
    let script = format!("{helper}; {helper}");
    // The keyring alone may not name a command: the environment names it, too.
    let mut command = fixture.pgseal();
    command.env("PGSEAL_LIBRARY", fixture.path("libpgseal.so")).env("PGSEAL_PROVIDER", &ask);
    command.args(["run", "-D", "data", "--", "sh", "-c", &script]);
    let answer = Answer::of(command.output().unwrap());
    assert_eq!((answer.code, answer.out.as_str()), (0, "98\n98\n"), "{answer:?}");
    assert_eq!(fs::read_to_string(&count).unwrap(), "x\n");

    // A wrong passphrase is an error before the command runs.
    let wrong = fixture
        .pgseal()
        .env("PGSEAL_LIBRARY", fixture.path("libpgseal.so"))
        .env("PGSEAL_PROVIDER", "passphrase:command=echo wrong")
        .args(["run", "-D", "data", "--", "touch", "ran"])
        .output()
        .unwrap();
    Answer::of(wrong).fails_with(11, "wrong key");
    assert!(!fixture.path("ran").exists());
}

#[test]
fn no_library_and_no_command() {
    let fixture = Fixture::plain();
    let missing = fixture
        .pgseal()
        .env("PGSEAL_LIBRARY", "/nowhere/libpgseal.so")
        .args(["run", "--", "true"])
        .output()
        .unwrap();
    Answer::of(missing).fails_with(20, "PGSEAL_LIBRARY");
    stand_in_library(&fixture);
    run(&fixture, &["--", "no_such_program"]).fails_with(20, "no such program");
    // The program alone in a directory, without a library beside it.
    let alone = fixture.path("alone");
    fs::create_dir(&alone).unwrap();
    install(env!("CARGO_BIN_EXE_pgseal").as_ref(), &alone.join("pgseal")).unwrap();
    let output = std::process::Command::new(alone.join("pgseal"))
        .args(["run", "--", "true"])
        .env_remove("PGSEAL_LIBRARY")
        .output()
        .unwrap();
    Answer::of(output).fails_with(20, "make install");
}

#[test]
fn env_speaks_each_format() {
    let fixture = Fixture::sealed();
    let library = stand_in_library(&fixture);
    let lib = library.display();
    let env = |format: &str| {
        let mut command = fixture.pgseal();
        command.env("PGSEAL_LIBRARY", &library).args(["env", "-D", "data", "--format", format]);
        if format == "debian" {
            command.arg("--print");
        }
        let answer = Answer::of(command.output().unwrap());
        assert_eq!(answer.code, 0, "{answer:?}");
        answer
    };
    assert!(
        env("sh").out.contains(&format!("export LD_PRELOAD={lib}${{LD_PRELOAD:+:$LD_PRELOAD}}\n"))
    );
    let systemd = env("systemd").out;
    assert!(
        systemd.contains(&format!("[Service]\nEnvironment=\"LD_PRELOAD={lib}\"\n")),
        "{systemd}"
    );
    assert!(systemd.contains("must be able to read the key file"), "{systemd}");
    assert!(env("debian").out.contains(&format!("LD_PRELOAD = '{lib}'\n")));
    assert!(env("docker").out.contains(&format!("LD_PRELOAD={lib}\n")));
    assert_eq!(env("json").json()["LD_PRELOAD"], lib.to_string());
}

fn initdb(fixture: &Fixture, args: &[&str]) -> Answer {
    fixture.run(&[&["initdb"], args].concat())
}

#[test]
fn initdb_refuses_before_it_makes_anything() {
    let fixture = Fixture::sealed();
    let key = "file:key";
    initdb(&fixture, &["-k", "new"]).fails_with(2, "without a key no sealed instance");
    initdb(&fixture, &["-k", "-K", key]).fails_with(2, "which data directory");
    initdb(&fixture, &["-k", "-K", "nothing", "new"]).fails_with(2, "names no key provider");
    initdb(&fixture, &["-k", "-K", key, "new", "--", "-D", "x"]).fails_with(2, "before the --");
    initdb(&fixture, &["-k", "-K", key, "--suite", "rot13", "new"]).code_is_usage();
    initdb(&fixture, &["-k", "-K", key, "data"]).fails_with(5, "sealed data directory already");
    let plain = Fixture::plain();
    plain.ok(&["key", "new", "-o", "key"]);
    initdb(&plain, &["-k", "-K", key, "data"]).fails_with(5, "not empty");
    initdb(&plain, &["-k", "-K", key, "key"]).fails_with(5, "a file of this name");
    // The keyring of another directory.
    initdb(&fixture, &["-k", "--keyring-of", "nowhere", "new"]).fails_with(16, "nowhere");
    let both = initdb(&fixture, &["-k", "--keyring-of", "data", "--suite", "xts", "new"]);
    assert_eq!(both.code, 2, "{both:?}");
    fixture.ok(&["key", "new", "-o", "other"]);
    initdb(&fixture, &["-k", "--keyring-of", "data", "-K", "file:other", "new"])
        .fails_with(11, "key");
    assert!(!fixture.path("new").exists());
}

/// A substitute for PostgreSQL of another version, which must not be run.
#[test]
fn initdb_wants_checksums_for_the_suites_that_need_them() {
    let fixture = Fixture::sealed();
    for (version, options, suite, refused) in [
        ("15.1", &[][..], "gcm", false),
        ("15.1", &[], "aes-192-ctr", true),
        ("15.1", &[], "xts", false),
        ("18.1", &[], "gcm", false),
        ("18.1", &["--", "--no-data-checksums"], "gcm", false),
        ("18.1", &["--no-data-checksums"], "ctr", true),
        ("18.1", &["--no-data-checksums", "--", "-c", "wal_log_hints=off"], "gcm", true),
        ("16.1", &["-k", "--", "-c", "full_page_writes=off"], "gcm", true),
    ] {
        let bin = fixture.path("bin");
        fs::create_dir_all(&bin).unwrap();
        let script = format!(
            "#!/bin/sh\n[ \"$1\" = --version ] && echo 'initdb (PostgreSQL) {version}' && exit\ntouch ran\n"
        );
        script_file(&bin.join("initdb"), &script);
        let mut command = fixture.pgseal();
        // There is no library: if the settings are accepted, that is the error.
        command
            .env("PGSEAL_LIBRARY", "/nowhere")
            .args(["initdb", "-K", "file:key", "--suite", suite]);
        command.args(["--bindir", "bin", "new"]).args(options);
        let answer = Answer::of(command.output().unwrap());
        answer.fails_with(
            if refused { 21 } else { 20 },
            "initdb".get(..if refused { 6 } else { 0 }).unwrap(),
        );
        assert!(!fixture.path("ran").exists() && !fixture.path("new").exists());
    }
}

/// If initdb runs without the library, it must not leave a plain cluster that looks like a sealed
/// one.
#[test]
fn initdb_that_was_not_sealed_leaves_nothing() {
    let fixture = Fixture::sealed();
    let library = stand_in_library(&fixture);
    let bin = fixture.path("bin");
    fs::create_dir_all(&bin).unwrap();
    let script = "#!/bin/sh\n[ \"$1\" = --version ] && echo 'initdb (PostgreSQL) 15.1' && exit\n\
                  mkdir -p \"$2/base\"; echo 15 > \"$2/PG_VERSION\"; exit ${FAIL:-0}\n";
    script_file(&bin.join("initdb"), script);
    fs::write(fixture.path("guard.so"), b"").unwrap();
    let mut command = fixture.pgseal();
    command
        .env("PGSEAL_LIBRARY", &library)
        .env("PGSEAL_GUARD_MODULE", fixture.path("guard.so"))
        .args(["initdb", "-k", "-K", "file:key", "--bindir", "bin", "new"]);
    let answer = Answer::of(command.output().unwrap());
    answer.fails_with(20, "did not seal");
    assert!(!fixture.path("new").exists());
    let guardless = Answer::of(command.env("PGSEAL_GUARD_MODULE", "/nowhere").output().unwrap());
    guardless.fails_with(20, "PGSEAL_GUARD_MODULE");
}

/// Ctrl-C reaches initdb, which cleans up, and pgseal, which must go on to clean up, too.
#[test]
fn an_interrupted_initdb_leaves_nothing() {
    let fixture = Fixture::sealed();
    let library = stand_in_library(&fixture);
    let bin = fixture.path("bin");
    fs::create_dir_all(&bin).unwrap();
    let script = "#!/bin/sh\n[ \"$1\" = --version ] && echo 'initdb (PostgreSQL) 15.1' && exit\n\
                  mkdir -p \"$2/pgseal\"; echo half > \"$2/pgseal/keyring\"\n\
                  kill -INT $PPID; kill -TERM $PPID; exit 1\n";
    script_file(&bin.join("initdb"), script);
    fs::write(fixture.path("guard.so"), b"").unwrap();
    let mut command = fixture.pgseal();
    command
        .env("PGSEAL_LIBRARY", &library)
        .env("PGSEAL_GUARD_MODULE", fixture.path("guard.so"))
        .args(["initdb", "-k", "-K", "file:key", "--bindir", "bin", "new"]);
    let answer = Answer::of(command.output().unwrap());
    answer.fails_with(1, "nothing was left behind");
    assert!(!fixture.path("new").exists());
}

trait Usage {
    fn code_is_usage(&self);
}

impl Usage for Answer {
    fn code_is_usage(&self) {
        assert_eq!(self.code, 2, "{self:?}");
        assert!(self.err.contains("aes-256-gcm"), "{self:?}");
    }
}
