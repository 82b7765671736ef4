//! Power cuts under a whole server. A test records a run of the server change by change, builds
//! disks that a power cut at random moments of the run could have left, and starts the server on
//! each. Every acknowledged transaction must be there, the data must be consistent, and the server
//! must be usable and allow a backup. The plain server is the control.
//!
//! `PGSEAL_POWER_IMAGES` is the number of images that each test checks, `PGSEAL_POWER_SEED` the
//! first seed.

#![allow(clippy::panic, reason = "a test ends where a step fails")]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use pgseal_power::{Cut, Disk, Image, Log, Mounted, Op, Recorder};
use pgseal_scenarios::files::copy_tree;
use pgseal_scenarios::{Node, not_applicable};
use pgseal_testkit::{Cluster, ClusterBuilder, Sealing};

#[path = "power/judge.rs"]
mod judge;
#[path = "power/workload.rs"]
mod workload;

use judge::Findings;
use workload::Workload;

/// A server whose data directory is on a recording disk.
struct Machine {
    node: Node,
    /// The mount point of the recording disk; images are written to the same directory.
    at: PathBuf,
}

/// A recorded run.
struct Run {
    base: Disk,
    log: Log,
}

impl Machine {
    fn new(builder: ClusterBuilder, sealed: bool, fsync: &str) -> Machine {
        let mut node = Node::create(
            builder,
            &[
                ("fsync", fsync),
                ("checkpoint_timeout", "1d"),
                ("max_prepared_transactions", "5"),
                ("wal_level", "logical"),
                ("log_error_verbosity", "terse"),
            ],
        );
        let at = node.make_dir("disk");
        let data = node.data().to_owned();
        if sealed {
            node.set_env("LD_PRELOAD", &as_ext4(&node).display().to_string());
        }
        node.start();
        workload::prepare(&node);
        node.stop();
        // The mount, and later each image, replaces the content of this directory.
        copy_tree(&data, &at.join("data"));
        node.set_data(&at.join("data"));
        Machine { node, at }
    }

    /// Mounts a recording disk with this content. `None`: FUSE is not available.
    fn mount(&self, disk: Disk) -> Option<Mounted> {
        Recorder::of(disk).mount(&self.at).ok()
    }

    /// Writes an image to the directory of the disk.
    fn put(&self, disk: &Disk) {
        self.clear();
        disk.write_to(&self.at).expect("the image can be written");
    }

    fn clear(&self) {
        for item in fs::read_dir(&self.at).expect("the place of the disk") {
            fs::remove_dir_all(item.expect("an entry").path()).expect("an image can be removed");
        }
    }

    /// Runs the workload on the recording disk for `time`, then kills the server. `None`: FUSE is
    /// not available.
    fn record(&mut self, time: Duration) -> Option<(Run, Workload)> {
        let disk = Disk::read_from(&self.at).expect("the data directory can be read");
        let mounted = self.mount(disk)?;
        let recorder = mounted.recorder.clone();
        recorder.begin();
        self.node.start();
        let workload = Workload::run(&self.node, &recorder, time);
        self.node.kill9();
        mounted.unmount().expect("nobody uses the disk");
        let (base, log) = recorder.recorded();
        Some((Run { base, log }, workload))
    }
}

/// Records a run and checks images of it: all images, or with `to_first` only until the first
/// finding. `None`: no recording disk can be mounted here.
fn cuts(test: &str, mut machine: Machine, sealed: bool, to_first: bool) -> Option<Findings> {
    let Some((run, workload)) = machine.record(Duration::from_secs(8)) else {
        not_applicable(test, "no file system can be mounted here (FUSE)");
        return None;
    };
    let mut findings = Findings::default();
    let first = number("PGSEAL_POWER_SEED", 1);
    for seed in first..first + images() {
        if to_first && !findings.is_empty() {
            break;
        }
        let cut = choose(&run, seed);
        let image = cut.image(&run.base, &run.log);
        machine.put(&image.disk);
        let acknowledged: Vec<u64> = run.log.marks(cut.at).collect();
        let found = judge::image(&mut machine.node, &workload, &acknowledged, sealed, seed);
        findings.add(found, || describe(&run, cut, &image));
        keep(&machine, &findings, &image, seed);
        // For every fifth image the power is cut again, during recovery.
        if seed.is_multiple_of(5) {
            let found = again(&mut machine, &workload, &image, &acknowledged, sealed, seed);
            findings
                .add(found, || format!("{}, and again in recovery", describe(&run, cut, &image)));
        }
    }
    machine.clear();
    Some(findings)
}

/// How many images each test checks.
fn images() -> u64 {
    number("PGSEAL_POWER_IMAGES", 15)
}

/// Asserts that no cut loses anything.
fn loses_nothing(test: &str, builder: ClusterBuilder, sealed: bool) {
    let machine = Machine::new(builder, sealed, "on");
    if let Some(findings) = cuts(test, machine, sealed, false) {
        findings.end(test, images());
    }
}

/// Cuts the power during the recovery of an image. Returns what is wrong on the second image.
fn again(
    machine: &mut Machine,
    workload: &Workload,
    image: &Image,
    acknowledged: &[u64],
    sealed: bool,
    seed: u64,
) -> Vec<String> {
    machine.clear();
    let mounted = machine.mount(image.disk.clone()).expect("it could be mounted before");
    let recorder = mounted.recorder.clone();
    if let Err(log) = machine.node.try_start() {
        return vec![format!("no start on the recording disk:\n{log}")];
    }
    machine.node.kill9();
    mounted.unmount().expect("nobody uses the disk");
    let (base, log) = recorder.recorded();
    let run = Run { base, log };
    let second = choose(&run, seed ^ 0x5a5a);
    machine.put(&second.image(&run.base, &run.log).disk);
    judge::image(&mut machine.node, workload, acknowledged, sealed, seed)
}

/// Where to cut: at a random operation, or close to an operation on names, a length change or a
/// sync.
fn choose(run: &Run, seed: u64) -> Cut {
    let mut rng = fastrand::Rng::with_seed(seed);
    let ops = run.log.ops();
    let mut at = rng.usize(0..=ops.len());
    if rng.bool() {
        let is_hard = |op: &Op| {
            !op.journaled_for().is_empty() || matches!(op, Op::SetLen { .. } | Op::Sync { .. })
        };
        let next = ops[at..].iter().position(is_hard).unwrap_or(0);
        at = (at + next + rng.usize(0..3)).min(ops.len());
    }
    Cut { at, seed }
}

fn describe(run: &Run, cut: Cut, image: &Image) -> String {
    let ops = run.log.ops();
    format!(
        "seed {}, cut before operation {} of {}, names of {}, {:?}, {} kept, next: {:.200}",
        cut.seed,
        cut.at,
        ops.len(),
        image.names_at,
        image.unit,
        image.kept,
        ops.get(cut.at).map_or(String::new(), |op| format!("{op:?}")),
    )
}

/// Copies each image with a finding to the directory `PGSEAL_POWER_KEEP`, if that is set.
fn keep(machine: &Machine, findings: &Findings, image: &Image, seed: u64) {
    if let (Some(dir), true) = (env::var_os("PGSEAL_POWER_KEEP"), findings.is_new()) {
        let dir = Path::new(&dir).join(seed.to_string());
        fs::create_dir_all(&dir).expect("the directory can be made");
        image.disk.write_to(&dir).expect("the image can be written");
        eprintln!("kept: {} (it was at {})", dir.display(), machine.at.display());
    }
}

/// Builds the preload library that reports FUSE as ext4, so that tag blocks are mapped as on ext4.
fn as_ext4(node: &Node) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/power/fstatfs.c");
    let library = node.home().join("fstatfs.so");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"]).arg(&library).arg(source);
    assert!(cc.status().is_ok_and(|status| status.success()), "{cc:?}");
    library
}

fn number(variable: &str, default: u64) -> u64 {
    let value = env::var(variable).ok();
    value.map_or(default, |value| value.parse().unwrap_or_else(|_| panic!("{variable}: {value}")))
}

fn sealed(suite: &str) -> ClusterBuilder {
    let sealing = Sealing { suite: suite.to_owned(), ..Sealing::default() };
    Cluster::builder().sealed(sealing).programs(pgseal_scenarios::programs())
}

#[test]
fn gcm() {
    loses_nothing("power::gcm", sealed("aes-256-gcm"), true);
}

#[test]
fn xts() {
    loses_nothing("power::xts", sealed("aes-256-xts"), true);
}

#[test]
#[ignore = "long: one suite more"]
fn ctr() {
    loses_nothing("power::ctr", sealed("aes-256-ctr"), true);
}

#[test]
#[ignore = "long: the control"]
fn plain() {
    loses_nothing("power::plain", Cluster::builder(), false);
}

/// Control of the method: a server with `fsync = off` loses acknowledged transactions, and the test
/// must notice.
#[test]
fn a_server_that_does_not_sync_is_found_out() {
    let machine = Machine::new(Cluster::builder(), false, "off");
    if let Some(findings) = cuts("power::fsync_off", machine, false, true) {
        assert!(!findings.is_empty(), "{} images, and nothing was found", images());
    }
}
