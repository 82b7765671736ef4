//! The programs in use, and the user and CPUs that they run with.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with};

use crate::context::{Account, Context, ordinary_account, output_of, run_as};
use crate::error::LabError;

/// What a sealed cluster is made with, each by its path.
#[derive(Debug, Clone)]
pub struct Programs {
    /// The program `pgseal`.
    pub pgseal: PathBuf,
    /// `libpgseal.so`; `None`: where the program finds it by itself.
    pub library: Option<PathBuf>,
    /// `pgseal_guard.so` for the PostgreSQL at hand; `None`: where the program finds it by itself.
    pub guard: Option<PathBuf>,
}

/// The programs in use.
#[derive(Debug, Clone)]
pub struct Tools {
    /// Directory of the PostgreSQL programs, the same for every arm.
    pub bindir: PathBuf,
    /// The program `pgseal`.
    pub pgseal: PathBuf,
    /// CPUs of server and client, as `taskset -c` takes them; `None`: not pinned.
    pub cpus: Option<String>,
    /// Whom servers and clients run as; `None`: the user of this process.
    pub account: Option<Account>,
    /// Whether the programs of sealing lie side by side.
    staged: bool,
    /// `setpriv` of util-linux, which ends a server with us.
    setpriv: Option<PathBuf>,
}

impl Tools {
    /// The programs in `bindir`, and this `pgseal`; as root for [`ordinary_account`]; not pinned.
    ///
    /// # Errors
    /// When a program of PostgreSQL is missing, or there is no user.
    pub fn new(bindir: &Path, pgseal: &Path) -> Result<Self, LabError> {
        Self::with(bindir, pgseal, ordinary_account()?)
    }

    fn with(bindir: &Path, pgseal: &Path, account: Option<Account>) -> Result<Self, LabError> {
        for program in ["postgres", "initdb", "psql", "pgbench", "pg_isready"] {
            let path = bindir.join(program);
            if !path.is_file() {
                return Err(LabError::missing(
                    program,
                    format!("{}: there is no such program", path.display()),
                    "install the server and the client programs of one version (Debian: postgresql, \
                     postgresql-client), or give another --bindir",
                ));
            }
        }
        Ok(Self {
            bindir: full(bindir),
            pgseal: full(pgseal),
            cpus: None,
            account,
            staged: false,
            setpriv: in_path("setpriv"),
        })
    }

    /// Those of a context; as root those of sealing are copied into its working directory first.
    ///
    /// # Errors
    /// When a program of PostgreSQL is missing, or one cannot be copied.
    pub fn of(context: &Context) -> Result<Self, LabError> {
        let tools = Self::with(&context.bindir, &context.pgseal, context.account.clone())?;
        let tools = tools.pinned_to(context.cpus.as_deref());
        if tools.account.is_none() {
            return Ok(tools);
        }
        let programs = Programs {
            pgseal: context.pgseal.clone(),
            library: context.library.clone(),
            guard: context.guard.clone(),
        };
        tools.stage(&programs, &context.work_dir.join("bin"))
    }

    /// Pinned to these CPUs (`taskset -c`).
    #[must_use]
    pub fn pinned_to(mut self, cpus: Option<&str>) -> Self {
        self.cpus = cpus.map(str::to_owned);
        self
    }

    /// Copies the programs of sealing side by side into `dir`, where the user of the servers can
    /// reach them (the tree they were built in may be closed to it), and uses them from there.
    ///
    /// # Errors
    /// When one cannot be copied.
    pub fn stage(mut self, programs: &Programs, dir: &Path) -> Result<Self, LabError> {
        fs::create_dir_all(dir).map_err(LabError::io(dir, "make the directory"))?;
        let copy = |from: &Path, name: &str| -> Result<PathBuf, LabError> {
            let to = dir.join(name);
            // A file that is copied onto itself is empty then.
            if full(from) == full(&to) {
                return Ok(to);
            }
            // By a process of its own: what this one has open for writing nobody can run, and a child
            // that another thread starts meanwhile has it open until it is a program itself.
            output_of(Command::new("install").args(["-m", "0755"]).arg(from).arg(&to))?;
            Ok(to)
        };
        self.pgseal = copy(&programs.pgseal, "pgseal")?;
        if let Some(library) = &programs.library {
            copy(library, "libpgseal.so")?;
        }
        if let Some(guard) = &programs.guard {
            copy(guard, "pgseal_guard.so")?;
        }
        self.staged = true;
        Ok(self)
    }

    /// Makes the user of the servers the owner of a file or directory.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn give(&self, path: &Path) -> Result<(), LabError> {
        let Some(account) = &self.account else { return Ok(()) };
        chown(path, Some(account.uid), Some(account.gid))
            .map_err(LabError::io(path, "change the owner"))
    }

    /// A program of PostgreSQL.
    pub fn command(&self, program: &str) -> Command {
        self.program(&self.bindir.join(program))
    }

    /// Any program (an absolute path, or a name in `PATH`): pinned, as the user of the servers, in
    /// the directory `/`, without our `PG...` variables, with messages in English.
    pub fn program(&self, program: &Path) -> Command {
        self.words(&[], &[program.as_os_str()])
    }

    /// As [`Tools::program`], and it gets SIGINT when the thread that started it ends.
    pub fn server(&self, words: &[&OsStr]) -> Command {
        match &self.setpriv {
            None => self.words(&[], words),
            Some(setpriv) => {
                let prefix: [&OsStr; 4] =
                    [setpriv.as_os_str(), "--pdeathsig".as_ref(), "INT".as_ref(), "--".as_ref()];
                self.words(&prefix, words)
            }
        }
    }

    /// As [`Tools::server`], but as the user of this process: what only root may do, if we are root.
    pub fn helper(&self, words: &[&OsStr]) -> Command {
        Self { account: None, cpus: None, ..self.clone() }.server(words)
    }

    fn words(&self, prefix: &[&OsStr], words: &[&OsStr]) -> Command {
        let mut all: Vec<&OsStr> = prefix.to_vec();
        if let Some(cpus) = &self.cpus {
            all.extend::<[&OsStr; 3]>(["taskset".as_ref(), "-c".as_ref(), cpus.as_ref()]);
        }
        all.extend(words);
        let (program, arguments) =
            all.split_first().map_or((OsStr::new(""), [].as_slice()), |w| (w.0, w.1));
        let mut command = Command::new(program);
        command.args(arguments).current_dir("/").env("LC_ALL", "C");
        run_as(self.account.as_ref(), &mut command);
        if self.staged {
            // They may name what this user cannot reach.
            command.env_remove("PGSEAL_LIBRARY").env_remove("PGSEAL_GUARD_MODULE");
        }
        command
    }
}

/// With links resolved, if it is there.
fn full(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

fn in_path(name: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|dir| dir.join(name)).find(|path| path.is_file())
}

/// A TCP port of 127.0.0.1 for `port=` of a server, and for nobody else until this process ends: it is
/// bound all the time, but not listened on, in the way (`SO_REUSEADDR`) that lets a server listen.
///
/// # Errors
/// When the system has none.
pub fn free_port() -> Result<u16, LabError> {
    static HELD: Mutex<Vec<OwnedFd>> = Mutex::new(Vec::new());
    let held = || -> io::Result<(u16, OwnedFd)> {
        let kind = SocketType::STREAM;
        let socket = socket_with(AddressFamily::INET, kind, SocketFlags::CLOEXEC, None)?;
        set_socket_reuseaddr(&socket, true)?;
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
        let bound = SocketAddr::try_from(getsockname(&socket)?)?;
        Ok((bound.port(), socket))
    };
    let (port, socket) =
        held().map_err(LabError::io(Path::new("127.0.0.1"), "find a free port"))?;
    HELD.lock().unwrap_or_else(PoisonError::into_inner).push(socket);
    Ok(port)
}
