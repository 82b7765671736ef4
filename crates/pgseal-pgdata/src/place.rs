//! The place of a file: which file of the cluster it is, wherever the cluster lies. A sealed file
//! carries its place in its header, so that it does not open in the place of another file
//! (`spec/sealed-file.md`, section 3.3).

use pgseal_core::Place;

use crate::class::Class;
use crate::classify::{classify, components};
use crate::names::{is_decimal, is_oid, is_version_directory};
use crate::policy::Policy;
use crate::tablespace::classify_in_tablespace;

/// The most components of a path: `pg_tblspc/OID/VERSION/pgsql_tmp/SET/FILE` has 6.
const MAX_PARTS: usize = 8;

/// The place of all WAL segments. PostgreSQL recycles segments under new names, and archives and
/// restores them under other names, so a segment is bound to being WAL and not to its name.
pub const WAL: Place = Place::literal(b"pg_wal/*");

/// The place of the file at `rel`, a path relative to the root of a data directory.
///
/// The place is the path in its final form: a temporary name (`.tmp`, `.PID`, the temporary
/// directory of a slot) counts as the name that PostgreSQL will rename it to. The number and
/// version of a tablespace are left out: a base backup may write the tablespace to a directory
/// whose path does not contain the number, and `pg_upgrade` changes the version. WAL, WAL summaries
/// and the statistics of extensions are bound only to their class, because their final name does
/// not follow from the path. Files that are not sealed and files that PostgreSQL does not know have
/// no place.
#[must_use]
pub fn place(rel: &[u8]) -> Place {
    locate(rel).1
}

/// The class and the place of a file: [`classify`] and [`place`] in one call.
#[must_use]
pub fn locate(rel: &[u8]) -> (Class, Place) {
    let mut parts: [&[u8]; MAX_PARTS] = [b""; MAX_PARTS];
    let class = classify(rel);
    let parts = components(rel, &mut parts).unwrap_or_default();
    (class, of_class(class, parts))
}

/// The class and the place of the file at `rel`, a path relative to the root of a tablespace, which
/// begins with the version directory. Equal to [`locate`] of `pg_tblspc/1/` followed by `rel`.
#[must_use]
pub fn locate_in_tablespace(rel: &[u8]) -> (Class, Place) {
    let mut parts: [&[u8]; MAX_PARTS] = [b""; MAX_PARTS];
    parts[0] = b"pg_tblspc";
    parts[1] = b"1";
    let class = classify_in_tablespace(rel);
    let count = components(rel, &mut parts[2..]).map_or(0, <[&[u8]]>::len);
    (class, of_class(class, parts.get(..2 + count).unwrap_or_default()))
}

fn of_class(class: Class, parts: &[&[u8]]) -> Place {
    if !matches!(class.policy(), Policy::Seal { .. }) {
        return Place::ANY;
    }
    match (class, parts) {
        (Class::Unknown, _) => Place::ANY,
        (Class::Wal, _) => WAL,
        (Class::WalSummary, _) => const { Place::literal(b"pg_wal/summaries/*") },
        (Class::Statistics, [b"pg_stat", b"pgstat.stat" | b"pgstat.tmp"]) => {
            const { Place::literal(b"pg_stat/pgstat.stat") }
        }
        (Class::Statistics, _) => const { Place::literal(b"pg_stat/*") },
        (_, parts) => canonical(class, parts)
            .or_else(|| Place::joined(&[class.name().as_bytes(), b"*"]))
            .unwrap_or(Place::ANY),
    }
}

/// The path in its final form, see [`place`]; `None` if it is too long.
fn canonical(class: Class, parts: &[&[u8]]) -> Option<Place> {
    let mut spelled: [&[u8]; MAX_PARTS] = [b""; MAX_PARTS];
    spelled.get_mut(..parts.len())?.copy_from_slice(parts);
    let parts = spelled.get_mut(..parts.len())?;
    if let [b"pg_replslot", slot, ..] = parts {
        *slot = without(slot, b".tmp");
    }
    if let [.., name] = parts {
        *name = final_name(class, name);
    }
    match parts {
        [b"pg_tblspc", oid, version, ..] if is_oid(oid) && is_version_directory(version) => {
            *version = b"*";
            *oid = b"pg_tblspc";
            Place::joined(parts.get(1..)?)
        }
        [version, ..] if is_version_directory(version) => {
            let inside = Place::joined(parts.get(1..)?)?;
            Place::joined(&[b"pg_tblspc", b"*", inside.as_bytes()])
        }
        _ => Place::joined(parts),
    }
}

/// The name of a file after PostgreSQL's rename.
fn final_name(class: Class, name: &[u8]) -> &[u8] {
    match class {
        // 0-1565AC8.snap.4711.tmp
        Class::LogicalSnapshot => match name.strip_suffix(b".tmp") {
            Some(name) => without_number(name),
            None => name,
        },
        // pg_internal.init.4711
        Class::RelcacheInit => without_number(name),
        _ => without(name, b".tmp"),
    }
}

fn without<'a>(name: &'a [u8], suffix: &[u8]) -> &'a [u8] {
    name.strip_suffix(suffix).unwrap_or(name)
}

/// The name without a last component of decimal digits.
fn without_number(name: &[u8]) -> &[u8] {
    match name.iter().rposition(|byte| *byte == b'.') {
        Some(at) if is_decimal(&name[at + 1..]) => &name[..at],
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TABLE;

    fn text(rel: &str) -> [u8; 128] {
        let mut text = [0; 128];
        let place = place(rel.as_bytes());
        text[..place.as_bytes().len()].copy_from_slice(place.as_bytes());
        text
    }

    #[track_caller]
    fn is(rel: &str, wanted: &str) {
        let place = place(rel.as_bytes());
        assert_eq!(core::str::from_utf8(place.as_bytes()).unwrap(), wanted, "{rel}");
    }

    #[test]
    fn files_are_bound_to_their_names() {
        for path in [
            "base/5/16384",
            "base/5/16384_vm.1",
            "base/5/t3_16384",
            "base/5/INCREMENTAL.16384",
            "global/1262",
            "global/pg_filenode.map",
            "base/5/pg_internal.init",
            "base/pgsql_tmp/pgsql_tmp4711.0",
            "base/pgsql_tmp/pgsql_tmp4711.0.fileset/o1of2.p0.0",
            "pg_xact/0000",
            "pg_multixact/offsets/0000",
            "pg_twophase/000002E1",
            "pg_replslot/standby1/state",
            "pg_replslot/slot1/xid-745-lsn-0-5000000.spill",
            "pg_logical/snapshots/0-1565AC8.snap",
            "pg_logical/mappings/map-5-4eb-0_1565AC8-2e7-2e7",
            "pg_logical/replorigin_checkpoint",
            "pg_snapshots/00000004-00000002-1",
            "pg_stat/pgstat.stat",
            "pg_stat/pg_stat_statements.stat",
            "pg_stat_tmp/pgss_query_texts.stat",
        ] {
            is(path, path);
        }
        is(".//base/./5/16384", "base/5/16384");
    }

    #[test]
    fn a_temporary_name_has_the_place_of_the_final_name() {
        is("global/pg_filenode.map.tmp", "global/pg_filenode.map");
        is("base/5/pg_internal.init.4711", "base/5/pg_internal.init");
        is("pg_replslot/standby1.tmp/state.tmp", "pg_replslot/standby1/state");
        is("pg_replslot/standby1/state.tmp", "pg_replslot/standby1/state");
        is("pg_logical/snapshots/0-1565AC8.snap.4711.tmp", "pg_logical/snapshots/0-1565AC8.snap");
        is("pg_logical/replorigin_checkpoint.tmp", "pg_logical/replorigin_checkpoint");
        is("pg_snapshots/00000004-00000002-1.tmp", "pg_snapshots/00000004-00000002-1");
        is("pg_stat/pgstat.tmp", "pg_stat/pgstat.stat");
        is("pg_stat/pg_stat_statements.stat.tmp", "pg_stat/pg_stat_statements.stat");
        is("pg_twophase/000002E1.tmp", "pg_twophase/000002E1");
        is("base/5/16384_vm.tmp", "base/5/16384_vm");
        is("pg_tblspc/16400/PG_15_202209061/5/16384.tmp", "pg_tblspc/*/5/16384");
    }

    #[test]
    fn wal_and_statistics_of_extensions_are_bound_to_their_class() {
        for path in
            ["pg_wal/000000010000000000000001", "pg_wal/xlogtemp.4711", "pg_wal/RECOVERYXLOG"]
        {
            is(path, "pg_wal/*");
        }
        is("pg_wal/summaries/temp.summary", "pg_wal/summaries/*");
        is("pg_stat/pg_qualstats.stat", "pg_stat/*");
    }

    #[test]
    fn the_number_and_version_of_a_tablespace_do_not_matter() {
        is("pg_tblspc/16400/PG_15_202209061/5/16384_fsm.1", "pg_tblspc/*/5/16384_fsm.1");
        is("pg_tblspc/16401/PG_18_202506291/5/16384_fsm.1", "pg_tblspc/*/5/16384_fsm.1");
        let (_, direct) = locate_in_tablespace(b"PG_15_202209061/5/16384_fsm.1");
        assert_eq!(direct, place(b"pg_tblspc/7/PG_15_202209061/5/16384_fsm.1"));
        assert_eq!(
            locate_in_tablespace(b"PG_15_202209061/pgsql_tmp/pgsql_tmp1.0").1.as_bytes(),
            b"pg_tblspc/*/pgsql_tmp/pgsql_tmp1.0"
        );
        assert!(locate_in_tablespace(b"PG_15_202209061/../5/16384").1.is_any());
        // A tablespace with its own keyring counts as the root of a data directory.
        for rel in ["PG_15_202209061/5/16384_fsm.1", "PG_15_202209061/pgsql_tmp/pgsql_tmp1.0"] {
            assert_eq!(locate(rel.as_bytes()), locate_in_tablespace(rel.as_bytes()), "{rel}");
        }
    }

    #[test]
    fn a_file_that_is_not_sealed_has_no_place() {
        for path in ["postgresql.conf", "global/pg_control", "notes.txt", "base/5/../5/16384", ""] {
            is(path, "");
        }
        for row in &TABLE {
            let sealed = matches!(row.policy, Policy::Seal { .. }) && row.class != Class::Unknown;
            assert_eq!(!place(row.example.as_bytes()).is_any(), sealed, "{}", row.example);
        }
    }

    #[test]
    fn files_with_different_numbers_have_different_places() {
        for (one, other) in [
            ("base/5/16384", "base/5/16385"),
            ("base/5/16384", "base/6/16384"),
            ("base/5/16384", "base/5/16384.1"),
            ("base/5/16384", "base/5/16384_vm"),
            ("base/5/16384", "base/5/t3_16384"),
            ("base/5/16384", "pg_tblspc/1/PG_15_202209061/5/16384"),
            ("global/1262", "base/1/1262"),
            ("pg_xact/0000", "pg_subtrans/0000"),
            ("pg_multixact/offsets/0000", "pg_multixact/members/0000"),
            ("base/1/pg_filenode.map", "base/5/pg_filenode.map"),
        ] {
            assert_ne!(text(one), text(other), "{one} {other}");
        }
    }

    #[test]
    fn a_file_whose_name_is_too_long_is_bound_to_its_class() {
        let mut path = [b'x'; 160];
        path[..15].copy_from_slice(b"base/pgsql_tmp/");
        assert_eq!(place(&path).as_bytes(), b"temp-file/*");
    }
}
