//! `pgseal config` without a server: recording, comparing, showing and accepting configuration.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};

use common::Fixture;

/// A sealed directory with configuration files of all kinds.
fn configured() -> Fixture {
    let fixture = Fixture::sealed();
    for dir in ["conf.d", "more.d", "crl"] {
        fs::create_dir(fixture.file(dir)).unwrap();
    }
    fs::write(fixture.path("outside.conf"), "work_mem = '1MB'\n").unwrap();
    let main = format!(
        "include 'sub.conf'\nInclude_Dir = conf.d # all\ninclude_if_exists 'maybe.conf'\n\
         include '{}'\nssl_crl_dir = 'crl'\nssl_ca_file = '/etc/ca.crt'\n",
        fixture.path("outside.conf").display()
    );
    for (name, text) in [
        ("postgresql.conf", main.as_str()),
        ("sub.conf", "ssl_key_file = 'my.key'\nssl_cert_file = 'my.crt'\n"),
        ("conf.d/a.conf", "port = 5433\n"),
        ("conf.d/b.txt", "no\n"),
        ("my.key", "SECRET KEY\n"),
        ("my.crt", "CERTIFICATE\n"),
        ("crl/0a1b.r0", "LIST\n"),
        ("pg_hba.conf", "local all @admins,+x peer\ninclude_dir more.d\n"),
        ("more.d/x.conf", "host all all 1.2.3.4/32 md5\n"),
        ("admins", "joe, @others\n"),
        ("others", "jim\n"),
        ("pg_ident.conf", "include_if_exists idents\n"),
        ("stray.conf", "nobody reads this\n"),
    ] {
        fixture.write(name, text.as_bytes());
    }
    fixture
}

fn status(fixture: &Fixture) -> serde_json::Value {
    let answer = fixture.on_data(&["config", "status", "--json"]);
    serde_json::from_str(&answer.out).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
}

/// The names of the files that differ, each with a letter for the kind of difference.
fn differences(fixture: &Fixture) -> String {
    let status = status(fixture);
    let all = status["differences"].as_array().unwrap().iter();
    let named = all.map(|one| {
        let kind = one["kind"].as_str().unwrap();
        format!("{}:{}", &kind[..1], one["file"].as_str().unwrap())
    });
    named.collect::<Vec<_>>().join(" ")
}

#[test]
fn what_the_server_reads_is_recorded() {
    let fixture = configured();
    assert_eq!(status(&fixture)["locked"], false);
    assert_eq!(fixture.on_data(&["config", "status"]).code, 1);
    let said = fixture.ok(&["config", "lock", "data"]);
    assert!(said.contains("outside of the directory, not recorded"), "{said}");
    let status = status(&fixture);
    let files = |name: &str| {
        let all = status[name].as_array().unwrap().iter();
        all.map(|file| file.as_str().unwrap()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        files("files"),
        "admins conf.d conf.d/a.conf crl/0a1b.r0 idents maybe.conf more.d more.d/x.conf my.crt \
         my.key others pg_hba.conf pg_ident.conf postgresql.auto.conf postgresql.conf \
         recovery.signal standby.signal sub.conf"
    );
    assert_eq!(files("outside"), format!("/etc/ca.crt {}", fixture.path("outside.conf").display()));
    assert_eq!(status["locked"], true);
    let record = fixture.file("pgseal/config");
    assert_eq!(fs::metadata(&record).unwrap().permissions().mode() & 0o777, 0o600);
    let bytes = fs::read(&record).unwrap();
    assert!(!bytes.windows(4).any(|window| window == b"port"), "it is not encrypted");
    // A second lock changes nothing, and refuses what is not as recorded.
    let again = fixture.on_data(&["config", "lock"]);
    assert_eq!(again.code, 0, "{again:?}");
    assert!(again.out.contains("nothing was changed"), "{again:?}");
    let json = fixture.on_data(&["config", "lock", "--json"]).json();
    assert_eq!((&json["locked"], &json["changed"]), (&true.into(), &false.into()), "{json}");
    assert_eq!((&json["files"], &json["sequence"]), (&status["files"], &status["sequence"]));
    assert_eq!(fs::read(&record).unwrap(), bytes);
    fixture.write("sub.conf", b"ssl_key_file = 'my.key'\n");
    fixture.on_data(&["config", "lock"]).fails_with(5, "locked already, and it is not as recorded");
    assert_eq!(fs::read(&record).unwrap(), bytes);
}

#[test]
fn each_difference_is_found_and_only_those() {
    let fixture = configured();
    fixture.ok(&["config", "lock", "data"]);
    assert_eq!(differences(&fixture), "");
    fixture.write("stray.conf", b"x");
    fixture.write("conf.d/b.txt", b"x");
    fs::write(fixture.path("outside.conf"), "x").unwrap();
    assert_eq!(differences(&fixture), "");
    for (name, kind) in [
        ("admins", 'c'),
        ("conf.d/a.conf", 'c'),
        ("conf.d/z.conf", 'a'),
        ("crl/0a1b.r0", 'c'),
        ("idents", 'a'),
        ("maybe.conf", 'a'),
        ("more.d/y.conf", 'a'),
        ("my.crt", 'c'),
        ("my.key", 'c'),
        ("others", 'c'),
        ("pg_ident.conf", 'c'),
        ("postgresql.auto.conf", 'a'),
        ("standby.signal", 'a'),
        ("sub.conf", 'c'),
    ] {
        let before = fs::read(fixture.file(name)).ok();
        fixture.write(name, b"# else\n");
        let found = differences(&fixture);
        assert!(found.split(' ').any(|one| one == format!("{kind}:{name}")), "{name}: {found}");
        match before {
            Some(before) => {
                fs::remove_file(fixture.file(name)).unwrap();
                assert!(differences(&fixture).contains(&format!("r:{name}")), "{name}");
                fixture.write(name, &before);
            }
            None => fs::remove_file(fixture.file(name)).unwrap(),
        }
        assert_eq!(differences(&fixture), "", "{name}");
    }
}

#[test]
fn a_difference_is_shown_and_asked_about() {
    let fixture = configured();
    fixture.on_data(&["config", "accept"]).fails_with(22, "is not locked");
    fixture.ok(&["config", "lock", "data"]);
    assert!(fixture.ok(&["config", "accept", "data"]).contains("Nothing differs"));
    fixture.write("conf.d/a.conf", b"port = 5434\x1b[2J\n");
    fixture.write("my.key", b"ANOTHER SECRET\n");
    let asked = fixture.on_data(&["config", "accept"]);
    asked.fails_with(22, "there is no terminal to ask at");
    assert!(asked.out.contains("-port = 5433\n+port = 5434\\u{1b}[2J\n"), "{}", asked.out);
    assert!(
        asked.out.contains("changed: my.key") && !asked.out.contains("SECRET"),
        "{}",
        asked.out
    );
    assert_eq!(differences(&fixture), "c:conf.d/a.conf c:my.key");
    fixture.ok(&["config", "accept", "--yes", "data"]);
    assert_eq!(differences(&fixture), "");
    fixture.ok(&["config", "unlock", "data"]);
    assert_eq!(status(&fixture)["locked"], false);
    let again = fixture.on_data(&["config", "unlock", "--json"]);
    assert_eq!((again.code, &again.json()["changed"]), (0, &false.into()), "{again:?}");
    assert!(fixture.on_data(&["config", "unlock"]).out.contains("nothing was changed"));
    fixture.on_data(&["config", "accept", "--yes"]).fails_with(22, "is not locked");
    fixture.ok(&["config", "lock", "data"]);
}

#[test]
fn a_record_that_cannot_be_believed_is_not() {
    let fixture = configured();
    fixture.ok(&["config", "lock", "data"]);
    let record = fixture.file("pgseal/config");
    let first = fs::read(&record).unwrap();
    fixture.write("sub.conf", b"# else\n");
    fixture.ok(&["config", "accept", "--yes", "data"]);
    let newest = fs::read(&record).unwrap();
    let mut damaged = newest.clone();
    damaged[100] ^= 1;
    for (bytes, words) in [
        (Some(&first), "an older copy"),
        (Some(&damaged), "does not authenticate"),
        (Some(&Vec::new()), "cut short"),
        (None, "is gone"),
    ] {
        match bytes {
            Some(bytes) => fs::write(&record, bytes).unwrap(),
            None => fs::remove_file(&record).unwrap(),
        }
        let answer = fixture.on_data(&["config", "status"]);
        assert!(answer.code == 1 && answer.out.contains(words), "{words}: {answer:?}");
        let answer = fixture.on_data(&["verify"]);
        let line = answer.out.lines().find(|line| line.starts_with("FAILED  pgseal/config: "));
        assert!(answer.code == 1 && line.is_some_and(|line| line.contains(words)), "{answer:?}");
    }
    // With the key of the directory a new record can be made.
    let answer = fixture.on_data(&["config", "accept", "--yes"]);
    assert!(answer.code == 0 && answer.out.contains("+port = 5433"), "{answer:?}");
    assert_eq!(differences(&fixture), "");
    let answer = fixture.ok(&["verify", "data"]);
    assert!(answer.contains("the configuration is locked"), "{answer}");
    // An interrupted unlock: the record is unlocked, the keyring is not.
    let keyring = fs::read(fixture.file("pgseal/keyring")).unwrap();
    fixture.ok(&["config", "unlock", "data"]);
    fs::write(fixture.file("pgseal/keyring"), keyring).unwrap();
    let answer = fixture.on_data(&["config", "status"]);
    assert!(answer.out.contains("may have been cut off"), "{answer:?}");
    fixture.ok(&["config", "unlock", "data"]);
}

#[test]
fn what_is_no_file_or_without_end_is_refused() {
    let fixture = configured();
    fs::remove_file(fixture.file("sub.conf")).unwrap();
    symlink("/dev/zero", fixture.file("sub.conf")).unwrap();
    fixture.on_data(&["config", "lock"]).fails_with(22, "not a regular file");
    fs::remove_file(fixture.file("sub.conf")).unwrap();
    // A file that includes itself is no endless loop.
    fixture.write("sub.conf", b"include 'sub.conf'\ninclude_dir '.'\n");
    fixture.ok(&["config", "lock", "data"]);
    assert!(status(&fixture)["files"].to_string().contains("stray.conf"));
    let mut long = fs::File::create(fixture.file("conf.d/long.conf")).unwrap();
    long.write_all(&vec![b'#'; 2 << 20]).unwrap();
    fixture.ok(&["config", "accept", "--yes", "data"]);
    assert_eq!(differences(&fixture), "");
    fixture.write("conf.d/long.conf", &vec![b'#'; 3 << 20]);
    assert_eq!(differences(&fixture), "c:conf.d/long.conf");
}

#[test]
fn a_copy_of_the_keyring_is_not_locked() {
    let fixture = configured();
    fixture.ok(&["config", "lock", "data"]);
    let locked = |dir: &str| {
        let text = fs::read_to_string(fixture.path(dir).join("pgseal/keyring")).unwrap();
        text.contains("config_lock")
    };
    fs::create_dir(fixture.path("copy")).unwrap();
    fixture.ok(&["helper", "new-keyring", "--dir", "copy", "--from", "data/pgseal/keyring"]);
    assert!(locked("data") && !locked("copy"));
    fixture.ok(&["key", "new", "-o", "next"]);
    fixture.ok(&["key", "rotate", "data", "-K", "file:next"]);
    assert!(locked("data"));
    assert_eq!(differences(&fixture), "");
}
