//! What PostgreSQL's programs say of a cluster that is stopped, and where its configuration file
//! is.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::control_data::ControlData;
use crate::error::CliError;
use crate::{child, conf_text, small_file};

/// The control file, as `pg_controldata` in `bindir` prints it.
pub fn control_data(bindir: &Path, root: &Path) -> Result<ControlData, CliError> {
    let program = bindir.join("pg_controldata");
    let mut command = Command::new(&program);
    command.arg("-D").arg(root).env("LC_ALL", "C").env_remove("LD_PRELOAD");
    let output = child::output(&mut command).map_err(CliError::io(&program, "run the program"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ControlData::parse(&text).filter(|_| output.status.success()).ok_or_else(|| {
        CliError::NotNow(format!(
            "{}: pg_controldata cannot read the control file: {}; restore it from a backup",
            root.display(),
            String::from_utf8_lossy(&output.stderr).trim()
        ))
    })
}

/// The value that the server would use for a setting; `None` if the server does not know the
/// setting or cannot read its configuration.
pub fn setting(bindir: &Path, root: &Path, config_file: &Path, name: &str) -> Option<String> {
    let mut command = Command::new(bindir.join("postgres"));
    command.args(["-C", name, "-D"]).arg(root).arg("-c");
    command.arg(format!("config_file={}", config_file.display())).env_remove("LD_PRELOAD");
    let output = child::output(&mut command).ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The configuration file: the given one, else the one in the data directory, else the one below
/// `/etc/postgresql` that names the data directory.
pub fn config_file(
    given: Option<&Path>,
    root: &Path,
    major: &str,
) -> Result<Option<PathBuf>, CliError> {
    if let Some(given) = given {
        let path = std::path::absolute(given).map_err(CliError::io(given, "resolve the path"))?;
        fs::metadata(&path).map_err(CliError::io(&path, "find the configuration"))?;
        return Ok(Some(path));
    }
    let own = root.join("postgresql.conf");
    if own.is_file() {
        let (real, inside) = (own.canonicalize().ok(), root.canonicalize().ok());
        if let (Some(real), Some(inside)) = (real, inside)
            && !real.starts_with(inside)
        {
            return Err(CliError::NotNow(format!(
                "{}: it leads out of the data directory; if that file is the server's, say so: \
                 --config-file {}",
                own.display(),
                real.display()
            )));
        }
        return Ok(Some(own));
    }
    Ok(debian_config(root, major))
}

/// Where postgresql-common has the configuration of its clusters.
pub fn debian_config_root() -> PathBuf {
    let root = env::var_os("PG_CLUSTER_CONF_ROOT").filter(|root| !root.is_empty());
    root.map_or_else(|| PathBuf::from("/etc/postgresql"), PathBuf::from)
}

/// The name of the cluster of postgresql-common that has this data directory: `main` of `15/main`.
pub fn debian_name(root: &Path, major: &str) -> Option<String> {
    let config = debian_config(root, major)?;
    Some(config.parent()?.file_name()?.to_str()?.to_owned())
}

/// The command that stops the server of this data directory.
pub fn stop_command(root: &Path, major: Option<&str>) -> String {
    let debian = major.and_then(|major| Some((major, debian_name(root, major)?)));
    match debian {
        Some((major, name)) => format!("pg_ctlcluster {major} {name} stop"),
        None => format!("pg_ctl -D {} -m fast stop", root.display()),
    }
}

/// The configuration file of the cluster of postgresql-common that has this data directory.
pub fn debian_config(root: &Path, major: &str) -> Option<PathBuf> {
    let clusters = fs::read_dir(debian_config_root().join(major)).ok()?;
    let wanted = root.canonicalize().ok();
    let names_root = |path: &PathBuf| {
        let text = small_file::read_text(path).unwrap_or_default();
        let named = conf_text::data_directory(&text).map(Path::new);
        named.and_then(|dir| dir.canonicalize().ok()) == wanted
    };
    let mut files = clusters.flatten().map(|item| item.path().join("postgresql.conf"));
    files.find(|path| path.is_file() && names_root(path))
}
