//! A cluster of postgresql-common, from plain to sealed and back, with the commands that pgseal
//! prints.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use pgseal_scenarios::backup::{program_of_debian, shell};
use pgseal_scenarios::{Node, Outcome, not_applicable};
use pgseal_testkit::{Cluster, bindir, canary};

const MARKER: &str = "canary-debian-Rw4k";

/// The plain cluster `MAJOR/main`, with its configuration below another root than
/// `/etc/postgresql`.
struct Debian {
    node: Node,
    major: String,
    key: String,
}

impl Debian {
    /// Makes the cluster, with one table; its server is stopped. `None` if the server under test is
    /// not one of Debian's packages.
    fn create(test: &str) -> Option<Debian> {
        if !bindir().expect("PostgreSQL is there").starts_with("/usr/lib/postgresql") {
            not_applicable(test, "postgresql-common knows Debian's servers only");
            return None;
        }
        let program = program_of_debian("pg_createcluster");
        let node = Node::create(Cluster::builder(), &[]);
        node.bring_programs();
        let key = format!("file:{}", node.new_key("key").display());
        let major = fs::read_to_string(node.file("PG_VERSION")).expect("it is there");
        let debian = Debian { node, major: major.trim().to_owned(), key };
        let [etc, sockets] = ["etc", "sockets"].map(|name| debian.node.make_dir(name));
        assert!(fs::read_dir(etc).expect("a directory").next().is_none());
        debian.types(&format!(
            "{} {} main -d {} -s {} -l {} -p {}",
            program.display(),
            debian.major,
            debian.data(),
            sockets.display(),
            debian.path("server.log").display(),
            debian.node.port()
        ));
        debian.serves(&format!("create table t as select '{MARKER}'::text as v"));
        Some(debian)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.node.home().join(name)
    }

    fn data(&self) -> String {
        self.node.data().display().to_string()
    }

    /// A line that the server's user types.
    fn tries(&self, line: &str) -> Outcome {
        let mut command = shell(&self.node, line, &[]);
        let pgseal = self.node.pgseal_program();
        let programs = pgseal.parent().unwrap_or(Path::new("/")).display().to_string();
        command.env("PG_CLUSTER_CONF_ROOT", self.path("etc")).env_remove("PGDATA");
        command.env("PATH", format!("{programs}:/usr/bin:/bin:/usr/sbin:/sbin"));
        Outcome::from(command.output().expect("a shell runs"))
    }

    #[track_caller]
    fn types(&self, line: &str) -> String {
        let outcome = self.tries(line);
        assert_eq!(outcome.code, 0, "{line}: {}", outcome.text);
        outcome.text
    }

    /// Starts the server, runs the statement, and stops the server.
    #[track_caller]
    fn serves(&self, statement: &str) -> String {
        self.types(&format!("pg_ctlcluster --skip-systemctl-redirect {} main start", self.major));
        let said = self.asks(statement);
        self.types(&format!("pg_ctlcluster --skip-systemctl-redirect {} main stop", self.major));
        said
    }

    #[track_caller]
    fn asks(&self, statement: &str) -> String {
        let (port, sockets) = (self.node.port(), self.path("sockets"));
        let sockets = sockets.display();
        self.types(&format!("psql -XAtq -h {sockets} -p {port} -d postgres -c \"{statement}\""))
    }
}

/// The lines that begin with four spaces: commands to type.
fn commands(text: &str) -> Vec<String> {
    text.lines().filter_map(|line| line.strip_prefix("    ")).map(str::to_owned).collect()
}

#[test]
fn encrypt_prints_commands_that_start_the_cluster() {
    let Some(debian) = Debian::create("encrypt_prints_commands_that_start_the_cluster") else {
        return;
    };
    let (data, major) = (debian.data(), &debian.major);
    assert!(!debian.node.file("postgresql.conf").exists(), "it is below etc");

    // A running server: the message names the command of this system, which stops it.
    debian.types(&format!("pg_ctlcluster --skip-systemctl-redirect {major} main start"));
    let refused = debian.tries(&format!("pgseal encrypt --check {data}"));
    assert_eq!(refused.code, 22, "{}", refused.text);
    let stop = format!("pg_ctlcluster {major} main stop");
    assert!(refused.text.contains(&format!("stop it first: {stop}")), "{}", refused.text);
    debian.types(&stop);

    debian.types(&format!("pgseal encrypt --check {data}"));
    let said = debian.types(&format!("pgseal encrypt -K {} {data}", debian.key));
    let commands = commands(&said);
    assert_eq!(
        commands,
        [
            format!("pgseal env -D {data} --format debian"),
            format!("pg_ctlcluster {major} main start"),
        ]
    );
    commands.iter().for_each(|command| {
        debian.types(command);
    });
    assert_eq!(debian.asks("select v from t").trim(), MARKER);
    debian.types(&stop);
    let hits = canary::scan(&[debian.node.data()], &[MARKER]).expect("the files can be read");
    assert!(hits.is_empty(), "{hits:?}");
    debian.types(&format!("pgseal verify {data}"));

    // The way back: decrypt names the file that holds the variables.
    let said = debian.types(&format!("pgseal decrypt --yes-write-plain {data}"));
    let environment = debian.path("etc").join(major).join("main/environment");
    assert!(said.contains(&format!("out of {}.", environment.display())), "{said}");
    debian.types(&format!("sed -i -E '/^(LD_PRELOAD|PGSEAL_)/d' {}", environment.display()));
    assert_eq!(debian.serves("select v from t").trim(), MARKER);
}

/// What would stop a conversion half-way is seen by the check, and by the run before its first
/// change.
#[test]
fn a_directory_or_configuration_that_cannot_be_written_is_seen_before() {
    let Some(debian) = Debian::create("a_directory_that_cannot_be_written") else { return };
    let data = debian.data();
    let mode = |path: &Path, mode: u32| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("the owner may");
    };
    let closed = debian.node.file("base/1");
    let conf = debian.path("etc").join(&debian.major).join("main");
    for (path, before, words) in [
        (
            closed.clone(),
            0o700,
            format!("{}: cannot be written: Permission denied", closed.display()),
        ),
        (conf.clone(), 0o755, "postgresql.conf: cannot write the configuration".to_owned()),
    ] {
        mode(&path, 0o500);
        if path == conf {
            mode(&conf.join("postgresql.conf"), 0o400);
        }
        for line in ["--check", &format!("-K {}", debian.key)] {
            let refused = debian.tries(&format!("pgseal encrypt {line} {data}"));
            assert_eq!(refused.code, 22, "{}", refused.text);
            assert!(refused.text.contains("STOP  writing: "), "{}", refused.text);
            assert!(refused.text.contains(&words), "no {words} in {}", refused.text);
            assert!(!debian.node.file("pgseal").exists());
        }
        mode(&path, before);
    }
    mode(&conf.join("postgresql.conf"), 0o644);
    debian.types(&format!("pgseal encrypt --check {data}"));
}
