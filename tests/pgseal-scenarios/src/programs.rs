//! Where the programs under test are.

use std::env;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use pgseal_cluster::{Account, SUPERUSER, run_as};
use pgseal_testkit::{Programs, bindir};

/// The built programs: in `PGSEAL_BIN_DIR`, else in `target/release`, else in `target/debug`.
///
/// A scenario that cannot find them fails: a silently skipped test proves nothing.
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
    let library = Some(dir.join("libpgseal.so"));
    Programs { pgseal: dir.join("pgseal"), library, guard: Some(guard) }
}

fn built(dir: &Path) -> bool {
    dir.join("pgseal").is_file() && dir.join("libpgseal.so").is_file()
}

/// Whether the programs are of a FIPS build ('make test FIPS=1').
#[must_use]
pub fn is_fips() -> bool {
    env::var_os("FIPS").is_some_and(|value| !value.is_empty())
}

/// What locks escrow copies where a passphrase is only one of several ways: a FIPS build has none.
#[must_use]
pub fn escrow_lock() -> &'static str {
    if is_fips() {
        "command:printf %064d 7"
    } else {
        "passphrase:command=echo correct horse battery"
    }
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

/// An older major version than the one under test, to upgrade from.
#[derive(Clone, Debug)]
pub struct Older {
    /// `15`
    pub major: String,
    /// Its programs.
    pub bindir: PathBuf,
    /// Its guard module, and the other programs under test.
    pub programs: Programs,
}

/// The older major versions installed here, from the lines `MAJOR BINDIR GUARD-MODULE` of
/// `PGSEAL_TEST_OLDER`.
#[must_use]
pub fn older() -> Vec<Older> {
    let lines = env::var("PGSEAL_TEST_OLDER").unwrap_or_default();
    let older = |line: &str| {
        let mut words = line.split_whitespace();
        let (major, bindir) = (words.next()?.to_owned(), PathBuf::from(words.next()?));
        let programs = Programs { guard: Some(PathBuf::from(words.next()?)), ..programs() };
        Some(Older { major, bindir, programs })
    };
    lines.lines().filter_map(older).collect()
}

/// Whether the server under test has this major version or a newer one. If not, `test` is reported
/// as not applicable ([`not_applicable`]).
///
/// # Panics
/// When the file of `PGSEAL_TEST_NOT_APPLICABLE` cannot be written.
#[must_use]
pub fn from_major(major: u32, test: &str) -> bool {
    let have = server_major();
    if have.parse::<u32>().is_ok_and(|have| have >= major) {
        return true;
    }
    not_applicable(test, &format!("new in {major}"));
    false
}

/// Reports that a test does not apply here and why, also in the file of
/// `PGSEAL_TEST_NOT_APPLICABLE`.
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

/// A command as the user that servers run as: `postgres` for root, else the current user.
///
/// # Panics
/// When root has no user `postgres`.
#[must_use]
pub(crate) fn as_server_user(program: &Path) -> Command {
    let account = Account::for_servers(&[SUPERUSER]).unwrap_or_else(|error| panic!("{error}"));
    let mut command = Command::new(program);
    run_as(account.as_ref(), &mut command);
    command
}
