//! Debian's pgBackRest on the machine of the server. It copies the sealed files, so everything in
//! its repository is sealed. `docs/backup.md` has the configuration.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pgseal_scenarios::backup::{
    SUM, add_row, assert_is_plain, assert_shows_nothing, directory_with_keyring, ends_sound, fails,
    fill, program_of_debian, shell, text,
};
use pgseal_scenarios::files::flip_bit;
use pgseal_scenarios::{Ledger, Node, Outcome, not_applicable, server_major};
use pgseal_testkit::bindir;

/// A server with a repository beside it.
struct Stanza {
    node: Node,
    program: PathBuf,
    config: PathBuf,
    repository: PathBuf,
    /// The server has a locked configuration and an anchor.
    protected: bool,
}

impl Stanza {
    /// The configuration of `docs/backup.md`, and more lines for the section `[global]`.
    fn new(more: &str) -> Stanza {
        let program = program();
        let node = Node::sealed(&[("max_wal_senders", "4"), ("wal_level", "replica")]);
        let dir = |name: &str| text(&node.make_dir(name));
        let repository = node.make_dir("repository");
        let config = node.home().join("pgbackrest.conf");
        let (log, spool, lock) = (dir("log.d"), dir("spool"), dir("lock"));
        let port = fs::read_to_string(node.file("postgresql.conf")).expect("it is there");
        let port = port.lines().rev().find_map(|line| line.strip_prefix("port = "));
        let text = format!(
            "[global]\nrepo1-path={}\nrepo1-retention-full=9\nlog-path={log}\nspool-path={spool}\n\
             lock-path={lock}\nstart-fast=y\narchive-async=y\nprocess-max=2\ncompress-type=none\n\
             archive-header-check=n\nchecksum-page=n\n{more}\n\
             [main]\npg1-path={}\npg1-socket-path={}\npg1-port={}\npg1-user=postgres\n",
            repository.display(),
            node.data().display(),
            node.home().display(),
            port.expect("a port").trim_matches('\''),
        );
        fs::write(&config, text).expect("it can be written");
        node.configure(&format!(
            "archive_mode = on\n\
             archive_command = '{} --config={} --stanza=main archive-push %p'",
            program.display(),
            config.display()
        ));
        Stanza { node, program, config, repository, protected: false }
    }

    /// Locks the configuration of the server and gives it an anchor.
    fn protect(&mut self) {
        self.node.lock_configuration();
        self.node.use_anchor("anchors");
        self.protected = true;
    }

    /// `pgbackrest ARGUMENTS`, without the library.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = shell(&self.node, "exec \"$@\"", &[&self.program]);
        command.arg(format!("--config={}", self.config.display())).arg("--stanza=main");
        command.args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> String {
        self.node.succeed(&mut self.command(arguments))
    }

    /// Restores into a directory beside, and starts a server there.
    fn restored(&self, name: &str, arguments: &[&str]) -> Node {
        let dir = self.node.make_dir(name);
        let path = format!("--pg1-path={}", dir.display());
        self.run(&[&[path.as_str()], arguments, &["restore"]].concat());
        self.started(&dir)
    }

    fn started(&self, dir: &Path) -> Node {
        let mut copy = Node::at(&self.node, dir);
        copy.configure("archive_mode = off\nrecovery_target_action = promote");
        if self.protected {
            // pgBackRest has written recovery.signal and a restore_command; the copy is no newest
            // one. Each copy has an anchor of its own, because the server has one under the same
            // keyring.
            copy.assert_refused("the configuration of this data directory is locked");
            copy.accept_configuration();
            let name = dir.file_name().expect("a name").to_string_lossy().into_owned();
            let anchors = self.node.home().join(format!("anchors-{name}"));
            if !anchors.exists() {
                copy.assert_refused("pgseal anchor accept");
            }
            copy.use_anchor(&format!("anchors-{name}"));
        }
        copy.start();
        copy.wait_until("select not pg_is_in_recovery()");
        if self.protected {
            copy.assert_locked();
            copy.restart_with_manifest();
        }
        copy
    }
}

/// The pgBackRest from the same release as the PostgreSQL under test, or else Debian's.
fn program() -> PathBuf {
    let bindir = bindir().expect("PostgreSQL is installed");
    let beside = bindir.ancestors().nth(4).map(|usr| usr.join("bin/pgbackrest"));
    beside.filter(|path| path.is_file()).unwrap_or_else(|| program_of_debian("pgbackrest"))
}

/// Whether this pgBackRest supports the PostgreSQL under test.
fn knows_this_version(stanza: &Stanza, test: &str) -> bool {
    let output = stanza.command(&["stanza-create"]).output().expect("it runs");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    if !output.status.success() && said.contains("unexpected control version") {
        let major = server_major();
        not_applicable(test, &format!("Debian's pgBackRest knows no PostgreSQL {major}"));
        return false;
    }
    assert!(output.status.success(), "{said}");
    true
}

#[test]
#[ignore = "long: make test-scenarios"]
fn pgbackrest_full_differential_incremental_async_and_restores() {
    let mut stanza = Stanza::new("");
    stanza.protect();
    stanza.node.start();
    let name = "pgbackrest_full_differential_incremental_async_and_restores";
    if !knows_this_version(&stanza, name) {
        return;
    }
    fill(&stanza.node, 5000);
    let mut ledger = Ledger::create(&stanza.node, 2);
    stanza.run(&["check"]);
    ledger.start(&stanza.node);
    let count = || stanza.node.sql("select count(*) from ledger").parse::<u64>().expect("a number");
    let mut before = 0;
    for (kind, row) in [("full", 9001), ("diff", 9002), ("incr", 9003)] {
        before = count();
        stanza.run(&[&format!("--type={kind}"), "backup"]);
        add_row(&stanza.node, row);
    }
    stanza.node.sql("select pg_create_restore_point('here')");
    add_row(&stanza.node, 9004);
    ledger.join();
    let truth = stanza.node.sql(SUM);
    stanza.run(&["check"]);
    let info = stanza.run(&["info"]);
    for kind in ["full backup:", "diff backup:", "incr backup:"] {
        assert!(info.contains(kind), "{info}");
    }
    // Its verify insists on the header of WAL segments, whatever archive-header-check says.
    let said = fails(&mut stanza.command(&["verify"]));
    assert!(said.contains("unexpected WAL magic"), "{said}");
    assert_shows_nothing(&stanza.repository);

    let copy = stanza.restored("latest", &[]);
    assert_eq!(copy.sql(SUM), truth);
    ledger.check_copy(&copy, before);
    assert_eq!(copy.sql("select count(*) from ledger"), ledger.committed().to_string());
    ends_sound(copy);

    let copy =
        stanza.restored("named", &["--type=name", "--target=here", "--target-action=promote"]);
    let rows = copy.sql("select string_agg(id::text, ' ' order by id) from t where id > 9000");
    assert_eq!(rows, "9001 9002 9003");
    let relation = copy.relation("t");
    let dir = copy.data().to_owned();
    ends_sound(copy);

    // A delta restore replaces only the damaged files.
    flip_bit(&dir.join(&relation), 20_000);
    let path = format!("--pg1-path={}", dir.display());
    stanza.run(&[&path, "--delta", "restore"]);
    let copy = stanza.started(&dir);
    assert_eq!(copy.sql(SUM), truth);
    ends_sound(copy);
    stanza.node.restart_with_manifest();
    stanza.node.assert_locked();
    stanza.node.stop();
    assert_shows_nothing(&stanza.repository);
}

/// pgBackRest's own checks complain of sealed bytes, and do not change the backup.
#[test]
#[ignore = "long: make test-scenarios"]
fn pgbackrest_checks_that_need_plain_content_are_switched_off() {
    let mut stanza = Stanza::new("archive-timeout=30");
    stanza.node.start();
    let name = "pgbackrest_checks_that_need_plain_content_are_switched_off";
    if !knows_this_version(&stanza, name) {
        return;
    }
    fill(&stanza.node, 2000);
    // pgBackRest warns of every page. Release 2.55.1 then ends with a signal.
    let mut checks = stanza.command(&["--type=full", "--checksum-page"]);
    let outcome = checks.args(["--log-level-console=info", "backup"]).output().expect("it runs");
    let Outcome { code, text: said } = outcome.into();
    assert!(said.contains("invalid page checksum"), "{said}");
    assert!(code == 0 || code == -1, "{code} {said}");
    assert_shows_nothing(&stanza.repository);
    let config = fs::read_to_string(&stanza.config).expect("it is there");
    fs::write(
        &stanza.config,
        config.replace("archive-async=y\n", "").replace("archive-header-check=n\n", ""),
    )
    .expect("it is");
    let segment = stanza.node.sql("select pg_walfile_name(pg_current_wal_lsn())");
    let path = stanza.node.file("pg_wal").join(&segment);
    let said = fails(&mut stanza.command(&["archive-push", &text(&path)]));
    assert!(said.contains("WAL"), "{said}");
    stanza.node.stop();
}

/// With `PGSEAL_PROGRAMS=pgbackrest`, pgBackRest reads plain content. Its page checksums and its
/// compression work then, and only its own cipher protects the repository.
#[test]
#[ignore = "long: make test-scenarios"]
fn pgbackrest_with_plain_content_when_named() {
    for (cipher, shows) in
        [("", true), ("repo1-cipher-type=aes-256-cbc\nrepo1-cipher-pass=x", false)]
    {
        let mut stanza = Stanza::new(cipher);
        let config = fs::read_to_string(&stanza.config).expect("it is there");
        let config = config.replace("archive-header-check=n\nchecksum-page=n\n", "");
        // With archive-async, prefetched plain WAL would be moved into pg_wal without being sealed.
        let config = config.replace("archive-async=y\n", "");
        fs::write(&stanza.config, config.replace("compress-type=none\n", "")).expect("it is");
        stanza.node.set_env("PGSEAL_PROGRAMS", "pgbackrest");
        // Without this variable, the WAL that it copies to the repository would be sealed.
        stanza.node.set_env("PGSEAL_UNSEALED_COPY", "yes");
        // archive_command gets the variables from the server's environment.
        stanza.node.start();
        if !knows_this_version(&stanza, "pgbackrest_with_plain_content_when_named") {
            return;
        }
        fill(&stanza.node, 2000);
        let under = |arguments: &[&str]| {
            let mut command = stanza.node.command_at(&stanza.program);
            command.arg(format!("--config={}", stanza.config.display())).arg("--stanza=main");
            stanza.node.succeed(command.args(arguments))
        };
        let said = under(&["--type=full", "--log-level-console=info", "backup"]);
        assert!(!said.contains("invalid page checksum"), "{said}");
        add_row(&stanza.node, 9001);
        under(&["check"]);
        let truth = stanza.node.sql(SUM);
        if shows {
            // Compressed, so looked at through gzip.
            let plain = stanza.node.make_dir("looked-at");
            let script =
                "find \"$1\" -name '*.gz' | while read -r f; do gzip -dc \"$f\"; done >\"$2/all\"";
            stanza.node.succeed(&mut shell(&stanza.node, script, &[&stanza.repository, &plain]));
            assert_is_plain(&plain);
        } else {
            assert_shows_nothing(&stanza.repository);
        }
        // The target needs its keyring before the restore, so it is not empty. This requires
        // --delta, which in turn requires PG_VERSION.
        let dir = directory_with_keyring(&stanza.node, "restored", stanza.node.data());
        let script = "cp -a \"$1/PG_VERSION\" \"$2/\"";
        stanza.node.succeed(&mut shell(&stanza.node, script, &[stanza.node.data(), &dir]));
        let path = format!("--pg1-path={}", dir.display());
        under(&[&path, "--delta", "restore"]);
        assert_shows_nothing(&dir);
        let copy = stanza.started(&dir);
        assert_eq!(copy.sql(SUM), truth);
        ends_sound(copy);
        stanza.node.stop();
    }
}
