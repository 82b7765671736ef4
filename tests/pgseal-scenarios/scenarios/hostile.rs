//! A data directory that an attacker can write. After each change of `pgseal_testkit::hostile`, the
//! tests run every command of `pgseal` and start the server, as the owner of the directory and as
//! root, under strace. The commands must not run, connect to or write anything that the directory
//! names, and must not hang. Each must end with an exit status of the table in docs/reference.md
//! and say why.
//!
//! The exit statuses are compared with the table in `spec/threat-model.md`, which the long test
//! writes: `UPDATE_EXPECT=1 ... --test hostile`.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use pgseal_scenarios::files::copy_tree;
use pgseal_scenarios::{Node, is_root, server_major};
use pgseal_testkit::hostile::{CHANGES, Change, FEW, Seen, Trap, watch};

/// Every command that takes a data directory or a file in one, with its name in the help and in the
/// table, and whether it may change the directory.
const COMMANDS: &[(&str, &str, bool)] = &[
    ("verify", "verify DATA", false),
    ("status", "status DATA", false),
    ("doctor", "doctor DATA --bindir BIN", false),
    ("env", "env -D DATA", false),
    ("inspect", "inspect DATA/global/1262", false),
    ("cat", "cat --force DATA/global/1262", false),
    ("run", "run -D DATA -- BIN/pg_controldata DATA", false),
    ("helper", "helper keys --keyring DATA/pgseal/keyring", false),
    ("key show", "key show DATA", false),
    ("key check", "key check DATA", false),
    ("key policy", "key policy DATA", false),
    ("key renew", "key renew DATA", true),
    ("key backup", "key backup DATA --lock file:HOME/key2", true),
    ("key rotate", "key rotate DATA -K file:HOME/key2", true),
    ("key forget", "key forget DATA --no-backup-has-them", true),
    ("key destroy", "key destroy DATA --yes-destroy KEYRING-ID", true),
    (
        "key restore",
        "key restore DATA HOME/escrow --unlock file:HOME/key2 -K file:HOME/key2 --force",
        true,
    ),
    ("key add-recipient", "key add-recipient escrow DATA -K file:HOME/key2", true),
    ("key remove-recipient", "key remove-recipient escrow DATA", true),
    ("config lock", "config lock DATA", true),
    ("config accept", "config accept DATA --yes", true),
    ("config status", "config status DATA", false),
    ("config unlock", "config unlock DATA", true),
    ("manifest check", "manifest check DATA", false),
    ("manifest write", "manifest write DATA", true),
    ("wal status", "wal status DATA", false),
    ("wal accept", "wal accept DATA", true),
    ("anchor status", "anchor status DATA --anchor file:HOME/no-anchors", false),
    ("anchor accept", "anchor accept DATA --anchor file:HOME/anchors", true),
    ("audit verify", "audit verify HOME/audit.log -D DATA", false),
    ("guard", "guard DATA --bindir BIN", true),
    ("encrypt", "encrypt -K file:HOME/key2 --bindir BIN DATA", true),
    ("decrypt", "decrypt --yes-write-plain --bindir BIN DATA", true),
    ("rekey", "rekey --bindir BIN DATA", true),
    ("reseal", "reseal DATA", true),
    ("initdb", "initdb -k --keyring-of DATA --bindir BIN HOME/new", false),
    ("tls init", "tls init DATA --bindir BIN", true),
    ("server", "run -D DATA -- sh HOME/server.sh", true),
];

/// PostgreSQL's programs with the library preloaded, as in a service, without `pgseal run`.
/// HOME/original is the same cluster, unchanged.
const PROGRAMS: &[(&str, &str, bool)] = &[
    ("controldata", "BIN/pg_controldata -D DATA", false),
    ("checksums", "BIN/pg_checksums --check -D DATA", false),
    ("waldump", "BIN/pg_waldump --limit=1 -p DATA/pg_wal SEGMENT", false),
    ("archivecleanup", "BIN/pg_archivecleanup -n DATA/pg_wal 000000010000000000000001", false),
    ("verifybackup", "BIN/pg_verifybackup --no-parse-wal DATA", false),
    ("resetwal", "BIN/pg_resetwal -n -D DATA", false),
    ("rewind", "BIN/pg_rewind -n --source-pgdata=DATA --target-pgdata=HOME/original", false),
    ("postgres -C", "BIN/postgres -C data_checksums -D DATA", false),
    ("single", "BIN/postgres --single -D DATA template1", true),
];

/// Commands that do not take an existing data directory.
const OTHERS: [&str; 11] = [
    "advise",
    "audit test",
    "completions",
    "help",
    "key new",
    "key new-keyring",
    "lab",
    "man",
    "provider",
    "tls check",
    "key",
];

/// The exit statuses of docs/reference.md.
const STATUSES: [i32; 18] = [0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15, 16, 17, 20, 21, 22, 40];

struct Field {
    node: Node,
    /// The unchanged data directory.
    original: PathBuf,
    environment: Vec<(String, String)>,
    /// A segment of its WAL.
    segment: String,
    /// The identity of its keyring.
    keyring_id: String,
}

impl Field {
    fn new() -> Field {
        let node = Node::sealed(&[]);
        let original = node.home().join("original");
        fs::rename(node.data(), &original).expect("a move");
        // Without template0 and postgres, there is less to copy.
        for database in ["base/4", "base/5"] {
            fs::remove_dir_all(original.join(database)).expect("every cluster has it");
        }
        let home = node.home().display().to_string();
        let path = |name: &str| format!("{home}/{name}");
        let made = node.pgseal(&["key", "new", "-o", &path("key2")]);
        assert_eq!(made.code, 0, "{}", made.text);
        let lock = format!("file:{}", path("key2"));
        let dir = original.display().to_string();
        let made = node.pgseal(&["key", "backup", &dir, "--lock", &lock, "-o", &path("escrow")]);
        assert_eq!(made.code, 0, "{}", made.text);
        let shown = node.pgseal(&["key", "show", "--json", &dir]).text;
        let id = shown.split("\"keyring_id\": \"").nth(1).and_then(|rest| rest.get(..32));
        let keyring_id = id.expect("the identity of the keyring").to_owned();
        fs::write(path("audit.log"), "").expect("it can be written");
        for stores in ["anchors", "no-anchors"] {
            let _made = node.make_dir(stores);
        }
        let bin = bindir();
        let script = format!(
            "{bin}/pg_ctl -D {0} -w -t 30 -l {1} start >/dev/null || {{ cat {1} >&2; exit 1; }}\n\
             {bin}/pg_ctl -D {0} -w -m fast stop >/dev/null\n",
            path("data"),
            path("server.log")
        );
        fs::write(path("server.sh"), script).expect("it can be written");
        for (dir, mode) in [(node.home(), 0o755), (Path::new(&path("server.sh")), 0o644)] {
            fs::set_permissions(dir, fs::Permissions::from_mode(mode)).expect("chmod");
        }
        let environment = vec![
            ("PGSEAL_CLUSTERS_DIR".to_owned(), path("clusters.d")),
            // The system's log of the machine is no part of the test.
            ("PGSEAL_AUDIT".to_owned(), "off".to_owned()),
        ];
        let listing = fs::read_dir(original.join("pg_wal")).expect("every cluster has it");
        let names = listing.map(|item| item.expect("a listing").file_name().into_string());
        // The oldest segment contains records; later ones may be preallocated.
        let segment = names.flatten().filter(|name| name.len() == 24).min().expect("a segment");
        Field { node, original, environment, segment, keyring_id }
    }

    /// A new copy of the data directory, with the change in it.
    fn data(&self, change: &Change, trap: &Trap) -> PathBuf {
        let data = self.node.home().join("data");
        // Removing the directory loses nothing, since it is a copy.
        let _ = fs::remove_dir_all(&data);
        copy_tree(&self.original, &data);
        change.make(&data, trap);
        data
    }

    fn run(&self, line: &str, as_root: bool, is_program: bool) -> Seen {
        let home = self.node.home().display().to_string();
        let _ = fs::remove_dir_all(self.node.home().join("new"));
        let _ = fs::remove_file(self.node.home().join("server.log"));
        let word = |word: &str| {
            word.replace("DATA", &format!("{home}/data"))
                .replace("HOME", &home)
                .replace("BIN", &bindir())
                .replace("SEGMENT", &self.segment)
                .replace("KEYRING-ID", &self.keyring_id)
        };
        let mut args: Vec<String> = line.split(' ').map(word).collect();
        let user = (is_root() && !as_root).then_some("postgres");
        let mut program = self.node.pgseal_program();
        if is_program {
            let library = pgseal_scenarios::programs().library.expect("the library is built");
            let set = [
                format!("LD_PRELOAD={}", library.display()),
                format!("PGSEAL_HELPER={}", program.display()),
            ];
            args.splice(0..0, set);
            program = PathBuf::from("/usr/bin/env");
        }
        watch(&program, &args, &self.environment, user, 90, Path::new("/"))
            .expect("strace and pgseal run; scripts/setup.sh test installs strace")
    }
}

fn bindir() -> String {
    pgseal_testkit::bindir().expect("PostgreSQL is installed").display().to_string()
}

/// Runs a command on the changed directory; returns its exit status.
fn try_command(
    field: &Field,
    change: &Change,
    command: (&str, &str),
    trap: &Trap,
    root: bool,
) -> i32 {
    let (name, line) = command;
    let is_postgres = is_program(name);
    let seen = field.run(line, root, is_postgres);
    let what = format!("{}: {name}{}", change.name, if root { ", as root" } else { "" });
    let data = field.node.home().join("data");
    let said = format!("exit status {}\n{}{}", seen.code, seen.out, seen.err);
    assert!(![137, -1].contains(&seen.code), "{what}: it hangs\n{said}");
    assert_eq!(trap.sprung(), None, "{what}\n{said}");
    assert_eq!(seen.misdeeds(&data, trap), Vec::<String>::new(), "{what}\n{said}");
    assert!(!said.contains("panicked"), "{what}\n{said}");
    if is_root() {
        assert!(seen.calls.iter().any(|call| call.contains("execve(")), "{what}: not traced");
    }
    // If PostgreSQL cannot read its WAL, it panics and ends with SIGABRT.
    let panics = name == "single" && seen.code == 134 && seen.err.contains("PANIC:");
    assert!(panics || STATUSES.contains(&seen.code), "{what}\n{said}");
    // An error of pgseal is one line, and a report goes to standard output. PostgreSQL's programs
    // have other messages.
    let lines = seen.err.lines().filter(|line| line.starts_with("pgseal: ")).count();
    let has_own_words = is_postgres || ["server", "run", "initdb"].contains(&name);
    if seen.code >= 2 && !has_own_words && seen.out.is_empty() {
        assert_eq!(lines, 1, "{what}\n{said}");
    }
    if seen.code != 0 {
        let is_said = lines > 0 || has_own_words && !seen.err.is_empty();
        assert!(is_said || !seen.out.is_empty(), "{what}: no word\n{said}");
    }
    if env::var_os(ONLY).is_some() {
        println!("{what}: {said}");
        for call in seen.opened(trap) {
            println!("OPENED {what}: {call}");
        }
    }
    seen.code
}

/// Shows what each command says, and compares no table: `PGSEAL_HOSTILE="PG_VERSION|no journal"
/// ...` tries the changes with one of these words in their names.
const ONLY: &str = "PGSEAL_HOSTILE";

fn is_program(name: &str) -> bool {
    PROGRAMS.iter().any(|(known, _, _)| *known == name)
}

fn users() -> &'static [bool] {
    if is_root() { &[false, true] } else { &[false] }
}

/// The cell of the table for a command and a change.
fn cell(field: &Field, change: &Change, command: (&str, &str, bool), trap: &Trap) -> String {
    let (name, line, may_change) = command;
    // With this change, PostgreSQL's own programs wait for ever, or write elsewhere.
    let is_its_own = name == "server"
        || is_program(name)
        || name == "run" && change.name.starts_with("pg_control");
    if is_its_own && change.stops_server {
        return "-".to_owned();
    }
    let mut codes = Vec::new();
    for root in users() {
        // PostgreSQL's programs refuse to run as root.
        if *root && ["server", "initdb", "resetwal", "rewind", "single"].contains(&name) {
            continue;
        }
        let code = try_command(field, change, (name, line), trap, *root);
        codes.push(code);
        let converts = ["encrypt", "decrypt", "rekey", "server", "single"].contains(&name);
        if may_change && (code < 2 || converts) {
            field.data(change, trap);
        }
    }
    // The exit status of doctor also depends on the machine.
    let shown = |code: &i32| match name {
        "doctor" if (0..=2).contains(code) => "r".to_owned(),
        _ => code.to_string(),
    };
    let all: BTreeSet<String> = codes.iter().map(shown).collect();
    match all.len() {
        1 => all.into_iter().collect(),
        _ => codes.iter().map(shown).collect::<Vec<_>>().join("/"),
    }
}

const NOTHING: Change = Change::nothing();

impl Drop for Field {
    /// Dropping the node reads the directory, which may contain a FIFO.
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.node.home().join("data"));
    }
}

/// The row of one change in each of the tables.
fn row(field: &Field, number: usize, change: &Change) -> [String; 2] {
    let trap = field.node.home().join(format!("trap{number}"));
    let trap = Trap::set(&trap).expect("a trap");
    TABLES.map(|commands| {
        field.data(change, &trap);
        let cells: Vec<String> =
            commands.iter().map(|command| cell(field, change, *command, &trap)).collect();
        format!("| {} | {} |\n", change.name, cells.join(" | "))
    })
}

type Commands = &'static [(&'static str, &'static str, bool)];

/// pgseal's own commands, and PostgreSQL's programs.
const TABLES: [Commands; 2] = [COMMANDS, PROGRAMS];

/// The rows of all changes. Several clusters work in parallel, because the commands mostly wait.
fn rows(changes: &[&Change]) -> [String; 2] {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let work = || {
        let field = Field::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(change) = changes.get(number) else { break };
            // If one change fails, the others are still tried.
            let row = catch_unwind(AssertUnwindSafe(|| row(&field, number, change)));
            let failed = || format!("| {} | FAILED |\n", change.name);
            let row = row.unwrap_or_else(|_| [failed(), failed()]);
            print!("{}", row.concat());
            done.lock().unwrap_or_else(PoisonError::into_inner).insert(number, row);
        }
    };
    thread::scope(|scope| {
        for _ in 0..changes.len().min(6) {
            scope.spawn(work);
        }
    });
    let done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    [0, 1].map(|table| done.values().map(|rows: &[String; 2]| rows[table].as_str()).collect())
}

/// Past findings, with the commands that were vulnerable. The long test tries everything.
#[test]
fn nothing_that_the_directory_names_is_run() {
    let field = Field::new();
    let some = [
        (FEW[0], &["verify", "key check", "helper", "server"][..], "12"),
        (FEW[1], &["verify"], "12"),
        (FEW[2], &["doctor"], "r"),
        (FEW[3], &["decrypt"], "22"),
    ];
    for (number, (change, commands, wanted)) in some.into_iter().enumerate() {
        let change = CHANGES.iter().find(|known| known.name == change).expect("a change");
        let trap = Trap::set(&field.node.home().join(format!("trap{number}"))).expect("a trap");
        field.data(change, &trap);
        for command in COMMANDS.iter().filter(|(name, _, _)| commands.contains(name)) {
            // The exit status of pg_ctl is its own.
            let wanted = if command.0 == "server" { "1" } else { wanted };
            let code = cell(&field, change, *command, &trap);
            assert_eq!(code, wanted, "{}: {}", change.name, command.0);
        }
    }
}

const BEGIN: &str =
    "<!-- hostile table: begin (written by tests/pgseal-scenarios/scenarios/hostile.rs) -->";
const END: &str = "<!-- hostile table: end -->";

#[test]
#[ignore = "long: make test-scenarios"]
fn every_command_on_every_hostile_directory() {
    let only = env::var(ONLY).ok();
    let is_wanted = |change: &&Change| {
        only.as_ref().is_none_or(|only| only.split('|').any(|word| change.name.contains(word)))
    };
    let all: Vec<&Change> = [&NOTHING].into_iter().chain(CHANGES).filter(is_wanted).collect();
    let mut made = String::from("\n\n");
    for (commands, rows) in TABLES.into_iter().zip(rows(&all)) {
        assert!(!rows.contains("FAILED"), "see above:\n{rows}");
        let names: Vec<&str> = commands.iter().map(|(name, _, _)| *name).collect();
        let lines = "---|".repeat(names.len());
        made += &format!("| change | {} |\n|---|{lines}\n{rows}\n", names.join(" | "));
    }

    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/threat-model.md");
    let text = fs::read_to_string(&path).expect("spec/threat-model.md is there");
    let start = text.find(BEGIN).expect("the mark before the table") + BEGIN.len();
    let end = text.find(END).expect("the mark behind the table");
    // The table contains root's exit statuses, and PostgreSQL's messages on one major version.
    if !is_root() || server_major() != "15" || only.is_some() {
        return;
    }
    if env::var("UPDATE_EXPECT").is_ok_and(|value| value == "1") {
        let new = format!("{}{made}{}", &text[..start], &text[end..]);
        fs::write(&path, new).expect("spec/threat-model.md can be written");
        return;
    }
    let differ = |(old, new): &(&str, &str)| old != new;
    let pairs = text[start..end].lines().zip(made.lines()).filter(differ);
    let differences: Vec<String> = pairs.map(|(old, new)| format!("- {old}\n+ {new}")).collect();
    assert!(
        differences.is_empty() && text[start..end].lines().count() == made.lines().count(),
        "spec/threat-model.md differs; UPDATE_EXPECT=1 writes it anew:\n{}",
        differences.join("\n")
    );
}

/// Every command in the help is tried here, or is listed as one that takes no data directory.
#[test]
fn every_command_is_here() {
    let program = pgseal_scenarios::programs().pgseal;
    let of = |args: &[&str]| {
        let help = Command::new(&program).args(args).arg("-h").output().expect("pgseal runs");
        let help = String::from_utf8_lossy(&help.stdout).into_owned();
        let list = help.split("Commands:\n").nth(1).unwrap_or_default().to_owned();
        let list = list.split("\n\n").next().unwrap_or_default().to_owned();
        let name = |line: &str| {
            let word = line.strip_prefix("  ")?.split(' ').next()?.to_owned();
            (!word.is_empty()).then(|| [args, &[&word]].concat().join(" "))
        };
        list.lines().filter_map(name).collect::<Vec<String>>()
    };
    let names: Vec<String> = [of(&[]), of(&["key"]), of(&["config"]), of(&["tls"])].concat();
    assert!(names.len() > 20, "{names:?}");
    let known = |name: &str| {
        OTHERS.contains(&name)
            || COMMANDS
                .iter()
                .any(|(known, _, _)| *known == name || known.starts_with(&format!("{name} ")))
    };
    for name in names {
        assert!(known(&name), "pgseal {name} is not tried on hostile directories");
    }
}

/// A server does not replace missing sealed files by plain ones, and does not serve another
/// cluster.
#[test]
fn a_server_serves_its_own_cluster_and_no_other() {
    let mut node = Node::sealed(&[]);
    let other = Node::sealed(&[]);
    let plain = Node::plain(&[]);
    let id = |node: &Node| {
        let shown = node.pgseal(&["key", "show", &node.data().display().to_string()]).text;
        let line = shown.lines().find_map(|line| line.strip_prefix("Identity"));
        line.expect("an identity").trim().to_owned()
    };
    let (own, others) = (id(&node), id(&other));
    let refused = |node: &mut Node, words: &str| {
        let before = pgseal_scenarios::files::fingerprint(node.data());
        let log = node.try_start().expect_err("a start that must be refused");
        assert!(log.contains(words), "expected \"{words}\", got:\n{log}");
        let after = pgseal_scenarios::files::fingerprint(node.data());
        assert_eq!(pgseal_scenarios::files::changes(&before, &after), Vec::<String>::new());
    };
    // PGSEAL_KEYRING_ID names the cluster's own keyring, alone or in a list, as pgseal env prints
    // it.
    let dir = node.data().display().to_string();
    let printed = node.pgseal(&["env", "-D", &dir, "--format", "docker"]).text;
    assert!(printed.contains(&format!("PGSEAL_KEYRING_ID={own}\n")), "{printed}");
    for pinned in [own.clone(), format!("{others}:{own}")] {
        node.set_env("PGSEAL_KEYRING_ID", &pinned);
        node.start();
        node.stop();
    }
    node.set_env("PGSEAL_KEYRING_ID", &others);
    refused(&mut node, &format!("has keyring {own}, and PGSEAL_KEYRING_ID names {others}"));
    node.unset_env("PGSEAL_KEYRING_ID");
    node.start();
    node.stop();

    // The sealed cluster was replaced by a plain one.
    let sealed = node.home().join("sealed");
    fs::rename(node.data(), &sealed).expect("a move");
    copy_tree(plain.data(), node.data());
    node.configure(&format!(
        "port = {}\nunix_socket_directories = '{}'",
        node.port(),
        node.home().display()
    ));
    let uri = format!("file:{}", node.home().join("key").display());
    for (name, value) in [("PGSEAL_KEYRING_ID", own.as_str()), ("PGSEAL_PROVIDER", uri.as_str())] {
        node.set_env(name, value);
        refused(
            &mut node,
            &format!("neither a keyring nor a sealed relation map, and {name} asks"),
        );
        node.unset_env(name);
    }
    // Without these variables, a plain cluster under the library is served as a plain one.
    node.start();
    assert_eq!(node.sql("select 1"), "1");
    node.stop();

    // The keyring is there, and the relation map is not.
    fs::remove_dir_all(node.data()).expect("a copy");
    copy_tree(&sealed, node.data());
    fs::remove_file(node.file("global/pg_filenode.map")).expect("it is there");
    node.set_env("PGSEAL_KEYRING_ID", &own);
    refused(&mut node, "pg_filenode.map\" is not there");
}
