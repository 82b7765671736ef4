//! What the URI says, completed from the environment as the vendor's clients read it. The URI takes
//! precedence. Nothing comes from a data directory.

use std::env;
use std::path::PathBuf;

use pgseal_plugin::files::Readers;
use pgseal_plugin::tls::ClientCertificate;
use pgseal_plugin::{Failure, configuration};
use zeroize::Zeroizing;

use crate::address::Address;
use crate::files::{self, Token};
use crate::uri::{Login, Uri, header};

/// Where the store is, and how to get in.
pub(crate) struct Settings {
    /// The address of the store.
    pub address: Address,
    /// The namespace.
    pub namespace: Option<String>,
    /// The authorities that may have signed the store's certificate.
    pub ca: Option<PathBuf>,
    /// The certificate for the TLS connection.
    pub certificate: Option<ClientCertificate>,
    /// How to log in.
    pub login: Login,
}

impl Settings {
    /// The settings for a URI.
    pub(crate) fn of(uri: &Uri) -> Result<Settings, Failure<'static>> {
        let address = match (&uri.address, variable("ADDR")?) {
            (Some(address), _) => address.clone(),
            (None, Some((name, value))) => Address::parse(&name, &value)?,
            (None, None) => {
                return Err(configuration(
                    "the address of the store is missing: add ?address=https://HOST:PORT, or set \
                     VAULT_ADDR",
                ));
            }
        };
        let namespace = match (&uri.namespace, variable("NAMESPACE")?) {
            (Some(namespace), _) => Some(namespace.clone()),
            (None, Some((name, value))) => Some(header(&name, value.to_string())?),
            (None, None) => None,
        };
        let ca = match &uri.ca {
            Some(path) => Some(path.clone()),
            None => file("CACERT")?,
        };
        let certificate = match &uri.certificate {
            Some(certificate) => Some(certificate.clone()),
            None => match (file("CLIENT_CERT")?, file("CLIENT_KEY")?) {
                (Some(chain), Some(key)) => Some(ClientCertificate { chain, key }),
                (None, None) => None,
                _ => {
                    return Err(configuration(
                        "set both, VAULT_CLIENT_CERT and VAULT_CLIENT_KEY, or neither",
                    ));
                }
            },
        };
        Ok(Settings { address, namespace, ca, certificate, login: uri.login.clone() })
    }
}

/// The token of the environment, or of the file in which `vault login` leaves one.
pub(crate) fn environment_token() -> Result<Token, Failure<'static>> {
    if let Some((name, value)) = variable("TOKEN")? {
        return match value.bytes().all(|byte| byte.is_ascii_graphic()) {
            true => Ok(value),
            false => Err(configuration(format!("{name}: this is no token"))),
        };
    }
    let path = env::var_os("HOME").map(|home| PathBuf::from(home).join(".vault-token"));
    match path.filter(|path| path.is_absolute() && path.exists()) {
        Some(path) => files::credential("the token of `vault login`,", &path, Readers::Owner),
        None => Err(configuration(
            "no way to log in: add token-file=/PATH; or role-id= and secret-id-file=/PATH; or \
             role= and jwt-file=/PATH; or cert-file=/PATH and cert-key-file=/PATH",
        )),
    }
}

/// The variable of this name, of OpenBao or of Vault, and its value if it is not empty.
fn variable(name: &str) -> Result<Option<(String, Zeroizing<String>)>, Failure<'static>> {
    for prefix in ["BAO", "VAULT"] {
        let name = format!("{prefix}_{name}");
        let Some(value) = env::var_os(&name).filter(|value| !value.is_empty()) else { continue };
        return match value.into_string() {
            Ok(value) => Ok(Some((name, Zeroizing::new(value)))),
            Err(_) => Err(configuration(format!("{name}: the value is not UTF-8"))),
        };
    }
    Ok(None)
}

fn file(name: &str) -> Result<Option<PathBuf>, Failure<'static>> {
    let Some((name, value)) = variable(name)? else { return Ok(None) };
    let path = PathBuf::from(value.as_str());
    match path.is_absolute() {
        true => Ok(Some(path)),
        false => Err(configuration(format!("{name}: give an absolute path of a file"))),
    }
}
