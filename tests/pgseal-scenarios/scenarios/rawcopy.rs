//! Copies of the data directory by `cp`, by `tar` and by a snapshot of the file system, while the
//! server writes. These programs do not use pgseal, so they copy sealed files and the keyring.

use std::fs;

use pgseal_scenarios::backup::{
    SUM, archive_by_cp, archived, assert_archive_sound, assert_shows_nothing, assert_sound, fill,
    low_level_backup, recovered, restore_by_cp, shell,
};
use pgseal_scenarios::files::copy_tree;
use pgseal_scenarios::mount::{Btrfs, run};
use pgseal_scenarios::{Ledger, Node, is_root, not_applicable};

#[test]
#[ignore = "long: make test-scenarios"]
fn low_level_backups_by_cp_and_tar_while_writing() {
    let mut node = Node::sealed(&[]);
    let archive = node.make_dir("archive");
    node.configure(&archive_by_cp(&archive));
    node.start();
    fill(&node, 20_000);
    let truth = node.sql(SUM);
    let mut ledger = Ledger::create(&node, 3);
    ledger.start(&node);
    let count = || node.sql("select count(*) from ledger").parse::<u64>().expect("a number");

    let mut copies = Vec::new();
    let before = count();
    copies.push((before, low_level_backup(&node, "by-cp", |dir| copy_tree(node.data(), dir))));
    let before = count();
    copies.push((
        before,
        low_level_backup(&node, "by-tar", |dir| {
            // 1: a file changed or went away while tar read it, as it does here.
            let script = "tar -C \"$1\" -cf \"$2.tar\" . 2>/dev/null || [ $? = 1 ]; \
                          mkdir -m 0700 \"$2\"; tar -C \"$2\" -xf \"$2.tar\"";
            node.succeed(&mut shell(&node, script, &[node.data(), dir]));
            assert_shows_nothing(dir.parent().expect("it has one"));
        }),
    ));
    ledger.join();
    archived(&node);
    ledger.check(&node);
    node.stop();
    assert_archive_sound(&node, &archive);
    for (before, dir) in copies {
        let name = format!("{}-restored", dir.file_name().expect("a name").to_string_lossy());
        let mut copy = recovered(&node, &dir, &name, &restore_by_cp(&archive), "");
        assert_eq!(copy.sql(SUM), truth);
        ledger.check_copy(&copy, before);
        // All that was archived was replayed.
        assert_eq!(
            copy.sql("select count(*) from ledger"),
            ledger.committed().to_string(),
            "{name}"
        );
        copy.sql("checkpoint");
        copy.stop();
        assert_sound(&copy, copy.data());
    }
}

/// A snapshot of the file system, taken without telling the server, has the state after a power
/// cut. Needs root, to mount a file system in a file.
#[test]
#[ignore = "long: make test-scenarios"]
fn snapshots_of_the_file_system_while_writing() {
    if !is_root() {
        not_applicable("snapshots_of_the_file_system_while_writing", "mounting needs root");
        return;
    }
    let mut node = Node::sealed(&[]);
    let mount = node.home().join("btrfs");
    let _mounted = Btrfs::mount(&mount);
    let volume = mount.join("volume");
    run("btrfs -q subvolume create \"$1\"", &[&volume]);
    copy_tree(node.data(), &volume.join("data"));
    node.set_data(&volume.join("data"));
    node.start();
    fill(&node, 10_000);
    let truth = node.sql(SUM);
    let mut ledger = Ledger::create(&node, 3);
    ledger.start(&node);
    let mut snapshots = Vec::new();
    for number in 0..3 {
        std::thread::sleep(std::time::Duration::from_millis(700));
        let before = node.sql("select count(*) from ledger").parse::<u64>().expect("a number");
        let snapshot = mount.join(format!("snapshot{number}"));
        run("btrfs -q subvolume snapshot \"$1\" \"$2\"", &[&volume, &snapshot]);
        snapshots.push((before, snapshot.join("data")));
    }
    ledger.join();
    ledger.check(&node);
    for (before, dir) in snapshots {
        assert_shows_nothing(&dir);
        fs::remove_file(dir.join("postmaster.pid")).expect("a running server has it");
        let mut copy = Node::at(&node, &dir);
        copy.start();
        assert_eq!(copy.sql(SUM), truth);
        ledger.check_copy(&copy, before);
        copy.stop();
        assert_sound(&copy, &dir);
    }
    node.stop();
    assert_sound(&node, node.data());
}
