//! A data directory that an attacker writes: pgseal runs and trusts nothing that it names before a
//! key from outside has authenticated it. `tests/pgseal-scenarios/scenarios/hostile.rs` has whole
//! servers, every command and root.

#![allow(clippy::unwrap_used, reason = "helpers of tests, outside of #[test] functions")]

mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{Answer, Fixture};
use pgseal_testkit::install;

/// Changes a field of the keyring whose value is a string, so that its MAC is wrong.
fn set_field(fixture: &Fixture, field: &str, value: &str) {
    let path = fixture.file("pgseal/keyring");
    let text = fs::read_to_string(&path).unwrap();
    let start = text.find(&format!("\"{field}\": \"")).unwrap() + field.len() + 5;
    let end = start + text[start..].find('"').unwrap();
    fs::write(&path, format!("{}{value}{}", &text[..start], &text[end..])).unwrap();
}

/// Adds the parameters of a passphrase to the keyring.
fn with_passphrase(fixture: &Fixture, provider: &str, memory_kib: u32, passes: u32) {
    set_field(fixture, "provider", provider);
    let path = fixture.file("pgseal/keyring");
    let text = fs::read_to_string(&path).unwrap();
    let params = format!(
        "\"passphrase\": {{ \"kdf\": \"argon2id\", \"version\": 19, \"memory_kib\": {memory_kib}, \
         \"passes\": {passes}, \"lanes\": 1, \"salt\": \"{}\" }},\n  \"key_check\"",
        "ab".repeat(16)
    );
    fs::write(&path, text.replacen("\"key_check\"", &params, 1)).unwrap();
}

/// Every command that needs the key of the fixture, without an option for its provider.
fn commands_with_a_key() -> Vec<Vec<&'static str>> {
    vec![
        vec!["verify", "data"],
        vec!["key", "check", "data"],
        vec!["config", "status", "data"],
        vec!["config", "lock", "data"],
        vec!["config", "accept", "--yes", "data"],
        vec!["key", "rotate", "data", "-K", "file:key"],
        vec!["key", "backup", "data", "--lock", "file:key"],
        vec!["key", "forget", "data", "--no-backup-has-them"],
        vec!["helper", "keys", "--keyring", "data/pgseal/keyring"],
        vec!["cat", "data/base/5/16384"],
        vec!["run", "-D", "data", "--", "true"],
        vec!["env", "-D", "data"],
        vec!["status", "data"],
        vec!["doctor", "data"],
        vec!["rekey", "--check", "data"],
        vec!["decrypt", "--check", "data"],
    ]
}

/// Runs without a terminal; no command may hang.
fn quiet(fixture: &Fixture, args: &[&str]) -> Answer {
    let pgseal = fixture.pgseal();
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "60", "setsid", "-w"]).arg(pgseal.get_program()).args(args);
    command.current_dir(fixture.path(".")).stdin(Stdio::null());
    for (name, value) in pgseal.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.env("PGSEAL_CLUSTERS_DIR", fixture.path("clusters.d"));
    let output = command.output().unwrap();
    assert!(output.status.code().is_some(), "{args:?} hangs: {output:?}");
    Answer::of(output)
}

#[test]
fn what_a_keyring_names_is_never_run() {
    for form in ["command:", "passphrase:command="] {
        let fixture = Fixture::sealed();
        let mark = fixture.path("mark");
        let provider = format!("{form}touch {}; echo {}", mark.display(), "ab".repeat(32));
        match form {
            "command:" => set_field(&fixture, "provider", &provider),
            _ => with_passphrase(&fixture, &provider, 65536, 1),
        }
        for command in commands_with_a_key() {
            let answer = quiet(&fixture, &command);
            assert!(!mark.exists(), "{command:?} has run it: {answer:?}");
            assert!(!answer.err.contains("panic"), "{command:?}: {answer:?}");
        }
        for command in [&["verify", "data"][..], &["cat", "data/base/5/16384"]] {
            let answer = quiet(&fixture, command);
            answer.fails_with(12, "write the line \"provider = ");
            assert!(answer.err.contains("clusters.d/"), "{answer:?}");
        }
        // With the right key from outside, the MAC of the keyring is wrong.
        quiet(&fixture, &["verify", "-K", "file:key", "data"]).fails_with(14, "MAC does not hold");
        assert!(!mark.exists());
    }
}

#[test]
fn a_descriptor_is_never_read_because_a_keyring_names_it() {
    let fixture = Fixture::sealed();
    with_passphrase(&fixture, "passphrase:fd=0", 65536, 1);
    quiet(&fixture, &["verify", "data"]).fails_with(12, "passphrase:fd=N");
}

#[test]
fn doctor_does_not_run_what_postmaster_opts_names() {
    let fixture = Fixture::sealed();
    let (planted, mark) = (fixture.path("data/postgres"), fixture.path("mark"));
    let source = fixture.path("source");
    fs::write(&source, format!("#!/bin/sh\ntouch {}\necho 15\n", mark.display())).unwrap();
    install(&source, &planted).unwrap();
    fixture.write("postmaster.opts", format!("{} \"-D\" \"x\"\n", planted.display()).as_bytes());
    let answer = quiet(&fixture, &["doctor", "data"]);
    assert!(!mark.exists(), "{answer:?}");
    // Nor if the program is in PATH.
    let path = format!("{}:{}", fixture.data().display(), std::env::var("PATH").unwrap());
    let mut command = fixture.pgseal();
    let answer = Answer::of(command.env("PATH", path).args(["doctor", "data"]).output().unwrap());
    assert!(!mark.exists(), "{answer:?}");
}

#[test]
fn a_registered_source_is_asked() {
    let fixture = Fixture::sealed();
    let command = format!("command:cat {}", fixture.key_file().display());
    fixture.ok(&["key", "rotate", "data", "-K", &command]);
    let id = keyring_id(&fixture);
    quiet(&fixture, &["verify", "data"]).fails_with(12, &format!("clusters.d/{id}.conf"));
    // With another key the file is not written.
    fixture.ok(&["key", "new", "-o", "other"]);
    let library = fixture.path("libpgseal.so");
    fs::write(&library, "").unwrap();
    let env = |provider: &str| {
        let mut run = fixture.pgseal();
        run.env("PGSEAL_CLUSTERS_DIR", fixture.path("clusters.d")).env("PGSEAL_LIBRARY", &library);
        Answer::of(run.args(["env", "-D", "data", "--register", "-K", provider]).output().unwrap())
    };
    env("file:other").fails_with(11, "file:");
    assert!(!fixture.path("clusters.d").exists());
    let answer = env(&command);
    assert_eq!(answer.code, 0, "{answer:?}");
    assert!(answer.out.contains(&format!("export PGSEAL_KEYRING_ID={id}\n")), "{answer:?}");
    let text = fs::read_to_string(fixture.path(&format!("clusters.d/{id}.conf"))).unwrap();
    assert!(text.ends_with(&format!("\nprovider = {command}\n")), "{text}");
    let answer = quiet(&fixture, &["verify", "data"]);
    assert_eq!(answer.code, 0, "{answer:?}");
    let frame = fixture
        .pgseal()
        .env("PGSEAL_CLUSTERS_DIR", fixture.path("clusters.d"))
        .args(["helper", "keys", "--keyring", "data/pgseal/keyring"])
        .output()
        .unwrap();
    // One key, and the source without its secret.
    assert_eq!(frame.stdout.len(), 88 + "command:cat ...".len(), "{frame:?}");

    // With another key the file must change: pgseal writes it, or says what to write.
    let answer = quiet(&fixture, &["key", "rotate", "data", "-K", "file:other"]);
    assert!(answer.code == 0 && answer.out.contains("    provider = file:"), "{answer:?}");
    let answer = quiet(
        &fixture,
        &["key", "rotate", "data", "--old", "file:other", "-K", &command, "--register"],
    );
    assert!(answer.code == 0 && answer.out.contains("stands in"), "{answer:?}");
    assert_eq!(quiet(&fixture, &["verify", "data"]).code, 0);
}

fn keyring_id(fixture: &Fixture) -> String {
    let shown: serde_json::Value =
        serde_json::from_str(&fixture.ok(&["key", "show", "--json", "data"])).unwrap();
    shown["keyring_id"].as_str().unwrap().to_owned()
}

#[test]
fn the_provider_that_was_asked_is_named_and_not_the_keyrings() {
    let fixture = Fixture::sealed();
    fixture.ok(&["key", "new", "-o", "other"]);
    let asked = format!("wrong key: file:{} gave", fixture.path("other").display());
    fixture.on_data(&["verify", "-K", "file:other"]).fails_with(11, &asked);
    let mut run = fixture.pgseal();
    run.env("PGSEAL_PROVIDER", format!("file:{}", fixture.path("other").display()));
    Answer::of(run.args(["verify", "data"]).output().unwrap()).fails_with(11, &asked);
    let check = fixture.on_data(&["key", "check", "--json", "-K", "file:other"]);
    assert_eq!(check.code, 11);
    assert!(check.out.contains(&asked) && !check.out.contains("data/key "), "{check:?}");
}

#[test]
fn nothing_hangs_on_what_is_no_file() {
    for name in [
        "pgseal/keyring",
        "pgseal/conversion",
        "pgseal/escrow.json",
        "pgseal/config",
        "pg_hba.conf",
        "PG_VERSION",
        "postmaster.pid",
        "postmaster.opts",
        "postgresql.conf",
        "postgresql.auto.conf",
        "base/5/16384",
    ] {
        let fixture = Fixture::sealed();
        let path = fixture.file(name);
        let _ = fs::remove_file(&path);
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        for command in commands_with_a_key() {
            let answer = quiet(&fixture, &command);
            assert!(!answer.err.contains("panic"), "{name} {command:?}: {answer:?}");
        }
    }
}

#[test]
fn what_lies_elsewhere_is_not_followed() {
    let fixture = Fixture::sealed();
    let elsewhere = fixture.path("elsewhere");
    fs::rename(fixture.file("pgseal"), &elsewhere).unwrap();
    symlink(&elsewhere, fixture.file("pgseal")).unwrap();
    quiet(&fixture, &["verify", "data"]).fails_with(12, "it is a link");
    let fixture = Fixture::sealed();
    fs::remove_dir(fixture.file("pg_tblspc")).unwrap();
    for target in ["/", "/proc"] {
        symlink(target, fixture.file("pg_tblspc")).unwrap();
        let answer = quiet(&fixture, &["verify", "data"]);
        assert_eq!(answer.code, 40, "{answer:?}");
        assert!(answer.out.contains("where no files of a cluster lie"), "{answer:?}");
        fs::remove_file(fixture.file("pg_tblspc")).unwrap();
    }
}

#[test]
fn costs_of_a_strangers_choice_are_bounded() {
    let fixture = Fixture::sealed();
    with_passphrase(&fixture, "passphrase:", 4 << 20, 1);
    quiet(&fixture, &["verify", "data"]).fails_with(12, "--allow-cost");
    // With --allow-cost it asks for the passphrase, and fails because there is no terminal.
    quiet(&fixture, &["verify", "--allow-cost", "data"]).fails_with(13, "on the terminal");
    let keyring = fs::OpenOptions::new().write(true).open(fixture.file("pgseal/keyring")).unwrap();
    keyring.set_len(1 << 30).unwrap();
    quiet(&fixture, &["verify", "data"]).fails_with(14, "longer than 1 MiB");
}

/// Changes the owner of everything below a directory; only root can.
fn give(path: &Path, uid: u32) {
    chown(path, Some(uid), Some(uid)).unwrap();
    if path.is_dir() {
        for item in fs::read_dir(path).unwrap() {
            give(&item.unwrap().path(), uid);
        }
    }
}

/// The fixture with a directory of another user, which that user and root can reach.
fn of_another(uid: u32) -> Option<(Fixture, PathBuf)> {
    let fixture = Fixture::sealed();
    fs::set_permissions(fixture.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    if chown(fixture.data(), Some(uid), Some(uid)).is_err() {
        return None;
    }
    give(&fixture.data(), uid);
    let key = fixture.key_file();
    Some((fixture, key))
}

const OTHER: u32 = 65533;

#[test]
fn root_works_as_the_owner_of_the_directory() {
    let Some((fixture, key)) = of_another(OTHER) else { return };
    // The key file belongs to the owner of the directory, as it does for a server: root's verify
    // reads it.
    chown(&key, Some(OTHER), None).unwrap();
    let answer = quiet(&fixture, &["verify", "data"]);
    assert_eq!(answer.code, 0, "{answer:?}");
    let given = format!("file:{}", key.display());
    assert_eq!(quiet(&fixture, &["verify", "-K", &given, "data"]).code, 0);

    // A link in the directory does not lead root to a file that only root can read.
    let secret = fixture.path("secret");
    fs::copy(fixture.file("base/5/16384"), &secret).unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    fs::remove_file(fixture.file("base/5/16384")).unwrap();
    symlink(&secret, fixture.file("base/5/16384")).unwrap();
    for command in [&["verify", "data"][..], &["cat", "data/base/5/16384"]] {
        let answer = quiet(&fixture, command);
        assert!(answer.code == 40 && !answer.out.contains("AAAA"), "{answer:?}");
    }
    fs::remove_file(fixture.file("base/5/16384")).unwrap();

    // A key file of root opens the directory if root names it.
    chown(&key, Some(0), None).unwrap();
    let answer = quiet(&fixture, &["verify", "data"]);
    assert_eq!(answer.code, 13, "{answer:?}");
    assert!(answer.err.contains(&format!("chown {OTHER}")), "{answer:?}");
    assert_eq!(quiet(&fixture, &["verify", "-K", &given, "data"]).code, 0);
    // An escrow copy can be written to where only root may write.
    let private = fixture.path("private");
    fs::create_dir(&private).unwrap();
    fs::set_permissions(&private, fs::Permissions::from_mode(0o700)).unwrap();
    let lock = "passphrase:command=echo correct horse";
    let answer = quiet(
        &fixture,
        &["key", "backup", "data", "-K", &given, "--lock", lock, "-o", "private/copy"],
    );
    assert_eq!(answer.code, 0, "{answer:?}");
    assert_eq!(fs::metadata(private.join("copy")).unwrap().uid(), 0);
    assert_eq!(fs::metadata(fixture.file("pgseal/escrow.json")).unwrap().uid(), OTHER);
    let check = ["key", "check", "data", "-K", &given, "--escrow", "private/copy"];
    assert_eq!(quiet(&fixture, &check).code, 0);
    // New files in the directory belong to its owner, those in /etc/pgseal/clusters.d to root.
    let next = fixture.path("next");
    fixture.ok(&["key", "new", "-o", next.to_str().unwrap()]);
    let uri = format!("file:{}", next.display());
    let rotate = ["key", "rotate", "data", "--old", &given, "-K", &uri, "--register"];
    quiet(&fixture, &rotate).fails_with(13, &format!("chown {OTHER}"));
    assert!(!fixture.path("clusters.d").exists());
    chown(&next, Some(OTHER), None).unwrap();
    let answer = quiet(&fixture, &rotate);
    assert_eq!(answer.code, 0, "{answer:?}");
    assert_eq!(fs::metadata(fixture.file("pgseal/keyring")).unwrap().uid(), OTHER);
    let conf = fixture.path(&format!("clusters.d/{}.conf", keyring_id(&fixture)));
    let meta = fs::metadata(conf).unwrap();
    assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o777), (0, OTHER, 0o640));
    assert_eq!(quiet(&fixture, &["verify", "data"]).code, 0);
}

#[test]
fn a_keyring_of_a_third_users_is_refused() {
    let Some((fixture, _)) = of_another(OTHER) else { return };
    chown(fixture.file("pgseal/keyring"), Some(OTHER - 1), None).unwrap();
    for command in [&["verify", "data"][..], &["status", "data"], &["env", "-D", "data"]] {
        let answer = quiet(&fixture, command);
        // The owner cannot even read the file, with the mode that pgseal gives it.
        assert!(answer.code == 40 || answer.code == 20, "{command:?}: {answer:?}");
    }
    fs::set_permissions(fixture.file("pgseal/keyring"), fs::Permissions::from_mode(0o644)).unwrap();
    for command in [&["verify", "data"][..], &["status", "data"], &["key", "show", "data"]] {
        quiet(&fixture, command).fails_with(12, "belongs to user 65532");
    }
}
