//! What messages, help and completions say.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::process::Command;

use common::{Answer, Fixture};

#[test]
fn a_path_in_the_place_of_a_provider_is_asked_about() {
    let fixture = Fixture::sealed();
    let key = fixture.key_file().display().to_string();
    for command in [&["verify"][..], &["key", "check"], &["key", "rotate"], &["doctor"]] {
        let answer = fixture.on_data(&[command, &["-K", &key]].concat());
        assert!(
            (answer.err + &answer.out).contains(&format!("did you mean file:{key}?")),
            "{command:?}"
        );
    }
    fixture.run(&["initdb", "-K", &key, "new"]).fails_with(2, "did you mean file:/");
    fixture.run(&["initdb", "-K", "key", "new"]).fails_with(2, "did you mean file:key?");
}

/// A message names the kind of the file, and not the disk.
#[test]
fn what_is_no_regular_file_is_named() {
    let fixture = Fixture::sealed();
    let data = fixture.data();
    let verify = ["verify", data.to_str().unwrap(), "-K", &format!("file:{}", data.display())];
    fixture.run(&verify).fails_with(12, "it is a directory, not a regular file");
    let keyring = fixture.file("pgseal/keyring");
    fs::remove_file(&keyring).unwrap();
    assert!(Command::new("mkfifo").arg(&keyring).status().unwrap().success());
    fixture.on_data(&["key", "show"]).fails_with(14, "it is a named pipe, not a regular file");
}

/// At each width, a line of a paragraph ends where the next word does not fit.
#[test]
fn help_is_wrapped_once() {
    let fixture = Fixture::plain();
    for (args, words) in [
        (&["verify", "--help"][..], "Only gcm suites authenticate blocks."),
        (&["tls", "init", "--help"], "Makes a private CA beside the data directory"),
        (&["encrypt", "--help"], "What is encrypted here was plain"),
        (&["doctor", "-h"], "Run it as the server's user or as root"),
    ] {
        for width in [60_usize, 80, 95] {
            let mut command = fixture.pgseal();
            // clap asks the terminal, and without one these variables.
            let output = command.args(args).env("COLUMNS", width.to_string()).output().unwrap();
            let out = Answer::of(output).out;
            let lines: Vec<&str> = out.lines().collect();
            let start = lines.iter().position(|line| line.starts_with(words)).unwrap();
            let end = lines.iter().skip(start).position(|line| line.is_empty());
            let paragraph = lines.get(start..end.map_or(lines.len(), |end| start + end)).unwrap();
            for pair in paragraph.windows(2) {
                let next = pair[1].split(' ').next().unwrap_or_default();
                assert!(
                    pair[0].len() <= width && pair[0].len() + 1 + next.len() > width,
                    "{args:?} at {width}: {pair:?}"
                );
            }
        }
    }
}

/// The words that bash offers for the last one of these.
fn offered(fixture: &Fixture, words: &[&str]) -> Vec<String> {
    let script = fixture.path("completion");
    fs::write(&script, fixture.ok(&["completions", "bash"])).unwrap();
    let ask = "source \"$1\"; shift; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); \
               compopt() { [ \"$2\" != nospace ] || echo nospace; }; _pgseal_source pgseal \"${@: -1}\" \"${@: -2:1}\"; \
               printf '%s\\n' \"${COMPREPLY[@]}\"";
    let mut command = Command::new("bash");
    let output = command.args(["-c", ask, "bash"]).arg(&script).args(words).output().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn completions_know_suites_providers_and_directories() {
    let fixture = Fixture::plain();
    let suites = offered(&fixture, &["pgseal", "encrypt", "--suite", "aes-256"]);
    assert_eq!(suites, ["aes-256-gcm", "aes-256-xts", "aes-256-ctr"]);
    for command in ["encrypt", "verify", "initdb"] {
        let sources = offered(&fixture, &["pgseal", command, "-K", ""]);
        assert_eq!(sources, ["env:", "file:", "command:", "passphrase:"], "{command}");
    }
    // No space behind the colon, so that the path can follow.
    let one = offered(&fixture, &["pgseal", "verify", "-K", "fi"]);
    assert_eq!(one, ["nospace", "file:"]);
    // bash splits at the colon. What pgseal offers nothing for, bash completes with paths.
    let behind = offered(&fixture, &["pgseal", "verify", "-K", "file", ":", "/etc/pgs"]);
    assert_eq!(behind, [""]);
    let script = fixture.ok(&["completions", "bash"]);
    assert!(
        script.contains("complete -F _pgseal_source -o nosort -o bashdefault -o default pgseal")
    );
    fs::create_dir(fixture.path("somewhere")).unwrap();
    let start = format!("{}/some", fixture.path("").display());
    let dirs = offered(&fixture, &["pgseal", "status", "-D", &start]);
    assert_eq!(dirs.len(), 1, "{dirs:?}");
    let zsh = fixture.ok(&["completions", "zsh"]);
    assert!(zsh.contains("DIR:_files -/"), "directories in zsh");
    let fish = fixture.ok(&["completions", "fish"]);
    assert!(fish.contains("__fish_complete_directories"), "directories in fish");
}
