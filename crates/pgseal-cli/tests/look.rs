//! `status`, `inspect`, `cat`, and the generated texts.

mod common;

use std::fs;
use std::io::Read;
use std::process::Stdio;

use common::{Answer, Fixture, RELATION, STATISTICS, WAL};

#[test]
fn status_needs_no_key_and_says_why_files_are_plain() {
    let fixture = Fixture::sealed();
    fs::remove_file(fixture.key_file()).unwrap();
    fixture.write("base/5/16999", &[1; 8192]);
    let answer = fixture.on_data(&["status"]);
    assert_eq!(answer.code, 0, "{answer:?}");
    for words in [
        "aes-256-gcm paged, generation 1",
        "aes-256-xts wal, generation 1",
        "keep passwords out of it",
        "PLAIN, and of a class that is sealed:\n  base/5/16999",
        "Not protected:",
    ] {
        assert!(answer.out.contains(words), "no \"{words}\" in {}", answer.out);
    }
    let json = fixture.on_data(&["status", "--json"]).json();
    assert_eq!(json["classes"]["relation"]["files"], 2);
    assert_eq!(json["classes"]["wal"]["sealed"], 1);
    assert_eq!(json["plain_where_sealed_is_due"][0]["file"], "base/5/16999");
    assert_eq!(json["server_pid"], serde_json::Value::Null);
}

#[test]
fn inspect_needs_no_key() {
    let fixture = Fixture::sealed();
    fs::remove_file(fixture.key_file()).unwrap();
    fixture.damage(RELATION, |bytes| bytes.resize(bytes.len() + 8192, 0));
    let inspect =
        |rel: &str| fixture.run(&["inspect", "--json", fixture.file(rel).to_str().unwrap()]);
    let json = inspect(RELATION).json();
    assert_eq!(json["kind"], "sealed");
    assert_eq!((&json["layout"], &json["plain_bytes"]), (&"paged".into(), &(4 * 8192).into()));
    assert_eq!(json["zero_ranges"], serde_json::json!([[3, 1]]));
    assert_eq!(inspect(STATISTICS).json()["plain_bytes"], 20000);
    assert_eq!(inspect(WAL).json()["authenticated_blocks"], false);
    let plain = inspect("postgresql.conf");
    assert_eq!((plain.code, &plain.json()["kind"]), (4, &"plain".into()));
    fixture.damage(RELATION, |bytes| bytes[10] = 99);
    let relation = fixture.file(RELATION);
    fixture.run(&["inspect", relation.to_str().unwrap()]).fails_with(1, "suite 99");
}

#[test]
fn cat_writes_the_plain_content() {
    let fixture = Fixture::sealed();
    let statistics = fixture.file(STATISTICS);
    let path = statistics.to_str().unwrap();
    assert_eq!(fixture.ok(&["cat", path]), "C".repeat(20000));
    assert_eq!(fixture.ok(&["cat", path, "--offset", "19990", "--length", "50"]), "C".repeat(10));
    assert_eq!(fixture.ok(&["cat", path, "--offset", "30000"]), "");
    let relation = fixture.file(RELATION);
    assert_eq!(fixture.ok(&["cat", relation.to_str().unwrap()]), "A".repeat(3 * 8192));

    fs::copy(&statistics, fixture.path("elsewhere")).unwrap();
    fixture.run(&["cat", "elsewhere"]).fails_with(2, "--keyring");
    assert_eq!(fixture.ok(&["cat", "elsewhere", "-D", "data", "--length", "3"]), "CCC");
    let keyring = "data/pgseal/keyring";
    assert_eq!(fixture.ok(&["cat", "elsewhere", "--keyring", keyring, "--length", "3"]), "CCC");
    let mut command = fixture.pgseal();
    command.args(["cat", "elsewhere"]).env("PGSEAL_DATA", fixture.data());
    assert_eq!(Answer::of(command.output().unwrap()).out.len(), 20000);
}

#[test]
fn cat_stops_in_front_of_damage() {
    let fixture = Fixture::sealed();
    fixture.damage(STATISTICS, |bytes| bytes[8192 + 8220 + 50] ^= 1);
    let statistics = fixture.file(STATISTICS);
    let answer = fixture.run(&["cat", statistics.to_str().unwrap()]);
    answer.fails_with(1, "block 1 does not authenticate");
    assert_eq!(answer.out.len(), 8192);
}

#[test]
fn cat_of_a_plain_file_is_that_file() {
    let fixture = Fixture::sealed();
    let conf = fixture.file("postgresql.conf");
    let answer = fixture.run(&["cat", conf.to_str().unwrap()]);
    assert_eq!((answer.code, answer.out.as_str()), (0, "port = 5432\n"));
    assert!(answer.err.contains("not sealed"));
}

/// A closed pipe is no error, and does not turn damage into success.
#[test]
fn a_closed_pipe_is_no_panic() {
    let fixture = Fixture::sealed();
    fixture.seal("base/5/30000", pgseal_core::FileKind::Relation, &vec![0x61; 400 * 8192]);
    fixture.damage(RELATION, |bytes| bytes[17_000] ^= 1);
    let big = fixture.file("base/5/30000");
    let data = fixture.data();
    for (args, code) in [
        (["cat", big.to_str().unwrap()], 0),
        (["status", data.to_str().unwrap()], 0),
        (["verify", data.to_str().unwrap()], 1),
    ] {
        let mut child = fixture
            .pgseal()
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let mut err = String::new();
        child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        assert_eq!((child.wait().unwrap().code(), err.as_str()), (Some(code), ""), "{args:?}");
    }
}

#[test]
fn completions_and_manual_pages() {
    let fixture = Fixture::plain();
    for shell in ["bash", "zsh", "fish"] {
        let script = fixture.ok(&["completions", shell]);
        assert!(script.contains("verify") && script.contains("pgseal"), "{shell}");
    }
    assert!(fixture.ok(&["man"]).contains(".TH pgseal 1"));
    fixture.ok(&["man", "--dir", "pages"]);
    for page in ["pgseal.1", "pgseal-verify.1", "pgseal-key-rotate.1"] {
        assert!(fixture.path("pages").join(page).is_file(), "{page}");
    }
    // The second one is the page of another program.
    for page in ["pgseal-helper.1", "pgseal-lab.1"] {
        assert!(!fixture.path("pages").join(page).exists(), "{page}");
    }
    assert!(!fixture.ok(&["--help"]).contains("helper"));
}

#[test]
fn topics_and_licences() {
    let fixture = Fixture::plain();
    assert!(fixture.ok(&["help"]).contains("\n  keys "));
    assert!(fixture.ok(&["help", "keys"]).starts_with("# "));
    assert!(fixture.ok(&["help", "key", "rotate"]).contains("Usage: pgseal key rotate"));
    let licences = fixture.ok(&["--licenses"]);
    for text in [
        "Apache-2.0 or MIT",
        "aws-lc-rs",
        "Code derived from the OpenSSL project",
        "no text of a licence",
    ] {
        assert_eq!(licences.contains(text), text != "no text of a licence", "{text}");
    }
}
