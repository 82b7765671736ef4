//! Which source the key is asked of, and what a keyring may not ask for before a key has
//! authenticated it.

#![allow(clippy::unwrap_used, reason = "helpers of tests, outside of #[test] functions")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use pgseal_core::Suite;
use pgseal_keys::{
    Argon2idParams, Clusters, CostLimit, Kek, KeyError, Keyring, Line, Provider, Source,
    generate_raw_key, keyring_path,
};

/// A new data directory below `temp`, with a keyring that names this provider.
fn keyring(temp: &Path, uri: &str) -> Keyring {
    let kek = Kek::from_text(generate_raw_key().unwrap().as_bytes(), "").unwrap();
    let kek = match uri.starts_with("passphrase:") {
        true => Argon2idParams::with_cost(64, 1, 1).unwrap().derive(b"x").unwrap(),
        false => kek,
    };
    let path = keyring_path(&temp.join("data"));
    fs::create_dir_all(temp.join("data")).unwrap();
    let _ = fs::remove_file(&path);
    Keyring::create(Suite::Aes256Gcm, uri, &kek).unwrap().store_new(&path).unwrap();
    Keyring::load(&path).unwrap()
}

#[test]
fn a_keyring_may_name_only_providers_that_run_and_connect_to_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let clusters = Clusters::at(temp.path().join("clusters.d"));
    for (uri, form) in [
        ("env:A", None),
        ("file:/etc/key", None),
        ("passphrase:", None),
        ("command:echo secret-word", Some("command:SHELL COMMAND")),
        ("passphrase:fd=0", Some("passphrase:fd=N")),
        ("passphrase:command=echo secret-word", Some("passphrase:command=SHELL COMMAND")),
    ] {
        let ring = keyring(temp.path(), uri);
        let wanted = Source::from(Provider::parse(uri).unwrap());
        match (Source::find(&ring, None, None, None, &clusters), form) {
            (Ok(source), None) => assert_eq!(source, wanted, "{uri}"),
            (Err(error), Some(form)) => {
                assert_eq!(error.exit_code(), 12, "{error}");
                let said = error.to_string();
                let line = format!("\"provider = {form}\"");
                let file = format!("clusters.d/{}.conf", ring.id());
                assert!(said.contains(&line) && said.contains(&file), "{said}");
                assert!(!said.contains("secret-word"), "{said}");
            }
            (other, _) => panic!("{uri}: {other:?}"),
        }
        // Outside of the data directory, every provider may be named. The command line wins over
        // the environment, and the environment over the file of the cluster.
        let outside = |given, environment| {
            Source::find(&ring, given, environment, None, &clusters).unwrap().shown()
        };
        assert_eq!(outside(Some(uri), Some("env:B")), Provider::shown(uri));
        assert_eq!(outside(None, Some("env:B")), "env:B");
        clusters.register(ring.id(), &Provider::parse(uri).unwrap(), Line::First, None).unwrap();
        assert_eq!(Source::find(&ring, None, None, None, &clusters).unwrap(), wanted);
        assert_eq!(outside(None, Some("env:B")), "env:B");
    }
}

#[test]
fn a_key_in_the_data_directory_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    let clusters = Clusters::at(temp.path().join("clusters.d"));
    let key = temp.path().join("data/key");
    let ring = keyring(temp.path(), &format!("file:{}", key.display()));
    fs::write(&key, "x").unwrap();
    let error = Source::find(&ring, None, None, None, &clusters).unwrap_err();
    assert_eq!(error.exit_code(), 12);
    assert!(error.to_string().contains("in its own data directory"), "{error}");
    // A link from elsewhere to the same key is refused as well.
    let link = temp.path().join("link");
    std::os::unix::fs::symlink(&key, &link).unwrap();
    let ring = keyring(temp.path(), &format!("file:{}", link.display()));
    assert!(Source::find(&ring, None, None, None, &clusters).is_err());
    let given = format!("file:{}", key.display());
    assert!(Source::find(&ring, Some(&given), None, None, &clusters).is_ok());
}

#[test]
fn the_cost_that_a_keyring_asks_for_is_bounded() {
    let pass = |memory_kib, passes| {
        let params = Argon2idParams::with_cost(memory_kib, passes, 1).unwrap();
        let asked = Provider::parse("passphrase:command=echo x").unwrap();
        asked.kek_within(Some(&params), CostLimit::Sensible, Path::new("ring"))
    };
    assert!(pass(64, 16).is_ok());
    for (memory_kib, passes) in [(4 << 20, 1), ((1 << 20) + 1, 1), (64, 17)] {
        let error = pass(memory_kib, passes).unwrap_err();
        assert!(matches!(error, KeyError::Costly { .. }), "{error}");
        assert_eq!(error.exit_code(), 12);
        assert!(error.to_string().contains("--allow-cost"), "{error}");
    }
    let params = Argon2idParams::with_cost(64, 17, 1).unwrap();
    let asked = Provider::parse("passphrase:command=echo x").unwrap();
    assert!(asked.kek_within(Some(&params), CostLimit::Format, Path::new("ring")).is_ok());
}

#[test]
fn the_error_names_the_provider_that_was_asked() {
    let temp = tempfile::tempdir().unwrap();
    let ring = keyring(temp.path(), "env:OF_THE_KEYRING");
    let key = temp.path().join("other");
    fs::write(&key, generate_raw_key().unwrap().as_bytes()).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let uri = format!("file:{}", key.display());
    let wrong = ring.unlock(&Provider::parse(&uri).unwrap().kek(None).unwrap()).unwrap_err();
    assert_eq!(wrong.exit_code(), 11);
    assert!(wrong.to_string().contains(&format!("wrong key: {uri} gave")), "{wrong}");
}

fn key_file(dir: &std::path::Path, name: &str) -> (Kek, String) {
    let path = dir.join(name);
    let text = generate_raw_key().unwrap();
    fs::write(&path, &*text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let uri = format!("file:{}", path.display());
    (Provider::parse(&uri).unwrap().kek(None).unwrap(), uri)
}

/// A keyring under the key file `main`, with the recipients `next`, a key file as well, and
/// `glass`, a passphrase.
fn with_recipients(temp: &std::path::Path) -> Keyring {
    let (main, uri) = key_file(temp, "main");
    let mut ring = Keyring::create(Suite::Aes256Gcm, &uri, &main).unwrap();
    let (next, uri) = key_file(temp, "next");
    ring.add_recipient(&main, "next", &next, &uri).unwrap();
    let glass = Argon2idParams::with_cost(64, 1, 1).unwrap().derive(b"glass").unwrap();
    let uri = format!("passphrase:command=cat {}", temp.join("phrase").display());
    ring.add_recipient(&main, "glass", &glass, &uri).unwrap();
    fs::create_dir_all(temp.join("data")).unwrap();
    ring.store_new(&keyring_path(&temp.join("data"))).unwrap();
    Keyring::load(&keyring_path(&temp.join("data"))).unwrap()
}

fn opened(ring: &Keyring, source: &Source) -> Result<(), KeyError> {
    ring.unlock(&source.kek(ring, CostLimit::Sensible)?).map(|_| ())
}

#[test]
fn sources_are_tried_in_their_order_until_one_opens_the_keyring() {
    let temp = tempfile::tempdir().unwrap();
    let clusters = Clusters::at(temp.path().join("clusters.d"));
    let ring = with_recipients(temp.path());
    let found = || Source::find(&ring, None, None, None, &clusters).unwrap();
    // The keyring may name two key files; the passphrase comes from a command.
    assert_eq!(found().providers().len(), 2);
    opened(&ring, &found()).unwrap();
    fs::remove_file(temp.path().join("main")).unwrap();
    opened(&ring, &found()).unwrap();
    key_file(temp.path(), "main");
    opened(&ring, &found()).unwrap();
    key_file(temp.path(), "next");
    let error = opened(&ring, &found()).unwrap_err();
    assert_eq!(error.exit_code(), 11, "{error}");
    fs::remove_file(temp.path().join("main")).unwrap();
    let error = opened(&ring, &found()).unwrap_err();
    let text = error.to_string();
    assert!(error.exit_code() == 13 && text.contains("none of 2 sources"), "{error}");
    assert!(text.contains("/main") && text.contains("/next"), "{error}");
    // The file of the cluster names the passphrase as the last source.
    for (uri, line) in ring.provider_uris().iter().zip([Line::First, Line::Another, Line::Another])
    {
        clusters.register(ring.id(), &Provider::parse(uri).unwrap(), line, None).unwrap();
    }
    assert_eq!(found().providers().len(), 3);
    fs::write(temp.path().join("phrase"), "glass\n").unwrap();
    opened(&ring, &found()).unwrap();
    fs::write(temp.path().join("phrase"), "other\n").unwrap();
    assert!(opened(&ring, &found()).unwrap_err().to_string().contains("none of 3 sources"));
}

/// A source that the command line names may be that of any recipient.
#[test]
fn a_given_source_opens_the_slot_that_it_fits() {
    let temp = tempfile::tempdir().unwrap();
    let clusters = Clusters::at(temp.path().join("clusters.d"));
    let ring = with_recipients(temp.path());
    fs::write(temp.path().join("phrase"), "glass\n").unwrap();
    for uri in ring.provider_uris() {
        let given = Source::find(&ring, Some(&uri), None, None, &clusters).unwrap();
        assert_eq!(given.providers().len(), 1);
        opened(&ring, &given).unwrap_or_else(|error| panic!("{uri}: {error}"));
    }
    fs::write(temp.path().join("phrase"), "no\n").unwrap();
    let given = Source::find(&ring, Some(&ring.provider_uris()[2]), None, None, &clusters).unwrap();
    assert_eq!(opened(&ring, &given).unwrap_err().exit_code(), 11);
}

#[test]
fn a_large_keyring_is_not_read() {
    let temp = tempfile::tempdir().unwrap();
    let ring = keyring(temp.path(), "env:A");
    let file = fs::OpenOptions::new().write(true).open(ring.path()).unwrap();
    file.set_len(1 << 30).unwrap();
    let error = Keyring::load(ring.path()).unwrap_err();
    assert_eq!(error.exit_code(), 14);
    assert!(error.to_string().contains("longer than 1 MiB"), "{error}");
}

/// Only root can give a file away.
#[test]
fn a_keyring_that_a_stranger_owns_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    let ring = keyring(temp.path(), "env:A");
    if chown(ring.path(), Some(65533), None).is_err() {
        return;
    }
    let error = Keyring::load(ring.path()).unwrap_err();
    assert_eq!(error.exit_code(), 12);
    assert!(error.to_string().contains("belongs to user 65533"), "{error}");
    chown(temp.path().join("data"), Some(65533), None).unwrap();
    assert!(
        Keyring::load(ring.path()).is_ok(),
        "the keyring belongs to the owner of the data directory"
    );
    chown(ring.path(), Some(0), None).unwrap();
    assert!(Keyring::load(ring.path()).is_ok(), "the keyring belongs to root");
}
