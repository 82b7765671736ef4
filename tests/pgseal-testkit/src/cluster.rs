//! A throw-away cluster for one test, in a directory of its own. Both are removed at the end.

use std::env;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pgseal_cluster::{
    Account, ClusterError, NewCluster, Patience, Programs, SUPERUSER, Server, Signal, Stop, Tools,
    free_port, output_of, process,
};
use tempfile::TempDir;

use crate::programs::{bindir, built_programs};

/// Longest wait for the processes of a server to go.
const GONE: Patience = Patience::seconds(60);

/// How a sealed cluster is sealed.
#[derive(Clone, Debug)]
pub struct Sealing {
    /// The suite, as `--suite` takes it.
    pub suite: String,
    /// The key, 64 hexadecimal digits; it is written to a key file.
    pub key: String,
}

impl Default for Sealing {
    fn default() -> Sealing {
        Sealing { suite: "aes-256-gcm".to_owned(), key: "5a".repeat(32) }
    }
}

/// The options of a new cluster.
#[derive(Clone, Debug, Default)]
pub struct ClusterBuilder {
    sealing: Option<Sealing>,
    programs: Option<Programs>,
    bindir: Option<PathBuf>,
    initdb_options: Vec<String>,
    settings: Vec<(String, String)>,
    without_checksums: bool,
    tcp: bool,
}

impl ClusterBuilder {
    /// Without data checksums.
    #[must_use]
    pub fn without_checksums(mut self) -> ClusterBuilder {
        self.without_checksums = true;
        self
    }

    /// Sealed, through the program `pgseal`.
    #[must_use]
    pub fn sealed(mut self, sealing: Sealing) -> ClusterBuilder {
        self.sealing = Some(sealing);
        self
    }

    /// With these programs instead of those of the source tree.
    #[must_use]
    pub fn programs(mut self, programs: Programs) -> ClusterBuilder {
        self.programs = Some(programs);
        self
    }

    /// With PostgreSQL's programs in this directory instead of those of [`bindir`].
    #[must_use]
    pub fn bindir(mut self, bindir: &Path) -> ClusterBuilder {
        self.bindir = Some(bindir.to_owned());
        self
    }

    /// One more option for initdb.
    #[must_use]
    pub fn initdb_option(mut self, option: &str) -> ClusterBuilder {
        self.initdb_options.push(option.to_owned());
        self
    }

    /// One more line of postgresql.conf; the value is quoted.
    #[must_use]
    pub fn setting(mut self, name: &str, value: &str) -> ClusterBuilder {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Also listens on 127.0.0.1, on a port reserved for this cluster.
    #[must_use]
    pub fn tcp(mut self) -> ClusterBuilder {
        self.tcp = true;
        self
    }

    /// Runs initdb. The server is not started.
    ///
    /// # Errors
    /// With what initdb said.
    pub fn create(self) -> Result<Cluster, ClusterError> {
        let above = Path::new("/tmp");
        let temp = tempfile::Builder::new().prefix("pgs").tempdir_in(above);
        let temp = temp.map_err(ClusterError::io(above, "make a directory in it"))?;
        let root = temp.path();
        fs::set_permissions(root, fs::Permissions::from_mode(0o755))
            .map_err(ClusterError::io(root, "open the directory to every user"))?;
        let bindir = self.bindir.map_or_else(bindir, Ok)?;
        let account = Account::for_servers(&[SUPERUSER])?;
        let tools = match &self.sealing {
            None => Tools::with(&bindir, Path::new(""), account)?,
            Some(_) => {
                let programs = self.programs.map_or_else(built_programs, Ok)?;
                let tools = Tools::with(&bindir, &programs.pgseal, account)?;
                tools.stage(&programs, &root.join("bin"))?
            }
        };
        // The server's user owns this directory and everything below it.
        let home = root.join("h");
        fs::create_dir(&home).map_err(ClusterError::io(&home, "make the directory"))?;
        tools.give(&home)?;
        let mut new = NewCluster::below(&home, "data");
        (new.socket, new.log) = (home.clone(), home.join("log"));
        new.checksums = !self.without_checksums;
        new.options = self.initdb_options;
        write_private(&tools, &new.log, "")?;
        if let Some(sealing) = self.sealing {
            write_private(&tools, &new.key, &format!("{}\n", sealing.key))?;
            new.suite = Some(sealing.suite);
        }
        let port = if self.tcp { free_port()? } else { next_port() };
        let inner = new.create(&tools)?;
        let cluster = Cluster { tools, inner, home, port, server: Mutex::new(None), temp };
        let conf = cluster.data().join("postgresql.conf");
        cluster
            .configure(&conf, &self.settings, self.tcp)
            .map_err(ClusterError::io(&conf, "write the settings"))?;
        Ok(cluster)
    }
}

/// A cluster. When it is dropped its server is stopped and its files are removed.
#[derive(Debug)]
pub struct Cluster {
    tools: Tools,
    inner: pgseal_cluster::Cluster,
    home: PathBuf,
    port: u16,
    server: Mutex<Option<Server>>,
    /// Last field: the files are removed after the server has stopped.
    temp: TempDir,
}

impl Cluster {
    /// A plain cluster with data checksums; the builder's methods change that.
    #[must_use]
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder::default()
    }

    /// The data directory.
    #[must_use]
    pub fn data(&self) -> &Path {
        &self.inner.data
    }

    /// A directory owned by the server's user, beside the data directory: for sockets, log, key
    /// file, tablespaces and archives.
    #[must_use]
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Where PostgreSQL's programs are.
    #[must_use]
    pub fn bindir(&self) -> &Path {
        &self.tools.bindir
    }

    /// The directory that contains all files of the cluster.
    #[must_use]
    pub fn root(&self) -> &Path {
        self.temp.path()
    }

    /// The number in the socket's name, also the TCP port if the server listens on TCP.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The server's log so far.
    #[must_use]
    pub fn log(&self) -> String {
        let bytes = fs::read(self.inner.log()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// A command of PostgreSQL as the server's user, under the library if the cluster is sealed.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        let mut command = self.inner.on_data(&self.tools, &self.tools.bindir.join(program));
        command.current_dir(&self.home).env_remove("PGDATA");
        command
    }

    /// A command of PostgreSQL as the server's user, never under the library.
    #[must_use]
    pub fn bare_command(&self, program: &str) -> Command {
        let mut command = self.tools.command(program);
        command.current_dir(&self.home);
        command
    }

    /// A shell script as the server's user, with `args` from `$0` on.
    #[must_use]
    pub fn shell(&self, script: &str, args: &[&str]) -> Command {
        let mut command = self.tools.program(Path::new("/bin/sh"));
        command.args(["-c", script]).args(args).current_dir(&self.home);
        command
    }

    /// The program `pgseal`, as the server's user. For plain clusters too, if it is built.
    ///
    /// # Errors
    /// When it is not built.
    pub fn pgseal(&self) -> Result<Command, ClusterError> {
        let program = match &self.inner.suite {
            Some(_) => self.tools.pgseal.clone(),
            None => built_programs()?.pgseal,
        };
        let mut command = self.tools.program(&program);
        command.current_dir(&self.home);
        Ok(command)
    }

    /// Starts the server and waits until it takes connections.
    ///
    /// # Errors
    /// With the server's log.
    pub fn start(&self) -> Result<(), ClusterError> {
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.data());
        let server = Server::launch(command, self.data(), self.inner.log())?;
        *self.server() = Some(server.at_drop(Stop::Immediate));
        Ok(())
    }

    /// Stops the server and waits for it.
    ///
    /// # Errors
    /// When no server runs, or it does not end in time or does not end cleanly.
    pub fn stop(&self, mode: Stop) -> Result<(), ClusterError> {
        self.server().take().ok_or_else(|| self.no_server())?.stop_with(mode)
    }

    /// Ends the postmaster with signal 9, and waits until its children have ended.
    ///
    /// # Errors
    /// When there is no server, or its children do not end.
    pub fn kill9(&self) -> Result<(), ClusterError> {
        self.server().take().ok_or_else(|| self.no_server())?.kill9()
    }

    /// The process number of the postmaster, if the server runs.
    #[must_use]
    pub fn postmaster(&self) -> Option<u32> {
        process::postmaster(self.data())
    }

    fn server(&self) -> MutexGuard<'_, Option<Server>> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn no_server(&self) -> ClusterError {
        let command = format!("the server of {}", self.data().display());
        ClusterError::Program { command, said: "it was not started".to_owned() }
    }

    /// Runs SQL and returns its rows, unaligned, without headings.
    ///
    /// # Errors
    /// With what psql said.
    pub fn psql(&self, sql: &str) -> Result<String, ClusterError> {
        let mut command = self.client("psql");
        command.args([
            "-X",
            "-A",
            "-t",
            "-q",
            "-v",
            "ON_ERROR_STOP=1",
            "-d",
            "postgres",
            "-c",
            sql,
        ]);
        Ok(output_of(&mut command)?.trim_end().to_owned())
    }

    /// Runs pgbench with these arguments on the database postgres.
    ///
    /// # Errors
    /// With what pgbench said.
    pub fn pgbench(&self, args: &[&str]) -> Result<String, ClusterError> {
        let mut command = self.client("pgbench");
        command.args(args).arg("postgres");
        output_of(&mut command)
    }

    /// A client program, connected to the server; never under the library.
    #[must_use]
    pub fn client(&self, program: &str) -> Command {
        let mut command = self.bare_command(program);
        command.env("PGHOST", &self.home).env("PGPORT", self.port.to_string());
        command.env("PGUSER", "postgres");
        command
    }

    fn configure(&self, conf: &Path, settings: &[(String, String)], tcp: bool) -> io::Result<()> {
        let quoted = |value: &str| value.replace('\'', "''");
        let mut file = fs::OpenOptions::new().append(true).open(conf)?;
        let listen = if tcp { "127.0.0.1" } else { "" };
        writeln!(file, "listen_addresses = '{listen}'\nport = {}", self.port)?;
        let home = self.home.display().to_string();
        writeln!(file, "unix_socket_directories = '{}'", quoted(&home))?;
        // Tests kill processes, not machines; the kernel's page cache survives. With fsync each
        // recovery must also reach what was acknowledged (`spec/control.md`).
        let fsync = if env::var_os("PGSEAL_TEST_FSYNC").is_some() { "on" } else { "off" };
        writeln!(file, "fsync = {fsync}")?;
        for (name, value) in settings {
            writeln!(file, "{name} = '{}'", quoted(value))?;
        }
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.server().take());
        // A test may have started a server by hand, or this server may have left children.
        if let Some(pid) = self.postmaster() {
            process::send(pid, Signal::QUIT);
            if process::wait_until_gone(self.data(), &[], GONE) {
                // If nobody reaps the process, it remains in the process list as a zombie.
                process::wait_until_gone(self.data(), &[pid], Patience::seconds(10));
                return;
            }
        }
        for pid in process::all_in(self.data()) {
            process::send(pid, Signal::KILL);
        }
        process::wait_until_gone(self.data(), &[], Patience::seconds(10));
    }
}

/// Writes a file that only the server's user reads.
fn write_private(tools: &Tools, path: &Path, text: &str) -> Result<(), ClusterError> {
    let write = || -> io::Result<()> {
        let mut file = fs::File::create(path)?;
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
        file.write_all(text.as_bytes())
    };
    write().map_err(ClusterError::io(path, "write the file"))?;
    tools.give(path)
}

/// Sockets are in private directories, so the number only has to differ within the logs of one
/// machine.
fn next_port() -> u16 {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let number = (std::process::id().wrapping_mul(31).wrapping_add(count)) % 30000;
    20000 + u16::try_from(number).unwrap_or(0)
}
