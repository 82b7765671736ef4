//! The address of the store.

use std::fmt;
use std::net::IpAddr;

use pgseal_plugin::{Failure, configuration};
use ureq::http::Uri;

/// `https://HOST[:PORT]`; or `http://` on this machine, where an agent of the vendor may listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    is_tls: bool,
    authority: String,
}

impl Address {
    /// An address from the attribute or environment variable `name`.
    pub(crate) fn parse(name: &str, text: &str) -> Result<Address, Failure<'static>> {
        let wrong = |what: &str| configuration(format!("{name}: {what}"));
        let usual = "give https://HOST:PORT";
        let uri: Uri = text.parse().map_err(|_| wrong(usual))?;
        let is_whole = matches!(uri.path(), "" | "/") && uri.query().is_none();
        let (Some(scheme), Some(authority), true) = (uri.scheme_str(), uri.authority(), is_whole)
        else {
            return Err(wrong(usual));
        };
        if authority.as_str().contains('@') {
            return Err(wrong("no user and no password belong into the address"));
        }
        let is_tls = match scheme {
            "https" => true,
            "http" if is_loopback(authority.host()) => false,
            "http" => {
                return Err(wrong(
                    "tokens and keys would cross the network in the clear; give https://HOST:PORT \
                     (http:// only for an agent on a loopback address)",
                ));
            }
            _ => return Err(wrong(usual)),
        };
        Ok(Address { is_tls, authority: authority.as_str().to_owned() })
    }

    /// Whether connections are encrypted.
    pub(crate) fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// The host, an address of IPv6 without its brackets, and the port.
    pub(crate) fn host_and_port(&self) -> (&str, u16) {
        let usual = if self.is_tls { 443 } else { 80 };
        let (host, port) = match self.authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().unwrap_or(usual)),
            _ => (self.authority.as_str(), usual),
        };
        (host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host), port)
    }

    /// The address to which the store redirects: never one without TLS, if this one has it.
    pub(crate) fn redirected(&self, location: &str) -> Result<Address, Failure<'static>> {
        let name = format!("the store at {self} redirects to another address");
        let uri: Uri = location.parse().map_err(|_| configuration(format!("{name}: no URL")))?;
        let (scheme, authority) = match (uri.scheme_str(), uri.authority()) {
            (Some(scheme), Some(authority)) => (scheme, authority),
            _ => return Err(configuration(format!("{name}: it names no host"))),
        };
        let other = Address::parse(&name, &format!("{scheme}://{authority}"))?;
        match self.is_tls && !other.is_tls {
            true => Err(configuration(format!("{name}: {other}, which has no TLS"))),
            false => Ok(other),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority)
    }
}

fn is_loopback(host: &str) -> bool {
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn keys_never_cross_a_network_in_the_clear() {
        for good in [
            "https://v.example:8200",
            "https://[2001:db8::1]:8200",
            "http://127.0.0.1:8100",
            "http://[::1]:8100",
            "http://localhost:8100",
        ] {
            assert_eq!(Address::parse("address", good).unwrap().to_string(), good);
        }
        let parts = |text: &str| {
            let address = Address::parse("address", text).unwrap();
            let (host, port) = address.host_and_port();
            format!("{host} {port}")
        };
        assert_eq!(parts("https://[2001:db8::1]:8200"), "2001:db8::1 8200");
        assert_eq!(parts("https://[2001:db8::1]"), "2001:db8::1 443");
        assert_eq!(parts("https://v.example"), "v.example 443");
        assert_eq!(Address::parse("a", "https://v/").unwrap().to_string(), "https://v");
        for bad in [
            "",
            "v.example:8200",
            "http://v.example:8200",
            "http://127.0.0.1.example:8200",
            "ftp://v.example",
            "https://u:p@v.example",
            "https://v.example/v1",
            "https://v.example?x",
        ] {
            assert!(Address::parse("address", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_redirect_never_leaves_tls() {
        let here = Address::parse("address", "https://standby:8200").unwrap();
        let there = here.redirected("https://active:8200/v1/transit/decrypt/k").unwrap();
        assert_eq!(there.to_string(), "https://active:8200");
        for bad in ["http://127.0.0.1:8200/v1", "http://active/", "/v1/x", "file:///etc"] {
            assert!(here.redirected(bad).is_err(), "{bad}");
        }
    }
}
