//! What plugins that speak TLS share (feature `tls`): whom to trust, which certificate to show, and
//! whose fault a failure of TLS is. The attributes of a URI are `ca-file`, `cert-file` and
//! `cert-key-file`.

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{AlertDescription, CertificateError, ClientConfig, Error as TlsError, RootCertStore};

use zeroize::Zeroizing;

use crate::failure::{Failure, Fault, configuration};
use crate::files::{Readers, content};

/// Where distributions keep the authorities that they trust.
const BUNDLES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
];
/// The longest file that is read, in bytes. A bundle of authorities has about 250 kB.
const MAX_LEN: usize = 2 << 20;

/// A client certificate and its key: two files in the form PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    /// The certificate, and those between it and its authority.
    pub chain: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// Whom to trust, and which certificate to show.
pub struct Trust {
    provider: Arc<CryptoProvider>,
    roots: Vec<CertificateDer<'static>>,
    client: Option<Client>,
}

struct Client {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    key_pem: Zeroizing<Vec<u8>>,
}

impl Trust {
    /// What the files say; without `ca`, the authorities of the system.
    ///
    /// # Errors
    /// [`Fault::Configuration`] if a file cannot be read, must not be trusted, or holds something
    /// else.
    pub fn read(
        ca: Option<&Path>,
        certificate: Option<&ClientCertificate>,
    ) -> Result<Trust, Failure<'static>> {
        let roots = match ca {
            Some(path) => authorities(path)?,
            None => authorities(&bundle()?)?,
        };
        let provider = Arc::new(provider());
        let client = certificate.map(|files| client(files, &provider)).transpose()?;
        Ok(Trust { provider, roots, client })
    }

    /// The cryptography.
    #[must_use]
    pub fn provider(&self) -> Arc<CryptoProvider> {
        self.provider.clone()
    }

    /// The authorities.
    #[must_use]
    pub fn roots(&self) -> &[CertificateDer<'static>] {
        &self.roots
    }

    /// The certificates to show, and the key of the first one as PEM.
    #[must_use]
    pub fn client(&self) -> Option<(&[CertificateDer<'static>], &[u8])> {
        self.client.as_ref().map(|client| (&client.chain[..], &client.key_pem[..]))
    }

    /// The configuration for rustls.
    ///
    /// # Errors
    /// [`Fault::Configuration`] if rustls takes no such certificate.
    pub fn for_rustls(&self) -> Result<ClientConfig, Failure<'static>> {
        let wrong = |error: TlsError| configuration(format!("TLS cannot be set up: {error}"));
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(self.roots.iter().cloned());
        let config = ClientConfig::builder_with_provider(self.provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(wrong)?
            .with_root_certificates(roots);
        match &self.client {
            Some(client) => config
                .with_client_auth_cert(client.chain.clone(), client.key.clone_key())
                .map_err(wrong),
            None => Ok(config.with_no_client_auth()),
        }
    }
}

/// AWS-LC; of a FIPS build only what SP 800-52 revision 2 allows: AES-GCM, and the curves of NIST.
fn provider() -> CryptoProvider {
    let mut provider = aws_lc_rs::default_provider();
    if pgseal_crypto::FIPS {
        let name = |name: &dyn Debug| format!("{name:?}").to_ascii_lowercase();
        provider.cipher_suites.retain(|suite| name(&suite.suite()).contains("_aes_"));
        provider.kx_groups.retain(|group| name(&group.name()).starts_with("secp"));
    }
    provider
}

fn bundle() -> Result<PathBuf, Failure<'static>> {
    BUNDLES.iter().map(PathBuf::from).find(|path| path.is_file()).ok_or_else(|| {
        configuration(
            "this machine has no list of trusted authorities (ca-certificates); give ca-file=/PATH",
        )
    })
}

fn authorities(path: &Path) -> Result<Vec<CertificateDer<'static>>, Failure<'static>> {
    certificates("ca-file", path)
}

/// The certificates of a PEM file; at least one.
fn certificates(what: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, Failure<'static>> {
    let wrong = |problem: String| configuration(format!("{what} {}: {problem}", path.display()));
    let text = content(what, path, Readers::Any, MAX_LEN)?;
    let found: Vec<_> = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<_, _>>()
        .map_err(|error| wrong(format!("no PEM: {error}")))?;
    match found.is_empty() {
        true => Err(wrong("it holds no certificate (PEM)".to_owned())),
        false => Ok(found),
    }
}

/// The client certificate, with the key that belongs to it.
fn client(
    files: &ClientCertificate,
    provider: &CryptoProvider,
) -> Result<Client, Failure<'static>> {
    let wrong = |problem: String| {
        configuration(format!("cert-key-file {}: {problem}", files.key.display()))
    };
    let chain = certificates("cert-file", &files.chain)?;
    let key_pem = content("cert-key-file", &files.key, Readers::Owner, MAX_LEN)?;
    let key = PrivateKeyDer::from_pem_slice(&key_pem)
        .map_err(|error| wrong(format!("no private key (PEM): {error}")))?;
    CertifiedKey::from_der(chain.clone(), key.clone_key(), provider)
        .map_err(|error| wrong(format!("it is not the key of cert-file: {error}")))?;
    Ok(Client { chain, key, key_pem })
}

/// The error of TLS inside an error of a connection.
#[must_use]
pub fn inside(error: &io::Error) -> Option<&TlsError> {
    let inside = error.get_ref()?;
    inside
        .downcast_ref::<TlsError>()
        .or_else(|| inside.source().and_then(|source| source.downcast_ref::<TlsError>()))
}

/// The failure for an error of TLS with the store at `address`.
#[must_use]
pub fn failure(error: &TlsError, address: &str) -> Failure<'static> {
    let configuration = |what: &str| configuration(format!("{address}: {what}"));
    match error {
        TlsError::InvalidCertificate(what) => match what {
            CertificateError::UnknownIssuer => configuration(
                "no authority of ca-file has signed the store's certificate; give the right \
                 ca-file=/PATH",
            ),
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                configuration("the store's certificate is not for the host of the address")
            }
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => {
                configuration("the store's certificate is not valid now; renew it, check the clock")
            }
            other => configuration(&format!("the store's certificate is not accepted: {other:?}")),
        },
        TlsError::AlertReceived(alert) => match alert {
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied => Failure::new(
                Fault::Refused,
                format!(
                    "{address}: the store does not accept the client certificate ({alert:?}); \
                     give cert-file and cert-key-file of one that it trusts"
                ),
            ),
            other => configuration(&format!("the store ends the TLS handshake: {other:?}")),
        },
        TlsError::InvalidMessage(_) => {
            configuration("what answers does not speak TLS; check the port")
        }
        other => configuration(&format!("TLS fails: {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fips_build_offers_less_and_not_nothing() {
        let (all, ours) = (aws_lc_rs::default_provider(), provider());
        assert!(!ours.cipher_suites.is_empty() && !ours.kx_groups.is_empty());
        assert_eq!(pgseal_crypto::FIPS, ours.cipher_suites.len() < all.cipher_suites.len());
        assert_eq!(pgseal_crypto::FIPS, ours.kx_groups.len() < all.kx_groups.len());
    }
}
