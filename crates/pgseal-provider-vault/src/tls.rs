//! The TLS side of a connection, for ureq; and why the store closes connections.

use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pgseal_plugin::tls::Trust;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConnection, Error as TlsError};
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig, TlsProvider};

/// How long the store may take to say why it closes connections.
const ALERT: Duration = Duration::from_secs(1);

/// The configuration for ureq.
pub(crate) fn for_ureq(trust: &Trust) -> TlsConfig {
    let own = |der: &CertificateDer<'static>| Certificate::from_der(der).to_owned();
    let roots: Vec<_> = trust.roots().iter().map(own).collect();
    // The key was read before, and fits the certificate: with another one ureq would panic.
    let client = trust.client().and_then(|(chain, key_pem)| {
        let chain: Vec<_> = chain.iter().map(own).collect();
        Some(ClientCert::new_with_certs(&chain, PrivateKey::from_pem(key_pem).ok()?))
    });
    TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .unversioned_rustls_crypto_provider(trust.provider())
        .root_certs(RootCerts::new_with_certs(&roots))
        .client_cert(client)
        .build()
}

/// Why the store closes connections, if it says so. With TLS 1.3 a client writes its request before
/// the store has judged its certificate; if the store has closed the connection by then, the write
/// fails, and the alert is never read. Here nothing is written behind the handshake.
pub(crate) fn alert(trust: &Trust, host: &str, port: u16) -> Option<TlsError> {
    let config = trust.for_rustls().ok()?;
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
