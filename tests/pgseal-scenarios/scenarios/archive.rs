//! WAL archives, and point-in-time recovery from them.

use std::path::{Path, PathBuf};
use std::process::Command;

use pgseal_scenarios::backup::{
    SUM, add_row, archive_by_cp, archived, archiving, assert_archive_sound, assert_is_plain,
    assert_sound, base_backup, ends_sound, fails, fill, prepared, recovered, restore_by_cp, text,
};
use pgseal_scenarios::files::names_in;
use pgseal_scenarios::{Node, assert_hidden};

/// The numbers of the rows that were added.
fn added(node: &Node) -> String {
    node.sql("select coalesce(string_agg(id::text, ' ' order by id), '') from t where id > 9000")
}

#[test]
fn wal_archived_by_cp_and_recovery_to_a_time_a_transaction_and_a_name() {
    let (mut node, backup, archive) = archiving();
    add_row(&node, 9001);
    let time = node.sql("select pg_sleep(0.2);; select clock_timestamp();; select pg_sleep(0.2)");
    let transaction = node.sql(
        "insert into t values (9002, 'canary-backup-Zq7x 9002') returning pg_current_xact_id()",
    );
    add_row(&node, 9003);
    node.sql("select pg_create_restore_point('canary-name-Zq7x')");
    add_row(&node, 9004);
    archived(&node);
    node.stop();

    // cp copied the sealed bytes of pg_wal: the archive shows no row and no name of a restore
    // point.
    assert_archive_sound(&node, &archive);
    assert_hidden(&[&archive], "canary-name-Zq7x");
    let segments = names_in(&archive).iter().filter(|name| name.len() == 24).count();
    assert!(segments >= 2, "{:?}", names_in(&archive));
    for (name, target, wanted) in [
        ("time", format!("recovery_target_time = '{}'", time.trim()), "9001"),
        ("transaction", format!("recovery_target_xid = '{transaction}'"), "9001 9002"),
        ("name", "recovery_target_name = 'canary-name-Zq7x'".to_owned(), "9001 9002 9003"),
    ] {
        let copy = recovered(&node, &backup, name, &restore_by_cp(&archive), &target);
        assert_eq!(added(&copy), wanted, "{name}");
        ends_sound(copy);
    }
}

/// Segments that an archive lacks are named, with an exit status of their own kind of damage.
#[test]
fn verify_names_the_segments_that_an_archive_lacks() {
    let (mut node, _, archive) = archiving();
    for id in 9001..9006 {
        add_row(&node, id);
        archived(&node);
    }
    node.stop();
    assert_archive_sound(&node, &archive);
    let mut segments = names_in(&archive);
    segments.retain(|name| name.len() == 24);
    segments.sort();
    assert!(segments.len() >= 5, "{segments:?}");
    let keyring = text(&node.file("pgseal/keyring"));
    let verify = || node.pgseal(&["verify", "--keyring", &keyring, &text(&archive)]);
    std::fs::remove_file(archive.join(&segments[2])).expect("it can be removed");
    let one = verify();
    assert_eq!(one.code, 1, "{}", one.text);
    assert!(
        one.text.contains(&format!("FAILED  {}: 1 segment missing", segments[2])),
        "{}",
        one.text
    );
    std::fs::remove_file(archive.join(&segments[3])).expect("it can be removed");
    let two = verify();
    let names = format!("{} to {}: 2 segments missing", segments[2], segments[3]);
    assert!(two.code == 1 && two.text.contains(&names), "{}", two.text);
    // The beginning of an archive may be removed: retention does that.
    for name in &segments[..2] {
        std::fs::remove_file(archive.join(name)).expect("it can be removed");
    }
    assert_archive_sound(&node, &archive);
}

/// Recovery to the end of the archive. The promoted copy then archives on its own timeline, and
/// recovery can follow either timeline.
#[test]
#[ignore = "long: make test-scenarios"]
fn recovery_across_a_timeline_switch() {
    let (mut node, backup, archive) = archiving();
    add_row(&node, 9001);
    node.sql("select pg_create_restore_point('fork')");
    add_row(&node, 9002);
    archived(&node);
    let restore = restore_by_cp(&archive);
    // The last archive_mode in the file wins.
    let settings = format!("recovery_target_name = 'fork'\n{}", archive_by_cp(&archive));
    let second = recovered(&node, &backup, "second", &restore, &settings);
    add_row(&second, 9101);
    archived(&second);
    add_row(&node, 9003);
    archived(&node);
    node.stop();
    ends_sound(second);
    // Timeline history is plain, for tools that follow timelines.
    let history = std::fs::read(archive.join("00000002.history")).expect("it is archived");
    let history = String::from_utf8_lossy(&history);
    assert!(history.contains("at restore point \"fork\""), "{history}");
    assert_archive_sound(&node, &archive);

    for (name, timeline, wanted) in
        [("old", "1", "9001 9002 9003"), ("new", "latest", "9001 9101"), ("two", "2", "9001 9101")]
    {
        let settings = format!("recovery_target_timeline = '{timeline}'");
        let copy = recovered(&node, &backup, name, &restore, &settings);
        assert_eq!(added(&copy), wanted, "{name}");
        ends_sound(copy);
    }
}

/// With `archive_library` instead of a command, the server itself copies WAL and seals the copy.
#[test]
#[ignore = "long: make test-scenarios"]
fn archive_library_basic_archive() {
    let mut node = Node::sealed(&[("max_wal_senders", "8")]);
    let archive = node.make_dir("archive");
    node.configure(&format!(
        "archive_mode = on\narchive_library = 'basic_archive'\n\
         basic_archive.archive_directory = '{}'",
        archive.display()
    ));
    node.start();
    fill(&node, 2000);
    let backup = base_backup(&node, "backup", &["-X", "none"]);
    add_row(&node, 9001);
    archived(&node);
    let truth = node.sql(SUM);
    node.stop();
    assert_archive_sound(&node, &archive);
    let copy =
        recovered(&node, &backup, "restored", &restore_by_cp(&archive), "archive_library = ''");
    assert_eq!(copy.sql(SUM), truth);
    ends_sound(copy);

    // PGSEAL_UNSEALED_COPY in the server's environment asks for a plain archive.
    node.set_env("PGSEAL_UNSEALED_COPY", "yes");
    let plain = node.make_dir("plain");
    node.configure(&format!("basic_archive.archive_directory = '{}'", plain.display()));
    node.start();
    add_row(&node, 9002);
    archived(&node);
    node.stop();
    assert_is_plain(&plain);
}

/// Runs `pg_receivewal` up to the current end of WAL. The last segment stays partial.
fn receive(node: &Node, dir: &Path, options: &[&str], with: impl Fn(&mut Command)) {
    let mut command = receive_command(node, dir, true);
    with(&mut command);
    node.succeed(command.args(options));
}

fn receive_command(node: &Node, dir: &Path, sealed: bool) -> Command {
    let mut command =
        if sealed { node.command("pg_receivewal") } else { node.bare("pg_receivewal") };
    node.connected(&mut command);
    let end = node.sql("select pg_current_wal_flush_lsn()");
    // pg_receivewal ends only after it has received more than it was asked for.
    node.sql("select pg_logical_emit_message(true, '', 'more')");
    command.args(["--no-loop", "--slot=receiver", &format!("--endpos={end}"), "-D"]).arg(dir);
    command
}

/// A running server with a replication slot, a table, a base backup, and WAL after it.
fn received() -> (Node, PathBuf) {
    let mut node = Node::sealed(&[("max_wal_senders", "8"), ("wal_keep_size", "64MB")]);
    node.start();
    node.sql("select pg_create_physical_replication_slot('receiver', true)");
    fill(&node, 2000);
    let backup = base_backup(&node, "backup", &["-X", "none"]);
    add_row(&node, 9001);
    node.sql("select pg_switch_wal()");
    add_row(&node, 9002);
    (node, backup)
}

fn restore_with_partial(dir: &Path) -> String {
    let dir = dir.display();
    format!("cp {dir}/%f %p || cp {dir}/%f.partial %p")
}

/// The archive is sealed with the keyring of the data directory, sealed with its own keyring, or
/// plain.
#[test]
fn pg_receivewal_seals_what_it_receives() {
    let (mut node, backup) = received();
    let truth = node.sql(SUM);

    let refused = node.make_dir("refused");
    let said = fails(&mut receive_command(&node, &refused, true));
    assert!(said.contains("pg_receivewal would write an unsealed copy"), "{said}");
    assert_eq!(names_in(&refused), Vec::<String>::new());

    let archive = node.make_dir("archive");
    receive(&node, &archive, &[], |command| {
        command.env("PGSEAL_DATA", node.data());
    });
    assert_archive_sound(&node, &archive);
    assert!(names_in(&archive).iter().any(|name| name.ends_with(".partial")));
    let copy = recovered(&node, &backup, "restored", &restore_with_partial(&archive), "");
    assert_eq!(copy.sql(SUM), truth);
    ends_sound(copy);
    node.stop();
}

#[test]
#[ignore = "long: make test-scenarios"]
fn pg_receivewal_with_a_keyring_of_its_own_compressed_and_plain() {
    let (mut node, backup) = received();
    let truth = node.sql(SUM);
    let pgseal = node.pgseal_program();
    let own = |command: &mut Command| {
        command.env("PGSEAL_KEYRING_FROM", node.file("pgseal/keyring"));
    };
    // A slot sends WAL only once, and each archive must begin before the base backup. So each
    // receiver has its own slot.
    let new_slot = || {
        node.sql(
            "select pg_drop_replication_slot('receiver');; \
             select pg_copy_physical_replication_slot('keep', 'receiver', false)",
        );
    };
    node.sql("select pg_copy_physical_replication_slot('receiver', 'keep', false)");

    let archive = node.make_dir("own");
    receive(&node, &archive, &[], own);
    assert!(archive.join("pgseal/keyring").is_file());
    assert_sound(&node, &archive);
    // When pg_receivewal is started again, it continues with the same keyring.
    add_row(&node, 9003);
    node.sql("select pg_switch_wal()");
    let truth_later = node.sql(SUM);
    receive(&node, &archive, &[], |_| ());
    assert_sound(&node, &archive);
    let copy = recovered(&node, &backup, "own-restored", &restore_with_partial(&archive), "");
    assert_eq!(copy.sql(SUM), truth_later);
    ends_sound(copy);
    assert_ne!(truth, truth_later);

    // WAL is compressed before it is sealed.
    new_slot();
    let archive = node.make_dir("gzip");
    receive(&node, &archive, &["--compress=gzip:1"], own);
    assert_sound(&node, &archive);
    let dir = archive.display();
    let program = pgseal.display();
    // The partial segment is shorter than a whole one, so recovery cannot use it.
    let restore = format!(
        "test -f {dir}/%f.gz && {program} cat {dir}/%f.gz | gzip -d | \
         PGSEAL_PROGRAMS=dd dd of=%p bs=1M status=none"
    );
    let copy = recovered(&node, &backup, "gzip-restored", &restore, "");
    assert_eq!(copy.sql(SUM), truth_later);
    ends_sound(copy);

    // Without the library, pg_receivewal writes the plain WAL that the server sends. Recovery
    // accepts plain WAL only from a cp that PGSEAL_PROGRAMS names, and seals it.
    new_slot();
    let plain = node.make_dir("plain");
    node.succeed(&mut receive_command(&node, &plain, false));
    assert_is_plain(&plain);
    let said = fails_to_start(&node, &backup, "not-named", &restore_with_partial(&plain));
    assert!(said.contains("restore_command brought plain WAL"), "{said}");
    let named = restore_with_partial(&plain).replace("cp ", "PGSEAL_PROGRAMS=cp cp ");
    let copy = recovered(&node, &backup, "plain-restored", &named, "");
    assert_eq!(copy.sql(SUM), truth_later);
    ends_sound(copy);

    // Under the library, PGSEAL_UNSEALED_COPY asks for plain WAL.
    new_slot();
    let asked = node.make_dir("asked");
    receive(&node, &asked, &[], |command| {
        command.env("PGSEAL_UNSEALED_COPY", "yes");
    });
    assert_is_plain(&asked);
    node.stop();
}

fn fails_to_start(node: &Node, backup: &Path, name: &str, restore: &str) -> String {
    let mut copy = prepared(node, backup, name, restore, "");
    copy.try_start().expect_err("a start that cannot be")
}

/// `archive_command` makes a plain archive if PGSEAL_UNSEALED_COPY asks for it.
#[test]
#[ignore = "long: make test-scenarios"]
fn a_plain_wal_archive_when_asked_for() {
    let mut node = Node::sealed(&[]);
    let archive = node.make_dir("archive");
    let settings = archive_by_cp(&archive)
        .replace("&& cp", "&& PGSEAL_PROGRAMS=cp PGSEAL_UNSEALED_COPY=yes cp");
    node.configure(&settings);
    node.start();
    fill(&node, 2000);
    archived(&node);
    assert_is_plain(&archive);
    // With PGSEAL_PROGRAMS=cp but without PGSEAL_UNSEALED_COPY, cp seals WAL wherever it copies it.
    let sealed = node.make_dir("sealed");
    node.configure(&archive_by_cp(&sealed).replace("&& cp", "&& PGSEAL_PROGRAMS=cp cp"));
    node.sql("select pg_reload_conf()");
    node.wait_until(&format!(
        "select current_setting('archive_command') like '%{}%'",
        sealed.display()
    ));
    add_row(&node, 9001);
    archived(&node);
    add_row(&node, 9002);
    archived(&node);
    node.stop();
    assert_archive_sound(&node, &sealed);
}
