//! Cuts under a standby: while it receives and replays WAL, restarts, and is promoted. Its primary
//! waits for it with each commit, so it must have all that was acknowledged.

use pgseal_scenarios::{Keys, not_applicable};

use crate::findings::Findings;
use crate::judge::{self, Case};
use crate::machine::{Kind, Limit, Machine, NO_FUSE, judged, run_time};
use crate::phase::Phase;
use crate::workload;

/// Records a standby while clients work on its primary, and judges images of the standby, which are
/// promoted.
pub fn cuts(test: &str, kind: Kind, limit: Limit) -> Option<Findings> {
    let mut primary = kind.node();
    primary.start();
    let mut workload = workload::prepare(&primary, true, None);
    let standby = primary.standby(&primary, "follower", Keys::Same);
    let at = primary.make_dir("disk");
    let mut machine = Machine::on(standby, &at, kind);
    let time = run_time();
    let run = machine.recorded(|node, recorder| {
        let note = |mark| recorder.mark(mark);
        node.start();
        primary.sql(
            "alter system set synchronous_standby_names = 'follower';; select pg_reload_conf()",
        );
        primary
            .wait_until("select count(*) = 1 from pg_stat_replication where sync_state = 'sync'");
        workload.run(&primary, &note, time / 3, || {});
        workload.run(&primary, &note, time / 3, || {
            Phase::Stop.does(&note, || node.stop());
            Phase::Start.does(&note, || node.start());
            node.stop_at_once();
            Phase::Start.does(&note, || node.start());
        });
        workload.run(&primary, &note, time / 3, || {});
        primary.stop();
        assert!(Phase::Promotion.does(&note, || judge::promote(node)), "{}", node.log());
        node.kill9();
    });
    let Some(run) = run else {
        not_applicable(test, NO_FUSE);
        return None;
    };
    let sealed = machine.is_sealed();
    Some(judged(&mut machine, &run, limit, |machine, _, marks, seed, figures| {
        let case = Case {
            workload: &workload,
            acknowledged: marks,
            sealed,
            is_standby: true,
            changes_to: None,
            seed,
        };
        judge::image(&mut machine.node, &case, figures)
    }))
}
