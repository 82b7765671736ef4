//! A server on a recording disk, a recorded run of it, and the images of that run.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use pgseal_cluster::{Patience, process};
use pgseal_core::usage::is_counted;
use pgseal_power::{Cut, Disk, Image, Log, Mounted, Place, Recorder};
use pgseal_scenarios::backup::base_backup_command;
use pgseal_scenarios::files::copy_tree;
use pgseal_scenarios::resealing::{add_samples, create_functions, header_of, reseal, start};
use pgseal_scenarios::{Node, not_applicable};
use pgseal_testkit::{Cluster, ClusterBuilder, Programs, Sealing};

use crate::aim::Aims;
use crate::findings::Findings;
use crate::judge::{self, Case};
use crate::phase::Phase;
use crate::workload::{self, Workload};

/// Why the WAL has a full-page image of a page of which only hint bits changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HintBits {
    /// The server has data checksums.
    Checksums,
    /// It has none, and `wal_log_hints` is on.
    WalLogHints,
    /// It has none: both are off, and so is the guard module, which refuses that.
    NotLogged,
}

/// Which server a machine has.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// The suite; `None`: a plain server.
    pub suite: Option<&'static str>,
    /// The setting `wal_level`.
    pub wal_level: &'static str,
    /// The setting `fsync`.
    pub fsync: &'static str,
    /// Whether changes of hint bits are in the WAL.
    pub hint_bits: HintBits,
    /// The suite that the server changes to while it runs.
    pub changes_to: Option<&'static str>,
    /// The order of writes that the library and the program break: a name of
    /// `pgseal_core::broken::Order`. The programs are those of `PGSEAL_POWER_BROKEN`.
    pub broken: Option<&'static str>,
}

impl Kind {
    /// A sealed server in this suite.
    pub fn sealed(suite: &'static str) -> Kind {
        Kind { suite: Some(suite), ..Kind::PLAIN }
    }

    /// A server sealed in the suite of `PGSEAL_POWER_SUITE`, or in `aes-256-gcm`.
    pub fn chosen() -> Kind {
        let suite = env::var("PGSEAL_POWER_SUITE").map(String::leak);
        Kind::sealed(suite.map_or("aes-256-gcm", |suite| suite))
    }

    /// A plain server.
    pub const PLAIN: Kind = Kind {
        suite: None,
        wal_level: "logical",
        fsync: "on",
        hint_bits: HintBits::Checksums,
        changes_to: None,
        broken: None,
    };

    fn programs(self) -> Programs {
        let programs = pgseal_scenarios::programs();
        if self.broken.is_none() {
            return programs;
        }
        let dir = env::var_os("PGSEAL_POWER_BROKEN").map(PathBuf::from);
        let dir = dir.expect("PGSEAL_POWER_BROKEN; run make test-power-broken");
        Programs { pgseal: dir.join("pgseal"), library: Some(dir.join("libpgseal.so")), ..programs }
    }

    fn builder(self) -> ClusterBuilder {
        let builder = match self.suite {
            Some(suite) => {
                let sealing = Sealing { suite: suite.to_owned(), ..Sealing::default() };
                Cluster::builder().sealed(sealing).programs(self.programs())
            }
            None => Cluster::builder(),
        };
        match self.hint_bits {
            HintBits::Checksums => builder,
            HintBits::WalLogHints => builder.without_checksums(),
            HintBits::NotLogged => builder
                .without_checksums()
                .setting("wal_log_hints", "off")
                .setting("shared_preload_libraries", ""),
        }
    }

    /// Whether relations can get new file keys: the guard module does it, and there must be tags.
    fn reseals(self) -> bool {
        self.suite.is_some_and(|suite| !suite.ends_with("xts"))
            && self.hint_bits != HintBits::NotLogged
    }

    /// A server that is not started, with the settings of all machines.
    pub fn node(self) -> Node {
        let is_minimal = self.wal_level == "minimal";
        let mut node = Node::create(
            self.builder(),
            &[
                ("fsync", self.fsync),
                ("checkpoint_timeout", "1d"),
                ("max_prepared_transactions", "5"),
                ("wal_level", self.wal_level),
                ("max_wal_senders", if is_minimal { "0" } else { "5" }),
                // New relations are synced at commit, however small they are.
                ("wal_skip_threshold", "0"),
                ("log_error_verbosity", "terse"),
                // Whoever makes a relation anew gives way to clients: its lock times out before.
                ("deadlock_timeout", "30s"),
            ],
        );
        if self.suite.is_some() {
            node.set_env("LD_PRELOAD", &as_ext4(&node).display().to_string());
        }
        if self.hint_bits == HintBits::NotLogged {
            node.set_env("PGSEAL_GUARD", "off");
        }
        if let Some(order) = self.broken {
            node.set_env("PGSEAL_BROKEN", order);
            let library = self.programs().library.expect("a sealed server");
            node.set_env("PGSEAL_LIBRARY", &library.display().to_string());
        }
        node
    }
}

/// A server whose data directory is on a recording disk.
pub struct Machine {
    /// The server.
    pub node: Node,
    /// Where images are written to; mostly the mount point of the recording disk.
    pub place: Place,
    /// Which server it is.
    pub kind: Kind,
}

/// A recorded run.
pub struct Run {
    /// The disk before the first operation.
    pub base: Disk,
    /// The operations.
    pub log: Log,
    /// Where to cut.
    pub aims: Aims,
}

impl Run {
    /// What a recorder has seen, or the first `ops` operations of it.
    pub fn of(recorder: &Recorder, ops: Option<usize>) -> Run {
        let (base, mut log) = recorder.recorded();
        log.truncate(ops.unwrap_or(usize::MAX));
        let aims = Aims::of(&base, &log);
        Run { base, log, aims }
    }
}

impl Machine {
    /// Makes a machine and fills its database. The server is stopped.
    pub fn new(kind: Kind) -> (Machine, Workload) {
        let mut node = kind.node();
        let at = node.make_dir("disk");
        for name in ["disk/ts", "disk/ts2"] {
            let _ = node.make_dir(name);
        }
        node.start();
        let workload = workload::prepare(&node, kind.wal_level == "logical", Some(&at));
        node.stop();
        (Machine::on(node, &at, kind), workload)
    }

    /// A machine whose disk is at the empty directory `at`; takes the data directory of a stopped
    /// server.
    pub fn on(mut node: Node, at: &Path, kind: Kind) -> Machine {
        // The mount, and later each image, replaces the content of this directory.
        let data = at.join("data");
        copy_tree(node.data(), &data);
        node.set_data(&data);
        Machine { node, place: Place::new(at), kind }
    }

    /// Whether the server is sealed.
    pub fn is_sealed(&self) -> bool {
        self.kind.suite.is_some()
    }

    /// Mounts a recording disk with this content. `None`: FUSE is not available.
    fn mount(&self, disk: Disk) -> Option<Mounted> {
        Recorder::of(disk).mount(self.place.path()).ok()
    }

    /// Does something while the disk is recorded. `None`: FUSE is not available.
    pub fn recorded(&mut self, what: impl FnOnce(&mut Node, &Recorder)) -> Option<Run> {
        let disk = Disk::read_from(self.place.path()).expect("the data directory can be read");
        let mounted = self.mount(disk)?;
        let recorder = mounted.recorder.clone();
        recorder.begin();
        what(&mut self.node, &recorder);
        mounted.unmount().expect("nobody uses the disk");
        Some(Run::of(&recorder, None))
    }
}

/// Runs the workload on a recorded server, which is stopped, with a clean and an immediate restart.
/// At the end the server is killed.
pub fn work(node: &mut Node, recorder: &Recorder, workload: &mut Workload, kind: Kind) {
    let (is_sealed, takes_backups) = (kind.suite.is_some(), kind.wal_level != "minimal");
    let time = run_time() / 3;
    let note = |mark| recorder.mark(mark);
    node.start();
    workload.run(node, &note, time, || {});
    Phase::Stop.does(&note, || node.stop());
    Phase::Start.does(&note, || node.start());
    workload.run(node, &note, time, || {
        if takes_backups {
            Phase::Backup.does(&note, || take_backup(node));
        }
        if is_sealed {
            Phase::KeyRotate.does(&note, || rotate_key(node));
            Phase::KeyRenew.does(&note, || renew_key(node));
        }
        if let Some(suite) = kind.changes_to {
            Phase::NewSuite.does(&note, || change_suite(node, suite));
            Phase::Rewrite.does(&note, || rewrite_again_and_again(node));
        } else if kind.reseals() {
            Phase::Reseal.does(&note, || reseal_all(node));
        }
    });
    node.stop_at_once();
    Phase::Start.does(&note, || node.start());
    workload.run(node, &note, time, || {});
    node.kill9();
}

fn take_backup(node: &Node) {
    let target = node.home().join("backup");
    let mut backup = base_backup_command(node, &target);
    let mut made = vec![target];
    // The tablespace `ts2` comes and goes. Without a place of its own the copy would be written to
    // the place of the tablespace, which may just have been dropped.
    for name in ["ts", "ts2"] {
        let (place, moved) =
            (node.data().with_file_name(name), node.home().join(format!("backup_{name}")));
        backup.args(["--tablespace-mapping", &format!("{}={}", place.display(), moved.display())]);
        made.push(moved);
    }
    // The backup may fail, because a tablespace was dropped meanwhile.
    let _ = backup.output().expect("pg_basebackup runs");
    for dir in made {
        let _ = fs::remove_dir_all(dir);
    }
}

fn rotate_key(node: &Node) {
    let (data, key) = (node.data().display().to_string(), node.new_key("new.key"));
    let rotated = node.pgseal(&["key", "rotate", &data, "-K", &format!("file:{}", key.display())]);
    assert_eq!(rotated.code, 0, "{}", rotated.text);
}

fn renew_key(node: &Node) {
    let renewed = node.pgseal(&["key", "renew", &node.data().display().to_string()]);
    assert_eq!(renewed.code, 0, "{}", renewed.text);
}

/// New files get another suite.
pub fn change_suite(node: &Node, suite: &str) {
    let data = node.data().display().to_string();
    let renewed = node.pgseal(&["key", "renew", "--suite", suite, &data]);
    assert_eq!(renewed.code, 0, "{}", renewed.text);
}

/// Has the server make relations anew that have an older suite. Returns the exit status and what
/// the command said.
pub fn rewrite(node: &Node, more: &[&str]) -> (i32, String) {
    let (data, host) =
        (node.data().display().to_string(), node.sql("show unix_socket_directories"));
    let port = node.port().to_string();
    let all = ["reseal", "--rewrite", "--host", &host, "--port", &port, "-U", "postgres", &data];
    let done = node.pgseal(&[&all[..], more].concat());
    (done.code, done.text)
}

/// The same beside clients that make and drop tables, and databases after `template1`: what cannot
/// be locked at once is left, and the next run goes on.
fn rewrite_again_and_again(node: &Node) {
    let more =
        ["-d", "postgres", "-d", "template0", "--lock-timeout", "2", "--pages-per-second", "0"];
    for _ in 0..3 {
        let (code, said) = rewrite(node, &more);
        assert!(code == 0 || code == 1, "{code} {said}");
    }
}

/// Gives every relation a new file key, counts writes under keys that have a limit, and begins with
/// another one, so that the server is stopped while files have two.
fn reseal_all(node: &Node) {
    create_functions(node);
    for path in ["ledger", "step"].map(|name| node.data().join(node.relation(name))) {
        let header = header_of(&path);
        if is_counted(header.suite, header.layout) {
            add_samples(node, &path, 3);
        }
    }
    reseal(node, "null, 0, false");
    assert_eq!(node.sql("select count(*) from progress"), "0");
    start(node, "'pg_proc', 2000, false");
}

/// How many images a test judges.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    images: u64,
    /// The words of the finding that ends the test.
    until: Option<&'static str>,
    /// The only kind of cuts.
    kind: Option<&'static str>,
}

impl Limit {
    /// As many as `PGSEAL_POWER_IMAGES` says.
    pub fn all() -> Limit {
        Limit { images: number("PGSEAL_POWER_IMAGES", 15), until: None, kind: None }
    }

    /// Until the first finding with these words, and at most this many.
    pub fn first(images: u64, words: &'static str) -> Limit {
        Limit { images, until: Some(words), kind: None }
    }

    /// The same with cuts of one kind.
    pub fn of_kind(self, kind: &'static str) -> Limit {
        Limit { kind: Some(kind), ..self }
    }
}

/// Records a run of a server and judges images of it. `None`: no recording disk can be mounted
/// here.
pub fn cuts(test: &str, kind: Kind, limit: Limit) -> Option<Findings> {
    let (mut machine, mut workload) = Machine::new(kind);
    let run = machine.recorded(|node, recorder| work(node, recorder, &mut workload, kind));
    let Some(run) = run else {
        not_applicable(test, NO_FUSE);
        return None;
    };
    Some(judged(&mut machine, &run, limit, |machine, image, marks, seed, figures| {
        let case = Case {
            workload: &workload,
            acknowledged: marks,
            sealed: machine.is_sealed(),
            is_standby: false,
            changes_to: kind.changes_to,
            seed,
        };
        let found = judge::image(&mut machine.node, &case, figures);
        // For every fifth image the power is cut again, during recovery.
        if seed.is_multiple_of(5) && found.is_empty() {
            return again(machine, image, &case, figures);
        }
        found
    }))
}

/// Why a test does not apply.
pub const NO_FUSE: &str = "no file system can be mounted here (FUSE)";

/// Writes one image after another to the place of the disk and has it judged, with the marks before
/// the cut and the seed.
pub fn judged(
    machine: &mut Machine,
    run: &Run,
    limit: Limit,
    mut judge: impl FnMut(&mut Machine, &Image, &[u64], u64, &mut Findings) -> Vec<String>,
) -> Findings {
    let mut findings = Findings::default();
    let first = number("PGSEAL_POWER_SEED", 1);
    for seed in first..first + limit.images {
        if limit.until.is_some_and(|words| findings.has(words)) {
            break;
        }
        let start = Instant::now();
        let (kind, cut) = run.aims.choose(seed, &run.log, limit.kind);
        let image = cut.image(&run.base, &run.log);
        machine.place.put(&image.disk).expect("the image can be written");
        let marks: Vec<u64> = run.log.marks(cut.at).collect();
        findings.spent("image", start);
        let found = judge(machine, &image, &marks, seed, &mut findings);
        findings.add(kind, &found, || describe(run, cut, &image));
        if findings.is_new() {
            keep(machine, &image.disk, seed, "");
        }
    }
    machine.place.clear().expect("an image can be removed");
    findings
}

/// How long a run is recorded.
pub fn run_time() -> Duration {
    Duration::from_secs(number("PGSEAL_POWER_SECONDS", 8))
}

/// Cuts the power during the recovery of an image and judges the second image. Returns what is
/// wrong with the recovery itself.
fn again(
    machine: &mut Machine,
    image: &Image,
    case: &Case<'_>,
    figures: &mut Findings,
) -> Vec<String> {
    let start = Instant::now();
    let mounted = machine.mount(image.disk.clone()).expect("it could be mounted before");
    let recorder = mounted.recorder.clone();
    machine.node.clear_log();
    if let Err(log) = machine.node.try_start() {
        return vec![format!("no start on the recording disk:\n{log}")];
    }
    let processes = process::all_in(machine.node.data());
    machine.node.kill9();
    // A process leaves its directory before the kernel has closed all its files.
    process::wait_until_gone(machine.node.data(), &processes, Patience::seconds(2));
    mounted.unmount().expect("nobody uses the disk");
    let run = Run::of(&recorder, None);
    let (_, cut) = run.aims.choose(case.seed ^ 0x5a5a, &run.log, None);
    let second = cut.image(&run.base, &run.log);
    machine.place.put(&second.disk).expect("the image can be written");
    figures.spent("recovery recorded", start);
    let found = judge::image(&mut machine.node, case, figures);
    figures.add("in recovery", &found, || describe(&run, cut, &second));
    if figures.is_new() {
        keep(machine, &second.disk, case.seed, "-again");
    }
    Vec::new()
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

/// Copies an image with a finding to the directory `PGSEAL_POWER_KEEP`, if that is set.
fn keep(machine: &Machine, disk: &Disk, seed: u64, again: &str) {
    if let Some(dir) = env::var_os("PGSEAL_POWER_KEEP") {
        let dir = Path::new(&dir).join(format!("{seed}{again}-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("the directory can be made");
        disk.write_to(&dir).expect("the image can be written");
        eprintln!("kept: {} (it was at {})", dir.display(), machine.place.path().display());
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
