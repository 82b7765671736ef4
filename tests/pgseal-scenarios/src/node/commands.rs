//! Programs on a node's data directory, with and without the library.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::Node;
use crate::outcome::Outcome;
use crate::programs::as_server_user;

impl Node {
    /// Starts the server by hand, without the library.
    ///
    /// # Panics
    /// With the server's log, when it does not start.
    pub fn start_bare(&mut self) {
        if let Err(log) = self.try_start_bare() {
            panic!("the server did not start:\n{log}");
        }
    }

    /// Where PostgreSQL's programs are.
    #[must_use]
    pub fn bindir(&self) -> &Path {
        &self.bindir
    }

    /// A program of PostgreSQL, under the library if the cluster is sealed.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        let program = self.bindir.join(program);
        self.command_at(&program)
    }

    /// Any program, under the library if the cluster is sealed.
    #[must_use]
    pub fn command_at(&self, program: &Path) -> Command {
        let mut command = if self.pgseal_program().is_file() {
            let mut command = as_server_user(&self.pgseal_program());
            command.args(["run", "--"]).arg(program);
            command
        } else {
            as_server_user(program)
        };
        command.envs(self.env.iter().cloned());
        command.current_dir(self.home());
        command
    }

    /// A program of PostgreSQL, never under the library; it can connect to the server.
    #[must_use]
    pub fn bare(&self, program: &str) -> Command {
        let program = self.bindir.join(program);
        let mut command = as_server_user(&program);
        self.connected(&mut command);
        command.current_dir(self.home());
        command
    }

    /// Tells a client program where the server is.
    pub fn connected(&self, command: &mut Command) {
        command.env("PGHOST", &self.sockets).env("PGPORT", self.port.to_string());
        command.env("PGUSER", "postgres").env("PGDATABASE", "postgres");
        if let Some(password) = &self.password {
            command.env("PGPASSWORD", password);
        }
    }

    /// Runs `pgseal ARGUMENTS` to its end.
    ///
    /// # Panics
    /// When the cluster is plain.
    #[must_use]
    pub fn pgseal(&self, arguments: &[&str]) -> Outcome {
        self.pgseal_command(arguments).output().expect("pgseal runs").into()
    }

    /// `pgseal WORDS`, where the word `DIR` stands for the data directory.
    #[must_use]
    pub fn pgseal_dir(&self, words: &[&str]) -> Outcome {
        let dir = self.data().display().to_string();
        let words: Vec<&str> =
            words.iter().map(|word| if *word == "DIR" { dir.as_str() } else { word }).collect();
        self.pgseal(&words)
    }

    /// From now on the audit trail is a file, in a directory that the server's user owns. Returns
    /// its path.
    pub fn audit_to_file(&mut self) -> PathBuf {
        let file = self.make_dir("trail").join("audit.log");
        self.set_env("PGSEAL_AUDIT", &format!("file:{}", file.display()));
        file
    }

    /// The command `pgseal ARGUMENTS`, not started.
    #[must_use]
    pub fn pgseal_command(&self, arguments: &[&str]) -> Command {
        let mut command = as_server_user(&self.pgseal_program());
        command.envs(self.env.iter().cloned()).current_dir(self.home()).args(arguments);
        command
    }

    /// Copies the programs under test into a plain cluster; a sealed cluster has them from its
    /// creation.
    ///
    /// # Panics
    /// When they are not built.
    pub fn bring_programs(&self) {
        let dir = self.pgseal_program();
        let dir = dir.parent().expect("a directory");
        crate::programs().copy_to(dir).expect("the programs are built");
    }

    /// `pgseal verify` of a directory.
    #[must_use]
    pub fn verify_dir(&self, dir: &Path) -> Outcome {
        self.pgseal(&["verify", &dir.display().to_string()])
    }

    /// `pgseal verify` of the data directory.
    #[must_use]
    pub fn verify(&self) -> Outcome {
        self.verify_dir(self.data())
    }

    /// The copy of the program that the server's user can run.
    #[must_use]
    pub fn pgseal_program(&self) -> PathBuf {
        self.cluster.root().join("bin/pgseal")
    }

    /// The copy of the library beside [`Node::pgseal_program`].
    #[must_use]
    pub fn library(&self) -> PathBuf {
        self.cluster.root().join("bin/libpgseal.so")
    }

    /// The command that creates an empty file in the data directory as the server's user, not
    /// started.
    #[must_use]
    pub fn touch(&self, name: &str) -> Command {
        let mut touch = as_server_user(Path::new("touch"));
        touch.arg(self.file(name));
        touch
    }

    /// Runs a command to its end and asserts that it succeeded.
    ///
    /// # Panics
    /// With the output of the command.
    #[track_caller]
    pub fn succeed(&self, command: &mut Command) -> String {
        let outcome = Outcome::from(command.output().expect("the program runs"));
        assert_eq!(outcome.code, 0, "{command:?}\n{}", outcome.text);
        outcome.text
    }
}
