//! Hostile data directories. Each [`Change`] is one thing that an attacker with write access to the
//! storage can do. [`watch`] runs a program on the changed directory under strace(1) and reports
//! what the program starts, connects to and writes.
//!
//! Everything that the changes point to is in one directory, the *trap*: programs that leave a mark
//! when they are run, files that must not be written, a FIFO without a writer.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use pgseal_cluster::{install, is_root};

mod changes;

pub use changes::{CHANGES, FEW};

/// The directory that the changes point to.
#[derive(Debug)]
pub struct Trap {
    dir: PathBuf,
}

/// One change of a data directory.
pub struct Change {
    /// A description of the change.
    pub name: &'static str,
    /// Whether the server itself, without pgseal, would wait for ever or write elsewhere.
    pub stops_server: bool,
    make: fn(&Path, &Trap),
}

impl Change {
    /// The change that does nothing, for comparison.
    #[must_use]
    pub const fn nothing() -> Change {
        Change { name: "nothing, for comparison", stops_server: false, make: |_, _| () }
    }

    /// Applies the change.
    pub fn make(&self, data: &Path, trap: &Trap) {
        (self.make)(data, trap);
    }
}

impl Trap {
    /// Creates the trap in a new directory that every user may use.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn set(dir: &Path) -> io::Result<Trap> {
        fs::create_dir(dir)?;
        fs::create_dir(dir.join("victim"))?;
        let trap = Trap { dir: dir.to_owned() };
        let text = format!("#!/bin/sh\ntouch {}\necho 15\n", trap.mark().display());
        fs::write(dir.join("source"), text)?;
        install(&dir.join("source"), &trap.program()).map_err(io::Error::other)?;
        fs::write(trap.victim(), "nobody may write this\n")?;
        fs::write(dir.join("planted.key"), "5b".repeat(32))?;
        make_special(&trap.fifo(), "p")?;
        for path in [dir, &dir.join("victim"), &trap.victim()] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o777))?;
        }
        Ok(trap)
    }

    /// The file that a program of the trap creates when it is run.
    #[must_use]
    pub fn mark(&self) -> PathBuf {
        self.dir.join("mark")
    }

    /// A program that creates [`Trap::mark`].
    #[must_use]
    pub fn program(&self) -> PathBuf {
        self.dir.join("planted")
    }

    /// A file that must not be changed, in a directory of its own.
    #[must_use]
    pub fn victim(&self) -> PathBuf {
        self.dir.join("victim/file")
    }

    fn fifo(&self) -> PathBuf {
        self.dir.join("fifo")
    }

    /// What of the trap was run or changed; `None`: nothing.
    #[must_use]
    pub fn sprung(&self) -> Option<String> {
        if self.mark().exists() {
            return Some("a program that the directory names was run".to_owned());
        }
        let victim = fs::read_to_string(self.victim()).unwrap_or_default();
        let listing = fs::read_dir(self.dir.join("victim")).map_or(0, Iterator::count);
        let is_whole = victim == "nobody may write this\n" && listing == 1;
        (!is_whole).then(|| "a file outside of the directory was written".to_owned())
    }
}

fn make_special(path: &Path, kind: &str) -> io::Result<()> {
    let mut command = Command::new("mknod");
    command.arg(path).arg(kind);
    if kind == "c" {
        // The memory device that gives zeros without end.
        command.args(["1", "5"]);
    }
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    output.status.success().then_some(()).ok_or_else(|| io::Error::other(said))
}

/// What a program did under [`watch`].
#[derive(Debug)]
pub struct Seen {
    /// The exit status, or 128 plus the signal that ended the program; 137 on a timeout.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
    /// The programs it started, its connections and the files it opened for writing, as strace
    /// shows them; empty if the program could not be traced.
    pub calls: Vec<String>,
}

/// Runs a program as a user under strace, without a terminal, with empty standard input, and with a
/// timeout in seconds. Only root can trace pgseal, since pgseal disables tracing of itself.
///
/// # Errors
/// When the program cannot be run.
pub fn watch(
    program: &Path,
    args: &[String],
    environment: &[(String, String)],
    user: Option<&str>,
    seconds: u32,
    dir: &Path,
) -> io::Result<Seen> {
    let trace = tempfile::NamedTempFile::new()?;
    let mut command = Command::new("setsid");
    command.arg("-w");
    if is_root() {
        command.args(["strace", "-f", "-y", "-s", "4096", "-qq", "--seccomp-bpf", "-o"]);
        command.arg(trace.path());
        command.args(["-e", "trace=execve,execveat,connect,open,openat,openat2,creat"]);
        command.args(user.iter().flat_map(|user| ["-u", user]));
    }
    command.args(["timeout", "-s", "KILL", &seconds.to_string()]).arg(program).args(args);
    command.stdin(Stdio::null()).current_dir(dir).env_remove("PGDATA").env_remove("LD_PRELOAD");
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PGSEAL_") {
            command.env_remove(name);
        }
    }
    command.envs(environment.iter().cloned());
    let Output { status, stdout, stderr } = command.output()?;
    let text = fs::read(trace.path())?;
    Ok(Seen {
        code: status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(-1),
        out: String::from_utf8_lossy(&stdout).into_owned(),
        err: String::from_utf8_lossy(&stderr).into_owned(),
        calls: String::from_utf8_lossy(&text).lines().map(str::to_owned).collect(),
    })
}

impl Seen {
    /// The successful calls that opened a file of the trap, for reading or writing.
    #[must_use]
    pub fn opened(&self, trap: &Trap) -> Vec<String> {
        let trap = format!("{}/", trap.dir.display());
        let is_open = |line: &&String| {
            let call = line.split_once(' ').map_or("", |(_, call)| call.trim_start());
            // -y shows what a descriptor really is.
            let opened = call.rsplit_once(" = ").map_or("", |(_, result)| result);
            !call.starts_with("exec") && !opened.starts_with('-') && opened.contains(&trap)
        };
        self.calls.iter().filter(is_open).cloned().collect()
    }

    /// What the program must not do: start a program of these directories, connect to a machine, or
    /// open a file of the trap for writing.
    #[must_use]
    pub fn misdeeds(&self, data: &Path, trap: &Trap) -> Vec<String> {
        let (data, trap) = (format!("{}/", data.display()), format!("{}/", trap.dir.display()));
        let is_bad = |line: &&String| {
            let call = line.split_once(' ').map_or("", |(_, call)| call.trim_start());
            let succeeded = !call.contains(" = -1 ");
            // -y shows what a descriptor really is.
            let opened = call.rsplit_once(" = ").map_or("", |(_, result)| result);
            let writes = ["O_WRONLY", "O_RDWR", "O_CREAT"].iter().any(|flag| call.contains(flag));
            if call.starts_with("exec") {
                let program = call.split('"').nth(1).unwrap_or_default();
                let is_planted = program.starts_with(&data) || program.starts_with(&trap);
                return is_planted || program.ends_with("/sh") && call.contains(&trap);
            }
            if call.starts_with("connect") {
                return call.contains("AF_INET");
            }
            succeeded && writes && opened.contains(&trap)
        };
        self.calls.iter().filter(is_bad).cloned().collect()
    }
}
