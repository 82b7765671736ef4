//! The duration of a run and its limit.

use std::time::{Duration, Instant};

use crate::plan::{Case, Plan};

/// The time limit of a run.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    /// When the run began.
    pub since: Instant,
    /// The time that the run may take.
    pub time: Duration,
}

impl Limit {
    /// A limit that begins now.
    pub fn from_now(time: Duration) -> Self {
        Self { since: Instant::now(), time }
    }

    /// Whether another round of duration `round` would exceed the limit.
    pub(super) fn is_over(self, round: Duration) -> bool {
        self.since.elapsed() + round > self.time
    }
}

/// Estimates the remaining time from the plan's estimates and their accuracy so far.
#[derive(Debug)]
pub(super) struct Clock {
    left_s: f64,
    estimated_s: f64,
    taken_s: f64,
}

impl Clock {
    pub(super) fn new(plan: &Plan) -> Self {
        Self { left_s: plan.estimate_s(), estimated_s: 0.0, taken_s: 0.0 }
    }

    pub(super) fn done(&mut self, estimate_s: f64, taken_s: f64) {
        self.left_s -= estimate_s;
        self.estimated_s += estimate_s;
        self.taken_s += taken_s;
    }

    pub(super) fn skip(&mut self, plan: &Plan, case: &str) {
        self.left_s -= plan.case(case).map_or(0.0, |case| case.estimate_s);
    }

    pub(super) fn skip_case(&mut self, plan: &Plan, case: &Case) {
        self.left_s -= plan.steps_of(case) * case.estimate_s;
    }

    pub(super) fn left(&self) -> String {
        let pace = if self.estimated_s > 0.0 { self.taken_s / self.estimated_s } else { 1.0 };
        let left_s = (self.left_s * pace).max(0.0);
        match left_s {
            ..1.0 => String::new(),
            ..90.0 => format!(" ({left_s:.0} s left)"),
            _ => format!(" ({:.0} min left)", left_s / 60.0),
        }
    }
}
