//! Files of a tablespace that are opened by their real path, not through `pg_tblspc`.

use crate::class::Class;
use crate::classify::{components, in_tablespace, or_in_the_making};
use crate::names::{is_oid, is_version_directory};

/// The length of the tablespace's root in an absolute path, including the slash at its end.
///
/// `/srv/fast/PG_15_202209061/16384/2619` gives the length of `/srv/fast/`; what follows is
/// for [`classify_in_tablespace`]. `None` if the path does not go through a version directory
/// into a database's directory or `pgsql_tmp`, or is not absolute. If several components fit,
/// the last counts.
#[must_use]
pub fn tablespace_relative(abs: &[u8]) -> Option<usize> {
    if abs.first() != Some(&b'/') {
        return None;
    }
    let mut found = None;
    let mut candidate = None;
    let mut at = 0;
    for part in abs.split(|byte| *byte == b'/') {
        if is_version_directory(part) {
            candidate = Some(at);
        } else if !part.is_empty()
            && part != b"."
            && let Some(root_len) = candidate.take()
            && (is_oid(part) || part == b"pgsql_tmp")
        {
            found = Some(root_len);
        }
        at += part.len() + 1;
    }
    found
}

/// The class of the file at `rel`, a path relative to the root of a tablespace, which begins with
/// the version directory. Equal to [`crate::classify`] of `pg_tblspc/1/` followed by `rel`.
#[must_use]
pub fn classify_in_tablespace(rel: &[u8]) -> Class {
    let mut parts: [&[u8]; 4] = [b""; 4];
    match components(rel, &mut parts) {
        Some([version, inside @ ..]) if is_version_directory(version) => {
            or_in_the_making(inside, in_tablespace)
        }
        _ => Class::Unknown,
    }
}
