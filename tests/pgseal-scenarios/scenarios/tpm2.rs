//! docs/key-stores.md on a TPM 2.0 in software (swtpm): the shell commands of the page make a
//! cluster under it, move it to other keys and back, and bind it to PCRs. Then what an
//! administrator meets: the TPM is away, is another one, has an owner, or has other PCRs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use pgseal_cluster::process::send;
use pgseal_cluster::{Patience, Signal};
use pgseal_scenarios::Outcome;
use pgseal_scenarios::backup::shell;
use pgseal_scenarios::files::{copy_tree, restore_tree};
use pgseal_scenarios::key_store::{StoreNode, commands};
use pgseal_scenarios::{escrow_lock, succeeds};

const HEADING: &str = "## TPM 2.0";
const EXTEND: &str = "tpm2_pcrextend 7:sha256=$(printf %064d 1)";

/// A node whose cluster lies under a key of the TPM.
struct Store {
    base: StoreNode,
    /// The process of the TPM.
    pid: Option<u32>,
}

impl Drop for Store {
    fn drop(&mut self) {
        // A failed test may not know yet that it runs.
        self.pid = self.pid.or_else(|| self.written_pid());
        self.down();
    }
}

impl Store {
    /// A node with the plugin, and a TPM without anything in it. The cluster is still under a key
    /// file.
    fn new() -> Store {
        for needed in ["/usr/bin/swtpm", "/usr/bin/tpm2_unseal"] {
            assert!(Path::new(needed).exists(), "{needed}: run scripts/setup.sh test");
        }
        let mut store = Store { base: StoreNode::new("tpm2"), pid: None };
        store.up();
        store
    }

    fn home(&self) -> PathBuf {
        self.base.node.home().to_owned()
    }

    /// Starts the TPM with the command of the page. It keeps its state, but for the PCRs, as a TPM
    /// does when its machine starts.
    fn up(&mut self) {
        succeeds(&self.base.script(&start()));
        self.find();
    }

    /// Starts the TPM when the server's log says that it is waited for.
    fn up_when_waited_for(&self) -> Child {
        let wait =
            "for i in {1..1200}; do ! grep -q 'trying again for' log || break; sleep 0.1; done";
        let mut command = shell(&self.base.node, &format!("{wait}\n{}", start()), &[]);
        command.env("HOME", self.home()).stdin(Stdio::null()).stdout(Stdio::null());
        command.spawn().expect("bash runs")
    }

    #[track_caller]
    fn is_up(&mut self, mut starting: Child) {
        assert!(starting.wait().is_ok_and(|status| status.success()), "the TPM does not start");
        self.find();
    }

    fn find(&mut self) {
        self.pid = Some(self.written_pid().expect("the TPM's process"));
        let socket = self.home().join("tpm/socket.ctrl");
        assert!(Patience::seconds(60).wait_until(|| socket.exists()), "the TPM does not listen");
    }

    fn written_pid(&self) -> Option<u32> {
        fs::read_to_string(self.home().join("tpm/pid")).ok()?.trim().parse().ok()
    }

    /// Takes the TPM away.
    fn down(&mut self) {
        if let Some(pid) = self.pid.take() {
            send(pid, Signal::KILL);
            let process = PathBuf::from(format!("/proc/{pid}"));
            assert!(Patience::seconds(60).wait_until(|| is_gone(&process)), "it does not end");
            for name in ["pid", "socket", "socket.ctrl"] {
                // Some of them it may have removed itself.
                let _ = fs::remove_file(self.home().join("tpm").join(name));
            }
        }
    }

    /// Runs a script with the page's `$TCTI`, and with the same for tpm2-tools.
    fn script(&self, text: &str) -> Outcome {
        let tcti = "TCTI=swtpm:path=$HOME/tpm/socket; export TPM2TOOLS_TCTI=$TCTI";
        self.base.script(&format!("{tcti}\n{text}"))
    }

    /// The URI of the page, with more attributes.
    fn uri(&self, key: &str, more: &str) -> String {
        format!("tpm2:{key}?tcti=swtpm:path={}/tpm/socket{more}", self.home().display())
    }

    /// `pgseal provider test` of the URI with more attributes.
    fn test(&self, key: &str, more: &str) -> Outcome {
        self.base.node.pgseal(&["provider", "test", &self.uri(key, more)])
    }

    #[track_caller]
    fn passes(&self, key: &str, more: &str) {
        let outcome = self.test(key, more);
        succeeds(&outcome);
        assert!(outcome.text.contains("All checks passed"), "{}", outcome.text);
    }

    #[track_caller]
    fn fails(&self, key: &str, more: &str, words: &str) {
        let outcome = self.test(key, more);
        assert_eq!(outcome.code, 1, "{key}{more}: {}", outcome.text);
        assert!(outcome.text.contains(words), "{key}{more}: {}", outcome.text);
    }

    /// The shell function `ask OPERATION MEMBERS`, which sends a request to the plugin.
    fn ask(&self, uri: &str) -> String {
        let pgseal = self.base.node.pgseal_program();
        let prefix = pgseal.ancestors().nth(2).expect("a prefix");
        format!(
            "ask() {{ printf '{{\"protocol\":1,\"uri\":\"{uri}\",\"request\":{{\"operation\":\"%s\",\
             \"context\":\"00112233445566778899aabbccddeeff\"%s}}}}\\n' \"$1\" \"$2\" |
             {}/lib/pgseal/providers/pgseal-provider-tpm2; }}",
            prefix.display()
        )
    }

    fn show(&self) -> String {
        self.base.node.pgseal(&["key", "show", &self.base.node.data().display().to_string()]).text
    }
}

/// The page's command that starts the TPM.
fn start() -> String {
    commands(HEADING, "### PCRs").swap_remove(0)
}

/// Whether a process has ended. Its entry stays until somebody asks for its status.
fn is_gone(process: &Path) -> bool {
    fs::read_to_string(process.join("stat")).map_or(true, |text| text.contains(") Z "))
}

/// The page's test of a URI, and the commands that make a cluster under it.
fn cluster() -> (String, String) {
    let [_, test, cluster] = <[String; 3]>::try_from(commands(HEADING, "### PCRs"))
        .expect("three blocks: a TPM, the test, a cluster");
    let variables = test.lines().filter(|line| !line.starts_with("pgseal "));
    let variables = variables.collect::<Vec<_>>().join("\n");
    (test, format!("{variables}\n{cluster}"))
}

#[test]
fn a_cluster_under_a_tpm() {
    let mut store = Store::new();
    let (test, cluster) = cluster();
    let tested = store.script(&test);
    succeeds(&tested);
    assert!(tested.text.contains("All checks passed"), "{}", tested.text);
    // (Its second line changes to the same key again.)
    store.base.new_cluster(&cluster);
    assert!(store.show().contains("storage key of the owner hierarchy"), "{}", store.show());

    // To a key file and back, with the server running.
    let key = store.home().join("between.key").display().to_string();
    succeeds(&store.base.node.pgseal(&["key", "new", "-o", &key]));
    let dir = store.base.node.data().display().to_string();
    let file = format!("file:{key}");
    let tpm = store.uri("parent=owner", "");
    for provider in [&file, &tpm] {
        let rotate = ["key", "rotate", &dir, "-K", provider, "--register"];
        succeeds(&store.base.node.pgseal(&rotate));
    }
    fs::remove_file(&key).expect("the key file goes");

    // The TPM goes away while the server runs: nothing happens. A start fails.
    store.down();
    assert_eq!(store.base.node.sql("select count(*) from t"), "1000", "without the TPM");
    store.base.node.kill9();
    store.base.refuses(13, "it cannot be reached: no connection to the TPM");
    // It is waited for: it comes while the server starts.
    store.base.node.set_env("PGSEAL_PROVIDER_WAIT", "600");
    let later = store.up_when_waited_for();
    store.base.node.start();
    store.base.node.stop();
    store.is_up(later);
    store.base.node.set_env("PGSEAL_PROVIDER_WAIT", "0");
    store.base.works(None);

    // It hangs: the plugin gives up.
    let pid = store.pid.expect("the TPM runs");
    send(pid, Signal::STOP);
    let check = store.base.check();
    assert_eq!(check.code, 13, "{}", check.text);
    assert!(check.text.contains("the TPM gives no answer within 10 s"), "{}", check.text);
    send(pid, Signal::CONT);
    store.base.works(None);

    // The disk in another machine: its TPM does not open the key.
    store.down();
    let (here, aside) = (store.home().join("tpm"), store.home().join("aside"));
    fs::rename(&here, &aside).expect("the machine goes");
    store.up();
    store.base.refuses(11, "wrong key");
    let check = store.base.check();
    assert!(check.text.contains("it is another TPM, or it was cleared"), "{}", check.text);
    store.down();
    fs::remove_dir_all(&here).expect("the other machine goes");
    fs::rename(&aside, &here).expect("the first one is back");
    store.up();
    store.base.works(None);

    // The hierarchy gets an authorization value.
    succeeds(&store.script("tpm2_changeauth -c o owner-42; (umask 077; printf owner-42 >~/owner)"));
    store.base.refuses(17, "add owner-auth-file=/PATH");
    let more = format!("&owner-auth-file={}/owner", store.home().display());
    store.passes("parent=owner", &format!("{more}&anchor=0x1800016"));
    succeeds(&store.script("chmod 640 ~/owner"));
    store.fails("parent=owner", &more, "chmod 600 it");
    succeeds(&store.script("chmod 600 ~/owner; printf wrong >~/owner"));
    store.fails("parent=owner", &more, "it reports \"refused\"");
    succeeds(&store.script("tpm2_changeauth -c o -p owner-42"));
    store.base.works(None);
}

#[test]
fn a_key_that_opens_with_the_same_pcrs_only() {
    let mut store = Store::new();
    let (_, cluster) = cluster();
    store.base.new_cluster(&cluster);
    let [bind, before, after] = <[String; 3]>::try_from(commands("### PCRs", "### Other keys"))
        .expect("three blocks: bind, before an update, after it");
    succeeds(&store.script(&bind));
    assert!(store.show().contains("PCRs sha256:7"), "{}", store.show());
    store.base.node.stop();
    store.base.works(None);
    let dir = store.base.node.data().display().to_string();
    let lock = escrow_lock();
    let backup = ["key", "backup", &dir, "--lock", lock, "-o", "escrow.txt"];
    succeeds(&store.base.node.pgseal(&backup));

    // The machine boots something else, and then what it booted before.
    succeeds(&store.script(EXTEND));
    store.base.refuses(17, "the PCRs sha256:7 have other values than when the key was sealed");
    store.down();
    store.up();
    store.base.works(None);

    // An update that is planned: to a key file before it, and back after it.
    store.base.node.start();
    succeeds(&store.script(&before));
    succeeds(&store.script(EXTEND));
    succeeds(&store.script(&after));
    store.base.node.stop();
    store.base.works(None);
    assert!(store.show().contains("PCRs sha256:7"), "{}", store.show());

    // One that is not: the escrow copy.
    succeeds(&store.script(EXTEND));
    store.base.refuses(17, "pgseal key restore DIR COPY -K 'tpm2:...' --force");
    let uri = store.uri("parent=owner;pcrs=sha256:7", "");
    let restore = ["key", "restore", &dir, "escrow.txt", "--unlock", lock, "-K", &uri, "--force"];
    succeeds(&store.base.node.pgseal(&restore));
    store.base.works(None);

    store.passes("parent=owner;pcrs=sha384:0,7,14", "");
    // A cluster whose key is sealed without PCRs, and the other way round.
    let without = store.uri("parent=owner", "");
    let check = |uri: &str| store.base.node.pgseal(&["key", "check", &dir, "-K", uri]);
    let outcome = check(&without);
    assert_eq!(outcome.code, 2, "{}", outcome.text);
    assert!(outcome.text.contains("add the same pcrs="), "{}", outcome.text);
    succeeds(&store.base.node.pgseal(&["key", "rotate", &dir, "-K", &without, "--register"]));
    let outcome = check(&uri);
    assert_eq!(outcome.code, 2, "{}", outcome.text);
    assert!(outcome.text.contains("was sealed without PCRs"), "{}", outcome.text);
}

#[test]
fn other_keys_anchors_and_tools() {
    let store = Store::new();
    // A persistent key, as the page makes it.
    let [persistent, anchor] = <[String; 2]>::try_from(commands("### Other keys", "### What it"))
        .expect("two blocks: a persistent key, an index");
    store.fails("parent=0x81000001", "", "the TPM has no key 0x81000001");
    succeeds(&store.script(&persistent));
    store.passes("parent=0x81000001", "");
    store.passes("parent=0x81000001;pcrs=sha256:7", "");

    // An anchor: the page tests an index, and frees it.
    let (test, clear) = anchor.split_once('\n').expect("two commands");
    let tested = store.script(test);
    succeeds(&tested);
    assert!(tested.text.contains("pass  an anchor only goes forward"), "{}", tested.text);
    // The suite takes another keyring each time; the index belongs to the first one.
    store.fails("parent=owner", "&anchor=0x18000ff", "has the anchor of another keyring");
    succeeds(&store.script(clear));
    store.passes("parent=owner", "&anchor=0x18000ff");
    for (options, index) in [
        ("-s 8 -a 'ownerread|ownerwrite'", "0x1800030"),
        ("-s 283 -a 'authread|authwrite'", "0x1800031"),
    ] {
        succeeds(&store.script(&format!("tpm2_nvdefine -C o {options} {index}")));
        let more = format!("&anchor={index}");
        store.fails("parent=owner", &more, &format!("the NV index {index} is none of pgseal"));
    }

    // Eight writers at the same time: the highest number stays.
    let ask = store.ask(&store.uri("parent=owner", "&anchor=0x1800020"));
    let raced = store.script(&format!(
        "{ask}
         for i in 3 8 1 6 2 7 5 4; do
             ask anchor-advance \",\\\"anchor\\\":{{\\\"sequence\\\":$i,\\\"value\\\":\\\"0$i\\\"}}\" &
         done; wait; echo; ask anchor-read ''"
    ));
    succeeds(&raced);
    let stored = "\"anchor\":{\"sequence\":8,\"value\":\"08\"}";
    assert!(raced.text.contains(stored), "{}", raced.text);
    assert!(!raced.text.contains("unavailable"), "{}", raced.text);

    // What the plugin must not run, or cannot find.
    let home = store.home().display().to_string();
    succeeds(&store.script("mkdir open; cp /usr/bin/tpm2 open/tpm2_unseal; chmod 777 open"));
    let elsewhere = store.base.node.make_dir("elsewhere").display().to_string();
    for (tools, words) in [
        (format!("{home}/open"), "group or others can write it"),
        (elsewhere, "install tpm2-tools (apt-get install tpm2-tools)"),
    ] {
        store.fails("parent=owner", &format!("&tools={tools}"), words);
    }
    let device = |tcti: &str| {
        let uri = format!("tpm2:parent=owner?tcti={tcti}");
        store.base.node.pgseal(&["provider", "test", &uri]).text
    };
    assert!(device("device:/dev/no-tpm").contains("there is no TPM"), "{}", device("device:/x"));
    assert!(device("cmd:sh").contains("give device:/dev/tpmrm0"), "{}", device("cmd:sh"));
}

/// Programs in the place of tpm2-tools note what they get, and run these.
const NOTING: &str = r#"
mkdir noting
cat >noting/any <<'END'
#!/bin/sh
{ printf '%s\n' "argument $0"; printf 'argument %s\n' "$@"; env | sed 's/^/variable /'; } >>SEEN
if grep -qs "$(cat PATTERN)" /dev/shm/pgseal-tpm2-*/*; then echo "in a file" >>SEEN; fi
exec /usr/bin/"${0##*/}" "$@"
END
sed -i "s#SEEN#$HOME/seen#; s#PATTERN#$HOME/pattern#" noting/any
chmod 755 noting/any
for tool in /usr/bin/tpm2_*; do ln noting/any "noting/${tool##*/}"; done
"#;

/// `docs/anchor.md` with the TPM as the store.
#[test]
fn a_server_with_its_anchor_in_the_tpm() {
    let mut store = Store::new();
    let uri = store.uri("parent=owner", "&anchor=0x1800016");
    let data = store.base.node.data().display().to_string();
    let older = store.home().join("older");
    let node = &mut store.base.node;
    node.set_env("PGSEAL_ANCHOR", &uri);
    node.set_env("PGSEAL_PROVIDER_WAIT", "0");
    succeeds(&node.pgseal(&["anchor", "accept", &data]));
    node.start();
    node.stop();
    copy_tree(node.data(), &older);
    node.start();
    node.kill9();
    node.start();
    node.stop();
    succeeds(&node.pgseal(&["anchor", "status", &data]));
    restore_tree(&older, node.data());
    let log = node.try_start().expect_err("an older copy");
    assert!(log.contains("not as the last shutdown left it"), "{log}");

    store.down();
    let log = store.base.node.try_start().expect_err("the TPM is away");
    assert!(log.contains("no connection to the TPM"), "{log}");
    store.up();
    let node = &mut store.base.node;
    succeeds(&node.pgseal(&["anchor", "accept", &data]));
    node.start();
    node.stop();
}

#[test]
fn what_the_programs_get() {
    let store = Store::new();
    let secret = "never-on-a-command-line-or-a-disk";
    let secret = secret.get(..32).expect("32 bytes");
    let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
    fs::write(store.home().join("pattern"), secret).expect("the pattern");
    succeeds(&store.script(NOTING));
    let noting = format!("&tools={}/noting", store.home().display());
    let ask = store.ask(&store.uri("parent=owner;pcrs=sha256:7", &noting));
    let done = store.script(&format!(
        "{ask}
         export CANARY=of-the-environment
         wrapped=$(ask wrap ',\"secret\":\"{hex}\"' | sed 's/.*\"wrapped\":\"\\([0-9a-f]*\\).*/\\1/')
         ask unwrap \",\\\"wrapped\\\":\\\"$wrapped\\\",\\\"key\\\":\\\"\\\"\""
    ));
    succeeds(&done);
    assert!(done.text.contains(&hex), "it is not unwrapped: {}", done.text);
    let seen = fs::read_to_string(store.home().join("seen")).expect("what they noted");
    for needed in ["noting/tpm2_create\n", "argument -i\nargument -\n", "noting/tpm2_unseal\n"] {
        assert!(seen.contains(needed), "{seen}");
    }
    for shown in [secret, &hex, "in a file", "CANARY"] {
        assert!(!seen.contains(shown), "{shown}: {seen}");
    }
    // The shell adds the last two.
    let known = ["LC_ALL", "TPM2TOOLS_TCTI", "PWD", "_"];
    let variables = seen.lines().filter_map(|line| line.strip_prefix("variable ")?.split_once('='));
    let unknown: Vec<_> = variables.filter(|(name, _)| !known.contains(name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    // The directories that they wrote to are gone.
    let written = seen.lines().filter_map(|line| line.strip_prefix("argument /dev/shm/"));
    let written: Vec<_> = written.map(|path| Path::new("/dev/shm").join(path)).collect();
    assert!(written.len() > 5, "{seen}");
    for path in written {
        assert!(!path.parent().is_some_and(Path::exists), "{}", path.display());
    }
}
