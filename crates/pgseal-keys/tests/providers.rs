//! Each provider with a real source: files, commands, descriptors, the environment, a terminal.

#![allow(clippy::unwrap_used, reason = "helpers of tests, outside of #[test] functions")]

use std::fs;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

use pgseal_core::Suite;
use pgseal_keys::{
    Argon2idParams, Clusters, CostLimit, KeyError, Keyring, Provider, Source, generate_raw_key,
    kek_from_fd,
};
use pgseal_testkit::Terminal;

const HEX: &str = "0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0";

fn key_file(dir: &Path, name: &str, text: &str, mode: u32) -> String {
    let path = dir.join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    format!("file:{}", path.display())
}

fn raw(uri: &str) -> Result<[u8; 32], KeyError> {
    Provider::parse(uri)?.kek(None).map(|kek| *kek.expose())
}

/// The provider's error, after a check that neither its message nor its debug form shows the key.
fn refused(uri: &str) -> KeyError {
    let err = raw(uri).unwrap_err();
    let shown = format!("{err} {err:?}");
    assert!(!shown.contains(&HEX[..8]) && !shown.contains("30, 45, 60"), "{shown}");
    err
}

#[test]
fn a_private_key_file_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let key = raw(&key_file(dir.path(), "a", &format!(" {HEX}\n"), 0o600)).unwrap();
    assert_eq!(key[..3], [0x0f, 0x1e, 0x2d]);
    assert_eq!(raw(&key_file(dir.path(), "b", HEX, 0o400)).unwrap(), key);
    symlink(dir.path().join("b"), dir.path().join("link")).unwrap();
    assert_eq!(raw(&format!("file:{}", dir.path().join("link").display())).unwrap(), key);
}

#[test]
fn a_key_file_open_to_others_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for mode in [0o640, 0o604, 0o620, 0o602, 0o601, 0o644, 0o666] {
        let err = refused(&key_file(dir.path(), &format!("{mode:o}"), HEX, mode));
        assert!(matches!(err, KeyError::Insecure { .. }), "{mode:o}: {err}");
        assert_eq!(err.exit_code(), 12);
        assert!(err.to_string().contains("chmod 600"), "{err}");
    }
}

#[test]
fn what_is_not_a_file_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let err = refused(&format!("file:{}", dir.path().display()));
    assert_eq!(err.exit_code(), 12, "{err}");
    let fifo = dir.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let err = refused(&format!("file:{}", fifo.display()));
    assert!(err.to_string().contains("not a regular file"), "{err}");
}

#[test]
fn missing_and_empty_and_wrong_texts() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(refused(&format!("file:{}/none", dir.path().display())).exit_code(), 10);
    assert_eq!(refused(&key_file(dir.path(), "empty", " \n", 0o600)).exit_code(), 10);
    assert_eq!(refused("env:PGSEAL_TEST_VARIABLE_THAT_NOBODY_SETS").exit_code(), 10);
    for bad in [&HEX[1..], &format!("{HEX}0"), &format!("{HEX}\n{HEX}"), &"x".repeat(9000)] {
        let err = refused(&key_file(dir.path(), "bad", bad, 0o600));
        assert!(matches!(err, KeyError::BadKeyText { .. }), "{err}");
    }
}

#[test]
fn commands() {
    assert_eq!(raw(&format!("command:echo {HEX}")).unwrap()[31], 0xf0);
    assert_eq!(refused(&format!("command:echo {HEX}; exit 1")).exit_code(), 13);
    assert_eq!(refused("command:true").exit_code(), 10);
    assert_eq!(refused(&format!("command:echo {HEX} {HEX}")).exit_code(), 13);
}

#[test]
fn generated_keys_are_keys_and_differ() {
    let (a, b) = (generate_raw_key().unwrap(), generate_raw_key().unwrap());
    assert_eq!(a.len(), 64);
    assert_ne!(*a, *b);
    raw(&format!("command:echo {}", *a)).unwrap();
}

#[test]
fn a_passphrase_from_a_descriptor_or_a_command() {
    let params = Argon2idParams::with_cost(64, 1, 1).unwrap();
    let expected = *params.derive(b"open sesame").unwrap().expose();
    let given =
        |uri: &str| Provider::parse(uri).unwrap().kek(Some(&params)).map(|kek| *kek.expose());
    assert_eq!(given("passphrase:command=echo open sesame; echo more").unwrap(), expected);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"open sesame\r\nmore").unwrap();
    assert_eq!(given(&format!("passphrase:fd={}", file.as_raw_fd())).unwrap(), expected);
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(b"open sesame\n").unwrap();
    assert_eq!(given(&format!("passphrase:fd={}", reader.as_raw_fd())).unwrap(), expected);
    drop(writer);
    assert_eq!(
        given(&format!("passphrase:fd={}", reader.as_raw_fd())).unwrap_err().exit_code(),
        10
    );
    assert_eq!(given("passphrase:fd=99999").unwrap_err().exit_code(), 13);
    assert_eq!(given("passphrase:command=echo").unwrap_err().exit_code(), 10);
    let err = Provider::parse("passphrase:").unwrap().kek(None).unwrap_err();
    assert!(err.to_string().contains("not under a passphrase"), "{err}");
}

#[test]
fn a_kek_is_passed_through_a_descriptor_with_its_parameters() {
    let new =
        Provider::parse("passphrase:command=echo open sesame").unwrap().kek_for_new().unwrap();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&new.to_memfd_bytes().unwrap()).unwrap();
    let fd = u32::try_from(file.as_raw_fd()).unwrap();
    // Twice: every process of a start reads the same descriptor.
    for _ in 0..2 {
        let through = kek_from_fd(fd).unwrap();
        assert_eq!((through.expose(), through.params()), (new.expose(), new.params()));
    }
    let through = kek_from_fd(fd).unwrap();
    let ring = Keyring::create(Suite::Aes256Gcm, "passphrase:", &through).unwrap();
    let clusters = Clusters::at("/nowhere".into());
    let source = Source::find(&ring, None, Some("env:NOT_ASKED"), Some(fd), &clusters).unwrap();
    ring.unlock(&source.kek(&ring, CostLimit::Sensible).unwrap()).unwrap();
    file.set_len(31).unwrap();
    assert_eq!(kek_from_fd(fd).unwrap_err().exit_code(), 13);
    file.set_len(32).unwrap();
    assert!(kek_from_fd(fd).unwrap().params().is_none());
}

/// Not a test: the process that the tests below start with their own environment and terminal.
#[test]
#[ignore = "run by other tests"]
fn child() {
    let Ok(uri) = std::env::var("PGSEAL_TEST_URI") else { return };
    let provider = Provider::parse(&uri).unwrap();
    let kek = if provider.is_passphrase() { provider.kek_for_new() } else { provider.kek(None) };
    match kek {
        Ok(kek) if provider.is_passphrase() => {
            let same = kek.params().unwrap().derive(b"open sesame").unwrap();
            println!("\nkek matches: {}", same.expose() == kek.expose());
        }
        Ok(kek) => println!("\nkek starts: {:02x}", kek.expose()[0]),
        Err(err) => println!("\nexit {}: {err}", err.exit_code()),
    }
}

fn child_command() -> Vec<String> {
    let exe = std::env::current_exe().unwrap();
    let args = ["--exact", "child", "--ignored", "--nocapture", "--test-threads=1"];
    std::iter::once(exe.to_str().unwrap()).chain(args).map(str::to_owned).collect()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[&*output.stdout, &*output.stderr].concat()).into_owned()
}

#[test]
fn a_key_from_the_environment() {
    for (value, expected) in [
        (HEX, "kek starts: 0f"),
        (" \n", "exit 10: "),
        (&HEX[2..], "exit 13: env:PGSEAL_TEST_KEY does not hold a key"),
    ] {
        let line = child_command();
        let output = Command::new(&line[0])
            .args(&line[1..])
            .env("PGSEAL_TEST_URI", "env:PGSEAL_TEST_KEY")
            .env("PGSEAL_TEST_KEY", value)
            .output()
            .unwrap();
        let text = text(&output);
        assert!(text.contains(expected), "{text}");
        assert!(!text.contains(&HEX[2..20]), "{text}");
    }
}

/// The screen of a terminal where a person answers both prompts.
fn typed(first: &str, second: &str) -> String {
    let command = child_command();
    let argv: Vec<&str> = command.iter().map(String::as_str).collect();
    let mut terminal = Terminal::start(&argv, |command| {
        command.env("PGSEAL_TEST_URI", "passphrase:");
    });
    terminal.answer_hidden("New passphrase for pgseal:", first);
    terminal.answer_hidden("The same passphrase again:", second);
    terminal.end().1
}

#[test]
fn a_passphrase_from_the_terminal_is_asked_twice_and_not_echoed() {
    let seen = typed("open sesame", "open sesame");
    assert!(seen.contains("kek matches: true"), "{seen}");
    assert!(!seen.contains("sesame"), "{seen}");
    let seen = typed("open sesame", "open sesamy");
    assert!(seen.contains("the two passphrases differ"), "{seen}");
    let seen = typed("", "");
    assert!(seen.contains("the passphrase is empty"), "{seen}");
}
