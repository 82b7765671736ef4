//! The URI: `aws-kms:key=KEY?region=R&...`, in the form of the URIs of `pkcs11:` (RFC 7512).

use std::fmt;
use std::net::IpAddr;

use pgseal_plugin::uri::{once, shown, texts};
use pgseal_plugin::{Failure, configuration};

/// The longest name of a key, in bytes: an ARN with an alias has less than 400.
const MAX_LEN: usize = 450;

/// A key of KMS: its id, its ARN, an alias (`alias/NAME`), or the ARN of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key(String);

impl Key {
    fn parse(text: &str) -> Option<Key> {
        let is_good = |c: char| c.is_ascii_alphanumeric() || "-_/:".contains(c);
        let is_name = !text.is_empty() && text.len() <= MAX_LEN && text.chars().all(is_good);
        is_name.then(|| Key(text.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it can name another key tomorrow.
    pub(crate) fn is_alias(&self) -> bool {
        let name = self.0.rsplit_once(':').map_or(&*self.0, |(_, name)| name);
        name.starts_with("alias/")
    }

    /// The key that `arn` names, if it is a key of the same partition, region and account as this
    /// one, which is an ARN too.
    pub(crate) fn sibling(&self, arn: &str) -> Option<Key> {
        let place = |arn: &str| {
            let (place, name) = arn.rsplit_once(':')?;
            name.starts_with("key/").then(|| place.to_owned())
        };
        match (place(&self.0), place(arn)) {
            (Some(here), Some(there)) if here == there => Key::parse(arn),
            _ => None,
        }
    }

    /// A name that KMS returned.
    pub(crate) fn returned(arn: Option<&str>) -> Option<Key> {
        arn.and_then(Key::parse)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a URI says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Uri {
    /// The key that wraps.
    pub key: Key,
    /// The region; without it, as the SDK finds it.
    pub region: Option<String>,
    /// The profile of the SDK's configuration files.
    pub profile: Option<String>,
    /// Another address than the region's public one.
    pub endpoint: Option<String>,
}

impl Uri {
    /// Parses a URI. An unknown attribute is an error, because it may be a mistyped one, and each
    /// attribute stands once.
    pub(crate) fn parse(text: &str) -> Result<Uri, Failure<'static>> {
        let rest = text.strip_prefix("aws-kms:").ok_or_else(|| configuration("no aws-kms: URI"))?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut key = None;
        for (name, value) in texts(path, ';')? {
            if name != "key" {
                return Err(unknown(name));
            }
            let parsed = Key::parse(&value).ok_or_else(|| {
                configuration("key: give a key id, alias/NAME, or the ARN of one of them")
            })?;
            once(&mut key, name, parsed)?;
        }
        let key = key.ok_or_else(|| configuration("name a key: aws-kms:key=alias/NAME"))?;
        let (mut region, mut profile, mut endpoint) = (None, None, None);
        for (name, value) in texts(query, '&')? {
            match name {
                "region" => once(&mut region, name, word(name, value)?)?,
                "profile" => once(&mut profile, name, value)?,
                "endpoint" => once(&mut endpoint, name, address(value)?)?,
                _ => return Err(unknown(name)),
            }
        }
        Ok(Uri { key, region, profile, endpoint })
    }
}

fn word(name: &str, value: String) -> Result<String, Failure<'static>> {
    match value.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        true => Ok(value),
        false => Err(configuration(format!("{name}: letters, digits and - only"))),
    }
}

/// `https://HOST[:PORT]`, or `http://` on a loopback address: keys would cross a network in the
/// clear.
fn address(value: String) -> Result<String, Failure<'static>> {
    let wrong = || {
        configuration(
            "endpoint: give https://HOST or https://HOST:PORT (http:// only for a loopback address)",
        )
    };
    let is_authority = |text: &str| {
        let is_good = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
        !text.is_empty() && text.chars().all(is_good)
    };
    if let Some(authority) = value.strip_prefix("https://") {
        return if is_authority(authority) { Ok(value) } else { Err(wrong()) };
    }
    let authority = value.strip_prefix("http://").filter(|text| is_authority(text));
    let authority = authority.ok_or_else(wrong)?;
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => host,
        _ => authority,
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    match host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback()) {
        true => Ok(value),
        false => Err(wrong()),
    }
}

fn unknown(name: &str) -> Failure<'static> {
    configuration(format!(
        "{}: no attribute that this plugin knows here; it takes key, and behind the ?: region, \
         profile, endpoint; credentials come from where AWS's programs look for them",
        shown(name)
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use pgseal_plugin::Fault;

    use super::*;

    const ARN: &str = "arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab";

    #[test]
    fn a_whole_uri() {
        let uri = Uri::parse(
            "aws-kms:key=alias/pg_1?region=eu-central-1&profile=pg%20seal&\
             endpoint=https://vpce-1.kms.eu-central-1.vpce.amazonaws.com",
        );
        let wanted = Uri {
            key: Key("alias/pg_1".to_owned()),
            region: Some("eu-central-1".to_owned()),
            profile: Some("pg seal".to_owned()),
            endpoint: Some("https://vpce-1.kms.eu-central-1.vpce.amazonaws.com".to_owned()),
        };
        assert_eq!(uri.unwrap(), wanted);
        assert_eq!(Uri::parse(&format!("aws-kms:key={ARN}")).unwrap().key.as_str(), ARN);
    }

    #[test]
    fn a_hint_stays_in_its_account_and_region() {
        let here = Key(ARN.to_owned());
        let other = "arn:aws:kms:eu-central-1:111122223333:key/5678";
        assert_eq!(here.sibling(other), Some(Key(other.to_owned())));
        for bad in [
            "arn:aws:kms:eu-central-1:444455556666:key/5678",
            "arn:aws:kms:us-east-1:111122223333:key/5678",
            "arn:aws:kms:eu-central-1:111122223333:alias/a",
            "5678",
            "",
        ] {
            assert_eq!(here.sibling(bad), None, "{bad}");
        }
        assert_eq!(Key("alias/a".to_owned()).sibling(other), None);
        assert!(Key("alias/a".to_owned()).is_alias() && !here.is_alias());
        assert!(Key("arn:aws:kms:r:1:alias/a".to_owned()).is_alias());
    }

    #[test]
    fn wrong_uris_are_refused_and_show_no_secret() {
        for bad in [
            "kms:key=a",
            "aws-kms:",
            "aws-kms:alias/pg",
            "aws-kms:key=",
            "aws-kms:key=a%20b",
            "aws-kms:key=a;key=b",
            "aws-kms:key=a?region=eu/1",
            "aws-kms:key=a?region=a&region=b",
            "aws-kms:key=a?endpoint=http://kms.example",
            "aws-kms:key=a?endpoint=http://127.0.0.1.example",
            "aws-kms:key=a?endpoint=https://user:sekrit@kms",
            "aws-kms:key=a?endpoint=https://",
            "aws-kms:key=a?secret-access-key=sekrit",
        ] {
            let failure = Uri::parse(bad).unwrap_err();
            assert_eq!(failure.kind, Fault::Configuration, "{bad}");
            assert!(!failure.message.contains("sekrit"), "{}", failure.message);
        }
        for good in ["http://127.0.0.1:5000", "http://[::1]:5000", "https://kms.example:8443"] {
            assert!(Uri::parse(&format!("aws-kms:key=a?endpoint={good}")).is_ok(), "{good}");
        }
    }
}
