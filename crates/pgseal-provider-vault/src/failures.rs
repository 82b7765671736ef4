//! Whose fault an answer or an error of the store is, and what to do next.

use pgseal_plugin::{Failure, Fault, configuration, tls};
use rustls::Error as TlsError;

use crate::address::Address;
use crate::reply::Reply;

/// The failure for an answer that reports an error, where the request itself cannot be the reason:
/// `right` is the capability that a policy must give on the path.
pub(crate) fn of_status(reply: &Reply, right: &str) -> Failure<'static> {
    let asked = &reply.asked;
    let said = reply.errors();
    let new = |kind, what: String| Failure::new(kind, format!("{asked}: {what}"));
    match reply.status {
        403 | 401 => new(
            Fault::Refused,
            format!(
                "the store refuses ({said}). Either the token is wrong or has expired, or its \
                 policy lacks: path \"{}\" {{ capabilities = [\"{right}\"] }}",
                reply.path
            ),
        ),
        400 if said.contains("missing client token") => new(
            Fault::Refused,
            "the store got no token: name a way to log in (docs/key-stores.md)".to_owned(),
        ),
        404 if said.contains("no handler for route") => new(
            Fault::Configuration,
            "nothing is mounted there; correct mount= or auth-mount=, or namespace=".to_owned(),
        ),
        404 | 405 => new(
            Fault::Configuration,
            format!("this path is unknown to the store ({said}); is the mount of the right kind?"),
        ),
        412 | 429 | 473 => new(Fault::Unavailable, format!("the store is busy ({said})")),
        503 if said.contains("sealed") => new(
            Fault::Unavailable,
            "the store is sealed; unseal it (vault operator unseal)".to_owned(),
        ),
        status @ 500..=599 => {
            new(Fault::Unavailable, format!("the store fails with status {status} ({said})"))
        }
        status => new(Fault::Configuration, format!("the store answers {status} ({said})")),
    }
}

/// The failure for a request that got no answer.
pub(crate) fn of_transport(error: &ureq::Error, address: &Address) -> Failure<'static> {
    let unavailable = |what: String| Failure::new(Fault::Unavailable, format!("{address}: {what}"));
    match error {
        ureq::Error::Rustls(error) => of_tls(error, address),
        ureq::Error::Tls(what) => configuration(format!("{address}: {what}")),
        ureq::Error::Io(error) => match tls::inside(error) {
            Some(error) => of_tls(error, address),
            None => unavailable(format!("no connection: {error}")),
        },
        ureq::Error::HostNotFound => unavailable("the name of the host is not found".to_owned()),
        ureq::Error::Timeout(_) => unavailable("no answer in time".to_owned()),
        ureq::Error::Protocol(_) | ureq::Error::LargeResponseHeader(..) => configuration(format!(
            "{address}: what answers does not speak HTTP/1.1; check the port"
        )),
        other => unavailable(format!("no answer: {other}")),
    }
}

/// The failure for an error of TLS.
pub(crate) fn of_tls(error: &TlsError, address: &Address) -> Failure<'static> {
    tls::failure(error, &address.to_string())
}

#[cfg(test)]
mod tests {
    use std::io;

    use rustls::{AlertDescription, CertificateError};

    use super::*;

    fn reply(status: u16, body: &str) -> Reply {
        Reply::for_test(status, "transit/decrypt/pg", body)
    }

    #[test]
    fn each_status_has_its_fault() {
        let sealed = "{\"errors\":[\"Vault is sealed\"]}";
        let route = "{\"errors\":[\"no handler for route \\\"x/\\\". route entry not found.\"]}";
        let denied = "{\"errors\":[\"1 error occurred:\\n\\t* permission denied\\n\\n\"]}";
        for (status, body, kind, words) in [
            (403, denied, Fault::Refused, "path \"transit/decrypt/pg\" { capabilities = [\"up"),
            (400, "{\"errors\":[\"missing client token\"]}", Fault::Refused, "no token"),
            (404, route, Fault::Configuration, "nothing is mounted there"),
            (404, "{\"errors\":[]}", Fault::Configuration, "unknown to the store"),
            (405, "{\"errors\":[\"unsupported operation\"]}", Fault::Configuration, "right kind"),
            (412, "", Fault::Unavailable, "busy"),
            (429, "{\"errors\":[\"rate limit\"]}", Fault::Unavailable, "busy (rate limit)"),
            (500, "{\"errors\":[\"internal error\"]}", Fault::Unavailable, "internal error"),
            (502, "<html>", Fault::Unavailable, "status 502"),
            (503, sealed, Fault::Unavailable, "unseal it"),
            (418, "", Fault::Configuration, "418"),
        ] {
            let failure = of_status(&reply(status, body), "update");
            assert_eq!(failure.kind, kind, "{status} {body}");
            assert!(failure.message.contains(words), "{status}: {}", failure.message);
            assert!(failure.message.chars().count() < 500, "{}", failure.message);
        }
    }

    #[test]
    fn errors_of_the_store_are_cut_and_on_one_line() {
        let long = format!("{{\"errors\":[\"a\\n b\",\"{}\"]}}", "x".repeat(1000));
        let said = reply(500, &long).errors();
        assert!(said.starts_with("a b; xxx") && said.len() <= 200, "{said}");
        let kv = "{\"data\":null,\"warnings\":[\"Invalid path for a versioned K/V engine.\"]}";
        assert!(reply(404, kv).errors().contains("Invalid path") && !reply(404, kv).is_missing());
        assert!(reply(404, "{\"errors\":[]}").is_missing());
        assert_eq!(reply(500, "no json").errors(), "it does not say why");
    }

    #[test]
    fn errors_of_connections_have_their_fault() {
        let address = Address::parse("address", "https://v:8200").unwrap();
        let inside =
            |error: TlsError| ureq::Error::Io(io::Error::new(io::ErrorKind::InvalidData, error));
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        for (error, kind) in [
            (ureq::Error::Io(refused), Fault::Unavailable),
            (ureq::Error::HostNotFound, Fault::Unavailable),
            (
                inside(TlsError::InvalidCertificate(CertificateError::UnknownIssuer)),
                Fault::Configuration,
            ),
            (
                inside(TlsError::AlertReceived(AlertDescription::CertificateRequired)),
                Fault::Refused,
            ),
            (
                ureq::Error::Rustls(TlsError::AlertReceived(AlertDescription::HandshakeFailure)),
                Fault::Configuration,
            ),
        ] {
            assert_eq!(of_transport(&error, &address).kind, kind, "{error}");
        }
    }
}
