//! Counts core cycles: with the CPU's own counter if the kernel allows it, else from the core's
//! frequency, measured with a chain of dependent one-cycle instructions.
//!
//! The time-stamp counter does not help: on current CPUs it ticks at a fixed rate, independent of
//! the core's frequency.

#![allow(unsafe_code)]

use std::time::Instant;

use perf_event::events::Hardware;
use perf_event::{Builder, Counter};

use super::protocol::CycleSource;

/// Instructions in one iteration of the chain.
const CHAIN: u64 = 64;
/// Iterations of one run: about 50 us at 3 GHz.
const TURNS: u64 = 2400;

/// The source of cycle counts on this machine.
#[derive(Debug)]
pub struct Cycles {
    counter: Option<Counter>,
}

impl Default for Cycles {
    fn default() -> Self {
        Self::new()
    }
}

impl Cycles {
    /// Opens the CPU's cycle counter for user mode, if machine and kernel allow it.
    pub fn new() -> Cycles {
        let opened = Builder::new().kind(Hardware::CPU_CYCLES).build();
        // Some virtual machines provide a counter that never counts.
        let works = |mut counter: Counter| {
            counter.enable().ok()?;
            chain(1);
            (counter.read().ok()? > CHAIN / 2).then_some(counter)
        };
        Cycles { counter: opened.ok().and_then(works) }
    }

    /// The source in use.
    pub fn source(&self) -> CycleSource {
        match (&self.counter, cfg!(any(target_arch = "x86_64", target_arch = "aarch64"))) {
            (Some(_), _) => CycleSource::Counter,
            (None, true) => CycleSource::DependentChain,
            (None, false) => CycleSource::None,
        }
    }

    /// Starts to count, if there is a counter.
    pub fn start(&mut self) {
        if let Some(counter) = &mut self.counter
            && counter.reset().is_err()
        {
            self.counter = None;
        }
    }

    /// Cycles since [`Cycles::start`], if there is a counter.
    pub fn stop(&mut self) -> Option<u64> {
        self.counter.as_mut()?.read().ok()
    }

    /// The core's frequency now, in Hz: the fastest of several short runs, so that an interrupted
    /// run does not count.
    pub fn core_hz(&self) -> Option<f64> {
        if self.source() == CycleSource::None {
            return None;
        }
        let run = || {
            let begin = Instant::now();
            chain(TURNS);
            (CHAIN * TURNS) as f64 / begin.elapsed().as_secs_f64()
        };
        (0..3).map(|_| run()).max_by(f64::total_cmp)
    }
}

/// Runs `turns` times 64 dependent exclusive-or instructions. Some CPUs eliminate register moves
/// and additions of constants before execution, but not an exclusive-or with a register.
#[cfg(target_arch = "x86_64")]
fn chain(turns: u64) {
    if turns == 0 {
        return;
    }
    // SAFETY: registers only, no memory, no stack; the loop ends as `turns` is above 0.
    unsafe {
        core::arch::asm!(
            "2:",
            ".rept 64",
            "xor {value}, {mask}",
            ".endr",
            "dec {turns}",
            "jnz 2b",
            value = inout(reg) 1_u64 => _,
            mask = in(reg) 0x5555_5555_5555_5555_u64,
            turns = inout(reg) turns => _,
            options(nomem, nostack),
        );
    }
}

/// The same chain as on x86-64.
#[cfg(target_arch = "aarch64")]
fn chain(turns: u64) {
    if turns == 0 {
        return;
    }
    // SAFETY: registers only, no memory, no stack; the loop ends as `turns` is above 0.
    unsafe {
        core::arch::asm!(
            "2:",
            ".rept 64",
            "eor {value}, {value}, {mask}",
            ".endr",
            "subs {turns}, {turns}, #1",
            "b.ne 2b",
            value = inout(reg) 1_u64 => _,
            mask = in(reg) 0x5555_5555_5555_5555_u64,
            turns = inout(reg) turns => _,
            options(nomem, nostack),
        );
    }
}

/// Does nothing on other CPUs.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn chain(_turns: u64) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_core_has_a_frequency() {
        let cycles = Cycles::new();
        if cycles.source() == CycleSource::None {
            return;
        }
        let hz = cycles.core_hz().unwrap();
        // The range is wide enough for any machine under any load. The test fails if the CPU does
        // not execute the instructions one after the other.
        assert!((1e7..1e10).contains(&hz), "{hz}");
    }
}
