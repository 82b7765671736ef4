//! Formats numbers for people.

use crate::stats::Ratio;

/// Decimal prefixes from 10^-9 up.
const PREFIXES: [&str; 8] = ["n", "u", "m", "", "k", "M", "G", "T"];
/// Index of the empty prefix in [`PREFIXES`].
const NONE: usize = 3;

/// Three significant digits: `1.23`, `45.6`, `789`; all digits of larger integers: `12345`.
pub fn significant(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    let digits = match value.abs() {
        0.0 => return "0".to_owned(),
        below if below < 0.001 => return format!("{value:.2e}"),
        ..0.01 => 5,
        ..0.1 => 4,
        ..1.0 => 3,
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$}")
}

/// `1 round`, `5 rounds`.
pub fn rounds(count: impl Into<u64>) -> String {
    match count.into() {
        1 => "1 round".to_owned(),
        count => format!("{count} rounds"),
    }
}

/// A value with its unit: `3.21 GB/s` for `bytes/s`, `16 KiB` for `bytes`, `12.3 ms` for `s`,
/// `45.6 k/s` for `1/s`.
pub fn quantity(value: f64, unit: &str) -> String {
    match unit {
        "bytes" | "B" => bytes(value),
        "bytes/s" | "B/s" => scaled(value, NONE, 7, "B/s"),
        "s" => scaled(value, 0, NONE, "s"),
        "1/s" | "tps" => scaled(value, NONE, 5, "/s"),
        "ratio" | "" => significant(value),
        "%" => format!("{} %", significant(value)),
        unit => format!("{} {unit}", significant(value)),
    }
}

/// An interval; if both ends have the same unit, the unit appears once: `3.38 to 3.43 GB/s`.
pub fn span(low: f64, high: f64, unit: &str) -> String {
    let (low, high) = (quantity(low, unit), quantity(high, unit));
    match (low.rsplit_once(' '), high.rsplit_once(' ')) {
        (Some((number, below)), Some((_, above))) if below == above => {
            format!("{number} to {high}")
        }
        _ => format!("{low} to {high}"),
    }
}

/// A short number for an axis; with its unit only for bytes, bytes per second and seconds.
pub fn tick(value: f64, unit: &str) -> String {
    match unit {
        "bytes" | "B" | "bytes/s" | "B/s" | "s" => {
            let text = quantity(value, unit);
            match text.split_once(' ') {
                Some((number, unit)) => format!("{} {unit}", trimmed(number)),
                None => text,
            }
        }
        _ if value.abs() >= 1000.0 => {
            let text = scaled(value, NONE, 7, "");
            let (number, prefix) = text.split_once(' ').unwrap_or((&text, ""));
            format!("{}{prefix}", trimmed(number))
        }
        _ => trimmed(&format!("{value:.4}")),
    }
}

/// `1.183 (1.171 to 1.196)`.
pub fn ratio_text(ratio: &Ratio) -> String {
    if ratio.low.is_finite() && ratio.high.is_finite() {
        format!("{:.3} ({:.3} to {:.3})", ratio.value, ratio.low, ratio.high)
    } else {
        format!("{:.3}", ratio.value)
    }
}

/// `14:32 UTC` from seconds since 1970.
pub fn clock(unix_s: u64) -> String {
    format!("{:02}:{:02} UTC", unix_s / 3600 % 24, unix_s / 60 % 60)
}

/// A duration for people: `40 s`, `12 min`, `2 h 5 min`.
pub fn duration(seconds: f64) -> String {
    let minutes = (seconds / 60.0).round() as u64;
    match seconds {
        ..90.0 => format!("{seconds:.0} s"),
        ..5400.0 => format!("{minutes} min"),
        _ => format!("{} h {} min", minutes / 60, minutes % 60),
    }
}

fn scaled(value: f64, least: usize, most: usize, unit: &str) -> String {
    if !value.is_finite() || value == 0.0 {
        return format!("{} {unit}", significant(value));
    }
    let mut at = NONE;
    let mut rest = value;
    while rest.abs() >= 999.5 && at < most {
        rest /= 1000.0;
        at += 1;
    }
    while rest.abs() < 0.9995 && at > least {
        rest *= 1000.0;
        at -= 1;
    }
    let prefix = PREFIXES.get(at).copied().unwrap_or_default();
    let number = significant(rest);
    if unit.starts_with('/') {
        let gap = if prefix.is_empty() { "" } else { " " };
        return format!("{number}{gap}{prefix}{unit}");
    }
    format!("{number} {prefix}{unit}")
}

fn bytes(value: f64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut rest = value;
    let mut at = 0;
    while rest.abs() >= 1024.0 && at + 1 < UNITS.len() {
        rest /= 1024.0;
        at += 1;
    }
    let unit = UNITS.get(at).copied().unwrap_or_default();
    format!("{} {unit}", trimmed(&significant(rest)))
}

/// Removes trailing zeros after the decimal point.
fn trimmed(text: &str) -> String {
    if text.contains('.') && !text.contains('e') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_with_units() {
        assert_eq!(quantity(3_210_000_000.0, "bytes/s"), "3.21 GB/s");
        assert_eq!(quantity(16_384.0, "bytes"), "16 KiB");
        assert_eq!(quantity(130.7 * 1048576.0, "bytes"), "131 MiB");
        assert_eq!(quantity(0.0123, "s"), "12.3 ms");
        assert_eq!(quantity(90.0, "s"), "90.0 s");
        assert_eq!(quantity(3.4e9, "bytes/s"), "3.40 GB/s");
        assert_eq!(quantity(4321.0, "s"), "4321 s");
        assert_eq!(quantity(812.0, "1/s"), "812/s");
        assert_eq!(quantity(45_678.0, "1/s"), "45.7 k/s");
        assert_eq!(quantity(1.5, "GB"), "1.50 GB");
        assert_eq!(quantity(0.0, "s"), "0 s");
    }

    #[test]
    fn ticks_are_short() {
        assert_eq!(tick(0.5, "ratio"), "0.5");
        assert_eq!(tick(20_000.0, "1/s"), "20k");
        assert_eq!(tick(8192.0, "bytes"), "8 KiB");
        assert_eq!(tick(0.0, ""), "0");
        assert_eq!(tick(4.0e9, "bytes/s"), "4 GB/s");
    }

    #[test]
    fn intervals_name_their_unit_once_if_they_can() {
        assert_eq!(span(3.38e9, 3.43e9, "bytes/s"), "3.38 to 3.43 GB/s");
        assert_eq!(span(0.98, 1.2, "s"), "980 ms to 1.20 s");
    }

    #[test]
    fn times_of_the_day_and_durations() {
        assert_eq!(clock(1_795_239_000), "05:30 UTC");
        let said = [42.0, 89.9, 90.0, 720.0, 5400.0, 7500.0].map(duration);
        assert_eq!(said, ["42 s", "90 s", "2 min", "12 min", "1 h 30 min", "2 h 5 min"]);
    }
}
