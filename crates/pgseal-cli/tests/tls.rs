//! `pgseal tls` with real servers over TCP on 127.0.0.1.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use pgseal_testkit::{Cluster, Sealing, Stop};
use pgseal_tls::authority::{KeyKind, self_signed};
use serde_json::Value;

/// A plain cluster that listens on a free TCP port.
fn cluster(settings: &[(&str, &str)]) -> (Cluster, u16) {
    let mut builder = Cluster::builder().tcp();
    for (name, value) in settings {
        builder = builder.setting(name, value);
    }
    let cluster = builder.create().unwrap();
    let port = cluster.port();
    (cluster, port)
}

/// The program, as the user who runs the tests: root can set up clusters of other users.
fn pgseal() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pgseal"));
    for name in ["PGHOST", "PGHOSTADDR", "PGPORT", "PGUSER", "PGDATABASE", "PGSSLROOTCERT"] {
        command.env_remove(name);
    }
    command.env("HOME", "/nonexistent");
    command
}

fn bindir() -> PathBuf {
    pgseal_testkit::bindir().unwrap()
}

fn init(cluster: &Cluster, more: &[&str]) -> Output {
    let mut command = pgseal();
    command.args(["tls", "init", "--bindir"]).arg(bindir()).args(more).arg(cluster.data());
    command.output().unwrap()
}

#[track_caller]
fn succeeds(output: Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Exit status and JSON of a check.
fn check(port: u16, host: &str, more: &[&str]) -> (i32, Value) {
    let conninfo = format!("host={host} port={port} user=postgres dbname=postgres");
    let output = pgseal()
        .args(["tls", "check", "--json", "--timeout", "60"])
        .args(more)
        .arg(&conninfo)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let json = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{output:?}"));
    (output.status.code().unwrap(), json)
}

fn codes(json: &Value) -> Vec<&str> {
    let mut all: Vec<&str> =
        json["findings"].as_array().unwrap().iter().map(|f| f["code"].as_str().unwrap()).collect();
    all.sort_unstable();
    all
}

/// psql over TCP with this connection string.
fn psql(cluster: &Cluster, conninfo: &str, sql: &str) -> Output {
    let mut command = cluster.bare_command("psql");
    command.args(["-X", "-A", "-t", "-q", "-d", conninfo, "-c", sql]);
    command.output().unwrap()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o777
}

#[test]
fn a_set_up_server_lets_nobody_in_without_tls_and_is_verified_by_libpq() {
    let (cluster, port) = cluster(&[]);
    let data = cluster.data().to_owned();
    let old_rules = fs::read(data.join("pg_hba.conf")).unwrap();
    let old_settings = fs::read(data.join("postgresql.conf")).unwrap();
    let said = succeeds(init(&cluster, &["--host", "localhost", "--client", "alice"]));
    let ca = data.with_file_name("data-tls");

    // Replaced files are kept; keys have mode 0600 and belong to the owner of the data directory.
    assert_eq!(fs::read(data.join("pg_hba.conf.before-pgseal-tls")).unwrap(), old_rules);
    assert_eq!(fs::read(data.join("postgresql.conf.before-pgseal-tls")).unwrap(), old_settings);
    let owner = fs::metadata(&data).unwrap().uid();
    for key in [data.join("server.key"), ca.join("ca.key"), ca.join("client-alice.key")] {
        assert_eq!((mode(&key), fs::metadata(&key).unwrap().uid()), (0o600, owner));
    }
    assert_eq!(mode(&ca), 0o700);

    cluster.start().unwrap();
    // The printed connection strings work unchanged.
    let conninfo = |marker: &str| {
        let line = said.lines().find(|line| line.contains("verify-full") && line.contains(marker));
        line.unwrap().trim().to_owned()
    };
    let seen = "select ssl, version, client_dn from pg_stat_ssl where pid = pg_backend_pid()";
    let base = conninfo("host=localhost");
    let plain_user = format!("{base} user=postgres dbname=postgres");
    assert_eq!(succeeds(psql(&cluster, &plain_user, seen)).trim(), "t|TLSv1.3|");
    cluster.psql("create role alice login").unwrap();
    let with_certificate = format!("{} dbname=postgres", conninfo("user=alice"));
    assert_eq!(succeeds(psql(&cluster, &with_certificate, seen)).trim(), "t|TLSv1.3|/CN=alice");

    // Without TLS: refused by the server, also in the mode that tries it first.
    let plain = format!("host=127.0.0.1 port={port} user=postgres dbname=postgres sslmode=disable");
    let refused = psql(&cluster, &plain, "select 1");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no encryption"), "{refused:?}");

    let root = format!("sslrootcert={}", ca.join("ca.crt").display());
    let (status, json) = check(port, &format!("localhost {root}"), &[]);
    // PostgreSQL has it from 18 on, with OpenSSL 3.5.
    let rest: Vec<&str> = codes(&json).into_iter().filter(|c| *c != "no-post-quantum").collect();
    assert_eq!(rest, [""; 0], "{json:#}");
    assert_eq!(status, i32::from(!codes(&json).is_empty()));
    assert_eq!(check(port, &format!("localhost {root}"), &["--ignore", "no-post-quantum"]).0, 0);
    assert_eq!(json["accepted"]["versions"], serde_json::json!(["TLSv1.2", "TLSv1.3"]));
    assert_eq!(json["plain"]["answer"], "refused");
    assert_eq!(json["trust"]["trust"], "trusted");
    assert_eq!(json["negotiated"]["version"], "TLSv1.3");

    // A second time: a new certificate from the same CA, the old one is kept, the rules do not
    // change.
    let old_key = fs::read(data.join("server.key")).unwrap();
    let (rules, authority) =
        (fs::read(data.join("pg_hba.conf")).unwrap(), fs::read(ca.join("ca.crt")).unwrap());
    let said = succeeds(init(&cluster, &["--host", "localhost", "--key", "rsa-2048"]));
    assert!(said.contains("used as it is"), "{said}");
    let backup = data.join("server.before-pgseal-tls.key");
    assert_eq!((fs::read(&backup).unwrap(), mode(&backup)), (old_key, 0o600));
    assert_eq!(fs::read(data.join("pg_hba.conf")).unwrap(), rules);
    assert_eq!(fs::read(ca.join("ca.crt")).unwrap(), authority);
    cluster.psql("select pg_reload_conf()").unwrap();
    let has_new_key = || {
        let (_, json) = check(port, &format!("localhost {root}"), &[]);
        (&json["certificate"]["key"], &json["certificate"]["key_bits"])
            == (&"RSA".into(), &2048.into())
    };
    let wait = || thread::sleep(Duration::from_millis(100));
    assert!(
        (0..600).any(|_| has_new_key() || {
            wait();
            false
        }),
        "the old certificate stays"
    );
    assert_eq!(succeeds(psql(&cluster, &plain_user, "select 1")).trim(), "1");
}

#[test]
fn everything_weak_is_found() {
    let (cluster, port) = cluster(&[
        ("ssl", "on"),
        ("ssl_min_protocol_version", "TLSv1"),
        ("ssl_ciphers", "ALL:@SECLEVEL=0"),
    ]);
    let pair = self_signed(&["elsewhere".to_owned()], KeyKind::Rsa2048, 3).unwrap();
    // As the server's user, so that the files belong to that user.
    let write = |name: &str, text: &str| {
        let path = cluster.home().join("data").join(name);
        let script = format!("umask 077; cat > {} <<'X'\n{text}X", path.display());
        assert!(cluster.shell(&script, &[]).status().unwrap().success());
    };
    write("server.crt", &pair.certificate);
    write("server.key", &pair.key);
    cluster.start().unwrap();
    let (status, json) = check(port, "127.0.0.1", &[]);
    assert_eq!(status, 1);
    let want = [
        "anonymous-suite",
        "expiring",
        "host-mismatch",
        "no-post-quantum",
        "old-version",
        "plain-accepted",
        "rsa-key-exchange",
        "self-signed",
        "untrusted",
    ];
    assert_eq!(codes(&json), want, "{json:#}");
    assert_eq!(
        json["accepted"]["versions"],
        serde_json::json!(["TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"])
    );
    let suites = json["accepted"]["tls12_suites"].as_array().unwrap();
    for name in ["AES128-SHA", "DHE-RSA-AES256-SHA", "ECDHE-RSA-CHACHA20-POLY1305"] {
        assert!(suites.contains(&name.into()), "{name} in {suites:?}");
    }
    assert!(!suites.contains(&"ECDHE-ECDSA-AES128-GCM-SHA256".into()), "the certificate is RSA");
    assert_eq!(json["plain"]["method"], "trust");
    assert_eq!(json["certificate"]["self_signed"], true);

    // Without the critical findings, the warnings that remain count or not, as --fail-on says.
    let critical = "anonymous-suite,host-mismatch,old-version,plain-accepted";
    assert_eq!(check(port, "127.0.0.1", &["--ignore", critical]).0, 1);
    assert_eq!(check(port, "127.0.0.1", &["--ignore", critical, "--fail-on", "critical"]).0, 0);
    assert!(!codes(&check(port, "127.0.0.1", &["--warn-days", "1"]).1).contains(&"expiring"));
}

#[test]
fn a_server_without_tls_an_absent_one_and_a_socket() {
    let (cluster, port) = cluster(&[]);
    cluster.start().unwrap();
    let (status, json) = check(port, "127.0.0.1", &[]);
    assert_eq!((status, codes(&json)), (1, vec!["no-tls", "plain-accepted"]));
    assert_eq!(json["tls"], false);
    cluster.stop(Stop::Fast).unwrap();

    let run = |conninfo: &str| {
        let output = pgseal().args(["tls", "check", conninfo]).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (status, said) = run(&format!("host=127.0.0.1 port={port}"));
    assert!(status == 40 && said.contains("listen_addresses"), "{status} {said}");
    for socket in ["", "host=/run/postgresql", "postgresql:///db"] {
        let (status, said) = run(socket);
        assert!(status == 2 && said.contains("no TLS on Unix sockets"), "{status} {said}");
    }
    let (status, said) = run(&format!("host=127.0.0.1 port={port} sslrootcert=/no/such"));
    assert_eq!(status, 40, "{said}");
}

#[test]
fn a_sealed_cluster_stays_sound_and_its_server_starts_with_tls() {
    let cluster = Cluster::builder().sealed(Sealing::default()).tcp().create().unwrap();
    succeeds(init(&cluster, &["--host", "localhost"]));
    // A second time, so that there is a backup of every file.
    succeeds(init(&cluster, &["--host", "localhost", "--client", "bob"]));
    cluster.start().unwrap();
    let ca = cluster.data().with_file_name("data-tls/ca.crt");
    let host = format!("localhost sslrootcert={}", ca.display());
    let (status, json) = check(cluster.port(), &host, &["--ignore", "no-post-quantum"]);
    assert_eq!((status, codes(&json)), (0, vec![]), "{json:#}");
    cluster.stop(Stop::Fast).unwrap();
    for args in [&["verify"][..], &["status", "--json"]] {
        let mut command = cluster.pgseal().unwrap();
        let said = succeeds(command.args(args).arg(cluster.data()).output().unwrap());
        if args.contains(&"--json") {
            let json: Value = serde_json::from_str(&said).unwrap();
            assert_eq!(json["plain_where_sealed_is_due"], serde_json::json!([]));
            assert_eq!(json["problems"], serde_json::json!([]));
        }
    }
}

#[test]
fn what_cannot_be_set_up_changes_nothing() {
    let (cluster, _) = cluster(&[]);
    let auto = cluster.data().join("postgresql.auto.conf");
    let kept = fs::read_to_string(&auto).unwrap();
    let before = listing(cluster.data());
    let refused = |more: &[&str], words: &str| {
        let output = init(&cluster, more);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(words), "{said}");
        assert_eq!(listing(cluster.data()), before);
    };
    fs::write(&auto, format!("{kept}ssl = 'off'\n")).unwrap();
    refused(&[], "ALTER SYSTEM RESET ssl");
    fs::write(&auto, kept).unwrap();
    refused(&["--host", "a b"], "no host name");
    let inside = cluster.data().join("ca");
    refused(&["--ca-dir", inside.to_str().unwrap()], "every base backup");
    refused(&["--client", "../x"], "no name for a client");
}

fn listing(dir: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.sort();
    all
}
