//! Reasons to trust figures less, in a form that reports can count and people can read.

use serde::{Deserialize, Serialize};

/// A warning. Fields called percent are out of 100, shares out of 1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Warning {
    /// Two measurements of the baseline differ by more than they do on a quiet machine.
    NoisyMachine {
        /// The case.
        case: String,
        /// Width of the A/A interval in percent of the baseline.
        floor_percent: f64,
        /// The width above which this warning is given.
        limit_percent: f64,
    },
    /// The CPU is virtual: the host decides its clock and its share of the real CPU.
    VirtualCpu {
        /// The evidence.
        evidence: String,
    },
    /// One step is too short for reliable figures.
    TooShort {
        /// The case.
        case: String,
        /// Median length of a step in seconds.
        step_s: f64,
        /// The shortest acceptable step, in seconds.
        least_s: f64,
    },
    /// Too few rounds for a reliable interval.
    TooFewRounds {
        /// Rounds measured.
        rounds: u32,
        /// The fewest acceptable rounds.
        least: u32,
    },
    /// The time limit ended the run before all rounds were done.
    TimeUp {
        /// Rounds that were done.
        rounds: u32,
        /// Rounds of the plan.
        of: u32,
        /// The time limit in seconds.
        limit_s: f64,
    },
    /// The client, not the server, limited the throughput.
    ClientBound {
        /// The case.
        case: String,
        /// The arm.
        arm: String,
        /// The client's share of the CPU time used by client and server.
        client_share: f64,
    },
    /// Other programs used the machine while the lab did nothing.
    OtherPrograms {
        /// CPUs that they used.
        cpus: f64,
        /// The number above which this warning is given.
        limit: f64,
        /// When this was measured.
        when: String,
    },
    /// The load average was high, which the lab's own work of the last minute may have been; only
    /// in results of earlier versions.
    HostLoad {
        /// Highest load average of the last minute before a step.
        load: f64,
        /// The load above which this warning is given.
        limit: f64,
        /// When this load was measured.
        when: String,
    },
    /// There is no proof whether data came from disk, the OS cache or shared_buffers.
    CacheStateUnproved {
        /// The case.
        case: String,
        /// Why this could not be proved.
        why: String,
    },
    /// A measurement was stopped at a time budget; its value is extrapolated from the measured
    /// part.
    Extrapolated {
        /// The case.
        case: String,
        /// The arm.
        arm: String,
        /// The measured share of the whole, out of 1.
        measured_share: f64,
    },
    /// Anything else.
    Note {
        /// The subject: a case, an arm, a file.
        about: String,
        /// The warning in words.
        text: String,
    },
}

impl Warning {
    /// The tag, as in the JSON.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NoisyMachine { .. } => "noisy-machine",
            Self::VirtualCpu { .. } => "virtual-cpu",
            Self::TooShort { .. } => "too-short",
            Self::TooFewRounds { .. } => "too-few-rounds",
            Self::TimeUp { .. } => "time-up",
            Self::ClientBound { .. } => "client-bound",
            Self::OtherPrograms { .. } => "other-programs",
            Self::HostLoad { .. } => "host-load",
            Self::CacheStateUnproved { .. } => "cache-state-unproved",
            Self::Extrapolated { .. } => "extrapolated",
            Self::Note { .. } => "note",
        }
    }

    /// One sentence for people, with the figures in it.
    pub fn text(&self) -> String {
        match self {
            Self::NoisyMachine { case, floor_percent, limit_percent } => format!(
                "Noisy machine: in {case} the baseline measured twice spreads over \
                 {floor_percent:.1} % (a quiet machine stays below {limit_percent:.0} %). Smaller \
                 differences cannot be told from noise."
            ),
            Self::VirtualCpu { evidence } => format!(
                "Virtual CPU ({evidence}): the host decides about its clock and its share of the \
                 real one. Ratios within a round hold; absolute figures are of this guest."
            ),
            Self::TooShort { case, step_s, least_s } => format!(
                "Too short: a step of {case} took {step_s:.3} s; below {least_s} s start-up and \
                 chance weigh too much."
            ),
            Self::TooFewRounds { rounds, least } => format!(
                "Too few rounds: {rounds}; intervals of fewer than {least} rounds are narrower than \
                 the truth."
            ),
            Self::TimeUp { rounds, of, limit_s } => format!(
                "Time is up: {rounds} of {of} rounds were taken, as another would have gone beyond \
                 {limit_s:.0} s."
            ),
            Self::ClientBound { case, arm, client_share } => format!(
                "Client-bound: in {case}, arm {arm}, {:.0} % of the CPU time was the client's; the \
                 server's cost hides behind it. Look at the CPU time per operation.",
                client_share * 100.0
            ),
            Self::OtherPrograms { cpus, limit, when } => format!(
                "Other programs used {cpus:.2} CPUs {when} (limit {limit:.2}). Stop them and measure again: \
                 --wait-quiet waits for that."
            ),
            Self::HostLoad { load, limit, when } => format!(
                "Host load: a load average of {load:.2} {when} (limit {limit:.1}), which the lab's own work \
                 of the last minute may have been."
            ),
            Self::CacheStateUnproved { case, why } => {
                format!("Cache state not proved in {case}: {why}.")
            }
            Self::Extrapolated { case, arm, measured_share } => format!(
                "Extrapolated: {arm} in {case} was stopped at its time budget after {:.1} % and \
                 calculated from that part.",
                measured_share * 100.0
            ),
            Self::Note { about, text } => format!("{about}: {text}"),
        }
    }
}
