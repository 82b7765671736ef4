//! Takes the samples.

use std::collections::BTreeMap;

use super::algorithm::Direction;
use super::arm::{Cpu, Way};
use super::child::{Worker, on_off};
use super::plan::{CaseWork, PAGE_BYTES, figure};
use super::protocol::{KeyKind, Measured, Reply, Request, Task, WorkKind};
use super::work::sha256_hex;
use crate::context::Context;
use crate::error::LabError;
use crate::executor::{Executor, Observation, Progress, Step};
use crate::plan::{Case, Plan};
use crate::stats::{SplitMix64, median};

/// The executor of this experiment.
pub struct Bursts {
    context: Context,
    sizes: Vec<usize>,
    burst_s: f64,
    key_burst_s: f64,
    cpu_flags: Vec<String>,
    /// One process per set of instructions, and one more for the A/A arm; restarted each round.
    workers: BTreeMap<(Cpu, bool), Worker>,
    round: Option<(u32, bool)>,
    keys: BTreeMap<KeyKind, String>,
    /// The hash of the output for each algorithm, direction and size: the same in every arm.
    outcomes: BTreeMap<String, (String, String)>,
}

impl Bursts {
    /// The executor for a plan of this experiment.
    ///
    /// # Errors
    ///
    /// [`LabError::Usage`] for a plan of another experiment.
    pub fn new(plan: &Plan, context: &Context) -> Result<Bursts, LabError> {
        Ok(Bursts {
            context: context.clone(),
            sizes: plan.required("sizes")?,
            burst_s: plan.required("burst_s")?,
            key_burst_s: plan.required("key_burst_s")?,
            cpu_flags: plan.required("cpu_flags")?,
            workers: BTreeMap::new(),
            round: None,
            keys: BTreeMap::new(),
            outcomes: BTreeMap::new(),
        })
    }

    fn worker(&mut self, cpu: Cpu, again: bool) -> Result<&mut Worker, LabError> {
        use std::collections::btree_map::Entry;
        match self.workers.entry((cpu, again)) {
            Entry::Occupied(running) => Ok(running.into_mut()),
            Entry::Vacant(place) => {
                Ok(place.insert(Worker::start(&self.context, cpu, &self.cpu_flags)?))
            }
        }
    }

    /// Fails if the set disables instructions that the CPU does not have.
    fn check_cpu(&self, cpu: Cpu) -> Result<(), LabError> {
        let has = |flag: &str| self.cpu_flags.iter().any(|known| known == flag);
        let flag = match cpu {
            Cpu::All => return Ok(()),
            Cpu::NoVaes => "vaes",
            Cpu::NoAes => "aes",
        };
        if has(flag) {
            return Ok(());
        }
        Err(LabError::missing(
            cpu.title(),
            format!("this CPU has no {flag} to take away, or is no x86"),
            "the arm with all instructions is the same",
        ))
    }

    fn burst(
        &mut self,
        cpu: Cpu,
        again: bool,
        what: &str,
        work: WorkKind,
        burst_s: f64,
    ) -> Result<Measured, LabError> {
        let worker = self.worker(cpu, again)?;
        match worker.ask(&Request::Measure(Task { work, burst_s }))? {
            Reply::Measured(measured) => Ok(measured),
            Reply::Missing { why, remedy } => Err(LabError::missing(what, why, remedy)),
            other => Err(worker.unexpected(&other)),
        }
    }

    fn key(&mut self, kind: KeyKind) -> Result<String, LabError> {
        if let Some(key) = self.keys.get(&kind) {
            return Ok(key.clone());
        }
        let worker = self.worker(Cpu::All, false)?;
        match worker.ask(&Request::MakeKey(kind))? {
            Reply::Key(key) => {
                self.keys.insert(kind, key.clone());
                Ok(key)
            }
            Reply::Missing { why, remedy } => Err(LabError::missing(kind.id(), why, remedy)),
            // Newer versions refuse keys as short as the study's keys.
            Reply::Failed(why) => {
                Err(LabError::missing(kind.id(), why, "none: the library refuses such keys"))
            }
            other => Err(worker.unexpected(&other)),
        }
    }

    /// Checks that the output equals that of every other arm.
    fn compare(&mut self, what: &str, arm: &str, outcome: Option<&str>) -> Result<(), LabError> {
        let Some(outcome) = outcome else { return Ok(()) };
        match self.outcomes.get(what) {
            Some((first, theirs)) if theirs != outcome => Err(LabError::Broken {
                what: format!("{what}: output of {arm}"),
                expected: format!("{theirs}, that of {first}"),
                found: outcome.to_owned(),
            }),
            Some(_) => Ok(()),
            None => {
                self.outcomes.insert(what.to_owned(), (arm.to_owned(), outcome.to_owned()));
                Ok(())
            }
        }
    }

    /// All sizes and directions of a case, in random order.
    fn sweep(
        &mut self,
        step: &Step<'_>,
        cpu: Cpu,
        directions: &[Direction],
        work: impl Fn(Direction, usize) -> WorkKind,
    ) -> Result<Observation, LabError> {
        let mut bursts: Vec<(Direction, usize)> = directions
            .iter()
            .flat_map(|direction| self.sizes.iter().map(|size| (*direction, *size)))
            .collect();
        SplitMix64(step.plan.seed ^ u64::from(step.round) << 20 ^ step.case.id.len() as u64)
            .shuffle(&mut bursts);
        let mut seen = Observation::default();
        let (mut clocks, mut outcomes) = (Vec::new(), Vec::new());
        let mut spread = 1.0_f64;
        for (direction, size) in bursts {
            let kind = work(direction, size);
            let measured = self.burst(cpu, step.arm.again, &step.case.title, kind, self.burst_s)?;
            let what = format!("{} {direction} {size}", step.case.id);
            self.compare(&what, &step.arm.id, measured.outcome.as_deref())?;
            let rate = measured.per_second * size as f64;
            if direction == Direction::Encrypt && size == PAGE_BYTES {
                seen.value = rate;
            }
            spread = spread.max(measured.spread);
            clocks.extend(measured.cycles.map(|cycles| cycles * measured.per_second));
            seen.extra.insert(figure(direction, size), rate);
            outcomes.push((what, measured.outcome.unwrap_or_default()));
            if let Some(provider) = measured.provider {
                seen.facts.insert("provider".to_owned(), provider);
            }
        }
        outcomes.sort();
        let all: Vec<&[u8]> = outcomes.iter().map(|(_, hash)| hash.as_bytes()).collect();
        let hash = sha256_hex(&all);
        seen.facts
            .insert("output_sha256".to_owned(), hash.get(..16).unwrap_or_default().to_owned());
        if !clocks.is_empty() {
            seen.extra.insert("core_hz".to_owned(), median(&clocks));
        }
        seen.extra.insert("burst_spread".to_owned(), spread);
        Ok(seen)
    }

    fn signatures(
        &mut self,
        step: &Step<'_>,
        kind: KeyKind,
        verify: bool,
    ) -> Result<Observation, LabError> {
        let key = self.key(kind)?;
        let work = WorkKind::Signature { key, kind, verify };
        let measured =
            self.burst(Cpu::All, step.arm.again, &step.case.title, work, self.key_burst_s)?;
        let mut seen = Observation::of(measured.per_second);
        seen.extra.insert("burst_spread".to_owned(), measured.spread);
        if let Some(cycles) = measured.cycles {
            seen.extra.insert("cycles".to_owned(), cycles);
        }
        Ok(seen)
    }
}

impl Executor for Bursts {
    fn begin_case(&mut self, _: &Plan, _: &Case, _: &dyn Progress) -> Result<(), LabError> {
        Ok(())
    }

    fn run(&mut self, step: &Step<'_>) -> Result<Observation, LabError> {
        let cpu: Cpu = step.arm.required("cpu")?;
        let way: Way = step.arm.required("way")?;
        let work: CaseWork = step.case.required("work")?;
        self.check_cpu(cpu)?;
        if self.round != Some((step.round, step.warmup)) {
            self.workers.clear();
            self.round = Some((step.round, step.warmup));
        }
        let mut seen = match work {
            CaseWork::Cipher(algorithm) => {
                self.sweep(step, cpu, &Direction::ALL, |direction, bytes| WorkKind::Cipher {
                    algorithm: algorithm.clone(),
                    direction,
                    bytes,
                    way,
                })
            }
            CaseWork::Table(name) => self.sweep(step, cpu, &[Direction::Encrypt], |_, bytes| {
                WorkKind::Table { algorithm: name.clone(), bytes }
            }),
            CaseWork::Signature { kind, verify } => self.signatures(step, kind, verify),
        }?;
        let about = &self.worker(cpu, step.arm.again)?.about;
        let mut fact = |name: &str, value: String| seen.facts.insert(name.to_owned(), value);
        if way == Way::AwsLc {
            fact("library", about.aws_lc.clone());
            fact("aes_instructions", on_off(about.aws_lc_aes).to_owned());
        } else {
            fact("library", about.openssl.clone().unwrap_or_default());
            let shown = |known: Option<bool>| known.map_or("unknown", on_off).to_owned();
            fact("aes_instructions", shown(about.openssl_aes));
            fact("vaes", shown(about.openssl_vaes));
        }
        fact("core", about.core.to_string());
        fact("cycles_from", about.cycles.id().to_owned());
        Ok(seen)
    }

    fn end_case(&mut self, _: &Plan, _: &Case) -> Result<(), LabError> {
        Ok(())
    }
}
