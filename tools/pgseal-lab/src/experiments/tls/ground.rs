//! The setup for all steps: a cluster with the study's table, certificates, rules, and OpenSSL
//! configuration files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use pgseal_tls::authority::{Authority, KeyKind};
use pgseal_tls::suites::{Exchange, SUITES};

use super::arms::Wanted;
use crate::cluster::{Cluster, ClusterError, Server, Tools};
use crate::context::output_of;
use crate::error::LabError;

/// Number of values of one megabyte.
pub const LARGE_ROWS: u32 = 16;
/// How many MD5 sums, in hexadecimal digits, make one megabyte.
const SUMS_PER_MEGABYTE: u32 = 32_768;
/// First major version with settings for TLS 1.3 suites and for several groups.
const FIRST_WITH_GROUPS: u32 = 18;

/// The cluster and all files.
#[derive(Debug)]
pub struct Ground {
    cluster: Cluster,
    root: PathBuf,
    port: u16,
    major: u32,
}

impl Ground {
    /// Creates the cluster and loads the tables.
    ///
    /// # Errors
    /// With the output of a program.
    pub fn create(tools: &Tools, root: &Path, port: u16, rows: u32) -> Result<Self, LabError> {
        let cluster = Cluster::create(tools, root, "tls", None)?;
        let major = major_of(tools)?;
        let ground = Self { cluster, root: root.to_owned(), port, major };
        ground.certificates(tools)?;
        ground.rules(tools)?;
        ground.openssl_files()?;
        ground.load(tools, rows)?;
        Ok(ground)
    }

    fn write(&self, tools: &Tools, path: &Path, text: &str, mode: u32) -> Result<(), LabError> {
        fs::write(path, text).map_err(LabError::io(path, "write the file"))?;
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
            .map_err(LabError::io(path, "set the mode of the file"))?;
        Ok(tools.give(path)?)
    }

    fn certificates(&self, tools: &Tools) -> Result<(), LabError> {
        let hosts = ["localhost", "127.0.0.1"].map(str::to_owned);
        for kind in KeyKind::ALL {
            let refused = |error: pgseal_tls::TlsError| LabError::Program {
                command: "make a certificate".to_owned(),
                said: error.to_string(),
            };
            let (authority, _) = Authority::create("pgseal lab", kind).map_err(refused)?;
            let pair = authority.server(&hosts, kind, 30).map_err(refused)?;
            let file = |end: &str| self.cluster.data.join(format!("{}.{end}", kind.name()));
            self.write(tools, &file("crt"), &pair.certificate, 0o644)?;
            self.write(tools, &file("key"), &pair.key, 0o600)?;
        }
        Ok(())
    }

    /// Writes the study's two sets of rules, for only TLS and for only connections without TLS. The
    /// lab itself connects over the Unix socket.
    fn rules(&self, tools: &Tools) -> Result<(), LabError> {
        for kind in ["hostssl", "hostnossl"] {
            let text = format!("local all all trust\n{kind} all all 127.0.0.1/32 trust\n");
            self.write(tools, &self.rules_file(kind), &text, 0o600)?;
        }
        Ok(())
    }

    fn rules_file(&self, kind: &str) -> PathBuf {
        self.cluster.data.join(format!("{kind}.conf"))
    }

    /// Writes the OpenSSL files for servers before 18, which can set TLS 1.3 suites only there
    /// (config(5ssl)).
    fn openssl_files(&self) -> Result<(), LabError> {
        for suite in SUITES.iter().filter(|suite| suite.exchange == Exchange::Tls13) {
            let text = format!(
                "openssl_conf = init\n[init]\nssl_conf = ssl\n[ssl]\nsystem_default = server\n\
                 [server]\nCiphersuites = {}\n",
                suite.name
            );
            let path = self.openssl_file(suite.name);
            fs::write(&path, text).map_err(LabError::io(&path, "write the file"))?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644))
                .map_err(LabError::io(&path, "set the mode of the file"))?;
        }
        Ok(())
    }

    fn openssl_file(&self, suite: &str) -> PathBuf {
        self.root.join(format!("openssl-{suite}.cnf"))
    }

    fn load(&self, tools: &Tools, rows: u32) -> Result<(), LabError> {
        let server = self.cluster.start(tools, &["fsync=off", "max_wal_size=4GB"])?;
        let target = server.target(tools, "postgres");
        target.rows(
            "create table test (id serial primary key, info text, crt_time timestamp);
             create table large (id int primary key, payload text);
             alter table large alter payload set storage external",
        )?;
        target.rows(&format!(
            "insert into test (info, crt_time) select md5(random()::text), clock_timestamp() \
             from generate_series(1, {rows})"
        ))?;
        target.rows(&format!(
            "insert into large select i, (select string_agg(md5(i::text || j::text), '') \
             from generate_series(1, {SUMS_PER_MEGABYTE}) j) from generate_series(1, {LARGE_ROWS}) i"
        ))?;
        target.rows("vacuum analyze")?;
        target.rows("checkpoint")?;
        Ok(server.stop()?)
    }

    /// Starts a server that accepts only what the arm wants, and reads all data once.
    ///
    /// # Errors
    /// [`LabError::Missing`] if the server's OpenSSL or PostgreSQL version does not support what is
    /// wanted; else with the server's log.
    pub fn start(&self, tools: &Tools, wanted: Option<&Wanted>) -> Result<Server, LabError> {
        let kind = if wanted.is_some() { "hostssl" } else { "hostnossl" };
        let mut settings = vec![
            "listen_addresses=127.0.0.1".to_owned(),
            format!("port={}", self.port),
            "shared_buffers=256MB".to_owned(),
            "max_connections=200".to_owned(),
            format!("hba_file={}", self.rules_file(kind).display()),
            "ssl=on".to_owned(),
        ];
        let usual = super::arms::USUAL_KEY.name();
        let certificate = wanted.map_or(usual, |wanted| wanted.certificate.as_str());
        settings.push(format!("ssl_cert_file={certificate}.crt"));
        settings.push(format!("ssl_key_file={certificate}.key"));
        settings.extend(wanted.into_iter().flat_map(|wanted| self.tls_settings(wanted)));
        let openssl = wanted
            .filter(|wanted| self.major < FIRST_WITH_GROUPS && wanted.version == "TLSv1.3")
            .map(|wanted| self.openssl_file(&wanted.suite));
        let environment: Vec<_> =
            openssl.iter().map(|path| ("OPENSSL_CONF", path.as_os_str())).collect();
        let log_from = fs::metadata(self.cluster.log()).map_or(0, |meta| meta.len());
        let started = self.cluster.start_with(tools, &settings, &environment);
        let server = match (started, wanted) {
            (Err(error @ ClusterError::Start { .. }), Some(wanted)) => {
                return Err(self.why(wanted, log_from).unwrap_or_else(|| error.into()));
            }
            (started, _) => started?,
        };
        // Reads in index order, so that table and index are cached; a sequential scan would use a
        // ring buffer.
        server.target(tools, "postgres").rows(
            "set enable_seqscan = off; set enable_bitmapscan = off; \
             select count(info), sum(id) from test where id > 0; \
             select sum(length(payload)) from large",
        )?;
        Ok(server)
    }

    fn tls_settings(&self, wanted: &Wanted) -> Vec<String> {
        let mut all = vec![
            format!("ssl_min_protocol_version={}", wanted.version),
            format!("ssl_max_protocol_version={}", wanted.version),
        ];
        match (wanted.version.as_str(), self.major >= FIRST_WITH_GROUPS) {
            ("TLSv1.3", true) => all.push(format!("ssl_tls13_ciphers={}", wanted.suite)),
            ("TLSv1.3", false) => {}
            _ => all.push(format!("ssl_ciphers={}", wanted.suite)),
        }
        let group = if self.major >= FIRST_WITH_GROUPS { "ssl_groups" } else { "ssl_ecdh_curve" };
        all.push(format!("{group}={}", wanted.group));
        all
    }

    /// The error if the server's log says that something wanted is not supported.
    fn why(&self, wanted: &Wanted, log_from: u64) -> Option<LabError> {
        let bytes = fs::read(self.cluster.log()).ok()?;
        let text =
            String::from_utf8_lossy(bytes.get(usize::try_from(log_from).ok()?..)?).into_owned();
        let line = text.lines().find(|line| line.contains("FATAL"))?;
        let said = line.split_once("FATAL:").map_or(line, |(_, said)| said).trim().to_owned();
        let what = if said.contains("cipher") {
            wanted.suite.clone()
        } else if ["ECDH", "group", "curve"].iter().any(|word| said.contains(word)) {
            wanted.group.clone()
        } else {
            return None;
        };
        let remedy = if what == wanted.suite {
            "this OpenSSL no longer has it; there is nothing to install".to_owned()
        } else {
            format!("PostgreSQL {FIRST_WITH_GROUPS} (ssl_groups) with OpenSSL 3.5 has it")
        };
        Some(LabError::missing(what, format!("the server says: {said}"), remedy))
    }

    /// The server's TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// The major version of the server.
fn major_of(tools: &Tools) -> Result<u32, LabError> {
    let text = output_of(tools.command("postgres").arg("--version"))?;
    let number = text.split_once("(PostgreSQL) ").map(|(_, rest)| rest);
    let digits =
        number.map(|rest| rest.chars().take_while(char::is_ascii_digit).collect::<String>());
    digits.and_then(|digits| digits.parse().ok()).ok_or_else(|| LabError::Output {
        command: "postgres --version".to_owned(),
        wanted: "version".to_owned(),
    })
}
