//! Where the programs under test are.

use std::env;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use pgseal_testkit::{Programs, bindir};

/// The built programs: in `PGSEAL_BIN_DIR`, else in `target/release`, else in `target/debug`.
///
/// A scenario that cannot find them fails; a test that is skipped in silence proves nothing.
///
/// # Panics
/// When a program is not built; the text names the command that builds it.
#[must_use]
pub fn programs() -> Programs {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let dir = match env::var_os("PGSEAL_BIN_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => {
            let release = tree.join("target/release");
            if built(&release) { release } else { tree.join("target/debug") }
        }
    };
    assert!(
        built(&dir),
        "{}: pgseal and libpgseal.so are not there; run `make build` first, or set PGSEAL_BIN_DIR",
        dir.display()
    );
    let major = server_major();
    let guard = env::var_os("PGSEAL_GUARD_MODULE").map(PathBuf::from);
    let guard = guard.unwrap_or_else(|| dir.join("../guard").join(&major).join("pgseal_guard.so"));
    assert!(
        guard.is_file(),
        "{}: no guard module for PostgreSQL {major}; run `make build` first, or set \
         PGSEAL_GUARD_MODULE",
        guard.display()
    );
    Programs { pgseal: dir.join("pgseal"), library: dir.join("libpgseal.so"), guard }
}

fn built(dir: &Path) -> bool {
    dir.join("pgseal").is_file() && dir.join("libpgseal.so").is_file()
}

/// The major version under test: `15`, from `postgres (PostgreSQL) 15.18 (...)`.
///
/// # Panics
/// When there is no PostgreSQL.
#[must_use]
pub fn server_major() -> String {
    let postgres = bindir().expect("PostgreSQL is installed").join("postgres");
    let output = Command::new(postgres).arg("--version").output().expect("postgres runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = text.split_whitespace().nth(2).unwrap_or_default().to_owned();
    version.chars().take_while(char::is_ascii_digit).collect()
}

/// An older major than the one under test, to upgrade from.
#[derive(Clone, Debug)]
pub struct Older {
    /// `15`
    pub major: String,
    /// Its programs.
    pub bindir: PathBuf,
    /// Its guard module, and the other programs under test.
    pub programs: Programs,
}

/// The older majors that are here, from `PGSEAL_TEST_OLDER`: `MAJOR BINDIR GUARD-MODULE` in lines.
#[must_use]
pub fn older() -> Vec<Older> {
    let lines = env::var("PGSEAL_TEST_OLDER").unwrap_or_default();
    let older = |line: &str| {
        let mut words = line.split_whitespace();
        let (major, bindir) = (words.next()?.to_owned(), PathBuf::from(words.next()?));
        let programs = Programs { guard: PathBuf::from(words.next()?), ..programs() };
        Some(Older { major, bindir, programs })
    };
    lines.lines().filter_map(older).collect()
}

/// Whether the server under test is of this major version or newer. If not, `test` has nothing to
/// do; it says so, and to the file of `PGSEAL_TEST_NOT_APPLICABLE` if there is such a variable.
///
/// # Panics
/// When that file cannot be written.
#[must_use]
pub fn from_major(major: u32, test: &str) -> bool {
    let have = server_major();
    if have.parse::<u32>().is_ok_and(|have| have >= major) {
        return true;
    }
    not_applicable(test, &format!("new in {major}"));
    false
}

/// Says that a test has nothing to do here and why, also to the file of `PGSEAL_TEST_NOT_APPLICABLE`.
///
/// # Panics
/// When that file cannot be written.
pub fn not_applicable(test: &str, why: &str) {
    eprintln!("{test}: {why}");
    if let Some(path) = env::var_os("PGSEAL_TEST_NOT_APPLICABLE") {
        let file = OpenOptions::new().append(true).create(true).open(path);
        let line = format!("{test}\t{why}\n");
        file.expect("the list can be opened")
            .write_all(line.as_bytes())
            .expect("it can be written");
    }
}

/// Whether the tests run as root, under which PostgreSQL does not run.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A command as the user that servers run as: `postgres` for root, else the present one. Unlike
/// through `runuser`, the program is our own child: signals reach it, and it is reaped.
#[must_use]
pub(crate) fn as_server_user(program: &Path) -> Command {
    let mut command = Command::new(program);
    if is_root() {
        command.uid(id_of("-u")).gid(id_of("-g"));
    }
    for name in ["PGDATA", "PGHOST", "PGPORT", "PGUSER", "LD_PRELOAD"] {
        command.env_remove(name);
    }
    command
}

fn id_of(option: &str) -> u32 {
    let output = Command::new("id").args([option, "postgres"]).output().expect("id runs");
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    text.parse().unwrap_or_else(|_| panic!("there is no user postgres; install PostgreSQL"))
}
