//! The TLS side of a connection: whom to trust, and which certificate to show.

use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pgseal_plugin::files::Readers;
use pgseal_plugin::{Failure, configuration};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ClientConnection, Error as TlsError, RootCertStore};
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig, TlsProvider};

use crate::files;
use crate::uri::ClientCertificate;

/// How long the store may take to say why it closes connections.
const ALERT: Duration = Duration::from_secs(1);

/// Where distributions keep the authorities that they trust.
const BUNDLES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
];

/// Whom to trust, and which certificate to show.
pub(crate) struct Trust {
    provider: Arc<CryptoProvider>,
    roots: Vec<CertificateDer<'static>>,
    client: Option<Client>,
}

struct Client {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    for_ureq: PrivateKey<'static>,
}

impl Trust {
    /// What the files say; without `ca`, the authorities of the system.
    pub(crate) fn read(
        ca: Option<&Path>,
        certificate: Option<&ClientCertificate>,
    ) -> Result<Trust, Failure<'static>> {
        let roots = match ca {
            Some(path) => authorities(path)?,
            None => authorities(&bundle()?)?,
        };
        let provider = Arc::new(aws_lc_rs::default_provider());
        let client = certificate.map(|files| client(files, &provider)).transpose()?;
        Ok(Trust { provider, roots, client })
    }

    /// The configuration for ureq.
    pub(crate) fn for_ureq(&self) -> TlsConfig {
        let own = |der: &CertificateDer<'static>| Certificate::from_der(der).to_owned();
        let roots: Vec<_> = self.roots.iter().map(own).collect();
        let client = self.client.as_ref().map(|client| {
            let chain: Vec<_> = client.chain.iter().map(own).collect();
            ClientCert::new_with_certs(&chain, client.for_ureq.to_owned())
        });
        TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .unversioned_rustls_crypto_provider(self.provider.clone())
            .root_certs(RootCerts::new_with_certs(&roots))
            .client_cert(client)
            .build()
    }

    /// Why the store closes connections, if it says so. With TLS 1.3 a client writes its request
    /// before the store has judged its certificate; if the store has closed the connection by then,
    /// the write fails, and the alert is never read. Here nothing is written behind the handshake.
    pub(crate) fn alert(&self, host: &str, port: u16) -> Option<TlsError> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(self.roots.iter().cloned());
        let config = ClientConfig::builder_with_provider(self.provider.clone())
            .with_safe_default_protocol_versions()
            .ok()?
            .with_root_certificates(roots);
        let config = match &self.client {
            Some(client) => {
                config.with_client_auth_cert(client.chain.clone(), client.key.clone_key()).ok()?
            }
            None => config.with_no_client_auth(),
        };
        let name = ServerName::try_from(host.to_owned()).ok()?;
        let mut connection = ClientConnection::new(Arc::new(config), name).ok()?;
        let address = (host, port).to_socket_addrs().ok()?.next()?;
        let mut socket = TcpStream::connect_timeout(&address, ALERT).ok()?;
        socket.set_read_timeout(Some(ALERT)).ok()?;
        let end = Instant::now() + ALERT;
        while Instant::now() < end {
            if connection.wants_write() {
                connection.write_tls(&mut socket).ok()?;
            } else if connection.read_tls(&mut socket).ok()? == 0 {
                return None;
            } else if let Err(error) = connection.process_new_packets() {
                return Some(error);
            }
        }
        None
    }
}

fn bundle() -> Result<PathBuf, Failure<'static>> {
    BUNDLES.iter().map(PathBuf::from).find(|path| path.is_file()).ok_or_else(|| {
        configuration(
            "this machine has no list of trusted authorities (ca-certificates); give ca-file=/PATH",
        )
    })
}

fn authorities(path: &Path) -> Result<Vec<CertificateDer<'static>>, Failure<'static>> {
    certificates("ca-file", path, &files::pem("ca-file", path, Readers::Any)?)
}

/// The certificates of a PEM file; at least one.
fn certificates(
    what: &str,
    path: &Path,
    text: &[u8],
) -> Result<Vec<CertificateDer<'static>>, Failure<'static>> {
    let wrong = |problem: String| configuration(format!("{what} {}: {problem}", path.display()));
    let found: Vec<_> = CertificateDer::pem_slice_iter(text)
        .collect::<Result<_, _>>()
        .map_err(|error| wrong(format!("no PEM: {error}")))?;
    match found.is_empty() {
        true => Err(wrong("it holds no certificate (PEM)".to_owned())),
        false => Ok(found),
    }
}

/// The client certificate; ureq would panic on one whose key is that of another.
fn client(
    files: &ClientCertificate,
    provider: &CryptoProvider,
) -> Result<Client, Failure<'static>> {
    let wrong = |problem: String| {
        configuration(format!("cert-key-file {}: {problem}", files.key.display()))
    };
    let chain = files::pem("cert-file", &files.chain, Readers::Any)?;
    let chain = certificates("cert-file", &files.chain, &chain)?;
    let text = files::pem("cert-key-file", &files.key, Readers::Owner)?;
    let key = PrivateKeyDer::from_pem_slice(&text)
        .map_err(|error| wrong(format!("no private key (PEM): {error}")))?;
    CertifiedKey::from_der(chain.clone(), key.clone_key(), provider)
        .map_err(|error| wrong(format!("it is not the key of cert-file: {error}")))?;
    let for_ureq = PrivateKey::from_pem(&text).map_err(|error| wrong(error.to_string()))?;
    Ok(Client { chain, key, for_ureq })
}
