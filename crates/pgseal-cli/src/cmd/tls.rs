//! `pgseal tls`: TLS between the server and its clients.

use clap::{Args as ClapArgs, Subcommand};

use crate::cmd::{tls_check, tls_init};
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
    Init(tls_init::Args),
    Check(tls_check::Args),
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<u8, CliError> {
    match &args.command {
        Command::Init(args) => tls_init::run(args),
        Command::Check(args) => tls_check::run(args),
    }
}
