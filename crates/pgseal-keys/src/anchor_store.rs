//! Where anchors are kept: a directory on another volume, a command, or a key store
//! (`spec/anchor.md`).

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use pgseal_core::KeyringId;
use pgseal_plugin::Anchor;
use serde::{Deserialize, Serialize};

use crate::anchor::State;
use crate::error::KeyError;
use crate::files::{Links, expect_private, open_regular_as, sync_dir};
use crate::provider::{Patience, Plugin, Provider, anchor_command};

/// The forms of the URI, for messages.
const FORMS: &str = "use file:DIRECTORY, command:SHELL COMMAND, or the URI of a key store";
/// The longest file of an anchor, in bytes.
const MAX_LEN: u64 = 4096;

/// A store of anchors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnchorStore {
    /// `file:DIRECTORY`: one file for each keyring.
    Directory(PathBuf),
    /// `command:SHELL COMMAND`.
    Command(String),
    /// `NAME:...`: a key store.
    Store(Plugin),
}

/// The content of an anchor's file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    keyring: String,
    #[serde(flatten)]
    anchor: Anchor,
}

impl AnchorStore {
    /// The store of a URI.
    ///
    /// # Errors
    /// [`KeyError::BadUri`].
    pub fn parse(uri: &str) -> Result<AnchorStore, KeyError> {
        let bad = |reason: &str| KeyError::BadUri {
            uri: Provider::shown(uri),
            reason: format!("{reason}; {FORMS}"),
        };
        match Provider::parse(uri) {
            Ok(Provider::File(path)) => Ok(AnchorStore::Directory(path)),
            Ok(Provider::Command(text)) => Ok(AnchorStore::Command(text)),
            Ok(Provider::Plugin(plugin)) => Ok(AnchorStore::Store(plugin)),
            Ok(Provider::Env(_) | Provider::Passphrase(_)) => {
                Err(bad("an anchor cannot be kept there"))
            }
            Err(KeyError::BadUri { .. }) if uri.starts_with("file:") => {
                Err(bad("file: wants an absolute path"))
            }
            Err(error) => Err(error),
        }
    }

    /// The anchor of the cluster with this keyring; `None` if the store has none.
    ///
    /// # Errors
    /// [`KeyError`] by whose fault it is.
    pub fn read(&self, id: KeyringId) -> Result<Option<State>, KeyError> {
        let anchor = match self {
            AnchorStore::Directory(dir) => read_file(dir, id)?,
            AnchorStore::Command(text) => self.read_by_command(text, id)?,
            AnchorStore::Store(plugin) => {
                plugin.anchor_read(id, Patience::from_environment()?)?.anchor
            }
        };
        let Some(anchor) = anchor else { return Ok(None) };
        match State::of(anchor.sequence, &anchor.value) {
            Some(state) => Ok(Some(state)),
            None => Err(self.failed("what it has is not an anchor of this version of pgseal")),
        }
    }

    /// Replaces the anchor by one with a higher sequence number, lastingly.
    ///
    /// # Errors
    /// [`KeyError`] by whose fault it is; also if the store has the same number or a higher one.
    pub fn advance(&self, id: KeyringId, state: &State) -> Result<(), KeyError> {
        let anchor = Anchor { sequence: state.sequence, value: state.value().to_vec() };
        match self {
            AnchorStore::Directory(dir) => write_file(dir, id, anchor),
            AnchorStore::Command(text) => {
                let variables = [
                    ("PGSEAL_ANCHOR_OPERATION", "advance".to_owned()),
                    ("PGSEAL_ANCHOR_KEYRING", id.to_string()),
                    ("PGSEAL_ANCHOR_SEQUENCE", anchor.sequence.to_string()),
                    ("PGSEAL_ANCHOR_VALUE", data_encoding::HEXLOWER.encode(&anchor.value)),
                ];
                anchor_command(text, &self.shown(), &variables).map(drop)
            }
            AnchorStore::Store(plugin) => {
                plugin.anchor_advance(id, anchor, Patience::from_environment()?)
            }
        }
    }

    fn read_by_command(&self, text: &str, id: KeyringId) -> Result<Option<Anchor>, KeyError> {
        let variables = [
            ("PGSEAL_ANCHOR_OPERATION", "read".to_owned()),
            ("PGSEAL_ANCHOR_KEYRING", id.to_string()),
        ];
        let output = anchor_command(text, &self.shown(), &variables)?;
        let wrong =
            || self.failed("the command must print NUMBER VALUE, or nothing if it has none");
        let line = str::from_utf8(&output).map_err(|_| wrong())?.trim();
        if line.is_empty() {
            return Ok(None);
        }
        let (sequence, value) = line.split_once(' ').ok_or_else(wrong)?;
        let value = data_encoding::HEXLOWER_PERMISSIVE.decode(value.trim().as_bytes());
        Ok(Some(Anchor {
            sequence: sequence.parse().map_err(|_| wrong())?,
            value: value.map_err(|_| wrong())?,
        }))
    }

    fn failed(&self, what: &str) -> KeyError {
        KeyError::AnchorFailed { store: self.shown(), what: what.to_owned() }
    }

    /// The store for messages, without secrets.
    #[must_use]
    pub fn shown(&self) -> String {
        match self {
            AnchorStore::Directory(dir) => format!("file:{}", dir.display()),
            AnchorStore::Command(text) => Provider::shown(&format!("command:{text}")),
            AnchorStore::Store(plugin) => Provider::shown(plugin.uri()),
        }
    }
}

fn path_of(dir: &Path, id: KeyringId) -> PathBuf {
    dir.join(format!("{id}.anchor"))
}

/// Opens the directory of the anchors, and refuses one that other users can write.
fn open_dir(dir: &Path) -> Result<File, KeyError> {
    let handle = File::open(dir)
        .map_err(|error| KeyError::io(dir, "open the directory of the anchors", error))?;
    let meta = handle
        .metadata()
        .map_err(|error| KeyError::io(dir, "stat the directory of the anchors", error))?;
    if !meta.is_dir() {
        let source = io::Error::from(io::ErrorKind::NotADirectory);
        return Err(KeyError::io(dir, "use it for anchors", source));
    }
    expect_private(dir, &meta, "whoever writes there decides which copy is the newest")?;
    Ok(handle)
}

fn read_file(dir: &Path, id: KeyringId) -> Result<Option<Anchor>, KeyError> {
    open_dir(dir)?;
    let path = path_of(dir, id);
    let io = |error| KeyError::io(&path, "read the anchor", error);
    let file = match open_regular_as(&path, Links::Refused) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(error)),
    };
    let mut text = Vec::new();
    file.take(MAX_LEN + 1).read_to_end(&mut text).map_err(io)?;
    let stored: Option<Stored> = serde_json::from_slice(&text).ok();
    match stored.filter(|stored| stored.version == 1 && stored.keyring == id.to_string()) {
        Some(stored) => Ok(Some(stored.anchor)),
        None => Err(KeyError::AnchorFailed {
            store: path.display().to_string(),
            what: "the file is damaged, or not that of this keyring".to_owned(),
        }),
    }
}

fn write_file(dir: &Path, id: KeyringId, anchor: Anchor) -> Result<(), KeyError> {
    let handle = open_dir(dir)?;
    // Closing the handle unlocks.
    handle.lock().map_err(|error| KeyError::io(dir, "lock the directory of the anchors", error))?;
    if let Some(had) = read_file(dir, id)?
        && had.sequence >= anchor.sequence
    {
        return Err(KeyError::AnchorFailed {
            store: path_of(dir, id).display().to_string(),
            what: format!(
                "it has number {} already; another server moved it: does one run on a copy of \
                 this data directory?",
                had.sequence
            ),
        });
    }
    let path = path_of(dir, id);
    let new = dir.join(format!("{id}.anchor.new"));
    let io = |error| KeyError::io(&path, "write the anchor", error);
    let stored = Stored { version: 1, keyring: id.to_string(), anchor };
    let mut text = serde_json::to_vec(&stored).map_err(io::Error::other).map_err(io)?;
    text.push(b'\n');
    // What an interrupted write left.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io(error)),
        _ => {}
    }
    File::create_new(&new)
        .and_then(|mut file| {
            file.write_all(&text)?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&new, &path))
        .map_err(io)?;
    sync_dir(dir)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::anchor::Seen;

    const ID: KeyringId = KeyringId([7; 16]);

    fn stored(sequence: u64) -> State {
        State { sequence, seen: Seen::Stopped { manifest: 3, control: [9; 32] } }
    }

    fn behaves(store: &AnchorStore) {
        assert_eq!(store.read(ID).unwrap(), None);
        store.advance(ID, &stored(1)).unwrap();
        store.advance(ID, &stored(5)).unwrap();
        assert_eq!(store.read(ID).unwrap(), Some(stored(5)));
        // Never backwards.
        for stale in [5, 4] {
            let error = store.advance(ID, &stored(stale)).unwrap_err();
            assert_eq!(error.exit_code(), 13, "{error}");
            assert_eq!(store.read(ID).unwrap(), Some(stored(5)));
        }
        // Each keyring has its own.
        assert_eq!(store.read(KeyringId([8; 16])).unwrap(), None);
    }

    #[test]
    fn a_directory_keeps_anchors() {
        let dir = tempfile::tempdir().unwrap();
        let store = AnchorStore::parse(&format!("file:{}", dir.path().display())).unwrap();
        behaves(&store);
        // What an interrupted write left is in nobody's way.
        fs::write(dir.path().join(format!("{ID}.anchor.new")), "half").unwrap();
        store.advance(ID, &stored(6)).unwrap();
        assert_eq!(store.read(ID).unwrap(), Some(stored(6)));

        let path = path_of(dir.path(), ID);
        let good = fs::read_to_string(&path).unwrap();
        for bad in ["", "{}", &good.replace("\"version\":1", "\"version\":2"), &good[..20]] {
            fs::write(&path, bad).unwrap();
            assert!(store.read(ID).is_err(), "{bad}");
        }
        // The anchor of another keyring under this name.
        fs::write(&path, good.replace(&ID.to_string(), &KeyringId([8; 16]).to_string())).unwrap();
        assert!(store.read(ID).is_err());
        fs::write(&path, good).unwrap();
        assert!(store.read(ID).is_ok());

        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(store.read(ID).unwrap_err().exit_code(), 12);
        assert_eq!(store.advance(ID, &stored(7)).unwrap_err().exit_code(), 12);
    }

    #[test]
    fn a_missing_directory_is_no_missing_anchor() {
        let dir = tempfile::tempdir().unwrap();
        let gone = dir.path().join("not-mounted");
        let store = AnchorStore::Directory(gone.clone());
        let error = store.read(ID).unwrap_err();
        assert!(error.to_string().contains("not-mounted"), "{error}");
        fs::write(&gone, "").unwrap();
        assert!(store.read(ID).is_err());
    }

    #[test]
    fn a_command_keeps_anchors() {
        let dir = tempfile::tempdir().unwrap();
        let script = format!(
            r#"f={}/$PGSEAL_ANCHOR_KEYRING;
               case $PGSEAL_ANCHOR_OPERATION in
               read) [ ! -e "$f" ] || cat "$f" ;;
               advance) [ ! -e "$f" ] || [ "$(cut -d' ' -f1 "$f")" -lt "$PGSEAL_ANCHOR_SEQUENCE" ] || exit 1;
                   echo "$PGSEAL_ANCHOR_SEQUENCE $PGSEAL_ANCHOR_VALUE" > "$f" ;;
               esac"#,
            dir.path().display()
        );
        behaves(&AnchorStore::parse(&format!("command:{}", script.replace('\n', " "))).unwrap());
        for bad in ["echo 1", "echo x 00", "echo 1 zz", "echo 1 00", "exit 3"] {
            let store = AnchorStore::Command(bad.to_owned());
            assert_eq!(store.read(ID).unwrap_err().exit_code(), 13, "{bad}");
        }
    }

    #[test]
    fn what_cannot_keep_an_anchor_is_refused() {
        for bad in ["env:A", "passphrase:", "file:relative", "nonsense", ""] {
            let error = AnchorStore::parse(bad).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{bad}");
        }
        let store = AnchorStore::parse("vault:transit/key?anchor=a").unwrap();
        assert!(matches!(store, AnchorStore::Store(_)));
    }
}
