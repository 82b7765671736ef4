//! Makes changes to files and records the verdicts.

use std::path::PathBuf;

use pgseal_scenarios::files::{copy_tree, restore_tree};
use pgseal_scenarios::{Node, programs};
use pgseal_testkit::{Cluster, Sealing};

use crate::table::{self, ByVerify, Row, Verdict};

/// The stopped cluster that is changed, and copies from which each change begins.
pub struct Lab {
    pub node: Node,
    /// The current state of the cluster.
    pub now: PathBuf,
    /// The state of the cluster before the last update.
    pub older: PathBuf,
    /// `victim` holds the rows that are read; `other` is a table of the same size.
    pub victim: String,
    pub other: String,
    /// The result of the queries on an unchanged cluster.
    pub truth: Vec<String>,
    /// When the changes are made.
    moment: Moment,
    /// Whether the cluster has data checksums.
    has_checksums: bool,
    /// Whether `verify` lists zero blocks on an unchanged cluster.
    has_zeros: bool,
    pub rows: Vec<Row>,
}

/// The queries after each change: all rows of the table, and rows without hint bits, so that the
/// server must read `pg_xact`.
const READS: [&str; 2] = [
    "select count(*), md5(string_agg(id || v, ',' order by id)) from victim",
    "select count(*), sum(id) from fresh",
];

/// When a change is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// The server was shut down cleanly.
    Stopped,
    /// The server was killed, so no manifest applies.
    Crashed,
    /// The server runs, and has read the rows, but has not kept their pages.
    Running,
}

impl Lab {
    /// Makes the cluster, its older copy, and the expected result.
    pub fn new() -> Lab {
        Lab::of(true)
    }

    /// The same without data checksums.
    pub fn without_checksums() -> Lab {
        Lab::of(false)
    }

    fn of(has_checksums: bool) -> Lab {
        let builder = Cluster::builder().sealed(Sealing::default()).programs(programs());
        let builder = if has_checksums { builder } else { builder.without_checksums() };
        // No checkpoints except explicit ones, however long the test takes.
        let settings = [
            ("max_prepared_transactions", "2"),
            ("checkpoint_timeout", "1d"),
            // Without it nobody promises that commits are there after a crash.
            ("fsync", "on"),
            // 16 pages: reading one table throws the other one out.
            ("shared_buffers", "128kB"),
        ];
        let mut node = Node::create(builder, &settings);
        node.start();
        // 2000 rows of about 40 a page, with room on each page for new versions of the rows.
        node.sql(
            "create extension amcheck;;
             create table victim (id int, v text) with (fillfactor = 45);;
             create table other (id int, v text) with (fillfactor = 45);;
             insert into victim select g, 'victim ' || md5(g::text) from generate_series(1, 2000) g;;
             insert into other select g, 'other  ' || md5(g::text) from generate_series(1, 2000) g;;
             vacuum (freeze) victim, other;;
             checkpoint",
        );
        // Each change copies the directory, which without the templates is only a third as large.
        node.sql(
            "update pg_database set datistemplate = false, datallowconn = true;;
             drop database template1;; drop database template0",
        );
        let (victim, other) = (node.relation("victim"), node.relation("other"));
        node.stop();
        let older = node.home().join("older");
        copy_tree(node.data(), &older);

        node.start();
        node.sql("update victim set v = 'update ' || md5(v);; vacuum victim");
        // There is no WAL to replay, and no hint bits, because nobody has read these rows yet.
        node.sql("create table fresh (id int)");
        for id in 1..=64 {
            node.sql(&format!("insert into fresh values ({id})"));
        }
        node.sql("begin; insert into other values (0, 'x'); prepare transaction 'later'");
        node.sql("checkpoint");
        node.stop();
        let now = node.home().join("now");
        copy_tree(node.data(), &now);

        node.start();
        let truth = READS.map(|sql| node.sql(sql)).to_vec();
        node.stop();
        restore_tree(&now, node.data());
        let has_zeros = node.verify().text.contains(" never written");
        Lab {
            node,
            now,
            older,
            victim,
            other,
            truth,
            moment: Moment::Stopped,
            has_checksums,
            has_zeros,
            rows: Vec::new(),
        }
    }

    /// Makes the same changes, `group`, to the cluster after a crash: there is nothing to replay,
    /// and no manifest to compare with.
    pub fn after_a_crash(&mut self, group: impl Fn(&mut Lab)) {
        restore_tree(&self.now, self.node.data());
        self.node.start();
        self.node.kill9();
        let crashed = self.node.home().join("stopped-by-kill");
        copy_tree(self.node.data(), &crashed);
        let kept = std::mem::replace(&mut self.now, crashed);
        self.moment = Moment::Crashed;
        group(self);
        self.moment = Moment::Stopped;
        self.now = kept;
    }

    /// Makes the same changes, `group`, below a running server.
    pub fn while_it_runs(&mut self, group: impl Fn(&mut Lab)) {
        self.moment = Moment::Running;
        group(self);
        self.moment = Moment::Stopped;
    }

    /// A file in one of the copies, or in the data directory of the server.
    pub fn file(&self, name: &str) -> PathBuf {
        self.node.file(name)
    }

    /// Makes one change to a new copy, starts the server, runs the queries and records the verdict.
    pub fn try_change(&mut self, class: &'static str, change: &'static str, make: impl Fn(&Lab)) {
        restore_tree(&self.now, self.node.data());
        let (verify, outcome) = if self.moment == Moment::Running {
            self.node.start();
            self.node.sql(READS[0]);
            self.node.sql("select count(*) from other");
            make(self);
            let outcome = self.read();
            self.node.stop_at_once();
            // While the server runs, verify looks at each damaged file for seconds.
            (self.node.verify(), outcome)
        } else {
            make(self);
            (self.node.verify(), self.start_and_read())
        };
        let zeros = verify.text.contains(" never written") && !self.has_zeros;
        let by_verify = match verify.code {
            0 if verify.text.contains("does not matter") => ByVerify::Rebuilt,
            0 if zeros => ByVerify::Zeros,
            0 => ByVerify::Nothing,
            _ => ByVerify::Finds,
        };
        self.note(class, change, outcome, by_verify);
    }

    fn start_and_read(&mut self) -> Outcome {
        if let Err(log) = self.node.try_start() {
            return Outcome::NoStart(table::reason_of(&log));
        }
        let outcome = self.read();
        self.node.stop_at_once();
        outcome
    }

    fn read(&self) -> Outcome {
        let mut outcome = Outcome::Right;
        for (sql, truth) in READS.iter().zip(&self.truth) {
            match self.node.try_sql(sql) {
                Err(error) => return Outcome::Error(error),
                Ok(rows) if rows != *truth => outcome = Outcome::Wrong,
                Ok(_) => {}
            }
        }
        outcome
    }

    /// Records what happened.
    pub fn note(
        &mut self,
        class: &'static str,
        change: &'static str,
        what: Outcome,
        found: ByVerify,
    ) {
        let (verdict, text) = match what {
            Outcome::NoStart(text) => (Verdict::Prevented, format!("no start: {text}")),
            Outcome::Error(text) => (Verdict::AtRead, table::error_of(&text)),
            Outcome::Wrong if found == ByVerify::Finds => (Verdict::ByVerify, WRONG.to_owned()),
            Outcome::Right if found == ByVerify::Finds => (Verdict::ByVerify, RIGHT.to_owned()),
            Outcome::Wrong => (Verdict::Not, WRONG.to_owned()),
            Outcome::Right => (Verdict::NoEffect, RIGHT.to_owned()),
        };
        let checksums = if self.has_checksums { "" } else { " without checksums" };
        let class = format!("{class}{checksums}");
        let class = match self.moment {
            Moment::Stopped => class,
            Moment::Crashed => format!("{class}, after a crash"),
            Moment::Running => format!("{class}, while the server runs"),
        };
        self.rows.push(Row { class, change, verdict, text: table::plain(&text), found });
    }
}

const WRONG: &str = "wrong rows, no error";
const RIGHT: &str = "right rows";

/// What happened after a change.
pub enum Outcome {
    /// The server did not start.
    NoStart(String),
    /// A query failed with this.
    Error(String),
    /// Another result than the truth, and no error.
    Wrong,
    /// The truth.
    Right,
}
