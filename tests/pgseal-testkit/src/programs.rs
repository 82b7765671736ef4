//! Where the programs under test and those of PostgreSQL are.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pgseal_cluster::{ClusterError, Programs};

/// The directory of PostgreSQL's programs: `PGSEAL_TEST_BINDIR`, else what `pg_config` says.
///
/// # Errors
/// When neither directory has an `initdb`; the text says what to install.
pub fn bindir() -> Result<PathBuf, ClusterError> {
    let given = env::var_os("PGSEAL_TEST_BINDIR").map(PathBuf::from);
    let configured = || {
        let output = Command::new("pg_config").arg("--bindir").output().ok()?;
        Some(PathBuf::from(String::from_utf8(output.stdout).ok()?.trim()))
    };
    given.or_else(configured).filter(|dir| dir.join("initdb").is_file()).ok_or_else(|| {
        ClusterError::Missing {
            what: "initdb".to_owned(),
            why: "pg_config leads to none".to_owned(),
            remedy: "install PostgreSQL 15, or set PGSEAL_TEST_BINDIR".to_owned(),
        }
    })
}

/// The programs of this source tree: built by cargo for the profile of the running test, and
/// `server/guard/`. `PGSEAL_TEST_PROGRAM`, `PGSEAL_LIBRARY` and `PGSEAL_GUARD_MODULE` override.
///
/// # Errors
/// When one is not built yet; the text names it.
pub fn built_programs() -> Result<Programs, ClusterError> {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let test = env::current_exe().map_err(ClusterError::io(Path::new("/proc/self/exe"), "read"))?;
    // target/PROFILE/deps/TEST
    let profile = test.parent().and_then(Path::parent).unwrap_or(Path::new("."));
    let pick = |variable: &str, default: PathBuf| -> Result<PathBuf, ClusterError> {
        let path = env::var_os(variable).map_or(default, PathBuf::from);
        if path.is_file() {
            return Ok(path);
        }
        Err(ClusterError::Missing {
            what: path.display().to_string(),
            why: "it is not there".to_owned(),
            remedy: format!("build it first (make build), or set {variable}"),
        })
    };
    Ok(Programs {
        pgseal: pick("PGSEAL_TEST_PROGRAM", profile.join("pgseal"))?,
        library: Some(pick("PGSEAL_LIBRARY", newest_of(profile))?),
        guard: Some(pick("PGSEAL_GUARD_MODULE", tree.join("server/guard/pgseal_guard.so"))?),
    })
}

/// Cargo leaves the library in the profile's directory after a build, and in `deps` when it was
/// built for tests only.
fn newest_of(profile: &Path) -> PathBuf {
    let built = |path: &PathBuf| fs::metadata(path).and_then(|meta| meta.modified()).ok();
    let places = [profile.join("libpgseal.so"), profile.join("deps/libpgseal.so")];
    let [first, _] = &places;
    places.iter().max_by_key(|path| built(path)).unwrap_or(first).clone()
}
