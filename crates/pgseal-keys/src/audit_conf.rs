//! Where the audit trail goes: `/etc/pgseal/audit.conf`, which nobody who can only write to a data
//! directory can change; without the file, the environment says it.
//!
//! The file holds the lines `to = DESTINATIONS` and `required = yes` or `no`; empty lines and lines
//! that begin with `#` are skipped.

use std::env;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::KeyError;
use crate::trusted::TrustedFile;

/// The environment variable that names another file than [`AuditConf::DEFAULT`].
pub const AUDIT_CONF: &str = "PGSEAL_AUDIT_CONF";
/// The environment variable with the destinations, if there is no file.
pub const AUDIT: &str = "PGSEAL_AUDIT";
/// The environment variable that says whether the trail is required, if there is no file.
pub const AUDIT_REQUIRED: &str = "PGSEAL_AUDIT_REQUIRED";

const SYSLOG_SOCKET: &str = "/dev/log";
const JOURNALD_SOCKET: &str = "/run/systemd/journal/socket";
/// The most destinations.
const MAX_DESTINATIONS: usize = 4;

/// Where lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// The daemon that listens on this socket (RFC 3164, as of `syslog(3)`).
    Syslog(PathBuf),
    /// The journal of systemd, in its own protocol, on this socket.
    Journald(PathBuf),
    /// A file, to which lines are appended.
    File(PathBuf),
}

/// Where the audit trail goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditConf {
    /// The destinations. None: there is no trail.
    pub to: Vec<Destination>,
    /// Whether a key may only be used if its use can be recorded.
    pub required: bool,
}

impl AuditConf {
    /// The file that is read unless [`AUDIT_CONF`] is set.
    pub const DEFAULT: &str = "/etc/pgseal/audit.conf";

    /// What the file says, or else the environment. If neither says anything, lines go to the
    /// system's log, if there is one.
    ///
    /// # Errors
    /// [`KeyError::Insecure`] if a user other than root and the current one can write the file or a
    /// directory above it, or if it lies in `datadir`; [`KeyError::AuditFile`]; [`KeyError::Io`].
    pub fn find(datadir: Option<&Path>) -> Result<AuditConf, KeyError> {
        let named = variable(AUDIT_CONF)?.map(PathBuf::from);
        let is_default = named.is_none();
        let path = named.unwrap_or_else(|| AuditConf::DEFAULT.into());
        match AuditConf::load(&path, datadir) {
            Ok(Some(conf)) => return Ok(conf),
            Ok(None) => {}
            // A directory that only root may look into, for a key that systemd hands over: nobody
            // can tell whether there is a file for this user.
            Err(KeyError::Io { source, .. })
                if is_default && source.kind() == io::ErrorKind::PermissionDenied =>
            {
                eprintln!(
                    "pgseal: {}: this user may not look there, so what it says of the audit trail \
                     is not followed; let the user search the directory and read the file",
                    path.display()
                );
            }
            Err(error) => return Err(error),
        }
        let mut conf = AuditConf::default();
        if let Some(text) = variable(AUDIT_REQUIRED)? {
            conf.required =
                yes_or_no(&text).map_err(|what| bad(Path::new(AUDIT_REQUIRED), what))?;
        }
        match variable(AUDIT)? {
            Some(text) => {
                conf.to = destinations(&text).map_err(|what| bad(Path::new(AUDIT), what))?;
            }
            None if conf.required || Path::new(SYSLOG_SOCKET).exists() => {
                conf.to = vec![Destination::Syslog(SYSLOG_SOCKET.into())];
            }
            None => {}
        }
        match conf.required && conf.to.is_empty() {
            true => Err(bad(Path::new(AUDIT), format!("off, and {AUDIT_REQUIRED} is set"))),
            false => Ok(conf),
        }
    }

    /// What a file says; `None` if it does not exist.
    ///
    /// # Errors
    /// As [`AuditConf::find`].
    pub fn load(path: &Path, datadir: Option<&Path>) -> Result<Option<AuditConf>, KeyError> {
        let file = TrustedFile { path, why: "it says what is recorded", place: "/etc/pgseal" };
        let text = file.read(datadir, bad)?;
        text.map(|text| AuditConf::parse(&text, path)).transpose()
    }

    /// The text of a file. `path` is for messages.
    ///
    /// # Errors
    /// [`KeyError::AuditFile`].
    pub fn parse(text: &str, path: &Path) -> Result<AuditConf, KeyError> {
        let (mut to, mut required) = (None, None);
        for (index, line) in text.lines().enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let at = |what: String| bad(path, format!("line {}: {what}", index + 1));
            let parts = line.split_once('=').map(|(name, value)| (name.trim_ascii(), value));
            match parts {
                Some(("to", value)) if to.is_none() => {
                    to = Some(destinations(value).map_err(at)?);
                }
                Some(("required", value)) if required.is_none() => {
                    required = Some(yes_or_no(value).map_err(at)?);
                }
                Some(("to" | "required", _)) => return Err(at("it is set twice".to_owned())),
                _ => return Err(at("not \"to = ...\" or \"required = ...\"".to_owned())),
            }
        }
        let conf = AuditConf { to: to.unwrap_or_default(), required: required.unwrap_or(false) };
        match conf.required && conf.to.is_empty() {
            true => Err(bad(path, "required, but \"to\" names no destination".to_owned())),
            false => Ok(conf),
        }
    }
}

/// `off`, or destinations with commas between them.
fn destinations(text: &str) -> Result<Vec<Destination>, String> {
    if text.trim_ascii() == "off" {
        return Ok(Vec::new());
    }
    let mut all = Vec::new();
    for one in text.split(',').map(str::trim_ascii) {
        let (kind, path) =
            one.split_once(':').map_or((one, None), |(kind, path)| (kind, Some(path)));
        let path = path.map(Path::new);
        if path.is_some_and(|path| !path.is_absolute()) {
            return Err("a path is absolute".to_owned());
        }
        let or = |default: &str| path.map_or_else(|| PathBuf::from(default), Path::to_owned);
        let destination = match (kind, path) {
            ("syslog", _) => Destination::Syslog(or(SYSLOG_SOCKET)),
            ("journald", _) => Destination::Journald(or(JOURNALD_SOCKET)),
            ("file", Some(path)) => Destination::File(path.to_owned()),
            _ => {
                return Err(
                    "give off, or syslog, journald and file:/PATH with commas between them"
                        .to_owned(),
                );
            }
        };
        if all.contains(&destination) {
            return Err("a destination is named twice".to_owned());
        }
        all.push(destination);
    }
    match all.len() <= MAX_DESTINATIONS {
        true => Ok(all),
        false => Err(format!("at most {MAX_DESTINATIONS} destinations")),
    }
}

fn yes_or_no(text: &str) -> Result<bool, String> {
    match text.trim_ascii() {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("give yes or no".to_owned()),
    }
}

/// The value of a variable, if it is set and not empty.
fn variable(name: &str) -> Result<Option<String>, KeyError> {
    let Some(value) = env::var_os(name).filter(|value| !value.is_empty()) else { return Ok(None) };
    let text = value.into_string();
    text.map(Some).map_err(|_| bad(Path::new(name), "it is not UTF-8".to_owned()))
}

fn bad(path: &Path, what: String) -> KeyError {
    KeyError::AuditFile { path: path.to_owned(), what }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn parse(text: &str) -> Result<AuditConf, KeyError> {
        AuditConf::parse(text, Path::new("/etc/pgseal/audit.conf"))
    }

    #[test]
    fn destinations_are_read() {
        let conf = parse("# audit\nto = syslog, file:/var/log/pgseal/audit.log\nrequired = yes\n");
        let file = Destination::File("/var/log/pgseal/audit.log".into());
        let to = vec![Destination::Syslog("/dev/log".into()), file];
        assert_eq!(conf.unwrap(), AuditConf { to, required: true });
        let conf = parse("to = journald,syslog:/run/log").unwrap();
        let journal = Destination::Journald("/run/systemd/journal/socket".into());
        assert_eq!(conf.to, [journal, Destination::Syslog("/run/log".into())]);
        assert!(!conf.required);
        assert_eq!(parse("to = off").unwrap(), AuditConf::default());
        assert_eq!(parse("").unwrap(), AuditConf::default());
    }

    #[test]
    fn what_is_no_setting_is_refused() {
        for text in [
            "to = nowhere",
            "to =",
            "to = file",
            "to = file:audit.log",
            "to = syslog,syslog",
            "to = syslog\nto = syslog",
            "to = off,syslog",
            "to = file:/a,file:/b,file:/c,file:/d,file:/e",
            "required = yes",
            "to = off\nrequired = yes",
            "to = syslog\nrequired = true",
            "syslog",
            "file = /x",
        ] {
            let error = parse(text).unwrap_err();
            assert!(matches!(error, KeyError::AuditFile { .. }), "{text}: {error}");
            assert_eq!(error.exit_code(), 2);
        }
    }

    #[test]
    fn a_file_that_others_can_write_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.conf");
        assert_eq!(AuditConf::load(&path, None).unwrap(), None);
        fs::write(&path, "to = off\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(AuditConf::load(&path, None).unwrap().is_some());
        assert_eq!(AuditConf::load(&path, Some(dir.path())).unwrap_err().exit_code(), 12);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
        assert_eq!(AuditConf::load(&path, None).unwrap_err().exit_code(), 12);
    }
}
