//! A hostile data directory: one thing at a time is what an enemy who writes the storage would make
//! of it, and a program is run on it under strace(1), to see what it starts, connects to and writes.
//!
//! Everything that the changes name lies in one directory, the *trap*: programs that leave a mark
//! when they are run, files that must not be written, a FIFO that nobody ever writes to.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::programs::{install, is_root};

mod changes;

pub use changes::{CHANGES, FEW};

/// The directory that changes lead to.
#[derive(Debug)]
pub struct Trap {
    dir: PathBuf,
}

/// What is done to a data directory.
pub struct Change {
    /// What it is, in words.
    pub name: &'static str,
    /// Whether the server itself, without pgseal, would wait for ever or write elsewhere.
    pub stops_server: bool,
    make: fn(&Path, &Trap),
}

impl Change {
    /// None, for comparison.
    #[must_use]
    pub const fn nothing() -> Change {
        Change { name: "nothing, for comparison", stops_server: false, make: |_, _| () }
    }

    /// Makes it.
    pub fn make(&self, data: &Path, trap: &Trap) {
        (self.make)(data, trap);
    }
}

impl Trap {
    /// Sets it, in a directory that is not there yet, for everybody to use.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn set(dir: &Path) -> io::Result<Trap> {
        fs::create_dir(dir)?;
        fs::create_dir(dir.join("victim"))?;
        let trap = Trap { dir: dir.to_owned() };
        let text = format!("#!/bin/sh\ntouch {}\necho 15\n", trap.mark().display());
        fs::write(dir.join("source"), text)?;
        install(&dir.join("source"), &trap.program())?;
        fs::write(trap.victim(), "nobody may write this\n")?;
        fs::write(dir.join("planted.key"), "5b".repeat(32))?;
        make_special(&trap.fifo(), "p")?;
        for path in [dir, &dir.join("victim"), &trap.victim()] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o777))?;
        }
        Ok(trap)
    }

    /// What a program that was run leaves.
    #[must_use]
    pub fn mark(&self) -> PathBuf {
        self.dir.join("mark")
    }

    /// A program that leaves the mark.
    #[must_use]
    pub fn program(&self) -> PathBuf {
        self.dir.join("planted")
    }

    /// A file that must stay as it is, in a directory of its own.
    #[must_use]
    pub fn victim(&self) -> PathBuf {
        self.dir.join("victim/file")
    }

    fn fifo(&self) -> PathBuf {
        self.dir.join("fifo")
    }

    /// What was sprung, or nothing.
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

/// What a program did.
#[derive(Debug)]
pub struct Seen {
    /// Its exit status, 128 and the signal that ended it; 137 when it had to be stopped.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
    /// What it started, connected to and opened for writing, as strace shows it; nothing where it
    /// could not be traced.
    pub calls: Vec<String>,
}

/// Runs a program as a user under strace, without a terminal and with nothing to read, for at most so
/// many seconds. Only root can trace what pgseal does, since pgseal lets nobody look into it.
///
/// # Errors
/// When it cannot be run.
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
    /// What it opened of the trap, in whatever way: the calls that succeeded.
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

    /// What it should not have done: started something of these directories, talked to a machine, or
    /// opened something of the trap for writing.
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
