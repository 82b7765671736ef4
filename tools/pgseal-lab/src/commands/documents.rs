//! `pgseal-lab completions` and `pgseal-lab man`.

use clap::CommandFactory;
use clap_complete::Shell;
use pgseal_lab::LabError;

use super::Cli;
use crate::exit;
use crate::output::print;

/// Print the completion script for a shell
#[derive(Debug, clap::Args)]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Print the manual page
#[derive(Debug, clap::Args)]
pub struct ManArgs {}

pub fn completions(args: &CompletionsArgs) -> Result<u8, LabError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "pgseal-lab", &mut script);
    print(&script)?;
    Ok(exit::SOUND)
}

pub fn man() -> Result<u8, LabError> {
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command()).render(&mut page).map_err(LabError::StandardOutput)?;
    print(&page)?;
    Ok(exit::SOUND)
}
