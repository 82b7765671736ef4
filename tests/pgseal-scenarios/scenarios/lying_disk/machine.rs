//! A server whose data directory is on a disk that can do wrong.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use pgseal_cluster::Patience;
use pgseal_power::{Cut, Disk, Mounted, Recorder, Rule, Survival};
use pgseal_scenarios::files::{copy_tree, page_off, tag_off};
use pgseal_scenarios::{Node, not_applicable};
use pgseal_testkit::{Cluster, ClusterBuilder, Sealing};

/// Rows of each of the tables `t` and `u`.
pub const ROWS: u64 = 3000;
/// The rows of `t` in one line: how many, how many different, and a sum over the contents.
pub const SUM_T: &str = "select count(*), count(distinct id), sum(hashtext(v)) from t";
/// The same of `u`.
pub const SUM_U: &str = "select count(*), count(distinct id), sum(hashtext(v)) from u";

/// A server on a disk in memory. Its tables: `t` and `u` of [`ROWS`] rows with an index each, and
/// the empty table `ack`.
pub struct Machine {
    /// First, so that the server ends before the disk goes.
    pub node: Node,
    mounted: Option<Mounted>,
    /// The mount point.
    at: PathBuf,
    /// The disk with the stopped cluster.
    pub prepared: Disk,
    pub sealed: bool,
    /// The path of the file of `t` below the root of the disk.
    pub t: PathBuf,
    /// The path of the file of `u`.
    pub u: PathBuf,
}

/// A sealed server, or a plain one as control, with data checksums both.
pub fn builder(sealed: bool) -> ClusterBuilder {
    if sealed {
        Cluster::builder().sealed(Sealing::default()).programs(pgseal_scenarios::programs())
    } else {
        Cluster::builder().initdb_option("--data-checksums")
    }
}

impl Machine {
    /// A stopped server on its disk. `None`: no file system can be mounted here.
    pub fn new(test: &str, sealed: bool) -> Option<Machine> {
        let mut node = Node::create(
            builder(sealed),
            &[
                ("fsync", "on"),
                ("checkpoint_timeout", "1d"),
                ("wal_level", "replica"),
                // A PANIC ends the server, so that the disk can be looked at as it is then.
                ("restart_after_crash", "off"),
                // Pages reach the disk at checkpoints only, so that a test can tell which.
                ("bgwriter_lru_maxpages", "0"),
            ],
        );
        let at = node.make_dir("disk");
        node.start();
        for table in ["t", "u"] {
            node.sql(&format!(
                "create table {table} (id int primary key, v text);;
                 insert into {table} select g, repeat(md5(g::text), 6) \
                 from generate_series(1, {ROWS}) g;; vacuum (freeze, analyze) {table}"
            ));
        }
        node.sql("create table ack (n bigint);; checkpoint");
        let file = |name: &str| Path::new("data").join(node.relation(name));
        let (t, u) = (file("t"), file("u"));
        node.stop();
        let there = at.join("data");
        copy_tree(node.data(), &there);
        node.set_data(&there);
        let prepared = Disk::read_from(&at).expect("the data directory can be read");
        fs::remove_dir_all(&there).expect("the copy can be removed");
        let mut machine = Machine { node, mounted: None, at, prepared, sealed, t, u };
        let disk = machine.prepared.clone();
        if !machine.mount(disk) {
            not_applicable(test, "no file system can be mounted here (FUSE)");
            return None;
        }
        Some(machine)
    }

    fn mount(&mut self, disk: Disk) -> bool {
        assert!(self.mounted.is_none(), "a disk is mounted");
        self.mounted = Recorder::of(disk).mount(&self.at).ok();
        self.mounted.is_some()
    }

    pub fn disk(&self) -> &Recorder {
        &self.mounted.as_ref().expect("the disk is mounted").recorder
    }

    /// Puts another disk in the place of this one, which nobody uses. Nothing is in the kernel's
    /// page cache then.
    pub fn put(&mut self, disk: Disk) {
        let mounted = self.mounted.take().expect("the disk is mounted");
        mounted.unmount().expect("nobody uses the disk");
        assert!(self.mount(disk), "it could be mounted before");
    }

    /// Takes what is on the disk out of the kernel's page cache.
    pub fn remount(&mut self) {
        let now = self.disk().now();
        self.put(now);
    }

    /// Has the kernel forget what it has of a file in its page cache.
    pub fn forget(&self, path: &Path) {
        let mounted = self.mounted.as_ref().expect("the disk is mounted");
        mounted.forget(path).expect("the file is there");
    }

    /// The disk as a power cut at this moment may leave it: what no sync covered may be lost.
    pub fn after_a_cut(&self, seed: u64) -> Disk {
        let (base, log) = self.disk().recorded();
        Cut { at: log.ops().len(), seed, survival: Survival::Any }.image(&base, &log).disk
    }

    pub fn faults(&self, rules: Vec<Rule>) {
        self.disk().set_faults(rules);
    }

    /// From now on the disk does right.
    pub fn heal(&self) {
        self.faults(Vec::new());
    }

    /// Where a page of a relation is in its file.
    pub fn page(&self, block: u64) -> std::ops::Range<u64> {
        let start = if self.sealed { page_off(block) } else { block * 8192 };
        start..start + 8192
    }

    /// The entry of a page in its tag block.
    pub fn tag(&self, block: u64) -> std::ops::Range<u64> {
        tag_off(block)..tag_off(block) + 32
    }

    /// Waits until the server has ended by itself, and takes note of it.
    #[track_caller]
    pub fn ended_by_itself(&mut self, what: &str) {
        let patience = Patience::every(Duration::from_millis(50), 60);
        let ended = patience.wait_until(|| !self.node.is_running());
        assert!(ended, "{what}: the server is still there\n{}", self.node.log());
        self.node.ended();
    }

    /// Ends the server without a checkpoint, running or not.
    pub fn end(&mut self) {
        if self.node.is_running() {
            self.node.kill9();
        } else {
            self.node.ended();
        }
    }

    /// `pgseal verify`, of which a sealed server must say that all is well.
    #[track_caller]
    pub fn assert_sound(&self, what: &str) {
        if self.sealed {
            let verify = self.node.verify();
            assert_eq!(verify.code, 0, "{what}: {}", verify.text);
        }
    }

    /// Runs SQL in a thread. The thread ends with what psql said.
    pub fn in_background(&self, sql: &'static str) -> thread::JoinHandle<Option<String>> {
        let mut session = self.node.session();
        thread::spawn(move || session.run(sql))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // A process that waits for a stuck sync cannot be killed.
        if let Some(mounted) = &self.mounted {
            mounted.recorder.set_faults(Vec::new());
            mounted.recorder.release();
        }
    }
}

/// Asserts that a text has all of these words.
#[track_caller]
pub fn assert_says(text: &str, words: &[&str], what: &str) {
    for word in words {
        assert!(text.contains(word), "{what}: no \"{word}\" in:\n{text}");
    }
}
