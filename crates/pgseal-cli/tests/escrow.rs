//! Escrow copies on the command line: making, checking, restoring and refusing them.

#![allow(clippy::unwrap_used, reason = "helpers of tests, outside of #[test] functions")]

mod common;

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use common::{Answer, Fixture, RELATION, WAL, snapshot};
use pgseal_core::FileKind;
use pgseal_testkit::Terminal;

const PASS: &str = "passphrase:command=echo correct horse";

fn backup(fixture: &Fixture, args: &[&str]) -> Answer {
    let data = fixture.data();
    let mut all = vec!["key", "backup", data.to_str().unwrap()];
    all.extend(args);
    fixture.run(&all)
}

fn restore(fixture: &Fixture, args: &[&str]) -> Answer {
    let data = fixture.data();
    let mut all = vec!["key", "restore", data.to_str().unwrap()];
    all.extend(args);
    fixture.run(&all)
}

fn check(fixture: &Fixture, args: &[&str]) -> Answer {
    fixture.on_data(&[&["key", "check"], args].concat())
}

fn lose_key_and_keyring(fixture: &Fixture) {
    fs::remove_file(fixture.key_file()).unwrap();
    fs::remove_file(fixture.file("pgseal/keyring")).unwrap();
    check(fixture, &[]).fails_in_report(16, "there is no keyring");
    fixture.ok(&["key", "new", "-o", "next"]);
}

trait InReport {
    fn fails_in_report(&self, code: i32, words: &str);
}

impl InReport for Answer {
    #[track_caller]
    fn fails_in_report(&self, code: i32, words: &str) {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.out.contains(words), "no \"{words}\" in {self:?}");
    }
}

#[test]
fn a_passphrase_copy_survives_the_loss_of_key_and_keyring() {
    let fixture = Fixture::sealed();
    let relation = fs::read(fixture.file(RELATION)).unwrap();
    let made = backup(&fixture, &["--lock", PASS, "-o", "escrow.txt"]);
    assert_eq!(made.code, 0, "{made:?}");
    assert!(made.err.contains("keep it away from the data"), "{made:?}");
    let mode = fs::metadata(fixture.path("escrow.txt")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    backup(&fixture, &["--lock", PASS, "-o", "escrow.txt"]).fails_with(5, "never overwritten");

    lose_key_and_keyring(&fixture);
    let wrong = ["escrow.txt", "-K", "file:next", "--unlock", "passphrase:command=echo wrong"];
    restore(&fixture, &wrong).fails_with(11, "the passphrase does not open this escrow copy");
    assert!(!fixture.file("pgseal/keyring").exists());
    let done = restore(&fixture, &["escrow.txt", "-K", "file:next", "--unlock", PASS]);
    assert_eq!(done.code, 0, "{done:?}");
    let verify = fixture.on_data(&["verify"]);
    assert_eq!(verify.code, 0, "{verify:?}");
    assert_eq!(fs::read(fixture.file(RELATION)).unwrap(), relation);
    let shown = fixture.on_data(&["key", "show", "--json"]).json();
    assert_eq!(shown["provider"], format!("file:{}", fixture.path("next").display()));
}

/// With `PGDATA` it is easy to name only the copy, which is then taken for the directory.
#[test]
fn a_copy_in_the_place_of_the_directory_is_noticed() {
    let fixture = Fixture::sealed();
    assert_eq!(backup(&fixture, &["--lock", PASS, "-o", "escrow.txt"]).code, 0);
    let mut command = fixture.pgseal();
    command.args(["key", "restore", "escrow.txt", "-K", "file:next", "--force"]);
    let answer = Answer::of(command.env("PGDATA", fixture.data()).output().unwrap());
    answer.fails_with(2, "this is an escrow copy, and no data directory");
}

#[test]
fn shares_are_files_of_their_own_and_enough_of_them_restore() {
    let fixture = Fixture::sealed();
    assert_eq!(backup(&fixture, &["--shares", "2-of-3", "-o", "share"]).code, 0);
    lose_key_and_keyring(&fixture);
    restore(&fixture, &["share-2", "-K", "file:next"]).fails_with(10, "1 of the 2 shares");
    restore(&fixture, &["share-2", "share-2", "-K", "file:next"]).fails_with(10, "1 of the 2");
    // All shares in one stream, as from a scanner.
    let mut text = fs::read(fixture.path("share-3")).unwrap();
    text.extend(b"\n\x0c\xff\n");
    text.extend(fs::read(fixture.path("share-1")).unwrap());
    let mut child = fixture
        .pgseal()
        .args(["key", "restore", "data", "-", "-K", "file:next"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&text).unwrap();
    let done = Answer::of(child.wait_with_output().unwrap());
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(fixture.on_data(&["verify"]).code, 0);
    for bad in ["1-of-3", "4-of-3", "3"] {
        assert_eq!(backup(&fixture, &["--shares", bad]).code, 2);
    }
}

#[test]
fn a_half_written_set_of_shares_is_removed() {
    let fixture = Fixture::sealed();
    fs::write(fixture.path("share-3"), "mine").unwrap();
    backup(&fixture, &["--shares", "2-of-3", "-o", "share"]).fails_with(5, "share-3");
    assert!(!fixture.path("share-1").exists() && !fixture.path("share-2").exists());
    assert_eq!(fs::read(fixture.path("share-3")).unwrap(), b"mine");
}

#[test]
fn a_key_of_its_own_opens_a_copy_and_the_same_key_is_refused() {
    let fixture = Fixture::sealed();
    let own = format!("file:{}", fixture.key_file().display());
    backup(&fixture, &["--lock", &own, "-o", "escrow"]).fails_with(2, "be lost with it");
    assert!(!fixture.path("escrow").exists());
    fixture.ok(&["key", "new", "-o", "safe"]);
    let command = "command:cat safe";
    assert_eq!(backup(&fixture, &["--lock", command, "-o", "escrow"]).code, 0);
    lose_key_and_keyring(&fixture);
    restore(&fixture, &["escrow", "-K", "file:next"]).fails_with(2, "--unlock");
    let other = ["escrow", "-K", "file:next", "--unlock", "file:next"];
    restore(&fixture, &other).fails_with(11, "the key does not open");
    let down = ["escrow", "-K", "file:next", "--unlock", "command:exit 7"];
    restore(&fixture, &down).fails_with(13, "exit status: 7");
    assert_eq!(restore(&fixture, &["escrow", "-K", "file:next", "--unlock", command]).code, 0);
    assert_eq!(fixture.on_data(&["verify"]).code, 0);
}

#[test]
fn a_mistyped_line_is_named() {
    let fixture = Fixture::sealed();
    let text = backup(&fixture, &["--lock", PASS]).out;
    let line = text.lines().find(|line| line.starts_with("  5.")).unwrap();
    // One character removed: a changed character would pass the check once in a million runs.
    let mut wrong = line.to_owned();
    wrong.remove(7);
    fs::write(fixture.path("typed"), text.replace(line, &wrong)).unwrap();
    lose_key_and_keyring(&fixture);
    let args = ["typed", "-K", "file:next", "--unlock", PASS];
    restore(&fixture, &args).fails_with(14, "typed: line 5 of the escrow copy is mistyped");
    check(&fixture, &["--escrow", "typed"]).fails_with(14, "line 5");
}

/// On a terminal, the program asks again for a mistyped line, and does not echo the passphrase.
#[test]
fn a_copy_is_typed_in() {
    let fixture = Fixture::sealed();
    let text = backup(&fixture, &["--lock", PASS]).out;
    lose_key_and_keyring(&fixture);
    let lines: Vec<&str> = text
        .lines()
        .filter_map(|line| line.trim_start().split_once(". "))
        .filter(|(number, _)| number.bytes().all(|byte| byte.is_ascii_digit()))
        .map(|(_, rest)| rest)
        .collect();
    let program = fixture.pgseal().get_program().to_str().unwrap().to_owned();
    let argv = [program.as_str(), "key", "restore", "data", "-K", "file:next"];
    let mut terminal = Terminal::start(&argv, |command| {
        command.current_dir(fixture.path(""));
    });
    for (index, line) in lines.iter().enumerate() {
        let of = if index == 0 { String::new() } else { format!(" of {}", lines.len()) };
        let prompt = format!("Line {}{of}:", index + 1);
        if index == 2 {
            terminal.answer(&prompt, &lines[0][1..]);
        }
        terminal.answer(&prompt, line);
    }
    terminal.answer_hidden("Passphrase for pgseal:", "correct horse");
    let (status, seen) = terminal.end();
    assert!(status.success(), "{seen}");
    assert!(seen.contains("Line 3 is mistyped"), "{seen}");
    assert!(!seen.contains("correct horse"), "{seen}");
    assert_eq!(fixture.on_data(&["verify"]).code, 0);
}

#[test]
fn another_keyring_is_kept_and_replaced_only_by_force() {
    let fixture = Fixture::sealed();
    assert_eq!(backup(&fixture, &["--lock", PASS, "-o", "escrow"]).code, 0);
    fixture.ok(&["key", "new", "-o", "next"]);
    let before = snapshot(&fixture.data());
    let args = ["escrow", "-K", "file:next", "--unlock", PASS];
    restore(&fixture, &args).fails_with(5, "there is a keyring already");
    assert_eq!(snapshot(&fixture.data()), before);
    let old = fs::read(fixture.file("pgseal/keyring")).unwrap();
    let done = restore(&fixture, &[&args[..], &["--force"]].concat());
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(fs::read(fixture.file("pgseal/keyring.replaced.1")).unwrap(), old);
    fs::remove_file(fixture.key_file()).unwrap();
    assert_eq!(fixture.on_data(&["verify"]).code, 0);

    // The copy of another cluster opens no file here.
    let other = Fixture::sealed();
    assert_eq!(backup(&other, &["--lock", PASS, "-o", "escrow"]).code, 0);
    fs::copy(other.path("escrow"), fixture.path("theirs")).unwrap();
    fs::remove_file(fixture.file("pgseal/keyring")).unwrap();
    let args = ["theirs", "-K", "file:next", "--unlock", PASS];
    restore(&fixture, &args).fails_with(15, "another cluster");
    assert!(!fixture.file("pgseal/keyring").exists());
}

/// A copy that is older than a generation: the files that it opens are opened, the others are
/// named, and the number of the lost generation is not used again.
#[test]
fn an_old_copy_says_what_it_lacks() {
    let fixture = Fixture::sealed();
    assert_eq!(backup(&fixture, &["--lock", PASS, "-o", "old"]).code, 0);
    assert_eq!(check(&fixture, &["--escrow", "old"]).code, 0);
    let key = format!("file:{}", fixture.key_file().display());
    let provider = pgseal_keys::Provider::parse(&key).unwrap();
    let path = fixture.file("pgseal/keyring");
    pgseal_keys::update(&path, |ring| ring.add_generation(&provider.kek(None).unwrap())).unwrap();
    let stale = check(&fixture, &["--escrow", "old"]);
    stale.fails_in_report(1, "it lacks generations 2");
    check(&fixture, &[]).fails_in_report(0, "which lacks generations 2");
    fixture.seal("base/5/20000", FileKind::Relation, &vec![0x44; 8192]);

    assert_eq!(backup(&fixture, &["--lock", PASS, "-o", "new"]).code, 0);
    let json = check(&fixture, &["--json", "--escrow", "old", "--escrow", "new"]);
    assert_eq!(json.code, 1, "{json:?}");
    let json = json.json();
    assert_eq!(json["escrow"][0]["lacking"], serde_json::json!([2]));
    assert_eq!(json["escrow"][1]["lacking"], serde_json::json!([]));
    assert_eq!(json["generations"][1]["files"], 1);

    lose_key_and_keyring(&fixture);
    let done = restore(&fixture, &["old", "-K", "file:next", "--unlock", PASS]);
    done.fails_in_report(1, "LOST: 1 file of generation 2");
    assert!(done.out.contains("Generation 3 was added"), "{done:?}");
    check(&fixture, &[]).fails_in_report(15, "base/5/20000: sealed with generation 2");
    fs::remove_file(fixture.file("pgseal/keyring")).unwrap();
    assert_eq!(restore(&fixture, &["new", "-K", "file:next", "--unlock", PASS]).code, 0);
    assert_eq!(fixture.on_data(&["verify"]).code, 0);
}

#[test]
fn check_names_what_keeps_a_cluster_closed() {
    let fixture = Fixture::sealed();
    let before = snapshot(&fixture.data());
    let sound = check(&fixture, &[]);
    sound.fails_in_report(0, "Opens: the headers of 3 files did.");
    assert!(sound.out.contains("3 files of generation 1"), "{sound:?}");
    assert_eq!(snapshot(&fixture.data()), before);

    fixture.ok(&["key", "new", "-o", "other"]);
    check(&fixture, &["-K", "file:other"]).fails_in_report(11, "wrong key");
    check(&fixture, &["-K", "command:exit 3"]).fails_in_report(13, "FAILED in");
    fs::set_permissions(fixture.key_file(), fs::Permissions::from_mode(0o644)).unwrap();
    check(&fixture, &[]).fails_in_report(12, "chmod 600");
    fs::set_permissions(fixture.key_file(), fs::Permissions::from_mode(0o600)).unwrap();

    fixture.damage(WAL, |bytes| bytes[100] ^= 1);
    check(&fixture, &[]).fails_in_report(1, WAL);
    let other = Fixture::sealed();
    fs::copy(other.file(WAL), fixture.file(WAL)).unwrap();
    check(&fixture, &[]).fails_in_report(15, "sealed with another keyring");
    fs::copy(other.file("pgseal/keyring"), fixture.file("pgseal/keyring")).unwrap();
    fs::copy(fixture.file(RELATION), fixture.file(WAL)).unwrap();
    check(&fixture, &[]).fails_in_report(15, "another cluster");
    let json = check(&fixture, &["--json"]);
    assert_eq!(json.json()["error"]["exit_code"], 15);
    fs::write(fixture.file("pgseal/keyring"), "damage").unwrap();
    check(&fixture, &[]).fails_in_report(14, "keyring is damaged");

    check(&Fixture::plain(), &[]).fails_with(4, "not sealed");
    fixture.run(&["key", "check", "nowhere"]).fails_with(3, "no such file");
}

#[test]
fn check_works_on_archives_and_single_files() {
    let fixture = Fixture::sealed();
    let archive = fixture.path("archive");
    fs::create_dir(&archive).unwrap();
    fs::copy(fixture.file(WAL), archive.join("000000010000000000000001")).unwrap();
    fixture.run(&["key", "check", "archive"]).fails_with(2, "--keyring");
    let keyring = fixture.file("pgseal/keyring");
    let keyring = keyring.to_str().unwrap();
    let found = fixture.run(&["key", "check", "archive", "--keyring", keyring]);
    found.fails_in_report(0, "the headers of 1 file did");
    let mut listed = fixture.pgseal();
    listed.env("PGSEAL_DATA", fixture.data()).args(["key", "check", "archive"]);
    assert_eq!(Answer::of(listed.output().unwrap()).code, 0);
    let file = fixture.file(RELATION);
    fixture.run(&["key", "check", file.to_str().unwrap()]).fails_in_report(0, "1 file did");
}

#[test]
fn a_keyring_alone_is_backed_up_and_restored() {
    let fixture = Fixture::sealed();
    fs::copy(fixture.file("pgseal/keyring"), fixture.path("ring")).unwrap();
    fixture.ok(&["key", "backup", "ring", "--lock", PASS, "-o", "escrow"]);
    fixture.ok(&["key", "new", "-o", "next"]);
    let restore = ["key", "restore", "again", "escrow", "-K", "file:next", "--unlock", PASS];
    fixture.ok(&restore);
    fs::remove_file(fixture.key_file()).unwrap();
    let again = fixture.path("again");
    let mut verify = fixture.pgseal();
    verify.args(["verify", "--keyring"]).arg(again).arg(Path::new("data"));
    assert_eq!(Answer::of(verify.output().unwrap()).code, 0);
    assert!(fixture.ok(&restore).contains("nothing was changed"));
    let other = ["key", "restore", "again", "escrow", "-K", "file:key", "--unlock", PASS];
    fixture.run(&other).fails_with(5, "there is a keyring already");
}

/// The record of the copy in the data directory contains no secret and no key.
#[test]
fn the_last_copy_is_remembered() {
    let fixture = Fixture::sealed();
    check(&fixture, &[]).fails_in_report(0, "none is known");
    assert_eq!(backup(&fixture, &["--shares", "2-of-2", "-o", "s"]).code, 0);
    check(&fixture, &[]).fails_in_report(0, "opened by any 2 of 2 shares");
    let record = fs::read_to_string(fixture.file("pgseal/escrow.json")).unwrap();
    let record: serde_json::Value = serde_json::from_str(&record).unwrap();
    assert_eq!(record["opened_by"], "any 2 of 2 shares");
    assert_eq!(record["generations"][0][0], 1);
    assert!(record.get("share").is_none());
    assert_eq!(fixture.on_data(&["verify"]).code, 0);
}
