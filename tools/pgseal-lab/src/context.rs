//! Programs, directories and the account that servers run under.

use std::path::{Path, PathBuf};
use std::process::Command;

pub use pgseal_cluster::{Account, output_of, run_as, shown};

use crate::error::LabError;

/// The surroundings of an executor.
#[derive(Debug, Clone)]
pub struct Context {
    /// Directory of the PostgreSQL programs.
    pub bindir: PathBuf,
    /// The program `pgseal`, for sealed clusters.
    pub pgseal: PathBuf,
    /// The program `pgseal-lab`, for child processes.
    pub lab: PathBuf,
    /// `libpgseal.so`; none: `pgseal` finds the library itself, if there is one.
    pub library: Option<PathBuf>,
    /// `pgseal_guard.so` for this PostgreSQL; none: the server or `pgseal` finds the module itself.
    pub guard: Option<PathBuf>,
    /// Directory for clusters and other temporary files, removed at the end; owned by `account`.
    pub work_dir: PathBuf,
    /// Directory of this experiment's results.
    pub output_dir: PathBuf,
    /// CPUs of the measured programs, in the syntax of `taskset -c`; none: not pinned.
    pub cpus: Option<String>,
    /// The user of servers and clients; none: the user of this process, which is not root.
    pub account: Option<Account>,
}

impl Context {
    /// A command that runs as the ordinary user, pinned if CPUs are set, without PostgreSQL's
    /// environment variables and with empty standard input.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = match &self.cpus {
            None => Command::new(program),
            Some(cpus) => {
                let mut command = Command::new("taskset");
                command.args(["-c", cpus]).arg(program);
                command
            }
        };
        self.as_account(&mut command);
        command
    }

    /// Makes a command run as the ordinary user.
    pub fn as_account(&self, command: &mut Command) {
        run_as(self.account.as_ref(), command);
        if self.account.is_some() {
            command.current_dir(&self.work_dir);
        }
    }

    /// A program of PostgreSQL, run like [`Context::command`].
    pub fn postgres_command(&self, program: &str) -> Command {
        self.command(&self.bindir.join(program))
    }

    /// The command `pgseal-lab child EXPERIMENT`, which calls [`Experiment::child`]: for
    /// measurements that need a separate process and environment.
    ///
    /// [`Experiment::child`]: crate::Experiment::child
    pub fn child_command(&self, experiment: &str) -> Command {
        let mut command = self.command(&self.lab);
        command.args(["child", experiment]);
        command
    }
}

/// The ordinary user if this process runs as root: `SUDO_USER`, else `postgres`; none if this
/// process does not run as root.
///
/// # Errors
///
/// [`LabError::Usage`] if neither user exists.
pub fn ordinary_account() -> Result<Option<Account>, LabError> {
    Ok(Account::ordinary()?)
}
