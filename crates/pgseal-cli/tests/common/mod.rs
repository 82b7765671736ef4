//! A data directory whose files are sealed with pgseal-core directly, without a server.
#![allow(dead_code, clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use pgseal_core::random::LibraryRandom;
use pgseal_core::storage::mem::MemStorage;
use pgseal_core::{FileKind, Form, Generation, KeySet, PlainOff, Scratch, SealedFile, Suite};
use pgseal_keys::{Keyring, Provider, keyring_path};
use tempfile::TempDir;

/// The relation of the fixture, three pages.
pub const RELATION: &str = "base/5/16384";
/// The WAL segment of the fixture.
pub const WAL: &str = "pg_wal/000000010000000000000001";
/// The statistics of the fixture, 20000 bytes.
pub const STATISTICS: &str = "pg_stat/pgstat.stat";

/// A private directory with a key and a sealed data directory.
pub struct Fixture {
    temp: TempDir,
}

impl Fixture {
    /// A sealed data directory with one file of each layout, and the usual plain files.
    pub fn sealed() -> Fixture {
        let fixture = Fixture::plain();
        let key = fixture.key_file();
        fixture.ok(&["key", "new", "-o", key.to_str().unwrap()]);
        let uri = format!("file:{}", key.display());
        let data = fixture.data();
        let dir = data.to_str().unwrap();
        fixture.ok(&["helper", "new-keyring", "--dir", dir, "--provider", &uri]);
        fixture.seal(RELATION, FileKind::Relation, &vec![0x41; 3 * 8192]);
        fixture.seal(WAL, FileKind::Wal, &vec![0x42; 4 * 8192]);
        fixture.seal(STATISTICS, FileKind::Stream, &vec![0x43; 20000]);
        fixture
    }

    /// The same without a sealed file.
    pub fn plain() -> Fixture {
        let fixture = Fixture { temp: tempfile::tempdir().unwrap() };
        for dir in ["base/5", "global", "pg_wal/archive_status", "pg_stat", "pg_tblspc"] {
            fs::create_dir_all(fixture.data().join(dir)).unwrap();
        }
        fixture.write("PG_VERSION", b"15\n");
        fixture.write("postgresql.conf", b"port = 5432\n");
        fixture.write("global/pg_control", &[7; 8192]);
        fixture
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    pub fn data(&self) -> PathBuf {
        self.path("data")
    }

    pub fn file(&self, rel: &str) -> PathBuf {
        self.data().join(rel)
    }

    pub fn key_file(&self) -> PathBuf {
        self.path("key")
    }

    pub fn write(&self, rel: &str, bytes: &[u8]) {
        fs::write(self.file(rel), bytes).unwrap();
    }

    pub fn keys(&self) -> KeySet {
        let keyring = Keyring::load(&keyring_path(&self.data())).unwrap();
        let provider = Provider::parse(keyring.provider_uri()).unwrap();
        keyring.unlock(&provider.kek(None).unwrap()).unwrap()
    }

    /// Seals a file of the data directory.
    pub fn seal(&self, rel: &str, kind: FileKind, plain: &[u8]) {
        self.seal_with(rel, kind, plain, &self.keys(), None);
    }

    pub fn seal_with(
        &self,
        rel: &str,
        kind: FileKind,
        plain: &[u8],
        keys: &KeySet,
        generation: Option<Generation>,
    ) {
        let (suite, layout) = Suite::Aes256Gcm.for_kind(kind);
        let (_, place) = pgseal_pgdata::locate(rel.as_bytes());
        let form = Form { suite, layout, place };
        let (storage, random) = (MemStorage::default(), LibraryRandom::new());
        let generation = generation.unwrap_or(keys.active());
        let mut file = SealedFile::create(&storage, &form, keys, generation, &random).unwrap();
        file.write_at(&storage, &mut Scratch::new(), plain, PlainOff(0), &random).unwrap();
        self.write(rel, &storage.bytes());
    }

    /// Changes bytes of a file in place.
    pub fn damage(&self, rel: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = fs::read(self.file(rel)).unwrap();
        change(&mut bytes);
        self.write(rel, &bytes);
    }

    /// The program, in an environment without variables of pgseal and PostgreSQL.
    pub fn pgseal(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pgseal"));
        command.current_dir(self.temp.path()).env_remove("PGDATA").env_remove("LD_PRELOAD");
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PGSEAL_") {
                command.env_remove(name);
            }
        }
        command
    }

    pub fn run(&self, args: &[&str]) -> Answer {
        Answer::of(self.pgseal().args(args).output().unwrap())
    }

    /// Runs the program, which must succeed; returns its standard output.
    pub fn ok(&self, args: &[&str]) -> String {
        let answer = self.run(args);
        assert_eq!(answer.code, 0, "{args:?}: {answer:?}");
        answer.out
    }

    /// Runs a command on the data directory.
    pub fn on_data(&self, args: &[&str]) -> Answer {
        let data = self.data();
        let mut all = args.to_vec();
        all.push(data.to_str().unwrap());
        self.run(&all)
    }
}

/// The result of a run of the program.
#[derive(Debug)]
pub struct Answer {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Answer {
    pub fn of(output: Output) -> Answer {
        Answer {
            code: output.status.code().unwrap(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Checks the exit code, and that the message has the form `pgseal: what; what to do next`.
    #[track_caller]
    pub fn fails_with(&self, code: i32, words: &str) {
        assert_eq!(self.code, code, "{self:?}");
        let line = self.err.lines().find(|line| line.starts_with("pgseal: ")).unwrap_or_default();
        assert!(line.contains(words), "no \"{words}\" in {self:?}");
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Every file below a directory with its content, to show that nothing was touched.
pub fn snapshot(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for item in fs::read_dir(dir).unwrap() {
        let path = item.unwrap().path();
        if path.is_dir() {
            all.extend(snapshot(&path));
        } else {
            all.push((path.clone(), fs::read(&path).unwrap()));
        }
    }
    all.sort();
    all
}
