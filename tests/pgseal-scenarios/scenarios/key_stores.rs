//! docs/key-stores.md on a real token: the shell commands of the page make a cluster under SoftHSM,
//! and rotate its key. Then what an administrator meets: the token is taken away and comes back,
//! the PIN is wrong, the key is removed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::thread;

use pgseal_scenarios::key_store::{MODULE, StoreNode, commands};
use pgseal_scenarios::resealing::data_keys;
use pgseal_scenarios::{escrow_lock, succeeds};
use pgseal_testkit::install;

const PIN: &str = "87654321";

/// A node with the plugin, and a place for tokens.
fn new_store() -> StoreNode {
    let mut store = StoreNode::new("pkcs11");
    let _ = store.add_tokens();
    store
}

/// A store with the token and the key of the page, and the query part of its URIs.
fn store_with_key() -> (StoreNode, String) {
    let store = new_store();
    succeeds(&store.script(&commands("## PKCS #11", "### Rotating")[0]));
    succeeds(&store.script(&format!("install -m 600 /dev/null ~/pin && printf {PIN} > ~/pin")));
    let pin = store.node.home().join("pin");
    let query = format!("?module-path={MODULE}&pin-source={}", pin.display());
    (store, query)
}

#[test]
fn a_cluster_under_a_token() {
    let mut store = new_store();
    let data = store.node.data().to_owned();

    // The page, to the letter: a token, a key, a PIN file, the test, a cluster, a new key in the
    // token. (The second line of the third block changes to the same key again.)
    let [token, test, cluster] = <[String; 3]>::try_from(commands("## PKCS #11", "### Rotating"))
        .expect("three blocks of commands");
    succeeds(&store.script(&token));
    let pin = commands("## PKCS #11", "### Rotating")[1].clone();
    let tested = store.script(&test);
    succeeds(&tested);
    assert!(tested.text.contains("All checks passed"), "{}", tested.text);
    let uri = pin.lines().find(|line| line.starts_with("URI=")).expect("the URI");
    store.new_cluster(&format!("{uri}\n{cluster}"));
    // Rotated while the server runs.
    let rotating = commands("### Rotating", "## Vault and OpenBao").concat();
    succeeds(&store.script(&rotating));
    store.node.stop();
    store.works(Some(PIN));
    let shown = store.node.pgseal(&["key", "show", &data.display().to_string()]);
    assert!(shown.text.contains("object pgseal-2027, id 02"), "{}", shown.text);
    assert!(!shown.text.contains("pin-source"), "{}", shown.text);

    // The keyring names the store, but only as a hint: no library is loaded that only the data
    // directory names.
    let clusters = store.node.home().join("clusters.d");
    let aside = store.node.home().join("aside");
    fs::rename(&clusters, &aside).expect("the file of the cluster goes");
    store.refuses(12, "write the line \"provider = NAME:THE KEY IN ITS STORE\" into");
    fs::rename(&aside, &clusters).expect("and comes back");

    // The token is taken away while the server runs: nothing happens. A start fails, and the next
    // one works.
    store.node.start();
    store.tokens_away();
    assert_eq!(store.node.sql("select count(*) from t"), "1000", "without the token");
    store.node.kill9();
    store.refuses(13, "it cannot be reached: no token that the URI describes is there");
    store.tokens_back();
    store.works(Some(PIN));

    // A wrong PIN, and one that others can read.
    let pin = store.node.home().join("pgseal.pin");
    fs::write(&pin, "12121212\n").expect("another PIN");
    store.refuses(17, "the PIN is wrong");
    fs::write(&pin, PIN).expect("the PIN");
    succeeds(&store.script("chmod 644 ~/pgseal.pin"));
    store.refuses(2, "chmod 600");
    succeeds(&store.script("chmod 600 ~/pgseal.pin"));

    // The key is removed from the token: only an escrow copy opens the data now.
    let escrow = ["--lock", escrow_lock(), "-o", "escrow.txt"];
    let dir = data.display().to_string();
    succeeds(&store.node.pgseal(&[&["key", "backup", &dir][..], &escrow[..]].concat()));
    let tool = format!("pkcs11-tool --module {MODULE} --token-label db --login --pin {PIN}");
    succeeds(&store.script(&format!("{tool} --delete-object --type secrkey --label pgseal-2027")));
    store.refuses(10, "no key: pkcs11:token=db;object=pgseal-2027");
    // Another key of the same name does not open the keyring, and is no danger to it.
    let generate = "--keygen --key-type AES:32 --label pgseal-2027 --id 02 --sensitive";
    succeeds(&store.script(&format!("{tool} {generate} --usage-decrypt")));
    store.refuses(11, "wrong key");
    let uri = fs::read_dir(&clusters).expect("registered").next().expect("one file").expect("it");
    let uri = fs::read_to_string(uri.path()).expect("the line");
    let uri = uri.lines().find_map(|line| line.strip_prefix("provider = ")).expect("a URI");
    let restore = ["escrow.txt", "--unlock", escrow[1], "-K", uri, "--force"];
    succeeds(&store.node.pgseal(&[&["key", "restore", &dir][..], &restore[..]].concat()));
    store.works(Some(PIN));
}

/// No data key and no PIN is in the arguments or the environment of a program that a check, a
/// renewal and a start run, or in the server's log.
#[test]
fn no_key_is_in_arguments_environments_or_logs() {
    let mut store = new_store();
    let [token, pin, cluster] = <[String; 3]>::try_from(commands("## PKCS #11", "### Rotating"))
        .expect("three blocks of commands");
    succeeds(&store.script(&format!("{token}{pin}")));
    let uri = pin.lines().find(|line| line.starts_with("URI=")).expect("the URI");
    store.new_cluster(&format!("{uri}\n{cluster}"));
    store.node.stop();
    // pgseal may not be looked into, so the plugin notes itself what it gets.
    let plugin = store.node.pgseal_program().ancestors().nth(2).expect("a prefix").to_owned();
    let plugin = plugin.join("lib/pgseal/providers/pgseal-provider-pkcs11");
    let (real, noted) = (plugin.with_file_name("real"), store.node.home().join("noted"));
    fs::rename(&plugin, &real).expect("the plugin");
    let noting = format!(
        "#!/bin/sh\n{{ printf '%s\\n' \"$0\" \"$@\"; env; }} >>{}\nexec {} \"$@\"\n",
        noted.display(),
        real.display()
    );
    let script = store.node.home().join("noting");
    fs::write(&script, noting).expect("the script");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("it is a program");
    install(&script, &plugin).expect("the script");
    succeeds(&store.script(
        "cat >~/steps <<'END'
         set -e
         pgseal key check DIR
         pgseal key renew DIR
         pgseal run -- pg_ctl -w -D DIR -l ~/traced start
         pgseal key renew DIR
         pg_ctl -w -D DIR stop
END
         strace -f -qq -xx -v -s 65536 -e trace=execve -o ~/calls bash ~/steps",
    ));
    let keys = data_keys(&store.node);
    let mut secrets: Vec<Vec<u8>> = vec![PIN.into()];
    for generation in keys.generations() {
        let key = keys.get(generation).expect("a data key").bytes();
        let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        secrets.extend([key.to_vec(), hex.to_uppercase().into_bytes(), hex.into_bytes()]);
    }
    assert_eq!(secrets.len(), 10, "the PIN, and three data keys in three forms");
    // strace writes each byte as \xHH.
    let traced =
        |bytes: &[u8]| -> String { bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect() };
    let read = |name: &str| fs::read(store.node.home().join(name)).expect("it was written");
    let calls = String::from_utf8(read("calls")).expect("text");
    assert!(calls.contains(&traced(b"bin/postgres")), "the server was not run");
    let noted = read("noted");
    assert!(
        noted.windows(24).any(|part| part == b"/pgseal-provider-pkcs11\n"),
        "no plugin was run"
    );
    let log = read("traced");
    assert!(!log.is_empty());
    for secret in secrets {
        assert!(!calls.contains(&traced(&secret)), "a secret in an argument or an environment");
        for (place, text) in [("log", &log), ("plugin", &noted)] {
            let found = text.windows(secret.len()).any(|part| part == secret);
            assert!(!found, "a secret in what the {place} got");
        }
    }
}

/// Each way of wrapping passes the whole suite, and keys and URIs that must not be used are
/// refused.
#[test]
fn ways_of_wrapping_and_keys_that_must_not_be_used() {
    let (store, query) = store_with_key();
    let test = |object: &str, more: &str| {
        let uri = format!("pkcs11:token=db;{object}{query}{more}");
        store.node.pgseal(&["provider", "test", &uri])
    };
    for mechanism in ["aes-gcm", "aes-key-wrap-pad", "aes-key-wrap"] {
        let outcome = test("object=pgseal", &format!("&x-pgseal-mechanism={mechanism}"));
        succeeds(&outcome);
        assert!(outcome.text.contains(&format!(", {mechanism}\n")), "{}", outcome.text);
    }
    let tool =
        format!("pkcs11-tool --module {MODULE} --token-label db --login --pin {PIN} --keygen");
    let make = |more: &str| succeeds(&store.script(&format!("{tool} --key-type AES:32 {more}")));
    make("--label open --id 03 --extractable --usage-decrypt");
    make("--label pgseal --id 04 --sensitive --usage-decrypt");
    for (object, more, words) in [
        ("object=open", "", "the token would give this key out"),
        ("object=pgseal", "", "describes 2 AES keys"),
        ("object=none", "", "has no such AES key"),
        ("object=pgseal;id=%01", "&pin-value=1234", "pin-value: a PIN must not stand in a URI"),
        ("object=pgseal;id=%01;serial=no", "", "no token that the URI describes"),
    ] {
        let outcome = test(object, more);
        assert_eq!(outcome.code, 1, "{object}{more}: {}", outcome.text);
        assert!(outcome.text.contains(words), "{object}{more}: {}", outcome.text);
        assert!(!outcome.text.contains("1234"), "{}", outcome.text);
    }
    succeeds(&test("object=pgseal;id=%01", ""));
}

/// SoftHSM rewrites the file of a token at each login, without a lock that readers heed. Many
/// processes that open the token at the same moment, as when all clusters of a host start, all get
/// the key.
#[test]
fn many_logins_at_the_same_time() {
    const PROCESSES: usize = 6;
    let (store, query) = store_with_key();
    let uri = format!("pkcs11:token=db;object=pgseal{query}");
    thread::scope(|scope| {
        let tests: Vec<_> = (0..PROCESSES)
            .map(|_| scope.spawn(|| store.node.pgseal(&["provider", "test", &uri])))
            .collect();
        for test in tests {
            succeeds(&test.join().expect("a test of the store"));
        }
    });
}
