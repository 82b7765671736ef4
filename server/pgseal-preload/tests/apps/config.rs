//! A locked configuration, as the server's program reads and writes it, step by step.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::support::{Arena, Run, finish, helper};

struct Locked {
    arena: Arena,
    program: PathBuf,
}

impl Locked {
    fn new() -> Locked {
        let locked = Locked::unlocked();
        locked.config(&["lock"]);
        locked
    }

    fn unlocked() -> Locked {
        let arena = Arena::new();
        let program = arena.compile("configuration", "postgres", &[]);
        let locked = Locked { arena, program };
        for (name, text) in [
            ("postgresql.conf", "include_dir = 'conf.d'\n"),
            ("postgresql.auto.conf", "a = 1\n"),
            ("pg_hba.conf", "local all all @names peer\n"),
            ("names", "joe\n"),
            ("pg_ident.conf", ""),
            ("standby.signal", ""),
        ] {
            locked.write(name, text);
        }
        fs::create_dir(locked.arena.sealed().join("conf.d")).unwrap();
        locked
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.arena.sealed().join(name), text).unwrap();
    }

    fn command(&self) -> Command {
        let mut command = Command::new(helper());
        command.env("PGSEAL_KEY", "00112233445566778899aabbccddeeff".repeat(2));
        command
    }

    fn config(&self, task: &[&str]) {
        let made = finish(self.command().arg("config").args(task).arg(self.arena.sealed()));
        assert!(made.status.success(), "{task:?}: {}{}", made.stdout, made.stderr);
    }

    /// Whether the configuration is as recorded.
    fn is_same(&self) -> bool {
        let made = finish(self.command().args(["config", "status"]).arg(self.arena.sealed()));
        made.status.success()
    }

    /// The program run as a server; there is no guard module in these tests.
    fn server(&self, args: &[&str]) -> Command {
        let mut command = self.arena.preloaded(&self.program, args);
        command.env("PGSEAL_GUARD", "off");
        command
    }

    fn run(&self, args: &[&str]) -> Run {
        finish(&mut self.server(args))
    }

    fn run_until(&self, step: &str, args: &[&str]) {
        let mut command = self.server(args);
        let run = finish(command.env("PGSEAL_TEST_CONFIG_STOP", step));
        assert!(!run.status.success(), "it went on after {step}: {}", run.stdout);
    }

    #[track_caller]
    fn reads(&self, name: &str, wanted: &str) {
        let run = self.run(&["read", name]);
        assert!(run.stdout.starts_with(wanted), "{name}: {}{}", run.stdout, run.stderr);
    }

    /// The server ends before it reads anything.
    #[track_caller]
    fn refuses(&self, name: &str) {
        let run = self.run(&["read", name]);
        assert_eq!(run.status.code(), Some(1), "{name}: {}{}", run.stdout, run.stderr);
        assert!(run.stdout.is_empty(), "{name}: {}", run.stdout);
        assert!(run.stderr.contains("pgseal config"), "{name}: {}", run.stderr);
    }
}

#[test]
fn a_file_is_read_as_it_was_recorded_or_not_at_all() {
    let locked = Locked::new();
    for (name, text) in
        [("pg_hba.conf", "[local all all @names peer\n]\nfopen works"), ("names", "[joe\n]")]
    {
        locked.reads(name, text);
        let recorded = fs::read_to_string(locked.arena.sealed().join(name)).unwrap();
        locked.write(name, "x");
        locked.refuses(name);
        locked.write(name, &recorded);
    }
    locked.write("names", "x");
    // Any difference keeps all settings from being read.
    locked.refuses("postgresql.conf");
    locked.refuses("postgresql.auto.conf");
    locked.config(&["accept", "--yes"]);
    locked.reads("postgresql.conf", "[include_dir");
    // A new file in a directory of which the server reads all `.conf` files.
    locked.write("conf.d/new.conf", "b = 2\n");
    locked.refuses("conf.d/new.conf");
    locked.refuses("postgresql.conf");
    let absolute = locked.arena.sealed().join("conf.d/../postgresql.conf");
    locked.refuses(absolute.to_str().unwrap());
}

/// The server gets a descriptor of a copy, because other processes can write to the file itself.
#[test]
fn what_was_compared_is_what_is_read() {
    let locked = Locked::new();
    let run = locked.run(&["swap", "pg_hba.conf"]);
    assert_eq!(run.stdout, "[local all all @names peer\n]\n", "{}", run.stderr);
    locked.refuses("pg_hba.conf");
}

#[test]
fn alter_system_is_recorded_and_a_crash_at_any_step_leaves_a_right_state() {
    let locked = Locked::new();
    let altered = locked.run(&["alter", "a = 2\n"]);
    assert!(altered.stdout.contains("= 0"), "{}{}", altered.stdout, altered.stderr);
    locked.reads("postgresql.auto.conf", "[a = 2\n]");
    assert!(locked.is_same());
    locked.run_until("recorded", &["alter", "a = 3\n"]);
    locked.reads("postgresql.auto.conf", "[a = 2\n]");
    assert!(locked.is_same());
    locked.run_until("changed", &["alter", "a = 4\n"]);
    locked.reads("postgresql.auto.conf", "[a = 4\n]");
    assert!(locked.is_same());
    // The next change completes the interrupted one: neither of the two earlier states is allowed
    // any more.
    locked.run(&["alter", "a = 5\n"]);
    assert!(locked.is_same());
    for old in ["a = 2\n", "a = 4\n"] {
        locked.write("postgresql.auto.conf", old);
        locked.refuses("postgresql.auto.conf");
    }
}

/// The record has the content that the server wrote, even if another process writes to the file
/// meanwhile.
#[test]
fn a_file_that_is_exchanged_before_the_rename_is_not_recorded() {
    let locked = Locked::new();
    fs::write(locked.arena.tmp.path().join("planted"), "evil = 1\n").unwrap();
    let mut command = locked.server(&["alter", "a = 2\n"]);
    finish(command.env("EXCHANGE", "1"));
    let text = fs::read_to_string(locked.arena.sealed().join("postgresql.auto.conf")).unwrap();
    if text != "a = 2\n" {
        locked.refuses("postgresql.auto.conf");
    }
    assert_ne!((text.as_str(), locked.is_same()), ("evil = 1\n", true));
}

#[test]
fn a_signal_file_goes_when_the_server_removes_it() {
    for step in ["none", "recorded", "changed"] {
        let locked = Locked::new();
        assert!(locked.run(&["exists", "standby.signal"]).stdout.contains("= 0"));
        let unlink = ["unlink", "standby.signal"];
        match step {
            "none" => assert!(locked.run(&unlink).stdout.contains("= 0")),
            _ => locked.run_until(step, &unlink),
        }
        assert!(locked.is_same(), "{step}");
        // Removes the file again, as the server's recovery would after a crash.
        if step == "recorded" {
            assert!(locked.run(&unlink).stdout.contains("= 0"));
        }
        if step == "none" {
            locked.write("standby.signal", "");
            let run = locked.run(&["exists", "standby.signal"]);
            assert!(run.status.code() == Some(1) && run.stdout.is_empty(), "{}", run.stdout);
            assert!(run.stderr.contains("standby.signal\" was not there"), "{}", run.stderr);
        }
    }
    let missing = Locked::new().run(&["exists", "recovery.signal"]);
    assert!(missing.stdout.contains("= -1 ENOENT"), "{}", missing.stdout);
    let locked = Locked::new();
    fs::remove_file(locked.arena.sealed().join("standby.signal")).unwrap();
    let run = locked.run(&["exists", "standby.signal"]);
    assert!(run.status.code() == Some(1), "a standby became a primary: {}", run.stdout);
}

#[test]
fn nothing_else_of_the_configuration_is_changed_by_the_server() {
    let locked = Locked::new();
    locked.write("other", "b = 1\n");
    for args in [
        &["unlink", "pg_hba.conf"][..],
        &["rename", "pg_hba.conf", "other"],
        &["rename", "other", "pg_hba.conf"],
        &["rename", "other", "postgresql.auto.conf"],
    ] {
        let run = locked.run(args);
        assert!(run.stdout.contains("= -1 EACCES"), "{args:?}: {}", run.stdout);
        assert!(run.stderr.contains("is locked"), "{args:?}: {}", run.stderr);
    }
    assert!(locked.is_same());
}

#[test]
fn without_a_lock_everything_is_as_ever() {
    let locked = Locked::unlocked();
    locked.reads("postgresql.conf", "[include_dir");
    assert!(locked.run(&["alter", "a = 2\n"]).stdout.contains("= 0"));
    locked.reads("postgresql.auto.conf", "[a = 2\n]");
    assert!(locked.run(&["unlink", "standby.signal"]).stdout.contains("= 0"));
    assert!(locked.run(&["unlink", "pg_hba.conf"]).stdout.contains("= 0"));
    let mut command = locked.server(&["read", "postgresql.conf"]);
    let run = finish(command.env("PGSEAL_CONFIG", "locked"));
    assert_eq!(run.status.code(), Some(1), "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.is_empty() && run.stderr.contains("asks for it"), "{}", run.stderr);
}
