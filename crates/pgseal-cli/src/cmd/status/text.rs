//! Prints `pgseal status` for people.

use std::collections::BTreeMap;
use std::io::{self, Write};

use pgseal_core::usage;

use super::survey::{PlainFile, Status};
use crate::audit::{DestinationLook, TrailLook};
use crate::out::{self, Out};

/// Prints the status. `brief`: only the first screen.
pub fn print(out: &mut Out, status: &Status, brief: bool) -> io::Result<()> {
    writeln!(out, "Data directory  {}", status.data_directory)?;
    let unknown = "unknown (PG_VERSION is not there)";
    writeln!(out, "PostgreSQL      {}", status.postgresql.as_deref().unwrap_or(unknown))?;
    match status.server_pid {
        Some(pid) => writeln!(out, "Server          running, process {pid}")?,
        None => writeln!(out, "Server          not running")?,
    }
    if let Some(command) = status.unfinished {
        writeln!(
            out,
            "Conversion      UNFINISHED: no server starts; run \"pgseal {command}\" again, it goes on"
        )?;
    }
    for (name, value) in [
        ("Keyring         ", &status.keyring_id),
        ("Key             ", &status.provider),
        ("Suite           ", &status.suite),
        ("Configuration   ", &status.configuration),
    ] {
        writeln!(out, "{name}{}", value.as_deref().unwrap_or("unknown: the keyring is missing"))?;
    }
    if pgseal_crypto::FIPS {
        writeln!(out, "Cryptography    {}", status.cryptography)?;
    }
    status.protection.print(out, &status.data_directory)?;
    if let Some(policy) = &status.key_policy {
        let (open, rules) = (policy.open_rules(), policy.set_rules() as u64);
        match &policy.error {
            Some(error) => writeln!(out, "Key policy      REFUSED: {error}")?,
            None if open.is_empty() => {
                writeln!(out, "Key policy      {} met", out::count(rules, "rule"))?;
            }
            None => writeln!(
                out,
                "Key policy      NOT MET: {} (pgseal key policy {})",
                open.join(", "),
                status.data_directory
            )?,
        }
    }
    print_audit(out, &status.audit)?;
    if brief {
        return Ok(());
    }
    print_counters(out, status)?;
    if !status.files_seen {
        return Ok(());
    }
    writeln!(out)?;
    writeln!(
        out,
        "{:<24}{:>7}{:>12}{:>8}{:>7}{:>7}  sealed as",
        "class", "files", "bytes", "sealed", "plain", "empty"
    )?;
    for (name, row) in &status.classes {
        let seals: Vec<&str> = row.seals.iter().map(String::as_str).collect();
        let note = if seals.is_empty() && row.plain_by_policy {
            "plain by design".to_owned()
        } else {
            seals.join("; ")
        };
        let bytes = out::human_bytes(row.bytes);
        writeln!(
            out,
            "{name:<24}{:>7}{bytes:>12}{:>8}{:>7}{:>7}  {note}",
            row.files, row.sealed, row.plain, row.empty
        )?;
    }
    if let Some(used) = &status.most_used_key {
        let part = 100.0 * used.writes as f64 / usage::LIMIT as f64;
        writeln!(
            out,
            "\nMost used key: that of {}, about {} writes, {part:.3} % of the limit",
            used.file, used.writes
        )?;
    }
    if status.files_of_older_suites > 0 {
        writeln!(
            out,
            "\nMade in an older suite: {} (pgseal reseal {} --rewrite)",
            out::count(status.files_of_older_suites, "file"),
            status.data_directory
        )?;
    }
    if status.files_with_two_keys > 0 {
        let files = out::count(status.files_with_two_keys, "file");
        writeln!(out, "\nTwo file keys: {files}, pgseal reseal --status shows them")?;
    }
    print_plain(out, status)?;
    print_list(out, "Problems:", status.problems.iter().map(|p| (&p.file, &p.what)))?;
    print_list(out, "Left over:", status.leftovers.iter().map(|p| (&p.file, &p.what)))?;
    let links = status.links.iter().map(|(link, target)| (link, target));
    print_list(out, "Links to other directories:", links)?;
    writeln!(out, "\nNot protected:")?;
    for line in status.not_protected {
        writeln!(out, "  {line}")?;
    }
    Ok(())
}

/// Prints a line for each destination of the audit trail.
fn print_audit(out: &mut Out, trail: &TrailLook) -> io::Result<()> {
    if let Some(error) = &trail.error {
        return writeln!(out, "Audit trail     REFUSED: {error}");
    }
    let required = if trail.required { ", required" } else { "" };
    for DestinationLook { destination, error, last, verified } in &trail.destinations {
        let last = last.as_ref().map(|time| format!(", last line {time}")).unwrap_or_default();
        let verified = verified.as_ref().map(|check| {
            let found = if check.sound { "sound" } else { "NOT SOUND" };
            format!(", verified {}: {found}", check.when)
        });
        let verified = verified.unwrap_or_default();
        match error {
            Some(error) => writeln!(out, "Audit trail     {destination}: DOES NOT WORK: {error}")?,
            None => writeln!(out, "Audit trail     {destination}{required}{last}{verified}")?,
        }
    }
    Ok(())
}

/// Prints the counters of column values, and of each class that has any.
fn print_counters(out: &mut Out, status: &Status) -> io::Result<()> {
    let Some(counters) = &status.counters else {
        // That no server runs was printed already.
        return match (&status.no_counters, status.server_pid) {
            (Some(why), Some(_)) => writeln!(out, "Counters        none: {why}"),
            _ => Ok(()),
        };
    };
    writeln!(
        out,
        "\n{:<24}{:>11}{:>11}{:>11}{:>11}{:>9}{:>9}  since the server started",
        "blocks", "sealed", "", "opened", "", "zero", "failed"
    )?;
    for (class, values) in counters.classes.iter().filter(|(_, v)| v.values().any(|v| *v > 0)) {
        let value = |name: &str| values.get(name).copied().unwrap_or(0);
        let bytes = |name: &str| out::human_bytes(value(name));
        let zero = value("zero_blocks_read") + value("zero_blocks_written");
        write!(
            out,
            "{class:<24}{:>11}{:>11}{:>11}{:>11}{zero:>9}{:>9}",
            value("sealed_blocks"),
            bytes("sealed_bytes"),
            value("opened_blocks"),
            bytes("opened_bytes"),
            value("failed_blocks")
        )?;
        let files = value("failed_files");
        let note = if files > 0 {
            format!("  {} refused", out::count(files, "file"))
        } else {
            String::new()
        };
        writeln!(out, "{note}")?;
    }
    let columns: Vec<String> = counters
        .columns
        .iter()
        .map(|(name, value)| format!("{} {value}", name.replace('_', " ")))
        .collect();
    if counters.columns.values().any(|value| *value > 0) {
        writeln!(out, "Columns         {}", columns.join(", "))?;
    }
    Ok(())
}

fn print_plain(out: &mut Out, status: &Status) -> io::Result<()> {
    if !status.plain_by_policy.is_empty() {
        writeln!(out, "\nPlain by design:")?;
    }
    let mut by_class: BTreeMap<&str, Vec<&PlainFile>> = BTreeMap::new();
    for plain in &status.plain_by_policy {
        by_class.entry(plain.class).or_default().push(plain);
    }
    for (class, files) in by_class {
        let why = files.first().map_or("", |plain| plain.why);
        writeln!(out, "  {class}: {why}")?;
        let shown: Vec<&str> = files.iter().take(6).map(|plain| plain.file.as_str()).collect();
        let more = files.len() - shown.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        writeln!(out, "      {}{more}", shown.join(", "))?;
    }
    if status.plain_where_sealed_is_due.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nPLAIN, and of a class that is sealed:")?;
    for plain in &status.plain_where_sealed_is_due {
        let bytes = out::human_bytes(plain.bytes);
        writeln!(out, "  {} ({}, {bytes}): {}", plain.file, plain.class, plain.why)?;
    }
    Ok(())
}

fn print_list<'a>(
    out: &mut Out,
    title: &str,
    items: impl Iterator<Item = (&'a String, &'a String)>,
) -> io::Result<()> {
    let mut items = items.peekable();
    if items.peek().is_some() {
        writeln!(out, "\n{title}")?;
    }
    for (name, what) in items {
        writeln!(out, "  {name}: {what}")?;
    }
    Ok(())
}
