//! The program with the machine's PostgreSQL, the library and the guard module. Needs all three
//! built: `cargo build -p pgseal-cli -p pgseal-preload` and `make -C server/guard`.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;
use std::thread;

use pgseal_testkit::{Cluster, Sealing, Stop, canary};

fn sealed() -> Cluster {
    Cluster::builder()
        .sealed(Sealing::default())
        .setting("shared_buffers", "16MB")
        .create()
        .unwrap()
}

fn pgseal(cluster: &Cluster, args: &[&str]) -> Output {
    cluster.pgseal().unwrap().args(args).output().unwrap()
}

#[track_caller]
fn succeeds(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn verify(cluster: &Cluster) -> Output {
    pgseal(cluster, &["verify", cluster.data().to_str().unwrap()])
}

/// `pgseal run -- pg_ctl`, as a newcomer starts and stops a server.
#[track_caller]
fn pg_ctl(cluster: &Cluster, args: &[&str]) {
    let mut command = cluster.command("pg_ctl");
    command.args(["-w", "-t", "120"]).args(args).arg("-D").arg(cluster.data());
    // Not through pipes: the server would inherit them and hold them open.
    let path = cluster.root().join("pg_ctl.out");
    let out = fs::File::create(&path).unwrap();
    let status = command.stdout(out.try_clone().unwrap()).stderr(out).status().unwrap();
    assert!(status.success(), "{}{}", fs::read_to_string(&path).unwrap(), cluster.log());
}

#[test]
fn a_sealed_cluster_from_initdb_to_recovery() {
    let marker = "canary-sealed-0815-abc";
    let cluster = sealed();
    cluster.start().unwrap();
    cluster.psql("create table t (x text)").unwrap();
    cluster
        .psql(&format!("insert into t select '{marker}' || i from generate_series(1, 500) i"))
        .unwrap();
    cluster.psql(&format!("comment on table t is '{marker}'")).unwrap();
    cluster.psql("checkpoint").unwrap();
    cluster.pgbench(&["-i", "-q", "-s", "1"]).unwrap();

    // verify finds no damage while a server writes.
    thread::scope(|scope| {
        let load = scope.spawn(|| cluster.pgbench(&["-n", "-c", "2", "-t", "400"]));
        for _ in 0..3 {
            let output = verify(&cluster);
            assert!(succeeds(&output).contains("A server is running"));
        }
        load.join().unwrap().unwrap();
    });
    assert_eq!(canary::scan(&[cluster.data()], &[marker]).unwrap(), []);

    cluster.kill9().unwrap();
    pg_ctl(&cluster, &["-l", cluster.home().join("log").to_str().unwrap(), "start"]);
    assert_eq!(cluster.psql("select count(*) from t").unwrap(), "500");
    assert_eq!(cluster.psql("select count(*) from pgbench_history").unwrap(), "800");
    pg_ctl(&cluster, &["-m", "fast", "stop"]);
    assert!(succeeds(&verify(&cluster)).contains("Sound."));
    assert_eq!(canary::scan(&[cluster.data()], &[marker]).unwrap(), []);

    // Under `pgseal run` the tools read plain content.
    for (tool, args) in [("pg_checksums", &["--check"][..]), ("pg_controldata", &[])] {
        let mut command = cluster.command(tool);
        command.args(args).arg("-D").arg(cluster.data());
        succeeds(&command.output().unwrap());
    }
}

#[test]
fn damage_is_found_in_the_right_file() {
    let cluster = sealed();
    cluster.start().unwrap();
    cluster.psql("create table t as select i from generate_series(1, 5000) i").unwrap();
    let rel = cluster.psql("select pg_relation_filepath('t')").unwrap();
    cluster.stop(Stop::Fast).unwrap();
    let path = cluster.data().join(&rel);
    let mut bytes = fs::read(&path).unwrap();
    bytes[8192 + 8192 + 2 * 8192 + 77] ^= 0x10;
    fs::write(&path, bytes).unwrap();
    let output = verify(&cluster);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains(&format!("FAILED  {rel}: block 2 does not")), "{said}");
}

#[test]
fn without_the_library_the_server_refuses_and_changes_nothing() {
    let cluster = sealed();
    let before = content(cluster.data());
    let mut command = cluster.bare_command("postgres");
    let output = command.arg("-D").arg(cluster.data()).output().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("sealed by pgseal") && said.contains("pgseal run"), "{said}");
    assert_eq!(content(cluster.data()), before);
}

#[test]
fn initdb_that_fails_leaves_nothing_behind() {
    let cluster = sealed();
    for name in ["new", "there"] {
        let dir = cluster.home().join(name);
        if name == "there" {
            succeeds(&cluster.shell("mkdir \"$0\"", &[dir.to_str().unwrap()]).output().unwrap());
        }
        let key = format!("file:{}", cluster.home().join("key").display());
        let dir_text = dir.to_str().unwrap();
        let output =
            pgseal(&cluster, &["initdb", "-k", "-K", &key, dir_text, "--", "--locale=no_SUCH"]);
        assert!(!output.status.success());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("nothing was left behind"), "{said}");
        let left = fs::read_dir(&dir).map(Iterator::count);
        match name {
            "there" => assert_eq!(left.unwrap(), 0),
            _ => assert_eq!(left.unwrap_err().kind(), io::ErrorKind::NotFound),
        }
    }
}

#[test]
fn initdb_and_guard_say_what_they_did_as_json() {
    let cluster = sealed();
    let dir = cluster.home().join("json").display().to_string();
    let key = format!("file:{}", cluster.home().join("key").display());
    let initdb = ["initdb", "--json", "-k", "-K", &key, "-D", &dir, "--", "--no-sync"];
    let output = pgseal(&cluster, &initdb);
    let made: serde_json::Value = serde_json::from_str(&succeeds(&output)).unwrap();
    assert_eq!(made["data_directory"], dir.as_str());
    assert_eq!(made["provider"], key.as_str());
    assert!(String::from_utf8_lossy(&output.stderr).contains("creating subdirectories"));
    assert_eq!(pgseal(&cluster, &initdb).status.code(), Some(5));

    let conf = format!("{dir}/postgresql.conf");
    let guard = || -> serde_json::Value {
        serde_json::from_str(&succeeds(&pgseal(&cluster, &["guard", "--json", &dir]))).unwrap()
    };
    let first = guard();
    assert_eq!(first["changed"], false);
    assert_eq!(first["config_file"], conf.as_str());
    let without = "grep -v '^shared_preload_libraries' \"$0\" > \"$0.x\" && mv \"$0.x\" \"$0\"";
    succeeds(&cluster.shell(without, &[&conf]).output().unwrap());
    let added = guard();
    assert_eq!(added["changed"], true);
    assert_eq!(added["module"], made["guard_module"]);
    assert_eq!(guard()["changed"], false);
}

/// initdb and run each ask for the passphrase once, however many processes they start.
#[test]
fn a_passphrase_is_asked_for_once() {
    let cluster = sealed();
    let (asked, data) = (cluster.home().join("asked"), cluster.home().join("pass"));
    let uri = format!("passphrase:command=echo x >> {}; echo correct horse", asked.display());
    let dir = data.to_str().unwrap();
    let clusters = cluster.home().join("clusters.d");
    let pgseal = |args: &[&str]| {
        let mut command = cluster.pgseal().unwrap();
        command.env("PGSEAL_CLUSTERS_DIR", &clusters).args(args).output().unwrap()
    };
    let initdb = ["initdb", "-K", &uri, "--register", "--suite", "xts", dir, "--", "--no-sync"];
    succeeds(&pgseal(&initdb));
    assert_eq!(fs::read_to_string(&asked).unwrap(), "x\n");
    let sql = "select 40 + 2;\n";
    let script = format!("echo '{sql}' | exec \"$0\" --single -D {dir} postgres");
    let postgres = pgseal_testkit::bindir().unwrap().join("postgres");
    let postgres = postgres.to_str().unwrap();
    let output = pgseal(&["run", "-D", dir, "--", "sh", "-c", &script, postgres]);
    assert!(succeeds(&output).contains("42"), "{output:?}");
    assert_eq!(fs::read_to_string(&asked).unwrap(), "x\nx\n");
}

/// Names, contents and modes of all files.
fn content(dir: &Path) -> Vec<(std::path::PathBuf, u32, Vec<u8>)> {
    let mut all = Vec::new();
    for item in fs::read_dir(dir).unwrap() {
        let path = item.unwrap().path();
        let mode = fs::symlink_metadata(&path).unwrap().permissions().mode();
        if path.is_dir() {
            all.extend(content(&path));
        } else {
            all.push((path.clone(), mode, fs::read(&path).unwrap()));
        }
    }
    all.sort();
    all
}
