//! docs/key-stores.md on moto, a server for tests that answers as AWS KMS and IAM do: the shell
//! commands of the page make a cluster under a key, and rotate it. Then what an administrator
//! meets: the service is away, hangs or is something else; credentials are missing, wrong or not
//! allowed; the key is disabled, waits for its deletion, or is another one.

use std::fs::File;
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use pgseal_cluster::process::send;
use pgseal_cluster::{Patience, Signal, free_port};
use pgseal_scenarios::Outcome;
use pgseal_scenarios::key_store::{StoreNode, commands};
use pgseal_scenarios::kmip::python_servers;
use pgseal_scenarios::succeeds;

const HEADING: &str = "## AWS KMS";
const NEXT: &str = "### What the plugin says of AWS KMS";

/// The service, a process, and a node whose cluster lies under one of its keys.
struct Store {
    // Before the node, whose directories it uses.
    server: Child,
    base: StoreNode,
    port: u16,
}

impl Drop for Store {
    fn drop(&mut self) {
        // It may have ended by itself; then the test has failed already.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Store {
    /// A service without anything in it. The cluster is still under a key file.
    fn new() -> Store {
        let base = StoreNode::new("aws-kms");
        let port = free_port().expect("a port");
        let log = File::create(base.node.home().join("moto.log")).expect("a log");
        let server = Command::new(python_servers().join("moto_server"))
            .args(["-H", "127.0.0.1", "-p", &port.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("moto starts");
        let mut store = Store { server, base, port };
        let is_up = || TcpStream::connect(("127.0.0.1", port)).is_ok();
        assert!(Patience::seconds(60).wait_until(is_up), "moto does not listen");
        store.at(port);
        // There is no machine whose role could be asked.
        store.base.set_env("AWS_EC2_METADATA_DISABLED", "true");
        store.base.set_env("AWS_DEFAULT_REGION", "eu-central-1");
        // The server has no HOME.
        let credentials = store.base.node.home().join(".aws/credentials").display().to_string();
        store.base.set_env("AWS_SHARED_CREDENTIALS_FILE", &credentials);
        store
    }

    /// Where the SDK and the program `aws` look for the service.
    fn at(&mut self, port: u16) {
        self.base.set_env("AWS_ENDPOINT_URL", &format!("http://127.0.0.1:{port}"));
    }

    /// Runs a script of the page as an administrator.
    fn administrator(&self, text: &str) -> Outcome {
        let path = format!("PATH={}:$PATH", python_servers().display());
        let login = "export AWS_ACCESS_KEY_ID=admin AWS_SECRET_ACCESS_KEY=admin";
        self.base.script(&format!("set -e; {path}; {login}\n{text}"))
    }

    /// From now on moto checks credentials and policies, or it does not.
    fn checks(&self, is_checking: bool) {
        let count = if is_checking { "0" } else { "inf" };
        succeeds(&self.base.script(&format!(
            "python3 -c 'import urllib.request as u
u.urlopen(u.Request(\"http://127.0.0.1:{}/moto-api/reset-auth\", b\"{count}\",
    {{\"Content-Type\": \"text/plain\"}}))'",
            self.port
        )));
    }

    /// `pgseal provider test`, as an attribute and a profile say.
    fn test(&self, key: &str, query: &str) -> Outcome {
        self.base.node.pgseal(&["provider", "test", &format!("aws-kms:key={key}?{query}")])
    }
}

#[test]
fn a_cluster_under_aws_kms() {
    let mut store = Store::new();
    let data = store.base.node.data().display().to_string();
    let blocks = commands(HEADING, NEXT);
    assert_eq!(blocks.len(), 6, "{blocks:?}");

    // The page, to the letter, but for the resource of the policy: moto compares it with "*".
    let policy = blocks[1].replace("\"Resource\": \"$ARN\"", "\"Resource\": \"*\"");
    let prepare = [&blocks[0], &policy, "echo \"$ARN\" >arn\n", &blocks[2]].concat();
    succeeds(&store.administrator(&prepare));
    store.checks(true);
    let tested = store.base.script(&format!("{}echo \"$URI\" >uri", blocks[3]));
    succeeds(&tested);
    assert!(tested.text.contains("All checks passed"), "{}", tested.text);
    // (The second line of its last block changes to the same key again.)
    store.base.new_cluster(&format!("URI=$(cat uri)\n{}", blocks[4]));
    store.base.node.stop();
    let credentials = store.base.script("sed -n s/aws_secret_access_key=//p ~/.aws/credentials");
    let secret = credentials.text.trim().to_owned();
    assert!(secret.len() > 20, "{secret}");
    store.base.works(Some(&secret));
    let shown = store.base.node.pgseal(&["key", "show", &data]);
    assert!(shown.text.contains("arn:aws:kms:eu-central-1:"), "{}", shown.text);
    assert!(!shown.text.contains("profile"), "{}", shown.text);

    // The alias gets another key: the old one still opens, and a new copy is made while the server
    // runs.
    store.checks(false);
    succeeds(&store.administrator(&blocks[5]));
    store.base.works(Some(&secret));
    store.base.node.start();
    succeeds(&store.base.script("pgseal key rotate DIR -K \"$(cat uri)\" --register"));
    store.base.node.stop();
    let renewed = store.base.node.pgseal(&["key", "show", &data]);
    assert!(renewed.text != shown.text, "{}", renewed.text);
    store.base.works(Some(&secret));

    // The service is away while the server runs: nothing happens. A start fails, and the next one
    // works.
    store.base.node.start();
    let nowhere = free_port().expect("a port");
    store.at(nowhere);
    assert_eq!(store.base.node.sql("select count(*) from t"), "1000", "without the service");
    store.base.node.kill9();
    store.base.refuses(13, "it cannot be reached: alias/pgseal: no connection to AWS KMS");
    let port = store.port;
    store.at(port);
    store.base.works(Some(&secret));
    // It hangs: the plugin gives up.
    send(store.server.id(), Signal::STOP);
    let hanging = store.base.check();
    assert_eq!(hanging.code, 13, "{}", hanging.text);
    assert!(hanging.text.contains("no answer in time"), "{}", hanging.text);
    send(store.server.id(), Signal::CONT);
    succeeds(&store.base.check());
    // It is slow: the plugin waits.
    send(store.server.id(), Signal::STOP);
    let slow = format!("(sleep 3; kill -CONT {}) >/dev/null 2>&1 &", store.server.id());
    succeeds(&store.base.script(&format!("{slow} pgseal key check DIR")));

    // The policy is taken away, then the access key, then the profile.
    succeeds(&store.base.script("cp -p ~/.aws/credentials kept"));
    let gone = "aws iam delete-user-policy --user-name pgseal --policy-name pgseal";
    succeeds(&store.administrator(gone));
    store.checks(true);
    store.base.refuses(17, "the policy must allow kms:Decrypt");
    let unknown = "sed -i '/^aws_access_key_id/s/=.*/=AKIAAAAAAAAAAAAAAAAA/' ~/.aws/credentials";
    succeeds(&store.base.script(unknown));
    store.base.refuses(17, "it refuses: alias/pgseal");
    succeeds(&store.base.script("rm ~/.aws/credentials"));
    let missing = store.base.check();
    assert!(missing.code == 17 || missing.code == 2, "{}", missing.text);
    assert!(!missing.text.contains(&secret), "{}", missing.text);
    succeeds(&store.base.script("cp -p kept ~/.aws/credentials"));
    store.checks(false);
    store.base.works(Some(&secret));

    // Another key does not open the keyring.
    let wrong = "pgseal key check DIR -K \"aws-kms:key=$(cat arn)?profile=pgseal\"";
    let wrong = store.base.script(wrong);
    assert_eq!(wrong.code, 11, "{}", wrong.text);
}

/// Keys that must not be used, and what answers but is no KMS.
#[test]
fn keys_that_must_not_be_used() {
    let mut store = Store::new();
    succeeds(&store.administrator(&format!(
        "{}
         echo -n \"$ARN\" >arn
         RSA=$(aws kms create-key --key-spec RSA_2048 --key-usage ENCRYPT_DECRYPT \\
             --query KeyMetadata.Arn --output text)
         aws kms create-alias --alias-name alias/rsa --target-key-id \"$RSA\"",
        commands(HEADING, NEXT)[0]
    )));
    let arn = std::fs::read_to_string(store.base.node.home().join("arn")).expect("the ARN");
    for (name, value) in [("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "sekrit")] {
        store.base.set_env(name, value);
    }
    let fails = |store: &Store, key: &str, query: &str, words: &str| {
        let tested = store.test(key, query);
        assert_eq!(tested.code, 1, "{key}?{query}: {}", tested.text);
        assert!(tested.text.contains(words), "{key}?{query}: {}", tested.text);
        assert!(!tested.text.contains("sekrit"), "{}", tested.text);
    };
    succeeds(&store.test(&arn, ""));
    fails(&store, "alias/none", "", "AWS KMS has no such key");
    fails(&store, &arn, "region=us-east-1", "AWS KMS has no such key");
    fails(&store, "alias/rsa", "", "the key must be symmetric");
    fails(&store, &arn, "endpoint=http://kms.example", "http:// only for a loopback address");
    fails(&store, &arn, "secret=sekrit", "no attribute that this plugin knows");
    let tls = format!("endpoint=https://127.0.0.1:{}", store.port);
    fails(&store, &arn, &tls, "TLS fails");
    // (Moto wants an id here, no ARN.)
    let change = |store: &Store, operations: &[&str]| {
        for operation in operations {
            let id = "--key-id $(sed 's#.*/##' arn)";
            succeeds(&store.administrator(&format!("aws kms {operation} {id}")));
        }
    };
    change(&store, &["disable-key"]);
    fails(&store, &arn, "", "the key has the state Disabled");
    change(&store, &["enable-key", "schedule-key-deletion --pending-window-in-days 7"]);
    fails(&store, &arn, "", "the key has the state PendingDeletion");
    change(&store, &["cancel-key-deletion", "enable-key"]);
    succeeds(&store.test(&arn, ""));
    for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"] {
        store.base.node.unset_env(name);
    }
    fails(&store, &arn, "", "there are no credentials");
}
