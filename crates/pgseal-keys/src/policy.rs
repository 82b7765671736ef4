//! The key policy: `/etc/pgseal/policy.conf` says what an administrator wants of the keys of every
//! cluster of this machine. Somebody who can write to a data directory cannot write this file.
//!
//! The file holds at most one line `NAME = VALUE` for each name in [`RULES`]; empty lines and lines
//! that begin with `#` are skipped.

use std::env;
use std::path::{Path, PathBuf};

use crate::error::KeyError;
use crate::slot::MAX_RECIPIENTS;
use crate::trusted::TrustedFile;

/// The environment variable that names another file than [`KeyPolicy::DEFAULT`].
pub const POLICY_FILE: &str = "PGSEAL_POLICY_FILE";

/// The most days that a rule may give: a hundred years.
const MAX_DAYS: u32 = 36525;

/// The value that takes a rule out of the file.
const OFF: &str = "off";

/// The names of the rules, in the order in which they are shown.
pub const RULES: [&str; 6] =
    ["rotate-days", "renew-days", "min-recipients", "providers", "escrow", "drill-days"];

/// What an administrator wants of the keys of a cluster. A rule that is `None` is not set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyPolicy {
    /// `rotate-days`: the keyring gets another key at least every so many days.
    pub rotate_days: Option<u32>,
    /// `renew-days`: there is a new data key at least every so many days.
    pub renew_days: Option<u32>,
    /// `min-recipients`: how many recipients the keyring has at least.
    pub min_recipients: Option<u32>,
    /// `providers`: the kinds of providers that may hold a key.
    pub providers: Option<Vec<String>>,
    /// `escrow = required`: there is an escrow copy that holds all data keys.
    pub escrow: Option<()>,
    /// `drill-days`: an escrow copy was compared with the keyring in the last so many days.
    pub drill_days: Option<u32>,
}

impl KeyPolicy {
    /// The file that is read unless [`POLICY_FILE`] is set.
    pub const DEFAULT: &str = "/etc/pgseal/policy.conf";

    /// The file that [`POLICY_FILE`] names, or [`KeyPolicy::DEFAULT`].
    #[must_use]
    pub fn path() -> PathBuf {
        let given = env::var_os(POLICY_FILE).filter(|file| !file.is_empty());
        given.map_or_else(|| PathBuf::from(KeyPolicy::DEFAULT), PathBuf::from)
    }

    /// The policy in a file; `None` if the file does not exist. A file in `datadir` is refused.
    ///
    /// # Errors
    /// [`KeyError::Insecure`] if a user other than root and the current one can write the file or a
    /// directory above it; [`KeyError::PolicyFile`]; [`KeyError::Io`].
    pub fn load(path: &Path, datadir: Option<&Path>) -> Result<Option<KeyPolicy>, KeyError> {
        let text = trusted(path).read(datadir, bad)?;
        text.map(|text| KeyPolicy::parse(&text, path)).transpose()
    }

    /// The policy in the text of a file. `path` is for messages.
    ///
    /// # Errors
    /// [`KeyError::PolicyFile`].
    pub fn parse(text: &str, path: &Path) -> Result<KeyPolicy, KeyError> {
        let mut policy = KeyPolicy::default();
        let mut seen = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let at = |what: String| bad(path, format!("line {}: {what}", index + 1));
            let (name, value) = parts(line).ok_or_else(|| at("not NAME = VALUE".to_owned()))?;
            if seen.contains(&name) {
                return Err(at(format!("{name} is set twice")));
            }
            policy.set(name, value).map_err(at)?;
            seen.push(name);
        }
        Ok(policy)
    }

    /// Changes rules in a file, which need not exist, and keeps the other lines. The value `off`
    /// takes a rule out.
    ///
    /// # Errors
    /// As [`KeyPolicy::load`], and [`KeyError::PolicyFile`] for a wrong rule; the file has not
    /// changed then.
    pub fn change(path: &Path, rules: &[(String, String)]) -> Result<KeyPolicy, KeyError> {
        let old = trusted(path).read(None, bad)?;
        let head = "# What is wanted of the keys of every cluster here: pgseal key policy DIR\n";
        let text = changed(&old.unwrap_or_else(|| head.to_owned()), rules);
        for (name, value) in rules.iter().filter(|(_, value)| value == OFF) {
            // A name that does not exist must not look as if it had been taken out.
            let is_rule = RULES.contains(&name.as_str());
            is_rule.then_some(()).ok_or_else(|| bad(path, unknown(name, value)))?;
        }
        let policy = KeyPolicy::parse(&text, path)?;
        trusted(path).write(&text, 0o644, None)?;
        Ok(policy)
    }

    /// Whether no rule is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == KeyPolicy::default()
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "rotate-days" => self.rotate_days = Some(number(name, value, MAX_DAYS)?),
            "renew-days" => self.renew_days = Some(number(name, value, MAX_DAYS)?),
            "drill-days" => self.drill_days = Some(number(name, value, MAX_DAYS)?),
            "min-recipients" => {
                let most = u32::try_from(MAX_RECIPIENTS).unwrap_or(u32::MAX);
                self.min_recipients = Some(number(name, value, most)?);
            }
            "escrow" if value == "required" => self.escrow = Some(()),
            "escrow" => return Err("escrow is \"required\", or is not set".to_owned()),
            "providers" => {
                let kinds: Vec<String> =
                    value.split(',').map(|kind| kind.trim_ascii().to_owned()).collect();
                if !kinds.iter().all(|kind| is_kind(kind)) {
                    return Err("providers wants kinds, as in: vault, pkcs11, file".to_owned());
                }
                self.providers = Some(kinds);
            }
            _ => return Err(unknown(name, value)),
        }
        Ok(())
    }
}

/// The kind of a provider: `file` of `file:/etc/pgseal/main.key`.
#[must_use]
pub fn kind_of(uri: &str) -> &str {
    uri.split(':').next().unwrap_or_default()
}

fn is_kind(text: &str) -> bool {
    ["env", "file", "command", "passphrase"].contains(&text) || pgseal_plugin::is_name(text)
}

fn parts(line: &str) -> Option<(&str, &str)> {
    line.split_once('=').map(|(name, value)| (name.trim_ascii(), value.trim_ascii()))
}

fn number(name: &str, value: &str, most: u32) -> Result<u32, String> {
    let is_plain = value.bytes().all(|byte| byte.is_ascii_digit());
    let number = value.parse().ok().filter(|number| is_plain && (1..=most).contains(number));
    number.ok_or_else(|| format!("{name} wants a number from 1 to {most}"))
}

fn unknown(name: &str, value: &str) -> String {
    let shown: String = format!("{name} = {value}").chars().take(60).collect();
    format!("\"{}\": there are {}", shown.escape_debug(), RULES.join(", "))
}

/// The text with these rules in it.
fn changed(text: &str, rules: &[(String, String)]) -> String {
    let is_changed = |line: &str| {
        let line = line.trim_ascii();
        !line.starts_with('#')
            && parts(line).is_some_and(|(name, _)| rules.iter().any(|(rule, _)| rule == name))
    };
    let mut lines: Vec<String> =
        text.lines().filter(|line| !is_changed(line)).map(str::to_owned).collect();
    for (at, (name, value)) in rules.iter().enumerate() {
        let is_last = !rules.iter().skip(at + 1).any(|(other, _)| other == name);
        if is_last && value != OFF {
            lines.push(format!("{name} = {value}"));
        }
    }
    lines.join("\n") + "\n"
}

fn trusted(path: &Path) -> TrustedFile<'_> {
    TrustedFile { path, why: "it says what is wanted of keys", place: "/etc/pgseal" }
}

fn bad(path: &Path, what: String) -> KeyError {
    KeyError::PolicyFile { path: path.to_owned(), what }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    fn parse(text: &str) -> Result<KeyPolicy, KeyError> {
        KeyPolicy::parse(text, Path::new("/etc/pgseal/policy.conf"))
    }

    fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
        all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn every_rule_is_read() {
        let policy = parse(
            "# a comment\n\nrotate-days = 365\nrenew-days=730\n min-recipients = 1\r\n\
             providers = vault, pkcs11,file\nescrow = required\ndrill-days = 90\n",
        )
        .unwrap();
        let kinds = ["vault", "pkcs11", "file"].map(str::to_owned).to_vec();
        let wanted = KeyPolicy {
            rotate_days: Some(365),
            renew_days: Some(730),
            min_recipients: Some(1),
            providers: Some(kinds),
            escrow: Some(()),
            drill_days: Some(90),
        };
        assert_eq!(policy, wanted);
        assert!(parse("# nothing\n").unwrap().is_empty());
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for (text, words) in [
            ("rotate-days", "not NAME = VALUE"),
            ("rotate-days = 0", "from 1 to"),
            ("rotate-days = -1", "from 1 to"),
            ("rotate-days = +1", "from 1 to"),
            ("rotate-days = 1.5", "from 1 to"),
            ("rotate-days = 99999999999", "from 1 to"),
            ("min-recipients = 17", "from 1 to 16"),
            ("escrow = yes", "required"),
            ("providers = ", "wants kinds"),
            ("providers = vault,,file", "wants kinds"),
            ("providers = file:/x", "wants kinds"),
            ("rotate_days = 5", "there are rotate-days"),
            ("provider = file:/x", "there are rotate-days"),
            ("drill-days = 5\ndrill-days = 5", "set twice"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.to_string().contains(words), "{text}: {error}");
            assert_eq!(error.exit_code(), 2);
        }
    }

    #[test]
    fn rules_are_changed_and_the_rest_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pgseal/policy.conf");
        assert_eq!(KeyPolicy::load(&path, None).unwrap(), None);
        let change = |all: &[(&str, &str)]| KeyPolicy::change(&path, &pairs(all));
        change(&[("rotate-days", "30"), ("escrow", "required")]).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o644);
        let text = fs::read_to_string(&path).unwrap() + "# mine\n";
        fs::write(&path, text).unwrap();
        let policy = change(&[("rotate-days", "60"), ("escrow", "off")]).unwrap();
        assert_eq!(policy, KeyPolicy { rotate_days: Some(60), ..KeyPolicy::default() });
        assert_eq!(KeyPolicy::load(&path, None).unwrap(), Some(policy));
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("# mine") && text.ends_with("rotate-days = 60\n"), "{text}");
        for bad in [("rotate-days", "x"), ("nonsense", "1"), ("nonsense", "off")] {
            assert!(change(&[bad]).is_err(), "{bad:?}");
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), text, "a refused change changes nothing");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_others_can_write_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("policy.conf");
        fs::write(&path, "rotate-days = 1\n").unwrap();
        let refused = |words: &str| {
            let datadir = dir.path().join("data");
            let error = KeyPolicy::load(&path, Some(&datadir)).unwrap_err();
            assert_eq!(error.exit_code(), 12, "{error}");
            assert!(error.to_string().contains(words), "{error}");
            assert!(KeyPolicy::change(&path, &pairs(&[("rotate-days", "2")])).is_err());
        };
        for mode in [0o664, 0o646] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            refused("can write it");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(KeyPolicy::load(&path, None).unwrap().is_some());
        let inside = KeyPolicy::load(&path, Some(dir.path())).unwrap_err();
        assert!(inside.to_string().contains("in the data directory"), "{inside}");
        let real = dir.path().join("real");
        fs::rename(&path, &real).unwrap();
        symlink(&real, &path).unwrap();
        refused("a link");
    }
}
