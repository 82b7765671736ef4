//! The class of a file, from its path inside a data directory.

use crate::class::Class;
use crate::names::{
    in_wal, is_config, is_decimal, is_hex, is_oid, is_slru_segment, is_tls, is_two_phase,
    is_version_directory, relation,
};
use crate::policy::Policy;

/// The directories that initdb makes (`subdirs`, `src/bin/initdb/initdb.c`), and pgseal's.
const OWN_DIRECTORIES: [&[u8]; 18] = [
    b"base",
    b"global",
    b"pg_commit_ts",
    b"pg_dynshmem",
    b"pg_logical",
    b"pg_multixact",
    b"pg_notify",
    b"pg_replslot",
    b"pg_serial",
    b"pg_snapshots",
    b"pg_stat",
    b"pg_stat_tmp",
    b"pg_subtrans",
    b"pg_tblspc",
    b"pg_twophase",
    b"pg_wal",
    b"pg_xact",
    b"pgseal",
];

/// The most components of a path that are looked at; the class of PostgreSQL's own files never
/// depends on more.
const MAX_PARTS: usize = 8;

/// The class of the file at `rel`, a path relative to the root of a data directory.
///
/// `./`, `//` and a trailing slash make no difference. A path with a `..` component is
/// [`Class::Unknown`]: only the kernel knows where it leads.
#[must_use]
pub fn classify(rel: &[u8]) -> Class {
    let mut parts: [&[u8]; MAX_PARTS] = [b""; MAX_PARTS];
    match components(rel, &mut parts) {
        Some([name]) => in_root(name),
        Some([directory, rest @ ..]) => or_in_the_making(rest, |rest| below(directory, rest)),
        _ => Class::Unknown,
    }
}

/// The components of a path without empty ones and `.`. If there are more than fit in `parts`, the
/// first ones and the last one. `None` if a component is `..`.
pub(crate) fn components<'a, 'p>(
    rel: &'p [u8],
    parts: &'a mut [&'p [u8]],
) -> Option<&'a [&'p [u8]]> {
    let mut count = 0;
    for part in rel.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => return None,
            _ => {
                count = parts.len().min(count + 1);
                *parts.get_mut(count.checked_sub(1)?)? = part;
            }
        }
    }
    parts.get(..count)
}

/// The class of a file in the root itself.
fn in_root(name: &[u8]) -> Class {
    match name {
        // pg_upgrade makes files with the other names to test whether the file system can link,
        // clone and copy as asked.
        b"PG_VERSION"
        | b"PG_VERSION.linktest"
        | b"PG_VERSION.clonetest"
        | b"PG_VERSION.copytest" => Class::Version,
        b"postmaster.pid" | b"postmaster.opts" | b"promote" | b"logrotate" => Class::Postmaster,
        b"backup_label"
        | b"backup_label.old"
        | b"tablespace_map"
        | b"tablespace_map.old"
        | b"backup_manifest"
        | b"backup_manifest.tmp" => Class::BackupLabel,
        b"current_logfiles" | b"current_logfiles.tmp" => Class::ServerLog,
        _ if name.starts_with(b".s.PGSQL.") => Class::Postmaster,
        _ if is_config(name) => Class::Config,
        _ if is_tls(name) => Class::TlsFile,
        _ if name.ends_with(b".log") => Class::ServerLog,
        _ => Class::Unknown,
    }
}

/// The class for the components of a path. A name with `.tmp` that has no class gets the class of
/// the name without `.tmp`, if files of that class are sealed: PostgreSQL writes such a file and
/// then renames it, and a minor release may begin to do so (15.20: `pg_twophase/000002E1.tmp`).
pub(crate) fn or_in_the_making(parts: &[&[u8]], class_of: impl Fn(&[&[u8]]) -> Class) -> Class {
    let class = class_of(parts);
    let mut renamed: [&[u8]; MAX_PARTS] = [b""; MAX_PARTS];
    let Some(renamed) = renamed.get_mut(..parts.len()).filter(|_| class == Class::Unknown) else {
        return class;
    };
    renamed.copy_from_slice(parts);
    let Some(name) = renamed.last_mut() else { return class };
    let Some(stem) = name.strip_suffix(b".tmp") else { return class };
    *name = stem;
    let renamed = class_of(renamed);
    if matches!(renamed.policy(), Policy::Seal { .. }) { renamed } else { class }
}

/// The class of a file below a directory of the root; `rest` has at least one component.
fn below(directory: &[u8], rest: &[&[u8]]) -> Class {
    match (directory, rest) {
        (b"base", [b"pgsql_tmp", _, ..]) => Class::TempFile,
        (b"base", [database, name]) if is_oid(database) => in_database(name),
        // pgBackRest restores it under the second name.
        (b"global", [b"pg_control" | b"pg_control.pgbackrest.tmp"]) => Class::Control,
        (b"global", [b"PG_VERSION"]) => Class::Unknown,
        (b"global", [name]) => in_database(name),
        (b"pg_tblspc", [oid]) if is_oid(oid) => Class::TablespaceLink,
        (b"pg_tblspc", [oid, version, inside @ ..])
            if is_oid(oid) && is_version_directory(version) =>
        {
            in_tablespace(inside)
        }
        (b"pg_wal", [b"archive_status", _]) => Class::ArchiveStatus,
        (b"pg_wal", [b"summaries", name]) if is_summary(name) => Class::WalSummary,
        (b"pg_wal", [name]) => in_wal(name),
        (
            b"pg_xact" | b"pg_subtrans" | b"pg_commit_ts" | b"pg_serial" | b"pg_notify",
            [segment],
        )
        | (b"pg_multixact", [b"offsets" | b"members", segment])
            if is_slru_segment(segment) =>
        {
            Class::Slru
        }
        (b"pg_twophase", [name]) if is_two_phase(name) => Class::TwoPhase,
        (b"pg_replslot", [_, b"state"]) => Class::ReplicationSlotState,
        (b"pg_replslot", [_, name])
            if name.starts_with(b"xid-")
                || name.ends_with(b".spill")
                || name.ends_with(b".snap") =>
        {
            Class::LogicalSpill
        }
        (b"pg_logical", [b"snapshots", _]) => Class::LogicalSnapshot,
        (b"pg_logical", [b"mappings", _]) => Class::LogicalMapping,
        (b"pg_logical", [b"replorigin_checkpoint"]) => Class::ReplicationOrigin,
        (b"pg_snapshots", [_]) => Class::ExportedSnapshot,
        // Everything else in pg_stat is statistics, also under a name with `.tmp`.
        (b"pg_stat_tmp", [b"pgss_query_texts.stat"])
        | (b"pg_stat", [b"pg_stat_statements.stat" | b"pg_stat_statements.stat.tmp"]) => {
            Class::StatementTexts
        }
        (b"pg_stat" | b"pg_stat_tmp", _) => Class::Statistics,
        (b"pg_dynshmem", [name]) if name.starts_with(b"mmap.") => Class::DynamicSharedMemory,
        (b"pgseal", _) => Class::Own,
        (b"log" | b"pg_log", _) => Class::ServerLog,
        // The root is a tablespace with a keyring of its own, into which the tar file of a base
        // backup is unpacked.
        (version, inside) if is_version_directory(version) => in_tablespace(inside),
        // pg_upgrade's own logs and reports; its dumps beside them hold the schema and are Unknown,
        // so sealed
        (b"pg_upgrade_output.d", [_, b"log", ..]) => Class::ServerLog,
        (b"pg_upgrade_output.d", [_, report]) if report.ends_with(b".txt") => Class::UpgradeReport,
        _ if OWN_DIRECTORIES.contains(&directory) => Class::Unknown,
        (_, [.., name]) if is_config(name) => Class::Config,
        (_, [name]) if is_log(name) => Class::ServerLog,
        _ => Class::Unknown,
    }
}

/// The class of a file in `base/N/`, `global/` or a database's directory in a tablespace.
fn in_database(name: &[u8]) -> Class {
    match name {
        b"PG_VERSION" => Class::Version,
        b"pg_filenode.map" => Class::RelationMap,
        b"pg_internal.init" => Class::RelcacheInit,
        _ if name.strip_prefix(b"pg_internal.init.").is_some_and(is_decimal) => Class::RelcacheInit,
        _ => match name.strip_prefix(b"INCREMENTAL.") {
            Some(rest) if relation(rest).is_some() => Class::IncrementalRelation,
            _ => relation(name).unwrap_or(Class::Unknown),
        },
    }
}

/// The class of a file below a tablespace's version directory.
pub(crate) fn in_tablespace(inside: &[&[u8]]) -> Class {
    match inside {
        [b"pgsql_tmp", _, ..] => Class::TempFile,
        [database, name] if is_oid(database) => in_database(name),
        _ => Class::Unknown,
    }
}

/// Whether the name is that of a WAL summary: timeline, start and end in hexadecimal, or
/// `temp.summary` for the summary that PostgreSQL is writing.
fn is_summary(name: &[u8]) -> bool {
    name == b"temp.summary" || name.strip_suffix(b".summary").is_some_and(|stem| is_hex(stem, 40))
}

fn is_log(name: &[u8]) -> bool {
    [&b".log"[..], b".csv", b".json"].iter().any(|end| name.ends_with(end))
}
