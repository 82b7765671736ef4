//! Cuts during `pgseal encrypt`, `rekey` and `decrypt`. On each image the conversion is continued
//! with the same command or undone, as `docs/convert.md` says, and all rows must be there.

use std::fs;
use std::sync::Mutex;
use std::time::Duration;

use pgseal_scenarios::{Node, Outcome, not_applicable};
use pgseal_testkit::bindir;

use crate::findings::Findings;
use crate::judge::{self, Case};
use crate::machine::{Kind, Limit, Machine, NO_FUSE, judged};
use crate::phase::Phase;

/// How long the clients work before the conversion.
const WORK: Duration = Duration::from_secs(2);

/// A conversion and its options.
#[derive(Clone, Copy, Debug)]
pub struct Conversion {
    /// `encrypt`, `rekey` or `decrypt`.
    pub command: &'static str,
    /// More options.
    pub options: &'static [&'static str],
}

impl Conversion {
    fn run(self, node: &Node, key: &str) -> Outcome {
        let bindir = bindir().expect("PostgreSQL is there").display().to_string();
        let mut all = vec![self.command, "--skip-check", "--bindir", &bindir];
        all.extend(self.options);
        match self.command {
            "encrypt" => all.extend(["-K", key]),
            "decrypt" => all.push("--yes-write-plain"),
            _ => {}
        }
        let data = node.data().display().to_string();
        all.push(&data);
        node.pgseal(&all)
    }

    /// Brings an interrupted conversion to its end; `undo`: back to a plain directory, if there is
    /// something to undo. In its last phase a conversion only goes on. Returns whether the
    /// directory is sealed then.
    fn finish(self, node: &Node, key: &str, undo: bool) -> Result<bool, String> {
        let is_sealed = || node.file("pgseal/keyring").exists();
        let journal = fs::read_to_string(node.file("pgseal/conversion"));
        let is_unfinished = journal.is_ok();
        let can_undo = journal.is_ok_and(|text| !text.contains("\"phase\": \"finish\""));
        let next = match undo && can_undo && self.command != "decrypt" {
            true => Conversion { command: "decrypt", options: &[] },
            false => self,
        };
        let is_done = match next.command {
            "encrypt" => is_sealed(),
            "decrypt" => !is_sealed(),
            _ => false,
        };
        if is_unfinished || !is_done {
            let outcome = next.run(node, key);
            let is_undone = next.command == "decrypt" && !is_sealed();
            if outcome.code != 0 && !is_undone {
                return Err(format!("{next:?}: {}", outcome.text));
            }
        }
        match node.file("pgseal/conversion").exists() {
            true => Err(format!("{next:?} left a journal")),
            false => Ok(is_sealed()),
        }
    }
}

/// Records a conversion of a stopped data directory, and judges images of it.
pub fn cuts(test: &str, from: Kind, conversion: Conversion, limit: Limit) -> Option<Findings> {
    let (mut machine, mut workload) = Machine::new(from);
    let marks = Mutex::new(Vec::new());
    machine.node.start();
    let note = |mark| marks.lock().expect("no panic").push(mark);
    workload.run(&machine.node, &note, WORK, || {});
    machine.node.stop();
    if !machine.is_sealed() {
        machine.node.bring_programs();
    }
    let key = format!("file:{}", machine.node.new_key("conversion.key").display());
    let marks = marks.into_inner().expect("no panic");
    let run = machine.recorded(|node, recorder| {
        let note = |mark| recorder.mark(mark);
        let outcome = Phase::Conversion.does(&note, || conversion.run(node, &key));
        assert_eq!(outcome.code, 0, "{}", outcome.text);
    });
    let Some(run) = run else {
        not_applicable(test, NO_FUSE);
        return None;
    };
    Some(judged(&mut machine, &run, limit, |machine, _, _, seed, figures| {
        match conversion.finish(&machine.node, &key, seed.is_multiple_of(3)) {
            Ok(sealed) => {
                let case = Case {
                    workload: &workload,
                    acknowledged: &marks,
                    sealed,
                    is_standby: false,
                    changes_to: None,
                    seed,
                };
                judge::image(&mut machine.node, &case, figures)
            }
            Err(text) => vec![text],
        }
    }))
}
