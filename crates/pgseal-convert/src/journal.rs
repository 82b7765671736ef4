//! What is under way in a data directory: `pgseal/conversion`.
//!
//! The file is there from before the first change until after the last one. It says what shall come
//! of the data directory, not which files are done: that is in the files themselves.

use std::path::{Path, PathBuf};

use pgseal_core::storage::Storage;
use pgseal_core::{Generation, SealedOff, Suite};
use serde::{Deserialize, Serialize};

use crate::NEW_SUFFIX;
use crate::control::Control;
use crate::error::ConvertError;
use crate::media::Media;

/// The directory of pgseal in a data directory.
pub const OWN_DIR: &str = "pgseal";
const FORMAT: &str = "pgseal-conversion";
const VERSION: u32 = 1;
/// No journal is longer.
const MAX_LEN: usize = 1 << 16;

/// What shall come of a data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// Plain to sealed.
    Encrypt,
    /// Sealed to plain.
    Decrypt,
    /// Sealed under a new data key, perhaps in another suite.
    Rekey,
}

impl Operation {
    /// The name of the command.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Operation::Encrypt => "encrypt",
            Operation::Decrypt => "decrypt",
            Operation::Rekey => "rekey",
        }
    }
}

/// How far a conversion has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// No file of PostgreSQL's has another content than before.
    Prepare,
    /// Some files are of the old form and some of the new.
    Convert,
    /// All files are of the new form.
    Finish,
}

/// What `pg_control` says of a cluster, and a conversion must know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Facts {
    /// The catalog version number, a part of the name of a tablespace's directory.
    pub catalog_version: u32,
    /// Whether data checksums are on.
    pub checksums: bool,
    /// Pages in a whole segment of a relation.
    pub segment_pages: u32,
}

/// A conversion under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Journal {
    format: String,
    version: u32,
    /// What shall come of it.
    pub operation: Operation,
    /// How far it has come.
    pub phase: Phase,
    /// The whole text of `PG_VERSION`, which [`crate::barrier`] takes away.
    pub pg_version: String,
    /// The full name of the suite of relation files; empty for `decrypt`.
    pub suite: String,
    /// The identity of the keyring: the one that `encrypt` makes, or the one that was there.
    pub keyring: String,
    /// The active generation before: `rekey` adds one if it still is.
    pub generation_before: u32,
    /// What `pg_control` said.
    pub facts: Facts,
    /// The configuration file that the guard module's line belongs into.
    pub config_file: PathBuf,
}

impl Journal {
    /// A conversion that begins.
    #[must_use]
    pub fn new(
        operation: Operation,
        pg_version: String,
        suite: Option<Suite>,
        facts: Facts,
        config_file: PathBuf,
    ) -> Journal {
        Journal {
            format: FORMAT.to_owned(),
            version: VERSION,
            operation,
            phase: Phase::Prepare,
            pg_version,
            suite: suite.map(|suite| suite.name().to_owned()).unwrap_or_default(),
            keyring: String::new(),
            generation_before: 0,
            facts,
            config_file,
        }
    }

    /// Where it lies.
    #[must_use]
    pub fn path(root: &Path) -> PathBuf {
        root.join(OWN_DIR).join("conversion")
    }

    /// The suite of relation files.
    #[must_use]
    pub fn suite(&self) -> Option<Suite> {
        Suite::ALL.into_iter().find(|suite| suite.name() == self.suite)
    }

    /// The major version of PostgreSQL.
    #[must_use]
    pub fn major(&self) -> &str {
        self.pg_version.trim()
    }

    /// The name of the directory of this cluster in each tablespace.
    #[must_use]
    pub fn version_dir(&self) -> String {
        format!("PG_{}_{}", self.major(), self.facts.catalog_version)
    }

    /// The generation that was active before.
    #[must_use]
    pub fn generation_before(&self) -> Generation {
        Generation(self.generation_before)
    }

    /// The journal of a data directory, if a conversion is under way.
    ///
    /// # Errors
    /// [`ConvertError::Journal`], and those of reading.
    pub fn load<M: Media>(media: &M, root: &Path) -> Result<Option<Journal>, ConvertError> {
        let path = Journal::path(root);
        if !media.exists(&path).map_err(ConvertError::io(&path, "look for the journal"))? {
            return Ok(None);
        }
        let text = read_whole(media, &path)?;
        Journal::parse(&text, &path).map(Some)
    }

    /// Takes a journal apart. Whoever wrote it, what it names is only text: nothing is looked for here.
    /// `path` is for messages.
    ///
    /// # Errors
    /// [`ConvertError::Journal`].
    pub fn parse(text: &[u8], path: &Path) -> Result<Journal, ConvertError> {
        let damaged = |what: String| ConvertError::Journal { path: path.to_owned(), what };
        let journal: Journal = serde_json::from_slice(text)
            .map_err(|error| damaged(format!("not the journal of a conversion ({error})")))?;
        if journal.format != FORMAT || journal.version != VERSION {
            return Err(damaged("written by another release of pgseal; use that one".to_owned()));
        }
        // It becomes a part of paths.
        let version = journal.major();
        if version.is_empty() || !version.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(damaged("it names no version of PostgreSQL".to_owned()));
        }
        if journal.operation != Operation::Decrypt && journal.suite().is_none() {
            return Err(damaged(format!("no suite is called \"{}\"", journal.suite)));
        }
        Ok(journal)
    }

    /// The bytes of the file.
    ///
    /// # Errors
    /// [`ConvertError::Journal`] when JSON cannot be written.
    pub fn to_bytes(&self, path: &Path) -> Result<Vec<u8>, ConvertError> {
        let mut text = serde_json::to_vec_pretty(self).map_err(|error| ConvertError::Journal {
            path: path.to_owned(),
            what: error.to_string(),
        })?;
        text.push(b'\n');
        Ok(text)
    }

    /// Writes it over the one that is there, so that a crash leaves one of them whole.
    ///
    /// # Errors
    /// Those of writing.
    pub fn store<M: Media>(
        &self,
        media: &M,
        root: &Path,
        control: &Control,
    ) -> Result<(), ConvertError> {
        let path = Journal::path(root);
        write_whole(media, &path, &self.to_bytes(&path)?, &root.join(OWN_DIR), control)
    }

    /// Removes it: the end of a conversion.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn remove<M: Media>(media: &M, root: &Path, control: &Control) -> Result<(), ConvertError> {
        let path = Journal::path(root);
        control.step()?;
        media.remove(&path).map_err(ConvertError::io(&path, "remove the journal"))?;
        sync_dir(media, &root.join(OWN_DIR))
    }
}

/// All bytes of a small file.
pub(crate) fn read_whole<M: Media>(media: &M, path: &Path) -> Result<Vec<u8>, ConvertError> {
    let failed = |error| ConvertError::io(path, "read the file")(error);
    let file = media.open(path).map_err(failed)?;
    let mut bytes = vec![0; MAX_LEN];
    let got = file.read_at(&mut bytes, SealedOff(0)).map_err(failed)?;
    bytes.truncate(got);
    Ok(bytes)
}

/// Puts a small file in the place of another one, or where there is none.
pub(crate) fn write_whole<M: Media>(
    media: &M,
    path: &Path,
    bytes: &[u8],
    like: &Path,
    control: &Control,
) -> Result<(), ConvertError> {
    let new = with_suffix(path);
    control.step()?;
    media.remove(&new).map_err(ConvertError::io(&new, "remove what a stopped run left"))?;
    let file = media.create(&new, like).map_err(ConvertError::io(&new, "make the file"))?;
    control.step()?;
    file.write_at(bytes, SealedOff(0)).map_err(ConvertError::io(&new, "write the file"))?;
    file.sync().map_err(ConvertError::io(&new, "sync the file"))?;
    control.step()?;
    media.rename(&new, path).map_err(ConvertError::io(path, "put the new file in place"))?;
    control.step()?;
    sync_dir(media, parent(path))
}

pub(crate) fn with_suffix(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(NEW_SUFFIX);
    PathBuf::from(name)
}

pub(crate) fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

pub(crate) fn sync_dir<M: Media>(media: &M, dir: &Path) -> Result<(), ConvertError> {
    media.sync_dir(dir).map_err(ConvertError::io(dir, "sync the directory"))
}
