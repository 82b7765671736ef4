//! PKCS #11 URIs (RFC 7512): `pkcs11:token=T;object=O?module-path=M&pin-source=F`.

use std::path::PathBuf;

use pgseal_plugin::uri::{self, attributes, once, shown, string};
use pgseal_plugin::{Failure, configuration};

use crate::wrapped::Mechanism;

/// What a URI says. An attribute that is `None` matches everything.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Uri {
    /// The label of the token.
    pub token: Option<String>,
    /// The manufacturer of the token.
    pub manufacturer: Option<String>,
    /// The model of the token.
    pub model: Option<String>,
    /// The serial number of the token.
    pub serial: Option<String>,
    /// The number of the slot.
    pub slot: Option<u64>,
    /// `CKA_LABEL` of the key.
    pub object: Option<String>,
    /// `CKA_ID` of the key.
    pub id: Option<Vec<u8>>,
    /// The library that talks to the token.
    pub module: PathBuf,
    /// The file that holds the PIN.
    pub pin_source: Option<PathBuf>,
    /// How to wrap, if the token's first choice is not wanted.
    pub mechanism: Option<Mechanism>,
}

impl Uri {
    /// Parses a URI. An unknown attribute is an error, because it may be a mistyped one, and each
    /// attribute stands once.
    pub(crate) fn parse(text: &str) -> Result<Uri, Failure<'static>> {
        let rest = text.strip_prefix("pkcs11:").ok_or_else(|| configuration("no pkcs11: URI"))?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut uri = Uri::default();
        let mut module = None;
        for (name, value) in attributes(path, ';')? {
            match name {
                "token" => once(&mut uri.token, name, string(name, value)?)?,
                "manufacturer" => once(&mut uri.manufacturer, name, string(name, value)?)?,
                "model" => once(&mut uri.model, name, string(name, value)?)?,
                "serial" => once(&mut uri.serial, name, string(name, value)?)?,
                "object" => once(&mut uri.object, name, string(name, value)?)?,
                "id" => once(&mut uri.id, name, value)?,
                "slot-id" => {
                    let number = string(name, value)?.parse().ok();
                    let number = number.ok_or_else(|| configuration("slot-id is no number"))?;
                    once(&mut uri.slot, name, number)?;
                }
                "type" if value == b"secret-key" => {}
                "type" => return Err(configuration("type: only a secret-key can wrap keys here")),
                _ => return Err(unknown(name)),
            }
        }
        for (name, value) in attributes(query, '&')? {
            match name {
                "module-path" => once(&mut module, name, absolute(name, value)?)?,
                "pin-source" => once(&mut uri.pin_source, name, absolute(name, value)?)?,
                "pin-value" => {
                    return Err(configuration(
                        "pin-value: a PIN must not stand in a URI, which is stored and shown; put \
                         it into a file of mode 600, and give pin-source=/PATH",
                    ));
                }
                "x-pgseal-mechanism" => {
                    let found = Mechanism::named(&string(name, value)?);
                    let found = found.ok_or_else(|| {
                        configuration(
                            "x-pgseal-mechanism: give aes-gcm, aes-key-wrap-pad or aes-key-wrap",
                        )
                    })?;
                    once(&mut uri.mechanism, name, found)?;
                }
                _ => return Err(unknown(name)),
            }
        }
        uri.module = module.ok_or_else(|| {
            configuration(
                "the library of the token is missing: add ?module-path=/PATH/OF/THE/LIBRARY.so",
            )
        })?;
        if uri.object.is_none() && uri.id.is_none() {
            return Err(configuration("the key is missing: add object=LABEL or id=%01"));
        }
        Ok(uri)
    }
}

/// A path, also as `file:/PATH` or `file:///PATH`, as RFC 7512 allows.
fn absolute(name: &str, value: Vec<u8>) -> Result<PathBuf, Failure<'static>> {
    let text = string(name, value)?;
    let path = text.strip_prefix("file:").unwrap_or(&text);
    uri::absolute(name, path.strip_prefix("//").unwrap_or(path))
}

fn unknown(name: &str) -> Failure<'static> {
    configuration(format!(
        "{}: no attribute that this plugin knows; it takes token, manufacturer, model, serial, \
         slot-id, object, id, type, and behind the ?: module-path, pin-source, x-pgseal-mechanism",
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
            "pkcs11:token=My%20Token;manufacturer=M;model=X;serial=01;slot-id=7;object=a%2fb;\
             id=%01%fF;type=secret-key?module-path=/m.so&pin-source=file:/etc/pin&\
             x-pgseal-mechanism=aes-key-wrap",
        );
        let wanted = Uri {
            token: Some("My Token".to_owned()),
            manufacturer: Some("M".to_owned()),
            model: Some("X".to_owned()),
            serial: Some("01".to_owned()),
            slot: Some(7),
            object: Some("a/b".to_owned()),
            id: Some(vec![1, 255]),
            module: PathBuf::from("/m.so"),
            pin_source: Some(PathBuf::from("/etc/pin")),
            mechanism: Some(Mechanism::KeyWrap),
        };
        assert_eq!(uri.unwrap(), wanted);
        let short = Uri::parse("pkcs11:id=a?pin-source=file:///p&module-path=/m").unwrap();
        assert_eq!(short.pin_source, Some(PathBuf::from("/p")));
    }

    #[test]
    fn wrong_uris_are_refused_and_show_no_secret() {
        for bad in [
            "pkcs12:object=a?module-path=/m",
            "pkcs11:?module-path=/m",
            "pkcs11:object=a",
            "pkcs11:object=a?module-path=m.so",
            "pkcs11:object=a;object=b?module-path=/m",
            "pkcs11:objekt=a?module-path=/m",
            "pkcs11:object?module-path=/m",
            "pkcs11:object=%4?module-path=/m",
            "pkcs11:object=%+1?module-path=/m",
            "pkcs11:object=%ff?module-path=/m",
            "pkcs11:object=a;slot-id=x?module-path=/m",
            "pkcs11:object=a;type=private?module-path=/m",
            "pkcs11:object=a?module-path=/m&module-name=softhsm",
            "pkcs11:object=a?module-path=/m&pin-source=|cat",
            "pkcs11:object=a?module-path=/m&pin-value=sekrit",
            "pkcs11:object=a?module-path=/m&x-pgseal-mechanism=rot13",
            "pkcs11:object=a?module-path=/m&sek/rit=1",
        ] {
            let failure = Uri::parse(bad).unwrap_err();
            assert_eq!(failure.kind, Fault::Configuration, "{bad}");
            assert!(!failure.message.contains("sekrit") && !failure.message.contains("sek/rit"));
        }
    }
}
