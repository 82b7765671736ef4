//! `pgseal provider`: the plugins of key stores.

mod list;
mod test;

use crate::error::CliError;

const EXAMPLES: &str = "\
Examples:
  pgseal provider list
  pgseal provider test 'pkcs11:token=db;object=pgseal?module-path=/usr/lib/softhsm/libsofthsm2.so&\
pin-source=/etc/pgseal/pin'";

/// List and test the plugins that talk to key stores
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, clap::Subcommand)]
enum Task {
    List(list::Args),
    Test(test::Args),
}

pub fn run(args: &Args) -> Result<u8, CliError> {
    match &args.task {
        Task::List(args) => list::run(args),
        Task::Test(args) => test::run(args),
    }
}
