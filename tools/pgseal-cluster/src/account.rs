//! The ordinary user that servers run as: PostgreSQL refuses to run as root.

use std::ffi::OsStr;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::ClusterError;

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

impl Account {
    /// The user that servers of this process run as. `None` unless this process runs as root:
    /// servers then run as the same user. For root: the user who called `sudo`, else `postgres`.
    ///
    /// # Errors
    /// [`ClusterError::NoAccount`] if this process runs as root and neither user exists.
    pub fn ordinary() -> Result<Option<Self>, ClusterError> {
        let sudo = std::env::var("SUDO_USER").ok();
        let names: Vec<&str> = sudo.as_deref().into_iter().chain(["postgres"]).collect();
        Self::for_servers(&names)
    }

    /// The user that servers of this process run as. `None` unless this process runs as root:
    /// servers then run as the same user. For root: the first of `names` that is an ordinary user.
    ///
    /// # Errors
    /// [`ClusterError::NoAccount`] if this process runs as root and `names` has no ordinary user.
    pub fn for_servers(names: &[&str]) -> Result<Option<Self>, ClusterError> {
        if !is_root() {
            return Ok(None);
        }
        let account = names.iter().find_map(|name| Self::named(name));
        account.map(Some).ok_or(ClusterError::NoAccount)
    }

    /// Looks up a user who is not root. Uses getent(1), so that all user databases are searched,
    /// not only passwd(5).
    fn named(name: &str) -> Option<Self> {
        let output =
            Command::new("getent").args(["passwd", name]).stdin(Stdio::null()).output().ok()?;
        parse_passwd(&String::from_utf8_lossy(&output.stdout))
    }

    /// Makes this user the owner of a file or directory.
    ///
    /// # Errors
    /// When the owner cannot be changed.
    pub fn give(&self, path: &Path) -> Result<(), ClusterError> {
        chown(path, Some(self.uid), Some(self.gid))
            .map_err(ClusterError::io(path, "change the owner"))
    }
}

/// Whether this process runs as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Makes a command run as `account`, if one is given, without PostgreSQL's environment variables,
/// without a preloaded library and with empty standard input. The program is a direct child: this
/// process can signal it and wait for it.
pub fn run_as(account: Option<&Account>, command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if is_postgres_variable(&name) {
            command.env_remove(&name);
        }
    }
    command.env_remove("LD_PRELOAD").stdin(Stdio::null());
    if let Some(account) = account {
        // Also drops root's supplementary groups.
        command.uid(account.uid).gid(account.gid);
        command.env("HOME", &account.home).env("USER", &account.name);
        command.env("LOGNAME", &account.name);
    }
}

/// Variables that libpq and the server read: `PGHOST`, `PGSSLMODE`, ...; not `PGSEAL_...`, and not
/// `PG_CONFIG`, which says which PostgreSQL to take.
fn is_postgres_variable(name: &OsStr) -> bool {
    let others = ["PGSEAL", "PG_CONFIG"];
    name.to_str().is_some_and(|name| {
        name.starts_with("PG") && !others.iter().any(|other| name.starts_with(other))
    })
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
        assert!(!is_postgres_variable(OsStr::new("PG_CONFIG")));
        assert!(!is_postgres_variable(OsStr::new("PATH")));
    }
}
