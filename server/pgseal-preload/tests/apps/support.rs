//! Runs the C programs of this directory twice, in a plain and in a sealed data directory, and
//! compares their output and the files on disk.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use pgseal_pgdata::{Policy, classify};
use tempfile::TempDir;

/// The marker that the programs write into their files (`app.h`).
pub const MARKER: &[u8] = b"PLAIN-MARKER-5d1c";
/// The first bytes of a sealed file (`spec/sealed-file.md`).
pub const MAGIC: &[u8] = b"\x89PGSEAL\n";
const KEY: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

/// One file of each layout of a cluster in GCM: paged, sectored, stream, wal.
pub const SEALED: [&str; 4] = [
    "base/1/16384",
    "base/1/pg_filenode.map",
    "pg_stat/pgstat.stat",
    "pg_wal/000000010000000000000001",
];
/// A file of a class that stays plain.
pub const PLAIN: &str = "postgresql.conf";

/// Two data directories, one plain and one sealed, otherwise identical.
pub struct Arena {
    pub tmp: TempDir,
}

/// The result of running a program.
pub struct Run {
    pub stdout: String,
    pub stderr: String,
    pub status: std::process::ExitStatus,
}

fn target_dir() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    // target/PROFILE/deps/NAME
    exe.parent().and_then(Path::parent).unwrap().to_path_buf()
}

/// The library as the test run built it.
pub fn library() -> PathBuf {
    let path = target_dir().join("deps/libpgseal.so");
    assert!(path.exists(), "{} is missing; run 'cargo build -p pgseal-preload'", path.display());
    path
}

/// The program `pgseal`: the one that `scripts/cargo-test.sh` names, else the one of this profile,
/// which is built if it does not exist.
pub fn helper() -> &'static Path {
    static HELPER: OnceLock<PathBuf> = OnceLock::new();
    HELPER.get_or_init(|| {
        if let Some(path) = std::env::var_os("PGSEAL_TEST_PROGRAM") {
            return path.into();
        }
        let path = target_dir().join("pgseal");
        if !path.exists() {
            let mut cargo = Command::new(env!("CARGO"));
            cargo.args(["build", "--quiet", "-p", "pgseal-cli"]);
            if path.parent().is_some_and(|dir| dir.ends_with("release")) {
                cargo.arg("--release");
            }
            assert!(cargo.status().unwrap().success(), "pgseal could not be built");
        }
        path
    })
}

/// The bytes of a new keyring.
pub fn new_keyring() -> Vec<u8> {
    let tmp = TempDir::new().unwrap();
    let mut command = Command::new(helper());
    command.args(["helper", "new-keyring", "--provider", "env:PGSEAL_KEY", "--dir"]);
    let made = command.arg(tmp.path()).env("PGSEAL_KEY", KEY).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    fs::read(tmp.path().join("pgseal/keyring")).unwrap()
}

fn shared_keyring() -> &'static [u8] {
    static KEYRING: OnceLock<Vec<u8>> = OnceLock::new();
    KEYRING.get_or_init(new_keyring)
}

/// Creates a data directory.
pub fn data_directory(dir: &Path, keyring: Option<&[u8]>) {
    let inside = ["pg_wal", "pg_stat", "pg_stat_tmp", "pg_tblspc", "pg_twophase", "pg_xact"];
    for sub in ["base/1", "global"].iter().chain(&inside) {
        fs::create_dir_all(dir.join(sub)).unwrap();
    }
    fs::write(dir.join("PG_VERSION"), "15\n").unwrap();
    if let Some(keyring) = keyring {
        fs::create_dir(dir.join("pgseal")).unwrap();
        let path = dir.join("pgseal/keyring");
        fs::write(&path, keyring).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }
}

impl Arena {
    pub fn new() -> Arena {
        let tmp = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        fs::create_dir(tmp.path().join("bin")).unwrap();
        data_directory(&tmp.path().join("plain"), None);
        data_directory(&tmp.path().join("sealed"), Some(shared_keyring()));
        Arena { tmp }
    }

    pub fn plain(&self) -> PathBuf {
        self.tmp.path().join("plain")
    }

    pub fn sealed(&self) -> PathBuf {
        self.tmp.path().join("sealed")
    }

    /// Compiles a program of this directory under another name, with more options for `cc`.
    pub fn compile(&self, app: &str, name: &str, options: &[&str]) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/apps").join(app);
        let program = self.tmp.path().join("bin").join(name);
        let mut cc = Command::new("cc");
        cc.args(["-O2", "-Wall", "-Wno-unused-result", "-o"]).arg(&program).args(options);
        let made = cc.arg(source.with_extension("c")).output().unwrap();
        assert!(made.status.success(), "{app}: {}", String::from_utf8_lossy(&made.stderr));
        program
    }

    /// Runs a program in the plain directory, without the library.
    pub fn run_plain(&self, program: &Path, args: &[&str]) -> Run {
        finish(Command::new(program).args(args).current_dir(self.plain()))
    }

    /// A command that runs in the sealed directory with the library, as a program that may see
    /// plain content.
    pub fn preloaded(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).current_dir(self.sealed()).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("PGSEAL_PROGRAMS", program.file_name().unwrap());
        command.env("PGSEAL_KEY", KEY).env("PGSEAL_PROVIDER", "env:PGSEAL_KEY");
        command.env("PGSEAL_HELPER", helper()).env("LD_PRELOAD", library());
        command
    }

    pub fn run_sealed(&self, program: &Path, args: &[&str]) -> Run {
        finish(&mut self.preloaded(program, args))
    }

    /// The same without the guard module, for a program with the name `postgres`: a server, whose
    /// processes get a page that does not authenticate as an invalid page.
    pub fn run_server(&self, program: &Path, args: &[&str]) -> Run {
        finish(self.preloaded(program, args).env("PGSEAL_GUARD", "off"))
    }

    /// Runs a program in the same environment as [`Arena::preloaded`], but unlisted: a bystander.
    pub fn run_bystander(&self, program: &Path, args: &[&str]) -> Run {
        finish(self.preloaded(program, args).env_remove("PGSEAL_PROGRAMS"))
    }

    /// The bytes of a file of the sealed directory as they lie on disk.
    pub fn raw(&self, path: &str) -> Vec<u8> {
        fs::read(self.sealed().join(path)).unwrap()
    }

    pub fn assert_sealed(&self, path: &str) {
        assert!(self.raw(path).starts_with(MAGIC), "{path} is not sealed");
        self.assert_no_plaintext();
    }

    /// Every file of a sealed class is empty or sealed, and shows no marker.
    pub fn assert_no_plaintext(&self) {
        let root = self.sealed();
        let mut dirs = vec![root.clone()];
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                let kind = fs::symlink_metadata(&path).unwrap();
                if kind.is_dir() {
                    dirs.push(path);
                } else if kind.is_file() {
                    let rel = path.strip_prefix(&root).unwrap().to_str().unwrap();
                    if let Policy::Seal { .. } = classify(rel.as_bytes()).policy() {
                        let bytes = fs::read(&path).unwrap();
                        assert!(bytes.is_empty() || bytes.starts_with(MAGIC), "{rel} is plain");
                        assert!(!contains(&bytes, MARKER), "plain text in {rel}");
                    }
                }
            }
        }
    }
}

/// Runs a command in a process group of its own.
pub fn finish(command: &mut Command) -> Run {
    let output = command.process_group(0).stdin(Stdio::null()).output().unwrap();
    Run {
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        status: output.status,
    }
}

pub fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

/// The two variants of function names that compilers use: plain, and large-file with fortification.
const SPELLINGS: [&[&str]; 2] = [&[], &["-D_FILE_OFFSET_BITS=64", "-D_FORTIFY_SOURCE=2"]];

/// Runs a program whose output must be the same with and without the library: on files of every
/// layout (sealed on disk), on a file of a plain class, and as a bystander (with exactly the bytes
/// of the plain directory's file).
pub fn same_everywhere(app: &str) {
    same_on(app, &SEALED);
}

/// As [`same_everywhere`], with the sealed files given.
pub fn same_on(app: &str, sealed: &[&str]) {
    for options in SPELLINGS {
        for path in sealed {
            let arena = Arena::new();
            let program = arena.compile(app, app, options);
            let expected = arena.run_plain(&program, &[path]);
            assert!(expected.status.success(), "{app} without the library: {}", expected.stdout);
            let slow = Arena::new();
            for (arena, accelerators) in [(&arena, "on"), (&slow, "off")] {
                let mut command = arena.preloaded(&program, &[path]);
                let seen = finish(command.env("PGSEAL_ACCELERATORS", accelerators));
                let context = format!("{app} {path}, accelerators {accelerators}");
                assert_eq!(seen.stdout, expected.stdout, "{context}: {}", seen.stderr);
                assert!(seen.status.success(), "{context}: {}", seen.stderr);
                arena.assert_sealed(path);
            }
        }
    }
    let arena = Arena::new();
    let program = arena.compile(app, app, SPELLINGS[1]);
    let expected = arena.run_plain(&program, &[PLAIN]);
    let seen = arena.run_sealed(&program, &[PLAIN]);
    assert_eq!(seen.stdout, expected.stdout, "{app} on a plain class: {}", seen.stderr);
    assert_eq!(arena.raw(PLAIN), fs::read(arena.plain().join(PLAIN)).unwrap(), "{app}");

    let expected = arena.run_plain(&program, &[SEALED[0]]);
    let seen = arena.run_bystander(&program, &[SEALED[0]]);
    assert_eq!(seen.stdout, expected.stdout, "{app} as a bystander: {}", seen.stderr);
    assert_eq!(arena.raw(SEALED[0]), fs::read(arena.plain().join(SEALED[0])).unwrap(), "{app}");
}

/// Runs a program of which some calls are refused on sealed files. Checks that its output there has
/// each line of `transcript`, and the log has `message`; and that on a plain class and as a
/// bystander the output is the same as without the library.
pub fn refused(app: &str, args: &[&str], transcript: &[&str], message: &str) {
    let arena = Arena::new();
    let program = arena.compile(app, app, &[]);
    let seen = arena.run_sealed(&program, args);
    let lines: Vec<&str> = seen.stdout.lines().collect();
    for wanted in transcript {
        assert!(lines.contains(wanted), "{app}: no \"{wanted}\" in {}", seen.stdout);
    }
    assert!(seen.stderr.contains(message), "{app}: no \"{message}\" in {}", seen.stderr);
    assert!(seen.status.success(), "{app}: {}", seen.stderr);
    arena.assert_sealed(args[0]);

    let expected = arena.run_plain(&program, &[PLAIN, "other.conf"]);
    let seen = arena.run_sealed(&program, &[PLAIN, "other.conf"]);
    assert_eq!(seen.stdout, expected.stdout, "{app} on a plain class: {}", seen.stderr);
    assert_eq!(arena.raw(PLAIN), fs::read(arena.plain().join(PLAIN)).unwrap(), "{app}");
}
