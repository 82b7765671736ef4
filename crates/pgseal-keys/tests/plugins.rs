//! Plugins: the example of docs/key-stores.md passes the suite; plugins that misbehave are found by
//! it, and give clear errors by whose fault.

#![allow(clippy::unwrap_used, reason = "helpers of tests, outside of #[test] functions")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use pgseal_core::{KeyringId, Suite};
use pgseal_keys::provider::conformance::{self, Report, Verdict};
use pgseal_keys::provider::{PROVIDERS_DIR, Patience, Plugin, installed};
use pgseal_keys::{Clusters, CostLimit, KeyError, Keyring, Provider, Source};

/// The variable that makes this test program run one test of itself, with its own environment.
const INSIDE: &str = "PGSEAL_TEST_INSIDE";

/// A directory with the example of the documentation and the misbehaving plugin.
fn providers() -> &'static Path {
    static DIR: OnceLock<tempfile::TempDir> = OnceLock::new();
    DIR.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        install(dir.path(), "keyfile", &example());
        install(dir.path(), "hostile", include_str!("plugins/hostile.py"));
        install(dir.path(), "careless", include_str!("plugins/hostile.py"));
        dir
    })
    .path()
}

fn install(dir: &Path, name: &str, text: &str) -> PathBuf {
    let (source, path) = (dir.join("source"), dir.join(format!("pgseal-provider-{name}")));
    fs::write(&source, text).unwrap();
    fs::set_permissions(&source, fs::Permissions::from_mode(0o755)).unwrap();
    // Copied by another process: a child of a parallel test must not hold the program open for
    // writing while it is run.
    pgseal_testkit::install(&source, &path).unwrap();
    fs::remove_file(&source).unwrap();
    path
}

/// The program in docs/key-stores.md.
fn example() -> String {
    let page = include_str!("../../../docs/key-stores.md");
    let block = page.split("```python\n").nth(1).unwrap().split("```").next().unwrap();
    let lines = block.lines().filter(|line| !line.trim().is_empty()).count();
    assert!((40..=62).contains(&lines), "the page promises 60 lines: {lines}");
    block.to_owned()
}

fn provider(uri: &str) -> Provider {
    Provider::parse(uri).unwrap()
}

fn plugin(provider: &Provider) -> &Plugin {
    provider.plugin().unwrap()
}

fn quick() -> Patience {
    Patience::new(Duration::from_secs(5), Duration::ZERO)
}

/// Runs the test `name` of this program again in a process of its own, where `PGSEAL_PROVIDERS_DIR`
/// names the directory of the test's plugins. Returns whether this is that process.
fn inside(name: &str, dir: &Path) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let program = std::env::current_exe().unwrap();
    let output = Command::new(program)
        .args([name, "--exact", "--nocapture"])
        .env(INSIDE, "1")
        .env(PROVIDERS_DIR, dir)
        .env("PGSEAL_PROVIDER_WAIT", "3")
        .env("HOSTILE_STATE", dir)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    false
}

fn key_file(dir: &Path) -> String {
    let path = dir.join("store.key");
    fs::write(&path, [7; 32]).unwrap();
    format!("keyfile:{}", path.display())
}

fn failed(report: &Report) -> Vec<&'static str> {
    let checks = report.checks.iter().filter(|check| check.verdict == Verdict::Fail);
    checks.map(|check| check.name).collect()
}

#[test]
fn the_example_of_the_documentation_passes_the_suite() {
    if !inside("the_example_of_the_documentation_passes_the_suite", providers()) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let provider = provider(&key_file(dir.path()));
    let report = conformance::run(plugin(&provider)).unwrap();
    assert!(report.passed(), "{report:#?}");
    let passed = report.checks.iter().filter(|check| check.verdict == Verdict::Pass).count();
    assert_eq!((passed, report.checks.len()), (12, 13), "{report:#?}");
    assert_eq!(report.plugin.unwrap().name, "keyfile");
    assert_eq!(installed().unwrap(), ["careless", "hostile", "keyfile"]);
}

#[test]
fn the_suite_finds_what_a_plugin_does_wrong() {
    if !inside("the_suite_finds_what_a_plugin_does_wrong", providers()) {
        return;
    }
    let modes = [
        ("good", ""),
        ("garbage", "describe says"),
        ("long", "describe says"),
        ("dies", "describe says"),
        ("dies-after", "describe says"),
        ("twice", "describe says"),
        ("no-newline", "describe says"),
        ("version", "describe says"),
        ("both", "describe says"),
        ("name", "describe says"),
        ("short", "unwrap gives back"),
        ("other-key", "unwrap gives back"),
        ("plain", "does not show the key"),
        ("leaks", "standard error does not show"),
        ("unauthenticated", "a changed wrapped key does not open"),
        ("cut", "of another length"),
        ("unbound", "in another context"),
        ("exports", "an unknown operation"),
        ("any-version", "a request of another version"),
        ("unlocked", "four runs at the same time"),
        ("back", "an anchor only goes forward"),
        ("forgets", "an anchor only goes forward"),
    ];
    let find = |(mode, wanted): &(&str, &str)| {
        let provider = provider(&format!("hostile:{mode}"));
        let report = conformance::run(plugin(&provider)).unwrap();
        let failed = failed(&report);
        assert_eq!(report.passed(), wanted.is_empty(), "{mode}: {report:#?}");
        let found = failed.iter().any(|name| name.contains(wanted));
        assert!(found || wanted.is_empty(), "{mode}: {report:#?}");
    };
    thread::scope(|scope| {
        for part in modes.chunks(modes.len().div_ceil(4)) {
            scope.spawn(|| part.iter().for_each(find));
        }
    });
    let report = conformance::run(plugin(&provider("careless:good"))).unwrap();
    assert_eq!(failed(&report), ["a URI that names no key is refused"], "{report:#?}");
}

/// Each error has its own kind and exit status, and does not show what the plugin may not show.
#[test]
fn errors_say_whose_fault_it_is() {
    if !inside("errors_say_whose_fault_it_is", providers()) {
        return;
    }
    for (mode, code, words) in [
        ("refused", 17, "it refuses: the PIN is wrong"),
        ("config", 2, "wrong configuration: no such vault"),
        ("gone", 10, "no key: hostile:gone: the key was removed"),
        ("down", 13, "cannot be reached: the network is down"),
        ("slow", 13, "gave no answer within 1 s"),
        ("hangs-behind", 13, "gave no answer within 1 s"),
        ("garbage", 13, "broken: its answer is not JSON"),
        ("long", 13, "broken: its answer has more than 16384 bytes"),
        ("dies", 13, "broken: it ended with exit status: 3"),
        ("dies-after", 13, "broken: it ended with exit status: 3"),
        ("silent", 13, "broken: it gave no answer"),
        ("twice", 13, "broken: it gave more than one line"),
        ("version", 13, "broken: it speaks version 2 of the protocol"),
    ] {
        let uri = format!("hostile:{mode}");
        let provider = provider(&uri);
        let patience = Patience::new(Duration::from_secs(1), Duration::ZERO);
        let start = Instant::now();
        let error = plugin(&provider).describe(patience).unwrap_err();
        assert!(start.elapsed() < Duration::from_secs(30), "{mode}");
        assert_eq!(error.exit_code(), code, "{mode}: {error}");
        assert!(error.to_string().contains(words), "{mode}: {error}");
        assert!(!error.to_string().contains('\n'), "{mode}: {error}");
    }
    for (mode, words) in
        [("short", "its answer is not JSON"), ("other-key", "it does not unwrap what it wrapped")]
    {
        let error = provider(&format!("hostile:{mode}")).kek_for_new().unwrap_err();
        assert_eq!(error.exit_code(), 13, "{mode}: {error}");
        assert!(error.to_string().contains(words), "{mode}: {error}");
    }
    let error = provider("nosuch:x").kek_for_new().unwrap_err();
    assert_eq!(error.exit_code(), 2, "{error}");
    assert!(error.to_string().contains("there is no pgseal-provider-nosuch in"), "{error}");
}

/// A store that comes back in time is no error; what a store refuses is asked once.
#[test]
fn only_a_store_that_is_down_is_asked_again() {
    if !inside("only_a_store_that_is_down_is_asked_again", providers()) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for (mode, runs, is_ok) in [("down-twice", 3, true), ("refused-count", 1, false)] {
        let log = dir.path().join(mode);
        let provider = provider(&format!("hostile:{mode}={}", log.display()));
        let patience = Patience::new(Duration::from_secs(20), Duration::from_secs(60));
        let answer = plugin(&provider).describe(patience);
        assert_eq!(answer.is_ok(), is_ok, "{mode}: {answer:?}");
        assert_eq!(fs::read(&log).unwrap().len(), runs, "{mode}");
    }
    let start = Instant::now();
    assert_eq!(provider("hostile:down").kek_for_new().unwrap_err().exit_code(), 13);
    assert!(start.elapsed() >= Duration::from_secs(3), "PGSEAL_PROVIDER_WAIT");
}

/// Anchors, and a description, through the same way as a server's start.
#[test]
fn anchors_go_forward() {
    if !inside("anchors_go_forward", providers()) {
        return;
    }
    let provider = provider("hostile:good");
    let (plugin, id) = (plugin(&provider), KeyringId([0xA7; 16]));
    assert_eq!(plugin.anchor_read(id, quick()).unwrap().anchor, None);
    let anchor = |sequence| pgseal_plugin::Anchor { sequence, value: vec![1, 2] };
    plugin.anchor_advance(id, anchor(5), quick()).unwrap();
    assert_eq!(plugin.anchor_read(id, quick()).unwrap().anchor, Some(anchor(5)));
    let error = plugin.anchor_advance(id, anchor(5), quick()).unwrap_err();
    assert!(error.to_string().contains("the store has a newer anchor"), "{error}");
}

/// A plugin that others can write, or that lies in the data directory, is not run.
#[test]
fn a_plugin_that_others_can_write_is_not_run() {
    let Ok(dir) = std::env::var(PROVIDERS_DIR) else {
        let dir = tempfile::tempdir().unwrap();
        inside("a_plugin_that_others_can_write_is_not_run", dir.path());
        return;
    };
    let dir = Path::new(&dir);
    let program = install(dir, "keyfile", &example());
    let uri = key_file(dir);
    let works = || provider(&uri).kek_for_new().map(|_| ());
    works().unwrap();
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    for (path, bad, good) in
        [(program.as_path(), 0o775, 0o755), (&program, 0o757, 0o755), (dir, 0o770, 0o700)]
    {
        mode(path, bad);
        let error = works().unwrap_err();
        assert_eq!(error.exit_code(), 12, "{error}");
        assert!(error.to_string().contains("a plugin handles keys"), "{error}");
        mode(path, good);
    }
    mode(&program, 0o644);
    assert!(works().unwrap_err().to_string().contains("not executable"));
    let elsewhere = dir.join("elsewhere");
    fs::rename(&program, &elsewhere).unwrap();
    symlink(&elsewhere, &program).unwrap();
    assert_eq!(works().unwrap_err().exit_code(), 12, "a link");
    fs::remove_file(&program).unwrap();
    install(dir, "keyfile", &example());
    works().unwrap();

    // The directory of plugins in the data directory: what is there may come from the enemy.
    let data = dir;
    fs::create_dir(data.join("pgseal")).unwrap();
    let kek = provider(&uri).kek_for_new().unwrap();
    let path = data.join("pgseal/keyring");
    Keyring::create(Suite::Aes256Gcm, &uri, &kek).unwrap().store_new(&path).unwrap();
    let ring = Keyring::load(&path).unwrap();
    let error = Source::from(provider(&uri)).kek(&ring, CostLimit::Sensible).unwrap_err();
    assert!(error.to_string().contains("lies in the data directory"), "{error}");
}

/// The life of a keyring under a store, without a server.
#[test]
fn a_keyring_under_a_store() {
    if !inside("a_keyring_under_a_store", providers()) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let uri = key_file(dir.path());
    let store = provider(&uri);
    let kek = store.kek_for_new().unwrap();
    let ring = Keyring::create(Suite::Aes256Gcm, &uri, &kek).unwrap();
    let path = dir.path().join("data/pgseal/keyring");
    fs::create_dir(dir.path().join("data")).unwrap();
    ring.store_new(&path).unwrap();
    let mut ring = Keyring::load(&path).unwrap();
    assert_eq!(ring.summary().store_key.as_deref(), Some("its bytes"));
    let unlock = |ring: &Keyring| {
        let kek = Source::from(provider(&uri)).kek(ring, CostLimit::Sensible)?;
        ring.unlock(&kek)
    };
    unlock(&ring).unwrap();

    // A keyring may name a store, but only as a hint.
    let clusters = Clusters::at(dir.path().join("clusters.d"));
    let error = Source::find(&ring, None, None, None, &clusters).unwrap_err();
    assert!(matches!(error, KeyError::NotRegistered { .. }), "{error}");
    assert_eq!(Source::find(&ring, Some(&uri), None, None, &clusters).unwrap().shown(), uri);

    // The wrapped copy is bound to its keyring, and of no use without it.
    let other_kek = store.kek_for_new().unwrap();
    let other = Keyring::create(Suite::Aes256Gcm, &uri, &other_kek).unwrap();
    assert_ne!(other.id(), ring.id());
    assert!(ring.rotate_kek(&kek, &other_kek, &uri).is_err(), "the key of another keyring");
    let text = String::from_utf8(ring.to_bytes()).unwrap();
    let swapped =
        text.replace(&wrapped(&text), &wrapped(&String::from_utf8(other.to_bytes()).unwrap()));
    let swapped = Keyring::parse(swapped.as_bytes(), &path).unwrap();
    let error = unlock(&swapped).unwrap_err();
    assert!(matches!(error, KeyError::Wrong { .. }), "{error}");

    // To a file and back to the store; what was wrapped before does not open it any more.
    let plain = dir.path().join("plain.key");
    fs::write(&plain, "ab".repeat(32)).unwrap();
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o600)).unwrap();
    let plain = format!("file:{}", plain.display());
    let new = provider(&plain).kek_for_keyring(ring.id()).unwrap();
    ring.rotate_kek(&kek, &new, &plain).unwrap();
    assert_eq!(ring.summary().store_key, None);
    assert_eq!(unlock(&ring).unwrap_err().exit_code(), 13);
    let again = store.kek_for_keyring(ring.id()).unwrap();
    assert!(ring.rotate_kek(&new, &again, &plain).is_err(), "a store's key under file:");
    ring.rotate_kek(&new, &again, &uri).unwrap();
    unlock(&ring).unwrap();
    assert!(ring.unlock(&kek).is_err() && ring.unlock(&new).is_err());

    // The key of the store is gone, and another one is in its place.
    let key = dir.path().join("store.key");
    fs::rename(&key, dir.path().join("aside")).unwrap();
    assert_eq!(unlock(&ring).unwrap_err().exit_code(), 10);
    fs::write(&key, [8; 32]).unwrap();
    assert_eq!(unlock(&ring).unwrap_err().exit_code(), 11);
    fs::rename(dir.path().join("aside"), &key).unwrap();
    unlock(&ring).unwrap();

    // Nothing else than a keyring is under a store.
    assert_eq!(store.kek_for_escrow().unwrap_err().exit_code(), 2);
    assert_eq!(store.kek(None).unwrap_err().exit_code(), 2);
}

fn wrapped(keyring: &str) -> String {
    let member = keyring.split("\"wrapped_kek\"").nth(1).unwrap();
    member.split("\"wrapped\": \"").nth(1).unwrap().split('"').next().unwrap().to_owned()
}
