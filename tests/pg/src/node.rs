//! One server with its data directory.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::Duration;

use pgseal_testkit::{Cluster, ClusterBuilder, Sealing};
use rustix::process::Signal;

use crate::programs::{as_server_user, programs};

pub use self::process::{limit_address_space, with_file_limit};
use self::process::{patiently, send, through_shell, wait};

mod commands;
mod process;
mod sql;
mod visit;

/// A data directory and, once started, the server on it, which is our direct child.
#[derive(Debug)]
pub struct Node {
    cluster: Arc<Cluster>,
    /// Where PostgreSQL's programs are.
    bindir: PathBuf,
    /// The data directory; another than the cluster's own for a copy.
    data: PathBuf,
    port: u16,
    /// Where the server's socket is.
    sockets: PathBuf,
    /// What clients need to log in, where not everybody may.
    password: Option<String>,
    log: PathBuf,
    server: Option<Child>,
    /// Bytes of the log before the last start.
    log_start: usize,
    /// More environment variables for programs under the library.
    env: Vec<(String, String)>,
    /// The soft limit on the size of files of the next server, in KiB.
    file_limit_kib: Option<u64>,
    /// What a shell runs before the next server, for other limits.
    before_start: Option<String>,
}

/// What a program said and how it ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The exit status; -1 after a signal.
    pub code: i32,
    /// Standard output and standard error.
    pub text: String,
}

impl From<Output> for Outcome {
    fn from(output: Output) -> Outcome {
        let text = [output.stdout, output.stderr].concat();
        Outcome {
            code: output.status.code().unwrap_or(-1),
            text: String::from_utf8_lossy(&text).into_owned(),
        }
    }
}

impl Node {
    /// A new sealed cluster (`aes-256-gcm`, data checksums), not started.
    #[must_use]
    pub fn sealed(settings: &[(&str, &str)]) -> Node {
        Node::create(Cluster::builder().sealed(Sealing::default()).programs(programs()), settings)
    }

    /// A new plain cluster with the same settings, not started.
    #[must_use]
    pub fn plain(settings: &[(&str, &str)]) -> Node {
        Node::create(Cluster::builder(), settings)
    }

    /// A new cluster as the builder says. WAL segments of 1 MB keep copies small.
    ///
    /// # Panics
    /// With what initdb said.
    #[must_use]
    pub fn create(builder: ClusterBuilder, settings: &[(&str, &str)]) -> Node {
        let common = [
            ("shared_buffers", "16MB"),
            ("autovacuum", "off"),
            // A machine that stands still for a minute cuts no standby off.
            ("wal_sender_timeout", "0"),
            ("wal_receiver_timeout", "0"),
            ("max_wal_size", "64MB"),
            ("min_wal_size", "8MB"),
        ];
        let builder = builder.initdb_option("--wal-segsize=1");
        let all = common.iter().chain(settings);
        let builder = all.fold(builder, |builder, (name, value)| builder.setting(name, value));
        let cluster = builder.create().unwrap_or_else(|error| panic!("initdb: {error}"));
        let (data, port, log) =
            (cluster.data().to_owned(), cluster.port(), cluster.home().join("log"));
        Node {
            bindir: cluster.bindir().to_owned(),
            sockets: cluster.home().to_owned(),
            cluster: Arc::new(cluster),
            data,
            port,
            password: None,
            log,
            server: None,
            log_start: 0,
            env: Vec::new(),
            file_limit_kib: None,
            before_start: None,
        }
    }

    /// A second server, on a copy of this one's data directory.
    #[must_use]
    pub fn at(other: &Node, data: &Path) -> Node {
        // Of the sockets in one directory no two have the same number.
        static COUNT: AtomicU16 = AtomicU16::new(1);
        let node = Node {
            cluster: Arc::clone(&other.cluster),
            bindir: other.bindir.clone(),
            data: data.to_owned(),
            port: other.cluster.port() + COUNT.fetch_add(1, Ordering::Relaxed),
            sockets: other.home().to_owned(),
            password: None,
            log: data.with_extension("log"),
            server: None,
            log_start: 0,
            env: other.env.clone(),
            file_limit_kib: None,
            before_start: None,
        };
        node.configure(&format!("port = {}", node.port));
        node
    }

    /// From now on the server works on this copy of its data directory.
    pub fn set_data(&mut self, data: &Path) {
        self.data = data.to_owned();
    }

    /// From now on the programs are those of this directory.
    pub fn set_bindir(&mut self, bindir: &Path) {
        self.bindir = bindir.to_owned();
    }

    /// The data directory.
    #[must_use]
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// The number in the name of the server's socket.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A directory of the server's user, beside the data directory.
    #[must_use]
    pub fn home(&self) -> &Path {
        self.cluster.home()
    }

    /// Makes a directory of the server's user beside the data directory.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn make_dir(&self, name: &str) -> PathBuf {
        let path = self.home().join(name);
        let status = as_server_user(Path::new("mkdir")).arg(&path).status();
        assert!(status.is_ok_and(|status| status.success()), "mkdir {}", path.display());
        path
    }

    /// A file of the data directory, by its name in it.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.data().join(name)
    }

    /// Adds a variable to the environment of what runs under the library.
    pub fn set_env(&mut self, name: &str, value: &str) {
        self.env.retain(|(known, _)| known != name);
        self.env.push((name.to_owned(), value.to_owned()));
    }

    /// Takes it away again.
    pub fn unset_env(&mut self, name: &str) {
        self.env.retain(|(known, _)| known != name);
    }

    /// The next server may not make a file larger than this: `EFBIG`, as a quota does it.
    pub fn limit_file_size(&mut self, kib: Option<u64>) {
        self.file_limit_kib = kib;
    }

    /// Has a shell run this before it starts the next server: `ulimit`.
    pub fn run_before_start(&mut self, first: &str) {
        self.before_start = Some(first.to_owned());
    }

    /// Appends lines to `postgresql.conf`; the last line for a setting counts.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn configure(&self, lines: &str) {
        let path = self.file("postgresql.conf");
        let text = fs::read_to_string(&path).expect("postgresql.conf is there");
        fs::write(&path, format!("{text}\n{lines}\n")).expect("postgresql.conf can be written");
    }

    /// Adds a library to `shared_preload_libraries`, behind the guard module if there is one.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn preload_module(&self, name: &str) {
        let text = fs::read_to_string(self.file("postgresql.conf")).expect("postgresql.conf");
        let before = text
            .lines()
            .filter_map(|line| line.strip_prefix("shared_preload_libraries = '"))
            .filter_map(|rest| rest.split('\'').next())
            .next_back();
        let both = before.map_or(name.to_owned(), |before| format!("{before},{name}"));
        self.configure(&format!("shared_preload_libraries = '{both}'"));
    }

    /// Starts the server.
    ///
    /// # Panics
    /// With the server's log, when it does not start.
    pub fn start(&mut self) {
        if let Err(log) = self.try_start() {
            panic!("the server did not start:\n{log}");
        }
    }

    /// Starts the server, or returns what it wrote to its log before it gave up.
    ///
    /// # Errors
    /// The log of this start.
    pub fn try_start(&mut self) -> Result<(), String> {
        self.try_start_with(self.command("postgres"))
    }

    /// Starts the server by hand, without the library.
    ///
    /// # Errors
    /// The log of this start.
    pub fn try_start_bare(&mut self) -> Result<(), String> {
        self.try_start_with(self.bare("postgres"))
    }

    fn try_start_with(&mut self, mut command: Command) -> Result<(), String> {
        assert!(self.server.is_none(), "a server is running already");
        self.log_start = self.whole_log().len();
        let log = OpenOptions::new().append(true).create(true).open(self.log_path());
        let log = log.expect("the log can be written");
        command.arg("-D").arg(self.data());
        if let Some(kib) = self.file_limit_kib {
            command = with_file_limit(&command, kib);
        }
        if let Some(first) = &self.before_start {
            command = through_shell(&command, first);
        }
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a descriptor")).stderr(log);
        let mut child = command.spawn().expect("the server's program runs");
        let has_started = patiently(|| {
            let has_ended = child.try_wait().expect("our own child").is_some();
            (has_ended || self.is_ready(child.id())).then_some(!has_ended)
        });
        match has_started {
            Some(true) => {
                self.server = Some(child);
                Ok(())
            }
            Some(false) => Err(self.log()),
            None => {
                let _ = child.kill();
                let _ = child.wait();
                Err(format!("{}\n(it does not get ready)", self.log()))
            }
        }
    }

    /// The postmaster writes its state into the eighth line of its lock file.
    fn is_ready(&self, pid: u32) -> bool {
        let text = fs::read_to_string(self.file("postmaster.pid")).unwrap_or_default();
        let mut lines = text.lines();
        lines.next() == Some(&pid.to_string())
            && matches!(lines.nth(6).map(str::trim), Some("ready" | "standby"))
    }

    /// Stops the server in fast mode and waits for it.
    ///
    /// # Panics
    /// When it does not end in order.
    pub fn stop(&mut self) {
        let mut child = self.server.take().expect("a server is running");
        send(child.id(), Signal::INT);
        let status = wait(&mut child).unwrap_or_else(|| panic!("no shutdown:\n{}", self.log()));
        assert!(status.success(), "shutdown: {status}\n{}", self.log());
    }

    /// Stops the server in immediate mode: without a checkpoint.
    ///
    /// # Panics
    /// When it stays.
    pub fn stop_at_once(&mut self) {
        let mut child = self.server.take().expect("a server is running");
        send(child.id(), Signal::QUIT);
        assert!(wait(&mut child).is_some(), "no shutdown:\n{}", self.log());
    }

    /// Kills the postmaster with signal 9 and waits until its children have noticed.
    ///
    /// # Panics
    /// When one of them stays.
    pub fn kill9(&mut self) {
        let mut child = self.server.take().expect("a server is running");
        child.kill().expect("our own child");
        child.wait().expect("our own child");
        let gone = patiently(|| (self.processes() == 0).then_some(()));
        assert!(gone.is_some(), "processes of a killed server stay");
    }

    /// Starts the server and kills it after a time, ready or not.
    ///
    /// # Panics
    /// When it cannot be started or processes of it stay.
    pub fn start_and_kill9_after(&mut self, time: Duration) {
        let mut command = self.command("postgres");
        let log = OpenOptions::new().append(true).open(self.log_path()).expect("the log");
        command.arg("-D").arg(self.data()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.server = Some(command.spawn().expect("the server's program runs"));
        thread::sleep(time);
        self.kill9();
    }

    /// How many processes work in the data directory.
    fn processes(&self) -> usize {
        let data = self.data().canonicalize().ok();
        let Ok(listing) = fs::read_dir("/proc") else { return 0 };
        let cwds = listing.filter_map(|item| fs::read_link(item.ok()?.path().join("cwd")).ok());
        cwds.filter(|cwd| Some(cwd) == data.as_ref()).count()
    }

    /// Whether the server is there, and is the one that was started.
    #[must_use]
    pub fn is_running(&mut self) -> bool {
        self.server.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// What the server has logged since its last start.
    #[must_use]
    pub fn log(&self) -> String {
        self.whole_log().split_off(self.log_start)
    }

    fn whole_log(&self) -> String {
        let bytes = fs::read(self.log_path()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn log_path(&self) -> &Path {
        &self.log
    }

    /// An empty file of the server's user, for output of programs in the background.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn output_file(&self, name: &str) -> File {
        File::create(self.home().join(name)).expect("the file can be made")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut child) = self.server.take() {
            send(child.id(), Signal::QUIT);
            if wait(&mut child).is_none() {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}
