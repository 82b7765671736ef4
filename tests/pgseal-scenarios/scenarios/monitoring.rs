//! The counters of a running server, and who may read them.
#![allow(clippy::panic, reason = "a test ends where a step fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use pgseal_cluster::free_port;
use pgseal_scenarios::files::{flip_bit, page_off, wait_for};
use pgseal_scenarios::{Node, Outcome};

const MARKER: &str = "canary-monitoring-Wd3k";

/// The samples of `pgseal status --prometheus`: name with labels, and value.
///
/// # Panics
/// If the text violates the exposition format, version 0.0.4: each metric in one group, HELP and
/// TYPE before the samples, no sample twice, only allowed characters in names and labels, a line
/// feed at the end.
fn samples(text: &str) -> BTreeMap<String, u64> {
    assert!(text.ends_with('\n'));
    let (mut samples, mut done) = (BTreeMap::new(), BTreeSet::new());
    let mut lines = text.lines().peekable();
    while let Some(help) = lines.next() {
        let name = help.strip_prefix("# HELP ").unwrap_or_else(|| panic!("no HELP: {help}"));
        let name = name.split(' ').next().unwrap_or_default();
        let letters = |text: &str| {
            !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
        };
        assert!(letters(name) && done.insert(name), "{help}");
        let kind = lines.next().and_then(|line| line.strip_prefix(&format!("# TYPE {name} ")));
        let kind = kind.unwrap_or_else(|| panic!("no TYPE of {name}"));
        assert_eq!(kind == "counter", name.ends_with("_total"), "{name} {kind}");
        assert!(["counter", "gauge"].contains(&kind), "{name} {kind}");
        while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
            let (what, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
            let labels = what.strip_prefix(&format!("{name}{{")).and_then(|l| l.strip_suffix('}'));
            for label in labels.unwrap_or_else(|| panic!("{line}")).split("\",") {
                let (label, _) = label.split_once("=\"").unwrap_or_else(|| panic!("{line}"));
                assert!(letters(label), "{line}");
            }
            let value = value.parse().unwrap_or_else(|_| panic!("{line}"));
            assert!(samples.insert(what.to_owned(), value).is_none(), "twice: {what}");
        }
    }
    samples
}

/// The counters of a running server, by name and class.
struct Seen(BTreeMap<String, u64>, String);

impl Seen {
    fn of(node: &Node) -> Seen {
        let data = node.data().display().to_string();
        let said = node.pgseal(&["status", "--prometheus", &data]);
        assert_eq!(said.code, 0, "{}", said.text);
        Seen(samples(&said.text), data)
    }

    fn get(&self, counter: &str, class: &str) -> u64 {
        let key = format!("pgseal_{counter}_total{{datadir=\"{}\",class=\"{class}\"}}", self.1);
        *self.0.get(&key).unwrap_or_else(|| panic!("no {key} in {:?}", self.0))
    }

    fn gauge(&self, name: &str) -> Option<u64> {
        self.0.get(&format!("{name}{{datadir=\"{}\"}}", self.1)).copied()
    }
}

fn relation_file(node: &Node, table: &str) -> PathBuf {
    node.file(&node.sql(&format!("select pg_relation_filepath('{table}')")))
}

#[test]
fn counters_rise_as_the_server_works() {
    let mut node = Node::sealed(
        &[("shared_buffers", "1MB"), ("io_combine_limit", "1")]
            [..usize::from(pgseal_scenarios::server_major().as_str() >= "17") + 1],
    );
    let before = Seen::of(&node);
    assert_eq!(before.gauge("pgseal_up"), Some(0));
    assert_eq!(before.gauge("pgseal_start_time_seconds"), None);

    node.start();
    let start = Seen::of(&node);
    assert_eq!(start.gauge("pgseal_up"), Some(1));
    assert!(start.gauge("pgseal_start_time_seconds").is_some_and(|time| time > 1_700_000_000));

    // A table far larger than the buffers. The checkpoint writes the pages that are still in them.
    node.sql(&format!(
        "create table t as select g, '{MARKER}' || repeat('x', 200) v from generate_series(1, 20000) g;;
         checkpoint"
    ));
    let pages: u64 = node.sql("select pg_relation_size('t') / 8192").parse().expect("a number");
    let written = Seen::of(&node);
    let sealed = |seen: &Seen, class| seen.get("sealed_blocks", class);
    assert!(pages > 500);
    assert!(sealed(&written, "relation") - sealed(&start, "relation") >= pages);
    assert!(sealed(&written, "wal") > sealed(&start, "wal"));
    let bytes = written.get("sealed_bytes", "relation") - start.get("sealed_bytes", "relation");
    assert!(bytes >= pages * 8192, "{bytes} bytes, {pages} pages");

    node.sql("select count(*) from t");
    let scanned = Seen::of(&node);
    let opened = |seen: &Seen, class| seen.get("opened_blocks", class);
    let (read, most) = (opened(&scanned, "relation") - opened(&written, "relation"), pages + 500);
    // The server read all pages except those that were in the buffers.
    assert!(read >= pages - 128 && read <= most, "{read} blocks read, {pages} pages");

    node.sql("set work_mem = '64kB';; select count(distinct v) from t");
    let spilled = Seen::of(&node);
    assert!(sealed(&spilled, "temp-file") > sealed(&scanned, "temp-file"));
    for class in ["relation", "wal", "slru"] {
        assert_eq!(spilled.get("failed_blocks", class), 0);
        assert_eq!(spilled.get("failed_files", class), 0);
    }

    // A crash of one backend restarts the server's processes, but does not reset the counters.
    let mut victim = node.session();
    let pid = victim.sql("select pg_backend_pid()");
    node.succeed(std::process::Command::new("kill").args(["-9", &pid]));
    wait_for("the end of it", || node.log().contains("was terminated by signal 9"));
    node.wait_until("select true");
    drop(victim);
    assert!(sealed(&Seen::of(&node), "relation") >= sealed(&spilled, "relation"));

    // A new start of the server resets the counters.
    node.stop();
    node.start();
    assert!(sealed(&Seen::of(&node), "relation") < sealed(&spilled, "relation"));
    node.stop();
    node.assert_sound(MARKER);
}

#[test]
fn damage_is_counted_and_named() {
    let mut node = Node::sealed(&[]);
    node.start();
    node.sql("create table t as select g from generate_series(1, 10000) g;; checkpoint");
    let file = relation_file(&node, "t");
    node.stop();
    flip_bit(&file, page_off(3) + 100);
    node.start();
    let before = Seen::of(&node);
    let said = node.try_sql("select count(*) from t").expect_err("the page is damaged");
    assert!(said.contains("invalid page in block 3"), "{said}");
    let after = Seen::of(&node);
    let failed = |seen: &Seen| seen.get("failed_blocks", "relation");
    assert_eq!((failed(&before), failed(&after)), (0, 1));

    // A plain file in the place of a sealed one.
    fs::write(node.file("base/1/PG_VERSION"), "15\n").expect("plain by design");
    let other = node.sql("create table u (x int);; select pg_relation_filepath('u')");
    fs::write(node.file(&other), [1; 8192]).expect("the file is there");
    let said = node.try_sql("select count(*) from u");
    assert!(said.is_err(), "{said:?}");
    let refused = Seen::of(&node).get("failed_files", "relation");
    assert!(refused >= 1, "{refused}");

    let data = node.data().display().to_string();
    let status = node.pgseal(&["status", &data]);
    assert!(status.text.contains("since the server started"), "{}", status.text);
    assert!(status.text.contains(&format!("{refused} file")), "{}", status.text);
    let json = node.pgseal(&["status", "--counters", "--json", &data]);
    assert!(json.text.contains("\"failed_blocks\": 1"), "{}", json.text);
    // With --files, the results of a scan of the files are metrics as well.
    let files = samples(&node.pgseal(&["status", "--prometheus", "--files", &data]).text);
    let plain = format!("pgseal_plain_where_sealed_is_due{{datadir=\"{data}\"}}");
    assert_eq!(files.get(&plain), Some(&1), "{files:?}");
}

/// Only root and the server's user can read the memory of the counters, which contains only
/// numbers.
#[test]
fn counters_are_for_root_and_the_servers_user() {
    let mut node = Node::sealed(&[]);
    node.start();
    let pid = fs::read_to_string(node.file("postmaster.pid")).expect("a server runs");
    let pid = pid.lines().next().expect("its process");
    let fds = fs::read_dir(format!("/proc/{pid}/fd")).expect("our own server");
    let memory = fds
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| {
            fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains("pgseal-counters"))
        })
        .expect("the server counts");
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &fs::metadata(&memory).expect("it is there").permissions(),
    );
    assert_eq!(mode & 0o777, 0o600, "{mode:o}");
    // Programs that the server starts do not inherit the descriptor.
    let list = node.home().join("fds");
    node.sql(&format!(
        "copy (select 1) to program 'cat > /dev/null; ls -l /proc/self/fd > {}'",
        list.display()
    ));
    let list = fs::read_to_string(list).expect("the list");
    assert!(list.contains("/proc/") && !list.contains("pgseal-counters"), "{list}");

    if pgseal_scenarios::is_root() {
        let mut other = std::process::Command::new(node.pgseal_program());
        std::os::unix::process::CommandExt::uid(&mut other, 65534);
        let pid: u32 = pid.parse().expect("a number");
        let read = fs::read_dir(format!("/proc/{pid}/fd")).is_ok();
        assert!(read, "root may");
        // Other users cannot read /proc/PID/fd of the server.
        let said = Outcome::from(
            other.args(["status", "--counters"]).arg(node.data()).output().expect("it runs"),
        );
        assert_ne!(said.code, 0, "{}", said.text);
    }
    node.stop();
}

/// A server of OpenSSH on a loopback address, run by the servers' user; stopped at drop.
struct Sshd(Child);

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts sshd. Who logs in finds `pgseal` in PATH, and PGDATA names the node's data directory.
/// Makes a client `ssh` in the returned directory: OpenSSH's own, with a configuration for this
/// server.
fn sshd(node: &Node) -> (Sshd, PathBuf) {
    let dir = node.make_dir("ssh");
    let port = free_port().expect("a port");
    let shell = |script: String| {
        let mut command = node.bare("/bin/sh");
        node.succeed(command.current_dir(&dir).args(["-ec", &script]));
    };
    let at = dir.display();
    let programs = node.pgseal_program();
    let programs = programs.parent().expect("a directory").display();
    shell(format!(
        "command -v /usr/sbin/sshd >/dev/null || {{ echo 'no sshd: scripts/setup.sh scenarios' >&2; exit 1; }}
         ssh-keygen -q -t ed25519 -N '' -f host
         ssh-keygen -q -t ed25519 -N '' -f user
         cp user.pub authorized
         echo \"[127.0.0.1]:{port} $(cat host.pub)\" >known
         cat >sshd.conf <<END
ListenAddress 127.0.0.1:{port}
HostKey {at}/host
AuthorizedKeysFile {at}/authorized
StrictModes no
UsePAM no
PasswordAuthentication no
PidFile none
SetEnv PATH={programs}:/usr/bin:/bin PGDATA={data}
END
         cat >ssh.conf <<END
Host db1 db2
  HostName 127.0.0.1
  Port {port}
  IdentityFile {at}/user
  IdentitiesOnly yes
  UserKnownHostsFile {at}/known
Host stranger
  HostName 127.0.0.1
  Port {port}
  UserKnownHostsFile /dev/null
  IdentityFile /dev/null
  IdentitiesOnly yes
END
         mkdir bin
         printf '#!/bin/sh\\nexec /usr/bin/ssh -F {at}/ssh.conf \"$@\"\\n' >bin/ssh
         chmod 755 bin/ssh",
        data = node.data().display(),
    ));
    let mut command = node.bare("/usr/sbin/sshd");
    command.args(["-D", "-e", "-f"]).arg(dir.join("sshd.conf"));
    command.stdin(Stdio::null()).stderr(node.output_file("sshd.log"));
    let server = Sshd(command.spawn().expect("sshd starts"));
    wait_for("sshd", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    (server, dir.join("bin"))
}

/// `pgseal doctor --fleet` over the same hosts: one table, the checks that are not well, and the
/// worst exit status.
fn fleet(node: &Node, client: &Path) {
    let list = node.home().join("hosts.txt");
    let ask = |hosts: &str, more: &[&str]| -> Outcome {
        fs::write(&list, hosts).expect("the list");
        let list = list.display().to_string();
        let mut command = node.pgseal_command(&[&["doctor", "--fleet", &list], more].concat());
        command.env("PATH", format!("{}:/usr/bin:/bin", client.display()));
        command.output().expect("pgseal runs").into()
    };
    let data = node.data().display().to_string();
    let three = format!("# all\ndb1\ndb2:{data}  # the same\n\n{data}\n");
    let said = ask(&three, &["--jobs", "2"]);
    assert_eq!(said.code, 1, "{}", said.text);
    assert!(said.text.contains("WARN  escrow") && said.text.contains("on 3 clusters: db1 db2:/"));
    assert!(said.text.contains("3 clusters: 0 ok, 3 with warnings, 0 with failures"));
    // A command for the shell there, with an environment.
    let said = ask("db1\n", &["--remote", "env PGDATA=/nowhere pgseal"]);
    assert_eq!(said.code, 2, "{}", said.text);
    assert!(said.text.contains("no answer: /nowhere"), "{}", said.text);
    // Options reach ssh.
    let said = ask("db1\n", &["--ssh-option", "IdentityFile=/dev/null", "--ssh-option", "User=no"]);
    assert!(said.code == 2 && said.text.contains("no answer"), "{}", said.text);
    // One that does not answer in time counts, and the others are asked.
    let said = ask("db1\ndb2\n", &["--remote", "sleep 60; pgseal", "--timeout", "2"]);
    assert_eq!(said.code, 2, "{}", said.text);
    assert_eq!(said.text.matches("did not answer within 2 s").count(), 2, "{}", said.text);
    let said = ask("stranger\ndb1\n", &[]);
    assert!(said.code == 2 && said.text.contains("Host key verification failed"), "{}", said.text);
    assert!(said.text.contains("1 with warnings, 0 with failures, 1 without an answer"));
    // The directory is one word there, whatever is in it.
    let marker = node.home().join("ran");
    let said = ask(&format!("db1:/x'; touch {}; '\n", marker.display()), &[]);
    assert!(said.code == 2 && !marker.exists(), "{}", said.text);
    // A line that ssh would take for an option is refused before anybody is asked.
    let said = ask("db1\n-oProxyCommand=touch\n", &[]);
    assert!(said.code == 2 && said.text.contains("no host and no path"), "{}", said.text);
    assert!(!said.text.contains("clusters:"), "{}", said.text);
    let json = ask(&three, &["--json"]);
    assert!(json.text.contains("\"clusters_with_warnings\": 3"), "{}", json.text);
}

#[test]
#[ignore = "long: make test-scenarios"]
fn clusters_behind_a_real_ssh_are_one_table() {
    let mut node = Node::sealed(&[]);
    node.start();
    let (server, client) = sshd(&node);
    let data = node.data().display().to_string();
    let ask = |more: &[&str]| -> Outcome {
        let mut command = node.pgseal_command(&[&["status", "--hosts"], more].concat());
        command.env("PATH", format!("{}:/usr/bin:/bin", client.display()));
        command.output().expect("pgseal runs").into()
    };
    // A host with a directory, a host whose PGDATA says it, and a directory here.
    let table = ask(&["db1", &format!("db2:{data}"), &data]);
    assert_eq!(table.code, 0, "{}", table.text);
    let sealed: Vec<&str> = table
        .text
        .lines()
        .filter(|line| line.contains("| running | yes    | aes-256-gcm |"))
        .collect();
    assert_eq!(sealed.len(), 3, "{}", table.text);
    assert!(sealed[0].starts_with("| db1 ") && sealed[1].starts_with("| db2:/"), "{}", table.text);
    // The name of a directory is one word for the shell there.
    let odd = node.home().join("it's a $(touch bad)");
    std::os::unix::fs::symlink(node.data(), &odd).expect("a link");
    let table = ask(&[&format!("db1:{}", odd.display())]);
    assert_eq!(table.code, 0, "{}", table.text);
    // A host that is not known, and one without a right to log in, are asked no question.
    let refused = ask(&["stranger", "db1"]);
    assert_eq!(refused.code, 40, "{}", refused.text);
    assert!(
        refused.text.contains("no answer") && refused.text.contains("| db1 "),
        "{}",
        refused.text
    );
    assert!(refused.text.contains("Host key verification failed"), "{}", refused.text);
    fleet(&node, &client);
    // A host that is down.
    drop(server);
    let down = ask(&["db1"]);
    assert_eq!(down.code, 40, "{}", down.text);
    assert!(down.text.contains("Connection refused"), "{}", down.text);
    node.stop();
}
