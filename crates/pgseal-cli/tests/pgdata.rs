//! The data directory of a command: from the command line, from `-D`, or from `PGDATA`.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Answer, Fixture};

/// The commands that work on a data directory, without it.
const COMMANDS: [&[&str]; 27] = [
    &["status"],
    &["verify"],
    &["doctor", "--quiet"],
    &["guard"],
    &["encrypt", "--check"],
    &["decrypt", "--check"],
    &["rekey", "--check"],
    &["key", "show"],
    &["key", "check"],
    &["key", "backup", "--shares", "2-of-3"],
    &["key", "forget"],
    &["key", "rotate", "-K", "file:key"],
    &["key", "renew"],
    &["key", "policy"],
    &["key", "add-recipient", "other", "-K", "file:key"],
    &["key", "remove-recipient", "other"],
    &["config", "status"],
    &["config", "lock"],
    &["config", "accept", "--yes", "--json"],
    &["config", "unlock"],
    &["manifest", "check"],
    &["manifest", "write"],
    &["wal", "status"],
    &["wal", "accept"],
    &["anchor", "status", "--anchor", "file:/srv/anchors"],
    &["anchor", "accept", "--anchor", "file:/srv/anchors"],
    &["tls", "init"],
];

fn with_pgdata(fixture: &Fixture, args: &[&str], pgdata: &str) -> Answer {
    Answer::of(fixture.pgseal().args(args).env("PGDATA", pgdata).output().unwrap())
}

#[test]
fn without_a_directory_the_message_names_both_ways() {
    let fixture = Fixture::sealed();
    for args in COMMANDS {
        for answer in [fixture.run(args), with_pgdata(&fixture, args, "")] {
            answer.fails_with(2, "which data directory? give ");
            assert!(answer.err.contains("-D DIR, or set PGDATA"), "{args:?}: {answer:?}");
        }
    }
}

/// The directory of each way does not exist, so the message shows which one the command took.
#[test]
fn the_command_line_comes_before_pgdata() {
    let fixture = Fixture::sealed();
    let absent = |name: &str| fixture.path(name).display().to_string();
    for args in COMMANDS {
        let named = |answer: Answer, name: &str| {
            assert!(answer.err.contains(name), "{args:?}: no {name} in {answer:?}");
            assert_eq!(answer.code, 3, "{args:?}: {answer:?}");
        };
        let (one, two) = (absent("one"), absent("two"));
        named(with_pgdata(&fixture, args, &two), "/two");
        let mut given = args.to_vec();
        given.push(&one);
        named(with_pgdata(&fixture, &given, &two), "/one");
        let mut option = args.to_vec();
        option.extend(["-D", &one]);
        named(with_pgdata(&fixture, &option, &two), "/one");
        given.extend(["-D", &two]);
        assert_eq!(fixture.run(&given).code, 2, "{args:?}");
    }
}

#[test]
fn commands_work_on_pgdata() {
    let fixture = Fixture::sealed();
    let data = fixture.data().display().to_string();
    for args in [&["status"][..], &["verify"], &["key", "show"], &["key", "check"]] {
        let answer = with_pgdata(&fixture, args, &data);
        assert_eq!(answer.code, 0, "{args:?}: {answer:?}");
        assert_eq!(answer.out, fixture.on_data(args).out, "{args:?}");
    }
    // A path below the current directory, as PostgreSQL's programs take it.
    assert_eq!(with_pgdata(&fixture, &["status"], "data").code, 0);
}

/// With -D, each argument of key restore is a copy.
#[test]
fn key_restore_takes_the_directory_in_each_way() {
    let fixture = Fixture::sealed();
    let data = fixture.data().display().to_string();
    let escrow = ["key", "backup", &data, "--lock", "file:lock", "-o", "escrow.txt"];
    fixture.ok(&["key", "new", "-o", "lock"]);
    fixture.ok(&escrow);
    let uri = format!("file:{}", fixture.key_file().display());
    let restore = |args: &[&str]| {
        std::fs::remove_file(fixture.file("pgseal/keyring")).unwrap();
        let all = [&["key", "restore", "-K", &uri, "--unlock", "file:lock"], args].concat();
        fixture.run(&all)
    };
    assert_eq!(restore(&[&data, "escrow.txt"]).code, 0);
    assert_eq!(restore(&["-D", &data, "escrow.txt"]).code, 0);
    fixture.ok(&["verify", &data]);
    let none = ["key", "restore", "-K", &uri];
    fixture.run(&none).fails_with(2, "which data directory? give PATH");
}
