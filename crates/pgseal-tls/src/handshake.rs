//! One complete handshake, by rustls, as a current client makes it. It shows what is negotiated,
//! and the server's certificates, which are encrypted in TLS 1.3.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{self, CryptoProvider};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme};
use serde::Serialize;

use crate::conninfo::Target;
use crate::error::TlsError;
use crate::{groups, suites, wire};

/// What a current client and the server agree on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Negotiated {
    /// `TLSv1.2` or `TLSv1.3`.
    pub version: String,
    /// OpenSSL's name of the suite.
    pub suite: String,
    /// OpenSSL's name of the group.
    pub group: Option<String>,
    /// The certificates (DER), the server's own first.
    #[serde(skip)]
    pub certificates: Vec<Vec<u8>>,
}

/// Accepts and keeps every certificate. The certificates are checked afterwards, so that all their
/// faults are found and not only the first. The handshake still proves that the server has the
/// private key.
#[derive(Debug)]
struct Keeper {
    provider: Arc<CryptoProvider>,
    seen: Mutex<Vec<Vec<u8>>>,
}

impl ServerCertVerifier for Keeper {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let chain = std::iter::once(end_entity).chain(intermediates);
        let mut seen = self.seen.lock().map_err(|_| Error::General("lock poisoned".to_owned()))?;
        *seen = chain.map(|certificate| certificate.to_vec()).collect();
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Whether [`negotiate`] can use a group, by OpenSSL's name of it.
pub fn has_group(name: &str) -> bool {
    let provider = crypto::aws_lc_rs::default_provider();
    provider.kx_groups.iter().any(|group| groups::name_of(u16::from(group.name())) == name)
}

/// A handshake as a client of today makes it. The inner error says why there was none.
///
/// # Errors
/// When the server cannot be reached, or is none.
pub fn negotiate(
    target: &Target,
    timeout: Duration,
) -> Result<Result<Negotiated, String>, TlsError> {
    let mut stream = wire::connect(target, timeout)?;
    if !wire::request_tls(&mut stream, target)? {
        return Ok(Err("the server has no TLS".to_owned()));
    }
    Ok(shake(target, &mut stream))
}

fn shake(target: &Target, stream: &mut std::net::TcpStream) -> Result<Negotiated, String> {
    let words = |error: Error| error.to_string();
    let provider = Arc::new(crypto::aws_lc_rs::default_provider());
    let keeper = Arc::new(Keeper { provider: provider.clone(), seen: Mutex::default() });
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(words)?
        .dangerous()
        .with_custom_certificate_verifier(keeper.clone())
        .with_no_client_auth();
    let name = ServerName::try_from(target.host.clone())
        .or_else(|_| ServerName::try_from("localhost"))
        .map_err(|error| error.to_string())?;
    let mut client = ClientConnection::new(Arc::new(config), name).map_err(words)?;
    while client.is_handshaking() {
        client.complete_io(stream).map_err(|error| error.to_string())?;
    }
    let version = client.protocol_version().map(u16::from).unwrap_or_default();
    let suite = client.negotiated_cipher_suite().map(|suite| u16::from(suite.suite()));
    let group = client.negotiated_key_exchange_group().map(|group| u16::from(group.name()));
    let seen = keeper.seen.lock().map_err(|_| "lock poisoned".to_owned())?;
    Ok(Negotiated {
        version: crate::version::Version::by_code(version)
            .map_or_else(|| format!("{version:#06x}"), |version| version.name().to_owned()),
        suite: suite.map(suites::name_of).unwrap_or_default(),
        group: group.map(groups::name_of),
        certificates: seen.clone(),
    })
}
