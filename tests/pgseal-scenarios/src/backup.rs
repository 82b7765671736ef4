//! Helpers of the scenarios about backups: a table with a marker, a base backup with the keyring of
//! its server, and the checks of a copy.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::node::Node;
use crate::outcome::Outcome;
use crate::programs::as_server_user;
pub use crate::sound::SUM;
use crate::sound::{assert_hidden, assert_shown};

/// The marker in every row that [`fill`] and the scenarios write.
pub const MARKER: &str = "canary-backup-Zq7x";

/// Makes the table `t`, with the marker in each row.
pub fn fill(node: &Node, rows: u32) {
    node.sql(&format!(
        "create table t (id int primary key, v text);;
         insert into t select g, '{MARKER} ' || repeat(md5(g::text), 8) \
         from generate_series(1, {rows}) g;;
         vacuum (analyze) t;; checkpoint"
    ));
}

/// Like [`fill`], with a copy of the table in the table `u`, in a tablespace in this directory.
pub fn fill_with_tablespace(node: &Node, rows: u32, dir: &Path) {
    fill(node, rows);
    node.sql(&format!(
        "create tablespace ts location '{}';; create table u tablespace ts as select * from t",
        dir.display()
    ));
}

/// Adds one row with the marker.
pub fn add_row(node: &Node, id: u32) {
    node.sql(&format!("insert into t values ({id}, '{MARKER} {id}')"));
}

/// Asserts that no file below a directory contains the marker in any encoding.
///
/// # Panics
/// With the places of the marker.
#[track_caller]
pub fn assert_shows_nothing(dir: &Path) {
    assert_hidden(&[dir], MARKER);
}

/// Asserts that a file or directory contains the marker: an unsealed copy was requested, and the
/// search can find the marker.
///
/// # Panics
/// When the marker is not found.
#[track_caller]
pub fn assert_is_plain(path: &Path) {
    assert_shown(path, MARKER);
}

/// Asserts that every block of a copy authenticates and that nothing in it contains the marker.
///
/// # Panics
/// With what is wrong.
#[track_caller]
pub fn assert_sound(node: &Node, dir: &Path) {
    node.assert_sound_at(dir, MARKER);
}

/// Like [`assert_sound`], for a directory of archived WAL or tar files, which has no keyring of its
/// own.
///
/// # Panics
/// With what is wrong.
#[track_caller]
pub fn assert_archive_sound(node: &Node, dir: &Path) {
    let keyring = text(&node.file("pgseal/keyring"));
    let verify = node.pgseal(&["verify", "--keyring", &keyring, &text(dir)]);
    assert_eq!(verify.code, 0, "{}", verify.text);
    assert_shows_nothing(dir);
}

/// A path as an argument.
#[must_use]
pub fn text(path: &Path) -> String {
    path.display().to_string()
}

/// `pg_basebackup` under the library, connected to the server. The copy gets the keyring of the
/// server.
#[must_use]
pub fn base_backup_command(node: &Node, target: &Path) -> Command {
    let mut backup = node.command("pg_basebackup");
    node.connected(&mut backup);
    backup.env("PGSEAL_KEYRING_FROM", node.file("pgseal/keyring"));
    backup.args(["--no-sync", "-c", "fast", "-D"]).arg(target);
    backup
}

/// A base backup with the keyring of its server, beside the data directory.
///
/// # Panics
/// With what `pg_basebackup` said.
#[track_caller]
pub fn base_backup(node: &Node, name: &str, options: &[&str]) -> PathBuf {
    let target = node.home().join(name);
    node.succeed(base_backup_command(node, &target).args(options));
    target
}

/// A shell command as the server's user, without the library; `words` become `$1` and following.
#[must_use]
pub fn shell(node: &Node, script: &str, words: &[&Path]) -> Command {
    let mut command = as_server_user(Path::new("/bin/bash"));
    command.args(["-euo", "pipefail", "-c", script, "bash"]).args(words);
    command.current_dir(node.home());
    command
}

/// A new data directory with the keyring of `like`, into which tar files can be unpacked.
///
/// # Panics
/// When it cannot be made.
#[must_use]
pub fn directory_with_keyring(node: &Node, name: &str, like: &Path) -> PathBuf {
    let dir = node.home().join(name);
    let script = "mkdir -m 0700 \"$1\"; cp -a \"$2/pgseal\" \"$1/\"";
    node.succeed(&mut shell(node, script, &[&dir, like]));
    dir
}

/// Unpacks a sealed tar file of a base backup into a directory that has a keyring. `pgseal cat`
/// opens the tar file, the decompressor works on a pipe, and `tar` under the library writes sealed
/// files.
///
/// # Panics
/// With the output of the failed step.
pub fn unpack(node: &Node, tar: &Path, decompressor: &str, into: &Path) {
    let script = format!(
        "\"$1\" cat \"$2\" | {decompressor} | PGSEAL_PROGRAMS=tar \"$1\" run -- tar -x -C \"$3\""
    );
    node.succeed(&mut shell(node, &script, &[&node.pgseal_program(), tar, into]));
}

/// Runs a program that must fail, and returns its output.
///
/// # Panics
/// When the program succeeds.
#[track_caller]
pub fn fails(command: &mut Command) -> String {
    let outcome = Outcome::from(command.output().expect("the program runs"));
    assert_ne!(outcome.code, 0, "{command:?}\n{}", outcome.text);
    outcome.text
}

/// The options with which a server archives its WAL by a plain `cp`, which copies sealed bytes.
#[must_use]
pub fn archive_by_cp(archive: &Path) -> String {
    let dir = archive.display();
    format!(
        "archive_mode = on\narchive_command = 'test ! -f {dir}/%f && cp %p {dir}/%f'\n\
         max_wal_senders = 8\nwal_level = replica"
    )
}

/// Waits until all WAL written so far is in the archive.
pub fn archived(node: &Node) {
    let segment = node.sql("select pg_walfile_name(pg_current_wal_insert_lsn())");
    node.sql("select pg_switch_wal()");
    node.wait_until(&format!(
        "select coalesce(last_archived_wal >= '{segment}', false) from pg_stat_archiver"
    ));
}

/// Restores a copy of a backup beside the server, which may be running, and starts it: recovery
/// fetches WAL with the command, ends where the settings say, and promotes.
///
/// # Panics
/// When the recovery does not end.
#[must_use]
pub fn recovered(node: &Node, backup: &Path, name: &str, restore: &str, settings: &str) -> Node {
    let mut copy = prepared(node, backup, name, restore, settings);
    copy.start();
    copy.wait_until("select not pg_is_in_recovery()");
    copy
}

/// Like [`recovered`], but the server is not started.
///
/// # Panics
/// When the files cannot be written.
#[must_use]
pub fn prepared(node: &Node, backup: &Path, name: &str, restore: &str, settings: &str) -> Node {
    let dir = node.home().join(name);
    crate::files::copy_tree(backup, &dir);
    let copy = Node::at(node, &dir);
    copy.configure(&format!(
        "archive_mode = off\nrecovery_target_action = promote\nhot_standby = on\n\
         restore_command = '{restore}'\n{settings}"
    ));
    node.succeed(&mut shell(node, "touch \"$1/recovery.signal\"", &[&dir]));
    copy
}

/// The restore command that copies WAL from the archive with `cp`.
#[must_use]
pub fn restore_by_cp(archive: &Path) -> String {
    format!("cp {}/%f %p", archive.display())
}

/// The low-level backup: `pg_backup_start`, a copy of the data directory made by the closure,
/// `pg_backup_stop`, and its label in the copy.
///
/// # Panics
/// When a step fails.
pub fn low_level_backup(node: &Node, name: &str, copy: impl FnOnce(&Path)) -> PathBuf {
    let dir = node.home().join(name);
    // The session must stay open for the whole backup.
    let mut session = node.session();
    session.sql("set client_min_messages = warning");
    session.sql(&format!("select pg_backup_start('{name}', fast => true)"));
    copy(&dir);
    let label = session.sql("select labelfile from pg_backup_stop(wait_for_archive => true)");
    assert!(label.contains("START WAL LOCATION"), "{label}");
    // As PostgreSQL's manual says, pg_wal and the lock file do not belong into the backup.
    let script = "printf '%s\\n' \"$2\" >\"$1/backup_label\"; \
                  rm -f \"$1/postmaster.pid\" \"$1/postmaster.opts\"; \
                  find \"$1/pg_wal\" -type f -delete";
    node.succeed(&mut shell(node, script, &[&dir, Path::new(&label)]));
    dir
}

/// A program that `scripts/setup.sh scenarios` installs.
///
/// # Panics
/// When the program is not installed; the text names the command.
#[must_use]
pub fn program_of_debian(name: &str) -> PathBuf {
    let path = Path::new("/usr/bin").join(name);
    assert!(path.is_file(), "{}: not installed; run scripts/setup.sh scenarios", path.display());
    path
}

/// A running server that archives by `cp`, with a table of 2000 rows; its base backup, and its
/// archive.
#[must_use]
pub fn archiving() -> (Node, PathBuf, PathBuf) {
    let mut node = Node::sealed(&[]);
    let archive = node.make_dir("archive");
    node.configure(&archive_by_cp(&archive));
    node.start();
    fill(&node, 2000);
    let backup = base_backup(&node, "backup", &["-X", "none"]);
    (node, backup, archive)
}

/// Stops a restored copy and checks all its files.
#[track_caller]
pub fn ends_sound(mut copy: Node) {
    copy.sql("checkpoint");
    copy.stop();
    assert_sound(&copy, copy.data());
}
