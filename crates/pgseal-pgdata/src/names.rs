//! The shapes of PostgreSQL's file names.

use crate::class::{Class, Fork};

/// Whether the name is a positive decimal number as PostgreSQL prints it, without leading zeros
/// and short enough for an object identifier.
pub(crate) fn is_oid(name: &[u8]) -> bool {
    matches!(name.first(), Some(b'1'..=b'9')) && name.len() <= 10 && is_decimal(name)
}

/// Whether the name consists of decimal digits, at least one.
pub(crate) fn is_decimal(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(u8::is_ascii_digit)
}

/// Whether the name consists of this many upper-case hexadecimal digits.
pub(crate) fn is_hex(name: &[u8], digits: usize) -> bool {
    name.len() == digits && name.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'A'..=b'F'))
}

/// Whether the name is that of an SLRU segment: 4 to 6 hexadecimal digits, from PostgreSQL 17 on
/// also 15 (`SlruCorrectSegmentFilenameLength`, `slru.c`).
pub(crate) fn is_slru_segment(name: &[u8]) -> bool {
    matches!(name.len(), 4..=6 | 15) && is_hex(name, name.len())
}

/// Whether the name is that of a prepared transaction: 8 hexadecimal digits, from PostgreSQL 17 on
/// 16 (`twophase.c`).
pub(crate) fn is_two_phase(name: &[u8]) -> bool {
    is_hex(name, 8) || is_hex(name, 16)
}

/// Whether the name is a tablespace's version directory, `PG_15_202209061`
/// (`TABLESPACE_VERSION_DIRECTORY`, `src/include/common/relpath.h`).
pub(crate) fn is_version_directory(name: &[u8]) -> bool {
    let Some(rest) = name.strip_prefix(b"PG_") else { return false };
    let mut parts = rest.splitn(2, |byte| *byte == b'_');
    let (Some(major), Some(catversion)) = (parts.next(), parts.next()) else { return false };
    is_decimal(major) && is_decimal(catversion)
}

/// The fork of a relation that a file name stands for: `16384`, `16384.1`, `16384_fsm`,
/// `16384_vm.2`, `16384_init`, and `t3_16384...` for temporary relations
/// (`GetRelationPath`, `relpath.c`; `_mdfd_segpath`, `md.c`).
pub(crate) fn relation(name: &[u8]) -> Option<Class> {
    let (rest, temporary) = match name.strip_prefix(b"t") {
        Some(after) => {
            let digits = leading_digits(after);
            let rest = after.get(digits..)?.strip_prefix(b"_")?;
            if digits == 0 {
                return None;
            }
            (rest, true)
        }
        None => (name, false),
    };
    let (number, rest) = rest.split_at_checked(leading_digits(rest))?;
    if !is_oid(number) {
        return None;
    }
    let (fork, rest) = if let Some(rest) = rest.strip_prefix(b"_fsm") {
        (Fork::Fsm, rest)
    } else if let Some(rest) = rest.strip_prefix(b"_vm") {
        (Fork::Vm, rest)
    } else if let Some(rest) = rest.strip_prefix(b"_init") {
        (Fork::Init, rest)
    } else {
        (Fork::Main, rest)
    };
    let segment_fits = rest.is_empty() || rest.strip_prefix(b".").is_some_and(is_oid);
    segment_fits.then_some(Class::Relation { fork, temporary })
}

fn leading_digits(name: &[u8]) -> usize {
    name.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// What a file directly in `pg_wal` is.
pub(crate) fn in_wal(name: &[u8]) -> Class {
    match name {
        b"RECOVERYXLOG" => return Class::Wal,
        b"RECOVERYHISTORY" => return Class::TimelineHistory,
        _ => {}
    }
    if name.strip_prefix(b"xlogtemp.").is_some_and(is_decimal) {
        return Class::Wal;
    }
    if let Some((segment, rest)) = name.split_at_checked(24)
        && is_hex(segment, 24)
    {
        return match rest {
            b"" | b".partial" => Class::Wal,
            _ if rest.starts_with(b".") && rest.ends_with(b".backup") => Class::BackupHistory,
            _ => Class::Unknown,
        };
    }
    match name.split_at_checked(8) {
        Some((timeline, b".history" | b".history.tmp")) if is_hex(timeline, 8) => {
            Class::TimelineHistory
        }
        _ => Class::Unknown,
    }
}

/// Whether the name is that of a configuration file or a signal file of recovery.
pub(crate) fn is_config(name: &[u8]) -> bool {
    let conf = name
        .windows(5)
        .enumerate()
        .any(|(at, window)| window == b".conf" && matches!(name.get(at + 5), None | Some(b'.')));
    conf || name.ends_with(b".signal") || name == b"recovery.done"
}

/// Whether the name ends like a certificate, a key, a request or a revocation list.
pub(crate) fn is_tls(name: &[u8]) -> bool {
    [&b".crt"[..], b".key", b".pem", b".crl", b".csr"].iter().any(|end| name.ends_with(end))
}
