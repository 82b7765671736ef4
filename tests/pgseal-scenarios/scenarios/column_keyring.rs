//! Sealed columns whose keys come from a keyring under two real stores, a KMIP server (PyKMIP) and
//! a token (SoftHSM): each opens the columns when the other is away; both away is an error of the
//! statement, and the session goes on. The keyring is rotated, renewed, checked and restored, and
//! no keyring is used that only a setting vouches for.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use pgseal_scenarios::key_store::{StoreNode, commands};
use pgseal_scenarios::kmip::KmipServer;
use pgseal_scenarios::succeeds;
use pgseal_scenarios::{Outcome, server_major};

/// The PIN of the page.
const PIN: &str = "87654321";
const ALL: &str = "select count(*), min(id::int8), max(note::text) from card";

/// A server with the extension, and a keyring for its columns.
struct Columns {
    base: StoreNode,
    keyring: PathBuf,
    trail: PathBuf,
    /// What the helper was started with: arguments and environment.
    calls: PathBuf,
}

impl Columns {
    /// A sealed cluster, not started, whose server has the extension and a helper that notes how it
    /// is called.
    fn new() -> Columns {
        let mut base = StoreNode::new("kmip");
        base.add_plugin("pkcs11");
        let _ = base.add_tokens();
        let trail = base.node.make_dir("trail").join("audit.log");
        base.set_env("PGSEAL_AUDIT", &format!("file:{}", trail.display()));
        let policy = base.node.home().join("policy.conf");
        base.set_env("PGSEAL_POLICY_FILE", &policy.display().to_string());
        // The machine remembers the escrow copies.
        let state = base.node.make_dir("state");
        base.set_env("PGSEAL_STATE_DIR", &state.display().to_string());
        let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let module = tree.join("target/extension").join(server_major()).join("pgseal.so");
        assert!(module.is_file(), "{}: run `make build` first", module.display());
        // A copy of the installation, to which the extension is added: a server finds its files
        // relative to its program.
        let bindir = base.node.bindir().to_owned();
        let source = base.node.make_dir("extension");
        for file in ["pgseal.control", "pgseal--1.0.sql"] {
            let text = fs::read(tree.join("server/extension").join(file)).expect("the extension");
            fs::write(source.join(file), text).expect("a copy");
        }
        fs::write(source.join("pgseal.so"), fs::read(&module).expect("the module")).expect("it");
        let calls = base.node.home().join("calls");
        succeeds(&base.script(&format!(
            r#"set -e
            config='{bin}/pg_config' root=$HOME/root
            modules=$root$($config --pkglibdir) share=$root$($config --sharedir)
            mkdir -p "$root{bin}" "$modules" "$share"
            cp -r '{bin}'/. "$root{bin}/"
            cp -rs "$($config --pkglibdir)"/. "$modules/"
            cp -rs "$($config --sharedir)"/. "$share/"
            rm -f "$modules"/pgseal* "$share"/extension/pgseal*
            cp ~/extension/pgseal.so "$modules/"
            cp ~/extension/pgseal.control ~/extension/pgseal--1.0.sql "$share/extension/"
            mkdir -p ~/helper ~/columns
            chmod 700 ~/columns
            cat >~/helper/pgseal <<'END'
#!/bin/sh
tr '\0' '\n' </proc/$$/cmdline >>{calls}
tr '\0' '\n' </proc/$$/environ >>{calls}
exec {program} "$@"
END
            chmod 755 ~/helper/pgseal"#,
            bin = bindir.display(),
            calls = calls.display(),
            program = base.node.pgseal_program().display(),
        )));
        let home = base.node.home().to_owned();
        let bindir = bindir.strip_prefix("/").expect("an absolute path");
        base.node.set_bindir(&home.join("root").join(bindir));
        Columns { keyring: home.join("columns/keyring"), trail, calls, base }
    }

    fn keyring(&self) -> String {
        self.keyring.display().to_string()
    }

    fn pgseal(&self, words: &[&str]) -> Outcome {
        self.base.node.pgseal(words)
    }

    /// Starts the server with this provider, without the words before.
    fn start(&mut self) {
        let helper = self.base.node.home().join("helper/pgseal");
        self.base.node.configure(&format!(
            "pgseal.provider = 'keyring:{}'\npgseal.helper = '{}'\nlog_statement = all",
            self.keyring(),
            helper.display()
        ));
        self.base.node.start();
    }

    /// A new session sees all rows.
    #[track_caller]
    fn opens(&self) {
        assert_eq!(self.base.node.sql(ALL), "1000|1|note 999");
    }

    /// A statement of a new session fails with these words, and the server's log has them.
    #[track_caller]
    fn fails(&self, settings: &str, words: &str) {
        let said = self.base.node.try_sql(&format!("{settings}{ALL}")).expect_err("no key");
        assert!(said.contains("the pgseal helper gave no column keys"), "{said}");
        assert!(said.contains(words), "{said}");
        assert!(self.base.node.log().contains(words), "{words}: {}", self.base.node.log());
    }

    /// The column keys themselves, as the helper gives them to the server.
    fn column_keys(&self) -> Vec<Vec<u8>> {
        let rows = "select d.id, k.version, encode(k.wrapped, 'hex') from _pgseal.key k \
                    join _pgseal.domain d using (domain)";
        let mut request = Vec::new();
        for row in self.base.node.sql(rows).lines() {
            let mut fields = row.split('|');
            let mut field = || fields.next().expect("a field");
            let id: i64 = field().parse().expect("the domain");
            let version: u32 = field().parse().expect("the version");
            request.extend_from_slice(&id.to_le_bytes());
            request.extend_from_slice(&version.to_le_bytes());
            request.extend(bytes_of(field()));
        }
        let provider = format!("keyring:{}", self.keyring());
        let data = self.base.node.data().display().to_string();
        let words = ["helper", "column-keys", "--provider", &provider, "--dir", &data, "unwrap"];
        let mut command = self.base.node.pgseal_command(&words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("pgseal runs");
        child.stdin.take().expect("its input").write_all(&request).expect("a request");
        let answer = child.wait_with_output().expect("an answer").stdout;
        let keys = answer.get(8..answer.len().saturating_sub(4)).expect("keys");
        assert!(!keys.is_empty() && keys.len() % 32 == 0, "{} bytes", keys.len());
        keys.chunks(32).map(<[u8]>::to_vec).collect()
    }
}

fn bytes_of(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks(2).map(|pair| str::from_utf8(pair).expect("digits"));
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("a byte")).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn columns_under_two_stores() {
    let mut columns = Columns::new();
    let keyring = columns.keyring();
    let kmip = KmipServer::new(&columns.base);
    let token = commands("## PKCS #11", "### Rotating");
    succeeds(&columns.base.script(&format!("{}{}", token[0], token[1])));
    let uri = token[1].lines().find(|line| line.starts_with("URI=")).expect("the URI");
    let tls = commands("## KMIP", "### A new KMIP key")[2].clone();

    // One command for the keyring, one for the second store.
    let made = format!("{tls}pgseal key new-keyring {keyring} -K \"$URI\"");
    succeeds(&kmip.script(&columns.base, &made));
    let add = format!("{uri}\npgseal key add-recipient token {keyring} -K \"$URI\" --register");
    succeeds(&columns.base.script(&add));
    let again = kmip.script(&columns.base, &made);
    assert_eq!(again.code, 5, "{}", again.text);

    columns.start();
    columns.base.node.sql(
        "create extension pgseal;; select pgseal.create_domain('default');;
         create table card (id sealed_int8 primary key, holder sealed_text, note sealed_text_random);;
         insert into card select g, 'holder ' || g, 'note ' || g from generate_series(1, 1000) g",
    );
    columns.opens();

    // Each store alone.
    kmip.down(&columns.base);
    columns.opens();
    let lines = fs::read_to_string(&columns.trail).expect("the trail");
    let by_token = lines.lines().rev().find(|line| line.contains("\"event\":\"column-keys\""));
    let by_token = by_token.expect("a line");
    let summary = columns.pgseal(&["key", "show", "--json", &keyring]).text;
    let id = summary.split("\"keyring_id\": \"").nth(1).and_then(|rest| rest.get(..32));
    for words in [
        "\"outcome\":\"done\"",
        "\"recipient\":\"token\"",
        &format!("\"cluster\":\"{}\"", id.expect("the identity")),
        &format!("\"path\":\"{keyring}\""),
        "\"mac\":\"",
    ] {
        assert!(by_token.contains(words), "{words}: {by_token}");
    }
    let check = columns.pgseal(&["key", "check", &keyring, "--every-recipient"]);
    assert_eq!(check.code, 13, "{}", check.text);
    assert!(check.text.contains("STORE AWAY"), "{}", check.text);

    // Both are away: the statement fails, and says why; the session goes on, and has the keys as
    // soon as one store is back. A session that has them needs no store.
    let mut open = columns.base.node.session();
    assert_eq!(open.sql(ALL), "1000|1|note 999");
    columns.base.tokens_away();
    columns.fails("", "it cannot be reached");
    let mut waiting = columns.base.node.session();
    for _ in 0..2 {
        let said = waiting.run(ALL).expect("the session goes on");
        assert!(said.contains("the pgseal helper gave no column keys"), "{said}");
        assert_eq!(waiting.sql("select 1 + 1"), "2");
    }
    assert_eq!(open.sql(ALL), "1000|1|note 999");
    kmip.up(&columns.base);
    assert_eq!(waiting.sql(ALL), "1000|1|note 999");
    columns.opens();
    columns.base.tokens_back();

    // The policy of the machine holds for this keyring as well.
    succeeds(&columns.pgseal(&["key", "policy", "--set", "min-recipients=1"]));
    let policy = columns.pgseal(&["key", "policy", &keyring]);
    succeeds(&policy);
    assert!(policy.text.contains("1 recipient: token"), "{}", policy.text);
    succeeds(&columns.pgseal(&["key", "check", &keyring, "--every-recipient"]));

    // An escrow copy; a new key, whose stores the server then asks; a new data key.
    let lock = "passphrase:command=echo correct horse battery";
    let copy = columns.base.node.home().join("escrow.txt").display().to_string();
    succeeds(&columns.pgseal(&["key", "backup", &keyring, "--lock", lock, "-o", &copy]));
    let raw = columns.base.node.home().join("next.key").display().to_string();
    succeeds(&columns.pgseal(&["key", "new", "-o", &raw]));
    let next = format!("file:{raw}");
    let rotate = ["key", "rotate", &keyring, "-K", &next, "--register"];
    succeeds(&columns.pgseal(&rotate));
    kmip.down(&columns.base);
    columns.base.tokens_away();
    columns.opens();
    let before = columns.column_keys();
    succeeds(&columns.pgseal(&["key", "renew", &keyring]));
    columns.opens();
    let moved = format!("select pgseal.change_provider('keyring:{keyring}')");
    assert_eq!(columns.base.node.sql(&moved), "1");
    columns.opens();
    assert_eq!(columns.column_keys(), before, "the column keys themselves stay");
    let wrapped = "select encode(wrapped, 'hex') from _pgseal.key";
    let moved_key = columns.base.node.sql(wrapped);

    // A recipient that was removed opens nothing any more.
    succeeds(&columns.pgseal(&["key", "remove-recipient", "token", &keyring]));
    columns.base.tokens_back();
    let hidden = format!("{raw}.away");
    fs::rename(&raw, &hidden).expect("the key goes");
    columns.fails("", "sources gives a key");
    fs::rename(&hidden, &raw).expect("and comes back");
    columns.opens();

    // The keyring is lost: the escrow copy makes it anew, and opens what the first data key
    // wrapped. The key that was moved to the second one needs a newer copy.
    columns.base.node.sql("select pgseal.add_key('default')");
    let newer = format!("{copy}.newer");
    succeeds(&columns.pgseal(&["key", "backup", &keyring, "--lock", lock, "-o", &newer]));
    fs::remove_file(&columns.keyring).expect("the keyring is lost");
    columns.fails("", "there is no keyring");
    let restore = |columns: &Columns, copy: &str, more: &[&str]| {
        let words = ["key", "restore", &keyring, copy, "--unlock", lock, "-K", &next];
        columns.pgseal(&[&words[..], more].concat())
    };
    succeeds(&restore(&columns, &copy, &[]));
    columns.fails("", "wrong key-encryption key");
    succeeds(&restore(&columns, &newer, &["--force"]));
    columns.opens();
    assert!(columns.base.node.sql(wrapped).contains(&moved_key));

    // The older data keys go once no column key is under them.
    columns.base.node.sql(&moved);
    let forget = columns.pgseal(&["key", "forget", &keyring]);
    assert!(forget.code == 2 && forget.text.contains("pgseal.change_provider"), "{}", forget.text);
    let forget = ["key", "forget", &keyring, "--no-backup-has-them"];
    let forgotten = columns.pgseal(&forget);
    succeeds(&forgotten);
    assert!(forgotten.text.contains("Removed: generation 1"), "{}", forgotten.text);
    columns.opens();
    assert!(columns.pgseal(&forget).text.contains("no retired data key"));

    // No key is in an argument, an environment, a log, the trail or a file of the cluster.
    let mut secrets: Vec<String> = columns.column_keys().iter().map(|key| hex(key)).collect();
    secrets.push(fs::read_to_string(&raw).expect("the key").trim().to_owned());
    secrets.push(PIN.to_owned());
    columns.base.node.stop();
    let log = columns.base.node.home().join("log");
    for place in [&columns.calls, &columns.trail, &log, &columns.keyring] {
        let bytes = fs::read(place).expect("a file");
        assert!(!bytes.is_empty(), "{}", place.display());
        for secret in &secrets {
            let mut forms = vec![secret.clone().into_bytes(), secret.to_uppercase().into_bytes()];
            if secret.len() == 64 {
                forms.push(bytes_of(secret));
            }
            for form in forms {
                let found = bytes.windows(form.len()).any(|window| window == form);
                assert!(!found, "{}: a secret", place.display());
            }
        }
    }
    let calls = fs::read_to_string(&columns.calls).expect("the calls");
    assert!(calls.contains("column-keys") && calls.contains("PGSEAL_CLUSTERS_DIR"), "{calls}");

    // The keyring is destroyed: nothing opens any more but with an escrow copy, which the receipt
    // names.
    columns.base.node.start();
    columns.opens();
    let receipt = columns.base.node.home().join("receipt.json");
    let place = receipt.display().to_string();
    let destroy = ["key", "destroy", &keyring];
    let asked = columns.pgseal(&destroy);
    assert!(asked.code == 2 && asked.text.contains("--yes-destroy"), "{}", asked.text);
    let id = asked.text.split("--yes-destroy ").nth(1).and_then(|rest| rest.get(..32));
    let id = id.expect("the identity").to_owned();
    let sure = [&destroy[..], &["--yes-destroy", &id, "--receipt", &place]].concat();
    succeeds(&columns.pgseal(&sure));
    let beside = columns.keyring.parent().expect("a directory");
    assert_eq!(fs::read_dir(beside).expect("it is there").count(), 0, "no copy is left beside it");
    let receipt = fs::read_to_string(receipt).expect("the receipt");
    assert!(receipt.contains("keyring.replaced.1"), "{receipt}");
    assert!(receipt.contains("the escrow copy of "), "{receipt}");
    columns.fails("", "there is no keyring");
    succeeds(&restore(&columns, &newer, &[]));
    columns.opens();
    columns.base.node.stop();
}

/// Whoever writes the data directory can change the setting. That makes no keyring trusted.
#[test]
fn no_keyring_is_used_that_only_a_setting_names() {
    let mut columns = Columns::new();
    let keyring = columns.keyring();
    let home = columns.base.node.home().to_owned();
    let key = home.join("columns.key").display().to_string();
    succeeds(&columns.pgseal(&["key", "new", "-o", &key]));
    let source = format!("file:{key}");
    succeeds(&columns.pgseal(&["key", "new-keyring", &keyring, "-K", &source]));
    columns.start();
    columns.base.node.sql(
        "create extension pgseal;; select pgseal.create_domain('default');;
         create table card (id sealed_int8 primary key, note sealed_text_random);;
         insert into card select g, 'note ' || g from generate_series(1, 1000) g",
    );
    columns.opens();
    let set = |path: &str| format!("set pgseal.provider = 'keyring:{path}';;");
    let refused = |path: &str, words: &str| columns.fails(&set(path), words);
    let data = columns.base.node.data().to_owned();

    // An attacker's keyring, whose own source is a key that the server can read, is not registered.
    succeeds(&columns.base.script(&format!(
        "PGSEAL_CLUSTERS_DIR={home}/elsewhere pgseal key new-keyring {home}/theirs/keyring -K {source}",
        home = home.display()
    )));
    refused(&format!("{}/theirs/keyring", home.display()), "names no source of its key");
    let new = format!(
        "{}select pgseal.add_key('default')",
        set(&format!("{}/theirs/keyring", home.display()))
    );
    columns.base.node.try_sql(&new).expect_err("no new key under theirs");

    // The right keyring in the data directory, through a link, and that of the cluster itself.
    let inside = data.join("columns");
    succeeds(&columns.base.script(&format!(
        "mkdir -m 700 {0} && cp {keyring} {0}/keyring && ln -s {keyring} ~/columns/link",
        inside.display()
    )));
    refused(&inside.join("keyring").display().to_string(), "lies in the data directory");
    refused(&home.join("columns/link").display().to_string(), "a link");
    refused(&data.join("pgseal/keyring").display().to_string(), "keyring of a data directory");
    refused("columns/keyring", "absolute path");
    fs::remove_dir_all(&inside).expect("it goes");

    // Others can write the keyring, or the directory above it.
    for (mode, undo, path) in [("620", "600", "keyring"), ("770", "700", "")] {
        succeeds(&columns.base.script(&format!("chmod {mode} ~/columns/{path}")));
        columns.fails("", "can write it");
        succeeds(&columns.base.script(&format!("chmod {undo} ~/columns/{path}")));
    }
    // A key of a store, and a source that needs a person.
    columns.fails("set pgseal.provider = 'pkcs11:token=db;object=pgseal';;", "new-keyring");
    let typed = columns.pgseal(&["key", "new-keyring", "other", "-K", "passphrase:"]);
    assert_eq!(typed.code, 2, "{}", typed.text);
    let place = columns.pgseal(&["key", "new-keyring", "pgseal/keyring", "-K", &source]);
    assert_eq!(place.code, 2, "{}", place.text);

    // Damage is found, and nothing of it is used.
    let text = fs::read_to_string(&columns.keyring).expect("the keyring");
    fs::write(&columns.keyring, text.replacen("\"created\": \"2", "\"created\": \"3", 1))
        .expect("it");
    columns.fails("", "damaged");
    fs::write(&columns.keyring, &text).expect("the keyring");
    columns.opens();
    columns.base.node.stop();
}
