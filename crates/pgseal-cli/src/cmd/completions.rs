//! `pgseal completions`: the completion script for a shell.

use std::io::Write;

use clap::Command;
use clap_complete::Shell;

use crate::error::CliError;
use crate::exit;
use crate::out::Out;

const EXAMPLES: &str = "\
Examples:
  pgseal completions bash > /etc/bash_completion.d/pgseal
  pgseal completions zsh > ~/.zfunc/_pgseal";

/// Print the completion script for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The shell
    shell: Shell,
}

/// `command`: the whole command line.
pub fn run(args: &Args, mut command: Command) -> Result<u8, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "pgseal", &mut script);
    let mut out = Out::new();
    out.write_all(&script)?;
    out.flush()?;
    Ok(exit::SOUND)
}
