//! `pgseal key`: makes keys, and shows, changes, checks, saves and restores keyrings.
//!
//! Each task is a module. Only [`check`] is used outside: `pgseal doctor` makes the same check.

mod backup;
pub mod check;
mod destroy;
mod forget;
mod new;
mod new_keyring;
mod policy;
mod recipients;
mod renew;
mod restore;
mod rotate;
mod show;

use crate::error::CliError;

const EXAMPLES: &str = "\
Examples:
  pgseal key new -o /etc/pgseal/main.key
  pgseal key show /srv/postgres/data
  pgseal key rotate /srv/postgres/data -K file:/etc/pgseal/next.key
  pgseal key renew /srv/postgres/data
  pgseal key add-recipient escrow -K file:/mnt/offline/escrow.key /srv/postgres/data
  pgseal key backup /srv/postgres/data -o escrow.txt
  pgseal key check /srv/postgres/data --escrow escrow.txt";

/// Make keys, look at a keyring, change the key
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, clap::Subcommand)]
enum Task {
    New(new::Args),
    NewKeyring(new_keyring::Args),
    Show(show::Args),
    Rotate(rotate::Args),
    Renew(renew::Args),
    AddRecipient(recipients::AddArgs),
    RemoveRecipient(recipients::RemoveArgs),
    Backup(backup::Args),
    Restore(restore::Args),
    Check(check::Args),
    Policy(policy::Args),
    Forget(forget::Args),
    Destroy(destroy::Args),
}

pub fn run(args: &Args) -> Result<u8, CliError> {
    match &args.task {
        Task::New(args) => new::run(args),
        Task::NewKeyring(args) => new_keyring::run(args),
        Task::Show(args) => show::run(args),
        Task::Rotate(args) => rotate::run(args),
        Task::Renew(args) => renew::run(args),
        Task::AddRecipient(args) => recipients::add(args),
        Task::RemoveRecipient(args) => recipients::remove(args),
        Task::Backup(args) => backup::run(args),
        Task::Restore(args) => restore::run(args),
        Task::Check(args) => check::run(args),
        Task::Policy(args) => policy::run(args),
        Task::Forget(args) => forget::run(args),
        Task::Destroy(args) => destroy::run(args),
    }
}
