//! The first screen of `pgseal status`, what it remembers, and the table of many clusters.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use common::{Answer, Fixture, RELATION};
use serde_json::{Value, json};

/// The program with a directory to remember in, and with a stand-in of ssh that gives the command
/// to a shell, as sshd does.
fn pgseal(fixture: &Fixture) -> Command {
    let mut command = fixture.pgseal();
    command.env("PGSEAL_STATE_DIR", state(fixture));
    command
}

fn state(fixture: &Fixture) -> PathBuf {
    let dir = fixture.path("state");
    fs::create_dir_all(&dir).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

fn run(fixture: &Fixture, args: &[&str]) -> Answer {
    Answer::of(pgseal(fixture).args(args).output().unwrap())
}

fn protection(fixture: &Fixture) -> Value {
    run(fixture, &["status", "--json", "--brief", "-D", "data"]).json()["protection"].clone()
}

#[test]
fn the_first_screen_answers_each_question() {
    let fixture = Fixture::sealed();
    let before = run(&fixture, &["status", "--brief", "data"]);
    let dir = fixture.data().canonicalize().unwrap().display().to_string();
    for line in [
        "Sealed          yes: 3 files, none plain by mistake",
        "Key rotated     not known on this machine",
        &format!("Escrow copy     NONE: pgseal key backup {dir} -o FILE"),
        "Verified        not known on this machine",
        "Backup checked  not known on this machine",
    ] {
        assert!(before.out.lines().any(|found| found == line), "no \"{line}\" in {}", before.out);
    }
    assert!(before.out.lines().count() <= 24, "one screen: {}", before.out);

    // Each answer changes with what it is about.
    fixture.ok(&["key", "new", "-o", "lock"]);
    fixture.ok(&["key", "new", "-o", "next"]);
    let copy = ["key", "backup", "data", "--lock", "file:lock", "-o", "copy"];
    assert_eq!(run(&fixture, &copy).code, 0);
    assert_eq!(run(&fixture, &["key", "rotate", "data", "-K", "file:next"]).code, 0);
    assert_eq!(run(&fixture, &["verify", "data"]).code, 0);
    let mut copy = Command::new("cp");
    copy.args(["-a", "data", "backup"]).current_dir(fixture.path(""));
    assert!(copy.status().unwrap().success());
    fs::write(fixture.path("backup").join(RELATION), vec![7; 40_000]).unwrap();
    assert_eq!(run(&fixture, &["verify", "backup"]).code, 1);
    let after = protection(&fixture);
    assert_eq!(after["escrow"]["lacks"], json!([]));
    assert!(after["key_rotated"].as_str().unwrap().ends_with('Z'));
    assert_eq!(after["verified"]["sound"], true);
    assert_eq!(after["backup_checked"]["sound"], false);
    assert!(after["backup_checked"]["path"].as_str().unwrap().ends_with("/backup"));

    fixture.write("base/5/16999", &[1; 8192]);
    let partly = protection(&fixture);
    assert_eq!((&partly["sealed"], &partly["plain_files"]), (&json!("partly"), &json!(1)));
}

/// Nobody else may decide what was checked.
#[test]
fn nothing_is_remembered_where_others_can_write() {
    let fixture = Fixture::sealed();
    let memory = |mode: u32| {
        fs::set_permissions(state(&fixture), fs::Permissions::from_mode(mode)).unwrap();
        let mut command = fixture.pgseal();
        command.env("PGSEAL_STATE_DIR", fixture.path("state"));
        let output = command.args(["status", "--json", "--brief", "data"]).output().unwrap();
        Answer::of(output).json()["protection"].clone()
    };
    assert_eq!(run(&fixture, &["verify", "data"]).code, 0);
    assert_eq!(memory(0o755)["verified"]["sound"], true);
    for open in [0o775, 0o757, 0o777] {
        let open = memory(open);
        assert_eq!((&open["verified"], &open["remembers"]), (&json!(null), &json!(false)));
    }
    // And never in the data directory.
    assert!(!fixture.file("pgseal").join("state").exists());
    let plain = Answer::of(fixture.pgseal().args(["verify", "data"]).output().unwrap());
    assert_eq!(plain.code, 0);
}

fn with_ssh(fixture: &Fixture, args: &[&str]) -> Answer {
    let bin = fixture.path("bin");
    fs::create_dir_all(&bin).unwrap();
    let ssh = "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\n\
               case $2 in slow) exec sleep 600;; gone) echo 'ssh: no route' >&2; exit 255;; esac\n\
               cd \"$HOSTS\" && exec sh -c \"$3\"\n";
    fs::write(bin.join("ssh"), ssh).unwrap();
    fs::set_permissions(bin.join("ssh"), fs::Permissions::from_mode(0o755)).unwrap();
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_pgseal"));
    if !bin.join("pgseal").exists() {
        std::os::unix::fs::symlink(program, bin.join("pgseal")).unwrap();
    }
    let mut command = pgseal(fixture);
    command.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
    command.env("HOSTS", fixture.path("")).args(["status", "--hosts"]).args(args);
    Answer::of(command.output().unwrap())
}

#[test]
fn many_clusters_are_one_table() {
    let fixture = Fixture::sealed();
    let odd = fixture.path("it's a $(touch bad)");
    fs::rename(fixture.data(), &odd).unwrap();
    let odd = odd.display().to_string();
    let answer = with_ssh(&fixture, &[&odd, &format!("db1:{odd}")]);
    assert_eq!(answer.code, 0, "{answer:?}");
    let lines: Vec<&str> = answer.out.lines().collect();
    assert_eq!(lines.len(), 6, "{}", answer.out);
    assert!(lines.iter().all(|line| line.len() == lines[0].len()), "{}", answer.out);
    assert!(lines[1].starts_with("| Cluster ") && lines[0].starts_with("+--"), "{}", answer.out);
    for line in lines.get(3..5).unwrap() {
        assert!(line.contains("| stopped | yes    | aes-256-gcm |"), "{}", answer.out);
    }
    assert!(!fixture.path("bad").exists());
}

#[test]
fn a_host_that_does_not_answer_is_named_and_the_others_are_shown() {
    let fixture = Fixture::sealed();
    let data = fixture.data().display().to_string();
    let answer =
        with_ssh(&fixture, &["slow", "gone", "db1:/nowhere", &data, "--timeout", "2", "--json"]);
    assert_eq!(answer.code, 40, "{answer:?}");
    let rows = answer.json();
    let error = |at: usize| rows[at]["error"].as_str().unwrap().to_owned();
    assert!(error(0).contains("did not answer within 2 s"), "{rows}");
    assert!(error(1).contains("ssh: no route (exit status 255)"), "{rows}");
    assert!(error(2).contains("/nowhere: there is no such file"), "{rows}");
    assert_eq!(rows[3]["status"]["protection"]["sealed"], "yes");
    assert!(answer.err.contains("pgseal: gone: ssh: no route"), "{answer:?}");
    // An option of ssh is no host.
    with_ssh(&fixture, &["x", "--timeout", "2", "--hosts=-oProxyCommand=touch bad"])
        .fails_with(2, "is no host and no path");
    assert!(!fixture.path("bad").exists());
    // A cluster that is not sealed as a whole.
    fixture.write("base/5/16999", &[1; 8192]);
    assert_eq!(with_ssh(&fixture, &[&data]).code, 1);
}
