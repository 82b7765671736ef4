//! A data directory, created by initdb; its server can be started many times.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::output_of;
use crate::error::ClusterError;
use crate::server::Server;
use crate::tools::Tools;

/// The superuser of every cluster.
pub const SUPERUSER: &str = "postgres";

/// One data directory.
#[derive(Debug, Clone)]
pub struct Cluster {
    /// The cluster's name in tables.
    pub name: String,
    /// The data directory.
    pub data: PathBuf,
    /// The directory of the server's socket.
    pub socket: PathBuf,
    /// The suite that seals the cluster; `None`: plain.
    pub suite: Option<String>,
    log: PathBuf,
}

/// The options for a new cluster, and the paths of its parts.
#[derive(Debug, Clone)]
pub struct NewCluster {
    /// The cluster's name in tables.
    pub name: String,
    /// The data directory.
    pub data: PathBuf,
    /// The directory of the server's socket; the path of a socket has at most 107 bytes.
    pub socket: PathBuf,
    /// The server's log.
    pub log: PathBuf,
    /// The key file of a sealed cluster; `pgseal key new` makes it if there is none.
    pub key: PathBuf,
    /// The suite that seals the cluster; `None`: plain.
    pub suite: Option<String>,
    /// Whether the cluster has data checksums.
    pub checksums: bool,
    /// More options for initdb.
    pub options: Vec<String>,
}

impl NewCluster {
    /// A plain cluster below `root`: data in `NAME`, socket in `s-NAME`, log in `NAME.log`. All
    /// clusters share the key file `key`. `root` must belong to the user of [`Tools::give`].
    pub fn below(root: &Path, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            data: root.join(name),
            socket: root.join(format!("s-{name}")),
            log: root.join(format!("{name}.log")),
            key: root.join("key"),
            suite: None,
            checksums: true,
            options: Vec::new(),
        }
    }

    /// Runs initdb, or `pgseal initdb` if a suite is set. Both with trust authentication, locale C
    /// and UTF-8.
    ///
    /// # Errors
    /// With the output of initdb.
    pub fn create(self, tools: &Tools) -> Result<Cluster, ClusterError> {
        if !self.socket.is_dir() {
            fs::create_dir(&self.socket)
                .map_err(ClusterError::io(&self.socket, "make the directory"))?;
            tools.give(&self.socket)?;
        }
        let mut command = match &self.suite {
            None => {
                let mut command = tools.command("initdb");
                if self.checksums {
                    command.arg("-k");
                } else if has_checksums_by_default(tools)? {
                    command.arg("--no-data-checksums");
                }
                command.arg("-D").arg(&self.data);
                command
            }
            Some(suite) => {
                if !self.key.exists() {
                    let mut make = tools.program(&tools.pgseal);
                    output_of(make.args(["key", "new", "-o"]).arg(&self.key))?;
                }
                let mut command = tools.program(&tools.pgseal);
                let checksums = if self.checksums { "-k" } else { "--no-data-checksums" };
                command.args(["initdb", checksums, "--suite", suite, "-K"]);
                command.arg(format!("file:{}", self.key.display()));
                command.arg("--bindir").arg(&tools.bindir).arg("-D").arg(&self.data).arg("--");
                command
            }
        };
        command.args(["--no-sync", "-A", "trust", "-U", SUPERUSER, "--locale=C", "-E", "UTF8"]);
        output_of(command.args(&self.options))?;
        let Self { name, data, socket, log, suite, .. } = self;
        Ok(Cluster { name, data, socket, suite, log })
    }
}

/// Whether initdb makes data checksums unless it is told otherwise; only then has it this option.
fn has_checksums_by_default(tools: &Tools) -> Result<bool, ClusterError> {
    let help = output_of(tools.command("initdb").arg("--help"))?;
    Ok(help.contains("--no-data-checksums"))
}

impl Cluster {
    /// Makes a cluster below `root` ([`NewCluster::below`]), sealed if a suite is named.
    ///
    /// # Errors
    /// With the output of initdb.
    pub fn create(
        tools: &Tools,
        root: &Path,
        name: &str,
        suite: Option<&str>,
    ) -> Result<Self, ClusterError> {
        let mut new = NewCluster::below(root, name);
        new.suite = suite.map(str::to_owned);
        new.create(tools)
    }

    /// The path of the server's log.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// A program (of PostgreSQL or not) that works on the data directory itself, under the library
    /// if the cluster is sealed. `PGDATA` is set to the data directory.
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

    /// Starts a server and waits until it accepts connections. `settings` (`name=value`) override
    /// `postgresql.conf`. The server listens only on its Unix socket, port 5432, unless
    /// `listen_addresses` and `port` are set; autovacuum is off unless it is turned on. The server
    /// is stopped (fast mode) when its [`Server`] is dropped and when the calling thread ends for
    /// any reason.
    ///
    /// # Errors
    /// With the last lines of the server's log.
    pub fn start<S: AsRef<str>>(
        &self,
        tools: &Tools,
        settings: &[S],
    ) -> Result<Server, ClusterError> {
        self.start_with(tools, settings, &[])
    }

    /// [`Cluster::start`] with additional environment variables.
    ///
    /// # Errors
    /// With the last lines of the server's log.
    pub fn start_with<S: AsRef<str>>(
        &self,
        tools: &Tools,
        settings: &[S],
        environment: &[(&str, &OsStr)],
    ) -> Result<Server, ClusterError> {
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
        command.envs(environment.iter().copied());
        Ok(Server::launch(command, &self.data, &self.log)?.listening(&self.socket, port))
    }
}
