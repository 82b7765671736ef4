//! Runs a plan. Without interleaving, one case after another: its warm-ups, then its rounds, each
//! round all arms of the case in random order. With interleaving, each round goes through all
//! cases.

mod clock;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use self::clock::Clock;
pub use self::clock::Limit;
use crate::analysis::widest_percent;
use crate::environment::{Environment, load};
use crate::error::LabError;
use crate::executor::{Executor, Progress, Step};
use crate::plan::{Arm, Case, Plan, Until};
use crate::results::{Because, End, Missing, Results, Sample};
use crate::stats::SplitMix64;
use crate::store::{Line, Store};
use crate::warning::Warning;

/// How many times the blocks there must be before the intervals are looked at again.
const LOOK_AGAIN: f64 = 1.1;
/// How often a case of blocks says how far it is.
const SAY_EVERY: Duration = Duration::from_secs(5);

/// The inputs of a run.
pub struct Run<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The machine.
    pub environment: &'a Environment,
    /// The command line that repeats this measurement.
    pub command: &'a str,
    /// The directory of the results.
    pub output: &'a Path,
    /// Go on with an interrupted run.
    pub resume: bool,
    /// Receives the progress messages.
    pub progress: &'a dyn Progress,
    /// Set by a signal handler: stop after the current step.
    pub interrupted: &'a AtomicBool,
    /// The time limit of an interleaved plan: no round begins that is not expected to end in time,
    /// except the first.
    pub limit: Option<Limit>,
    /// Called with the directory and the results after every case and at the end; writes the
    /// reports.
    pub after_case: &'a mut dyn FnMut(&Path, &Results) -> Result<(), LabError>,
}

/// The order of the arms in a round. The order depends only on seed, case and round, so that a
/// resumed run has the same order as an uninterrupted one.
pub fn order_of(plan: &Plan, case: &Case, round: u32, warmup: bool) -> Vec<usize> {
    let mut order: Vec<usize> = (0..plan.arms_of(case).count()).collect();
    if !warmup {
        // FNV-1a of the case's name, so that each case has its own order.
        let name = case.id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let mut random = SplitMix64(plan.seed ^ name ^ (u64::from(round) << 40));
        random.shuffle(&mut order);
    }
    order
}

impl Run<'_> {
    /// Runs the plan and returns all results, including those from before a resume.
    ///
    /// # Errors
    ///
    /// Errors of the executor and of the store; the samples taken so far are kept on disk.
    pub fn walk(self, executor: &mut dyn Executor) -> Result<Results, LabError> {
        let (store, mut results) =
            Store::open(self.output, self.plan, self.environment, self.resume)?;
        results.command = self.command.to_owned();
        let mut walk = Walk { clock: Clock::new(self.plan), run: self, store, results };
        walk.begin()?;
        if walk.run.plan.interleaved()? {
            walk.interleaved(executor)?;
        } else {
            let cases: Vec<&Case> = walk.run.plan.cases.iter().collect();
            for case in cases {
                let done = walk.case(case, executor);
                let written = (walk.run.after_case)(walk.run.output, &walk.results);
                done.and(written)?;
            }
        }
        walk.results.finished = walk.results.stopped_after().is_none();
        (walk.run.after_case)(walk.run.output, &walk.results)?;
        Ok(walk.results)
    }
}

struct Walk<'a> {
    run: Run<'a>,
    store: Store,
    results: Results,
    clock: Clock,
}

impl Walk<'_> {
    fn begin(&mut self) -> Result<(), LabError> {
        // Retries what was missing, since it may have been installed meanwhile; not in a case that
        // is partly measured.
        let samples = std::mem::take(&mut self.results.missing);
        self.results.missing = samples
            .into_iter()
            .filter(|missing| self.results.samples.iter().any(|s| s.case == missing.case))
            .collect();
        // The time limit starts again on resume.
        self.results.warnings.retain(|warning| !matches!(warning, Warning::TimeUp { .. }));
        for warning in self.run.environment.warnings() {
            self.warn(warning)?;
        }
        for sample in &self.results.samples {
            self.clock.skip(self.run.plan, &sample.case);
        }
        Ok(())
    }

    fn warn(&mut self, warning: Warning) -> Result<(), LabError> {
        if self.results.warnings.contains(&warning) {
            return Ok(());
        }
        self.run.progress.say(&warning.text());
        self.store.append(&Line::Warning { warning: warning.clone() })?;
        self.results.warnings.push(warning);
        Ok(())
    }

    fn has(&self, case: &Case, arm: &Arm, round: u32) -> bool {
        self.results.of(&case.id, &arm.id).any(|sample| sample.round == round)
    }

    fn case(&mut self, case: &Case, executor: &mut dyn Executor) -> Result<(), LabError> {
        let plan = self.run.plan;
        let rounds = plan.rounds_of(case);
        if self.results.end_of(&case.id).is_some() || !self.has_to_do(case, 0..rounds) {
            return Ok(());
        }
        self.stop_if_interrupted()?;
        self.run.progress.say(&format!("{}: {}", case.id, case.title));
        if let Err(error) = executor.begin_case(plan, case, self.run.progress) {
            // Stops what was started; the first error is the one to report.
            let _ = executor.end_case(plan, case);
            self.clock.skip_case(plan, case);
            return self.record_missing(case, None, error);
        }
        let walked = self.rounds(case, rounds, executor);
        let ended = executor.end_case(plan, case);
        walked.and(ended)
    }

    /// Runs rounds over all cases in random order. The reports are written after each round, unless
    /// this would take more than a tenth of the run's time; every sample is already on disk.
    fn interleaved(&mut self, executor: &mut dyn Executor) -> Result<(), LabError> {
        let plan = self.run.plan;
        let most = plan.cases.iter().map(|case| plan.rounds_of(case)).max().unwrap_or(0);
        let to_do = |walk: &Self, round| {
            plan.cases.iter().any(|case| walk.has_to_do(case, round..round + 1))
        };
        let first = (0..most).find(|round| to_do(self, *round));
        let Some(first) = first else { return Ok(()) };
        let warmups = (0..plan.warmups).map(|round| (round, true));
        let (mut written_at, mut took) = (Instant::now(), Duration::ZERO);
        let mut longest = Duration::ZERO;
        for (round, warmup) in warmups.chain((first..most).map(|round| (round, false))) {
            let begin = Instant::now();
            if let Some(limit) = self.run.limit.filter(|limit| limit.is_over(longest))
                && !warmup
                && round > first
            {
                let limit_s = limit.time.as_secs_f64();
                return self.warn(Warning::TimeUp { rounds: round, of: most, limit_s });
            }
            let (kind, of) = if warmup { ("warm-up", plan.warmups) } else { ("round", most) };
            let left = self.clock.left();
            self.run.progress.say(&format!("{kind} {} of {of}{left}", round + 1));
            let done = self.all_cases(round, warmup, executor);
            if done.is_err() || written_at.elapsed() >= took * 10 {
                let begin = Instant::now();
                let written = (self.run.after_case)(self.run.output, &self.results);
                (written_at, took) = (Instant::now(), begin.elapsed());
                done.and(written)?;
            }
            longest = longest.max(begin.elapsed());
        }
        Ok(())
    }

    fn all_cases(
        &mut self,
        round: u32,
        warmup: bool,
        executor: &mut dyn Executor,
    ) -> Result<(), LabError> {
        let plan = self.run.plan;
        let mut order: Vec<&Case> = plan.cases.iter().collect();
        SplitMix64(plan.seed ^ (u64::from(round) << 8) ^ u64::from(warmup)).shuffle(&mut order);
        for case in order {
            // A warm-up is useful only if a round follows.
            let rounds = if warmup { 0..plan.rounds_of(case) } else { round..round + 1 };
            if round >= plan.rounds_of(case) || !self.has_to_do(case, rounds) {
                continue;
            }
            self.stop_if_interrupted()?;
            if let Err(error) = executor.begin_case(plan, case, self.run.progress) {
                let _ = executor.end_case(plan, case);
                self.clock.skip_case(plan, case);
                self.record_missing(case, None, error)?;
                continue;
            }
            let walked = self.round(case, round, warmup, executor);
            let ended = executor.end_case(plan, case);
            walked.and(ended)?;
        }
        Ok(())
    }

    fn has_to_do(&self, case: &Case, mut rounds: std::ops::Range<u32>) -> bool {
        rounds.any(|round| {
            round < self.run.plan.rounds_of(case)
                && self.run.plan.arms_of(case).any(|arm| {
                    self.results.missing_of(&case.id, &arm.id).is_none()
                        && !self.has(case, arm, round)
                })
        })
    }

    fn rounds(
        &mut self,
        case: &Case,
        rounds: u32,
        executor: &mut dyn Executor,
    ) -> Result<(), LabError> {
        for round in 0..self.run.plan.warmups {
            self.round(case, round, true, executor)?;
        }
        let Some(until) = case.until()? else {
            return (0..rounds).try_for_each(|round| self.round(case, round, false, executor));
        };
        self.blocks(case, rounds, until, executor)
    }

    /// Measures blocks until the intervals are narrow or the time is up.
    fn blocks(
        &mut self,
        case: &Case,
        most: u32,
        until: Until,
        executor: &mut dyn Executor,
    ) -> Result<(), LabError> {
        let begin = Instant::now();
        let mut said = begin;
        let mut width = f64::INFINITY;
        // After a look at the intervals the next one comes when there is a tenth more to see: the
        // more often one looks, the more likely chance ends the run.
        let mut next = until.least_blocks.max(1);
        let mut end = (Because::Rounds, most);
        for block in 0..most {
            if block > 0 && begin.elapsed().as_secs_f64() >= until.max_s {
                end = (Because::TimeUp, block);
                break;
            }
            self.round(case, block, false, executor)?;
            let blocks = block + 1;
            if blocks < next {
                continue;
            }
            next = (blocks + 1).max((f64::from(blocks) * LOOK_AGAIN) as u32);
            width = widest_percent(&self.results, case);
            if width <= until.percent {
                end = (Because::Narrow, blocks);
                break;
            }
            if said.elapsed() >= SAY_EVERY {
                said = Instant::now();
                let left = (until.max_s - begin.elapsed().as_secs_f64()).max(0.0);
                self.run.progress.say(&format!(
                    "{}: {blocks} blocks: the widest interval is {width:.1} %, {:.1} % are asked for, \
                     {left:.0} s left",
                    case.id, until.percent
                ));
            }
        }
        let (because, blocks) = end;
        if because != Because::Narrow {
            width = widest_percent(&self.results, case);
        }
        let took_s = begin.elapsed().as_secs_f64();
        let width_percent = width.is_finite().then_some(width);
        let end = End { case: case.id.clone(), because, blocks, width_percent, took_s };
        let shown = width_percent.map_or("no interval".to_owned(), |width| format!("{width:.1} %"));
        self.run.progress.say(&format!(
            "{}: {}: {blocks} blocks in {took_s:.0} s, widest interval {shown}",
            case.id,
            because.words()
        ));
        self.store.append(&Line::End(end.clone()))?;
        self.results.ends.push(end);
        Ok(())
    }

    fn round(
        &mut self,
        case: &Case,
        round: u32,
        warmup: bool,
        executor: &mut dyn Executor,
    ) -> Result<(), LabError> {
        let plan = self.run.plan;
        let arms: Vec<&Arm> = plan.arms_of(case).collect();
        for (place, at) in order_of(plan, case, round, warmup).into_iter().enumerate() {
            let Some(arm) = arms.get(at) else { continue };
            let done = !warmup && self.has(case, arm, round);
            if done || self.results.missing_of(&case.id, &arm.id).is_some() {
                continue;
            }
            self.stop_if_interrupted()?;
            let of = if warmup { plan.warmups } else { plan.rounds_of(case) };
            let kind = if warmup { "warm-up" } else { "round" };
            if !plan.interleaved()? && (warmup || case.until()?.is_none()) {
                self.run.progress.say(&format!(
                    "{}: {kind} {} of {of}: {}{}",
                    case.id,
                    round + 1,
                    arm.id,
                    self.clock.left()
                ));
            }
            let step = Step { plan, case, arm, round, warmup };
            self.step(&step, place as u32, executor)?;
        }
        Ok(())
    }

    fn step(
        &mut self,
        step: &Step<'_>,
        place: u32,
        executor: &mut dyn Executor,
    ) -> Result<(), LabError> {
        let load = load();
        let begin = Instant::now();
        let seen = match executor.run(step) {
            Ok(seen) => seen,
            Err(_) if self.run.interrupted.load(Ordering::Relaxed) => {
                return self.stop_if_interrupted();
            }
            Err(error) => return self.record_missing(step.case, Some(step.arm), error),
        };
        let step_s = begin.elapsed().as_secs_f64();
        if !seen.value.is_finite() || seen.extra.values().any(|value| !value.is_finite()) {
            return Err(LabError::Broken {
                what: format!("{}, {}", step.case.id, step.arm.id),
                expected: "a finite number".to_owned(),
                found: format!("{} {:?}", seen.value, seen.extra),
            });
        }
        let sample = Sample {
            case: step.case.id.clone(),
            arm: step.arm.id.clone(),
            round: step.round,
            place,
            value: seen.value,
            extra: seen.extra,
            facts: seen.facts,
            load,
            step_s,
        };
        self.clock.done(step.case.estimate_s, step_s);
        if step.warmup {
            self.store.append(&Line::Warmup(sample.clone()))?;
            self.results.warmups.push(sample);
        } else {
            self.store.append(&Line::Sample(sample.clone()))?;
            self.results.samples.push(sample);
        }
        for warning in seen.warnings {
            self.warn(warning)?;
        }
        Ok(())
    }

    /// Records a [`LabError::Missing`]; returns any other error to the caller.
    fn record_missing(
        &mut self,
        case: &Case,
        arm: Option<&Arm>,
        error: LabError,
    ) -> Result<(), LabError> {
        let LabError::Missing { what, why, remedy } = error else { return Err(error) };
        let arm = arm.map(|arm| arm.id.clone());
        let missing = Missing { case: case.id.clone(), arm, what, why, remedy };
        self.run.progress.say(&format!(
            "{}{}: missing: {}: {}; {}",
            case.id,
            missing.arm.as_ref().map(|arm| format!(", {arm}")).unwrap_or_default(),
            missing.what,
            missing.why,
            missing.remedy
        ));
        self.store.append(&Line::Missing(missing.clone()))?;
        self.results.missing.push(missing);
        Ok(())
    }

    fn stop_if_interrupted(&self) -> Result<(), LabError> {
        if self.run.interrupted.load(Ordering::Relaxed) {
            return Err(LabError::Interrupted { output: self.run.output.to_owned() });
        }
        Ok(())
    }
}
