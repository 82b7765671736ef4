//! Programs, directories and the account that servers run under.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::LabError;

/// What an executor needs to know of its surroundings.
#[derive(Debug, Clone)]
pub struct Context {
    /// Directory of the PostgreSQL programs.
    pub bindir: PathBuf,
    /// The program `pgseal`, for sealed clusters and for child processes of the lab itself.
    pub pgseal: PathBuf,
    /// `libpgseal.so`; none: where `pgseal` finds it by itself, if at all.
    pub library: Option<PathBuf>,
    /// `pgseal_guard.so` for this PostgreSQL; none: where the server or `pgseal` finds it by itself.
    pub guard: Option<PathBuf>,
    /// Directory for clusters and other files that go away at the end; owned by `account`.
    pub work_dir: PathBuf,
    /// Directory of this experiment's results.
    pub output_dir: PathBuf,
    /// CPUs of what is measured, as `taskset -c` takes them; none: not pinned.
    pub cpus: Option<String>,
    /// Whom servers and clients run as; none: as the user of this process, who is not root.
    pub account: Option<Account>,
}

/// An ordinary user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Name of the user.
    pub name: String,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Home directory.
    pub home: PathBuf,
}

impl Context {
    /// A command that runs as the ordinary user, pinned if CPUs are given, with none of PostgreSQL's
    /// environment variables and nothing on its standard input.
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

    /// A program of PostgreSQL, as [`Context::command`].
    pub fn postgres_command(&self, program: &str) -> Command {
        self.command(&self.bindir.join(program))
    }

    /// Starts `pgseal lab child EXPERIMENT`, which ends in [`Experiment::child`]; for measurements
    /// that need a process and an environment of their own.
    ///
    /// [`Experiment::child`]: crate::Experiment::child
    pub fn child_command(&self, experiment: &str) -> Command {
        let mut command = self.command(&self.pgseal);
        command.args(["lab", "child", experiment]);
        command
    }
}

/// Makes a command run as an ordinary user, if one is given, with none of PostgreSQL's environment
/// variables and nothing on its standard input.
pub fn run_as(account: Option<&Account>, command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if is_postgres_variable(&name) {
            command.env_remove(&name);
        }
    }
    command.stdin(Stdio::null());
    if let Some(account) = account {
        // Also drops root's further groups.
        command.uid(account.uid).gid(account.gid);
        command.env("HOME", &account.home).env("USER", &account.name);
        command.env("LOGNAME", &account.name);
    }
}

/// `PGHOST`, `PGSSLMODE`, ...; not `PGSEAL_...`.
fn is_postgres_variable(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with("PG") && !name.starts_with("PGSEAL"))
}

/// The command as people would type it.
pub fn shown(command: &Command) -> String {
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect();
    words.join(" ")
}

/// Runs a program to its end and returns what it wrote to standard output.
///
/// # Errors
///
/// [`LabError::Io`] if it cannot be started, [`LabError::Program`] if it fails.
pub fn output_of(command: &mut Command) -> Result<String, LabError> {
    let program = PathBuf::from(command.get_program());
    let shown = shown(command);
    let output = command.output().map_err(LabError::io(&program, "run the program"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(LabError::Program { command: shown, said: format!("{}: {said}", output.status) })
}

/// The ordinary user for a process of root: `SUDO_USER`, else `postgres`; none if this process is
/// not root's.
///
/// # Errors
///
/// [`LabError::Usage`] if root has neither.
pub fn ordinary_account() -> Result<Option<Account>, LabError> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let sudo = std::env::var("SUDO_USER").ok();
    sudo.iter().map(String::as_str).chain(["postgres"]).find_map(account_of).map(Some).ok_or_else(
        || {
            LabError::Usage(
                "PostgreSQL does not run as root, and there is no user postgres here; run pgseal \
                 lab as an ordinary user"
                    .to_owned(),
            )
        },
    )
}

/// A user of passwd(5) who is not root; asked of getent(1), so that other databases count too.
fn account_of(name: &str) -> Option<Account> {
    let output =
        Command::new("getent").args(["passwd", name]).stdin(Stdio::null()).output().ok()?;
    parse_passwd(&String::from_utf8_lossy(&output.stdout))
}

fn parse_passwd(line: &str) -> Option<Account> {
    let fields: Vec<&str> = line.trim_end().split(':').collect();
    let [name, _, uid, gid, _, home, ..] = fields[..] else { return None };
    let account = Account {
        name: name.to_owned(),
        uid: uid.parse().ok()?,
        gid: gid.parse().ok()?,
        home: PathBuf::from(home),
    };
    (account.uid != 0).then_some(account)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_passwd_and_never_root() {
        let line = "postgres:x:101:104:PostgreSQL,,,:/var/lib/postgresql:/bin/bash\n";
        let account = parse_passwd(line).unwrap();
        assert_eq!((account.uid, account.gid), (101, 104));
        assert_eq!(account.home, Path::new("/var/lib/postgresql"));
        assert_eq!(parse_passwd("root:x:0:0:root:/root:/bin/bash"), None);
        assert_eq!(parse_passwd(""), None);
    }

    #[test]
    fn variables_of_the_client_do_not_reach_what_is_measured() {
        assert!(is_postgres_variable(OsStr::new("PGSSLMODE")));
        assert!(!is_postgres_variable(OsStr::new("PGSEAL_LIBRARY")));
        assert!(!is_postgres_variable(OsStr::new("PATH")));
    }
}
