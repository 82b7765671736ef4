//! The journal of an unfinished conversion, `pgseal/conversion`.
//!
//! The file exists from before the first change until after the last one. It says what the data
//! directory is converted to. It does not say which files are done: the files themselves show that.

use std::path::{Path, PathBuf};

use pgseal_core::{Generation, Suite};
use serde::{Deserialize, Serialize};

use crate::control::Control;
use crate::error::ConvertError;
use crate::files::{read_whole, sync_dir, write_whole};
use crate::media::Media;

/// The directory of pgseal in a data directory.
pub const OWN_DIR: &str = "pgseal";
const FORMAT: &str = "pgseal-conversion";
const VERSION: u32 = 1;

/// What a data directory is converted to.
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
    /// The name of the command for this operation.
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
    /// No file has been converted yet.
    Prepare,
    /// Some files have the old form and some the new form.
    Convert,
    /// All files have the new form.
    Finish,
}

/// What a conversion must know from `pg_control`.
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

/// An unfinished conversion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Journal {
    format: String,
    version: u32,
    /// What the data directory is converted to.
    pub operation: Operation,
    /// How far the conversion has come.
    pub phase: Phase,
    /// The whole text of `PG_VERSION`, which [`crate::barrier`] replaces meanwhile.
    pub pg_version: String,
    /// The full name of the suite of relation files; empty for `decrypt`.
    pub suite: String,
    /// The identity of the keyring: `encrypt` makes a new keyring, the others use the existing one.
    pub keyring: String,
    /// The generation that was active before. If it is still active, `rekey` adds a generation.
    pub generation_before: u32,
    /// What `pg_control` said.
    pub facts: Facts,
    /// The configuration file that names the guard module, or will name it.
    pub config_file: PathBuf,
}

impl Journal {
    /// The journal of a conversion that begins.
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

    /// The path of the journal.
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

    /// The name of the cluster's version directory in each tablespace.
    #[must_use]
    pub fn version_dir(&self) -> String {
        format!("PG_{}_{}", self.major(), self.facts.catalog_version)
    }

    /// The generation that was active before the conversion.
    #[must_use]
    pub fn generation_before(&self) -> Generation {
        Generation(self.generation_before)
    }

    /// Loads the journal of a data directory; `None` if no conversion is unfinished.
    ///
    /// # Errors
    /// [`ConvertError::Journal`], and errors of reading the file.
    pub fn load<M: Media>(media: &M, root: &Path) -> Result<Option<Journal>, ConvertError> {
        let path = Journal::path(root);
        if !media.exists(&path).map_err(ConvertError::io(&path, "look for the journal"))? {
            return Ok(None);
        }
        let text = read_whole(media, &path)?;
        Journal::parse(&text, &path).map(Some)
    }

    /// Parses a journal. Nobody has authenticated it, so no path that it names is used here. `path`
    /// is for messages.
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
        // The version becomes a component of paths.
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

    /// Stores the journal. After a crash, the whole old one or the whole new one is there.
    ///
    /// # Errors
    /// Errors of writing the journal.
    pub fn store<M: Media>(
        &self,
        media: &M,
        root: &Path,
        control: &Control,
    ) -> Result<(), ConvertError> {
        let path = Journal::path(root);
        write_whole(media, &path, &self.to_bytes(&path)?, &root.join(OWN_DIR), control)
    }

    /// Removes the journal at the end of a conversion.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn remove<M: Media>(media: &M, root: &Path, control: &Control) -> Result<(), ConvertError> {
        let path = Journal::path(root);
        control.step()?;
        media.remove(&path).map_err(ConvertError::io(&path, "remove the journal"))?;
        sync_dir(media, &root.join(OWN_DIR))
    }
}
