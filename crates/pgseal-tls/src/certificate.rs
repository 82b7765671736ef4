//! Parses certificates (RFC 5280), and checks whether clients accept them.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use serde::Serialize;
use x509_parser::prelude::{FromDer, GeneralName, ParsedExtension, X509Certificate};
use x509_parser::public_key::PublicKey;

use crate::conninfo::Root;
use crate::error::TlsError;

/// Where distributions keep their trusted certificates.
const SYSTEM_ROOTS: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
];

/// The facts of a server's certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Certificate {
    /// Distinguished name of its owner.
    pub subject: String,
    /// Distinguished name of the signer.
    pub issuer: String,
    /// `RSA`, `EC`, or another algorithm's object identifier.
    pub key: String,
    /// Size of the key in bits.
    pub key_bits: usize,
    /// Name of the signature algorithm.
    pub signature: String,
    /// The DNS names and addresses that the certificate is for, or else the common name.
    pub names: Vec<String>,
    /// Valid from, in seconds since 1970.
    pub not_before_unix_s: i64,
    /// Valid until, in seconds since 1970.
    pub not_after_unix_s: i64,
    /// Whether the certificate is self-signed.
    pub self_signed: bool,
}

/// Whether the chain leads to a trusted certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "trust")]
pub enum Trust {
    /// The chain leads to a trusted certificate.
    Trusted {
        /// The file with the trusted certificate.
        root: PathBuf,
    },
    /// The chain does not lead to a trusted certificate.
    Distrusted {
        /// The file with the trusted certificates.
        root: PathBuf,
        /// Why the chain is not trusted.
        why: String,
    },
    /// No trusted certificates are known.
    Unchecked,
}

impl Certificate {
    /// Parses a certificate (DER); `None` if the bytes are not a certificate.
    pub fn parse(der: &[u8]) -> Option<Certificate> {
        let (_, parsed) = X509Certificate::from_der(der).ok()?;
        let key = parsed.public_key();
        let (kind, key_bits) = match key.parsed() {
            Ok(PublicKey::RSA(rsa)) => ("RSA".to_owned(), bits(rsa.modulus)),
            Ok(PublicKey::EC(point)) => ("EC".to_owned(), point.key_size()),
            // x509-parser does not parse Ed25519 and Ed448 keys (RFC 8410): all their bytes are
            // key.
            _ => (key.algorithm.algorithm.to_id_string(), key.subject_public_key.data.len() * 8),
        };
        let mut names: Vec<String> = parsed.extensions().iter().flat_map(names_of).collect();
        if names.is_empty() {
            let common = parsed.subject().iter_common_name().filter_map(|name| name.as_str().ok());
            names.extend(common.map(str::to_owned));
        }
        Some(Certificate {
            subject: parsed.subject().to_string(),
            issuer: parsed.issuer().to_string(),
            key: kind,
            key_bits,
            signature: signature_name(&parsed.signature_algorithm.algorithm.to_id_string()),
            names,
            not_before_unix_s: parsed.validity().not_before.timestamp(),
            not_after_unix_s: parsed.validity().not_after.timestamp(),
            self_signed: parsed.subject() == parsed.issuer(),
        })
    }

    /// Whether libpq accepts the certificate for this host under `verify-full`: a name or address
    /// in the certificate is equal to it, or has `*` as the whole first label.
    pub fn is_for(&self, host: &str) -> bool {
        if let Ok(address) = host.parse::<IpAddr>() {
            return self.names.iter().any(|name| name.parse() == Ok(address));
        }
        let host = host.to_ascii_lowercase();
        self.names.iter().map(|name| name.to_ascii_lowercase()).any(|name| {
            let wild = name.strip_prefix("*.").zip(host.split_once('.'));
            name == host || wild.is_some_and(|(name, (_, rest))| name == rest)
        })
    }

    /// Whether the key has less than 112 bits of security (SP 800-57 part 1, table 2).
    pub fn key_is_weak(&self) -> bool {
        match self.key.as_str() {
            "RSA" => self.key_bits < 2048,
            "EC" => self.key_bits < 224,
            _ => false,
        }
    }

    /// Whether the signature uses a broken hash function.
    pub fn signature_is_weak(&self) -> bool {
        self.signature.contains("SHA1") || self.signature.contains("MD5")
    }
}

fn bits(number: &[u8]) -> usize {
    usize::try_from(crate::answer::bits_of(number)).unwrap_or(usize::MAX)
}

fn names_of(extension: &x509_parser::extensions::X509Extension<'_>) -> Vec<String> {
    let ParsedExtension::SubjectAlternativeName(names) = extension.parsed_extension() else {
        return Vec::new();
    };
    let one = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => <[u8; 4]>::try_from(*bytes).ok().map(|b| IpAddr::from(b).to_string()),
            _ => <[u8; 16]>::try_from(*bytes).ok().map(|b| IpAddr::from(b).to_string()),
        },
        _ => None,
    };
    names.general_names.iter().filter_map(one).collect()
}

/// The name of a signature algorithm (RFC 3279, 4055, 5758, 8410), or its object identifier.
fn signature_name(identifier: &str) -> String {
    let name = match identifier {
        "1.2.840.113549.1.1.4" => "RSA with MD5",
        "1.2.840.113549.1.1.5" => "RSA with SHA1",
        "1.2.840.113549.1.1.10" => "RSA-PSS",
        "1.2.840.113549.1.1.11" => "RSA with SHA256",
        "1.2.840.113549.1.1.12" => "RSA with SHA384",
        "1.2.840.113549.1.1.13" => "RSA with SHA512",
        "1.2.840.10045.4.1" => "ECDSA with SHA1",
        "1.2.840.10045.4.3.2" => "ECDSA with SHA256",
        "1.2.840.10045.4.3.3" => "ECDSA with SHA384",
        "1.2.840.10045.4.3.4" => "ECDSA with SHA512",
        "1.3.101.112" => "Ed25519",
        "1.3.101.113" => "Ed448",
        other => other,
    };
    name.to_owned()
}

/// Whether the chain (DER, the server's own certificate first) leads to a trusted certificate. The
/// period of validity is checked elsewhere.
///
/// # Errors
/// If the file of trusted certificates cannot be read, or contains none.
pub fn trust(chain: &[Vec<u8>], root: Option<&Root>) -> Result<Trust, TlsError> {
    let path = match root {
        None => return Ok(Trust::Unchecked),
        Some(Root::File(path)) => path.clone(),
        Some(Root::System) => {
            let there = SYSTEM_ROOTS.iter().map(PathBuf::from).find(|path| path.is_file());
            there.ok_or_else(|| TlsError::Content {
                path: SYSTEM_ROOTS[0].into(),
                what: "sslrootcert=system, and there are no trusted certificates here".to_owned(),
                remedy: "install ca-certificates, or name a file",
            })?
        }
    };
    let trusted = read_pem(&path)?;
    let Some((own, others)) = chain.split_first() else {
        return Ok(Trust::Distrusted { root: path, why: "no certificate was shown".to_owned() });
    };
    // OpenSSL trusts a server certificate that is itself in the file.
    if trusted.iter().any(|certificate| certificate.as_ref() == own) {
        return Ok(Trust::Trusted { root: path });
    }
    Ok(match verify(own, others, &trusted) {
        Ok(()) => Trust::Trusted { root: path },
        Err(why) => Trust::Distrusted { root: path, why },
    })
}

fn verify(own: &[u8], others: &[Vec<u8>], trusted: &[CertificateDer<'_>]) -> Result<(), String> {
    let words = |error: webpki::Error| match error {
        webpki::Error::UnknownIssuer => "none of them has signed it".to_owned(),
        webpki::Error::CaUsedAsEndEntity => "it is a CA's own, and another CA's".to_owned(),
        other => other.to_string(),
    };
    let own_der = CertificateDer::from(own);
    let others: Vec<_> = others.iter().map(|der| CertificateDer::from(der.as_slice())).collect();
    let anchors: Vec<_> =
        trusted.iter().filter_map(|root| webpki::anchor_from_trusted_cert(root).ok()).collect();
    let certificate = webpki::EndEntityCert::try_from(&own_der).map_err(words)?;
    // A time within the period of validity, because an expired certificate is a finding of its own.
    let facts = Certificate::parse(own).ok_or("it cannot be read")?;
    let now = UnixTime::now().as_secs();
    let from = u64::try_from(facts.not_before_unix_s).unwrap_or(0);
    let until = u64::try_from(facts.not_after_unix_s).unwrap_or(0);
    let when = now.clamp(from, until.max(from));
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    certificate
        .verify_for_usage(
            provider.signature_verification_algorithms.all,
            &anchors,
            &others,
            UnixTime::since_unix_epoch(std::time::Duration::from_secs(when)),
            webpki::KeyUsage::server_auth(),
            None,
            None,
        )
        .map(|_| ())
        .map_err(words)
}

/// The certificates in a text in PEM form (RFC 7468). Anything else in the text is ignored.
pub fn read_pem_text(text: &[u8]) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(text).flatten().collect()
}

/// The certificates in a PEM file.
///
/// # Errors
/// If the file cannot be read, or contains no certificate.
pub fn read_pem(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bytes = std::fs::read(path).map_err(TlsError::io(path, "read the certificates"))?;
    let all = read_pem_text(&bytes);
    if all.is_empty() {
        return Err(TlsError::Content {
            path: path.to_owned(),
            what: "there is no certificate in it".to_owned(),
            remedy: "name a file in PEM form (\"BEGIN CERTIFICATE\")",
        });
    }
    Ok(all)
}
