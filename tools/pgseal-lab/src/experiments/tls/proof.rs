//! Checks what client and server negotiated. Without this check a sample might measure something
//! else.

use std::collections::BTreeMap;
use std::time::Duration;

use pgseal_tls::certificate::{Certificate, read_pem_text};
use pgseal_tls::conninfo::Target as Address;
use pgseal_tls::probe::Prober;
use pgseal_tls::version::Version;
use pgseal_tls::{groups, handshake, suites};

use super::arms::Wanted;
use crate::cluster::Target;
use crate::error::LabError;

/// Longest wait for an answer of the server.
const PATIENCE: Duration = Duration::from_secs(60);

/// What `pg_stat_ssl` reports for the connections of pgbench, all of which must be equal: `None`
/// while there are no connections.
///
/// # Errors
/// [`LabError::Broken`] if a connection is not as wanted.
pub fn seen(
    target: &Target<'_>,
    wanted: Option<&Wanted>,
    what: &str,
) -> Result<Option<BTreeMap<String, String>>, LabError> {
    // The lab itself connects over the Unix socket. Since version 18 a connection is listed before
    // its TLS handshake is done, in the state `starting`.
    let rows = target.rows(
        "select s.ssl, coalesce(s.version, '-'), coalesce(s.cipher, '-'), coalesce(s.bits, 0), \
         count(*) from pg_stat_activity a join pg_stat_ssl s using (pid) \
         where a.backend_type = 'client backend' and a.client_addr is not null \
         and coalesce(a.state, '') <> 'starting' group by 1, 2, 3, 4",
    )?;
    let lines: Vec<&str> = rows.lines().filter(|line| !line.is_empty()).collect();
    let Some(first) = lines.first() else { return Ok(None) };
    let expected = wanted
        .map_or("f|-|-".to_owned(), |wanted| format!("t|{}|{}", wanted.version, wanted.suite));
    let fits = |line: &&str| line.starts_with(&format!("{expected}|"));
    if lines.len() != 1 || !lines.iter().all(fits) {
        return Err(LabError::Broken {
            what: format!("{what}: pg_stat_ssl"),
            expected,
            found: lines.join(", "),
        });
    }
    let fields: Vec<&str> = first.split('|').collect();
    let names = ["ssl", "version", "cipher", "bits", "connections_seen"];
    let facts = names.into_iter().zip(fields);
    Ok(Some(facts.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()))
}

/// Checks what `pg_stat_ssl` does not report: that the server accepts no other suite, the group,
/// and the key of its certificate. The source is the server's own answers. If TLS 1.3 hides the
/// certificate and rustls does not have the group, the certificate file of the server is read
/// instead.
///
/// # Errors
/// [`LabError::Broken`] if a property is not as wanted.
pub fn offers(
    socket: &Target<'_>,
    port: u16,
    wanted: &Wanted,
    what: &str,
) -> Result<BTreeMap<String, String>, LabError> {
    let address = Address {
        host: "127.0.0.1".to_owned(),
        hostaddr: None,
        port,
        user: crate::cluster::SUPERUSER.to_owned(),
        dbname: "postgres".to_owned(),
        root: None,
    };
    let failed = |error: pgseal_tls::TlsError| LabError::Program {
        command: format!("{what}: ask the server"),
        said: error.to_string(),
    };
    let broken = |of: &str, expected: &str, found: String| LabError::Broken {
        what: format!("{what}: {of}"),
        expected: expected.to_owned(),
        found,
    };
    let prober = Prober::new(&address, PATIENCE);
    let version = Version::by_name(&wanted.version)
        .ok_or_else(|| LabError::Usage(format!("{}: no version of TLS", wanted.version)))?;
    let choices = prober.suites(version).map_err(failed)?;
    let names: Vec<String> = choices.iter().map(|choice| suites::name_of(choice.suite)).collect();
    if names != [wanted.suite.as_str()] {
        return Err(broken("suites that the server takes", &wanted.suite, names.join(", ")));
    }
    let mut facts = BTreeMap::new();
    if wanted.uses_group() {
        let found = prober.groups(version).map_err(failed)?;
        let found: Vec<String> = found.into_iter().map(groups::name_of).collect();
        if found != [wanted.group.as_str()] {
            return Err(broken("groups that the server takes", &wanted.group, found.join(", ")));
        }
        facts.insert("group".to_owned(), wanted.group.clone());
    }
    if let Some(bits) = choices.iter().find_map(|choice| choice.dh_bits) {
        facts.insert("dh_bits".to_owned(), bits.to_string());
    }
    let mut shown =
        choices.into_iter().next().map(|choice| choice.certificates).unwrap_or_default();
    if shown.is_empty() {
        shown = if handshake::has_group(&wanted.group) {
            let done = handshake::negotiate(&address, PATIENCE).map_err(failed)?;
            done.map_err(|why| broken("handshake", "one", why))?.certificates
        } else {
            let pem = socket.rows("select pg_read_file(current_setting('ssl_cert_file'))")?;
            facts.insert("certificate_seen_in".to_owned(), "the server's file".to_owned());
            read_pem_text(pem.as_bytes()).into_iter().map(|der| der.to_vec()).collect()
        };
    }
    let key =
        shown.first().and_then(|der| Certificate::parse(der)).map(|certificate| match certificate
            .key
            .as_str()
        {
            "EC" => format!("ecdsa-p{}", certificate.key_bits),
            _ => format!("{}-{}", certificate.key.to_lowercase(), certificate.key_bits),
        });
    let key = key.unwrap_or_default();
    if key != wanted.certificate {
        return Err(broken("key of the certificate", &wanted.certificate, key));
    }
    facts.insert("certificate".to_owned(), key);
    Ok(facts)
}
