//! `pgseal man`.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use clap::CommandFactory;

use crate::error::CliError;
use crate::exit;
use crate::out::Out;

const EXAMPLES: &str = "\
Examples:
  pgseal man | man -l -
  pgseal man --dir /usr/local/share/man/man1";

/// Print the manual page, or write those of all commands
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Write one page for each command into this directory
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<u8, CliError> {
    let command = super::Cli::command();
    let Some(dir) = &args.dir else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        let mut out = Out::new();
        out.write_all(&page)?;
        out.flush()?;
        return Ok(exit::SOUND);
    };
    fs::create_dir_all(dir).map_err(CliError::io(dir, "make the directory"))?;
    clap_mangen::generate_to(command, dir).map_err(CliError::io(dir, "write the pages into"))?;
    Ok(exit::SOUND)
}
