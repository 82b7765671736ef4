//! Where the programs under test and those of PostgreSQL are.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The directory of PostgreSQL's programs: `PGSEAL_TEST_BINDIR`, else what `pg_config` says.
///
/// # Errors
/// When neither leads to an `initdb`; the text says what to install.
pub fn bindir() -> io::Result<PathBuf> {
    let given = env::var_os("PGSEAL_TEST_BINDIR").map(PathBuf::from);
    let configured = || {
        let output = Command::new("pg_config").arg("--bindir").output().ok()?;
        Some(PathBuf::from(String::from_utf8(output.stdout).ok()?.trim()))
    };
    given.or_else(configured).filter(|dir| dir.join("initdb").is_file()).ok_or_else(|| {
        io::Error::other("no initdb: install PostgreSQL 15, or set PGSEAL_TEST_BINDIR")
    })
}

/// What a sealed cluster is made with.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The program `pgseal`.
    pub pgseal: PathBuf,
    /// `libpgseal.so`.
    pub library: PathBuf,
    /// `pgseal_guard.so` for the PostgreSQL at hand.
    pub guard: PathBuf,
}

impl Programs {
    /// Those of this source tree: built by cargo for the profile of the running test, and
    /// `guard/`. `PGSEAL_TEST_PROGRAM`, `PGSEAL_LIBRARY` and `PGSEAL_GUARD_MODULE` override.
    ///
    /// # Errors
    /// When one is not built yet; the text names it.
    pub fn built() -> io::Result<Programs> {
        let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
        let test = env::current_exe()?;
        // target/PROFILE/deps/TEST
        let profile = test.parent().and_then(Path::parent).unwrap_or(Path::new("."));
        let pick = |variable: &str, default: PathBuf| -> io::Result<PathBuf> {
            let path = env::var_os(variable).map_or(default, PathBuf::from);
            if path.is_file() {
                return Ok(path);
            }
            let text =
                format!("{}: not there; build it first (make), or set {variable}", path.display());
            Err(io::Error::new(io::ErrorKind::NotFound, text))
        };
        Ok(Programs {
            pgseal: pick("PGSEAL_TEST_PROGRAM", profile.join("pgseal"))?,
            library: pick("PGSEAL_LIBRARY", newest_of(profile))?,
            guard: pick("PGSEAL_GUARD_MODULE", tree.join("guard/pgseal_guard.so"))?,
        })
    }

    /// Copies them side by side into a directory that every user can read.
    ///
    /// # Errors
    /// When one cannot be copied.
    pub fn copy_to(&self, dir: &Path) -> io::Result<Programs> {
        fs::create_dir_all(dir)?;
        fs::set_permissions(dir, fs::Permissions::from_mode(0o755))?;
        let copy = |from: &Path, name: &str| -> io::Result<PathBuf> {
            let to = dir.join(name);
            install(from, &to)?;
            Ok(to)
        };
        Ok(Programs {
            pgseal: copy(&self.pgseal, "pgseal")?,
            library: copy(&self.library, "libpgseal.so")?,
            guard: copy(&self.guard, "pgseal_guard.so")?,
        })
    }
}

/// Copies a program, with mode 0755, in a process of its own: what this one has open for writing, a
/// child that another thread starts has open, too, until it is the program that it is to be, and
/// meanwhile nobody can run the copy (`ETXTBSY`).
///
/// # Errors
/// With what install(1) said.
pub fn install(from: &Path, to: &Path) -> io::Result<()> {
    let output = Command::new("install").args(["-m", "0755"]).arg(from).arg(to).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    output.status.success().then_some(()).ok_or_else(|| io::Error::other(said.into_owned()))
}

/// Cargo leaves the library in the profile's directory after a build, and in `deps` when it was
/// built for tests only.
fn newest_of(profile: &Path) -> PathBuf {
    let built = |path: &PathBuf| fs::metadata(path).and_then(|meta| meta.modified()).ok();
    let places = [profile.join("libpgseal.so"), profile.join("deps/libpgseal.so")];
    let [first, _] = &places;
    places.iter().max_by_key(|path| built(path)).unwrap_or(first).clone()
}

/// A command as the user that servers run as: `postgres` for root, else the present one.
pub(crate) fn as_server_user(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("runuser");
    command.args([OsStr::new("-u"), OsStr::new("postgres"), OsStr::new("--")]).arg(program);
    command
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
