//! Debian's Barman. In its streaming mode, PostgreSQL's programs make base backups and receive WAL,
//! and wrappers run them under pgseal. In its rsync mode, it copies sealed files. In both modes,
//! everything in its home directory is sealed. `docs/backup.md` has the configuration.

#[path = "barman/lab.rs"]
mod lab;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use pgseal_scenarios::backup::{
    SUM, add_row, archived, assert_archive_sound, assert_is_plain, assert_shows_nothing,
    ends_sound, fails, fill, fill_with_tablespace, text,
};
use pgseal_scenarios::{Ledger, Node};

use lab::{Barman, Protected, RSYNC, STREAMING};

/// The numbers of the rows that were added.
fn added(node: &Node) -> String {
    node.sql("select string_agg(id::text, ' ' order by id) from t where id > 9000")
}

/// Returns how many rows of the ledger there were between the two.
fn two_backups_while_writing(barman: &Barman, ledger: &mut Ledger) -> u64 {
    ledger.start(&barman.node);
    barman.run(&["backup", "--wait", "main"]);
    let before = barman.node.sql("select count(*) from ledger").parse().expect("a number");
    barman.run(&["backup", "--wait", "main"]);
    ledger.join();
    before
}

#[test]
#[ignore = "long: make test-scenarios"]
fn barman_by_streaming_with_recoveries_to_the_end_and_to_a_time() {
    let mut barman = Barman::new(STREAMING);
    barman.protect(Protected::Lock);
    let tablespace = barman.node.make_dir("tablespace");
    barman.node.start();
    fill_with_tablespace(&barman.node, 5000, &tablespace);
    let mut ledger = Ledger::create(&barman.node, 2);
    barman.receive();
    barman.run(&["check", "main"]);
    let before = two_backups_while_writing(&barman, &mut ledger);
    add_row(&barman.node, 9001);
    let time = barman.between();
    add_row(&barman.node, 9002);
    let truth = barman.node.sql(SUM);
    barman.archive();
    barman.run(&["cron"]);
    barman.run(&["check", "main"]);
    let backups = barman.backups();
    assert_eq!(backups.len(), 2, "{backups:?}");
    for id in &backups {
        let said = barman.run(&["show-backup", "main", id]);
        assert!(said.contains("DONE"), "{said}");
        let said = barman.run(&["verify-backup", "main", id]);
        assert!(said.contains("backup successfully verified"), "{said}");
        let verify = barman.node.verify_dir(&barman.backup_dir(id));
        assert_eq!(verify.code, 0, "{}", verify.text);
    }
    barman.stop_receiving();
    assert_archive_sound(&barman.node, &barman.wals());
    assert_shows_nothing(&barman.home);

    let moved = format!("--tablespace=ts:{}", barman.node.home().join("moved").display());
    let copy = barman.recovered("latest", "latest", &[&moved]);
    assert_eq!(copy.sql(SUM), truth);
    assert_eq!(copy.sql("select count(*) from u"), "5000");
    ledger.check_copy(&copy, before);
    assert_eq!(copy.sql("select count(*) from ledger"), ledger.committed().to_string());
    assert_shows_nothing(&copy.home().join("moved"));
    ends_sound(copy);

    let target = format!("--target-time={time}");
    let moved = format!("--tablespace=ts:{}", barman.node.home().join("moved2").display());
    let copy = barman.recovered(&backups[0], "time", &[&target, "--target-action=promote", &moved]);
    assert_eq!(added(&copy), "9001");
    ends_sound(copy);

    // WAL that is not archived as whole segments yet comes from the partial segment.
    let moved = format!("--tablespace=ts:{}", barman.node.home().join("moved3").display());
    barman.run(&["cron"]);
    barman.node.wait_until("select active from pg_replication_slots where slot_name = 'barman'");
    add_row(&barman.node, 9003);
    let copy = barman.recovered_by_get_wal("latest", "get-wal", &[&moved]);
    assert_eq!(added(&copy), "9001 9002 9003");
    ends_sound(copy);
    barman.stop_receiving();
    barman.node.stop();
    assert_shows_nothing(&barman.home);
}

#[test]
#[ignore = "long: make test-scenarios"]
fn barman_by_rsync_with_hard_links_and_recoveries_along_timelines() {
    let mut barman = Barman::new(RSYNC);
    barman.archive_by_rsync(&barman.node);
    barman.protect(Protected::Accept);
    // The first "barman check" makes the directories and says that the server is not reachable yet.
    let said = fails(&mut barman.command(&["check", "main"]));
    assert!(said.contains("PostgreSQL: FAILED"), "{said}");
    let tablespace = barman.node.make_dir("tablespace");
    barman.node.start();
    fill_with_tablespace(&barman.node, 5000, &tablespace);
    let mut ledger = Ledger::create(&barman.node, 2);
    barman.run(&["cron"]);
    barman.archive();
    barman.run(&["check", "main"]);
    let before = two_backups_while_writing(&barman, &mut ledger);
    add_row(&barman.node, 9001);
    barman.node.sql("select pg_create_restore_point('here')");
    add_row(&barman.node, 9002);
    let truth = barman.node.sql(SUM);
    barman.archive();
    barman.run(&["check", "main"]);
    let backups = barman.backups();
    assert_eq!(backups.len(), 2, "{backups:?}");
    // The file has not changed between the two backups.
    let template = |id: &str| {
        let path = barman.backup_dir(id).join("base/1/1259");
        fs::metadata(&path).expect("pg_class of template1").ino()
    };
    assert_eq!(template(&backups[0]), template(&backups[1]));
    assert_archive_sound(&barman.node, &barman.wals());
    assert_shows_nothing(&barman.home);

    let moved = |name: &str| {
        let dir = barman.node.home().join(format!("{name}-tablespace"));
        format!("--tablespace=ts:{}", dir.display())
    };
    let copy = barman.recovered("latest", "latest", &[&moved("latest")]);
    assert_eq!(copy.sql(SUM), truth);
    assert_eq!(copy.sql("select count(*) from u"), "5000");
    ledger.check_copy(&copy, before);
    ends_sound(copy);

    // Recovery to a named restore point. This copy then archives on its own timeline.
    let named = ["--target-name=here", "--target-action=promote", &moved("named")];
    let copy = barman.recovered_files(&backups[0], "named", &named);
    barman.archive_by_rsync(&copy);
    let copy = barman.started(copy);
    assert_eq!(added(&copy), "9001");
    add_row(&copy, 9101);
    archived(&copy);
    barman.run(&["archive-wal", "main"]);
    assert!(barman.wals().join("00000002.history").is_file());
    ends_sound(copy);
    let said = barman.run(&["show-backup", "main", "latest"]);
    assert!(said.contains("DONE"), "{said}");
    barman.run(&["check", "main"]);
    assert_shows_nothing(&barman.home);
    let target = ["--target-tli=2", "--target-action=promote", &moved("second")];
    let copy = barman.recovered(&backups[0], "second", &target);
    assert_eq!(added(&copy), "9001 9101");
    ends_sound(copy);
    barman.node.stop();
    assert_shows_nothing(&barman.home);
}

/// The key of the server changes. Barman has its own key for its copy of the keyring.
#[test]
#[ignore = "long: make test-scenarios"]
fn barman_restores_a_backup_made_before_a_key_rotation() {
    let mut barman = Barman::new(STREAMING);
    let provider = |path: &Path| format!("file:{}", path.display());
    let rotate = |barman: &Barman, dir: &Path, key: &Path| {
        let arguments = ["key", "rotate", &text(dir), "-K", &provider(key)];
        let rotated = barman.node.pgseal(&arguments);
        assert_eq!(rotated.code, 0, "{}", rotated.text);
    };
    let own = barman.node.new_key("barman.key");
    rotate(&barman, &barman.sealed, &own);
    barman.node.start();
    fill(&barman.node, 2000);
    barman.receive();
    barman.back_up_while_idle();
    add_row(&barman.node, 9001);
    let next = barman.node.new_key("next");
    rotate(&barman, barman.node.data(), &next);
    barman.node.stop();
    barman.node.start();
    barman.receive();
    add_row(&barman.node, 9002);
    barman.back_up_while_idle();
    add_row(&barman.node, 9003);
    let truth = barman.node.sql(SUM);
    barman.archive();
    barman.stop_receiving();
    assert_archive_sound(&barman.node, &barman.wals());
    assert_shows_nothing(&barman.home);

    // The server's first key is gone, and no backup needs it.
    let away = |name: &str| {
        let path = barman.node.home().join(name);
        fs::rename(&path, path.with_extension("away")).expect("it is there");
    };
    away("key");
    let backups = barman.backups();
    for id in &backups {
        let copy = barman.recovered(id, &format!("restored-{id}"), &[]);
        assert_eq!(copy.sql(SUM), truth);
        ends_sound(copy);
    }
    // Barman's key is lost as well: the current keyring of the server opens both backups.
    away("barman.key");
    for id in &backups {
        let mut copy = barman.recovered_files(id, &format!("again-{id}"), &[]);
        let said = copy.try_start().expect_err("a start without a key");
        assert!(said.contains("barman.key"), "{said}");
        let keyring = copy.file("pgseal/keyring");
        fs::copy(barman.node.file("pgseal/keyring"), keyring).expect("it can be written");
        let copy = barman.started(copy);
        assert_eq!(copy.sql(SUM), truth);
        ends_sound(copy);
    }
    barman.node.stop();
}

/// Without the wrappers, Barman is an ordinary replication client and writes plain content, which
/// also shows that the search for plain content works. What does not work with the wrappers is
/// refused before anything is written.
#[test]
#[ignore = "long: make test-scenarios"]
fn barman_without_the_wrappers_gets_plain_content() {
    let mut barman = Barman::new(&format!("{STREAMING}\nbackup_compression = gzip"));
    barman.node.start();
    fill(&barman.node, 2000);
    barman.receive();
    let said = fails(&mut barman.command(&["backup", "main"]));
    assert!(said.contains("cannot read the sealed tar files"), "{said}");
    assert_shows_nothing(&barman.home);
    barman.stop_receiving();

    let config = fs::read_to_string(&barman.config).expect("it is there");
    let lines = config
        .lines()
        .filter(|line| !line.starts_with("path_prefix") && !line.starts_with("backup_compression"));
    let lines: Vec<&str> = lines.collect();
    fs::write(&barman.config, lines.join("\n")).expect("it can be written");
    barman.receive();
    barman.back_up_while_idle();
    add_row(&barman.node, 9001);
    barman.archive();
    barman.stop_receiving();
    assert_is_plain(&barman.home.join("main/base"));
    assert_is_plain(&barman.wals());
    barman.node.stop();
}
