//! A server and a Barman, configured as `docs/backup.md` describes it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use pgseal_scenarios::Node;
use pgseal_scenarios::backup::{program_of_debian, shell, text};
use pgseal_testkit::bindir;

/// A server, and the home directory of a Barman in which the server is called `main`.
pub struct Barman {
    pub node: Node,
    pub program: PathBuf,
    pub config: PathBuf,
    /// Everything that Barman writes.
    pub home: PathBuf,
    /// The directory of the wrappers, with a copy of the server's keyring.
    pub sealed: PathBuf,
    /// What a recovered directory of a server with a locked configuration and an anchor needs.
    protected: Option<Protected>,
}

/// What a directory that Barman recovered needs before it is started, if the server's configuration
/// is locked.
#[derive(Clone, Copy, Debug)]
pub enum Protected {
    /// It has the record of the server: Barman's changes must be accepted.
    Accept,
    /// It is a base backup, which is not locked.
    Lock,
}

/// Backups with `pg_basebackup` and `pg_receivewal`.
pub const STREAMING: &str =
    "backup_method = postgres\nstreaming_archiver = on\nslot_name = barman\ncreate_slot = auto";

/// Backups that copy the sealed files.
pub const RSYNC: &str = "backup_method = local-rsync\nbackup_options = concurrent_backup\n\
                     archiver = on\nreuse_backup = link\nparallel_jobs = 2";

impl Barman {
    /// The configuration of `docs/backup.md`; `lines` for the server's section.
    pub fn new(lines: &str) -> Barman {
        let program = program_of_debian("barman");
        let node = Node::sealed(&[("max_wal_senders", "6"), ("wal_level", "replica")]);
        let home = node.make_dir("barman");
        let (locks, sealed) = (node.make_dir("barman-locks"), node.make_dir("barman-main"));
        let wrapper = Path::new(env!("CARGO_MANIFEST_DIR"));
        let wrapper = wrapper.join("../../packaging/barman/barman-wrapper.sh");
        for name in ["pg_basebackup", "pg_receivewal", "pg_verifybackup"] {
            fs::copy(&wrapper, sealed.join(name)).expect("the wrapper is there");
        }
        let copy = "cp -a \"$1/pgseal\" \"$2/\"";
        node.succeed(&mut shell(&node, copy, &[node.data(), &sealed]));
        let config = node.home().join("barman.conf");
        let user = node.succeed(&mut shell(&node, "id -un", &[]));
        let conninfo = node.conninfo();
        let text = format!(
            "[barman]\nbarman_user = {}\nbarman_home = {home}\nbarman_lock_directory = {}\n\
             log_file = {home}/barman.log\nlog_level = INFO\n\
             [main]\ndescription = main\nconninfo = {conninfo}\n\
             streaming_conninfo = {conninfo}\npath_prefix = {}\nimmediate_checkpoint = true\n\
             {lines}\n",
            user.trim(),
            locks.display(),
            sealed.display(),
            home = home.display(),
        );
        fs::write(&config, text).expect("it can be written");
        Barman { node, program, config, home, sealed, protected: None }
    }

    /// Locks the configuration of the server and gives it an anchor.
    pub fn protect(&mut self, recovered: Protected) {
        self.node.lock_configuration();
        self.node.use_anchor("anchors");
        // The copy of the keyring says so, too.
        let copy = "cp -a \"$1/pgseal/keyring\" \"$2/pgseal/\"";
        self.node.succeed(&mut shell(&self.node, copy, &[self.node.data(), &self.sealed]));
        self.protected = Some(recovered);
    }

    /// `barman ARGUMENTS`, without the library.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = shell(&self.node, "exec \"$@\"", &[&self.program]);
        let program = self.node.pgseal_program();
        let mut path = vec![
            bindir().expect("PostgreSQL is installed"),
            program.parent().expect("a directory").to_owned(),
        ];
        path.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
        command.env("PATH", env::join_paths(path).expect("paths"));
        command.arg("-c").arg(&self.config).args(arguments);
        command
    }

    /// `barman backup --wait` of a server that nobody writes to: Barman waits for the segment that
    /// the backup ended in, and somebody must end it.
    #[track_caller]
    pub fn back_up_while_idle(&self) {
        let mut backup = self.command(&["backup", "--wait", "main"]);
        let mut backup =
            backup.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it runs");
        let status = loop {
            match backup.try_wait().expect("a child of ours") {
                Some(status) => break status,
                None => drop(self.node.sql("select pg_switch_wal()")),
            }
            thread::sleep(Duration::from_millis(500));
        };
        let log = fs::read_to_string(self.home.join("barman.log")).unwrap_or_default();
        assert!(status.success(), "{log}");
    }

    #[track_caller]
    pub fn run(&self, arguments: &[&str]) -> String {
        let outcome = self.command(arguments).output().expect("it runs");
        let said = String::from_utf8_lossy(&[outcome.stdout, outcome.stderr].concat()).into_owned();
        let log = fs::read_to_string(self.home.join("barman.log")).unwrap_or_default();
        let end: Vec<&str> = log.lines().rev().take(60).collect();
        let end: Vec<&str> = end.into_iter().rev().collect();
        assert!(outcome.status.success(), "{arguments:?}\n{said}\n{}", end.join("\n"));
        said
    }

    /// Starts `pg_receivewal`, and brings the first segment into the archive.
    pub fn receive(&self) {
        self.run(&["cron"]);
        self.node.wait_until("select active from pg_replication_slots where slot_name = 'barman'");
        self.archive();
    }

    /// Brings all WAL so far into the archive.
    pub fn archive(&self) {
        let said =
            self.run(&["switch-wal", "--force", "--archive", "--archive-timeout=60", "main"]);
        assert!(!said.contains("no WAL file"), "{said}");
    }

    /// Ends `pg_receivewal`, and archives what it has received.
    pub fn stop_receiving(&self) {
        self.run(&["receive-wal", "--stop", "main"]);
        self.run(&["archive-wal", "main"]);
    }

    /// A time after everything so far and before everything later. Barman selects WAL by the times
    /// of the files, so earlier WAL must have arrived before this time.
    pub fn between(&self) -> String {
        self.archive();
        self.node.sql("select pg_sleep(0.5)");
        let time = self.node.sql("select clock_timestamp()");
        self.node.sql("select pg_sleep(0.5)");
        time
    }

    /// Archives into Barman's incoming directory, as its documentation describes it.
    pub fn archive_by_rsync(&self, node: &Node) {
        let incoming = self.home.join("main/incoming");
        node.configure(&format!(
            "archive_mode = on\narchive_command = 'rsync -a %p {}/%f'",
            incoming.display(),
        ));
    }

    /// The identifiers of the backups, oldest first.
    pub fn backups(&self) -> Vec<String> {
        let said = self.run(&["list-backup", "--minimal", "main"]);
        said.lines().rev().map(str::to_owned).collect()
    }

    /// A backup in Barman's home.
    pub fn backup_dir(&self, id: &str) -> PathBuf {
        self.home.join("main/base").join(id).join("data")
    }

    pub fn wals(&self) -> PathBuf {
        self.home.join("main/wals")
    }

    /// `barman recover` into a directory beside, and a server that is started there.
    pub fn recovered(&self, backup: &str, name: &str, arguments: &[&str]) -> Node {
        self.started(self.recovered_files(backup, name, arguments))
    }

    pub fn started(&self, mut copy: Node) -> Node {
        match self.protected {
            Some(Protected::Accept) => {
                copy.assert_refused("the configuration of this data directory is locked");
                copy.accept_configuration();
            }
            Some(Protected::Lock) => {
                copy.assert_refused("PGSEAL_CONFIG");
                copy.lock_configuration();
            }
            None => {}
        }
        if self.protected.is_some() {
            let name = copy.data().file_name().expect("a name").to_string_lossy().into_owned();
            copy.assert_refused("pgseal anchor accept");
            // The server has an anchor under the same keyring, so each copy gets its own store.
            copy.use_anchor(&format!("anchors-{name}"));
        }
        copy.start();
        copy.wait_until("select not pg_is_in_recovery()");
        if self.protected.is_some() {
            copy.assert_locked();
            copy.restart_with_manifest();
        }
        copy
    }

    /// The same, but the server fetches WAL segments from Barman one by one.
    pub fn recovered_by_get_wal(&self, backup: &str, name: &str, arguments: &[&str]) -> Node {
        let copy = self.recovered_files(backup, name, &[arguments, &["--get-wal"]].concat());
        // Barman puts sudo before the command, for another user than the server's.
        let path = copy.file("postgresql.auto.conf");
        let text = fs::read_to_string(&path).expect("it is there");
        let command = format!("{} -c {}", self.program.display(), self.config.display());
        let lines = text.lines().map(|line| match line.split_once("barman get-wal") {
            Some((before, rest)) if before.starts_with("restore_command") => {
                format!("restore_command = '{command} get-wal{rest}")
            }
            _ => line.to_owned(),
        });
        let lines: Vec<String> = lines.collect();
        assert!(lines.iter().any(|line| line.contains(&command)), "{text}");
        fs::write(&path, lines.join("\n")).expect("it can be written");
        self.started(copy)
    }

    pub fn recovered_files(&self, backup: &str, name: &str, arguments: &[&str]) -> Node {
        let dir = text(&self.node.home().join(name));
        self.run(&[&["recover"], arguments, &["main", backup, &dir]].concat());
        let copy = Node::at(&self.node, Path::new(&dir));
        copy.configure("archive_mode = off");
        copy
    }
}
