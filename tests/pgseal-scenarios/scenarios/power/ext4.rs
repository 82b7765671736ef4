//! Cuts below a real ext4, on a loop device whose file is on the recording disk. The log has the
//! blocks that ext4 writes and its flushes, so names, lengths and bytes survive as ext4 has it,
//! maps are real, and `sync_file_range` writes. Needs root.

use std::path::{Path, PathBuf};

use pgseal_power::{Disk, Place, Recorder};
use pgseal_scenarios::mount::run as shell;
use pgseal_scenarios::{Node, is_root, not_applicable};

use crate::findings::Findings;
use crate::judge::{self, Case};
use crate::machine::{Kind, Limit, Machine, NO_FUSE, Run, judged, work};
use crate::workload;

/// The length of the file system, in MiB.
const MIB: u64 = 256;
/// The file with the blocks.
const BLOCKS: &str = "blocks.img";

/// A mounted ext4 in a file; dropping it unmounts it.
struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    fn of(blocks: &Path, at: &'a Path) -> Mounted<'a> {
        shell("mount -t ext4 -o loop \"$1\" \"$2\"", &[blocks, at]);
        Mounted(at)
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        // The loop device goes with the mount; a process that is about to end may still use it.
        shell(
            "for i in {1..50}; do umount -q \"$1\" && exit 0; sleep 0.1; done; umount -l \"$1\"",
            &[self.0],
        );
    }
}

/// Makes an ext4 with a copy of the data directory of a stopped server, to be mounted at `at`.
fn make(node: &mut Node, dir: &Path, at: &Path) {
    let blocks = dir.join(BLOCKS);
    let script = format!(
        "PATH=$PATH:/usr/sbin:/sbin; truncate -s {MIB}M \"$1\"; \
         mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 \"$1\""
    );
    shell(&script, &[&blocks]);
    let _mounted = Mounted::of(&blocks, at);
    let script = "cp -a \"$1\" \"$2/data\"; cp -a \"$3/ts\" \"$3/ts2\" \"$2/\"; \
                  chown --reference=\"$1\" \"$2\"";
    shell(script, &[node.data(), at, &at.with_file_name("made")]);
    node.set_data(&at.join("data"));
}

/// Records a run of a server on ext4, and judges images of the file system.
pub fn cuts(test: &str, kind: Kind, limit: Limit) -> Option<Findings> {
    if !is_root() {
        not_applicable(test, "only root may mount an ext4");
        return None;
    }
    let mut node = kind.node();
    node.unset_env("LD_PRELOAD");
    let (at, dir, images) =
        (node.make_dir("ext4"), node.make_dir("blocks"), node.make_dir("images"));
    // While the tablespace is made it is at its final path, which the mount then covers.
    for name in ["ext4/ts", "ext4/ts2"] {
        let _ = node.make_dir(name);
    }
    node.start();
    let mut workload = workload::prepare(&node, true, Some(&at));
    node.stop();
    let made: PathBuf = at.with_file_name("made");
    shell("mkdir \"$2\"; mv \"$1/ts\" \"$1/ts2\" \"$2/\"", &[&at, &made]);
    make(&mut node, &dir, &at);
    let base = Disk::read_from(&dir).expect("the file system can be read");
    let Ok(mounted) = Recorder::of(base).mount(&dir) else {
        not_applicable(test, NO_FUSE);
        return None;
    };
    let recorder = mounted.recorder.clone();
    recorder.begin();
    let ext4 = Mounted::of(&dir.join(BLOCKS), &at);
    work(&mut node, &recorder, &mut workload, kind);
    // What the unmount writes is no part of the run.
    let ops = recorder.len();
    drop(ext4);
    mounted.unmount().expect("nobody uses the disk");
    let run = Run::of(&recorder, Some(ops));
    let mut machine = Machine { node, place: Place::new(&images), kind };
    Some(judged(&mut machine, &run, limit, |machine, _, marks, seed, figures| {
        let sealed = machine.is_sealed();
        let case = Case {
            workload: &workload,
            acknowledged: marks,
            sealed,
            is_standby: false,
            changes_to: None,
            seed,
        };
        let _mounted = Mounted::of(&images.join(BLOCKS), &at);
        judge::image(&mut machine.node, &case, figures)
    }))
}
