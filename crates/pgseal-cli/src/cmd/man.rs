//! `pgseal man`: the manual pages.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Command;

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

/// `command`: the whole command line.
pub fn run(args: &Args, command: Command) -> Result<u8, CliError> {
    let Some(dir) = &args.dir else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        let mut out = Out::new();
        out.write_all(&page)?;
        out.flush()?;
        return Ok(exit::SOUND);
    };
    fs::create_dir_all(dir).map_err(CliError::io(dir, "make the directory"))?;
    let mut command = command.disable_help_subcommand(true);
    command.build();
    write(&command, dir).map_err(CliError::io(dir, "write the pages into"))?;
    Ok(exit::SOUND)
}

/// The pages of a command and of those below it. Not of `pgseal lab`: `pgseal-lab.1` is the page of
/// the program `pgseal-lab`.
fn write(command: &clap::Command, dir: &Path) -> io::Result<()> {
    let shown = |sub: &&clap::Command| !sub.is_hide_set() && sub.get_name() != "lab";
    for sub in command.get_subcommands().filter(shown) {
        write(sub, dir)?;
    }
    clap_mangen::Man::new(command.clone()).generate_to(dir)?;
    Ok(())
}
