//! The programs in use, and the user and CPUs that they run with.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::account::{Account, run_as};
use crate::error::ClusterError;
use crate::programs::{Programs, full};

/// The programs in use.
#[derive(Debug, Clone)]
pub struct Tools {
    /// Directory of the PostgreSQL programs, the same for all clusters.
    pub bindir: PathBuf,
    /// The program `pgseal`.
    pub pgseal: PathBuf,
    /// CPUs of server and client, in the syntax of `taskset -c`; `None`: not pinned.
    pub cpus: Option<String>,
    /// The user of servers and clients; `None`: the user of this process.
    pub account: Option<Account>,
    /// Whether the programs of pgseal have been copied to one directory ([`Tools::stage`]).
    staged: bool,
    /// `setpriv` of util-linux, which ends a server together with this process.
    setpriv: Option<PathBuf>,
}

impl Tools {
    /// The programs in `bindir`, and this `pgseal`; not pinned. If this process runs as root,
    /// servers run as the user who called `sudo`, else `postgres`.
    ///
    /// # Errors
    /// When a program of PostgreSQL is missing, or this process runs as root and there is no such
    /// user.
    pub fn new(bindir: &Path, pgseal: &Path) -> Result<Self, ClusterError> {
        Self::with(bindir, pgseal, Account::ordinary()?)
    }

    /// The programs in `bindir`, and this `pgseal`, for this user; not pinned.
    ///
    /// # Errors
    /// When a program of PostgreSQL is missing.
    pub fn with(
        bindir: &Path,
        pgseal: &Path,
        account: Option<Account>,
    ) -> Result<Self, ClusterError> {
        for program in ["postgres", "initdb", "psql", "pgbench", "pg_isready"] {
            let path = bindir.join(program);
            if !path.is_file() {
                return Err(ClusterError::Missing {
                    what: program.to_owned(),
                    why: format!("{}: there is no such program", path.display()),
                    remedy: "install the server and the client programs of one version (Debian: \
                             postgresql, postgresql-client), or give another --bindir"
                        .to_owned(),
                });
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

    /// Pins servers and clients to these CPUs (`taskset -c`).
    #[must_use]
    pub fn pinned_to(mut self, cpus: Option<&str>) -> Self {
        self.cpus = cpus.map(str::to_owned);
        self
    }

    /// Copies the programs of pgseal into `dir` and uses these copies. The user of the servers must
    /// be able to read `dir`; the source tree may be unreadable for that user.
    ///
    /// # Errors
    /// When a program cannot be copied.
    pub fn stage(mut self, programs: &Programs, dir: &Path) -> Result<Self, ClusterError> {
        self.pgseal = programs.copy_to(dir)?.pgseal;
        self.staged = true;
        Ok(self)
    }

    /// Makes the user of the servers the owner of a file or directory.
    ///
    /// # Errors
    /// When the owner cannot be changed.
    pub fn give(&self, path: &Path) -> Result<(), ClusterError> {
        self.account.as_ref().map_or(Ok(()), |account| account.give(path))
    }

    /// A program of PostgreSQL.
    pub fn command(&self, program: &str) -> Command {
        self.program(&self.bindir.join(program))
    }

    /// Any program (an absolute path, or a name in `PATH`): pinned, as the user of the servers, in
    /// the directory `/`, without the `PG...` variables of this process, with messages in English.
    pub fn program(&self, program: &Path) -> Command {
        self.words(&[], &[program.as_os_str()])
    }

    /// Like [`Tools::program`]; the program also gets SIGINT when the thread that started it ends.
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

    /// Like [`Tools::server`], but as the user of this process and not pinned: for what only root
    /// may do.
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
            // These variables may name files that the user of the servers cannot read.
            command.env_remove("PGSEAL_LIBRARY").env_remove("PGSEAL_GUARD_MODULE");
        }
        command
    }
}

fn in_path(name: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|dir| dir.join(name)).find(|path| path.is_file())
}
