//! One fault after another: the same work again and again, each time with the fault at the next
//! call.

use std::env;

use pgseal_power::{Call, Fault, Rule};
use pgseal_scenarios::Session;

use crate::machine::{Machine, SUM_T};

/// The work: statements that need new files, longer files, WAL segments, checkpoints. Each one
/// that changes rows also inserts its number into `ack`, in the same transaction.
const WORK: [&str; 9] = [
    "begin; insert into ack values (1); insert into t select g, repeat(md5(g::text), 6) \
     from generate_series(100001, 100400) g; commit",
    "begin; insert into ack values (2); create table made as select g id, md5(g::text) v \
     from generate_series(1, 2000) g; create index on made (v); commit",
    "begin; insert into ack values (3); update u set v = repeat('y', 300) where id % 10 = 0; commit",
    "checkpoint",
    "begin; insert into ack values (5); delete from t where id > 100000; commit; vacuum t",
    "begin; insert into ack values (6); create table gone (id int primary key); \
     insert into gone select generate_series(1, 500); drop table gone; commit",
    "select pg_switch_wal()",
    "begin; insert into ack values (8); alter table u alter id type bigint; commit",
    "begin; insert into ack values (9); \
     insert into ack select 0 from generate_series(1, 2000); commit; checkpoint",
];

/// Words in the log that no fault of this page explains.
const DAMAGE: [&str; 5] =
    ["does not authenticate", "invalid page", "not the version", "restore it", "damaged"];

/// What the disk does wrong in turn.
#[derive(Clone, Debug)]
pub struct Plan {
    pub call: Call,
    pub fault: Fault,
    /// The fault stays, as a full disk does.
    pub stays: bool,
    /// The next start is on what a power cut leaves then: a failed sync promises nothing.
    pub cut: bool,
}

/// The numbers of the statements that were acknowledged, and of those that may have been committed.
#[derive(Debug, Default)]
struct Acked {
    surely: Vec<usize>,
    perhaps: Vec<usize>,
}

/// Runs the work in one session after another, as far as there is a server.
fn work(machine: &Machine) -> Acked {
    let mut acked = Acked::default();
    let mut session: Option<Session> = None;
    for (at, statement) in WORK.iter().enumerate() {
        let number = at + 1;
        if !statement.contains("into ack") {
            let open = session.get_or_insert_with(|| machine.node.session());
            if open.run(statement).is_none() {
                session = None;
            }
            continue;
        }
        let open = session.get_or_insert_with(|| machine.node.session());
        match open.run(statement) {
            Some(said) if said.contains("ERROR:") => {
                // The commit may have happened before what follows it failed.
                let after = statement.split("commit").nth(1).is_some_and(|rest| rest.len() > 1);
                if after {
                    acked.perhaps.push(number);
                }
                if open.run("rollback").is_none() {
                    session = None;
                }
            }
            Some(said) if said.contains("FATAL:") || said.contains("PANIC:") => {
                acked.perhaps.push(number);
                session = None;
            }
            Some(_) => acked.surely.push(number),
            None => {
                acked.perhaps.push(number);
                session = None;
            }
        }
    }
    acked
}

/// One round: start, work and stop on a disk where the fault strikes at call `number`. Returns
/// whether it did, or what is wrong then.
fn round(machine: &mut Machine, plan: &Plan, number: u64) -> Result<bool, String> {
    let prepared = machine.prepared.clone();
    machine.put(prepared);
    machine.disk().begin();
    let rule = Rule::new(plan.call, "data", plan.fault.clone());
    machine.faults(vec![if plan.stays { rule.from(number) } else { rule.only(number) }]);
    let mut log = String::new();
    let mut acked = Acked::default();
    if machine.node.try_start().is_ok() {
        acked = work(machine);
        let mut stop = machine.node.command("pg_ctl");
        let _ = stop.arg("-D").arg(machine.node.data()).args(["-t", "20", "-w", "stop"]).output();
        log = machine.node.log();
        machine.end();
    }
    let struck = machine.disk().fault_counts()[0].1 > 0;
    let disk = if plan.cut { machine.after_a_cut(number) } else { machine.disk().now() };
    machine.put(disk);
    let complain = |what: &str| Err(format!("{plan:?} at {number}: {what}\nacked: {acked:?}"));
    if let Err(log) = machine.node.try_start() {
        return complain(&format!("no start afterwards:\n{log}"));
    }
    let rows = machine.node.try_sql("select n from ack where n > 0 order by n");
    let made = machine.node.try_sql("select to_regclass('made') is not null");
    let sum = machine.node.try_sql(&format!("{SUM_T};; select count(*), sum(length(v)) from u"));
    let used = machine.node.try_sql(
        "vacuum;; insert into t values (-1, 'x');; create table after (id int primary key);;
         insert into after select generate_series(1, 100);; checkpoint",
    );
    log.push_str(&machine.node.log());
    machine.node.stop();
    let rows = match (rows, used, &sum) {
        (Ok(rows), Ok(_), Ok(_)) => rows,
        failed => return complain(&format!("{failed:?}\n{log}")),
    };
    let rows: Vec<usize> = rows.lines().filter_map(|row| row.parse().ok()).collect();
    if let Some(lost) = acked.surely.iter().find(|number| !rows.contains(number)) {
        return complain(&format!(
            "statement {lost} was acknowledged and is lost: {rows:?}\n{log}"
        ));
    }
    let is_known = |row: &&usize| acked.surely.contains(row) || acked.perhaps.contains(row);
    if let Some(more) = rows.iter().find(|row| !is_known(row)) {
        return complain(&format!("statement {more} failed and is there: {rows:?}\n{log}"));
    }
    if made.as_deref() != Ok(if rows.contains(&2) { "t" } else { "f" }) {
        return complain(&format!("statement 2 is there in part: {made:?}"));
    }
    let found = log.lines().find(|line| DAMAGE.iter().any(|word| line.contains(word)));
    if let Some(line) = found {
        return complain(&format!("{line}\n{log}"));
    }
    // A cut leaves files that nobody needs any more, torn (`docs/damage.md`).
    if machine.sealed && !plan.cut {
        let verify = machine.node.verify();
        if verify.code != 0 {
            return complain(&verify.text);
        }
    }
    Ok(struck)
}

/// How many calls of a kind the whole round makes if nothing goes wrong.
fn count(machine: &mut Machine, plan: &Plan) -> u64 {
    let never = round(machine, plan, u64::MAX).unwrap_or_else(|what| panic!("no fault: {what}"));
    assert!(!never);
    let prepared = machine.prepared.clone();
    machine.put(prepared);
    machine.faults(vec![Rule::new(plan.call, "data", plan.fault.clone()).from(u64::MAX)]);
    machine.node.start();
    let acked = work(machine);
    assert_eq!(acked.surely.len(), 7, "{acked:?}\n{}", machine.node.log());
    machine.node.stop();
    machine.disk().fault_counts()[0].0
}

/// Strikes at `picks` moments of the round, evenly spread.
pub fn some(test: &str, plan: &Plan, picks: u64) {
    let Some(mut machine) = Machine::new(test, true) else { return };
    let calls = count(&mut machine, plan);
    let step = (calls / picks).max(1);
    strike(&mut machine, plan, calls, step / 2 + 1, step);
}

/// Strikes at each moment of the round, or at one of `PGSEAL_LYING_STRIDE`. Of a kind of call with
/// many moments (writes), at 400 to 800 of them, evenly spread.
pub fn all(test: &str, plan: &Plan, sealed: bool) {
    let stride = env::var("PGSEAL_LYING_STRIDE")
        .ok()
        .map_or(50, |text| text.parse().unwrap_or_else(|_| panic!("PGSEAL_LYING_STRIDE: {text}")));
    let Some(mut machine) = Machine::new(test, sealed) else { return };
    let calls = count(&mut machine, plan);
    strike(&mut machine, plan, calls, 1, stride * (calls / 400).max(1));
}

fn strike(machine: &mut Machine, plan: &Plan, calls: u64, first: u64, step: u64) {
    assert!(calls > 20, "{plan:?}: only {calls} calls");
    let (mut rounds, mut struck, mut wrong) = (0, 0, Vec::new());
    let step = usize::try_from(step).expect("a small number");
    for number in (first..=calls).step_by(step) {
        rounds += 1;
        match round(machine, plan, number) {
            Ok(did) => struck += u64::from(did),
            Err(what) => {
                eprintln!("{what}");
                wrong.push(what);
            }
        }
    }
    eprintln!("{plan:?}: {calls} calls, {rounds} rounds, {struck} faults");
    assert!(wrong.is_empty(), "{} of {rounds}:\n{}", wrong.len(), wrong.join("\n----\n"));
    // The number of calls of a round varies a little.
    assert!(struck * 10 >= rounds * 8, "{struck} faults in {rounds} rounds");
}
