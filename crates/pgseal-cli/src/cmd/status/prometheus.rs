//! `pgseal status --prometheus`: metrics in the text exposition format, version 0.0.4
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>).

use std::fmt::Display;
use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use pgseal_keys::seconds_of;

use super::survey::Status;
use crate::audit::DestinationLook;
use crate::key_policy::State;

/// The name of a counter of the server in `pgseal_pgdata::counters`, and its help.
const CLASS_METRICS: [(&str, &str); 8] = [
    ("sealed_blocks", "Blocks sealed and written since the server started."),
    ("sealed_bytes", "Plain bytes in the blocks sealed and written."),
    ("opened_blocks", "Blocks read and opened since the server started."),
    ("opened_bytes", "Plain bytes in the blocks read and opened."),
    ("zero_blocks_read", "Blocks that were never written and were read as zeros."),
    ("zero_blocks_written", "Pages of zeros that lengthened a relation, stored as they are."),
    ("failed_blocks", "Blocks that did not authenticate: damage, exchange or a wrong key."),
    ("failed_files", "Attempts to open a file that is not the sealed file it should be."),
];

const COLUMN_METRICS: [(&str, &str); 3] = [
    ("sealed_values", "Values of sealed columns that were sealed since the server started."),
    ("opened_values", "Values of sealed columns that were opened."),
    ("failed_values", "Values of sealed columns that could not be opened."),
];

/// Writes one metric family: its help and type, and a sample for each set of labels.
fn family<'a, V: Display>(
    out: &mut dyn Write,
    name: &str,
    kind: &str,
    help: &str,
    samples: impl Iterator<Item = (Vec<(&'a str, &'a str)>, V)>,
) -> io::Result<()> {
    writeln!(out, "# HELP {name} {help}")?;
    writeln!(out, "# TYPE {name} {kind}")?;
    for (labels, value) in samples {
        write!(out, "{name}{{")?;
        for (at, (label, value)) in labels.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            write!(out, "{comma}{label}=\"{}\"", escaped(value))?;
        }
        writeln!(out, "}} {value}")?;
    }
    Ok(())
}

/// Escapes backslash, quote and line feed of a label value.
fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n")
}

/// Writes all metrics of one data directory; those of its files only if they were scanned.
pub fn write(out: &mut dyn Write, status: &Status) -> io::Result<()> {
    let dir = ("datadir", status.data_directory.as_str());
    let one = |value: u64| std::iter::once((vec![dir], value));
    let unknown = |value: &'_ Option<String>| value.clone().unwrap_or_default();
    let (keyring, suite) = (unknown(&status.keyring_id), unknown(&status.suite));
    let (major, version) = (unknown(&status.postgresql), env!("CARGO_PKG_VERSION"));
    let labels = vec![
        dir,
        ("keyring", &keyring),
        ("suite", &suite),
        ("postgresql", &major),
        ("version", version),
    ];
    family(
        out,
        "pgseal_info",
        "gauge",
        "The cluster, its keyring and suite.",
        [(labels, 1u64)].into_iter(),
    )?;
    let help = "Whether a server runs on the directory and counts what it seals.";
    family(out, "pgseal_up", "gauge", help, one(status.counters.is_some().into()))?;
    if let Some(generation) = status.active_generation {
        let help = "The generation of the data key that new files get.";
        family(out, "pgseal_active_generation", "gauge", help, one(generation.into()))?;
    }
    keys(out, status, dir)?;
    audit(out, status, dir)?;
    if let Some(counters) = &status.counters {
        let help = "When the server started and began to count, seconds since 1970.";
        family(out, "pgseal_start_time_seconds", "gauge", help, one(counters.started_unix_s))?;
        for (counter, help) in CLASS_METRICS {
            let samples = counters.classes.iter().filter_map(|(class, values)| {
                Some((vec![dir, ("class", class.as_str())], *values.get(counter)?))
            });
            family(out, &format!("pgseal_{counter}_total"), "counter", help, samples)?;
        }
        for (counter, help) in COLUMN_METRICS {
            let samples =
                counters.columns.get(counter).into_iter().map(|value| (vec![dir], *value));
            family(out, &format!("pgseal_column_{counter}_total"), "counter", help, samples)?;
        }
    }
    if status.files_seen { files(out, status, dir) } else { Ok(()) }
}

/// The metrics of keys. A time that is not known is no metric.
fn keys(out: &mut dyn Write, status: &Status, dir: (&str, &str)) -> io::Result<()> {
    let Some(facts) = &status.key_facts else { return Ok(()) };
    let drilled = facts.drill.as_ref().map(|drill| &drill.when);
    for (name, time, help) in [
        ("pgseal_keyring_age_seconds", Some(&facts.created), "How long ago the keyring was made."),
        (
            "pgseal_data_key_age_seconds",
            Some(&facts.data_key_since),
            "How long ago the data key was made that new files get.",
        ),
        (
            "pgseal_key_age_seconds",
            facts.rotated.as_ref(),
            "How long ago the keyring got another key, as far as this machine remembers.",
        ),
        (
            "pgseal_drill_age_seconds",
            drilled,
            "How long ago an escrow copy was compared with the keyring, without a finding.",
        ),
    ] {
        if let Some(age) = time.and_then(|time| facts.age(time)) {
            family(out, name, "gauge", help, [(vec![dir], age)].into_iter())?;
        }
    }
    let help = "Further keys that open the keyring.";
    let recipients = facts.recipients.len();
    family(out, "pgseal_recipients", "gauge", help, [(vec![dir], recipients)].into_iter())?;
    if recipients > 0 {
        let help = "How long ago each recipient was added.";
        let ages = facts.recipients.iter().filter_map(|recipient| {
            let age = facts.age(&recipient.created)?;
            Some((vec![dir, ("recipient", recipient.name.as_str())], age))
        });
        family(out, "pgseal_recipient_age_seconds", "gauge", help, ages)?;
    }
    if facts.remembers {
        let help = "Escrow copies that this machine remembers, by whether they hold all data keys.";
        let copies = [("all", true), ("some", false)]
            .map(|(label, all)| (vec![dir, ("keys", label)], facts.copies_that_hold(all)));
        family(out, "pgseal_escrow_copies", "gauge", help, copies.into_iter())?;
    }
    let Some(policy) = &status.key_policy else { return Ok(()) };
    let help = "Whether the file of the key policy can be used.";
    let is_usable = u64::from(policy.error.is_none());
    family(out, "pgseal_policy_usable", "gauge", help, [(vec![dir], is_usable)].into_iter())?;
    let set = || policy.rules.iter().filter(|row| row.state != State::Unset);
    if set().next().is_some() {
        let help = "Whether a rule of the key policy is met.";
        let met = set().map(|row| (vec![dir, ("rule", row.rule)], u64::from(!row.is_open())));
        family(out, "pgseal_policy_met", "gauge", help, met)?;
    }
    if set().any(|row| row.days_left.is_some()) {
        let help = "Whole days until a rule of the key policy is broken; below 0: overdue.";
        let left = set().filter_map(|row| Some((vec![dir, ("rule", row.rule)], row.days_left?)));
        family(out, "pgseal_policy_days_left", "gauge", help, left)?;
    }
    Ok(())
}

/// The metrics of the audit trail, if there is one.
fn audit(out: &mut dyn Write, status: &Status, dir: (&str, &str)) -> io::Result<()> {
    let trail = &status.audit;
    let help = "Whether the configuration of the audit trail can be used.";
    let is_usable = u64::from(trail.error.is_none());
    family(out, "pgseal_audit_usable", "gauge", help, [(vec![dir], is_usable)].into_iter())?;
    if trail.destinations.is_empty() {
        return Ok(());
    }
    let help = "Whether no key is used that the audit trail does not take.";
    let required = u64::from(trail.required);
    family(out, "pgseal_audit_required", "gauge", help, [(vec![dir], required)].into_iter())?;
    let now = now();
    let age = |time: &String| {
        let age = now.checked_sub(seconds_of(time)?)?;
        u64::try_from(age.max(0)).ok()
    };
    type Value<'a> = &'a dyn Fn(&DestinationLook) -> Option<u64>;
    let metrics: [(&str, &str, Value<'_>); 4] = [
        ("pgseal_audit_up", "Whether a destination of the audit trail would take a line.", &|to| {
            Some(u64::from(to.error.is_none()))
        }),
        (
            "pgseal_audit_last_line_age_seconds",
            "How long ago the last line of a file was written.",
            &|to| to.last.as_ref().and_then(age),
        ),
        (
            "pgseal_audit_sound",
            "Whether the last pgseal audit verify with the keys of the cluster found nothing wrong.",
            &|to| to.verified.as_ref().map(|check| u64::from(check.sound)),
        ),
        ("pgseal_audit_verified_age_seconds", "How long ago that was.", &|to| {
            to.verified.as_ref().and_then(|check| age(&check.when))
        }),
    ];
    for (name, help, value) in metrics {
        let all = trail.destinations.iter();
        let samples: Vec<_> = all
            .filter_map(|to| {
                Some((vec![dir, ("destination", to.destination.as_str())], value(to)?))
            })
            .collect();
        if !samples.is_empty() {
            family(out, name, "gauge", help, samples.into_iter())?;
        }
    }
    Ok(())
}

/// Seconds since 1970.
fn now() -> i64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX)
}

fn files(out: &mut dyn Write, status: &Status, dir: (&str, &str)) -> io::Result<()> {
    let samples = status.classes.iter().flat_map(|(class, row)| {
        [("sealed", row.sealed), ("plain", row.plain), ("empty", row.empty)]
            .map(|(state, files)| (vec![dir, ("class", *class), ("state", state)], files))
    });
    family(out, "pgseal_files", "gauge", "Files of each class, by state.", samples)?;
    let help = "Plain files of classes that are sealed.";
    let plain = status.plain_where_sealed_is_due.len() as u64;
    family(
        out,
        "pgseal_plain_where_sealed_is_due",
        "gauge",
        help,
        [(vec![dir], plain)].into_iter(),
    )?;
    let help = "About how many writes the most used file key has sealed; the limit is 2^32.";
    let writes = status.most_used_key.as_ref().map_or(0, |used| used.writes);
    family(out, "pgseal_file_key_writes_max", "gauge", help, [(vec![dir], writes)].into_iter())?;
    let help = "Files that have two file keys.";
    let two = status.files_with_two_keys;
    family(out, "pgseal_files_with_two_keys", "gauge", help, [(vec![dir], two)].into_iter())?;
    let help = "Files of a suite that new files do not get any more.";
    let older = status.files_of_older_suites;
    family(out, "pgseal_files_of_older_suites", "gauge", help, [(vec![dir], older)].into_iter())?;
    let help = "Files whose header is damaged, of another keyring, or not readable.";
    let problems = status.problems.len() as u64;
    family(out, "pgseal_problems", "gauge", help, [(vec![dir], problems)].into_iter())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgseal_pgdata::counters::{COLUMN_COUNTERS, COUNTERS};

    #[test]
    fn every_counter_has_a_metric() {
        assert_eq!(CLASS_METRICS.map(|(name, _)| name), COUNTERS);
        assert_eq!(COLUMN_METRICS.map(|(name, _)| name), COLUMN_COUNTERS);
    }

    #[test]
    fn a_sample_below_zero_is_written() {
        let mut text = Vec::new();
        let samples = [(vec![("rule", "rotate-days")], -3i64)].into_iter();
        family(&mut text, "pgseal_x", "gauge", "Days.", samples).unwrap();
        let wanted =
            "# HELP pgseal_x Days.\n# TYPE pgseal_x gauge\npgseal_x{rule=\"rotate-days\"} -3\n";
        assert_eq!(String::from_utf8(text).unwrap(), wanted);
    }

    #[test]
    fn label_values_are_escaped() {
        assert_eq!(escaped("a\\b\"c\nd"), r#"a\\b\"c\nd"#);
    }
}
