//! How the audit trail of this machine stands: where it goes, whether a line would be taken now,
//! and when a file of it was last written and verified. Writes nothing.

use std::path::Path;

use pgseal_core::KeyringId;
use pgseal_keys::audit::time_of;
use pgseal_keys::{AuditConf, Destination};
use serde::Serialize;

use super::{file, socket};
use crate::memory::{self, Check};

/// One destination.
#[derive(Clone, Debug, Serialize)]
pub struct DestinationLook {
    /// As in `audit.conf`: `file:/var/log/pgseal/audit.log`.
    pub destination: String,
    /// Why it would not take a line now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Of a file: the time of its last line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<String>,
    /// Of a file: the last `pgseal audit verify -D` with the keys of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified: Option<Check>,
}

/// The trail.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TrailLook {
    /// Why the configuration of the trail is refused: then no key is used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Whether no key is used that cannot be recorded.
    pub required: bool,
    /// Where it goes; nowhere if there is no trail.
    pub destinations: Vec<DestinationLook>,
}

impl TrailLook {
    /// Looks, as the current user. `id`: the keyring whose verifications count.
    pub fn at(datadir: &Path, id: Option<KeyringId>) -> TrailLook {
        let conf = match AuditConf::find(Some(datadir)) {
            Ok(conf) => conf,
            Err(error) => {
                return TrailLook { error: Some(error.to_string()), ..TrailLook::default() };
            }
        };
        let verified = id.map(|id| memory::of(id).trail).unwrap_or_default();
        let look = |to: &Destination| look_at(to, datadir, &verified);
        TrailLook {
            error: None,
            required: conf.required,
            destinations: conf.to.iter().map(look).collect(),
        }
    }

    /// Why the trail does not work.
    pub fn failures(&self) -> Vec<String> {
        let failed = |one: &DestinationLook| {
            let error = one.error.as_ref()?;
            Some(format!("{}: {error}", one.destination))
        };
        self.error.iter().cloned().chain(self.destinations.iter().filter_map(failed)).collect()
    }
}

fn look_at(to: &Destination, datadir: &Path, verified: &[Check]) -> DestinationLook {
    let (kind, path) = match to {
        Destination::Syslog(path) => ("syslog", path),
        Destination::Journald(path) => ("journald", path),
        Destination::File(path) => ("file", path),
    };
    let (last, error) = match to {
        Destination::File(path) => match file::last_line(path, Some(datadir)) {
            Ok(line) => (line.as_deref().and_then(time_of), None),
            Err(error) => (None, Some(error)),
        },
        Destination::Syslog(path) | Destination::Journald(path) => {
            (None, socket::listens(path).err())
        }
    };
    let real = path.canonicalize().unwrap_or_else(|_| path.clone()).display().to_string();
    DestinationLook {
        destination: format!("{kind}:{}", path.display()),
        error: error.map(|error| error.to_string()),
        last,
        verified: verified.iter().rev().find(|check| check.path == real).cloned(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::net::{UnixDatagram, UnixListener};

    use super::*;

    #[test]
    fn a_destination_is_looked_at_and_not_written() {
        let temp = tempfile::tempdir().unwrap();
        let data = temp.path().join("data");
        fs::create_dir(&data).unwrap();
        let look = |to: Destination| look_at(&to, &data, &[]);
        let path = temp.path().join("audit.log");
        let file = || look(Destination::File(path.clone()));
        let first = file();
        assert!(first.error.is_none() && first.last.is_none(), "{first:?}");
        assert!(!path.exists(), "it was not made");
        let line = r#"{"pgseal_audit":1,"time":"2026-01-31T12:00:00Z","seq":2,"prev":""}"#;
        fs::write(&path, format!("older\n{line}\n")).unwrap();
        assert_eq!(file().last.as_deref(), Some("2026-01-31T12:00:00Z"));
        fs::write(&path, "no line of pgseal").unwrap();
        assert!(file().last.is_none() && file().error.is_none());
        // In the data directory, in no directory, and a directory.
        for bad in [data.join("audit.log"), temp.path().join("none/audit.log"), data.clone()] {
            fs::write(data.join("audit.log"), "").unwrap();
            assert!(look(Destination::File(bad.clone())).error.is_some(), "{}", bad.display());
        }
        let socket = temp.path().join("socket");
        assert!(look(Destination::Syslog(socket.clone())).error.is_some());
        let daemon = UnixDatagram::bind(&socket).unwrap();
        assert!(look(Destination::Syslog(socket.clone())).error.is_none());
        assert!(look(Destination::Journald(socket.clone())).error.is_none());
        drop(daemon);
        assert!(look(Destination::Journald(socket.clone())).error.is_some(), "nobody listens");
        let streams = temp.path().join("streams");
        let _daemon = UnixListener::bind(&streams).unwrap();
        assert!(look(Destination::Syslog(streams)).error.is_none());
    }
}
