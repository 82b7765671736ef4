//! The throw-away cluster itself, and the scanner on a server that hides nothing.

use pgseal_testkit::{Cluster, Stop, canary};

#[test]
fn a_plain_cluster_lives_crashes_and_leaves_nothing_behind() {
    let cluster = Cluster::builder().setting("shared_buffers", "16MB").create().unwrap();
    cluster.start().unwrap();
    let marker = "canary-plain-4711-xyz";
    cluster.psql("create table t (x text)").unwrap();
    cluster.psql(&format!("insert into t values ('{marker}')")).unwrap();
    assert!(
        cluster.psql("select no_such_thing").unwrap_err().to_string().contains("no_such_thing")
    );
    cluster.kill9().unwrap();
    assert_eq!(cluster.postmaster(), None);

    cluster.start().unwrap();
    assert_eq!(cluster.psql("select x from t").unwrap(), marker);
    cluster.pgbench(&["-i", "-q", "-s", "1"]).unwrap();
    assert_eq!(cluster.psql("select count(*) from pgbench_accounts").unwrap(), "100000");
    cluster.stop(Stop::Fast).unwrap();

    let hits = canary::scan(&[cluster.data()], &[marker]).unwrap();
    let in_dir = |dir: &str| {
        hits.iter()
            .any(|hit| hit.path.starts_with(cluster.data().join(dir)) && hit.marker == marker)
    };
    assert!(in_dir("base") && in_dir("pg_wal"), "{hits:?}");

    cluster.start().unwrap();
    let (root, data) = (cluster.root().to_owned(), cluster.data().to_owned());
    let pid = cluster.postmaster().unwrap();
    drop(cluster);
    assert!(!root.exists() && !data.exists());
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
}
