//! The audit trail of a real cluster: what an administrator and a server do with keys is there,
//! line by line; a trail that is required and cannot be written stops them; the chain of a file
//! shows every change; rsyslog takes the lines; and systemd is told why a start waits.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use pgseal_cluster::Patience;
use pgseal_scenarios::{Node, ends};
use pgseal_testkit::install;

const PASSPHRASE: &str = "passphrase:command=echo correct horse battery staple";

/// A sealed cluster whose audit trail is a file.
fn cluster() -> (Node, PathBuf) {
    let mut node = Node::sealed(&[]);
    let file = node.audit_to_file();
    (node, file)
}

fn lines(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Asserts that exactly these lines came behind the first `seen` ones; each has all of its words.
#[track_caller]
fn came(file: &Path, seen: &mut usize, wanted: &[&[&str]]) {
    let all = lines(file);
    let new = all.get(*seen..).unwrap_or_default();
    assert_eq!(new.len(), wanted.len(), "{}", new.join("\n"));
    for (line, words) in new.iter().zip(wanted) {
        for word in *words {
            assert!(line.contains(word), "{word} in {line}");
        }
    }
    *seen = all.len();
}

const DONE: &str = "\"outcome\":\"done\"";
const REFUSED: &str = "\"outcome\":\"refused\"";

#[test]
fn each_use_of_a_key_is_a_line() {
    let (mut node, file) = cluster();
    let mut seen = 0;
    let id = node.pgseal_dir(&["key", "show", "--json", "DIR"]).text;
    let id = id.split("\"keyring_id\": \"").nth(1).expect("the identity").get(..32).expect("32");
    let cluster = format!("\"cluster\":\"{id}\"");
    came(&file, &mut seen, &[]);

    // A start of the server: its helper opens the keyring, once. Sessions write nothing.
    node.start();
    assert_eq!(node.sql("select 1"), "1");
    let dir = format!("\"path\":\"{}\"", node.data().display());
    let key = node.home().join("key").display().to_string();
    let by_file = format!("\"key\":{{\"provider\":\"file:{key}\"}}");
    let start: &[&str] = &[
        "\"event\":\"unlock\"",
        DONE,
        "\"command\":\"helper keys\"",
        "\"program\":\"postgres\"",
        &cluster,
        &dir,
        &by_file,
        "\"generation\":1",
        "\"user\":\"",
        "\"host\":\"",
        "\"mac\":\"",
    ];
    came(&file, &mut seen, &[start]);

    let next = node.new_key_file("next.key");
    came(&file, &mut seen, &[&["\"event\":\"new-key\"", "next.key", DONE]]);
    ends(&node.pgseal_dir(&["key", "rotate", "DIR", "-K", &next]), 0, &[]);
    let to = format!("\"new_key\":{{\"provider\":\"{next}\"}}");
    came(
        &file,
        &mut seen,
        &[&["\"event\":\"rotate\"", DONE, "\"exit\":0", &by_file, &to, &cluster]],
    );
    let spare = node.new_key_file("spare.key");
    ends(&node.pgseal_dir(&["key", "add-recipient", "spare", "DIR", "-K", &spare]), 0, &[]);
    // What it says of a running server's files does not matter here.
    assert!(node.pgseal_dir(&["verify", "DIR", "-K", &spare]).code < 2);
    ends(&node.pgseal_dir(&["key", "remove-recipient", "spare", "DIR"]), 0, &[]);
    ends(&node.pgseal_dir(&["key", "renew", "DIR"]), 0, &[]);
    let backup = ["key", "backup", "DIR", "--lock", PASSPHRASE, "-o", "escrow.txt"];
    ends(&node.pgseal_dir(&backup), 0, &[]);
    ends(&node.pgseal_dir(&["key", "check", "DIR", "--escrow", "escrow.txt"]), 0, &[]);
    ends(&node.pgseal_dir(&["config", "lock", "DIR"]), 0, &[]);
    came(
        &file,
        &mut seen,
        &[
            &["\"event\":\"new-key\""],
            &["\"event\":\"add-recipient\"", DONE, "\"recipient\":\"spare\""],
            &["\"event\":\"unlock\"", "\"command\":\"verify\"", "\"recipient\":\"spare\"", DONE],
            &["\"event\":\"remove-recipient\"", DONE, "recipient spare"],
            &["\"event\":\"renew\"", DONE, "\"generation\":2"],
            &["\"event\":\"backup\"", DONE, "a passphrase"],
            &["\"event\":\"check\"", DONE],
            &["\"event\":\"config-lock\"", DONE],
        ],
    );
    // Whoever only looks uses no key.
    for look in
        [&["status", "DIR"][..], &["key", "show", "DIR"], &["status", "--prometheus", "DIR"]]
    {
        ends(&node.pgseal_dir(look), 0, &[]);
    }
    came(&file, &mut seen, &[]);

    // Refused: a wrong key, a missing one, and a start without its key.
    let wrong: &[&str] = &[REFUSED, "\"exit\":11", "wrong key", &cluster];
    ends(&node.pgseal_dir(&["key", "backup", "DIR", "-K", &spare, "-o", "no"]), 11, &[]);
    node.stop();
    let next_file = node.home().join("next.key");
    fs::rename(&next_file, node.home().join("away")).expect("the key goes");
    let log = node.try_start().expect_err("a start without its key");
    assert!(log.contains("no key"), "{log}");
    let no_key: &[&str] = &["\"event\":\"unlock\"", REFUSED, "\"exit\":10", "no key", &cluster];
    came(&file, &mut seen, &[&[wrong, &["\"event\":\"backup\""]].concat(), no_key]);
    fs::rename(node.home().join("away"), &next_file).expect("the key is back");

    let restore = ["key", "restore", "DIR", "escrow.txt", "--unlock", PASSPHRASE, "-K", &spare];
    ends(&node.pgseal_dir(&[&restore[..], &["--force"]].concat()), 0, &[]);
    let new = format!("\"new_key\":{{\"provider\":\"{spare}\"}}");
    came(&file, &mut seen, &[&["\"event\":\"restore\"", DONE, &new, &cluster, "a passphrase"]]);

    // No line holds a key, and every text is one line.
    let all = lines(&file).join("\n");
    for name in ["key", "next.key", "spare.key"] {
        let secret = fs::read_to_string(node.home().join(name)).expect("a key");
        assert!(!all.contains(secret.trim()), "the trail shows the key {name}");
    }
    assert!(!all.contains("battery"), "the trail shows the argument of a command");
    let checked = node.pgseal_dir(&["audit", "verify", "trail/audit.log", "-D", "DIR"]);
    ends(&checked, 0, &["Each line continues the one before it", "MACs are right"]);
    seen += 1;
    assert_eq!(lines(&file).len(), seen, "the check has used a key, too");

    changed_lines_are_found(&node, &file);
}

/// Each change of a line, each line that is missing, and a line of somebody without the key.
fn changed_lines_are_found(node: &Node, file: &Path) {
    let whole = lines(file);
    let copy = node.home().join("copy.log");
    let check = |changed: &[String], with_key: bool| {
        fs::write(&copy, changed.join("\n") + "\n").expect("a copy");
        let mut words = vec!["audit", "verify", "copy.log"];
        if with_key {
            words.extend(["-D", "DIR"]);
        }
        node.pgseal_dir(&words)
    };
    ends(&check(&whole, false), 0, &["No MAC was checked"]);
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] = changed[at].replacen("\"user\":\"", "\"user\":\"x", 1);
        let has_mac = whole[at].contains("\"mac\":");
        let is_last = at + 1 == whole.len();
        let found = check(&changed, has_mac);
        assert_eq!(found.code, i32::from(has_mac || !is_last), "line {at}: {}", found.text);
        let mut missing = whole.clone();
        missing.remove(at);
        let found = check(&missing, false);
        assert_eq!(found.code, i32::from(!is_last), "line {at} is gone: {}", found.text);
    }
    // The last line alone is cut off: that is not noticed, and the command says so.
    let cut = check(&whole[..whole.len() - 1], true);
    ends(&cut, 0, &["cut off at the end are not noticed"]);
}

#[test]
fn a_required_trail_that_cannot_be_written_stops_everything() {
    let (mut node, file) = cluster();
    node.set_env("PGSEAL_AUDIT_REQUIRED", "yes");
    let keyring = fs::read(node.file("pgseal/keyring")).expect("the keyring");
    let next = node.new_key_file("next.key");
    ends(&node.pgseal_dir(&["key", "rotate", "DIR", "-K", &next]), 0, &[]);
    let begun = "\"outcome\":\"begun\"";
    let mut seen = 0;
    came(
        &file,
        &mut seen,
        &[
            &["\"event\":\"new-key\"", begun],
            &["\"event\":\"new-key\"", DONE],
            &["\"event\":\"rotate\"", begun],
            &["\"event\":\"rotate\"", DONE],
        ],
    );
    assert_ne!(fs::read(node.file("pgseal/keyring")).expect("the keyring"), keyring);

    // The place of the file is gone.
    let (trail, away) = (node.home().join("trail"), node.home().join("away"));
    fs::rename(&trail, &away).expect("the directory goes");
    let keyring = fs::read(node.file("pgseal/keyring")).expect("the keyring");
    let spare = format!("file:{}", node.home().join("key").display());
    for refused in [
        &["key", "rotate", "DIR", "-K", &spare][..],
        &["key", "backup", "DIR", "--lock", PASSPHRASE],
        &["key", "renew", "DIR"],
        &["verify", "DIR"],
        &["key", "new", "-o", "not-made"],
    ] {
        ends(&node.pgseal_dir(refused), 23, &["the audit trail", "it is required"]);
    }
    assert_eq!(fs::read(node.file("pgseal/keyring")).expect("the keyring"), keyring);
    assert!(!node.home().join("not-made").exists());
    let log = node.try_start().expect_err("a start that cannot be recorded");
    assert!(log.contains("the audit trail"), "{log}");
    ends(&node.pgseal_dir(&["audit", "test"]), 1, &["NOT WRITTEN", "It is required"]);

    // Not required: a warning, and the work goes on.
    node.set_env("PGSEAL_AUDIT_REQUIRED", "no");
    let warned = node.pgseal_dir(&["key", "rotate", "DIR", "-K", &spare]);
    ends(&warned, 0, &["the audit trail", "is not recorded there"]);
    fs::rename(&away, &trail).expect("the directory is back");
    node.set_env("PGSEAL_AUDIT_REQUIRED", "yes");
    node.start();
    node.stop();
    came(&file, &mut seen, &[&["\"event\":\"unlock\"", DONE, "\"program\":\"postgres\""]]);

    // A trail in the data directory would be that of the attacker who can write there.
    node.set_env("PGSEAL_AUDIT", &format!("file:{}/audit.log", node.data().display()));
    ends(&node.pgseal_dir(&["verify", "DIR"]), 23, &["it lies in the data directory"]);

    // What the file of the administrator says takes precedence over the environment.
    let conf = node.make_dir("etc").join("audit.conf");
    fs::write(&conf, format!("to = file:{}\n", file.display())).expect("the file");
    node.set_env("PGSEAL_AUDIT_CONF", &conf.display().to_string());
    node.set_env("PGSEAL_AUDIT", "off");
    ends(&node.pgseal_dir(&["key", "check", "DIR"]), 0, &[]);
    came(&file, &mut seen, &[&["\"event\":\"check\"", DONE]]);
    fs::write(&conf, "to = nowhere\n").expect("the file");
    ends(&node.pgseal_dir(&["key", "check", "DIR"]), 2, &["audit.conf: line 1"]);
}

/// rsyslog, as an ordinary user, with a socket of its own.
struct Rsyslog(Child);

impl Drop for Rsyslog {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn rsyslog_takes_the_lines() {
    let program = Path::new("/usr/sbin/rsyslogd");
    assert!(program.exists(), "{}: run scripts/setup.sh test", program.display());
    let (mut node, _) = cluster();
    let place = node.make_dir("syslog");
    let (socket, out) = (place.join("log"), place.join("out"));
    let conf = format!(
        "module(load=\"imuxsock\" SysSock.Use=\"off\")\n\
         input(type=\"imuxsock\" Socket=\"{}\" CreatePath=\"off\")\n\
         template(name=\"all\" type=\"string\" \
         string=\"%syslogfacility-text%.%syslogseverity-text% %programname%:%msg%\\n\")\n\
         *.* action(type=\"omfile\" file=\"{}\" template=\"all\")\n",
        socket.display(),
        out.display()
    );
    fs::write(place.join("conf"), conf).expect("the configuration");
    let mut daemon = Command::new(program);
    daemon.arg("-n").arg("-f").arg(place.join("conf")).arg("-i").arg(place.join("pid"));
    let _daemon =
        Rsyslog(daemon.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("rsyslog runs"));
    let made = Patience::seconds(60).wait_for(|| socket.exists().then_some(()));
    made.expect("rsyslog makes its socket");
    node.set_env("PGSEAL_AUDIT", &format!("syslog:{}", socket.display()));
    ends(&node.pgseal_dir(&["audit", "test"]), 0, &["took the line"]);
    node.start();
    node.stop();
    ends(&node.pgseal_dir(&["key", "check", "DIR", "-K", "file:/nowhere/at/all"]), 10, &[]);
    let wanted = [
        "authpriv.notice pgseal: {\"pgseal_audit\":1,",
        "\"event\":\"unlock\",\"outcome\":\"done\"",
        "authpriv.warning pgseal: {\"pgseal_audit\":1,",
    ];
    let text = || fs::read_to_string(&out).unwrap_or_default();
    let is_there = || wanted.iter().all(|words| text().contains(words)).then_some(());
    assert!(Patience::seconds(60).wait_for(is_there).is_some(), "{}", text());
}

/// A key store that is down when the server starts: the plugin of docs/key-stores.md cannot reach
/// its file. The log and systemd are told; the store comes back, and the server is up.
#[test]
fn a_start_that_waits_for_its_key_store_says_so() {
    let mut node = Node::sealed(&[]);
    let plugins = node.make_dir("providers");
    let page = include_str!("../../../docs/key-stores.md");
    let plugin = page.split("```python\n").nth(1).and_then(|rest| rest.split("```").next());
    let script = node.home().join("keyfile.py");
    fs::write(&script, plugin.expect("the plugin of the page")).expect("it can be written");
    install(&script, &plugins.join("pgseal-provider-keyfile")).expect("the plugin");
    let store = node.make_dir("store");
    fs::write(store.join("key"), [7; 32]).expect("the store's key");
    node.set_env("PGSEAL_PROVIDERS_DIR", &plugins.display().to_string());
    let uri = format!("keyfile:{}", store.join("key").display());
    ends(&node.pgseal_dir(&["key", "rotate", "DIR", "-K", &uri]), 0, &[]);
    node.set_env("PGSEAL_PROVIDER", &uri);
    node.set_env("PGSEAL_PROVIDER_WAIT", "0");

    // Where the store was, there is something else: the plugin says "unavailable".
    let away = node.home().join("away");
    let (gone, back) = (store.clone(), away.clone());
    fs::rename(&store, &away).expect("the store goes");
    fs::write(&store, "").expect("something else");
    let log = node.try_start().expect_err("a start without its store");
    assert!(log.contains("it cannot be reached"), "{log}");

    let socket = node.make_dir("notify").join("socket");
    let listener = UnixDatagram::bind(&socket).expect("a socket");
    fs::set_permissions(&socket, std::os::unix::fs::PermissionsExt::from_mode(0o666))
        .expect("chmod");
    listener.set_read_timeout(Some(Duration::from_secs(300))).expect("a timeout");
    let systemd = thread::spawn(move || {
        let mut messages = Vec::new();
        let mut bytes = [0; 4096];
        loop {
            let len = listener.recv(&mut bytes).expect("a message");
            let message = String::from_utf8_lossy(&bytes[..len]).into_owned();
            let is_waiting = message.contains("EXTEND_TIMEOUT_USEC=");
            messages.push(message.clone());
            if is_waiting && messages.len() == 2 {
                // It was told twice; now the store comes back.
                fs::remove_file(&gone).expect("the other thing goes");
                fs::rename(&back, &gone).expect("the store is back");
            }
            if message == "STATUS=" {
                return messages;
            }
        }
    });
    node.set_env("NOTIFY_SOCKET", &socket.display().to_string());
    node.set_env("PGSEAL_PROVIDER_WAIT", "240");
    node.start();
    let messages = systemd.join().expect("it listens");
    let first = messages.first().expect("a message");
    assert!(first.starts_with("STATUS=waiting for the key store of keyfile:"), "{first}");
    assert!(first.contains("Not a directory"), "{first}");
    assert!(first.ends_with("\nEXTEND_TIMEOUT_USEC=300000000"), "{first}");
    let log = node.log();
    assert!(log.contains("trying again for 240 s"), "{log}");
    assert!(log.contains("the store answers"), "{log}");
    node.stop();
}
