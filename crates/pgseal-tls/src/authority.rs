//! A private certificate authority, and the server and client certificates that it signs (RFC
//! 5280).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, RsaKeySize,
};

use crate::error::TlsError;

/// Kinds of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeyKind {
    /// ECDSA on P-256 (FIPS 186-5): small and the fastest for servers.
    #[default]
    EcdsaP256,
    /// RSA, 2048 bits: for clients that support nothing else.
    Rsa2048,
    /// RSA, 3072 bits: as strong as P-256.
    Rsa3072,
}

impl KeyKind {
    /// All of them.
    pub const ALL: [KeyKind; 3] = [KeyKind::EcdsaP256, KeyKind::Rsa2048, KeyKind::Rsa3072];

    /// The name on the command line and in profiles.
    pub const fn name(self) -> &'static str {
        match self {
            KeyKind::EcdsaP256 => "ecdsa-p256",
            KeyKind::Rsa2048 => "rsa-2048",
            KeyKind::Rsa3072 => "rsa-3072",
        }
    }

    /// The kind with this name.
    pub fn by_name(name: &str) -> Option<KeyKind> {
        KeyKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    fn generate(self) -> Result<KeyPair, rcgen::Error> {
        match self {
            KeyKind::EcdsaP256 => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256),
            KeyKind::Rsa2048 => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048),
            KeyKind::Rsa3072 => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_3072),
        }
    }
}

/// A certificate and its key, PEM.
#[derive(Clone)]
pub struct Pair {
    /// The certificate.
    pub certificate: String,
    /// The private key, PKCS #8 (RFC 5958), not encrypted.
    pub key: String,
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pair").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

/// How long a private CA is valid, in days.
const CA_DAYS: u32 = 3652;

/// Certificates are valid from this long before now, because clocks differ.
const SKEW: Duration = Duration::from_secs(3600);

/// A certificate authority that can sign.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    /// Makes a new certificate authority. `name` is its common name.
    ///
    /// # Errors
    /// [`TlsError::Certificate`].
    pub fn create(name: &str, kind: KeyKind) -> Result<(Authority, Pair), TlsError> {
        let key = kind.generate().map_err(refused)?;
        let mut params = params(Vec::new(), name, CA_DAYS)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).map_err(refused)?.pem();
        let pair = Pair { certificate: certificate.clone(), key: key.serialize_pem() };
        Ok((Authority { issuer: Issuer::new(params, key), pem: certificate }, pair))
    }

    /// Opens an existing certificate authority from its certificate and key (PEM).
    ///
    /// # Errors
    /// [`TlsError::Certificate`].
    pub fn open(certificate: &str, key: &str) -> Result<Authority, TlsError> {
        let key = KeyPair::from_pem(key).map_err(refused)?;
        let issuer = Issuer::from_ca_cert_pem(certificate, key).map_err(refused)?;
        Ok(Authority { issuer, pem: certificate.to_owned() })
    }

    /// The certificate of the authority, PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A server's key and certificate for these host names and addresses, the first of which is
    /// also its common name.
    ///
    /// # Errors
    /// [`TlsError::Certificate`].
    pub fn server(&self, hosts: &[String], kind: KeyKind, days: u32) -> Result<Pair, TlsError> {
        let name = hosts.first().map(String::as_str).unwrap_or_default();
        let mut params = params(hosts.to_vec(), name, days)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.issue(params, kind)
    }

    /// A client's key and certificate; its common name is the database user.
    ///
    /// # Errors
    /// [`TlsError::Certificate`].
    pub fn client(&self, user: &str, kind: KeyKind, days: u32) -> Result<Pair, TlsError> {
        let mut params = params(Vec::new(), user, days)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(params, kind)
    }

    fn issue(&self, mut params: CertificateParams, kind: KeyKind) -> Result<Pair, TlsError> {
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        if kind != KeyKind::EcdsaP256 {
            // Some clients require this for RSA key exchange in TLS 1.2.
            params.key_usages.push(KeyUsagePurpose::KeyEncipherment);
        }
        let key = kind.generate().map_err(refused)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(refused)?;
        Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

/// A self-signed certificate, for tests of the check that finds such certificates.
///
/// # Errors
/// [`TlsError::Certificate`].
pub fn self_signed(hosts: &[String], kind: KeyKind, days: u32) -> Result<Pair, TlsError> {
    let key = kind.generate().map_err(refused)?;
    let name = hosts.first().map(String::as_str).unwrap_or_default();
    let certificate = params(hosts.to_vec(), name, days)?.self_signed(&key).map_err(refused)?;
    Ok(Pair { certificate: certificate.pem(), key: key.serialize_pem() })
}

fn params(hosts: Vec<String>, name: &str, days: u32) -> Result<CertificateParams, TlsError> {
    // RFC 5280, upper bound of a common name
    const LONGEST_NAME: usize = 64;
    if let Some(bad) = hosts.iter().find(|host| !is_host(host)) {
        return Err(TlsError::Certificate(format!("\"{bad}\" is no host name and no IP address")));
    }
    let mut params = CertificateParams::new(hosts).map_err(refused)?;
    let name: String = name.chars().take(LONGEST_NAME).collect();
    params.distinguished_name.remove(DnType::CommonName);
    params.distinguished_name.push(DnType::CommonName, name);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(SKEW);
    let length = Duration::from_secs(u64::from(days) * 86_400);
    // X.509 has no years after 9999.
    params.not_after = (now + length < Duration::from_secs(253_000_000_000))
        .then(|| epoch + (now + length))
        .ok_or_else(|| TlsError::Certificate(format!("{days} days are too long")))?;
    Ok(params)
}

/// Whether a certificate can be made for this name: an IP address, or letters, digits, dots and
/// hyphens (RFC 952, 1123). Underscores are allowed because container networks use them, and `*` as
/// the first label.
fn is_host(host: &str) -> bool {
    let name = host.strip_prefix("*.").unwrap_or(host);
    let fits = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    host.parse::<std::net::IpAddr>().is_ok()
        || (!name.is_empty() && name.len() < 254 && name.chars().all(fits))
}

fn refused(error: rcgen::Error) -> TlsError {
    TlsError::Certificate(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificate::{self, Certificate, Trust};
    use crate::conninfo::Root;

    fn der(pair: &Pair, dir: &std::path::Path) -> Vec<u8> {
        let path = dir.join("one.pem");
        std::fs::write(&path, &pair.certificate).unwrap();
        certificate::read_pem(&path).unwrap()[0].to_vec()
    }

    #[test]
    fn a_server_certificate_is_for_its_hosts_and_leads_to_its_authority_alone() {
        let dir = tempfile::tempdir().unwrap();
        let (authority, ca) = Authority::create("a", KeyKind::EcdsaP256).unwrap();
        let hosts = ["db.example", "*.int.example", "10.1.2.3", "::1"].map(str::to_owned);
        for kind in KeyKind::ALL {
            let again = Authority::open(authority.pem(), &ca.key).unwrap();
            let der = der(&again.server(&hosts, kind, 30).unwrap(), dir.path());
            let facts = Certificate::parse(&der).unwrap();
            for host in ["db.example", "DB.example", "a.int.example", "10.1.2.3", "::1", "0:0::1"] {
                assert!(facts.is_for(host), "{host}: {facts:?}");
            }
            for host in ["example", "int.example", "a.b.int.example", "10.1.2.4", "*.int.other"] {
                assert!(!facts.is_for(host), "{host}: {facts:?}");
            }
            assert!(!facts.self_signed && !facts.key_is_weak() && !facts.signature_is_weak());
            let root = dir.path().join("ca.pem");
            std::fs::write(&root, authority.pem()).unwrap();
            let trust = |file| {
                certificate::trust(std::slice::from_ref(&der), Some(&Root::File(file))).unwrap()
            };
            assert!(matches!(trust(root), Trust::Trusted { .. }));
            let other = dir.path().join("other.pem");
            let (stranger, _) = Authority::create("a", KeyKind::EcdsaP256).unwrap();
            std::fs::write(&other, stranger.pem()).unwrap();
            assert!(matches!(trust(other), Trust::Distrusted { .. }));
        }
    }

    #[test]
    fn sizes_of_keys_are_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let hosts = ["h".to_owned()];
        let bits = KeyKind::ALL.map(|kind| {
            let pair = self_signed(&hosts, kind, 1).unwrap();
            let facts = Certificate::parse(&der(&pair, dir.path())).unwrap();
            assert!(facts.self_signed);
            (facts.key, facts.key_bits)
        });
        let want = [("EC", 256), ("RSA", 2048), ("RSA", 3072)];
        assert_eq!(bits, want.map(|(kind, bits)| (kind.to_owned(), bits)));
    }

    #[test]
    fn names_that_no_certificate_can_have_are_refused() {
        let (authority, _) = Authority::create("a", KeyKind::EcdsaP256).unwrap();
        for bad in ["", "a b", "a\nb", "*", "a.*.b", "http://a"] {
            let error = authority.server(&[bad.to_owned()], KeyKind::EcdsaP256, 1).unwrap_err();
            assert!(error.to_string().contains("no host name"), "{bad}: {error}");
        }
        assert!(authority.server(&["a".to_owned()], KeyKind::EcdsaP256, u32::MAX).is_err());
    }
}
