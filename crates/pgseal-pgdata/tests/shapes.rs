//! Names that look alike, and paths written in unusual ways.

use pgseal_pgdata::{Class, Fork, classify, classify_in_tablespace, tablespace_relative};

fn relation(fork: Fork, temporary: bool) -> Class {
    Class::Relation { fork, temporary }
}

#[test]
fn relation_names() {
    let cases: [(&str, Class); 14] = [
        ("16384", relation(Fork::Main, false)),
        ("1", relation(Fork::Main, false)),
        ("4294967295.131071", relation(Fork::Main, false)),
        ("16384.1", relation(Fork::Main, false)),
        ("16384_fsm", relation(Fork::Fsm, false)),
        ("16384_fsm.1", relation(Fork::Fsm, false)),
        ("16384_vm.2", relation(Fork::Vm, false)),
        ("16384_init", relation(Fork::Init, false)),
        ("16384_init.1", relation(Fork::Init, false)),
        ("t3_16384", relation(Fork::Main, true)),
        ("t0_16384", relation(Fork::Main, true)),
        ("t12_16384.1", relation(Fork::Main, true)),
        ("t3_16384_fsm.1", relation(Fork::Fsm, true)),
        ("t3_16384_vm", relation(Fork::Vm, true)),
    ];
    for (name, class) in cases {
        for directory in ["base/5", "global", "pg_tblspc/16400/PG_15_202209061/5"] {
            let path = format!("{directory}/{name}");
            assert_eq!(classify(path.as_bytes()), class, "{path}");
        }
    }
}

#[test]
fn names_that_are_not_relations() {
    for name in [
        "",
        "0",
        "016384",
        "16384.",
        "16384.0",
        "16384.01",
        "16384.x",
        "16384_",
        "16384_foo",
        "16384_fsm_vm",
        "16384_fsmx",
        "16384fsm",
        "_fsm",
        "t16384",
        "t_16384",
        "t3_",
        "t3",
        "tx_16384",
        "t3_t3_16384",
        "12345678901",
        "16384~",
        "-1",
        "+1",
        "16384 ",
        "INCREMENTAL.",
        "INCREMENTAL.x",
        "INCREMENTAL.INCREMENTAL.1",
        "pg_internal.init.",
        "pg_internal.init.x",
        "pg_filenode.map.bak",
        "PG_VERSION.old",
        "16384\n",
    ] {
        let path = format!("base/5/{name}");
        assert_eq!(classify(path.as_bytes()), Class::Unknown, "{path:?}");
    }
}

/// A directory may have the name of a configuration file, and files of any kind may lie in it.
#[test]
fn only_the_last_component_makes_a_configuration_file() {
    for deep in 0..12 {
        let dirs = "d/".repeat(deep);
        for (name, class) in [("a.conf", Class::Config), ("a.conf/rows", Class::Unknown)] {
            let path = format!("mine/{dirs}{name}");
            assert_eq!(classify(path.as_bytes()), class, "{path}");
        }
    }
}

#[test]
fn names_similar_to_known_ones_are_unknown() {
    for path in [
        "",
        ".",
        "/",
        "base",
        "base/5",
        "base/x/16384",
        "base/05/16384",
        "base/5/1/16384",
        "base/pgsql_tmp",
        "global/5/16384",
        "pg_control",
        "base/5/pg_control",
        "pg_tblspc/x",
        "pg_tblspc/16400/16384",
        "pg_tblspc/16400/PG_15/5/16384",
        "pg_tblspc/16400/PG_15_x/5/16384",
        "pg_tblspc/16400/PG_15_202209061/pgsql_tmp",
        "pg_wal/00000001000000000000000",
        "pg_wal/0000000100000000000000010",
        "pg_wal/00000001000000000000000g",
        "pg_wal/00000001000000000000000a",
        "pg_wal/000000010000000000000001.gz",
        "pg_wal/0000002.history",
        "pg_wal/00000002.history.bak",
        "pg_wal/xlogtemp.",
        "pg_wal/xlogtemp.x",
        "pg_wal/summaries/1.summary",
        "pg_xact/000",
        "pg_xact/0000000",
        "pg_xact/000g",
        "pg_multixact/0000",
        "pg_multixact/other/0000",
        "pg_twophase/000002E",
        "pg_replslot/slot",
        "pg_replslot/slot/other",
        "pg_logical/other",
        "pg_dynshmem/other",
        "pg_wal/notes.conf",
        "base/notes.log",
        "global/server.key",
        "some/deep/notes.log",
        "notes.txt",
        "some/server.key",
        "pg_upgrade_output.d/20260131T000000.000/dump/pg_upgrade_dump_globals.sql",
        "pg_upgrade_output.d/20260131T000000.000/dump/loadable_libraries.txt",
        "pg_upgrade_output.d/loadable_libraries.txt",
    ] {
        assert_eq!(classify(path.as_bytes()), Class::Unknown, "{path}");
    }
}

#[test]
fn unusual_spellings_make_no_difference() {
    let same = [
        ("./base/5/16384", "base/5/16384"),
        ("/base/5/16384", "base/5/16384"),
        ("base//5/./16384/", "base/5/16384"),
        (".//.//PG_VERSION", "PG_VERSION"),
        ("./pg_wal//archive_status/x.ready", "pg_wal/archive_status/x.ready"),
    ];
    for (odd, plain) in same {
        assert_ne!(classify(plain.as_bytes()), Class::Unknown, "{plain}");
        assert_eq!(classify(odd.as_bytes()), classify(plain.as_bytes()), "{odd}");
    }
}

#[test]
fn dot_dot_is_unknown_wherever_it_stands() {
    for path in ["..", "../PG_VERSION", "base/../PG_VERSION", "log/../base/5/16384", "pgseal/.."] {
        assert_eq!(classify(path.as_bytes()), Class::Unknown, "{path}");
    }
    let deep = format!("log/{}../base", "d/".repeat(40));
    assert_eq!(classify(deep.as_bytes()), Class::Unknown);
    // A name that only begins with two dots is an ordinary name.
    assert_eq!(classify(b"log/..x"), Class::ServerLog);
}

#[test]
fn deep_paths_are_not_taken_for_shallow_ones() {
    let deep = "/x".repeat(40);
    assert_eq!(classify(format!("base/5{deep}/16384").as_bytes()), Class::Unknown);
    assert_eq!(classify(format!("base/pgsql_tmp{deep}").as_bytes()), Class::TempFile);
    assert_eq!(classify(format!("pgseal{deep}").as_bytes()), Class::Own);
}

#[test]
fn any_bytes_are_classified() {
    assert_eq!(classify(b"base/5/\xff\xfe"), Class::Unknown);
    assert_eq!(classify(b"log/\xff.log"), Class::ServerLog);
    assert_eq!(classify(&[0; 4096]), Class::Unknown);
}

#[test]
fn tablespaces_by_their_real_path() {
    let cases: [(&str, &str, Class); 6] = [
        ("/srv/fast/", "PG_15_202209061/5/16384_vm.1", relation(Fork::Vm, false)),
        ("/", "PG_18_202506291/5/t3_16384", relation(Fork::Main, true)),
        ("/srv/PG_15_202209061/5/x/", "PG_15_202209061/5/PG_VERSION", Class::Version),
        ("/srv/fast/", "PG_15_202209061//pgsql_tmp/pgsql_tmp9.0.sharedfileset/o1of1.p0.0", {
            Class::TempFile
        }),
        ("/srv//fast/./", "PG_17_202406281/5/pg_filenode.map", Class::RelationMap),
        ("/srv/fast/", "PG_17_202406281/5/../../secret", Class::Unknown),
    ];
    for (root, inside, class) in cases {
        let path = format!("{root}{inside}");
        let root_len = tablespace_relative(path.as_bytes());
        assert_eq!(root_len, Some(root.len()), "{path}");
        assert_eq!(classify_in_tablespace(inside.as_bytes()), class, "{path}");
        let below_link = format!("pg_tblspc/1/{inside}");
        assert_eq!(classify(below_link.as_bytes()), class, "{below_link}");
    }
}

#[test]
fn paths_that_go_through_no_tablespace() {
    for path in [
        "",
        "PG_15_202209061/5/16384",
        "/srv/PG_15_202209061",
        "/srv/PG_15_202209061/",
        "/srv/PG_15_202209061/notes/16384",
        "/srv/PG_15/5/16384",
        "/srv/PG__202209061/5/16384",
        "/srv/xPG_15_202209061/5/16384",
        "/home/me/PG_15_1/../5/16384",
    ] {
        assert_eq!(tablespace_relative(path.as_bytes()), None, "{path}");
    }
    assert_eq!(classify_in_tablespace(b"fast/5/16384"), Class::Unknown);
    assert_eq!(classify_in_tablespace(b""), Class::Unknown);
}
