//! `pgseal tls check`: shows what a server negotiates, and what is weak about it.

use std::io::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args as ClapArgs;
use clap::builder::PossibleValuesParser;
use pgseal_tls::certificate::Trust;
use pgseal_tls::check::{self, Facts};
use pgseal_tls::conninfo::Target;
use pgseal_tls::judge::{self, Finding, Severity};
use pgseal_tls::version::Version;
use pgseal_tls::wire::Plain;
use serde::Serialize;

use crate::error::CliError;
use crate::exit;
use crate::out::Out;

const LONG: &str = "\
Say what a server really negotiates, and what is weak about it.

Connects to the server as clients do, over TCP, some fifty times, and never logs in: it offers every \
version of TLS from 1.0 to 1.3, every cipher suite and every key-exchange group until the server \
refuses, makes one handshake as a client of today, looks at the certificate, and asks for a \
connection without TLS. Offers are made by pgseal itself: they do not depend on what the OpenSSL of \
this machine still or already knows. Each leaves a line in the server's log.

Host, port, user, database and sslrootcert come from CONNINFO (keywords or URI) or from libpq's \
environment variables; whether plain connections are let in is asked for that user and database.";

const EXAMPLES: &str = "\
Examples:
  pgseal tls check 'host=db.example.com sslrootcert=ca.crt'
  pgseal tls check --json postgresql://db.example.com:5433/app
  pgseal tls check --ignore no-post-quantum --fail-on critical host=db.example.com

Exit status: 0 nothing weak, 1 something is weak, 2 usage (a Unix socket, too: there is no TLS),
40 the server cannot be reached.";

/// Say what a server really negotiates, and what is weak about it
#[derive(Debug, ClapArgs)]
#[command(long_about = LONG, after_help = EXAMPLES)]
pub struct Args {
    /// Where the server is, as libpq has it: keywords and values, or a URI
    #[arg(default_value = "", hide_default_value = true)]
    conninfo: String,
    /// A finding that does not count
    #[arg(long, value_name = "CODE", value_delimiter = ',', value_parser = PossibleValuesParser::new(judge::CODES))]
    ignore: Vec<String>,
    /// Which findings make the exit status 1
    #[arg(long, value_enum, default_value = "warning")]
    fail_on: FailOn,
    /// How long before its end a certificate counts as expiring
    #[arg(long, value_name = "DAYS", default_value_t = 30)]
    warn_days: u32,
    /// How long to wait for each answer, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
    /// One JSON document instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum FailOn {
    Warning,
    Critical,
}

/// The JSON document.
#[derive(Debug, Serialize)]
struct Report<'a> {
    schema: &'static str,
    ok: bool,
    findings: &'a [Finding],
    #[serde(flatten)]
    facts: &'a Facts,
}

/// Runs it.
pub fn run(args: &Args) -> Result<u8, CliError> {
    let target = Target::parse(&args.conninfo)?;
    let facts = check::examine(&target, Duration::from_secs(args.timeout))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    let mut findings = judge::judge(&facts, now, args.warn_days);
    findings.retain(|finding| !args.ignore.iter().any(|code| code == finding.code));
    let counts = |finding: &Finding| match args.fail_on {
        FailOn::Warning => true,
        FailOn::Critical => finding.severity == Severity::Critical,
    };
    let ok = !findings.iter().any(counts);
    let mut out = Out::new();
    if args.json {
        let report =
            Report { schema: "pgseal-tls-check/1", ok, findings: &findings, facts: &facts };
        out.json(&report)?;
    } else {
        print(&mut out, &facts, &findings, now)?;
    }
    out.flush()?;
    Ok(if ok { exit::SOUND } else { exit::DAMAGE })
}

fn print(out: &mut Out, facts: &Facts, findings: &[Finding], now: i64) -> io::Result<()> {
    writeln!(out, "Server        {} port {}", facts.host, facts.port)?;
    match (&facts.negotiated, &facts.not_negotiated) {
        (Some(agreed), _) => writeln!(
            out,
            "Negotiated    {}, {}, {}",
            agreed.version,
            agreed.suite,
            agreed.group.as_deref().unwrap_or("key exchange by RSA")
        )?,
        (None, Some(why)) => writeln!(out, "Negotiated    nothing: {why}")?,
        (None, None) => writeln!(out, "Negotiated    nothing: the server has no TLS")?,
    }
    let plain = match &facts.plain {
        Plain::Refused { .. } => "refused".to_owned(),
        Plain::Accepted { method } => format!("ACCEPTED (method {method})"),
        Plain::Unknown { message } => format!("unknown: {message}"),
    };
    writeln!(out, "Without TLS   {plain} (user {}, database {})", facts.user, facts.dbname)?;
    if facts.tls {
        print_accepted(out, facts)?;
        print_certificate(out, facts, now)?;
    }
    if findings.is_empty() {
        return writeln!(out, "\nNothing weak was found.");
    }
    writeln!(out)?;
    for finding in findings {
        let severity = match finding.severity {
            Severity::Critical => "CRITICAL",
            Severity::Warning => "warning",
        };
        writeln!(out, "{severity} {}: {}", finding.code, finding.what)?;
        writeln!(out, "    {}", finding.remedy)?;
    }
    Ok(())
}

fn print_accepted(out: &mut Out, facts: &Facts) -> io::Result<()> {
    let accepted = &facts.accepted;
    let versions: Vec<&str> = accepted.versions.iter().map(|version| version.name()).collect();
    writeln!(out, "Accepts       {}", versions.join(", "))?;
    let older = accepted.versions.iter().filter(|version| **version != Version::Tls13).max();
    let suites = [
        (Version::Tls13.name(), &accepted.tls13_suites),
        (older.map_or("older", |version| version.name()), &accepted.tls12_suites),
        ("groups", &accepted.groups),
    ];
    for (title, names) in suites {
        for (place, chunk) in names.chunks(3).enumerate() {
            let title = if place == 0 { title } else { "" };
            writeln!(out, "  {title:<12}{}", chunk.join(", "))?;
        }
    }
    Ok(())
}

fn print_certificate(out: &mut Out, facts: &Facts, now: i64) -> io::Result<()> {
    let Some(certificate) = &facts.certificate else {
        return writeln!(out, "Certificate   none was shown");
    };
    writeln!(out, "Certificate   {}", certificate.subject)?;
    writeln!(out, "  for         {}", certificate.names.join(", "))?;
    writeln!(
        out,
        "  key         {} {} bits, signed by {} ({})",
        certificate.key, certificate.key_bits, certificate.issuer, certificate.signature
    )?;
    writeln!(out, "  valid for   {} days", (certificate.not_after_unix_s - now) / 86_400)?;
    match &facts.trust {
        Trust::Trusted { root } => writeln!(out, "  trusted by  {}", root.display()),
        Trust::Distrusted { root, why } => {
            writeln!(out, "  NOT trusted by {}: {why}", root.display())
        }
        Trust::Unchecked => writeln!(out, "  trust       not checked (no sslrootcert)"),
    }
}
