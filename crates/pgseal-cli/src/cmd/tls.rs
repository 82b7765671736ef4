//! `pgseal tls`: TLS between the server and its clients. `pgseal-tls` does the work.

mod check;
mod init;

use clap::{Args as ClapArgs, Subcommand};

use crate::error::CliError;

/// Set up and check TLS between a server and its clients
#[derive(Debug, ClapArgs)]
#[command(arg_required_else_help = true)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Init(init::Args),
    Check(check::Args),
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<u8, CliError> {
    match &args.command {
        Command::Init(args) => init::run(args),
        Command::Check(args) => check::run(args),
    }
}
