//! Runs etcd and three Patronis as child processes.
#![allow(clippy::panic, reason = "a test ends where a step fails")]

use std::env;
use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use pgseal_cluster::Patience;
use pgseal_scenarios::files::names_in;
use pgseal_scenarios::{Node, assert_hidden};
use rustix::process::{
    Pid, Signal, WaitOptions, kill_process, set_child_subreaper, test_kill_process, waitpid,
};

/// The documented configuration, with other names, addresses and times.
const CONFIG: &str = include_str!("../../../../packaging/patroni/node1.yml");
const ENVIRONMENT: &str = include_str!("../../../../packaging/patroni/pgseal.conf");
/// What Patroni runs as `postgres` and `pg_ctl` on a directory with a locked configuration.
const WRAPPER: &str = include_str!("../../../../packaging/patroni/locked-wrapper.sh");

pub struct Lab {
    /// Whose programs are used, and below whose home everything lies; its own server never runs.
    base: Node,
    etcd: Child,
    members: Vec<Member>,
    synchronous: bool,
    /// Until it is dropped, after all else.
    _reaper: Reaper,
}

/// Reaps servers' processes, which Patroni starts as orphans. Patroni waits until stopped servers
/// are gone, and in a container no other process might reap them.
struct Reaper {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Reaper {
    fn new() -> Reaper {
        set_child_subreaper(Pid::from_raw(1)).expect("this process reaps orphans");
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while !told.load(Ordering::Relaxed) {
                for pid in dead_orphans() {
                    let _ = waitpid(Some(pid), WaitOptions::NOHANG);
                }
                thread::sleep(Duration::from_millis(100));
            }
        });
        Reaper { stop, thread: Some(thread) }
    }
}

/// The dead among our children that are servers: this test starts none itself.
fn dead_orphans() -> Vec<Pid> {
    let wanted = format!("(postgres) Z {} ", std::process::id());
    let Ok(listing) = fs::read_dir("/proc") else { return Vec::new() };
    let stats = listing.filter_map(|item| fs::read_to_string(item.ok()?.path().join("stat")).ok());
    let dead = stats.filter(|stat| stat.contains(&wanted));
    dead.filter_map(|stat| Pid::from_raw(stat.split(' ').next()?.parse().ok()?)).collect()
}

impl Drop for Reaper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The postmaster of a data directory, if its lock file is there.
fn postmaster(data: &Path) -> Option<Pid> {
    let text = fs::read_to_string(data.join("postmaster.pid")).ok()?;
    Pid::from_raw(text.lines().next()?.trim().parse().ok()?)
}

struct Member {
    name: String,
    config: PathBuf,
    log: PathBuf,
    environment: Vec<(String, String)>,
    patroni: Option<Child>,
    node: Node,
}

impl Lab {
    /// Three members that run PostgreSQL's programs themselves.
    pub fn new() -> Lab {
        Lab::with(|_| pgseal_testkit::bindir().expect("PostgreSQL"))
    }

    /// Three members that run `postgres` and `pg_ctl` through the wrapper for locked directories.
    pub fn with_wrapper() -> Lab {
        Lab::with(wrapped)
    }

    fn with(bindir: fn(&Node) -> PathBuf) -> Lab {
        for program in ["patroni", "patronictl", "etcd"] {
            let found = ["/usr/bin", "/usr/local/bin"]
                .iter()
                .any(|dir| Path::new(dir).join(program).exists());
            assert!(found, "no {program} here; install it: scripts/setup.sh scenarios");
        }
        let base = Node::sealed(&[]);
        let bindir = bindir(&base);
        let [client, peer, rest, server] = free_ports();
        let etcd = start_etcd(&base, client, peer);
        let members: Vec<Member> =
            (1..=3).map(|n| Member::new(&base, &bindir, n, [client, rest, server])).collect();
        Lab { base, etcd, members, synchronous: true, _reaper: Reaper::new() }
    }

    /// The server of a member.
    pub fn node(&self, index: usize) -> &Node {
        &self.members[index].node
    }

    /// The server of a member, to change how it is spoken to.
    pub fn node_mut(&mut self, index: usize) -> &mut Node {
        &mut self.members[index].node
    }

    /// The logs of a member's Patroni and server.
    pub fn log(&self, index: usize) -> String {
        fs::read_to_string(&self.members[index].log).unwrap_or_default()
    }

    /// Starts a Patroni.
    pub fn start(&mut self, index: usize) {
        // The wrapper finds the program there.
        let program = self.base.pgseal_program();
        let mut path = vec![program.parent().expect("a directory").to_owned()];
        path.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
        let path = env::join_paths(path).expect("paths");
        let member = &mut self.members[index];
        let log = File::options().append(true).create(true).open(&member.log).expect("a log");
        let mut command = self.base.bare("/usr/bin/patroni");
        for name in ["PGHOST", "PGPORT", "PGUSER", "PGDATABASE"] {
            command.env_remove(name);
        }
        command.arg(&member.config).envs(member.environment.iter().cloned()).env("PATH", path);
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a descriptor")).stderr(log);
        member.patroni = Some(command.spawn().expect("patroni runs"));
    }

    /// The member that accepts writes, if there is exactly one.
    fn find_leader(&self) -> Option<usize> {
        let leads = |index: &usize| {
            let answer = self.members[*index].node.try_sql("select not pg_is_in_recovery()");
            answer.as_deref() == Ok("t")
        };
        let leaders: Vec<usize> = (0..self.members.len()).filter(leads).collect();
        (leaders.len() == 1).then(|| leaders[0])
    }

    pub fn leader(&self) -> usize {
        self.wait("a leader", || self.find_leader())
    }

    /// Waits until another member is the leader.
    pub fn wait_for_new_leader(&self, not: &[usize]) -> usize {
        self.wait("a new leader", || self.find_leader().filter(|index| !not.contains(index)))
    }

    /// Waits until so many standbys stream from the leader, and one of them is the synchronous one.
    pub fn wait_for_followers(&self, count: usize) {
        let sync = usize::from(count > 0 && self.synchronous);
        let query = format!(
            "select count(*) = {count} and count(*) filter (where sync_state = 'sync') = {sync} \
             from pg_stat_replication where state = 'streaming'"
        );
        self.wait("followers", || {
            let leader = self.find_leader()?;
            let answer = self.members[leader].node.try_sql(&query);
            (answer.as_deref() == Ok("t")).then_some(())
        });
    }

    fn wait<T>(&self, what: &str, done: impl Fn() -> Option<T>) -> T {
        let patience = Patience::every(Duration::from_millis(200), 80);
        if let Some(result) = patience.wait_for(done) {
            return result;
        }
        let logs: String = (0..3).map(|index| tail(&self.log(index)) + "\n----\n").collect();
        panic!("waited in vain for {what}:\n{logs}");
    }

    /// Stops the processes that send WAL, and nothing else.
    pub fn freeze_senders(&self, index: usize) {
        for pid in self.senders(index) {
            kill_process(pid, Signal::STOP).expect("it is there");
        }
    }

    fn senders(&self, index: usize) -> Vec<Pid> {
        let pids = self.node(index).sql("select pid from pg_stat_replication");
        pids.lines().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
    }

    /// Kills a member: its Patroni, its postmaster, and the WAL senders, which may be stopped.
    pub fn kill9(&mut self, index: usize) {
        let senders = self.senders(index);
        let mut patroni = self.members[index].patroni.take().expect("it runs");
        patroni.kill().expect("our own child");
        patroni.wait().expect("our own child");
        let postmaster = postmaster(self.members[index].node.data()).expect("a postmaster");
        kill_process(postmaster, Signal::KILL).expect("it is there");
        for pid in senders {
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    fn patronictl(&self, index: usize, arguments: &[&str]) -> String {
        let mut command = self.base.bare("/usr/bin/patronictl");
        // The library click requires a locale.
        command.env("LC_ALL", "C.UTF-8").arg("-c").arg(&self.members[index].config);
        self.base.succeed(command.args(arguments))
    }

    /// Switches synchronous mode off, because otherwise only the synchronous standby could take
    /// over.
    pub fn let_go_of_synchronous_mode(&mut self, index: usize) {
        let set = ["edit-config", "--force", "-s", "synchronous_mode=false", "sealed"];
        self.patronictl(index, &set);
        self.synchronous = false;
    }

    /// Waits until `patronictl history` shows this many timelines that ended.
    pub fn wait_for_history(&self, index: usize, timelines: usize) {
        self.wait("the history of the timelines", || {
            let history = self.patronictl(index, &["history"]);
            let ended = history.matches("no recovery target specified").count();
            (ended >= timelines).then_some(())
        });
    }

    /// `patronictl switchover`, and waits until it is done.
    pub fn switch_over(&self, from: usize, to: usize) {
        let (old, new) = (&self.members[from].name, &self.members[to].name);
        let switch = ["switchover", "sealed", "--force", "--master", old, "--candidate", new];
        let said = self.patronictl(from, &switch);
        assert!(said.contains("Successfully switched over"), "{said}");
        self.wait("the switchover", || self.find_leader().filter(|index| *index == to));
    }

    /// Shuts down all Patronis, which shut down their servers.
    pub fn stop(&mut self) {
        for index in [0, 1, 2] {
            self.stop_one(index);
        }
    }

    /// Shuts down a Patroni, which shuts down its server.
    pub fn stop_one(&mut self, index: usize) {
        let member = &mut self.members[index];
        let Some(mut patroni) = member.patroni.take() else { return };
        let pid = Pid::from_child(&patroni);
        kill_process(pid, Signal::TERM).expect("our own child");
        patroni.wait().expect("our own child");
        assert!(!member.node.file("postmaster.pid").exists(), "{}", tail(&self.log(index)));
    }

    /// Waits until the log of a member has these words.
    pub fn wait_for_log(&self, index: usize, words: &str) {
        self.wait(words, || self.log(index).contains(words).then_some(()));
    }

    /// Nothing below the home of all shows the marker: directories, logs, etcd's store.
    pub fn assert_shows_nothing(&self, marker: &str) {
        assert_hidden(&[self.base.home()], marker);
    }
}

impl Member {
    fn new(base: &Node, bindir: &Path, n: u16, [etcd, rest, server]: [u16; 3]) -> Member {
        let name = format!("node{n}");
        let dir = base.make_dir(&name);
        let data = dir.join("data");
        let address = format!("127.0.0.{n}");
        let replaced = [
            ("etcd3:\n  hosts: 10.0.0.1:2379", format!("etcd3:\n  hosts: 127.0.0.1:{etcd}")),
            ("name: node1", format!("name: {name}")),
            ("10.0.0.1:8008", format!("{address}:{rest}")),
            ("10.0.0.1:5432", format!("{address}:{server}")),
            ("10.0.0.0/24", "127.0.0.0/24".to_owned()),
            ("/usr/lib/postgresql/15/bin", text(bindir)),
            ("/var/lib/postgresql/15/sealed", text(&data)),
            ("/var/lib/postgresql/.pgpass-node1", text(&dir.join("pgpass"))),
            ("/var/run/postgresql", text(&dir)),
            (
                ": pgseal_guard",
                format!(": {}", text(&base.library().with_file_name("pgseal_guard.so"))),
            ),
            // Twenty seconds is the least that Patroni takes.
            ("ttl: 30", "ttl: 20".to_owned()),
            ("loop_wait: 10", "loop_wait: 1".to_owned()),
            ("retry_timeout: 10", "retry_timeout: 3".to_owned()),
            ("wal_keep_size: 128MB", "wal_keep_size: 256MB\n        fsync: \"off\"".to_owned()),
            ("/usr/local/lib/pgseal/libpgseal.so", text(&base.library())),
            ("/usr/local/bin/pgseal", text(&base.pgseal_program())),
            ("/etc/pgseal/node.key", text(&base.new_key(&format!("{name}.key")))),
            (
                "aes-256-gcm",
                ["aes-256-gcm", "aes-256-xts", "aes-128-gcm"][usize::from(n - 1)].to_owned(),
            ),
        ];
        let (mut config, mut environment) = (CONFIG.to_owned(), ENVIRONMENT.to_owned());
        for (from, to) in replaced {
            assert!(config.contains(from) || environment.contains(from), "no {from} to replace");
            config = config.replace(from, &to);
            environment = environment.replace(from, &to);
        }
        let path = base.home().join(format!("{name}.yml"));
        fs::write(&path, config).expect("the configuration can be written");
        let node = Node::visit(base, &data, &dir, server, "change-me-superuser");
        let environment = variables(&environment);
        Member {
            log: base.home().join(format!("{name}.log")),
            name,
            config: path,
            environment,
            patroni: None,
            node,
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for member in &mut self.members {
            if let Some(mut patroni) = member.patroni.take() {
                let _ = patroni.kill();
                let _ = patroni.wait();
                if let Some(postmaster) = postmaster(member.node.data()) {
                    let _ = kill_process(postmaster, Signal::QUIT);
                    // Until the reaper, which lives longer, has reaped it.
                    while test_kill_process(postmaster).is_ok() {
                        thread::sleep(Duration::from_millis(50));
                    }
                }
            }
        }
        let _ = self.etcd.kill();
        let _ = self.etcd.wait();
    }
}

/// A directory with the wrapper and links to PostgreSQL's programs, as docs/patroni.md makes it.
fn wrapped(base: &Node) -> PathBuf {
    let real = pgseal_testkit::bindir().expect("PostgreSQL");
    let dir = base.make_dir("wrapped");
    for name in names_in(&real) {
        if !["postgres", "pg_ctl"].contains(&name.as_str()) {
            symlink(real.join(&name), dir.join(&name)).expect("a link");
        }
    }
    symlink(&real, dir.join("real")).expect("a link");
    for name in ["postgres", "pg_ctl"] {
        let path = dir.join(name);
        fs::write(&path, WRAPPER).expect("the wrapper can be written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("and run");
    }
    dir
}

/// The variables of a systemd drop-in file.
fn variables(unit: &str) -> Vec<(String, String)> {
    let lines = unit.lines().filter_map(|line| line.strip_prefix("Environment=\""));
    let pairs = lines.filter_map(|line| line.strip_suffix('"')?.split_once('='));
    let all: Vec<_> = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    assert_eq!(all.len(), 4, "{unit}");
    all
}

fn start_etcd(base: &Node, client: u16, peer: u16) -> Child {
    let mut command = base.bare("/usr/bin/etcd");
    let (client, peer) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
    command.args(["--name", "one", "--data-dir", &text(&base.home().join("etcd"))]);
    command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    command.args(["--initial-cluster", &format!("one={peer}")]);
    // Tests kill processes, not machines.
    command.arg("--unsafe-no-fsync");
    let log = base.output_file("etcd.log");
    command.stdin(Stdio::null()).stdout(log.try_clone().expect("a descriptor")).stderr(log);
    command.spawn().expect("etcd runs")
}

/// Four ports that nobody listens on, on none of the addresses.
fn free_ports() -> [u16; 4] {
    let listeners: Vec<TcpListener> =
        (0..4).map(|_| TcpListener::bind(("0.0.0.0", 0)).expect("a free port")).collect();
    [0, 1, 2, 3].map(|index| listeners[index].local_addr().expect("an address").port())
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
