//! The cluster before a conversion: its version and owner, whether its server was stopped cleanly,
//! and whether its settings allow the new form.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use pgseal_convert::{Facts, Operation};
use pgseal_core::Suite;

use super::report::{Report, Verdict};
use crate::control_data::ControlData;
use crate::datadir::DataDir;
use crate::error::CliError;
use crate::locks::refuse_running;
use crate::{bindir, cluster, library};

/// The versions of PostgreSQL whose files pgseal knows.
const MAJORS: std::ops::RangeInclusive<u32> = 15..=19;

/// The cluster to convert.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// The directory of its programs.
    pub bindir: PathBuf,
    /// The values of the control file that a conversion needs.
    pub facts: Facts,
    /// The configuration file.
    pub config_file: PathBuf,
    /// The guard module for `shared_preload_libraries`, to encrypt.
    pub guard: Option<String>,
}

/// Checks the user, the version, that the server is stopped, and the settings.
pub fn check(
    report: &mut Report,
    dir: &DataDir,
    operation: Operation,
    suite: Option<Suite>,
    bindir: Option<&Path>,
    config_file: Option<&Path>,
) -> Result<Cluster, CliError> {
    owner(&dir.root)?;
    let major = dir.major.clone().unwrap_or_default();
    if !major.parse::<u32>().is_ok_and(|major| MAJORS.contains(&major)) {
        return Err(CliError::NotNow(format!(
            "{}: a data directory of PostgreSQL {major}; pgseal knows the files of {} to {}",
            dir.root.display(),
            MAJORS.start(),
            MAJORS.end()
        )));
    }
    refuse_running(dir)?;
    let bindir = bindir::of_major(bindir, &major, &dir.root)?;
    let control = cluster::control_data(&bindir, &dir.root)?;
    state(report, dir, &control);
    let Some(config_file) = cluster::config_file(config_file, &dir.root, &major)? else {
        return Err(CliError::Usage(format!(
            "{}: there is no postgresql.conf in it; give the server's with --config-file FILE",
            dir.root.display()
        )));
    };
    let mut guard = None;
    if operation == Operation::Encrypt {
        library::library()?;
        let pg_config = bindir.join("pg_config");
        let pkglibdir = bindir::ask_pg_config(&pg_config, "--pkglibdir");
        guard = Some(library::guard(&major, pkglibdir.as_deref())?);
    }
    if let Some(suite) = suite {
        settings(report, &bindir, dir, &config_file, &control, suite);
    }
    Ok(Cluster { bindir, facts: control.facts, config_file, guard })
}

/// Refuses another user than the owner: new files must belong to the owner, and all must be
/// readable.
fn owner(root: &Path) -> Result<(), CliError> {
    let meta = fs::metadata(root).map_err(CliError::io(root, "look at the directory"))?;
    if meta.uid() == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    Err(CliError::NotNow(format!(
        "{}: it belongs to user {}; run pgseal as that user, for example: runuser -u postgres -- pgseal ...",
        root.display(),
        meta.uid()
    )))
}

fn state(report: &mut Report, dir: &DataDir, control: &ControlData) {
    let major = dir.major.as_deref().unwrap_or_default();
    if control.is_clean() {
        report.check("cluster", Verdict::Ok, format!("PostgreSQL {major}, {}", control.state));
    } else {
        report.check(
            "cluster",
            Verdict::State,
            format!(
                "it was not shut down cleanly (\"{}\"); start the server, let it recover, and stop it: \
                 {}",
                control.state,
                cluster::stop_command(&dir.root, Some(major))
            ),
        );
    }
    if control.block_len != 8192 {
        let text = format!("pages of {} bytes; pgseal knows those of 8192 only", control.block_len);
        report.check("cluster", Verdict::State, text);
    }
}

/// Checks the settings that the guard module would refuse when the server starts.
fn settings(
    report: &mut Report,
    bindir: &Path,
    dir: &DataDir,
    config_file: &Path,
    control: &ControlData,
    suite: Suite,
) {
    let get = |name| cluster::setting(bindir, &dir.root, config_file, name);
    let before = report.checks.len();
    let Some(full_page_writes) = get("full_page_writes") else {
        let text = "the server's configuration could not be read with \"postgres -C\"; the guard \
                    module will check it when the server starts";
        return report.check("settings", Verdict::Note, text);
    };
    if suite.needs_full_page_images() && full_page_writes != "on" {
        let text =
            format!("{suite} needs full_page_writes = on; set it, or use --suite aes-256-xts");
        report.check("settings", Verdict::Settings, text);
    }
    let logs_hints = get("wal_log_hints").is_some_and(|value| value == "on");
    let has_images = control.facts.checksums || logs_hints && !suite.needs_data_checksums();
    if suite.needs_full_page_images() && !has_images {
        let text = format!(
            "{suite} needs {}; switch them on first ({}pg_checksums --enable -D {}), or use --suite \
             aes-256-xts",
            if suite.needs_data_checksums() {
                "data checksums, and they are off"
            } else {
                "data checksums or wal_log_hints, and both are off; set wal_log_hints = on, or for \
                 checksums"
            },
            if dir.keyring().exists() { "pgseal run -- " } else { "" },
            dir.root.display()
        );
        report.check("settings", Verdict::Settings, text);
    }
    if get("io_method").is_some_and(|method| !matches!(method.as_str(), "sync" | "worker")) {
        report.check("settings", Verdict::Settings, "set io_method = worker in postgresql.conf");
    }
    if get("dynamic_shared_memory_type").is_some_and(|kind| kind == "mmap") {
        let text = "set dynamic_shared_memory_type = posix in postgresql.conf";
        report.check("settings", Verdict::Settings, text);
    }
    if report.checks.len() == before {
        let checksums = if control.facts.checksums { "on" } else { "off" };
        let text = format!(
            "data checksums {checksums}, wal_log_hints {}, full_page_writes {full_page_writes}: fit \
             for {suite}",
            if logs_hints { "on" } else { "off" }
        );
        report.check("settings", Verdict::Ok, text);
    }
}
