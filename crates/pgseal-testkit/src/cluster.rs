//! A throw-away cluster on a Unix socket.

use std::fs;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::process;
use crate::programs::{Programs, as_server_user, bindir, is_root};

/// How a sealed cluster is sealed.
#[derive(Clone, Debug)]
pub struct Sealing {
    /// The suite, as `--suite` takes it.
    pub suite: String,
    /// The key, 64 hexadecimal digits; it is put into a file.
    pub key: String,
}

impl Default for Sealing {
    fn default() -> Sealing {
        Sealing { suite: "aes-256-gcm".to_owned(), key: "5a".repeat(32) }
    }
}

/// What a cluster is to be.
#[derive(Clone, Debug, Default)]
pub struct ClusterBuilder {
    sealing: Option<Sealing>,
    programs: Option<Programs>,
    bindir: Option<PathBuf>,
    initdb_options: Vec<String>,
    settings: Vec<(String, String)>,
    tcp: bool,
}

impl ClusterBuilder {
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

    /// Listens on 127.0.0.1, too, on a port that nobody else gets.
    #[must_use]
    pub fn tcp(mut self) -> ClusterBuilder {
        self.tcp = true;
        self
    }

    /// Runs initdb. The server is not started.
    ///
    /// # Errors
    /// With what initdb said.
    pub fn create(self) -> io::Result<Cluster> {
        let temp = tempfile::Builder::new().prefix("pgs").tempdir_in("/tmp")?;
        let root = temp.path();
        fs::set_permissions(root, fs::Permissions::from_mode(0o755))?;
        let programs = match (&self.sealing, self.programs) {
            (Some(_), programs) => {
                let programs = programs.map_or_else(Programs::built, Ok)?;
                Some(programs.copy_to(&root.join("bin"))?)
            }
            (None, _) => None,
        };
        // The server's user owns what is below it.
        let home = root.join("h");
        fs::create_dir(&home)?;
        give(&home)?;
        let cluster = Cluster {
            bindir: self.bindir.map_or_else(bindir, Ok)?,
            programs,
            data: home.join("data"),
            home,
            port: if self.tcp { free_port()? } else { next_port() },
            temp,
        };
        cluster.initdb(self.sealing.as_ref(), &self.initdb_options)?;
        cluster.configure(&self.settings, self.tcp)?;
        Ok(cluster)
    }
}

/// A cluster. When it is dropped its server is stopped and its files are removed.
#[derive(Debug)]
pub struct Cluster {
    bindir: PathBuf,
    programs: Option<Programs>,
    data: PathBuf,
    home: PathBuf,
    port: u16,
    temp: TempDir,
}

impl Cluster {
    /// A plain cluster with data checksums, unless the builder is told otherwise.
    #[must_use]
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder::default()
    }

    /// The data directory.
    #[must_use]
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// A directory of the server's user beside the data directory: sockets, log, key file; room for
    /// tablespaces and archives.
    #[must_use]
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Where PostgreSQL's programs are.
    #[must_use]
    pub fn bindir(&self) -> &Path {
        &self.bindir
    }

    /// The directory that all of it is in.
    #[must_use]
    pub fn root(&self) -> &Path {
        self.temp.path()
    }

    /// The port, that is: the number in the socket's name.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The server's log so far.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read(self.home.join("log"))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// A command of PostgreSQL as the server's user, under the library if the cluster is sealed.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        let program = self.bindir.join(program);
        let mut command = match &self.programs {
            Some(programs) => {
                let mut command = as_server_user(&programs.pgseal);
                command.args(["run", "--"]).arg(program);
                command
            }
            None => as_server_user(&program),
        };
        command.current_dir(&self.home).env_remove("PGDATA");
        command
    }

    /// A command of PostgreSQL as the server's user, never under the library.
    #[must_use]
    pub fn bare_command(&self, program: &str) -> Command {
        let mut command = as_server_user(&self.bindir.join(program));
        command.current_dir(&self.home).env_remove("PGDATA").env_remove("LD_PRELOAD");
        command
    }

    /// A shell script as the server's user, with `args` from `$0` on.
    #[must_use]
    pub fn shell(&self, script: &str, args: &[&str]) -> Command {
        let mut command = as_server_user(Path::new("/bin/sh"));
        command.args(["-c", script]).args(args).current_dir(&self.home);
        command
    }

    /// The program `pgseal`, as the server's user. For plain clusters too, if it is built.
    ///
    /// # Errors
    /// When it is not built.
    pub fn pgseal(&self) -> io::Result<Command> {
        let program = match &self.programs {
            Some(programs) => programs.pgseal.clone(),
            None => Programs::built()?.pgseal,
        };
        let mut command = as_server_user(&program);
        command.current_dir(&self.home);
        Ok(command)
    }

    /// Starts the server and waits until it takes connections.
    ///
    /// # Errors
    /// With the server's log.
    pub fn start(&self) -> io::Result<()> {
        let mut command = self.command("pg_ctl");
        command.arg("-D").arg(&self.data).arg("-l").arg(self.home.join("log"));
        command.args(["-w", "-t", "120", "start"]);
        // Not through pipes: the server would inherit and hold them open.
        let out = fs::File::create(self.root().join("pg_ctl.out"))?;
        let status = command.stdout(out.try_clone()?).stderr(out).status()?;
        if status.success() {
            return Ok(());
        }
        let said = fs::read_to_string(self.root().join("pg_ctl.out")).unwrap_or_default();
        Err(io::Error::other(format!("the server did not start: {said}\n{}", self.log())))
    }

    /// Stops the server (`fast`, `smart` or `immediate`) and waits for it.
    ///
    /// # Errors
    /// With what pg_ctl said.
    pub fn stop(&self, mode: &str) -> io::Result<()> {
        let mut command = self.bare_command("pg_ctl");
        command.arg("-D").arg(&self.data).args(["-w", "-t", "120", "-m", mode, "stop"]);
        succeed(command).map(|_| ())
    }

    /// Ends the postmaster with signal 9, and waits until its children have noticed.
    ///
    /// # Errors
    /// When there is no server, or its children stay for a minute.
    pub fn kill9(&self) -> io::Result<()> {
        let pid = self.postmaster().ok_or_else(|| io::Error::other("no server is running"))?;
        process::signal(pid, Signal::KILL);
        if process::wait_until_gone(&self.data, &[pid], Duration::from_secs(60)) {
            return Ok(());
        }
        Err(io::Error::other("processes of the server stay after its postmaster was killed"))
    }

    /// The process number of the postmaster, if the server runs.
    #[must_use]
    pub fn postmaster(&self) -> Option<i32> {
        process::postmaster(&self.data)
    }

    /// Runs SQL and returns its rows, unaligned, without headings.
    ///
    /// # Errors
    /// With what psql said.
    pub fn psql(&self, sql: &str) -> io::Result<String> {
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
        let output = succeed(command)?;
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    }

    /// Runs pgbench with these arguments on the database postgres.
    ///
    /// # Errors
    /// With what pgbench said.
    pub fn pgbench(&self, args: &[&str]) -> io::Result<String> {
        let mut command = self.client("pgbench");
        command.args(args).arg("postgres");
        Ok(String::from_utf8_lossy(&succeed(command)?.stdout).into_owned())
    }

    /// A client program, connected to the server; never under the library.
    #[must_use]
    pub fn client(&self, program: &str) -> Command {
        let mut command = self.bare_command(program);
        command.env("PGHOST", &self.home).env("PGPORT", self.port.to_string());
        command.env("PGUSER", "postgres");
        command
    }

    fn initdb(&self, sealing: Option<&Sealing>, options: &[String]) -> io::Result<()> {
        let common = ["-U", "postgres", "--auth=trust", "--no-sync", "--locale=C", "-E", "UTF8"];
        let mut command = match (sealing, &self.programs) {
            (Some(sealing), Some(programs)) => {
                let key = self.home.join("key");
                let mut file = fs::File::create(&key)?;
                file.set_permissions(fs::Permissions::from_mode(0o600))?;
                writeln!(file, "{}", sealing.key)?;
                give(&key)?;
                let mut command = as_server_user(&programs.pgseal);
                command.args(["initdb", "-k", "--suite", &sealing.suite, "-K"]);
                command.arg(format!("file:{}", key.display()));
                command.arg("--bindir").arg(&self.bindir).arg(&self.data).arg("--");
                command.env("PGSEAL_GUARD_MODULE", &programs.guard);
                command
            }
            _ => {
                let mut command = as_server_user(&self.bindir.join("initdb"));
                command.arg("-k").arg("-D").arg(&self.data);
                command
            }
        };
        command.args(common).args(options).current_dir(&self.home).env_remove("PGDATA");
        succeed(command).map(|_| ())
    }

    fn configure(&self, settings: &[(String, String)], tcp: bool) -> io::Result<()> {
        let quoted = |value: &str| value.replace('\'', "''");
        let mut file =
            fs::OpenOptions::new().append(true).open(self.data.join("postgresql.conf"))?;
        let listen = if tcp { "127.0.0.1" } else { "" };
        writeln!(file, "listen_addresses = '{listen}'\nport = {}", self.port)?;
        let home = self.home.display().to_string();
        writeln!(file, "unix_socket_directories = '{}'", quoted(&home))?;
        // Tests kill processes, not machines; what the kernel has, it keeps.
        writeln!(file, "fsync = off")?;
        for (name, value) in settings {
            writeln!(file, "{name} = '{}'", quoted(value))?;
        }
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Some(pid) = self.postmaster() {
            process::signal(pid, Signal::QUIT);
            if process::wait_until_gone(&self.data, &[], Duration::from_secs(60)) {
                // Where nobody reaps it, it stays in the list of processes.
                process::wait_until_gone(&self.data, &[pid], Duration::from_secs(10));
                return;
            }
        }
        for pid in process::all_in(&self.data) {
            process::signal(pid, Signal::KILL);
        }
        process::wait_until_gone(&self.data, &[], Duration::from_secs(10));
    }
}

/// Makes the server's user the owner, which only root can and need do.
fn give(path: &Path) -> io::Result<()> {
    if !is_root() {
        return Ok(());
    }
    succeed({
        let mut command = Command::new("chown");
        command.arg("postgres:").arg(path);
        command
    })
    .map(|_| ())
}

/// Sockets lie in private directories, so the number only has to differ within one machine's logs.
fn next_port() -> u16 {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let number = (std::process::id().wrapping_mul(31).wrapping_add(count)) % 30000;
    20000 + u16::try_from(number).unwrap_or(0)
}

/// A TCP port of 127.0.0.1 for one server, and for nobody else until this process ends: it is bound
/// all the time, but not listened on, in the way (`SO_REUSEADDR`) that lets a server listen there.
fn free_port() -> io::Result<u16> {
    static HELD: Mutex<Vec<OwnedFd>> = Mutex::new(Vec::new());
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
    let bound = SocketAddr::try_from(getsockname(&socket)?)?;
    HELD.lock().unwrap_or_else(PoisonError::into_inner).push(socket);
    Ok(bound.port())
}

fn succeed(mut command: Command) -> io::Result<Output> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(output);
    }
    Err(io::Error::other(format!(
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )))
}
