//! The command line, one module for each subcommand.

mod anchor;
mod audit;
mod cat;
mod completions;
mod config;
mod convert;
mod doctor;
mod env;
mod guard;
mod help;
mod helper;
mod initdb;
mod inspect;
mod key;
mod lab;
mod man;
mod manifest;
mod provider;
mod reseal;
mod run;
mod status;
mod tls;
mod verify;
mod wal;

use clap::error::ErrorKind;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};

use self::convert::{decrypt, encrypt, rekey};
use crate::error::CliError;
use crate::{audit as trail, help_text, key_ahead, keys, licenses};

const ABOUT: &str = "Encryption at rest for an unmodified PostgreSQL";

const LONG_ABOUT: &str = "\
Encryption at rest for an unmodified PostgreSQL.

pgseal seals a data directory: every file that holds user data is encrypted and authenticated on \
disk, and the server, which pgseal starts with a preloaded library, sees it plain. The server \
itself is the one that you have.";

const EXAMPLES: &str = "\
Examples:
  A key, a sealed cluster, a running server:
    pgseal key new -o ~/pgseal.key
    pgseal initdb -k -K file:$HOME/pgseal.key ~/data
    pgseal run -- pg_ctl -D ~/data -l ~/server.log start

  Is all of it sealed, and is all of it sound?
    pgseal status ~/data
    pgseal verify ~/data

Exit status:
  0 done and sound       10 no key             20 library, guard module or program not found
  1 damage or weakness   11 wrong key          21 settings refuse sealing
  2 usage                12 key file insecure  22 not now: a server runs, no room, unfinished
  3 no such directory    13 provider failed    40 I/O error
  4 not sealed           14 keyring damaged    70 a bug in pgseal
  5 exists already       15 keyring of another cluster
                         16 keyring missing
                         17 key store refused";

/// What `--version` prints.
const VERSION: &str = if pgseal_crypto::FIPS {
    concat!(env!("CARGO_PKG_VERSION"), " (FIPS build, over the FIPS module of AWS-LC)")
} else {
    env!("CARGO_PKG_VERSION")
};

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "pgseal", version = VERSION, about = ABOUT, long_about = LONG_ABOUT, after_help = EXAMPLES)]
#[command(arg_required_else_help = true)]
#[command(disable_help_subcommand = true, max_term_width = 100)]
pub struct Cli {
    /// Let a passphrase cost more than 1 GiB of memory or 16 passes, if the keyring says so
    #[arg(long, global = true, hide_short_help = true)]
    allow_cost: bool,
    /// Print the licences of pgseal and of everything that is linked into it
    #[arg(long, exclusive = true)]
    licenses: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    Initdb(initdb::Args),
    Run(run::Args),
    Encrypt(encrypt::Args),
    Decrypt(decrypt::Args),
    Rekey(rekey::Args),
    Reseal(reseal::Args),
    Env(env::Args),
    Guard(guard::Args),
    Status(status::Args),
    Doctor(doctor::Args),
    Verify(verify::Args),
    Inspect(inspect::Args),
    Cat(cat::Args),
    Key(key::Args),
    Provider(provider::Args),
    Config(config::Args),
    Manifest(manifest::Args),
    Wal(wal::Args),
    Anchor(anchor::Args),
    Audit(audit::Args),
    /// Measure what encryption costs on this machine (runs pgseal-lab)
    Lab(lab::Args),
    /// Recommend settings from what was measured on this machine (runs pgseal-lab)
    Advise(lab::Args),
    Tls(tls::Args),
    Completions(completions::Args),
    Man(man::Args),
    Help(help::Args),
    Helper(helper::Args),
}

/// The whole command line.
fn command() -> clap::Command {
    help_text::flowing(Cli::command())
}

/// Parses the command line and runs the command; returns the exit status.
pub fn dispatch() -> Result<u8, CliError> {
    let matches = command().get_matches();
    trail::command(&name_of(&matches));
    if let Some(uri) = present_key(&matches) {
        key_ahead::remember_given(uri);
    }
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    if cli.allow_cost {
        keys::allow_cost();
    }
    if cli.licenses {
        return licenses::print();
    }
    let Some(chosen) = cli.command else {
        command().error(ErrorKind::MissingSubcommand, "a command is missing").exit()
    };
    match chosen {
        Command::Initdb(args) => initdb::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Encrypt(args) => encrypt::run(&args),
        Command::Decrypt(args) => decrypt::run(&args),
        Command::Rekey(args) => rekey::run(&args),
        Command::Reseal(args) => reseal::run(&args),
        Command::Env(args) => env::run(&args),
        Command::Guard(args) => guard::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Cat(args) => cat::run(&args),
        Command::Key(args) => key::run(&args),
        Command::Provider(args) => provider::run(&args),
        Command::Config(args) => config::run(&args),
        Command::Manifest(args) => manifest::run(&args),
        Command::Wal(args) => wal::run(&args),
        Command::Anchor(args) => anchor::run(&args),
        Command::Audit(args) => audit::run(&args),
        Command::Lab(args) => lab::run(&[], &args),
        Command::Advise(args) => lab::run(&["advise"], &args),
        Command::Tls(args) => tls::run(&args),
        Command::Completions(args) => completions::run(&args, command()),
        Command::Man(args) => man::run(&args, command()),
        Command::Help(args) => help::run(&args, &command()),
        Command::Helper(args) => helper::run(&args),
    }
}

/// The name of the command: `key rotate`.
fn name_of(matches: &ArgMatches) -> String {
    let mut names = Vec::new();
    let mut at = matches;
    while let Some((name, below)) = at.subcommand() {
        names.push(name);
        at = below;
    }
    names.join(" ")
}

/// The option of a command that names the source of an existing key.
fn present_key(matches: &ArgMatches) -> Option<&str> {
    let (name, matches) = matches.subcommand()?;
    // These commands take a new key, which the server's user must be able to read.
    if ["initdb", "encrypt"].contains(&name) {
        return None;
    }
    if matches.subcommand().is_some() {
        return present_key(matches);
    }
    let text = |id| matches.try_get_one::<String>(id).ok().flatten().map(String::as_str);
    match name {
        "rotate" => text("old"),
        "restore" => text("unlock"),
        _ => text("provider"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_consistent() {
        super::command().debug_assert();
    }

    /// These print a document of their own form, or run another program.
    const WITHOUT_JSON: [&str; 8] =
        ["run", "cat", "lab", "advise", "completions", "man", "help", "helper"];

    /// Visits every command that has none below it.
    fn each_leaf(
        command: &clap::Command,
        path: &str,
        visit: &mut impl FnMut(&str, &clap::Command),
    ) {
        if command.get_subcommands().next().is_none() {
            return visit(path, command);
        }
        for below in command.get_subcommands().filter(|below| below.get_name() != "helper") {
            each_leaf(below, format!("{path} {}", below.get_name()).trim_start(), visit);
        }
    }

    #[test]
    fn every_command_prints_json() {
        let has = |command: &clap::Command, id: &str| {
            command.get_arguments().any(|argument| argument.get_id() == id)
        };
        each_leaf(&super::command(), "", &mut |path, command| {
            assert_ne!(has(command, "json"), WITHOUT_JSON.contains(&path), "--json of {path}");
        });
    }

    /// A command that works on a data directory takes it in each way.
    #[test]
    fn every_directory_can_come_from_the_environment() {
        let mut all = Vec::new();
        each_leaf(&super::command(), "", &mut |path, command| {
            let is_dir = |argument: &clap::Arg| {
                let names = argument.get_value_names().unwrap_or_default();
                argument.is_positional()
                    && (names.iter().any(|name| name == "DIR") || argument.get_id() == "path")
            };
            if command.get_arguments().any(is_dir) {
                let option = command.get_arguments().find(|argument| argument.get_id() == "pgdata");
                assert_eq!(option.and_then(clap::Arg::get_short), Some('D'), "{path}");
                let is_free = command.get_arguments().filter(|found| is_dir(found));
                assert!(is_free.into_iter().all(|found| !found.is_required_set()), "{path}");
                all.push(path.to_owned());
            }
        });
        assert!(all.len() > 25, "{all:?}");
    }
}
