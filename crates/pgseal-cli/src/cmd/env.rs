//! `pgseal env`: prints the variables that a server needs, for services that start it themselves,
//! or writes them into the file of a Debian cluster.

mod debian;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use pgseal_keys::{Line, Provider};
use serde::Serialize;

use crate::datadir::DataDir;
use crate::error::CliError;
use crate::out::{self, Out};
use crate::register::{self, Registration};
use crate::values::KeySource;
use crate::{audit, environment, exit, given_dir, keys, library};

const EXAMPLES: &str = "\
Examples:
  eval \"$(pgseal env)\"
  pgseal env -D /var/lib/postgresql/15/main --format systemd > /etc/systemd/system/postgresql@15-main.service.d/pgseal.conf
  pgseal env -D /var/lib/postgresql/15/main --format debian
  pgseal env --format docker > pgseal.env    (then: docker run --env-file pgseal.env ...)

With \"--format debian\" the variables go into the file environment of the cluster that has the data directory,
below /etc/postgresql; a second run changes nothing.

With -D the output also says what the key provider of that directory needs, and names its keyring: a
server with PGSEAL_KEYRING_ID refuses a directory with another keyring, or with none.";

/// Print the variables that a server needs, for a shell, a unit, a cluster or a container
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The data directory; adds PGDATA, PGSEAL_KEYRING_ID and a word about its key
    #[arg(short = 'D', long = "pgdata", value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Write where the key comes from into /etc/pgseal/clusters.d, once it has opened the keyring
    #[arg(long, requires = "dir")]
    register: bool,
    /// With --register: where the key comes from, if not from where PGSEAL_PROVIDER says
    #[arg(short = 'K', long = "key-provider", value_name = "PROVIDER", requires = "register")]
    #[arg(value_parser = KeySource, hide_possible_values = true)]
    provider: Option<String>,
    /// Where the variables go
    #[arg(long, value_enum, default_value_t = Format::Sh)]
    format: Format,
    /// With "--format debian": print the lines, and change no file
    #[arg(long)]
    print: bool,
    /// Print JSON: the variables, or with "--format debian" what was done
    #[arg(long)]
    json: bool,
}

/// What was done with the file of a Debian cluster.
#[derive(Debug, Serialize)]
struct Written {
    file: String,
    /// Whether the file was changed.
    changed: bool,
    variables: BTreeMap<&'static str, String>,
}

/// The formats of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Commands for a shell
    Sh,
    /// A drop-in file for a systemd unit
    Systemd,
    /// Into the file `environment` of a Debian or Ubuntu cluster
    Debian,
    /// A file for docker --env-file
    Docker,
    /// JSON
    Json,
}

pub fn run(args: &Args) -> Result<u8, CliError> {
    let writes = args.format == Format::Debian && !args.print;
    let given = match &args.dir {
        None if writes => Some(given_dir::or_pgdata(None, "env --format debian", "-D DIR")?),
        given => given.clone(),
    };
    let mut file = None;
    let library = utf8(library::library()?)?;
    let helper = match environment::variable("PGSEAL_HELPER")? {
        Some(path) => path,
        None => utf8(library::program()?)?,
    };
    let mut variables = vec![("LD_PRELOAD", library), ("PGSEAL_HELPER", helper)];
    let mut note = None;
    if let Some(dir) = &given {
        let wanted = match &args.provider {
            Some(uri) => Some(uri.clone()),
            None => environment::variable(environment::PROVIDER)?,
        };
        let registration = match (&wanted, args.register) {
            (Some(uri), true) => {
                Some(Registration::begin(&Provider::parse_typed(uri)?, Line::First, dir)?)
            }
            (None, true) => {
                return Err(CliError::Usage(
                    "env --register: which source? what the data directory names is not enough; give \
                     -K PROVIDER"
                        .to_owned(),
                ));
            }
            _ => None,
        };
        let dir = DataDir::open(dir)?;
        let keyring = keys::own_keyring(&dir)?;
        file = writes.then(|| debian::file_of(&dir)).transpose()?;
        if let Some(registration) = registration {
            keyring.unlock(&keys::kek(&keyring, wanted.as_deref())?)?;
            let path = registration.finish(keyring.id())?;
            audit::detail(format!("{} names it first", path.display()));
            out::complain(&register::done(&path));
        }
        note = Some(match keys::source(&keyring, None) {
            Ok(source) => note_on_key(source.provider()),
            Err(error) => error.to_string(),
        });
        variables.push((environment::KEYRING_ID, keyring.id().to_string()));
        if keyring.config_lock().is_some() {
            variables.push((environment::CONFIG, "locked".to_owned()));
        }
        variables.push(("PGDATA", utf8(dir.root)?));
    } else if let Some(pinned) = environment::variable(environment::KEYRING_ID)? {
        variables.push((environment::KEYRING_ID, pinned));
    }
    for name in
        [environment::PROVIDER, environment::ANCHOR, "PGSEAL_PROGRAMS", "PGSEAL_ALLOW_MODULES"]
    {
        if let Some(value) = environment::variable(name)? {
            variables.push((name, value));
        }
    }
    if let Some((name, _)) = variables.iter().find(|(_, value)| value.contains(['\n', '\r'])) {
        return Err(CliError::Usage(format!("{name} has a line break in it; set it anew")));
    }
    let mut out = Out::new();
    match &file {
        Some(path) => {
            let changed = debian::write(path, &variables)?;
            if args.json {
                let file = path.display().to_string();
                let variables = variables.into_iter().collect();
                out.json(&Written { file, changed, variables })?;
            } else {
                let how = if changed { "written" } else { "has these variables already" };
                writeln!(out, "{}: {how}", path.display())?;
                note.iter().try_for_each(|note| writeln!(out, "note: {note}"))?;
            }
        }
        None => {
            let format = if args.json { Format::Json } else { args.format };
            print(&mut out, format, &variables, note.as_deref())?;
        }
    }
    out.flush()?;
    Ok(exit::SOUND)
}

fn print(
    out: &mut Out,
    format: Format,
    variables: &[(&str, String)],
    note: Option<&str>,
) -> Result<(), CliError> {
    if format == Format::Json {
        let map: BTreeMap<_, _> = variables.iter().cloned().collect();
        return Ok(out.json(&map)?);
    }
    if let Some(note) = note {
        writeln!(out, "# {note}")?;
    }
    if format == Format::Systemd {
        writeln!(out, "[Service]")?;
    }
    for (name, value) in variables {
        match format {
            // A library that is preloaded already stays, behind that of pgseal.
            Format::Sh if *name == "LD_PRELOAD" => {
                writeln!(out, "export {name}={}${{LD_PRELOAD:+:$LD_PRELOAD}}", sh_quoted(value))?;
            }
            Format::Sh => writeln!(out, "export {name}={}", sh_quoted(value))?,
            // systemd: backslash and quote escaped, % is a specifier
            Format::Systemd => {
                let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%");
                writeln!(out, "Environment=\"{name}={value}\"")?;
            }
            Format::Debian => writeln!(out, "{}", debian::line(name, value))?,
            Format::Docker | Format::Json => writeln!(out, "{name}={value}")?,
        }
    }
    Ok(())
}

fn note_on_key(provider: Option<&Provider>) -> String {
    match provider {
        Some(Provider::Env(name)) => format!(
            "{name}, the key itself, must be in the server's environment too; keep it out of this \
             file, or use a key file: pgseal key rotate DIR -K file:PATH"
        ),
        Some(Provider::File(path)) => {
            format!("the server's user must be able to read the key file {}", path.display())
        }
        Some(Provider::Command(_)) => {
            "the server's user must be able to run the key command, which is run once for each start"
                .to_owned()
        }
        Some(Provider::Plugin(_)) => {
            "the server's user must be able to use the key store, which is asked once for each start"
                .to_owned()
        }
        Some(Provider::Passphrase(_)) => {
            "a unit cannot ask for a passphrase: start the server with \"pgseal run\" from a \
             terminal, or change to another key: pgseal key rotate DIR -K file:PATH"
                .to_owned()
        }
        None => "the key was handed over in memory".to_owned(),
    }
}

fn sh_quoted(value: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'.' | b'_' | b'-' | b':');
    if !value.is_empty() && value.bytes().all(plain) {
        return value.to_owned();
    }
    format!("'{}'", value.replace('\'', "'\\''"))
}

fn utf8(path: PathBuf) -> Result<String, CliError> {
    path.into_os_string().into_string().map_err(|path| {
        CliError::Usage(format!(
            "{}: the path is not UTF-8 and cannot stand in such a file; install pgseal elsewhere",
            path.display()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_back_what_was_quoted() {
        for value in ["/usr/lib/libpgseal.so", "", "it's", "a b$c`d\"e\\"] {
            let script = format!("printf %s {}", sh_quoted(value));
            let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), value);
        }
    }
}
