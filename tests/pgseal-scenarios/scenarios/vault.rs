//! docs/key-stores.md on Vault's own transit engine, KV and login methods, behind the HTTP server
//! of `tests/vault-server`: the commands of the page make a cluster under a key of the engine and
//! renew it. Then what an administrator meets: the store is away, sealed or busy, a credential is
//! wrong, a right is missing, a version is forbidden, the key is gone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use pgseal_cluster::process::send;
use pgseal_cluster::{Patience, Signal, free_port};
use pgseal_scenarios::Outcome;
use pgseal_scenarios::key_store::{StoreNode, commands};
use pgseal_scenarios::succeeds;

const ROOT: &str = "hvs.root-of-the-scenario";
/// The certificates: an authority, the store's, and one for the database server.
const CERTIFICATES: &str = r#"
umask 077
subject() { openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$1" "${@:2}"; }
subject authority -x509 -days 2 -keyout ca.key -out ca.pem \
    -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign
make() {
    subject "$1" -keyout "$1.key" -out "$1.csr"
    printf 'basicConstraints=CA:FALSE\nkeyUsage=digitalSignature\n%s\n' "$2" >"$1.ext"
    openssl x509 -req -in "$1.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
        -extfile "$1.ext" -out "$1.pem"
}
make store $'subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth'
make db extendedKeyUsage=clientAuth
make stranger extendedKeyUsage=clientAuth
"#;

/// The store, a process.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself; then the test has failed already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A node whose cluster lies under a key of the store.
struct Store {
    // Before the node, whose directories it uses.
    server: Option<Server>,
    base: StoreNode,
    port: u16,
}

impl Store {
    /// A node with the plugin, and a store without anything in it. The cluster is still under a
    /// key file.
    fn new() -> Store {
        let base = StoreNode::new("vault");
        let mut store = Store { server: None, base, port: free_port().expect("a port") };
        succeeds(&store.script(CERTIFICATES));
        succeeds(&store.script(&format!("umask 077; echo {ROOT} >~/.vault-token")));
        store.up(&[]);
        store
    }

    /// Starts the store, with what it kept.
    fn up(&mut self, options: &[&str]) {
        self.server = None;
        self.server = Some(self.serve(self.port, options));
    }

    /// A server on a port, with the storage of this one.
    fn serve(&self, port: u16, options: &[&str]) -> Server {
        let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let program = tree.join("target/vault-server/vault-server");
        assert!(program.is_file(), "run scripts/vault-server.sh build first");
        let home = self.base.node.home();
        let ready = home.join(format!("address-{port}"));
        let _ = fs::remove_file(&ready);
        let log = fs::File::create(home.join(format!("store-{port}.log"))).expect("a log");
        let mut command = Command::new(program);
        command.args(["-listen", &format!("127.0.0.1:{port}")]).args(options);
        for (option, file) in [
            ("-dir", PathBuf::from("store")),
            ("-root-token-file", PathBuf::from(".vault-token")),
            ("-tls-cert", PathBuf::from("store.pem")),
            ("-tls-key", PathBuf::from("store.key")),
            ("-address-file", ready.clone()),
        ] {
            command.arg(option).arg(home.join(file));
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let server = Server(command.spawn().expect("the store starts"));
        assert!(Patience::seconds(60).wait_until(|| ready.is_file()), "the store does not listen");
        server
    }

    fn address(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// Runs a script as the server's user, in the environment that the page supposes.
    fn script(&self, text: &str) -> Outcome {
        self.base.script(&text.replace("https://vault.example.com:8200", &self.address()))
    }

    /// A request of the administrator, as the page sends them: `POST sys/seal`.
    #[track_caller]
    fn api(&self, request: &str) -> String {
        let first = commands("## Vault and OpenBao", "### A new version").swap_remove(0);
        let function = first.split_inclusive("\n}\n").next().expect("the function");
        let outcome = self.script(&format!("{function}api {request}"));
        succeeds(&outcome);
        outcome.text
    }

    /// The server starts and has its rows; no file shows a row, and no log a credential.
    #[track_caller]
    fn works(&mut self) {
        let secret = fs::read_to_string(self.base.node.home().join("pgseal.secret-id"));
        let secret = secret.expect("the secret of AppRole");
        assert!(secret.trim().len() > 20, "{secret}");
        self.base.works(Some(secret.trim()));
    }

    /// `pgseal provider test` of a key, with these attributes behind it.
    fn test(&self, key: &str, more: &str) -> Outcome {
        let home = self.base.node.home().display().to_string();
        let more = more.replace('~', &home);
        let uri = format!("vault:{key}?address={}&ca-file={home}/ca.pem{more}", self.address());
        self.base.node.pgseal(&["provider", "test", &uri])
    }

    /// How many tokens there are. One is that of the administrator.
    fn tokens(&self) -> String {
        self.api("GET auth/token/accessors")
    }
}

/// The commands of the page that make an engine, a key, a policy and a login.
fn prepare() -> String {
    commands("## Vault and OpenBao", "### A new version")[..3].concat()
}

#[test]
fn a_cluster_under_the_transit_engine() {
    let mut store = Store::new();
    let data = store.base.node.data().to_owned();

    // The page, to the letter. (The second line of its last block changes to the same key again.)
    let blocks = commands("## Vault and OpenBao", "### A new version");
    assert_eq!(blocks.len(), 5, "{blocks:?}");
    let tested = store.script(&format!("{}{}echo \"$URI\" >~/uri", prepare(), blocks[3]));
    succeeds(&tested);
    assert!(tested.text.contains("All checks passed"), "{}", tested.text);
    assert!(!tested.text.contains("WARNING"), "{}", tested.text);
    store.base.new_cluster(&format!("URI=$(cat ~/uri)\n{}", blocks[4]));

    // The key gets a new version in the store: the old copy still opens, and a new one is made
    // while the server runs.
    let [renew] = <[String; 1]>::try_from(commands("### A new version", "### A key in KV"))
        .expect("one block");
    let (rotate, rewrap) = renew.split_once('\n').expect("two commands");
    store.api(rotate.strip_prefix("api ").expect("a request"));
    let show =
        |store: &Store| store.base.node.pgseal(&["key", "show", &data.display().to_string()]);
    let shown = show(&store);
    assert!(shown.text.contains("transit/pgseal version 1"), "{}", shown.text);
    assert_eq!(store.base.check().code, 0);
    succeeds(&store.script(&format!("URI=$(cat ~/uri)\n{rewrap}")));
    store.base.node.stop();
    store.works();
    let shown = show(&store);
    assert!(shown.text.contains("transit/pgseal version 2"), "{}", shown.text);
    assert!(!shown.text.contains("secret-id"), "{}", shown.text);

    // Older versions than the latest are forbidden, and allowed again.
    store.api("POST transit/keys/pgseal/rotate");
    store.api(r#"POST transit/keys/pgseal/config -d '{"min_decryption_version":3}'"#);
    store.base.refuses(10, "version 2 of the key, which wrapped this, is not allowed any more");
    store.api(r#"POST transit/keys/pgseal/config -d '{"min_decryption_version":1}'"#);
    store.works();

    // The store goes away while the server runs: nothing happens. A start fails, and the next one
    // works; the same if it is sealed.
    store.base.node.start();
    store.server = None;
    assert_eq!(store.base.node.sql("select count(*) from t"), "1000", "without the store");
    store.base.node.kill9();
    store.base.refuses(13, "it cannot be reached: https://127.0.0.1");
    store.up(&[]);
    store.works();
    store.api("POST sys/seal");
    store.base.refuses(13, "the store is sealed; unseal it");
    store.api("POST sys/unseal");
    store.works();

    // It hangs: the plugin gives up.
    let pid = store.server.as_ref().expect("the store").0.id();
    send(pid, Signal::STOP);
    store.base.refuses(13, "no answer in time");
    send(pid, Signal::CONT);
    store.works();
    // It is slow: the plugin waits.
    send(pid, Signal::STOP);
    let slow = format!("(sleep 3; kill -CONT {pid}) >/dev/null 2>&1 &");
    succeeds(&store.script(&format!("{slow} pgseal key check DIR")));

    // The store is busy for a start and a check; then twice, and pgseal asks again.
    store.api(r#"POST sys/test/busy -d '{"count":2}'"#);
    store.base.refuses(13, "rate limit");
    store.api(r#"POST sys/test/busy -d '{"count":2}'"#);
    store.base.node.set_env("PGSEAL_PROVIDER_WAIT", "30");
    store.works();
    store.base.node.set_env("PGSEAL_PROVIDER_WAIT", "0");

    // A wrong credential, and one that others can read.
    succeeds(&store.script("cp -p ~/pgseal.secret-id ~/kept; echo wrong-one >~/pgseal.secret-id"));
    store.base.refuses(17, "the login fails (invalid role or secret ID)");
    succeeds(&store.script("cp -p ~/kept ~/pgseal.secret-id; chmod 640 ~/pgseal.secret-id"));
    store.base.refuses(2, "chmod 600");
    succeeds(&store.script("chmod 600 ~/pgseal.secret-id"));
    // The certificate of the store is that of another authority.
    succeeds(&store.script("cp ca.pem kept.pem; cp stranger.pem ca.pem"));
    store.base.refuses(2, "no authority of ca-file has signed the store's certificate");
    succeeds(&store.script("cp kept.pem ca.pem"));
    // A right is missing.
    store.api(r#"POST sys/policies/acl/pgseal -d '{"policy":"no rule"}'"#);
    store.base.refuses(17, "path \"transit/decrypt/pgseal\" { capabilities = [\"update\"] }");
    let policy = commands("## Vault and OpenBao", "### A new version").swap_remove(1);
    let policy = policy.rsplit_once("api ").expect("a request").1.to_owned();
    store.api(&policy);
    store.works();

    // A plain cluster is encrypted under the same key of the store.
    let encrypted = store.script(
        "initdb -k -A trust ~/plain; pgseal encrypt -K \"$(cat ~/uri)\" --register ~/plain
         pgseal verify ~/plain; pgseal key check ~/plain",
    );
    succeeds(&encrypted);
    assert!(encrypted.text.contains("the keyring is sound"), "{}", encrypted.text);

    // The key is deleted, and another one of its name does not open the keyring.
    store.api(r#"POST transit/keys/pgseal/config -d '{"deletion_allowed":true}'"#);
    store.api("DELETE transit/keys/pgseal");
    store.base.refuses(10, "the transit engine has no key of this name");
    store.api("POST transit/keys/pgseal -d '{}'");
    store.api("POST transit/keys/pgseal/rotate");
    store.base.refuses(11, "wrong key");

    // Each run has revoked its token.
    assert!(store.tokens().contains("\"count\":1}"), "{}", store.tokens());
}

/// Each login, engine and kind of key passes the whole suite.
#[test]
fn logins_engines_and_kinds_of_keys() {
    let mut store = Store::new();
    succeeds(&store.script(&format!("{}echo -n \"$ROLE\" >~/role", prepare())));
    let role = fs::read_to_string(store.base.node.home().join("role")).expect("the role");
    let app_role = format!("&role-id={role}&secret-id-file=~/pgseal.secret-id");
    let passes = |store: &Store, key: &str, more: &str, words: &str| {
        let outcome = store.test(key, more);
        assert_eq!(outcome.code, 0, "{key}{more}: {}", outcome.text);
        assert!(outcome.text.contains(words), "{key}{more}: {}", outcome.text);
    };

    // Anchors and KV, with the rights that the page names.
    let kv = commands("### A key in KV", "### What was tried").concat();
    for request in kv.lines() {
        store.api(request.strip_prefix("api ").expect("a request"));
    }
    let policy = "path \"transit/*\" { capabilities = [\"read\", \"update\"] }\n\
                  path \"secret/data/pgseal/main\" { capabilities = [\"read\"] }\n\
                  path \"secret/data/anchors/*\" { capabilities = [\"create\", \"read\", \"update\"] }";
    fs::write(store.base.node.home().join("policy.hcl"), policy).expect("the policy");
    store.api(
        "POST sys/policies/acl/pgseal -d \"{\\\"policy\\\":\\\"$(base64 -w0 policy.hcl)\\\"}\"",
    );
    let anchored = format!("{app_role}&anchor=anchors");
    passes(&store, "key=pgseal", &anchored, "pass  an anchor only goes forward");
    passes(&store, "secret=pgseal/main", &app_role, "WARNING: this key leaves the store");

    // The other logins, with one request each to the suite's first check.
    store.api(r#"POST sys/auth/cert -d '{"type":"cert"}'"#);
    store.api(
        "POST auth/cert/certs/db -d \"$(python3 -c 'import json; print(json.dumps({\
         \"certificate\": open(\"ca.pem\").read(), \"allowed_common_names\": \"db\", \
         \"token_policies\": \"pgseal\"}))')\"",
    );
    store.api(r#"POST sys/auth/kubernetes -d '{"type":"kubernetes"}'"#);
    store.api(r#"POST auth/kubernetes/role/db -d '{"jwt":"a.b.c","policies":"pgseal"}'"#);
    succeeds(&store.script("echo a.b.c >~/jwt; chmod 644 ~/jwt; echo x.y.z >~/other-jwt"));
    let certificate = "&cert-file=~/db.pem&cert-key-file=~/db.key";
    passes(&store, "key=pgseal", certificate, "All checks passed");
    passes(&store, "key=pgseal", "&role=db&jwt-file=~/jwt", "All checks passed");
    passes(&store, "key=pgseal", "&token-file=~/.vault-token", "All checks passed");

    // Kinds of keys, and those of which the test warns.
    for (name, options, words) in [
        ("chacha", r#"{"type":"chacha20-poly1305"}"#, "chacha20-poly1305"),
        ("derived", r#"{"derived":true}"#, "aes256-gcm96"),
        ("open", r#"{"exportable":true}"#, "WARNING: the store would give this key out"),
    ] {
        store.api(&format!("POST transit/keys/{name} -d '{options}'"));
        passes(&store, &format!("key={name}"), &app_role, words);
    }
    store.api(r#"POST transit/keys/rsa -d '{"type":"rsa-2048"}'"#);
    store.api("DELETE secret/data/pgseal/main");
    for (key, more, words) in [
        ("key=rsa", app_role.as_str(), "make one of the type aes256-gcm96"),
        ("key=none", app_role.as_str(), "has no key of this name"),
        ("key=pgseal;mount=none", "&token-file=~/.vault-token", "nothing is mounted there"),
        ("key=pgseal;mount=none", app_role.as_str(), "path \"none/keys/pgseal\""),
        ("key=pgseal;mount=secret", "&token-file=~/.vault-token", "mount of the right kind"),
        ("secret=pgseal/main", app_role.as_str(), "was deleted"),
        ("key=pgseal", "&role=db&jwt-file=~/other-jwt", "the login fails"),
        ("key=pgseal", "&cert-file=~/stranger.pem&cert-key-file=~/stranger.key", "the login fails"),
        ("key=pgseal", "&cert-file=~/db.pem&cert-key-file=~/store.key", "not the key of cert-file"),
        ("key=pgseal", "&token-file=~/jwt", "chmod 600"),
        ("key=pgseal", "&token=sekrit", "a credential must not stand in a URI"),
        ("key=pgseal", "", "no way to log in"),
    ] {
        let outcome = store.test(key, more);
        assert_eq!(outcome.code, 1, "{key}{more}: {}", outcome.text);
        assert!(outcome.text.contains(words), "{key}{more}: {}", outcome.text);
        assert!(!outcome.text.contains("sekrit"), "{}", outcome.text);
    }
    assert!(store.tokens().contains("\"count\":1}"), "{}", store.tokens());

    // A standby that does not forward requests redirects them to the active node.
    let standby = free_port().expect("a port");
    let active = store.address();
    let other = store.serve(standby, &["-standby-of", &active]);
    store.port = standby;
    passes(&store, "key=pgseal", &app_role, "All checks passed");
    drop(other);
    let gone = store.test("key=pgseal", &app_role);
    assert!(gone.text.contains("no connection"), "{}", gone.text);

    // A store that ignores associated data would open a copy for any keyring.
    store.port = free_port().expect("a port");
    store.up(&["-without-associated-data"]);
    let old = store.test("key=pgseal", &app_role);
    assert_eq!(old.code, 1, "{}", old.text);
    assert!(old.text.contains("the store ignores associated data"), "{}", old.text);

    // Without attributes the environment says where the store is, as for the vendor's clients.
    store.up(&[]);
    let ca = store.base.node.home().join("ca.pem").display().to_string();
    for (name, value) in
        [("VAULT_ADDR", &*store.address()), ("VAULT_CACERT", &ca), ("VAULT_TOKEN", ROOT)]
    {
        store.base.node.set_env(name, value);
    }
    let from_environment =
        |store: &Store| store.base.node.pgseal(&["provider", "test", "vault:key=pgseal"]);
    succeeds(&from_environment(&store));
    store.base.node.set_env("BAO_TOKEN", "hvs.wrong");
    let wrong = from_environment(&store);
    assert!(wrong.text.contains("it reports \"refused\""), "{}", wrong.text);
    for name in ["VAULT_ADDR", "VAULT_CACERT", "VAULT_TOKEN", "BAO_TOKEN"] {
        store.base.node.unset_env(name);
    }

    // The listener takes only connections with a certificate that it trusts.
    store.up(&["-client-ca", &ca]);
    let both = format!("{app_role}{certificate}");
    passes(&store, "key=pgseal", &both, "All checks passed");
    let without = store.test("key=pgseal", &app_role);
    assert_eq!(without.code, 1, "{}", without.text);
    assert!(without.text.contains("does not accept the client certificate"), "{}", without.text);
}
