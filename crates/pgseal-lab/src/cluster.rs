//! Throw-away clusters of the installed PostgreSQL, plain or sealed, to measure on.
//!
//! ```no_run
//! # use pgseal_lab::{LabError, cluster::{Cluster, Tools}};
//! # fn main() -> Result<(), LabError> {
//! # let (bindir, pgseal, work) = ("/usr/lib/postgresql/15/bin", "/usr/bin/pgseal", "/tmp/w");
//! let tools = Tools::new(bindir.as_ref(), pgseal.as_ref())?;
//! tools.give(work.as_ref())?;
//! let cluster = Cluster::create(&tools, work.as_ref(), "sealed", Some("aes-256-gcm"))?;
//! let server = cluster.start(&tools, &["shared_buffers=1GB"])?;
//! let mut session = server.target(&tools, "postgres").session()?;
//! let answer = session.query("SELECT count(*) FROM pg_class")?;
//! println!("{} rows in {} s", answer.rows, answer.seconds);
//! server.stop()?;
//! # Ok(())
//! # }
//! ```
//!
//! A server is a direct child of the thread that starts it: it is stopped (fast) when its [`Server`]
//! is dropped and when that thread or this process ends, however that happens.

mod client;
mod server;
mod session;
mod tools;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

pub use client::{Outcome, Target};
pub use server::Server;
pub use session::{Answer, Session};
pub use tools::{Programs, Tools, free_port};

use crate::context::{output_of, shown};
use crate::error::LabError;

/// Longest wait for a server to start.
const PATIENCE: Duration = Duration::from_secs(120);

/// The superuser of every cluster.
pub const SUPERUSER: &str = "postgres";

/// One data directory.
#[derive(Debug, Clone)]
pub struct Cluster {
    /// What the tables call it.
    pub name: String,
    /// Its data directory.
    pub data: PathBuf,
    /// The directory of its server's socket.
    pub socket: PathBuf,
    /// The suite it is sealed with; `None`: plain.
    pub suite: Option<String>,
    log: PathBuf,
}

impl Cluster {
    /// Makes a cluster below `root`, sealed if a suite is named: data in `NAME`, socket in `s-NAME`,
    /// log in `NAME.log`, one key for all in `key`. Data checksums are on in either; trust
    /// authentication, locale C, UTF-8. `root` belongs to the user of [`Tools::give`] and is short,
    /// since the path of a socket has at most 107 bytes.
    ///
    /// # Errors
    /// With what initdb said.
    pub fn create(
        tools: &Tools,
        root: &Path,
        name: &str,
        suite: Option<&str>,
    ) -> Result<Self, LabError> {
        Self::create_at(tools, root, name, &root.join(name), suite)
    }

    /// [`Cluster::create`] with the data directory somewhere else, in a mounted file system for one.
    ///
    /// # Errors
    /// With what initdb said.
    pub fn create_at(
        tools: &Tools,
        root: &Path,
        name: &str,
        data: &Path,
        suite: Option<&str>,
    ) -> Result<Self, LabError> {
        let socket = root.join(format!("s-{name}"));
        fs::create_dir(&socket).map_err(LabError::io(&socket, "make the directory"))?;
        tools.give(&socket)?;
        let options = ["--no-sync", "-A", "trust", "-U", SUPERUSER, "--locale=C", "-E", "UTF8"];
        let mut command = match suite {
            None => {
                let mut command = tools.command("initdb");
                command.arg("-k").arg("-D").arg(data).args(options);
                command
            }
            Some(suite) => {
                let key = root.join("key");
                if !key.exists() {
                    output_of(tools.program(&tools.pgseal).args(["key", "new", "-o"]).arg(&key))?;
                }
                let mut command = tools.program(&tools.pgseal);
                command.args(["initdb", "-k", "--suite", suite, "-K"]);
                command.arg(format!("file:{}", key.display())).arg("--bindir").arg(&tools.bindir);
                command.arg("-D").arg(data).arg("--").args(options);
                command
            }
        };
        output_of(&mut command)?;
        Ok(Self {
            name: name.to_owned(),
            data: data.to_owned(),
            socket,
            suite: suite.map(str::to_owned),
            log: root.join(format!("{name}.log")),
        })
    }

    /// Where the server writes its log.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// A program of PostgreSQL, or another, that works on the data directory itself: under the
    /// library if the cluster is sealed. It gets the data directory as `PGDATA`.
    pub fn on_data(&self, tools: &Tools, program: &Path) -> Command {
        let mut command = match self.suite {
            None => tools.program(program),
            Some(_) => {
                let mut command = tools.program(&tools.pgseal);
                command.args(["run", "--"]).arg(program);
                command
            }
        };
        command.env("PGDATA", &self.data);
        command
    }

    /// Starts a server, with these settings (`name=value`) before those of `postgresql.conf`, and
    /// waits until it takes connections. It listens on its Unix socket only, port 5432, unless
    /// `listen_addresses` and `port` say otherwise; autovacuum is off unless turned on.
    ///
    /// # Errors
    /// With the last lines of the server's log.
    pub fn start<S: AsRef<str>>(&self, tools: &Tools, settings: &[S]) -> Result<Server, LabError> {
        self.start_with(tools, settings, &[])
    }

    /// [`Cluster::start`] with these environment variables more.
    ///
    /// # Errors
    /// With the last lines of the server's log.
    pub fn start_with<S: AsRef<str>>(
        &self,
        tools: &Tools,
        settings: &[S],
        environment: &[(&str, &OsStr)],
    ) -> Result<Server, LabError> {
        let postgres = tools.bindir.join("postgres");
        let mut command = match self.suite {
            None => tools.server(&[postgres.as_os_str()]),
            Some(_) => {
                let words: [&OsStr; 4] =
                    [tools.pgseal.as_os_str(), "run".as_ref(), "--".as_ref(), postgres.as_os_str()];
                tools.server(&words)
            }
        };
        command.arg("-D").arg(&self.data).arg("-k").arg(&self.socket);
        let defaults = ["listen_addresses=", "port=5432", "autovacuum=off"];
        let all = defaults.into_iter().chain(settings.iter().map(AsRef::as_ref));
        let mut port = 5432;
        for setting in all {
            command.args(["-c", setting]);
            port = setting.strip_prefix("port=").and_then(|p| p.parse().ok()).unwrap_or(port);
        }
        let log = File::options()
            .create(true)
            .append(true)
            .open(&self.log)
            .map_err(LabError::io(&self.log, "write the log"))?;
        let errors = log.try_clone().map_err(LabError::io(&self.log, "write the log"))?;
        let shown = shown(&command);
        command.envs(environment.iter().copied());
        command.stdin(Stdio::null()).stdout(log).stderr(errors);
        let child = command.spawn().map_err(LabError::io(&postgres, "run the program"))?;
        let mut server = Server::new(child, self.socket.clone(), port);
        let begin = Instant::now();
        loop {
            let mut ready = tools.command("pg_isready");
            ready.arg("-q").arg("-h").arg(&self.socket).args(["-p", &port.to_string()]);
            if ready.status().is_ok_and(|status| status.success()) {
                return Ok(server);
            }
            if server.has_ended() || begin.elapsed() > PATIENCE {
                let log = fs::read_to_string(&self.log).unwrap_or_default();
                let last = log.lines().rev().take(5).collect::<Vec<_>>();
                let said = last.into_iter().rev().collect::<Vec<_>>().join("\n");
                return Err(LabError::Program { command: shown, said });
            }
            sleep(Duration::from_millis(20));
        }
    }
}
