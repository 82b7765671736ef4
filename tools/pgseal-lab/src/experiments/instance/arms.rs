//! The clusters of the arms: created and loaded once, started for each case.

use std::path::{Path, PathBuf};

use super::cache::{self, Resident};
use super::limit::MemoryGroup;
use super::mount::Mount;
use super::plan::GOCRYPTFS;
use super::proof;
use super::work::COMMON;
use crate::cluster::{Cluster, NewCluster, SUPERUSER, Server, Target, Tools};
use crate::error::LabError;
use crate::plan::Arm;

/// The database with the data.
pub const DATABASE: &str = "lab";
/// The database of the case `init`.
pub const INIT_DATABASE: &str = "lab_init";

/// Reads table and index, so that shared_buffers hold as much of them as fits.
const READ_ALL: &str = "SELECT sum(abalance) FROM (SELECT abalance FROM pgbench_accounts ORDER BY aid OFFSET 0) all_rows";

/// The files of the big table.
#[derive(Debug, Clone)]
pub struct TableFiles {
    /// The paths that the server uses.
    seen: Vec<PathBuf>,
    /// Behind a mount: the paths of the encrypted files.
    behind: Vec<PathBuf>,
}

impl TableFiles {
    /// How much of the table is in the OS cache; with a mount, the larger of its two sides.
    ///
    /// # Errors
    /// A text if this cannot be measured.
    pub fn resident(&self) -> Result<Resident, String> {
        let seen = cache::resident(&self.seen)?;
        let behind = cache::resident(&self.behind)?;
        Ok(if behind.share() > seen.share() { behind } else { seen })
    }
}

/// One arm with its cluster.
#[derive(Debug)]
pub struct ArmCluster {
    /// The running server, within a case.
    pub server: Option<Server>,
    group: Option<MemoryGroup>,
    /// Whether the data must be reloaded.
    pub dirty: bool,
    /// The result of [`proof::look`].
    pub proof: String,
    cluster: Cluster,
    /// Last field: unmounted after the server has stopped.
    mount: Option<Mount>,
}

impl ArmCluster {
    /// Creates and loads the cluster, and checks its files on disk.
    pub fn make(tools: &Tools, root: &Path, arm: &Arm, scale: u32) -> Result<Self, LabError> {
        let suite: Option<String> = arm.attribute("suite")?;
        let on_gocryptfs =
            arm.attribute::<String>("file_system")?.is_some_and(|name| name == GOCRYPTFS);
        let mount = if on_gocryptfs { Some(Mount::make(tools, root)?) } else { None };
        let data = match &mount {
            Some(mount) => mount.plain.join("data"),
            None => root.join(&arm.id),
        };
        let has_checksums = arm.attribute("data_checksums")?.unwrap_or(true);
        let mut new = NewCluster::below(root, &arm.id);
        (new.data, new.suite, new.checksums) = (data.clone(), suite.clone(), has_checksums);
        let cluster = new.create(tools)?;
        let server = cluster.start(tools, &COMMON)?;
        let checksums = server.target(tools, SUPERUSER).rows("SHOW data_checksums")?;
        if (checksums == "on") != has_checksums {
            return Err(LabError::Broken {
                what: format!("data checksums of {}", arm.id),
                expected: if has_checksums { "on" } else { "off" }.to_owned(),
                found: checksums,
            });
        }
        let make = [DATABASE, INIT_DATABASE].map(|name| format!("CREATE DATABASE {name}"));
        server.target(tools, SUPERUSER).sql(&make)?;
        let target = server.target(tools, DATABASE);
        target.sql(&proof::plant())?;
        let file = target.rows("SELECT pg_relation_filepath('lab_canary')")?;
        let behind = mount.as_ref().map_or(data.as_path(), |mount| mount.cipher.as_path());
        let encrypted = suite.is_some() || on_gocryptfs;
        let proof = proof::look(tools, &cluster, behind, encrypted, &file)?;
        load(&target, scale)?;
        server.stop()?;
        Ok(Self { server: None, group: None, dirty: false, proof, cluster, mount })
    }

    /// Starts the server; under a memory limit if there is one.
    pub fn start(
        &mut self,
        tools: &Tools,
        settings: &[String],
        limit_bytes: Option<u64>,
    ) -> Result<(), LabError> {
        self.stop()?;
        let all: Vec<&str> =
            COMMON.into_iter().chain(settings.iter().map(String::as_str)).collect();
        let group = match limit_bytes {
            None => None,
            Some(bytes) => Some(MemoryGroup::make(&self.cluster.name, bytes)?),
        };
        let server = self.cluster.start(tools, &all)?;
        if let Some(group) = &group {
            group.take(&server.processes())?;
            // Cached pages are charged to the group that read them first, so they are dropped.
            self.drop_cached()?;
        }
        self.server = Some(server);
        self.group = group;
        Ok(())
    }

    /// Stops the server, if it runs.
    pub fn stop(&mut self) -> Result<(), LabError> {
        let stopped = self.server.take().map_or(Ok(()), Server::stop);
        self.group = None;
        Ok(stopped?)
    }

    /// Reloads the data if a case changed them; starts a server for this.
    pub fn clean(&mut self, tools: &Tools, scale: u32) -> Result<(), LabError> {
        if !self.dirty {
            return Ok(());
        }
        self.start(tools, &["shared_buffers=128MB".to_owned()], None)?;
        if let Some(server) = &self.server {
            load(&server.target(tools, DATABASE), scale)?;
        }
        self.stop()?;
        self.dirty = false;
        Ok(())
    }

    /// The running server.
    pub fn server(&self) -> Result<&Server, LabError> {
        self.server.as_ref().ok_or_else(|| LabError::Broken {
            what: format!("cluster {}", self.cluster.name),
            expected: "a running server".to_owned(),
            found: "none".to_owned(),
        })
    }

    /// A database of the running server.
    pub fn target<'a>(
        &'a self,
        tools: &'a Tools,
        database: &'a str,
    ) -> Result<Target<'a>, LabError> {
        Ok(self.server()?.target(tools, database))
    }

    /// Reads all rows once through the index.
    pub fn read_all(&self, tools: &Tools) -> Result<(), LabError> {
        let target = self.target(tools, DATABASE)?;
        target.sql(&[READ_ALL])?;
        Ok(())
    }

    /// The files of the big table.
    pub fn table_files(&self, tools: &Tools) -> Result<TableFiles, LabError> {
        let target = self.target(tools, DATABASE)?;
        let path = target.rows("SELECT pg_relation_filepath('pgbench_accounts')")?;
        let first = self.cluster.data.join(path);
        // Segments of 1 GB: 16384, 16384.1, ...
        let later = (1..).map(|segment| {
            let mut name = first.clone().into_os_string();
            name.push(format!(".{segment}"));
            PathBuf::from(name)
        });
        let mut seen = vec![first.clone()];
        seen.extend(later.take_while(|path| path.exists()));
        let behind = match &self.mount {
            None => Vec::new(),
            Some(mount) => mount.behind(&seen)?,
        };
        Ok(TableFiles { seen, behind })
    }

    /// Empties the OS cache of all files of this arm, on both sides of a mount.
    pub fn drop_cached(&self) -> Result<(), LabError> {
        cache::drop_cached(&cache::files_below(&self.cluster.data)?)?;
        match &self.mount {
            None => Ok(()),
            Some(mount) => cache::drop_cached(&cache::files_below(&mount.cipher)?),
        }
    }
}

fn load(target: &Target<'_>, scale: u32) -> Result<(), LabError> {
    target.init(scale)?;
    target.sql(&[
        "DROP TABLE IF EXISTS lab_commits",
        "CREATE TABLE lab_commits (id bigserial, client int, words text)",
        "CHECKPOINT",
    ])?;
    Ok(())
}
