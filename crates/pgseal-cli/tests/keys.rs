//! Errors about keys and directories: each has an exit code of its own and a helpful message, and
//! changes nothing.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use common::{Answer, Fixture, snapshot};
use pgseal_keys::handover::{self, Conversion};

#[test]
fn wrong_key() {
    let fixture = Fixture::sealed();
    fixture.ok(&["key", "new", "-o", "other"]);
    let before = snapshot(&fixture.data());
    for command in ["verify", "helper"] {
        let keyring = fixture.file("pgseal/keyring");
        let mut run = fixture.pgseal();
        run.env("PGSEAL_PROVIDER", format!("file:{}", fixture.path("other").display()));
        match command {
            "verify" => run.arg("verify").arg(fixture.data()),
            _ => run.args(["helper", "keys", "--keyring"]).arg(keyring),
        };
        let answer = Answer::of(run.output().unwrap());
        answer.fails_with(11, "wrong key");
        assert!(answer.out.is_empty());
    }
    assert_eq!(snapshot(&fixture.data()), before);
}

#[test]
fn no_key() {
    let fixture = Fixture::sealed();
    fixture.on_data(&["verify", "-K", "env:PGSEAL_TEST_UNSET"]).fails_with(10, "not set");
    fs::remove_file(fixture.key_file()).unwrap();
    fixture.on_data(&["verify"]).fails_with(10, "no key file");
}

#[test]
fn insecure_key_file() {
    let fixture = Fixture::sealed();
    fs::set_permissions(fixture.key_file(), fs::Permissions::from_mode(0o644)).unwrap();
    fixture.on_data(&["verify"]).fails_with(12, "chmod 600");
}

#[test]
fn provider_that_fails() {
    let fixture = Fixture::sealed();
    fixture.on_data(&["verify", "-K", "command:exit 3"]).fails_with(13, "exit status: 3");
    fixture.on_data(&["verify", "-K", "nonsense:x"]).fails_with(2, "names no key provider");
}

#[test]
fn damaged_keyring() {
    let fixture = Fixture::sealed();
    fixture.damage("pgseal/keyring", |bytes| bytes.truncate(bytes.len() / 2));
    for command in [&["verify"][..], &["status"], &["key", "show"]] {
        fixture.on_data(command).fails_with(14, "keyring is damaged");
    }
}

#[test]
fn keyring_of_another_cluster() {
    let (ours, theirs) = (Fixture::sealed(), Fixture::sealed());
    fs::copy(theirs.file("pgseal/keyring"), ours.file("pgseal/keyring")).unwrap();
    ours.on_data(&["verify"]).fails_with(15, "another cluster");
    let relation = ours.file(common::RELATION);
    ours.run(&["cat", relation.to_str().unwrap()]).fails_with(15, "another cluster");
}

#[test]
fn missing_keyring_is_not_the_same_as_not_sealed() {
    let fixture = Fixture::sealed();
    fs::remove_dir_all(fixture.file("pgseal")).unwrap();
    for command in [&["verify"][..], &["key", "show"], &["status"]] {
        fixture.on_data(command).fails_with(16, "there is no keyring");
    }
    let plain = Fixture::plain();
    for command in [&["verify"][..], &["key", "show"], &["status"]] {
        plain.on_data(command).fails_with(4, "not sealed");
    }
}

#[test]
fn not_a_data_directory() {
    let fixture = Fixture::plain();
    fs::create_dir(fixture.path("empty")).unwrap();
    for command in [&["verify"][..], &["status"], &["key", "show"]] {
        let on = |name: &str| {
            let mut all = command.to_vec();
            all.push(name);
            fixture.run(&all)
        };
        on("empty").fails_with(3, "not a PostgreSQL data directory");
        on("nowhere").fails_with(3, "no such file or directory");
    }
    fixture.run(&["inspect", "nowhere"]).fails_with(3, "no such file");
    fixture.run(&["cat", "nowhere"]).fails_with(3, "no such file");
}

#[test]
fn a_new_key_is_private_and_never_overwritten() {
    let fixture = Fixture::plain();
    fixture.ok(&["key", "new", "-o", "k"]);
    let mode = fs::metadata(fixture.path("k")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let first = fs::read(fixture.path("k")).unwrap();
    assert_eq!(first.len(), 65);
    fixture.run(&["key", "new", "-o", "k"]).fails_with(5, "never overwritten");
    assert_eq!(fs::read(fixture.path("k")).unwrap(), first);
    let printed = fixture.ok(&["key", "new"]);
    assert!(printed.trim_end().bytes().all(|b| b.is_ascii_hexdigit()) && printed.len() == 65);
    assert_ne!(printed.as_bytes(), first);
}

/// A limit on file sizes simulates a full disk.
#[test]
fn half_a_key_is_removed_and_so_is_half_an_escrow_copy() {
    let fixture = Fixture::sealed();
    let lock = "passphrase:command=echo correct horse";
    let data = fixture.data();
    let backup = ["key", "backup", data.to_str().unwrap(), "--lock", lock, "-o", "k"];
    for args in [&["key", "new", "-o", "k"][..], &backup] {
        let pgseal = fixture.pgseal();
        let mut limited = std::process::Command::new("sh");
        limited.args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$@\"", "sh"]);
        limited.arg(pgseal.get_program()).args(args).current_dir(fixture.path(""));
        let answer = Answer::of(limited.output().unwrap());
        answer.fails_with(40, "cannot write the");
        assert!(answer.err.contains("File too large"), "{answer:?}");
        assert!(!fixture.path("k").exists(), "{args:?}");
    }
}

#[test]
fn a_keyring_shows_itself_without_its_key() {
    let fixture = Fixture::sealed();
    let key = fs::read_to_string(fixture.key_file()).unwrap();
    fs::remove_file(fixture.key_file()).unwrap();
    let text = fixture.on_data(&["key", "show"]);
    assert_eq!(text.code, 0);
    assert!(text.out.contains("aes-256-gcm") && text.out.contains("active"), "{text:?}");
    assert!(!text.out.contains(key.trim()));
    let json = fixture.on_data(&["key", "show", "--json"]).json();
    assert_eq!(json["active_generation"], 1);
    assert_eq!(json["suite"], "aes-256-gcm");
}

#[test]
fn rotation_changes_the_key_and_no_data() {
    let fixture = Fixture::sealed();
    fixture.ok(&["key", "new", "-o", "next"]);
    let relation = fs::read(fixture.file(common::RELATION)).unwrap();
    let data = fixture.data();
    let dir = data.to_str().unwrap();
    fixture.run(&["key", "rotate", dir, "-K", "env:PGSEAL_TEST_UNSET"]).fails_with(10, "not set");
    assert_eq!(fixture.on_data(&["verify"]).code, 0, "a failed rotation changes nothing");
    fixture.ok(&["key", "rotate", dir, "-K", "file:next"]);
    fs::remove_file(fixture.key_file()).unwrap();
    assert_eq!(fixture.on_data(&["verify"]).code, 0);
    assert_eq!(fs::read(fixture.file(common::RELATION)).unwrap(), relation);
    let shown = fixture.on_data(&["key", "show", "--json"]).json();
    assert_eq!(shown["provider"], format!("file:{}", fixture.path("next").display()));
}

#[test]
fn the_helper_hands_over_one_frame_and_never_preloads() {
    let fixture = Fixture::sealed();
    let keyring = fixture.file("pgseal/keyring");
    let output = fixture
        .pgseal()
        .env("LD_PRELOAD", "")
        .args(["helper", "keys", "--keyring"])
        .arg(&keyring)
        .output()
        .unwrap();
    assert!(output.status.success());
    let unlocked = handover::decode(&output.stdout).unwrap().unlocked().unwrap();
    assert_eq!(unlocked.keys.keyring_id, fixture.keys().keyring_id);
    // A provider's command does not inherit LD_PRELOAD.
    let key = fs::read_to_string(fixture.key_file()).unwrap();
    let command = format!("command:test -z \"${{LD_PRELOAD+x}}\" && echo {}", key.trim());
    let output = fixture
        .pgseal()
        .env("LD_PRELOAD", "")
        .env("PGSEAL_PROVIDER", command)
        .args(["helper", "keys", "--keyring"])
        .arg(&keyring)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// What the helper says without a key: that it is another keyring, or that a conversion was
/// interrupted.
#[test]
fn the_helper_asks_for_no_key_that_is_not_needed() {
    let fixture = Fixture::sealed();
    let own = fixture.keys().keyring_id;
    let keyring = fixture.file("pgseal/keyring");
    let ask = |id: Option<&str>| {
        let mut command = fixture.pgseal();
        command.env("PGSEAL_PROVIDER", "env:PGSEAL_TEST_UNSET").args(["helper", "keys"]);
        command.arg("--keyring").arg(&keyring);
        if let Some(id) = id {
            command.args(["--id", id]);
        }
        command.output().unwrap()
    };
    let own_id = own.to_string();
    let other_id = "0123456789abcdef0123456789abcdef";
    for id in [None, Some(&own_id[..])] {
        Answer::of(ask(id)).fails_with(10, "not set");
    }
    let usage = Answer::of(ask(Some("x")));
    assert!(usage.code == 2 && usage.err.contains("not the identity of a keyring"), "{usage:?}");
    let answer = |id| handover::decode(&ask(id).stdout).unwrap();
    let is_other = |answer| matches!(answer, handover::Answer::OtherKeyring(id) if id == own);
    assert!(is_other(answer(Some(other_id))));

    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/seeds/journal");
    for conversion in [Conversion::Encrypt, Conversion::Decrypt, Conversion::Rekey] {
        let journal = fixture.file("pgseal/conversion");
        fs::copy(seeds.join(conversion.name()), &journal).unwrap();
        for id in [None, Some(&own_id[..])] {
            let found = answer(id);
            assert!(matches!(found, handover::Answer::Interrupted(name) if name == conversion));
        }
        assert!(is_other(answer(Some(other_id))));
    }
}

#[test]
fn a_new_keyring_can_be_a_copy_and_is_never_overwritten() {
    let (source, target) = (Fixture::sealed(), Fixture::plain());
    let (from, dir) = (source.file("pgseal/keyring"), target.data());
    let args = ["helper", "new-keyring", "--dir", dir.to_str().unwrap()];
    target.run(&args).fails_with(2, "PGSEAL_PROVIDER");
    target.ok(&[&args[..], &["--from", from.to_str().unwrap()]].concat());
    let copy = target.file("pgseal/keyring");
    assert_eq!(fs::read(&from).unwrap(), fs::read(&copy).unwrap());
    assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
    target.run(&[&args[..], &["--from", from.to_str().unwrap()]].concat()).fails_with(5, "already");
}
