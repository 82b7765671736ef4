//! Which source the key is asked of, and what a keyring may not ask for before a key has
//! authenticated it.

#![allow(clippy::unwrap_used, reason = "helpers of tests, outside of #[test] functions")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use pgseal_core::Suite;
use pgseal_keys::{
    Argon2idParams, Clusters, CostLimit, Kek, KeyError, Keyring, Provider, Source,
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
        let wanted = Source::Provider(Provider::parse(uri).unwrap());
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
        clusters.register(ring.id(), &Provider::parse(uri).unwrap(), None).unwrap();
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
