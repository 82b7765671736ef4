//! docs/key-stores.md on a KMIP server (PyKMIP): the shell commands of the page make a cluster
//! under it, and rotate its key. Then what an administrator meets: the store is away, hangs, is
//! slow, or is something else; certificates are wrong or expired; a right is missing; the key is
//! revoked and destroyed. And one keyring under two stores at once.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::thread;

use pgseal_cluster::{Patience, free_port};
use pgseal_scenarios::backup::shell;
use pgseal_scenarios::key_store::{StoreNode, commands};
use pgseal_scenarios::kmip::KmipServer;
use pgseal_scenarios::{escrow_lock, succeeds};

#[test]
fn a_cluster_under_kmip() {
    let mut base = StoreNode::new("kmip");
    let data = base.node.data().display().to_string();
    let store = KmipServer::new(&base);
    let home = base.node.home().join("kmip");
    // A line of the private key, which no log may show.
    let secret = fs::read_to_string(home.join("db.key")).expect("the key of the certificate");
    let secret = secret.lines().nth(1).expect("its second line").to_owned();

    // The page, to the letter. (The second line of its last block changes to the same key again.)
    let blocks = commands("## KMIP", "### A new KMIP key");
    assert_eq!(blocks.len(), 4, "{blocks:?}");
    let tested = store.script(&base, &format!("{}echo \"$URI\" >~/uri", blocks[2]));
    succeeds(&tested);
    assert!(tested.text.contains("All checks passed"), "{}", tested.text);
    assert!(tested.text.contains("KMIP 2.0 at"), "{}", tested.text);
    base.new_cluster(&format!("URI=$(cat ~/uri)\n{}", blocks[3]));
    let rotating = commands("### A new KMIP key", "### What the plugin says of a KMIP").concat();
    let variables = blocks[2].lines().next().expect("TLS=");
    succeeds(&store.script(&base, &format!("{variables}\n{rotating}")));
    base.node.stop();
    base.works(Some(&secret));
    let shown = base.node.pgseal(&["key", "show", &data]);
    assert!(shown.text.contains("name pgseal-2027, id 2"), "{}", shown.text);
    assert!(!shown.text.contains("db.key"), "{}", shown.text);

    // The store is killed while the server runs: nothing happens. A start fails, and the next one
    // works.
    base.node.start();
    store.down(&base);
    assert_eq!(base.node.sql("select count(*) from t"), "1000", "without the store");
    base.node.kill9();
    base.refuses(13, "it cannot be reached: 127.0.0.1");
    store.up(&base);
    base.works(Some(&secret));

    // It hangs: the plugin gives up. It is slow: the plugin waits.
    store.signal(&base, "STOP");
    let hanging = base.check();
    assert_eq!(hanging.code, 13, "{}", hanging.text);
    assert!(hanging.text.contains("no answer in time"), "{}", hanging.text);
    let slow = "(sleep 3; kill -CONT -- -$(cat ~/kmip/pid)) >/dev/null 2>&1 &";
    succeeds(&base.script(&format!("{slow} pgseal key check DIR")));

    // Certificates: one that has expired, one that is not for clients, one that the store does not
    // trust, a key that others can read; and a store that the client does not trust.
    let first = commands("## KMIP", "### A new KMIP key").swap_remove(0);
    let functions = first.split_once("\nrequest ca ").expect("the functions").0.to_owned();
    let change = |base: &StoreNode, text: &str| {
        succeeds(&base.script(&format!("{functions}\ncp -pn db.pem kept.pem\n{text}")));
    };
    let expired = "openssl x509 -req -in db.csr -CA ca.pem -CAkey ca.key -CAcreateserial \
                   -days -1 -extfile <(echo extendedKeyUsage=clientAuth) -out db.pem";
    for (text, code, words) in [
        (expired, 17, "the store does not accept the client certificate"),
        ("sign db extendedKeyUsage=serverAuth", 17, "does not accept the client certificate"),
        ("openssl req -x509 -key db.key -subj /CN=db -out db.pem", 17, "client certificate"),
        ("cp kept.pem db.pem; chmod 640 db.key", 2, "chmod 600"),
        ("chmod 600 db.key; cp ca.pem kept-ca.pem; cp store.pem ca.pem", 2, "no authority"),
    ] {
        change(&base, text);
        // The store may close while the plugin still writes; its alert says why nevertheless.
        for _ in 0..if code == 17 { 40 } else { 1 } {
            let check = base.check();
            assert_eq!(check.code, code, "{text}: {}", check.text);
            assert!(check.text.contains(words), "{text}: {}", check.text);
        }
    }
    change(&base, "cp kept-ca.pem ca.pem");
    succeeds(&base.check());

    // The policy takes the right away; the server reads it anew after a moment.
    let policy = |from: &str, to: &str| {
        format!("sed -i '/LOCATE/s/\"{from}\",$/\"{to}\",/' policy/pgseal.json")
    };
    change(&base, &policy("ALLOW_ALL", "ALLOW_OWNER"));
    assert!(Patience::seconds(60).wait_until(|| base.check().code != 0), "the policy stays");
    base.refuses(17, "the store refuses; its policy");
    change(&base, &policy("ALLOW_OWNER", "ALLOW_ALL"));
    assert!(Patience::seconds(60).wait_until(|| base.check().code == 0), "the policy stays");

    // Another key of the store does not open the keyring.
    let other = format!("kmip:id=1?{}", store.query());
    let wrong = base.node.pgseal(&["key", "check", &data, "-K", &other]);
    assert_eq!(wrong.code, 11, "{}", wrong.text);

    // The key is revoked, and then destroyed: a new key, and the escrow copy.
    let lock = escrow_lock();
    let backup = ["key", "backup", &data, "--lock", lock, "-o", "escrow.txt"];
    succeeds(&base.node.pgseal(&backup));
    let reason = "RevocationReasonCode.CESSATION_OF_OPERATION";
    store.administrator(&base, &format!("store.revoke({reason}, \"2\")"));
    base.refuses(10, "the key is not active");
    store.administrator(&base, "store.destroy(\"2\")");
    base.refuses(10, "the store has no such key");
    succeeds(&store.script(&base, "python3 ~/kmip/key.py pgseal-2028"));
    let uri = format!("kmip:name=pgseal-2028?{}", store.query());
    let restore = ["key", "restore", &data, "escrow.txt", "--unlock", lock, "-K", &uri, "--force"];
    succeeds(&base.node.pgseal(&restore));
    succeeds(&base.node.pgseal(&["env", "-D", &data, "--register", "-K", &uri]));
    base.works(Some(&secret));
}

/// Each version of KMIP passes the whole suite. URIs that must not be used, and what answers but is
/// no store, are refused.
#[test]
fn versions_and_what_is_no_store() {
    let base = StoreNode::new("kmip");
    let store = KmipServer::new(&base);
    let test = |key: &str, query: &str| {
        base.node.pgseal(&["provider", "test", &format!("kmip:{key}?{query}")])
    };
    for version in ["1.2", "1.3", "1.4", "2.0"] {
        let tested = test("id=1", &format!("{}&protocol={version}", store.query()));
        assert_eq!(tested.code, 0, "{version}: {}", tested.text);
        assert!(tested.text.contains(&format!("KMIP {version} at")), "{}", tested.text);
    }
    succeeds(&test("name=pgseal", &format!("{}&protocol=1.2", store.query())));
    // A second key of the same name.
    succeeds(&store.script(&base, "python3 ~/kmip/key.py pgseal"));
    for (key, more, words) in [
        ("name=pgseal", "", "more than one key named pgseal"),
        ("name=none", "", "no symmetric key named none"),
        ("id=99", "", "the store has no such key"),
        ("id=1", "&protocol=2.1", "try another protocol="),
        ("id=1", "&password=sekrit", "no attribute that this plugin knows"),
    ] {
        let tested = test(key, &format!("{}{more}", store.query()));
        assert_eq!(tested.code, 1, "{key}{more}: {}", tested.text);
        assert!(tested.text.contains(words), "{key}{more}: {}", tested.text);
        assert!(!tested.text.contains("sekrit"), "{}", tested.text);
    }

    // Something else listens there: without TLS, and with the store's own certificate.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    let elsewhere =
        |port: u16| store.query().replace(&store.address(), &format!("127.0.0.1:{port}"));
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut client, _) = listener.accept().expect("the plugin connects");
            // What the client sent is read, so that the answer reaches it.
            let _ = client.read(&mut [0; 4096]);
            client.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").expect("an answer");
        });
        let tested = test("id=1", &elsewhere(port));
        assert!(tested.text.contains("does not speak TLS"), "{}", tested.text);
    });
    let port = free_port().expect("a port");
    let garbage = format!(
        "cd ~/kmip; yes garbage | setsid openssl s_server -quiet -accept 127.0.0.1:{port} \
         -cert store.pem -key store.key -naccept 2"
    );
    let mut command = shell(&base.node, &garbage, &[]);
    command.env("HOME", base.node.home()).stdin(Stdio::null());
    let mut server = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("bash");
    let is_up = || TcpStream::connect(("127.0.0.1", port)).is_ok();
    assert!(Patience::seconds(60).wait_until(is_up), "it does not listen");
    let tested = test("id=1", &elsewhere(port));
    assert!(tested.text.contains("does not speak KMIP"), "{}", tested.text);
    server.wait().expect("it ends after its second client");
}

/// One keyring under two stores: a KMIP server, and a token. Each opens it alone; with both away a
/// start waits, and says so.
#[test]
fn one_keyring_under_two_stores() {
    const MODULE: &str = "/usr/lib/softhsm/libsofthsm2.so";
    assert!(Path::new(MODULE).exists(), "{MODULE}: run scripts/setup.sh test");
    let mut base = StoreNode::new("kmip");
    base.add_plugin("pkcs11");
    let store = KmipServer::new(&base);
    let _ = base.add_tokens();

    // Both pages, to the letter, up to the cluster; then the second store as a recipient.
    let kmip = commands("## KMIP", "### A new KMIP key");
    let token = commands("## PKCS #11", "### Rotating");
    let tested = store.script(&base, &format!("{}echo \"$URI\" >~/uri", kmip[2]));
    succeeds(&tested);
    base.new_cluster(&format!("URI=$(cat ~/uri)\n{}", kmip[3]));
    succeeds(&base.script(&format!("{}{}", token[0], token[1])));
    let uri = token[1].lines().find(|line| line.starts_with("URI=")).expect("the URI");
    let add = "pgseal key add-recipient token DIR -K \"$URI\" --register";
    succeeds(&base.script(&format!("{uri}\n{add}")));
    base.node.stop();
    let both = "pgseal key check DIR --every-recipient";
    let every = |base: &StoreNode, code: i32, words: [&str; 2]| {
        let outcome = base.script(both);
        assert_eq!(outcome.code, code, "{}", outcome.text);
        for words in words {
            assert!(outcome.text.contains(words), "{words}: {}", outcome.text);
        }
    };
    every(&base, 0, ["its own, kmip:", "recipient token, pkcs11:"]);
    base.works(None);

    // One is away: the other one opens.
    store.down(&base);
    every(&base, 13, ["STORE AWAY", "recipient token, pkcs11:"]);
    base.works(None);
    store.up(&base);
    base.tokens_away();
    every(&base, 13, ["its own, kmip:", "STORE AWAY"]);
    base.works(None);

    // Both are away: a start says so, and one that may wait does, until the store or the token is
    // back.
    store.down(&base);
    base.refuses(13, "it cannot be reached");
    base.node.set_env("PGSEAL_PROVIDER_WAIT", "600");
    let wait = "for i in {1..1200}; do ! grep -qs 'trying again for' log || break; \
                sleep 0.1; done";
    // The log of the starts before is away when the next one begins.
    let later = |base: &StoreNode, text: &str| {
        fs::remove_file(base.node.home().join("log")).expect("the log of the last start");
        let mut command = shell(&base.node, &format!("{wait}\n{text}"), &[]);
        command.env("HOME", base.node.home()).stdin(Stdio::null()).stdout(Stdio::null());
        command.spawn().expect("bash runs")
    };
    let mut starting = later(&base, &store.start_script());
    base.node.start();
    base.node.stop();
    assert!(starting.wait().is_ok_and(|status| status.success()), "the store does not start");
    store.down(&base);
    let mut returning = later(&base, "rmdir tokens && mv away tokens");
    base.node.start();
    assert_eq!(base.node.sql("select count(*) from t"), "1000");
    base.node.stop();
    assert!(returning.wait().is_ok_and(|status| status.success()), "the token stays away");
    base.node.set_env("PGSEAL_PROVIDER_WAIT", "0");
    store.up(&base);
    every(&base, 0, ["its own, kmip:", "recipient token, pkcs11:"]);
    base.tokens_away();
    base.tokens_back();
    base.works(None);
}
