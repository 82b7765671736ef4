//! The TLS settings for PostgreSQL, depending on its version and its OpenSSL.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::version::Version;

/// One setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Name.
    pub name: &'static str,
    /// Value.
    pub value: String,
    /// The reason, in words.
    pub why: &'static str,
}

/// What the settings depend on: versions, OpenSSL and the processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abilities {
    /// Major version of PostgreSQL.
    pub major: u32,
    /// Whether the server's OpenSSL has the hybrid group X25519MLKEM768 (OpenSSL 3.5).
    pub ml_kem: bool,
    /// Whether the processor has instructions for AES.
    pub aes: bool,
}

/// First major version with `ssl_groups` and `ssl_tls13_ciphers`.
pub const FIRST_WITH_GROUPS: u32 = 18;
/// First major version with `ssl_min_protocol_version`.
pub const FIRST_WITH_VERSIONS: u32 = 12;

/// The hybrid group by OpenSSL's name.
const HYBRID: &str = "X25519MLKEM768";

/// The recommended settings, except those that name files.
pub fn recommended(abilities: Abilities, oldest: Version) -> Vec<Setting> {
    let setting = |name, value: &str, why| Setting { name, value: value.to_owned(), why };
    let gcm = "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:\
               ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384";
    let chacha = "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305";
    let (gcm13, chacha13) =
        ("TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256");
    let order = |gcm: &str, chacha: &str| {
        if abilities.aes { format!("{gcm}:{chacha}") } else { format!("{chacha}:{gcm}") }
    };
    let mut all = vec![
        setting("ssl", "on", "TLS is on"),
        setting("ssl_min_protocol_version", oldest.name(), "nothing older is accepted"),
        setting("ssl_max_protocol_version", "", "no newer version is shut out"),
        setting("ssl_prefer_server_ciphers", "on", "the order below counts, not the client's"),
        setting(
            "ssl_ciphers",
            &order(gcm, chacha),
            "TLS 1.2: ephemeral keys and authenticated encryption alone; what the processor is \
             fast at comes first",
        ),
    ];
    if abilities.major >= FIRST_WITH_GROUPS {
        all.push(setting("ssl_tls13_ciphers", &order(gcm13, chacha13), "TLS 1.3"));
        let groups = "X25519:prime256v1";
        let (value, why) = if abilities.ml_kem {
            (format!("{HYBRID}:{groups}"), "key exchange, post-quantum (ML-KEM, FIPS 203) first")
        } else {
            (groups.to_owned(), "key exchange; this OpenSSL has no ML-KEM (3.5 has)")
        };
        all.push(Setting { name: "ssl_groups", value, why });
    } else {
        all.push(setting(
            "ssl_ecdh_curve",
            "prime256v1",
            "key exchange; one curve is all that PostgreSQL before 18 can have",
        ));
    }
    all
}

/// Whether the OpenSSL that `postgres` is linked with has X25519MLKEM768, which is the case if its
/// libraries contain this name. `None` if the libraries were not found.
pub fn has_ml_kem(postgres: &Path) -> Option<bool> {
    let output = Command::new("ldd").arg(postgres).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let libraries: Vec<PathBuf> = text
        .lines()
        .filter(|line| {
            ["libssl", "libcrypto"].iter().any(|name| line.trim_start().starts_with(name))
        })
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')))
        .map(PathBuf::from)
        .collect();
    if libraries.is_empty() {
        return None;
    }
    let holds = |path: &PathBuf| {
        let bytes = fs::read(path).unwrap_or_default();
        bytes.windows(HYBRID.len()).any(|window| window == HYBRID.as_bytes())
    };
    Some(libraries.iter().any(holds))
}

/// Whether this machine's processor has instructions for AES.
pub fn has_aes_instructions() -> bool {
    // "flags" on x86, "Features" on ARM.
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    text.lines()
        .filter(|line| line.starts_with("flags") || line.starts_with("Features"))
        .any(|line| line.split_whitespace().any(|flag| flag == "aes"))
}

/// A value, quoted for `postgresql.conf`.
pub fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "''"))
}

/// The settings in a configuration file, the last one first, with names in lower case.
pub fn assignments(text: &str) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = text.lines().filter_map(assignment).collect();
    all.reverse();
    all
}

fn assignment(line: &str) -> Option<(String, String)> {
    let line = line.trim_start();
    let end = line.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.'))?;
    let (name, rest) = line.split_at(end);
    let rest = rest.trim_start();
    let rest = rest.strip_prefix('=').unwrap_or(rest).trim_start();
    if name.is_empty() || name.starts_with('#') {
        return None;
    }
    let value = match rest.strip_prefix('\'') {
        Some(quoted) => {
            let mut value = String::new();
            let mut characters = quoted.chars().peekable();
            while let Some(character) = characters.next() {
                match character {
                    '\'' if characters.peek() == Some(&'\'') => value.extend(characters.next()),
                    '\'' => break,
                    '\\' => value.extend(characters.next()),
                    other => value.push(other),
                }
            }
            value
        }
        None => rest.split(|c: char| c == '#' || c.is_whitespace()).next()?.to_owned(),
    };
    Some((name.to_ascii_lowercase(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(all: &[Setting], name: &str) -> Option<String> {
        all.iter().find(|setting| setting.name == name).map(|setting| setting.value.clone())
    }

    #[test]
    fn each_version_gets_only_settings_that_it_supports() {
        let old = Abilities { major: 17, ml_kem: true, aes: true };
        let settings = recommended(old, Version::Tls12);
        assert_eq!(value(&settings, "ssl_groups"), None);
        assert_eq!(value(&settings, "ssl_tls13_ciphers"), None);
        assert_eq!(value(&settings, "ssl_ecdh_curve").as_deref(), Some("prime256v1"));
        let new = Abilities { major: 18, ml_kem: true, aes: true };
        let settings = recommended(new, Version::Tls13);
        let groups = "X25519MLKEM768:X25519:prime256v1";
        assert_eq!(value(&settings, "ssl_groups").as_deref(), Some(groups));
        assert_eq!(value(&settings, "ssl_ecdh_curve"), None);
        assert_eq!(value(&settings, "ssl_min_protocol_version").as_deref(), Some("TLSv1.3"));
        let settings = recommended(Abilities { ml_kem: false, aes: false, ..new }, Version::Tls12);
        assert_eq!(value(&settings, "ssl_groups").as_deref(), Some("X25519:prime256v1"));
        let ciphers = value(&settings, "ssl_ciphers").unwrap_or_default();
        assert!(ciphers.starts_with("ECDHE-ECDSA-CHACHA20"), "{ciphers}");
        for name in ciphers.split(':') {
            assert!(crate::suites::by_name(name).is_some(), "{name}");
        }
    }

    #[test]
    fn assignments_are_read_as_the_server_reads_them() {
        let text = "ssl = on # yes\n#ssl = off\nSSL_Ciphers 'it''s'\nssl='off'\ninclude 'x'\n\nbad";
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            assignments(text),
            [
                pair("include", "x"),
                pair("ssl", "off"),
                pair("ssl_ciphers", "it's"),
                pair("ssl", "on")
            ]
        );
        assert_eq!(quoted("a'b\\"), "'a''b\\\\'");
    }
}
