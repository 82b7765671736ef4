//! Up to where the WAL of a server is on the disk, and what a recovery that ends earlier meets
//! (`spec/control.md`).

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::support::{Arena, Run, finish, helper};

const SEGMENT: &str = "000000010000000000000001";
/// The position after two pages of it.
const TWO_PAGES: &str = "1004000";

struct Server {
    arena: Arena,
    program: PathBuf,
}

impl Server {
    /// A data directory whose server was shut down cleanly.
    fn new() -> Server {
        let arena = Arena::new();
        let map = arena.compile("open_write", "mapper", &[]);
        let made = arena.run_sealed(&map, &["global/pg_filenode.map"]);
        assert!(arena.raw("global/pg_filenode.map").len() > 512, "{}", made.stderr);
        let program = arena.compile("wal_position", "postgres", &["-rdynamic"]);
        let server = Server { arena, program };
        server.control(1);
        server
    }

    /// Writes a `pg_control` with this state, past the library.
    fn control(&self, state: u8) {
        let mut control = vec![0; 8192];
        control[16] = state;
        control[200..208].copy_from_slice(&1_234_567.0_f64.to_le_bytes());
        control[220..224].copy_from_slice(&(1_u32 << 24).to_le_bytes());
        fs::write(self.arena.sealed().join("global/pg_control"), control).unwrap();
    }

    fn run(&self, steps: &str) -> Run {
        let _ = fs::remove_file(self.arena.sealed().join("postmaster.pid"));
        let steps: Vec<&str> = ["lock"].into_iter().chain(steps.split_whitespace()).collect();
        let mut command = self.arena.preloaded(&self.program, &steps);
        let run = finish(command.env("PGSEAL_GUARD", "off").env("PGSEAL_MANIFEST", "ignore"));
        let _ = fs::remove_file(self.arena.sealed().join("postmaster.pid"));
        run
    }

    fn pgseal(&self, args: &[&str]) -> Run {
        let mut command = Command::new(helper());
        command.env("PGSEAL_KEY", "00112233445566778899aabbccddeeff".repeat(2));
        finish(command.args(args).arg(self.arena.sealed()))
    }

    /// The position that is recorded, as `X/Y`; empty if there is none.
    fn position(&self) -> String {
        let run = self.pgseal(&["wal", "status", "--json"]);
        let field = run.stdout.split("\"position\":").nth(1).unwrap_or_default();
        let value = field.split([',', '}']).next().unwrap_or_default().trim();
        value.trim_matches('"').replace("null", "")
    }
}

/// A server that wrote three pages, of which two are acknowledged.
fn crashed() -> Server {
    let server = Server::new();
    let steps = format!(
        "write {SEGMENT} 0 a write {SEGMENT} 1 b write {SEGMENT} 2 c sync flushed {TWO_PAGES} send"
    );
    let run = server.run(&steps);
    assert_eq!(server.position(), "0/1004000", "{}{}", run.stdout, run.stderr);
    server
}

#[test]
fn the_position_is_recorded_before_anything_is_sent() {
    let server = Server::new();
    server.run("");
    assert_eq!(server.position(), "");
    let wrote = format!("write {SEGMENT} 0 a write {SEGMENT} 1 b");
    for (steps, wanted) in [
        // No sync: whatever the server believes, nothing is promised.
        (format!("{wrote} flushed {TWO_PAGES} send"), ""),
        // Nothing was sent.
        (format!("{wrote} sync flushed {TWO_PAGES}"), ""),
        // In a critical section the server is not asked; the next one who sends does.
        (format!("{wrote} sync flushed {TWO_PAGES} critical 1 send"), ""),
        (format!("{wrote} sync flushed {TWO_PAGES} critical 1 send critical 0 send"), "0/1004000"),
        // It never goes back.
        (format!("{wrote} sync flushed 1002000 send"), "0/1004000"),
        (format!("{wrote} sync flushed 1004008 send"), "0/1004008"),
    ] {
        let run = server.run(&steps);
        assert_eq!(server.position(), wanted, "{steps}: {}{}", run.stdout, run.stderr);
    }
}

#[test]
fn a_recovery_that_ended_too_early_overwrites_nothing() {
    let server = crashed();
    for (page, letter, is_refused) in [(1, 'x', true), (0, 'x', true), (1, 'b', false)] {
        let run = server.run(&format!("write {SEGMENT} {page} {letter}"));
        assert_eq!(run.stdout.contains("EIO"), is_refused, "{page} {letter}: {}", run.stderr);
        let wanted = format!("recovery ended at 0/{:X} or before", 0x100_0000 + page * 0x2000);
        assert_eq!(run.stderr.contains(&wanted), is_refused, "{page}: {}", run.stderr);
    }
    // A segment that is gone was made anew by the server.
    fs::remove_file(server.arena.sealed().join("pg_wal").join(SEGMENT)).unwrap();
    let run = server.run(&format!("write {SEGMENT} 1 b"));
    assert!(run.stdout.contains("EIO"), "{}{}", run.stdout, run.stderr);
}

#[test]
fn what_may_follow_a_recovery_goes_on() {
    for (name, steps) in [
        ("behind the position", format!("write {SEGMENT} 2 x write {SEGMENT} 0 x")),
        ("a later segment", "write 000000010000000000000002 0 x".to_owned()),
        ("a new timeline", "write 000000020000000000000001 0 x".to_owned()),
        ("received", format!("inserts 0 write {SEGMENT} 0 x")),
    ] {
        let run = crashed().run(&steps);
        assert!(!run.stdout.contains("EIO"), "{name}: {}{}", run.stdout, run.stderr);
    }
    // Unless the server has written up to there, it is checked again.
    let run = crashed().run(&format!("write {SEGMENT} 0 a write {SEGMENT} 1 x"));
    assert!(run.stdout.contains("EIO"), "{}", run.stderr);
}

#[test]
fn a_loss_can_be_accepted() {
    let server = crashed();
    let far = server.pgseal(&["wal", "accept", "--lose-after", "0/1004001"]);
    assert_eq!(far.status.code(), Some(2), "{}", far.stderr);
    let some = server.pgseal(&["wal", "accept", "--lose-after", "0/1002000"]);
    assert!(some.status.success(), "{}", some.stderr);
    assert_eq!(server.position(), "0/1002000");
    let run = server.run(&format!("write {SEGMENT} 0 x"));
    assert!(run.stdout.contains("EIO"), "{}", run.stderr);
    let run = server.run(&format!("write {SEGMENT} 1 x"));
    assert!(!run.stdout.contains("EIO"), "{}", run.stderr);

    let server = crashed();
    assert!(server.pgseal(&["wal", "accept"]).status.success());
    assert_eq!(server.position(), "");
    let run = server.run(&format!("write {SEGMENT} 0 x"));
    assert!(!run.stdout.contains("EIO"), "{}", run.stderr);
}

#[test]
fn an_older_or_changed_control_file_is_refused_until_it_is_accepted() {
    let server = crashed();
    let starts = |server: &Server| server.run("").status.success();
    assert!(starts(&server));
    server.control(6);
    assert!(!starts(&server), "pg_control was changed past the server");
    assert_eq!(server.pgseal(&["wal", "status"]).status.code(), Some(1));
    assert!(server.pgseal(&["wal", "accept"]).status.success());
    assert!(starts(&server) && server.pgseal(&["wal", "status"]).status.success());

    let path = server.arena.sealed().join("pgseal/control");
    let kept = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert!(!starts(&server), "the record is gone after a crash");
    fs::write(server.arena.sealed().join("backup_label"), "").unwrap();
    assert!(starts(&server), "a base backup has none");
    fs::remove_file(server.arena.sealed().join("backup_label")).unwrap();
    // The last two are of the two slots of the position, which are the same here.
    for changed in [&[0][..], &[70], &[100], &[511], &[512], &[1023], &[612, 612 + 172]] {
        let mut bytes = kept.clone();
        for at in changed {
            bytes[*at] ^= 1;
        }
        fs::write(&path, bytes).unwrap();
        assert!(!starts(&server), "bytes {changed:?}");
    }
    fs::write(&path, &kept).unwrap();
    assert!(starts(&server));
}
