//! `pgseal verify`: what is sound, what is not, and that each finding is reported.

mod common;

use std::fs;

use common::{Answer, Fixture, RELATION, STATISTICS, WAL};
use pgseal_core::geometry::{block_sealed_off, tag_entry_off};
use pgseal_core::{BlockNo, DataKey, FileKind, Generation, Layout};

/// The file, kind and failure of each finding.
fn kinds(fixture: &Fixture) -> Vec<(String, String, bool)> {
    let json = fixture.on_data(&["verify", "--json"]).json();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or("not a text").to_owned();
    let findings = json["findings"].as_array().into_iter().flatten();
    findings
        .map(|found| (text(&found["file"]), text(&found["what"]), found["failure"] == true))
        .collect()
}

fn some_key() -> DataKey {
    let filled = DataKey::init_with(|key| {
        key.fill(9);
        Ok::<(), std::convert::Infallible>(())
    });
    match filled {
        Ok(key) => key,
    }
}

#[track_caller]
fn fails_as(fixture: &Fixture, file: &str, what: &str) {
    assert_eq!(kinds(fixture), [(file.to_owned(), what.to_owned(), true)]);
    let answer = fixture.on_data(&["verify"]);
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.out.contains(&format!("FAILED  {file}: ")), "{answer:?}");
}

#[test]
fn a_sound_directory() {
    let fixture = Fixture::sealed();
    let answer = fixture.on_data(&["verify"]);
    assert_eq!(answer.code, 0, "{answer:?}");
    assert!(answer.out.contains("wal: encrypted, not authenticated"), "{answer:?}");
    assert!(answer.out.ends_with("Sound.\n"));
    let json = fixture.on_data(&["verify", "--json"]).json();
    assert_eq!(json["sound"], true);
    assert_eq!(json["blocks"]["authenticated"], 3 + 3);
    assert_eq!(json["blocks"]["not_authenticated"], 4);
    assert_eq!(json["files"]["sealed"], 3);
    assert!(fixture.on_data(&["verify", "--quiet"]).out.is_empty());
}

#[test]
fn a_flipped_bit_in_each_authenticated_layout() {
    for (rel, layout) in [(RELATION, Layout::Paged), (STATISTICS, Layout::Stream)] {
        let fixture = Fixture::sealed();
        let at = block_sealed_off(layout, BlockNo(1)).0 as usize + 4000;
        fixture.damage(rel, |bytes| bytes[at] ^= 4);
        fails_as(&fixture, rel, "damaged-blocks");
        let json = fixture.on_data(&["verify", "--json"]).json();
        assert_eq!(json["findings"][0]["blocks"], serde_json::json!([[1, 1]]));
    }
}

#[test]
fn a_flipped_bit_in_a_header() {
    for rel in [RELATION, STATISTICS, WAL] {
        let fixture = Fixture::sealed();
        fixture.damage(rel, |bytes| bytes[100] ^= 1);
        fails_as(&fixture, rel, "bad-header");
    }
}

#[test]
fn two_pages_exchanged_with_their_tags() {
    let fixture = Fixture::sealed();
    fixture.damage(RELATION, |bytes| {
        for (a, b, len) in [
            (
                block_sealed_off(Layout::Paged, BlockNo(0)),
                block_sealed_off(Layout::Paged, BlockNo(1)),
                8192,
            ),
            (tag_entry_off(BlockNo(0)), tag_entry_off(BlockNo(1)), 32),
        ] {
            for index in 0..len {
                bytes.swap(a.0 as usize + index, b.0 as usize + index);
            }
        }
    });
    fails_as(&fixture, RELATION, "damaged-blocks");
}

#[test]
fn a_wiped_page_is_damage_and_a_hole_is_not() {
    let fixture = Fixture::sealed();
    let page = block_sealed_off(Layout::Paged, BlockNo(2)).0 as usize;
    fixture.damage(RELATION, |bytes| bytes[page..page + 8192].fill(0));
    fails_as(&fixture, RELATION, "damaged-blocks");

    let fixture = Fixture::sealed();
    fixture.damage(RELATION, |bytes| bytes.resize(bytes.len() + 2 * 8192, 0));
    let answer = fixture.on_data(&["verify", "--list"]);
    assert_eq!(answer.code, 0);
    assert!(answer.out.contains(&format!("zero    {RELATION}: 3-4\n")), "{answer:?}");
}

#[test]
fn lengths_that_no_server_leaves() {
    let fixture = Fixture::sealed();
    fixture.damage(RELATION, |bytes| bytes.truncate(bytes.len() - 100));
    let found = kinds(&fixture);
    assert!(found.contains(&(RELATION.to_owned(), "damaged-blocks".to_owned(), true)), "{found:?}");
    let fixture = Fixture::sealed();
    fixture.damage(STATISTICS, |bytes| bytes.truncate(8192 + 2 * 8220 + 20));
    fails_as(&fixture, STATISTICS, "odd-length");
}

#[test]
fn a_lost_header() {
    let fixture = Fixture::sealed();
    fixture.damage(RELATION, |bytes| bytes[..8192].fill(0));
    fails_as(&fixture, RELATION, "header-lost");
    let fixture = Fixture::sealed();
    fixture.damage(RELATION, |bytes| bytes.truncate(100));
    assert_eq!(kinds(&fixture), [], "a header that never reached the disk is an empty file");
}

/// Damage in maps that PostgreSQL rebuilds, and in unfinished files, is named and is no failure.
#[test]
fn what_postgresql_rebuilds_does_not_matter() {
    let (vm, temporary) = ("base/5/16384_vm", "base/5/pg_internal.init.4711");
    for (what, change) in [
        ("header-lost", (|bytes| bytes[..8192].fill(0)) as fn(&mut Vec<u8>)),
        ("bad-header", |bytes| bytes[100] ^= 1),
        ("damaged-blocks", |bytes| bytes[8192 + 2] ^= 1),
    ] {
        let fixture = Fixture::sealed();
        fixture.seal(vm, FileKind::Relation, &[1; 8192]);
        fixture.seal(temporary, FileKind::Stream, &[1; 9000]);
        fixture.damage(vm, change);
        fixture.damage(temporary, change);
        let found = [vm, temporary].map(|file| (file.to_owned(), what.to_owned(), false));
        assert_eq!(kinds(&fixture), found);
        let json = fixture.on_data(&["verify", "--json"]).json();
        assert_eq!((&json["sound"], &json["files"]["rebuilt"]), (&true.into(), &2.into()));
        assert_eq!(json["findings"][0]["rebuilt"], true);
        let answer = fixture.on_data(&["verify"]);
        assert_eq!(answer.code, 0, "{answer:?}");
        assert!(answer.out.contains(&format!("note    {vm}: ")), "{answer:?}");
        assert!(answer.out.contains("somebody changed them\nSound.\n"), "{answer:?}");

        // It does not count beside damage that matters.
        fixture.damage(RELATION, |bytes| bytes[100] ^= 1);
        let answer = fixture.on_data(&["verify"]);
        assert_eq!(answer.code, 1, "{answer:?}");
        assert!(answer.out.contains("NOT SOUND: 1 failure"), "{answer:?}");
    }
}

#[test]
fn a_plain_file_where_a_sealed_one_must_be() {
    let fixture = Fixture::sealed();
    fixture.write("base/5/16385", &[1; 8192]);
    fails_as(&fixture, "base/5/16385", "plain-in-sealed-class");
    let fixture = Fixture::sealed();
    fixture.write("base/5/notes.txt", b"by an administrator");
    assert_eq!(
        kinds(&fixture),
        [("base/5/notes.txt".to_owned(), "plain-accepted".to_owned(), false)]
    );
    assert_eq!(fixture.on_data(&["verify"]).code, 0);
}

#[test]
fn a_file_of_another_cluster() {
    let (ours, theirs) = (Fixture::sealed(), Fixture::sealed());
    fs::copy(theirs.file(RELATION), ours.file("base/5/16399")).unwrap();
    fails_as(&ours, "base/5/16399", "other-keyring");
}

#[test]
fn a_generation_that_the_keyring_does_not_have() {
    let fixture = Fixture::sealed();
    let mut keys = fixture.keys();
    keys.insert(Generation(5), some_key());
    fixture.seal_with(RELATION, FileKind::Relation, &[1; 8192], &keys, Some(Generation(5)));
    fails_as(&fixture, RELATION, "unknown-generation");
}

#[test]
fn temporary_files_of_a_dead_server_are_counted_and_no_failure() {
    let fixture = Fixture::sealed();
    fs::create_dir(fixture.file("base/pgsql_tmp")).unwrap();
    let mut keys = fixture.keys();
    keys.insert(Generation::EPHEMERAL, some_key());
    let (rel, generation) = ("base/pgsql_tmp/pgsql_tmp12.0", Some(Generation::EPHEMERAL));
    fixture.seal_with(rel, FileKind::Stream, &[1; 9000], &keys, generation);
    let json = fixture.on_data(&["verify", "--json"]).json();
    assert_eq!((&json["sound"], &json["files"]["ephemeral"]), (&true.into(), &1.into()));
}

#[test]
fn memory_files_and_dangling_links() {
    let fixture = Fixture::sealed();
    fs::create_dir(fixture.file("pg_dynshmem")).unwrap();
    fixture.write("pg_dynshmem/mmap.123", b"rows");
    fails_as(&fixture, "pg_dynshmem/mmap.123", "forbidden");
    let fixture = Fixture::sealed();
    std::os::unix::fs::symlink("/nowhere/at/all", fixture.file("pg_tblspc/16400")).unwrap();
    fails_as(&fixture, "pg_tblspc/16400", "dangling");
}

#[test]
fn tablespaces_are_followed() {
    let fixture = Fixture::sealed();
    let inside = fixture.path("ts/PG_15_202209061/5");
    fs::create_dir_all(&inside).unwrap();
    std::os::unix::fs::symlink(fixture.path("ts"), fixture.file("pg_tblspc/16400")).unwrap();
    let relation = "pg_tblspc/16400/PG_15_202209061/5/16401";
    fixture.seal(relation, FileKind::Relation, &[1; 8192]);
    assert_eq!(fixture.on_data(&["verify", "--json"]).json()["files"]["sealed"], 4);
    fs::write(inside.join("16402"), [3; 8192]).unwrap();
    fails_as(&fixture, "pg_tblspc/16400/PG_15_202209061/5/16402", "plain-in-sealed-class");
}

#[test]
fn a_file_at_the_place_of_another_is_named() {
    for (file, place) in [
        (RELATION, "base/5/16385"),
        (RELATION, "base/6/16384"),
        (RELATION, STATISTICS),
        (STATISTICS, RELATION),
        (WAL, RELATION),
    ] {
        let fixture = Fixture::sealed();
        fs::create_dir_all(fixture.file(place).parent().unwrap()).unwrap();
        fs::copy(fixture.file(file), fixture.file(place)).unwrap();
        fails_as(&fixture, place, "misplaced");
        let whose = if file == WAL { "pg_wal/*" } else { file };
        let text = fixture.on_data(&["verify"]).out;
        assert!(text.contains(&format!("the file of \"{whose}\": somebody put it here")), "{text}");
    }
    // The place is right, but the suite is another one, or holes are allowed where there are none.
    let fixture = Fixture::sealed();
    fs::create_dir(fixture.file("pg_xact")).unwrap();
    fixture.seal("pg_xact/0000", FileKind::Stream, &[1; 8192]);
    fails_as(&fixture, "pg_xact/0000", "misplaced");
}

#[test]
fn a_copy_with_its_keyring_elsewhere_and_an_archive() {
    let fixture = Fixture::sealed();
    fs::rename(fixture.file("pgseal/keyring"), fixture.path("keyring")).unwrap();
    fixture.on_data(&["verify"]).fails_with(16, "no keyring");
    assert_eq!(fixture.on_data(&["verify", "--keyring", "keyring"]).code, 0);

    fs::create_dir(fixture.path("archive")).unwrap();
    let segment = fixture.path("archive/000000010000000000000001");
    fs::copy(fixture.file(WAL), &segment).unwrap();
    fixture.run(&["verify", "archive"]).fails_with(3, "--keyring");
    let verify = || fixture.run(&["verify", "--json", "--keyring", "keyring", "archive"]);
    assert_eq!(verify().json()["blocks"]["not_authenticated"], 4);
    fs::write(fixture.path("archive/000000010000000000000002"), [1; 8192]).unwrap();
    let answer: Answer = verify();
    assert_eq!(
        (answer.code, &answer.json()["findings"][0]["what"]),
        (1, &"plain-in-sealed-class".into())
    );
}

#[test]
fn the_result_is_the_same_with_any_number_of_threads() {
    let fixture = Fixture::sealed();
    for number in 0..20 {
        fixture.seal(&format!("base/5/{}", 20000 + number), FileKind::Relation, &[7; 8192]);
    }
    fixture.damage("base/5/20007", |bytes| bytes[17_000] ^= 1);
    let one = fixture.on_data(&["verify", "--json", "--jobs", "1"]);
    let many = fixture.on_data(&["verify", "--json", "--jobs", "7"]);
    assert_eq!((one.code, &one.out), (1, &many.out));
}

/// Files that a power cut leaves of commands of pgseal are named, and are no damage.
#[test]
fn leftovers_of_commands_are_harmless() {
    let fixture = Fixture::sealed();
    let keyring = fs::read(fixture.file("pgseal/keyring")).unwrap();
    let whole = "pgseal/keyring.new.0123456789abcdef";
    fixture.write(whole, &keyring);
    for (rel, bytes) in [
        ("pgseal/keyring.new.fedcba9876543210", &b""[..]),
        ("pgseal/escrow.json.new.4711", &[0; 100]),
        // No byte of the file was synced, neither header nor blocks.
        ("base/5/16385.pgseal-new", &[0; 5 * 8192]),
        ("postgresql.conf.pgseal-new", b"port = "),
        ("PG_VERSION.pgseal-new", b""),
        ("postmaster.pid.pgseal-new", &[0; 30]),
    ] {
        fixture.write(rel, bytes);
    }
    let found = kinds(&fixture);
    assert!(found.iter().all(|(_, what, failure)| what == "leftover" && !failure), "{found:?}");
    assert_eq!(found.len(), 7, "{found:?}");
    let answer = fixture.on_data(&["verify"]);
    assert_eq!(answer.code, 0, "{answer:?}");
    assert!(answer.out.contains(&format!("note    {whole}: ")), "{answer:?}");
    let status = fixture.on_data(&["status", "--json"]).json();
    assert_eq!(status["leftovers"].as_array().map(Vec::len), Some(7), "{status}");
    assert_eq!(status["problems"].as_array().map(Vec::len), Some(0), "{status}");
    let status = fixture.on_data(&["status"]);
    assert!(status.out.contains("Left over:\n  PG_VERSION.pgseal-new: "), "{status:?}");

    // A plain part of a table shows rows: it is not harmless.
    fixture.write("base/5/16386.pgseal-new", b"rows");
    assert!(kinds(&fixture).iter().any(|(_, what, _)| what == "plain-accepted"));
    fs::remove_file(fixture.file("base/5/16386.pgseal-new")).unwrap();

    // The next command that writes the keyring removes such files.
    let data = fixture.data();
    fixture.ok(&["key", "new", "-o", "next"]);
    let next = format!("file:{}", fixture.path("next").display());
    fixture.ok(&["key", "rotate", data.to_str().unwrap(), "-K", &next]);
    let names: Vec<String> = kinds(&fixture).into_iter().map(|(file, ..)| file).collect();
    assert!(!names.iter().any(|name| name.contains("keyring.new")), "{names:?}");
    assert_eq!(names.len(), 5, "{names:?}");
}

/// A relation of 20 pieces, and which of its blocks a run looked at.
fn looked_at(fixture: &Fixture, options: &[&str]) -> (u64, u64) {
    let json = fixture.on_data(&[&["verify", "--json"], options].concat()).json();
    let number = |name: &str| json["blocks"][name].as_u64().unwrap_or_default();
    (number("authenticated"), number("skipped"))
}

#[test]
fn a_sample_looks_at_another_part_each_time_and_at_every_header() {
    let fixture = Fixture::sealed();
    fixture.seal("base/5/30000", FileKind::Relation, &vec![0x61; 20 * 256 * 8192]);
    let whole = looked_at(&fixture, &[]);
    assert_eq!(whole, (20 * 256 + 6, 0));
    assert_eq!(looked_at(&fixture, &["--sample", "100%"]), whole);
    let mut parts = std::collections::BTreeSet::new();
    for _ in 0..12 {
        let (seen, skipped) = looked_at(&fixture, &["--sample", "50%"]);
        // The four blocks of WAL are not authenticated, and may be skipped, too.
        assert!((whole.0..=whole.0 + 4).contains(&(seen + skipped)) && seen < whole.0);
        parts.insert(seen);
    }
    // That 12 runs choose the same number has a probability below 10^-8.
    assert!(parts.len() > 1, "{parts:?}");
    let said = fixture.on_data(&["verify", "--sample", "50%"]).out;
    assert!(said.contains("Sound, as far as it was checked: a random sample of 50 %"), "{said}");

    // A changed block is found by runs that look at it, and by no other.
    let at = block_sealed_off(Layout::Paged, BlockNo(300)).0 as usize;
    fixture.damage("base/5/30000", |bytes| bytes[at + 9] ^= 1);
    let codes: Vec<i32> =
        (0..40).map(|_| fixture.on_data(&["verify", "--sample", "50%"]).code).collect();
    assert!(codes.contains(&0) && codes.contains(&1), "{codes:?}");
    // Headers are always checked.
    fixture.damage("base/5/30000", |bytes| bytes[100] ^= 1);
    fixture.on_data(&["verify", "--sample", "0.001%", "--json"]).json();
    assert_eq!(fixture.on_data(&["verify", "--sample", "0.001%"]).code, 1);
}

#[test]
fn since_looks_at_changed_files_only() {
    let fixture = Fixture::sealed();
    assert_eq!(looked_at(&fixture, &["--since", "1h"]), (6, 0));
    assert_eq!(looked_at(&fixture, &["--since", "2999-01-01"]), (0, 10));
    fixture.on_data(&["verify", "--since", "soon"]).fails_with(2, "\"soon\" is no time");
    fixture.on_data(&["verify", "--since", "last"]).fails_with(2, "no sound check");
    let state = fixture.path("state");
    fs::create_dir(&state).unwrap();
    let with_state = |args: &[&str]| {
        let mut command = fixture.pgseal();
        command.env("PGSEAL_STATE_DIR", &state).args(args).arg(fixture.data());
        Answer::of(command.output().unwrap())
    };
    // A file that changed in the second in which a check began counts as changed after it.
    std::thread::sleep(std::time::Duration::from_millis(2100));
    assert_eq!(with_state(&["verify"]).code, 0);
    let json = with_state(&["verify", "--since", "last", "--json"]).json();
    assert_eq!(json["blocks"]["skipped"], 10);
    // Copied over itself with its old time: the kernel's own time of the change counts.
    let touched = std::process::Command::new("touch")
        .args(["-d", "2001-01-01"])
        .arg(fixture.file(RELATION))
        .status();
    assert!(touched.unwrap().success());
    let json = with_state(&["verify", "--since", "last", "--json"]).json();
    assert_eq!(
        (&json["blocks"]["skipped"], &json["blocks"]["authenticated"]),
        (&7.into(), &3.into())
    );
}
