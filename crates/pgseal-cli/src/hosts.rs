//! Asks many clusters, on this machine and behind `ssh`, what a command of pgseal says as JSON.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::error::CliError;
use crate::{child, diff, library, small_file};

/// A cluster: a data directory of this machine, `HOST` (the directory that `PGDATA` names there),
/// or `HOST:DIR`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// As it was given.
    pub name: String,
    host: Option<String>,
    dir: Option<String>,
}

impl Target {
    /// The target that a word names.
    ///
    /// # Errors
    /// What is wrong with it. No host begins with `-` or has a character that ssh or a shell would
    /// read as something else.
    pub fn parse(word: &str) -> Result<Target, CliError> {
        let bad = |why: &str| {
            CliError::Usage(format!(
                "hosts: \"{}\" is no host and no path: {why}",
                diff::shown(word)
            ))
        };
        let is_path =
            word.contains('/') && !word.split('/').next().unwrap_or_default().contains(':');
        let (host, dir) = match word.split_once(':') {
            _ if is_path => (None, Some(word)),
            Some((host, dir)) => (Some(host), Some(dir)),
            None => (Some(word), None),
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-@%+".contains(c);
        if word.starts_with('-') || host == Some("") || dir == Some("") {
            return Err(bad("it begins with \"-\", or a part of it is empty"));
        }
        if word.chars().any(char::is_control) || !host.unwrap_or_default().chars().all(plain) {
            return Err(bad("of a host, the name is one for ssh, as letters, digits and ._-@%+"));
        }
        Ok(Target {
            name: word.to_owned(),
            host: host.map(str::to_owned),
            dir: dir.map(str::to_owned),
        })
    }

    /// The targets in a file, or with `-` in standard input: one a line; empty lines and what
    /// follows `#` are left out.
    ///
    /// # Errors
    /// When the file cannot be read, or a line names no target.
    pub fn list(path: &Path) -> Result<Vec<Target>, CliError> {
        let text = if path == Path::new("-") {
            std::io::read_to_string(std::io::stdin())
        } else {
            small_file::read_text(path)
        };
        let text = text.map_err(CliError::io(path, "read the list of hosts"))?;
        let words = text.lines().filter_map(|line| {
            let word = line.split('#').next().unwrap_or_default().trim();
            (!word.is_empty()).then_some(word)
        });
        let targets: Vec<Target> = words.map(Target::parse).collect::<Result<_, _>>()?;
        if targets.is_empty() {
            return Err(CliError::Usage(format!(
                "hosts: {}: this file names none",
                path.display()
            )));
        }
        Ok(targets)
    }
}

/// How targets are asked.
#[derive(Clone, Debug)]
pub struct Asking {
    /// The words of the command: `status --brief --json`.
    pub words: &'static [&'static str],
    /// How long each target may take.
    pub timeout: Duration,
    /// How many are asked at once.
    pub at_once: usize,
    /// Options for ssh, as its option `-o` takes them.
    pub ssh_options: Vec<String>,
    /// What runs pgseal on the other machines, for their shell.
    pub remote: String,
}

impl Asking {
    /// Asks each target and returns the answers in the order of the targets; of one without an
    /// answer, the reason. `done` is called after each.
    ///
    /// # Errors
    /// When this program does not know where it is itself.
    pub fn ask_all<T: DeserializeOwned + Send + Sync>(
        &self,
        targets: &[Target],
        done: &(dyn Fn() + Sync),
    ) -> Result<Vec<Result<T, String>>, CliError> {
        let program = library::program()?.into_os_string();
        let next = AtomicUsize::new(0);
        let answers: Vec<OnceLock<Result<T, String>>> =
            targets.iter().map(|_| OnceLock::new()).collect();
        thread::scope(|scope| {
            for _ in 0..self.at_once.clamp(1, targets.len().max(1)) {
                scope.spawn(|| {
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        let (Some(target), Some(answer)) = (targets.get(at), answers.get(at))
                        else {
                            return;
                        };
                        // Nobody else has this number.
                        let _ = answer.set(self.ask(&program, target));
                        done();
                    }
                });
            }
        });
        let missing = || Err("it was not asked".to_owned());
        Ok(answers.into_iter().map(|answer| answer.into_inner().unwrap_or_else(missing)).collect())
    }

    fn ask<T: DeserializeOwned>(&self, program: &OsString, target: &Target) -> Result<T, String> {
        let mut command = self.command(program, target);
        let said =
            child::output_within(&mut command, self.timeout).map_err(|error| error.to_string())?;
        serde_json::from_slice(&said.stdout).map_err(|_| {
            let text = String::from_utf8_lossy(&said.stderr).into_owned();
            let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no answer");
            let last = last.strip_prefix("pgseal: ").unwrap_or(last);
            match said.status.code() {
                Some(127) => format!("{}; install pgseal there", diff::shown(last)),
                Some(code) => format!("{} (exit status {code})", diff::shown(last)),
                None => diff::shown(last),
            }
        })
    }

    /// `ssh` never asks, and gives up in time. The shell there gets the directory as one quoted
    /// word.
    fn command(&self, program: &OsString, target: &Target) -> Command {
        let Some(host) = &target.host else {
            let mut command = Command::new(program);
            command.args(self.words).arg("-D").args(&target.dir);
            return command;
        };
        let mut command = Command::new("ssh");
        for option in &self.ssh_options {
            command.arg("-o").arg(option);
        }
        command.args(["-o", "BatchMode=yes", "-o"]);
        command.arg(format!("ConnectTimeout={}", self.timeout.as_secs().max(1)));
        let quoted = target.dir.as_ref().map(|dir| format!(" -D '{}'", dir.replace('\'', "'\\''")));
        command.args(["--", host]).arg(format!(
            "{} {}{}",
            self.remote,
            self.words.join(" "),
            quoted.unwrap_or_default()
        ));
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking() -> Asking {
        Asking {
            words: &["doctor", "--json"],
            timeout: Duration::from_secs(7),
            at_once: 3,
            ssh_options: vec!["Port=2222".to_owned()],
            remote: "sudo -n pgseal".to_owned(),
        }
    }

    fn words(target: &str) -> Vec<String> {
        let command = asking().command(&"/bin/pgseal".into(), &Target::parse(target).unwrap());
        let all = std::iter::once(command.get_program()).chain(command.get_args());
        all.map(|word| word.to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn a_host_is_asked_through_ssh_and_its_directory_is_one_word_there() {
        let before =
            ["ssh", "-o", "Port=2222", "-o", "BatchMode=yes", "-o", "ConnectTimeout=7", "--"];
        let asked = |host: &str, command: &str| -> Vec<String> {
            before.iter().chain(&[host, command]).map(|word| (*word).to_owned()).collect()
        };
        assert_eq!(words("db1"), asked("db1", "sudo -n pgseal doctor --json"));
        assert_eq!(
            words("me@db1:/srv/it's $(id)"),
            asked("me@db1", "sudo -n pgseal doctor --json -D '/srv/it'\\''s $(id)'")
        );
        assert_eq!(words("/srv/a:b"), ["/bin/pgseal", "doctor", "--json", "-D", "/srv/a:b"]);
        assert_eq!(words("./data")[4], "./data");
    }

    #[test]
    fn no_word_becomes_an_option_or_a_command() {
        for bad in ["", "-oProxyCommand=id", ":/srv", "db1:", "db 1", "db1;id", "$(id)", "a\u{1b}b"]
        {
            assert!(Target::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_list_has_one_target_a_line_and_comments() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("hosts");
        std::fs::write(&file, "# all\n\ndb1  # first\n  db2:/srv/x\n/srv/y\n").unwrap();
        let names: Vec<String> =
            Target::list(&file).unwrap().into_iter().map(|target| target.name).collect();
        assert_eq!(names, ["db1", "db2:/srv/x", "/srv/y"]);
        for bad in ["# none\n", "db1\n-x\n"] {
            std::fs::write(&file, bad).unwrap();
            assert!(matches!(Target::list(&file), Err(CliError::Usage(_))), "{bad}");
        }
        assert!(Target::list(&dir.path().join("none")).is_err());
    }
}
