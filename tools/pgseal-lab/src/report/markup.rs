//! Escapes text for HTML.

/// Escapes text for an element or a quoted attribute.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// Escapes JSON for a `script` element.
pub fn script_json(json: &str) -> String {
    json.replace('<', "\\u003c")
}

/// Converts text to an `id`: lower-case letters, digits, `-`.
pub fn identifier(text: &str) -> String {
    let keep = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    text.chars().map(keep).collect()
}

/// `2026-11-21 05:30 UTC` from seconds since 1970 (civil calendar: Hinnant, "chrono-Compatible
/// Low-Level Date Algorithms").
pub fn date(unix_s: u64) -> String {
    let days = (unix_s / 86_400) as i64 + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_of_year = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_of_year + 2) / 5 + 1;
    let month = if month_of_year < 10 { month_of_year + 3 } else { month_of_year - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute) = (unix_s / 3600 % 24, unix_s / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_breaks_out_of_its_place() {
        assert_eq!(escape(r#"<b a="x">'&"#), "&lt;b a=&quot;x&quot;&gt;&#39;&amp;");
        assert!(!script_json(r#"{"a":"</script>"}"#).contains("</"));
        assert_eq!(identifier("AES 256/gcm"), "aes-256-gcm");
    }

    #[test]
    fn dates() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_795_239_000), "2026-11-21 05:30 UTC");
    }
}
