//! Finds the programs of PostgreSQL.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::CliError;
use crate::{as_owner, child};

/// Where Debian and its relatives put the programs of each major version.
const DEBIAN: &str = "/usr/lib/postgresql";

/// Whether this is a file that somebody may run.
pub fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

fn in_path(name: &OsStr) -> Option<PathBuf> {
    let list = env::var_os("PATH")?;
    env::split_paths(&list)
        .map(|dir| if dir.as_os_str().is_empty() { PathBuf::from(".") } else { dir }.join(name))
        .find(|path| is_program(path))
}

/// The answer of `pg_config` to one question.
pub fn ask_pg_config(pg_config: &Path, question: &str) -> Option<PathBuf> {
    let output = child::output(Command::new(pg_config).arg(question)).ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| PathBuf::from(text.trim()))
}

/// The directories of Debian's majors, newest first.
fn debian() -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(DEBIAN) else { return Vec::new() };
    let mut majors: Vec<u32> =
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    majors.sort_unstable_by(|a, b| b.cmp(a));
    majors.iter().map(|major| Path::new(DEBIAN).join(major.to_string()).join("bin")).collect()
}

/// A program for a data directory of this major version: a path as it is, else the program in PATH,
/// else Debian's of that version, else the one in the directory of `pg_config`, else Debian's
/// newest.
pub fn find(name: &OsStr, major: Option<&str>) -> Result<PathBuf, CliError> {
    let lost = || CliError::NoCommand { name: name.to_string_lossy().into_owned() };
    if name.as_encoded_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        return if is_program(&path) { Ok(path) } else { Err(lost()) };
    }
    if let Some(path) = in_path(name) {
        return Ok(path);
    }
    let matching = major.map(|major| Path::new(DEBIAN).join(major).join("bin"));
    let configured =
        in_path(OsStr::new("pg_config")).and_then(|path| ask_pg_config(&path, "--bindir"));
    matching
        .into_iter()
        .chain(configured)
        .chain(debian())
        .map(|dir| dir.join(name))
        .find(|path| is_program(path))
        .ok_or_else(lost)
}

/// The directory of the programs of this major version: the given one, else that of `PG_CONFIG`, of
/// the server in PATH, of Debian's packages, of `pg_config` in PATH, else `/usr/local/pgsql/bin`.
/// pgseal runs these programs: so it takes no directory below the data directory, and none that
/// anybody but root and the user who started pgseal can write.
pub fn of_major(given: Option<&Path>, major: &str, datadir: &Path) -> Result<PathBuf, CliError> {
    let places: Vec<PathBuf> = match given {
        Some(dir) => vec![dir.to_owned()],
        None => {
            let named = env::var_os("PG_CONFIG").filter(|path| !path.is_empty());
            let named = named.and_then(|path| ask_pg_config(Path::new(&path), "--bindir"));
            let configured = in_trusted_path("pg_config", datadir)
                .and_then(|path| ask_pg_config(&path, "--bindir"));
            let on_path = in_trusted_path("postgres", datadir);
            named
                .into_iter()
                .chain(on_path.and_then(|path| path.parent().map(Path::to_owned)))
                .chain([Path::new(DEBIAN).join(major).join("bin")])
                .chain(configured)
                .chain([PathBuf::from("/usr/local/pgsql/bin")])
                .filter(|dir| is_trusted(&dir.join("postgres"), datadir))
                .collect()
        }
    };
    let fits = |dir: &PathBuf| {
        let server = dir.join("postgres");
        is_program(&server) && major_of(&server).is_ok_and(|found| found == major)
    };
    places.into_iter().find(fits).ok_or_else(|| {
        CliError::NoLibrary(format!(
            "no server of PostgreSQL {major} was found; give the directory of its programs with \
             --bindir"
        ))
    })
}

fn in_trusted_path(name: &str, datadir: &Path) -> Option<PathBuf> {
    let list = env::var_os("PATH")?;
    env::split_paths(&list)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(name))
        .find(|path| is_program(path) && is_trusted(path, datadir))
        .and_then(|path| path.canonicalize().ok())
}

/// Whether only root and the user who started pgseal can change this program, and it does not lie
/// in the data directory.
pub fn is_trusted(program: &Path, datadir: &Path) -> bool {
    let (Ok(program), Ok(datadir)) = (program.canonicalize(), datadir.canonicalize()) else {
        return false;
    };
    if program.starts_with(datadir) {
        return false;
    }
    let is_private = |path: &Path| {
        fs::metadata(path).is_ok_and(|meta| {
            let is_owner = meta.uid() == 0 || meta.uid() == as_owner::invoker();
            is_owner && meta.mode() & 0o022 == 0
        })
    };
    is_private(&program) && program.parent().is_some_and(is_private)
}

/// `initdb`: in the given directory, else as [`find`]. Links are resolved, since `pg_config` and
/// the other programs are in the directory of the real file.
pub fn initdb(bindir: Option<&Path>) -> Result<PathBuf, CliError> {
    let path = match bindir {
        None => find(OsStr::new("initdb"), None)?,
        Some(dir) => dir.join("initdb"),
    };
    if !is_program(&path) {
        return Err(CliError::NoCommand { name: path.display().to_string() });
    }
    Ok(path.canonicalize().unwrap_or(path))
}

/// The major version of a program, from the output of `--version`.
pub fn major_of(program: &Path) -> Result<String, CliError> {
    let output = child::output(Command::new(program).arg("--version"))
        .map_err(CliError::io(program, "run the program"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    parse_major(&text).ok_or_else(|| {
        CliError::NoLibrary(format!(
            "{}: it does not look like a program of PostgreSQL (--version printed \"{}\"); \
             give the right directory with --bindir",
            program.display(),
            text.trim()
        ))
    })
}

fn parse_major(text: &str) -> Option<String> {
    let version = text.trim().split_once("(PostgreSQL) ")?.1;
    let major: String = version.chars().take_while(char::is_ascii_digit).collect();
    (!major.is_empty()).then_some(major)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        let major = |text| parse_major(text);
        let debian = "initdb (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n";
        assert_eq!(major(debian).as_deref(), Some("15"));
        assert_eq!(major("initdb (PostgreSQL) 19devel").as_deref(), Some("19"));
        assert_eq!(major("initdb 3"), None);
    }
}
