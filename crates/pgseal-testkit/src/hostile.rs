//! A hostile data directory: one thing at a time is what an enemy who writes the storage would make
//! of it, and a program is run on it under strace(1), to see what it starts, connects to and writes.
//!
//! Everything that the changes name lies in one directory, the *trap*: programs that leave a mark
//! when they are run, files that must not be written, a FIFO that nobody ever writes to.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::programs::{install, is_root};

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
        change("nothing, for comparison", |_, _| ())
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

/// A step of a change.
#[allow(clippy::panic, reason = "a change that was not made would make the test one of nothing")]
fn must<T>(result: io::Result<T>, what: &Path) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{}: {error}", what.display()),
    }
}

fn keyring(data: &Path) -> PathBuf {
    data.join("pgseal/keyring")
}

fn edit(path: &Path, change: impl FnOnce(String) -> String) {
    let text = must(fs::read_to_string(path), path);
    must(fs::write(path, change(text)), path);
}

/// Another value of a field of the keyring, whose MAC holds no more.
fn set(data: &Path, field: &str, value: &str) {
    edit(&keyring(data), |text| {
        let name = format!("\"{field}\": ");
        let start = text.find(&name).map_or(text.len(), |at| at + name.len());
        let end = text[start..].find([',', '\n']).map_or(text.len(), |at| start + at);
        assert!(start < end, "no field {field}");
        format!("{}{value}{}", &text[..start], &text[end..])
    });
}

fn set_provider(data: &Path, uri: &str) {
    set(data, "provider", &format!("\"{uri}\""));
    if uri.starts_with("passphrase:") {
        passphrase(data, 65536, 3);
    }
}

fn passphrase(data: &Path, memory_kib: u32, passes: u32) {
    let params = format!(
        "\"passphrase\": {{\"kdf\": \"argon2id\", \"version\": 19, \"memory_kib\": {memory_kib}, \
         \"passes\": {passes}, \"lanes\": 1, \"salt\": \"{}\"}},\n  \"key_check\"",
        "ab".repeat(16)
    );
    edit(&keyring(data), |text| text.replacen("\"key_check\"", &params, 1));
}

fn into_fifo(data: &Path, name: &str) {
    let path = data.join(name);
    let _ = fs::remove_file(&path);
    must(make_special(&path, "p"), &path);
}

fn into_link(data: &Path, name: &str, target: &Path) {
    let path = data.join(name);
    if path.is_dir() {
        must(fs::remove_dir_all(&path), &path);
    } else {
        let _ = fs::remove_file(&path);
    }
    must(symlink(target, &path), &path);
}

/// The journal of a conversion that is nearly done, with a configuration file of the enemy's.
fn journal(data: &Path, operation: &str, phase: &str, config: &Path, major: &str) {
    let path = data.join("pgseal/conversion");
    let suite = if operation == "decrypt" { "" } else { "aes-256-gcm" };
    let text = format!(
        "{{\"format\": \"pgseal-conversion\", \"version\": 1, \"operation\": \"{operation}\", \
         \"phase\": \"{phase}\", \"pg_version\": \"{major}\\n\", \"suite\": \"{suite}\", \
         \"keyring\": \"\", \"generation_before\": 1, \"facts\": {{\"catalog_version\": 1, \
         \"checksums\": true, \"segment_pages\": 131072}}, \"config_file\": \"{}\"}}",
        config.display()
    );
    must(fs::write(&path, text), &path);
}

const fn change(name: &'static str, make: fn(&Path, &Trap)) -> Change {
    Change { name, stops_server: false, make }
}

const fn not_for_servers(name: &'static str, make: fn(&Path, &Trap)) -> Change {
    Change { name, stops_server: true, make }
}

/// Those that were findings once, and stand for the others where there is little time.
pub const FEW: [&str; 4] = [
    "provider: command:",
    "provider: passphrase:command=",
    "postmaster.opts: another program",
    "pgseal/conversion: decrypt, another configuration file",
];

/// All changes. Each leaves a directory that is no more what the owner made.
pub const CHANGES: &[Change] = &[
    change("provider: command:", |data, trap| {
        set_provider(data, &format!("command:{}", trap.program().display()));
    }),
    change("provider: passphrase:command=", |data, trap| {
        set_provider(data, &format!("passphrase:command={}", trap.program().display()));
    }),
    change("provider: passphrase:fd=0", |data, _| set_provider(data, "passphrase:fd=0")),
    change("provider: passphrase:", |data, _| set_provider(data, "passphrase:")),
    change("provider: a key in the data directory", |data, trap| {
        let planted = data.join("planted.key");
        must(fs::copy(trap.dir.join("planted.key"), &planted), &planted);
        must(fs::set_permissions(&planted, fs::Permissions::from_mode(0o600)), &planted);
        set_provider(data, &format!("file:{}", planted.display()));
    }),
    change("provider: a FIFO", |data, trap| {
        set_provider(data, &format!("file:{}", trap.fifo().display()));
    }),
    change("provider: a device", |data, _| set_provider(data, "file:/dev/zero")),
    change("provider: another variable", |data, _| set_provider(data, "env:PATH")),
    change("provider: a key store on a network", |data, _| {
        set_provider(data, "https://127.0.0.1:1/key");
    }),
    change("keyring: format", |data, _| set(data, "format", "\"x\"")),
    change("keyring: version", |data, _| set(data, "version", "999999999999")),
    change("keyring: identity", |data, _| {
        set(data, "keyring_id", &format!("\"{}\"", "00".repeat(16)));
    }),
    change("keyring: time", |data, _| set(data, "created", "\"yesterday\"")),
    change("keyring: suite", |data, _| set(data, "suite", "\"aes-256-xts\"")),
    change("keyring: key check", |data, _| set(data, "key_check", "\"0000000000000000\"")),
    change("keyring: generation", |data, _| set(data, "generation", "4294967295")),
    change("keyring: state", |data, _| set(data, "state", "\"retired\"")),
    change("keyring: Argon2id of 4 GiB", |data, _| {
        set(data, "provider", "\"passphrase:\"");
        passphrase(data, 4 << 20, 1024);
    }),
    change("keyring: 100,000 generations", |data, _| {
        edit(&keyring(data), |text| {
            let start = text.find("\"generations\": [").map_or(0, |at| at + 16);
            let end = text.rfind("\n  ]").unwrap_or(text.len());
            let one = text[start..end].to_owned();
            let all = vec![one; 100_000].join(",");
            format!("{}{all}{}", &text[..start], &text[end..])
        });
    }),
    change("keyring: 1 GB", |data, _| {
        let path = keyring(data);
        let file = must(fs::OpenOptions::new().write(true).open(&path), &path);
        must(file.set_len(1_000_000_000), &path);
    }),
    change("keyring: a FIFO", |data, _| into_fifo(data, "pgseal/keyring")),
    change("keyring: a device", |data, _| {
        let path = keyring(data);
        must(fs::remove_file(&path), &path);
        // Only root can make one.
        let _ = make_special(&path, "c");
    }),
    change("keyring: a link to elsewhere", |data, trap| {
        into_link(data, "pgseal/keyring", &trap.victim());
    }),
    change("keyring: of another user", |data, _| {
        let path = keyring(data);
        // Only root can give it away.
        let _ = chown(&path, Some(65533), None);
        must(fs::set_permissions(&path, fs::Permissions::from_mode(0o644)), &path);
    }),
    change("keyring: removed", |data, _| must(fs::remove_file(keyring(data)), data)),
    change("keyring and relation map: removed", |data, _| {
        must(fs::remove_dir_all(data.join("pgseal")), data);
        must(fs::remove_file(data.join("global/pg_filenode.map")), data);
    }),
    change("pgseal: a link to elsewhere", |data, trap| {
        let victim = trap.dir.join("victim");
        into_link(data, "pgseal", &victim);
    }),
    change("postmaster.opts: another program", |data, trap| {
        let path = data.join("postmaster.opts");
        let text = format!("{} \"-D\" \"{}\"\n", trap.program().display(), data.display());
        must(fs::write(&path, text), &path);
    }),
    change("postmaster.pid: another process", |data, _| {
        let path = data.join("postmaster.pid");
        must(fs::write(&path, format!("1\n{}\n0\n5432\n/\n*\n", data.display())), &path);
    }),
    not_for_servers("postmaster.pid: a FIFO", |data, _| into_fifo(data, "postmaster.pid")),
    change("pgseal/conversion: decrypt, another configuration file", |data, trap| {
        journal(data, "decrypt", "finish", &trap.victim(), "15");
    }),
    change("pgseal/conversion: encrypt, another configuration file", |data, trap| {
        journal(data, "encrypt", "finish", &trap.victim(), "15");
    }),
    change("pgseal/conversion: a version that is a path", |data, trap| {
        let path = trap.dir.display().to_string();
        journal(data, "encrypt", "finish", &trap.victim(), &path);
    }),
    change("pgseal/conversion: a FIFO", |data, _| into_fifo(data, "pgseal/conversion")),
    change("pgseal/escrow.json: a FIFO", |data, _| into_fifo(data, "pgseal/escrow.json")),
    change("pgseal/config: a FIFO", |data, _| into_fifo(data, "pgseal/config")),
    change("pgseal/config: a link to elsewhere", |data, trap| {
        into_link(data, "pgseal/config", &trap.victim());
    }),
    change("pgseal/config: 1 GB", |data, _| {
        let path = data.join("pgseal/config");
        let file = must(fs::File::create(&path), &path);
        must(file.set_len(1_000_000_000), &path);
    }),
    change("PG_VERSION: a path", |data, trap| {
        must(fs::write(data.join("PG_VERSION"), format!("{}\n", trap.dir.display())), data);
    }),
    not_for_servers("PG_VERSION: a FIFO", |data, _| into_fifo(data, "PG_VERSION")),
    not_for_servers("postgresql.conf: a FIFO", |data, _| into_fifo(data, "postgresql.conf")),
    not_for_servers("postgresql.conf: a link to elsewhere", |data, trap| {
        into_link(data, "postgresql.conf", &trap.victim());
    }),
    not_for_servers("postgresql.auto.conf: a FIFO", |data, _| {
        into_fifo(data, "postgresql.auto.conf");
    }),
    not_for_servers("postgresql.auto.conf: a link to elsewhere", |data, trap| {
        into_link(data, "postgresql.auto.conf", &trap.victim());
    }),
    not_for_servers("pg_control: a FIFO", |data, _| into_fifo(data, "global/pg_control")),
    change("a table space: the whole system", |data, _| {
        must(symlink("/", data.join("pg_tblspc/99999")), data);
    }),
    not_for_servers("a relation: a link to elsewhere", |data, trap| {
        into_link(data, "global/1262", &trap.victim());
    }),
];

/// What a program did.
#[derive(Debug)]
pub struct Seen {
    /// Its exit status; 137 when it had to be stopped.
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
        code: status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&stdout).into_owned(),
        err: String::from_utf8_lossy(&stderr).into_owned(),
        calls: String::from_utf8_lossy(&text).lines().map(str::to_owned).collect(),
    })
}

impl Seen {
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
