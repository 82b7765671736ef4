//! `/etc/pgseal/clusters.d/KEYRING-ID.conf` names the provider of a cluster's key. Somebody who can
//! write to the data directory cannot write this file.
//!
//! The file holds a line `provider = URI` for each source of a key, in the order in which they are
//! asked; empty lines and lines that begin with `#` are skipped.

use std::env;
use std::iter;
use std::path::{Path, PathBuf};

use pgseal_core::KeyringId;

use crate::error::KeyError;
use crate::provider::Provider;
use crate::trusted::TrustedFile;

/// The environment variable that names another directory than [`Clusters::DEFAULT`]. It gives no
/// new power: somebody who can set a program's environment can also set `PGSEAL_PROVIDER`.
pub const CLUSTERS_DIR: &str = "PGSEAL_CLUSTERS_DIR";

/// Why nobody else may write the file.
const WHY: &str = "it says where a key comes from";

/// Which line of the file of a cluster names a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// The first one, which is asked first.
    First,
    /// One more, behind the others.
    Another,
}

/// The directory that holds one file for each cluster.
#[derive(Clone, Debug)]
pub struct Clusters {
    dir: PathBuf,
}

impl Clusters {
    /// The directory that is used unless [`CLUSTERS_DIR`] is set.
    pub const DEFAULT: &str = "/etc/pgseal/clusters.d";

    /// The directory that [`CLUSTERS_DIR`] names, or [`Clusters::DEFAULT`].
    #[must_use]
    pub fn from_environment() -> Clusters {
        let given = env::var_os(CLUSTERS_DIR).filter(|dir| !dir.is_empty());
        Clusters::at(given.map_or_else(|| PathBuf::from(Clusters::DEFAULT), PathBuf::from))
    }

    /// A given directory.
    #[must_use]
    pub fn at(dir: PathBuf) -> Clusters {
        Clusters { dir }
    }

    /// The path of the file of the cluster with this keyring. The file need not exist.
    #[must_use]
    pub fn file_of(&self, id: KeyringId) -> PathBuf {
        self.dir.join(format!("{id}.conf"))
    }

    /// The providers that the file of this cluster names, in their order; none if there is no file.
    ///
    /// # Errors
    /// [`KeyError::Insecure`] if a user other than root and the current one can write the file or a
    /// directory above it, or if the file lies in `datadir`; [`KeyError::ClusterFile`];
    /// [`KeyError::Io`].
    pub fn providers_of(
        &self,
        id: KeyringId,
        datadir: Option<&Path>,
    ) -> Result<Vec<Provider>, KeyError> {
        let path = self.file_of(id);
        match trusted(&path).read(datadir, bad)? {
            Some(text) => Clusters::parse(&text, &path),
            None => Ok(Vec::new()),
        }
    }

    /// The providers in the text of a cluster's file. `path` is for messages.
    ///
    /// # Errors
    /// [`KeyError::ClusterFile`].
    pub fn parse(text: &str, path: &Path) -> Result<Vec<Provider>, KeyError> {
        let mut providers = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let number = index + 1;
            let value = line.split_once('=').filter(|(name, _)| name.trim_ascii() == "provider");
            let Some((_, value)) = value else {
                return Err(bad(path, format!("line {number} is not \"provider = URI\"")));
            };
            let parsed = Provider::parse(value.trim_ascii())
                .map_err(|error| bad(path, format!("line {number}: {error}")))?;
            if providers.contains(&parsed) {
                return Err(bad(path, format!("line {number} names the same provider again")));
            }
            providers.push(parsed);
        }
        if providers.iter().filter(|provider| provider.variable().is_some()).count() > 1 {
            return Err(bad(path, "it names two environment variables".to_owned()));
        }
        match providers.is_empty() {
            true => Err(bad(path, "it names no provider".to_owned())),
            false => Ok(providers),
        }
    }

    /// Writes the file of a cluster, with mode 0640, so that its first line or, with
    /// [`Line::Another`], one more line names this provider; other lines stay. If root writes it,
    /// the file gets this group, so that the user of the server can read it and other users cannot.
    ///
    /// # Errors
    /// [`KeyError::Io`]; the old file then has not changed.
    pub fn register(
        &self,
        id: KeyringId,
        provider: &Provider,
        line: Line,
        group: Option<u32>,
    ) -> Result<PathBuf, KeyError> {
        let path = self.file_of(id);
        // What cannot be used is replaced by the line that can.
        let mut providers = self.providers_of(id, None).unwrap_or_default();
        match line {
            Line::First => {
                let others = providers.into_iter().skip(1).filter(|known| known != provider);
                providers = iter::once(provider.clone()).chain(others).collect();
            }
            Line::Another if providers.contains(provider) => {}
            Line::Another => providers.push(provider.clone()),
        }
        let mut text = "# Where the key of the cluster with this keyring comes from.\n".to_owned();
        for provider in &providers {
            text += &format!("provider = {provider}\n");
        }
        trusted(&path).write(&text, 0o640, group)?;
        Ok(path)
    }

    /// Checks that [`Clusters::register`] would be able to write, before a command starts its work.
    ///
    /// # Errors
    /// [`KeyError::Io`].
    pub fn expect_writable(&self) -> Result<(), KeyError> {
        let nearest = self.dir.ancestors().find(|dir| dir.is_dir()).unwrap_or(Path::new("/"));
        let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
        rustix::fs::access(nearest, access).map_err(|error| {
            KeyError::io(&self.dir, "write there, which --register asks for", error.into())
        })
    }
}

fn trusted(path: &Path) -> TrustedFile<'_> {
    TrustedFile { path, why: WHY, place: "/etc/pgseal/clusters.d" }
}

fn bad(path: &Path, what: String) -> KeyError {
    KeyError::ClusterFile { path: path.to_owned(), what }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    const ID: KeyringId = KeyringId([0xab; 16]);

    fn with(text: &str) -> (tempfile::TempDir, Clusters) {
        let dir = tempfile::tempdir().unwrap();
        let clusters = Clusters::at(dir.path().join("clusters.d"));
        fs::create_dir(&clusters.dir).unwrap();
        fs::write(clusters.file_of(ID), text).unwrap();
        fs::set_permissions(clusters.file_of(ID), fs::Permissions::from_mode(0o640)).unwrap();
        (dir, clusters)
    }

    #[test]
    fn a_registered_provider_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let clusters = Clusters::at(dir.path().join("pgseal/clusters.d"));
        assert_eq!(clusters.providers_of(ID, None).unwrap(), []);
        for uri in ["command:vault kv get -field=key secret/pg", "env:PGSEAL_KEY"] {
            let provider = Provider::parse(uri).unwrap();
            let path = clusters.register(ID, &provider, Line::First, None).unwrap();
            assert_eq!(fs::metadata(path).unwrap().mode() & 0o777, 0o640);
            assert_eq!(clusters.providers_of(ID, None).unwrap(), [provider]);
        }
        assert_eq!(clusters.providers_of(KeyringId([1; 16]), None).unwrap(), []);
        assert_eq!(fs::read_dir(&clusters.dir).unwrap().count(), 1, "a file was left behind");
    }

    #[test]
    fn more_lines_name_more_providers_in_their_order() {
        let [main, next, other] =
            ["file:/main", "command:get", "env:A"].map(|uri| Provider::parse(uri).unwrap());
        let (_dir, clusters) = with("provider = file:/main\n");
        let add = |provider, line| clusters.register(ID, provider, line, None).unwrap();
        add(&other, Line::Another);
        add(&other, Line::Another);
        assert_eq!(clusters.providers_of(ID, None).unwrap(), [main.clone(), other.clone()]);
        add(&next, Line::First);
        assert_eq!(clusters.providers_of(ID, None).unwrap(), [next.clone(), other.clone()]);
        add(&other, Line::First);
        assert_eq!(clusters.providers_of(ID, None).unwrap(), [other]);
        let unusable = KeyringId([1; 16]);
        fs::write(clusters.file_of(unusable), "nonsense").unwrap();
        clusters.register(unusable, &main, Line::Another, None).unwrap();
        assert_eq!(clusters.providers_of(unusable, None).unwrap(), [main]);
    }

    #[test]
    fn only_the_line_provider_is_accepted() {
        let read = |text: &str| {
            let (_dir, clusters) = with(text);
            clusters.providers_of(ID, None)
        };
        let wanted = Provider::parse("env:A").unwrap();
        for text in ["provider = env:A\n", "# a\n\n  provider=env:A", "provider\t=\tenv:A\r\n"] {
            assert_eq!(read(text).unwrap(), std::slice::from_ref(&wanted), "{text:?}");
        }
        for text in [
            "",
            "# provider = env:A",
            "env:A",
            "provider = ",
            "provider = nonsense",
            "provider = env:A\nprovider = env:B",
            "provider = file:/k\nprovider = file:/k",
            "provider = env:A\nother = 1",
            "provider\u{a0}= env:A",
        ] {
            let error = read(text).unwrap_err();
            assert!(matches!(error, KeyError::ClusterFile { .. }), "{text:?}: {error}");
            assert_eq!(error.exit_code(), 2);
        }
        let error = read(&"#\n".repeat(5000)).unwrap_err();
        assert!(error.to_string().contains("8192"), "{error}");
    }

    #[test]
    fn a_file_that_other_users_can_write_is_refused() {
        let (dir, clusters) = with("provider = env:A\n");
        let file = clusters.file_of(ID);
        let refused = |words: &str| {
            let error = clusters.providers_of(ID, None).unwrap_err();
            assert_eq!(error.exit_code(), 12, "{error}");
            assert!(error.to_string().contains(words), "{error}");
        };
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        for bad in [0o660, 0o602] {
            mode(&file, bad);
            refused("can write it");
        }
        mode(&file, 0o644);
        mode(&clusters.dir, 0o775);
        refused("can write it");
        mode(&clusters.dir, 0o755);
        mode(dir.path(), 0o777);
        refused("can write it");
        mode(dir.path(), 0o700);
        assert!(clusters.providers_of(ID, None).is_ok());

        let elsewhere = dir.path().join("elsewhere");
        fs::rename(&file, &elsewhere).unwrap();
        symlink(&elsewhere, &file).unwrap();
        refused("a link");
        fs::remove_file(&file).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &file,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        refused("not a regular file");
    }

    #[test]
    fn a_file_in_the_data_directory_is_refused() {
        let (dir, clusters) = with("provider = env:A\n");
        let error = clusters.providers_of(ID, Some(dir.path())).unwrap_err();
        assert!(error.to_string().contains("in the data directory"), "{error}");
        assert_eq!(error.exit_code(), 12);
        let elsewhere = dir.path().join("other");
        assert_eq!(clusters.providers_of(ID, Some(&elsewhere)).unwrap().len(), 1);
    }
}
