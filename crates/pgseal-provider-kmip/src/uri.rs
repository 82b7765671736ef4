//! The URI: `kmip:id=ID?address=HOST:PORT&...`, in the form of the URIs of `pkcs11:` (RFC 7512).

use std::fmt;
use std::path::PathBuf;

use pgseal_plugin::tls::ClientCertificate;
use pgseal_plugin::uri::{absolute, once, shown, texts};
use pgseal_plugin::{Failure, configuration};

use crate::id::{Id, MAX_LEN};
use crate::message::Version;

/// The port of KMIP.
const PORT: u16 = 5696;

/// The key that wraps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The key of this Unique Identifier.
    Id(Id),
    /// The one key that has this Name.
    Name(Id),
}

/// Host and port of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// The name of the host, or its address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl Address {
    fn parse(name: &str, text: &str) -> Result<Address, Failure<'static>> {
        let wrong = || {
            configuration(format!("{name}: give HOST:PORT ([ADDRESS]:PORT for an IPv6 address)"))
        };
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().ok().filter(|port| *port != 0).ok_or_else(wrong)?)
            }
            _ => (text, PORT),
        };
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = bare.unwrap_or(host);
        let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        let is_good = match bare {
            Some(host) => host.parse::<std::net::Ipv6Addr>().is_ok(),
            None => !host.is_empty() && host.chars().all(is_host),
        };
        if is_good { Ok(Address { host: host.to_owned(), port }) } else { Err(wrong()) }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// What a URI says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Uri {
    /// What wraps.
    pub target: Target,
    /// Where the store is.
    pub address: Address,
    /// The authorities that may have signed the store's certificate.
    pub ca: Option<PathBuf>,
    /// The certificate that says who asks.
    pub certificate: ClientCertificate,
    /// The version of KMIP; without it, the highest one that both know.
    pub version: Option<Version>,
}

impl Uri {
    /// Parses a URI. An unknown attribute is an error, because it may be a mistyped one, and each
    /// attribute stands once.
    pub(crate) fn parse(text: &str) -> Result<Uri, Failure<'static>> {
        let rest = text.strip_prefix("kmip:").ok_or_else(|| configuration("no kmip: URI"))?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (mut id, mut name) = (None, None);
        for (attribute, value) in texts(path, ';')? {
            let value = || {
                Id::parse(&value).ok_or_else(|| {
                    configuration(format!(
                        "{attribute}: at most {MAX_LEN} bytes, without control characters"
                    ))
                })
            };
            match attribute {
                "id" => once(&mut id, attribute, value()?)?,
                "name" => once(&mut name, attribute, value()?)?,
                _ => return Err(unknown(attribute)),
            }
        }
        let target = match (id, name) {
            (Some(id), None) => Target::Id(id),
            (None, Some(name)) => Target::Name(name),
            _ => {
                return Err(configuration(
                    "name one key: kmip:id=ID (its Unique Identifier), or kmip:name=NAME",
                ));
            }
        };
        let (mut address, mut ca, mut chain, mut key, mut version) = (None, None, None, None, None);
        for (attribute, value) in texts(query, '&')? {
            match attribute {
                "address" => once(&mut address, attribute, Address::parse(attribute, &value)?)?,
                "ca-file" => once(&mut ca, attribute, absolute(attribute, &value)?)?,
                "cert-file" => once(&mut chain, attribute, absolute(attribute, &value)?)?,
                "cert-key-file" => once(&mut key, attribute, absolute(attribute, &value)?)?,
                "protocol" => {
                    let named = Version::named(&value).ok_or_else(|| {
                        configuration("protocol: give 1.2, 1.3, 1.4, 2.0 or 2.1, or leave it out")
                    })?;
                    once(&mut version, attribute, named)?;
                }
                _ => return Err(unknown(attribute)),
            }
        }
        let (Some(address), Some(chain), Some(key)) = (address, chain, key) else {
            return Err(configuration(
                "give address=HOST:PORT, and with cert-file=/PATH and cert-key-file=/PATH the \
                 certificate that says to the store who asks",
            ));
        };
        Ok(Uri { target, address, ca, certificate: ClientCertificate { chain, key }, version })
    }
}

fn unknown(name: &str) -> Failure<'static> {
    configuration(format!(
        "{}: no attribute that this plugin knows here; it takes id or name, and behind the ?: \
         address, ca-file, cert-file, cert-key-file, protocol",
        shown(name)
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use pgseal_plugin::Fault;

    use super::*;

    #[test]
    fn a_whole_uri() {
        let uri = Uri::parse(
            "kmip:name=pg%20main?address=kms.example:5697&ca-file=/ca.pem&cert-file=/c&\
             cert-key-file=/k&protocol=1.4",
        );
        let wanted = Uri {
            target: Target::Name(Id::parse("pg main").unwrap()),
            address: Address { host: "kms.example".to_owned(), port: 5697 },
            ca: Some(PathBuf::from("/ca.pem")),
            certificate: ClientCertificate { chain: PathBuf::from("/c"), key: PathBuf::from("/k") },
            version: Version::named("1.4"),
        };
        assert_eq!(uri.unwrap(), wanted);
    }

    #[test]
    fn addresses() {
        for (text, wanted) in [
            ("a", "a:5696"),
            ("127.0.0.1:1", "127.0.0.1:1"),
            ("[::1]", "[::1]:5696"),
            ("[::1]:99", "[::1]:99"),
        ] {
            assert_eq!(Address::parse("address", text).unwrap().to_string(), wanted);
        }
        for bad in ["", ":1", "a:", "a:0", "a:65536", "a/b", "::1", "[a]", "u@a", "https://a:1"] {
            assert!(Address::parse("address", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn wrong_uris_are_refused_and_show_no_secret() {
        let tls = "address=a&cert-file=/c&cert-key-file=/k";
        for bad in [
            "kmips:id=1".to_owned(),
            "kmip:".to_owned(),
            "kmip:id=1".to_owned(),
            format!("kmip:?{tls}"),
            format!("kmip:id=1;name=a?{tls}"),
            format!("kmip:id=1;id=2?{tls}"),
            format!("kmip:id=%0a?{tls}"),
            format!("kmip:id=?{tls}"),
            format!("kmip:id=1;address=a?{tls}"),
            format!("kmip:id=1?{tls}&protocol=1.1"),
            format!("kmip:id=1?{tls}&password=sekrit"),
            format!("kmip:id=1?{tls}&ca-file=ca.pem"),
            "kmip:id=1?address=a&cert-file=/c".to_owned(),
            "kmip:id=1?cert-file=/c&cert-key-file=/k".to_owned(),
        ] {
            let failure = Uri::parse(&bad).unwrap_err();
            assert_eq!(failure.kind, Fault::Configuration, "{bad}");
            assert!(!failure.message.contains("sekrit"), "{}", failure.message);
        }
    }
}
