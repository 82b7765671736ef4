//! One server with its data directory.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::Duration;

use pgseal_cluster::{ClusterError, Server, Stop};
use pgseal_testkit::{Cluster, ClusterBuilder, Sealing};

use self::limits::through_shell;
pub use self::limits::{limit_address_space, with_file_limit};
use crate::programs::{as_server_user, programs};

mod commands;
mod limits;
mod protection;
mod sql;
mod visit;

/// A data directory and, once started, its server, which is a direct child of this process.
#[derive(Debug)]
pub struct Node {
    /// First, so that it is stopped before the cluster removes its files.
    server: Option<Server>,
    cluster: Arc<Cluster>,
    /// Where PostgreSQL's programs are.
    bindir: PathBuf,
    /// The data directory: the cluster's own, or a copy.
    data: PathBuf,
    port: u16,
    /// Where the server's socket is.
    sockets: PathBuf,
    /// The password of clients, if the server asks for one.
    password: Option<String>,
    log: PathBuf,
    /// Bytes of the log before the last start.
    log_start: usize,
    /// More environment variables for programs under the library.
    env: Vec<(String, String)>,
    /// The soft limit on the file size of the next server, in KiB.
    file_limit_kib: Option<u64>,
    /// What a shell runs before it starts the next server, to set other limits.
    before_start: Option<String>,
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
        Node::with_segments(builder, 1, settings)
    }

    /// A new cluster as the builder says, with WAL segments of this many megabytes.
    ///
    /// # Panics
    /// With what initdb said.
    #[must_use]
    pub fn with_segments(builder: ClusterBuilder, mb: u32, settings: &[(&str, &str)]) -> Node {
        let common = [
            ("shared_buffers", "16MB"),
            ("autovacuum", "off"),
            // Without a timeout, a pause of a slow machine does not cut standbys off.
            ("wal_sender_timeout", "0"),
            ("wal_receiver_timeout", "0"),
            ("max_wal_size", "64MB"),
            ("min_wal_size", "8MB"),
        ];
        let builder = builder.initdb_option(&format!("--wal-segsize={mb}"));
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
        // Ports must differ: several servers may have their sockets in one directory.
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

    /// Makes this copy the data directory of the server.
    pub fn set_data(&mut self, data: &Path) {
        self.data = data.to_owned();
    }

    /// Makes this the directory of PostgreSQL's programs.
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

    /// Adds a variable to the environment of programs under the library.
    pub fn set_env(&mut self, name: &str, value: &str) {
        self.env.retain(|(known, _)| known != name);
        self.env.push((name.to_owned(), value.to_owned()));
    }

    /// Removes a variable from the environment of programs under the library.
    pub fn unset_env(&mut self, name: &str) {
        self.env.retain(|(known, _)| known != name);
    }

    /// Limits the size of files of the next server: writes beyond it fail with `EFBIG`.
    pub fn limit_file_size(&mut self, kib: Option<u64>) {
        self.file_limit_kib = kib;
    }

    /// Has a shell run `first`, for example `ulimit`, before it starts the next server.
    pub fn run_before_start(&mut self, first: &str) {
        self.before_start = Some(first.to_owned());
    }

    /// Appends lines to `postgresql.conf`; the last line for a setting takes effect.
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

    /// Starts the server, or returns its log if it does not start.
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
        command.arg("-D").arg(self.data());
        if let Some(kib) = self.file_limit_kib {
            command = with_file_limit(&command, kib);
        }
        if let Some(first) = &self.before_start {
            command = through_shell(&command, first);
        }
        match Server::launch(command, &self.data, &self.log) {
            Ok(server) => {
                self.server = Some(server.at_drop(Stop::Immediate));
                Ok(())
            }
            Err(ClusterError::Start { log, ended: true, .. }) => Err(log),
            Err(ClusterError::Start { log, .. }) => Err(format!("{log}\n(it does not get ready)")),
            Err(error) => panic!("{error}"),
        }
    }

    /// Stops the server in fast mode and waits for it.
    ///
    /// # Panics
    /// When the server does not end cleanly.
    pub fn stop(&mut self) {
        self.running().stop().unwrap_or_else(|error| panic!("{error}\n{}", self.log()));
    }

    /// Stops the server in immediate mode: without a checkpoint.
    ///
    /// # Panics
    /// When the server does not end.
    pub fn stop_at_once(&mut self) {
        let stopped = self.running().stop_with(Stop::Immediate);
        stopped.unwrap_or_else(|error| panic!("{error}\n{}", self.log()));
    }

    /// Kills the postmaster with signal 9 and waits until its children have ended.
    ///
    /// # Panics
    /// When a child does not end.
    pub fn kill9(&mut self) {
        self.running().kill9().unwrap_or_else(|error| panic!("{error}"));
    }

    fn running(&mut self) -> Server {
        self.server.take().expect("a server is running")
    }

    /// Starts the server and kills it after a time, ready or not. A lock file that the postmaster
    /// had made and not yet written is removed, as PostgreSQL's hint tells an administrator to do.
    ///
    /// # Panics
    /// When the server cannot be started or a process of it does not end.
    pub fn start_and_kill9_after(&mut self, time: Duration) {
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.data());
        let server = Server::spawn(command, &self.data, &self.log);
        self.server = Some(server.expect("the server's program runs"));
        thread::sleep(time);
        self.kill9();
        let lock = self.file("postmaster.pid");
        if fs::metadata(&lock).is_ok_and(|lock| lock.len() == 0) {
            fs::remove_file(&lock).expect("the lock file can be removed");
        }
    }

    /// Whether the server that was started is still running.
    #[must_use]
    pub fn is_running(&mut self) -> bool {
        self.server.as_mut().is_some_and(|server| !server.has_ended())
    }

    /// Takes note that the server has ended by itself, so that it can be started again.
    ///
    /// # Panics
    /// When it is still running.
    pub fn ended(&mut self) {
        assert!(!self.is_running(), "the server is still running:\n{}", self.log());
        self.server = None;
    }

    /// Empties the log, for a test that starts the server thousands of times.
    ///
    /// # Panics
    /// When the log cannot be written.
    pub fn clear_log(&mut self) {
        File::create(&self.log).expect("the log can be written");
        self.log_start = 0;
    }

    /// What the server has logged since its last start.
    #[must_use]
    pub fn log(&self) -> String {
        self.whole_log().split_off(self.log_start)
    }

    fn whole_log(&self) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// An empty file owned by the server's user, for output of background programs.
    ///
    /// # Panics
    /// When the file cannot be created.
    #[must_use]
    pub fn output_file(&self, name: &str) -> File {
        File::create(self.home().join(name)).expect("the file can be made")
    }
}
