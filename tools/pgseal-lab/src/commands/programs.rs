//! The programs that a run needs. `pgseal` reports the paths of PostgreSQL, of the library and of
//! the guard module, so that the lab measures what `pgseal initdb` and `pgseal run` use.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use pgseal_lab::LabError;
use pgseal_lab::context::{output_of, shown};
use pgseal_lab::session::Request;
use serde::Deserialize;

/// Which programs are used.
#[derive(Debug, clap::Args)]
pub struct ProgramArgs {
    /// Directory of the PostgreSQL programs; default: the newest here
    #[arg(long, value_name = "DIR")]
    bindir: Option<PathBuf>,
    /// The program pgseal; default: the one beside this program
    #[arg(long, value_name = "FILE")]
    pgseal: Option<PathBuf>,
}

/// Paths of the programs.
#[derive(Debug)]
pub struct Programs {
    /// This program.
    lab: PathBuf,
    /// The program `pgseal`.
    pgseal: PathBuf,
    /// The answer of `pgseal`.
    found: Found,
}

/// The answer of `pgseal helper places`.
#[derive(Debug, Deserialize)]
struct Found {
    bindir: Option<PathBuf>,
    major: Option<u32>,
    library: Option<PathBuf>,
    guard: Option<PathBuf>,
}

impl Programs {
    /// Finds the programs.
    ///
    /// # Errors
    ///
    /// [`LabError::Missing`] if there is no `pgseal`, or no server in the given directory; other
    /// errors if `pgseal` fails to answer.
    pub fn find(args: &ProgramArgs) -> Result<Programs, LabError> {
        let this = Path::new("pgseal-lab");
        let lab = env::current_exe()
            .and_then(|path| path.canonicalize())
            .map_err(LabError::io(this, "find this program"))?;
        let pgseal = args.pgseal.clone().unwrap_or_else(|| lab.with_file_name("pgseal"));
        if !pgseal.is_file() {
            return Err(LabError::missing(
                "pgseal",
                format!("{}: there is no such program", pgseal.display()),
                "install pgseal, or give the program's path with --pgseal",
            ));
        }
        let pgseal =
            pgseal.canonicalize().map_err(LabError::io(&pgseal, "resolve the program's path"))?;
        let found = ask(&pgseal, args.bindir.as_deref())?;
        let programs = Programs { lab, pgseal, found };
        if let Some(dir) = &args.bindir
            && programs.postgres().is_none()
        {
            return Err(LabError::missing(
                "postgres",
                format!("{}: there is no such program", dir.join("postgres").display()),
                "give the directory of PostgreSQL's programs with --bindir",
            ));
        }
        Ok(programs)
    }

    /// Path of the program `postgres`, if it exists.
    pub fn postgres(&self) -> Option<PathBuf> {
        let postgres = self.found.bindir.as_ref()?.join("postgres");
        postgres.is_file().then_some(postgres)
    }

    /// Major version of PostgreSQL.
    pub fn major(&self) -> Option<u32> {
        self.found.major
    }

    /// A request with these programs; everything else has its default.
    pub fn request(&self) -> Request {
        Request {
            pgseal: self.pgseal.clone(),
            lab: self.lab.clone(),
            library: self.found.library.clone(),
            guard: self.found.guard.clone(),
            bindir: self.found.bindir.clone(),
            ..Request::default()
        }
    }
}

fn ask(pgseal: &Path, bindir: Option<&Path>) -> Result<Found, LabError> {
    let mut command = Command::new(pgseal);
    command.args(["helper", "places"]);
    if let Some(dir) = bindir {
        command.arg("--bindir").arg(dir);
    }
    let answer = output_of(&mut command)?;
    serde_json::from_str(&answer).map_err(|error| LabError::Output {
        command: shown(&command),
        wanted: format!("list of places ({error})"),
    })
}
