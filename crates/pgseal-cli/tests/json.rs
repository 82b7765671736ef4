//! `--json` of the commands that change something, and what a second run of them does.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use common::{Answer, Fixture, RELATION};
use pgseal_core::FileKind;
use pgseal_keys::{Provider, keyring_path, update};
use serde_json::json;

#[test]
fn key_new_prints_the_file_and_not_the_key() {
    let fixture = Fixture::plain();
    let answer = fixture.run(&["key", "new", "--json", "-o", "new.key"]);
    let path = fixture.path("new.key");
    let shown = format!("file:{}", path.canonicalize().unwrap().display());
    assert_eq!(answer.json(), json!({"file": "new.key", "provider": shown}));
    let key = fs::read_to_string(&path).unwrap();
    assert!(!answer.out.contains(key.trim()));
    // A key is never overwritten, and without a file the key itself would be the output.
    fixture.run(&["key", "new", "--json", "-o", "new.key"]).fails_with(5, "never overwritten");
    assert_eq!(fs::read_to_string(&path).unwrap(), key);
    assert_eq!(fixture.run(&["key", "new", "--json"]).code, 2);
}

#[test]
fn a_second_rotation_to_the_same_key_changes_nothing() {
    let fixture = Fixture::sealed();
    fixture.ok(&["key", "new", "-o", "next"]);
    let next = format!("file:{}", fixture.path("next").display());
    let keyring = keyring_path(&fixture.data());
    let rotate = |args: &[&str]| {
        let answer = fixture.on_data(&[&["key", "rotate", "-K", &next], args].concat());
        assert_eq!(answer.code, 0, "{answer:?}");
        answer
    };
    let first = rotate(&["--json"]).json();
    assert_eq!((&first["changed"], &first["provider"]), (&json!(true), &json!(next)));
    assert_eq!((&first["registered"], &first["next"]), (&json!(null), &json!([])));
    let bytes = fs::read(&keyring).unwrap();
    // With the old key, too, which opens the keyring no more.
    let old = format!("file:{}", fixture.key_file().display());
    let second = rotate(&["--json", "--old", &old]).json();
    assert_eq!(second["changed"], false);
    assert!(rotate(&[]).out.contains("already; nothing was changed"));
    assert_eq!(fs::read(&keyring).unwrap(), bytes);
    // The same name with another key in the file is not the same key.
    fs::remove_file(fixture.path("next")).unwrap();
    fixture.ok(&["key", "new", "-o", "next"]);
    fixture.on_data(&["key", "rotate", "-K", &next, "--json"]).fails_with(11, "key");
}

#[test]
fn backup_and_restore_say_what_they_wrote() {
    let fixture = Fixture::sealed();
    let escrow = ["key", "backup", "--shares", "2-of-3", "-o", "share", "--json"];
    let made = fixture.on_data(&escrow).json();
    assert_eq!(made["files"], json!(["share-1", "share-2", "share-3"]));
    assert_eq!(made["generations"], json!([1]));
    fixture.on_data(&escrow).fails_with(5, "never overwritten");
    fs::remove_file(fixture.file("pgseal/keyring")).unwrap();
    fixture.ok(&["key", "new", "-o", "next"]);
    let next = format!("file:{}", fixture.path("next").display());
    let data = fixture.data();
    let restore =
        ["key", "restore", "-D", data.to_str().unwrap(), "share-1", "share-3", "-K", &next];
    let restore = [&restore[..], &["--json"]].concat();
    let restored = fixture.run(&restore).json();
    assert_eq!(restored["keyring_id"], made["keyring_id"]);
    assert_eq!((&restored["lost"], &restored["replaced"]), (&json!({}), &json!(null)));
    assert_eq!(
        (&restored["changed"], &fixture.run(&restore).json()["changed"]),
        (&json!(true), &json!(false))
    );
}

#[test]
fn forget_says_what_it_kept_and_removed() {
    let fixture = Fixture::sealed();
    let none = json!({"kept": [], "removed": []});
    fixture.write("pg_wal/000000010000000000000002", b"");
    let forget = ["key", "forget", "--json", "--no-backup-has-them"];
    assert_eq!(fixture.on_data(&forget).json(), none);
    let kek = Provider::parse(&format!("file:{}", fixture.key_file().display())).unwrap();
    let kek = kek.kek(None).unwrap();
    update(&keyring_path(&fixture.data()), |keyring| keyring.add_generation(&kek)).unwrap();
    assert_eq!(fixture.on_data(&forget).json(), json!({"kept": [1], "removed": []}));
    fixture.seal(RELATION, FileKind::Relation, &[0x41; 8192]);
    fixture.seal(common::WAL, FileKind::Wal, &[0x42; 8192]);
    fixture.seal(common::STATISTICS, FileKind::Stream, &[0x43; 9]);
    assert_eq!(fixture.on_data(&forget).json(), json!({"kept": [], "removed": [1]}));
    assert_eq!(fixture.on_data(&forget).json(), none);
}

/// A cluster of postgresql-common with this data directory, below another root than
/// /etc/postgresql.
fn debian_cluster(fixture: &Fixture) -> PathBuf {
    let dir = fixture.path("etc/15/main");
    fs::create_dir_all(&dir).unwrap();
    let conf = format!("data_directory = '{}'\n", fixture.data().display());
    fs::write(dir.join("postgresql.conf"), conf).unwrap();
    dir.join("environment")
}

fn env_debian(fixture: &Fixture, args: &[&str]) -> Answer {
    let library = fixture.path("libpgseal.so");
    fs::write(&library, b"").unwrap();
    let mut command = fixture.pgseal();
    command.args(["env", "--format", "debian"]).args(args).env("PGSEAL_LIBRARY", library);
    command.env("PG_CLUSTER_CONF_ROOT", fixture.path("etc")).env("PGDATA", fixture.data());
    Answer::of(command.output().unwrap())
}

#[test]
fn env_writes_the_environment_of_a_debian_cluster_once() {
    let fixture = Fixture::sealed();
    env_debian(&fixture, &[]).fails_with(22, "pg_createcluster 15 NAME -d ");
    let environment = debian_cluster(&fixture);
    fs::write(&environment, "# environment variables\nLANG = 'C'\n").unwrap();
    fs::set_permissions(&environment, fs::Permissions::from_mode(0o640)).unwrap();

    // What is printed changes no file.
    let printed = env_debian(&fixture, &["--print"]);
    assert!(printed.out.contains("LD_PRELOAD = '"), "{printed:?}");
    assert_eq!(fs::read_to_string(&environment).unwrap().lines().count(), 2);

    let first = env_debian(&fixture, &["--json"]).json();
    assert_eq!((&first["changed"], &first["file"]), (&json!(true), &json!(environment)));
    let text = fs::read_to_string(&environment).unwrap();
    assert!(text.starts_with("# environment variables\nLANG = 'C'\n"), "{text}");
    for (name, value) in first["variables"].as_object().unwrap() {
        let line = format!("{name} = '{}'", value.as_str().unwrap());
        assert_eq!(text.lines().filter(|found| **found == line).count(), 1, "{line} in {text}");
    }
    assert_eq!(fs::metadata(&environment).unwrap().permissions().mode() & 0o777, 0o640);

    let second = env_debian(&fixture, &[]);
    assert!(second.out.contains("has these variables already"), "{second:?}");
    assert_eq!(env_debian(&fixture, &["--json"]).json()["changed"], false);
    assert_eq!(fs::read_to_string(&environment).unwrap(), text);
    // A cluster whose file was lost gets it again.
    fs::remove_file(&environment).unwrap();
    assert_eq!(env_debian(&fixture, &[]).code, 0);
    assert_eq!(fs::read_to_string(&environment).unwrap().lines().count() + 2, text.lines().count());
}
