//! The CPU's counters of a server's processes in user mode, where machine and kernel have them.

use perf_event::events::{Event, Hardware};
use perf_event::{Builder, Counter};

/// The figures, and what counts each.
pub const FIGURES: [(&str, &str); 3] = [
    ("cycles_per_op", "cycles"),
    ("instructions_per_op", "instructions"),
    ("cache_misses_per_op", "cache misses"),
];

/// Counters of all processes of a server, also of those that it forks later.
#[derive(Debug)]
pub struct Counters(Vec<Vec<Counter>>);

impl Counters {
    /// Opens those of [`FIGURES`]; none: this machine has none, or the kernel does not let us.
    pub fn open(pids: &[u32]) -> Option<Self> {
        let events = [Hardware::CPU_CYCLES, Hardware::INSTRUCTIONS, Hardware::CACHE_MISSES];
        Self::of(pids, &events.map(Event::Hardware))
    }

    fn of(pids: &[u32], events: &[Event]) -> Option<Self> {
        let one = |pid: &u32, event: &Event| {
            let mut builder = Builder::new().observe_pid(i32::try_from(*pid).ok()?).any_cpu();
            builder.inherit(true);
            let mut counter = builder.kind(event.clone()).build().ok()?;
            counter.enable().ok()?;
            Some(counter)
        };
        let all = |event| pids.iter().map(|pid| one(pid, event)).collect::<Option<Vec<_>>>();
        events.iter().map(all).collect::<Option<Vec<_>>>().map(Self)
    }

    /// What each has counted so far, over all processes.
    pub fn read(&mut self) -> Option<Vec<u64>> {
        let sum = |all: &mut Vec<Counter>| all.iter_mut().map(|one| one.read().ok()).sum();
        self.0.iter_mut().map(sum).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use perf_event::events::Software;

    use super::*;

    /// The time of a process is a counter that every machine has; the kernel may still refuse.
    #[test]
    fn what_a_process_does_is_counted_if_the_kernel_lets_us() {
        let clock = Event::Software(Software::TASK_CLOCK);
        let allowed = Builder::new().kind(clock.clone()).build().is_ok();
        // A process that forks one that works, as a server does.
        let mut shell = Command::new("sh")
            .args(["-c", "read go; (i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done)"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let counters = Counters::of(&[shell.id()], &[clock]);
        assert_eq!(counters.is_some(), allowed);
        writeln!(shell.stdin.take().unwrap(), "go").unwrap();
        shell.wait().unwrap();
        // The loop takes more than a millisecond on any machine.
        assert!(counters.is_none_or(|mut all| all.read().unwrap()[0] > 1_000_000));
    }
}
