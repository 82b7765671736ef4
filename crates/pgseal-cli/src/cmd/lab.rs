//! `pgseal lab` and `pgseal advise`: they become the program `pgseal-lab`, which is a package of
//! its own, so that nothing of what it measures with is in the program that unlocks keys.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::error::CliError;
use crate::{bindir, library};

const PROGRAM: &str = "pgseal-lab";
/// Names another `pgseal-lab` than the one beside this program.
const VARIABLE: &str = "PGSEAL_LAB";

/// All arguments go to `pgseal-lab` as they are, `--help` too.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    /// Arguments of pgseal-lab; --help lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
}

/// Becomes `pgseal-lab` with `first` and the arguments; comes back only with an error.
pub fn run(first: &[&str], args: &Args) -> Result<u8, CliError> {
    let program = program()?;
    let error = Command::new(&program).args(first).args(&args.arguments).exec();
    Err(CliError::Io { path: program, action: "run the program", source: error })
}

/// The file that [`VARIABLE`] names, else the one beside this program. Not from `PATH`, and a
/// relative path is refused, because the working directory may be a data directory.
fn program() -> Result<PathBuf, CliError> {
    let named = env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
    let path = match &named {
        Some(path) => path.clone(),
        None => library::program()?.with_file_name(PROGRAM),
    };
    if !path.is_absolute() || !bindir::is_program(&path) {
        return Err(CliError::NoLab { path, variable: named.is_some() });
    }
    Ok(path)
}
