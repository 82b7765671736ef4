//! Whether other programs use the machine. The load average cannot tell: it remembers the last
//! minute, in which the lab itself may have measured. So the CPU time of all programs is taken over
//! a moment in which the lab does nothing, less what this process used.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::error::LabError;
use crate::executor::Progress;

/// CPUs that other programs may use on a machine that is called quiet.
pub const QUIET_CPUS: f64 = 0.15;
/// Moments in a row that must be quiet.
const QUIET_MOMENTS: u32 = 5;
/// Length of a moment.
const MOMENT: Duration = Duration::from_secs(2);
/// Moments from one message to the next.
const MESSAGE_EVERY: u32 = 15;

/// Time used since the start of the system, in the kernel's ticks.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Ticks {
    /// By all programs.
    busy: u64,
    /// Busy or not, on all CPUs.
    all: u64,
    /// By this process.
    own: u64,
}

impl Ticks {
    fn now() -> Option<Ticks> {
        let stat = fs::read_to_string("/proc/stat").ok()?;
        let own = fs::read_to_string("/proc/self/stat").ok()?;
        Ticks::parse(&stat, &own)
    }

    /// From `/proc/stat` and `/proc/self/stat` (proc(5)).
    fn parse(stat: &str, own: &str) -> Option<Ticks> {
        let line = stat.lines().find(|line| line.starts_with("cpu "))?;
        let ticks: Vec<u64> =
            line.split_ascii_whitespace().skip(1).map_while(|word| word.parse().ok()).collect();
        // user, nice, system, idle, iowait, irq, softirq, steal; guest time is in user.
        let [user, nice, system, idle, wait, irq, soft, steal, ..] = ticks[..] else { return None };
        let busy = user + nice + system + irq + soft;
        // The name of the program, in parentheses, may contain blanks.
        let mut fields = own.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
        let mut next = || fields.next()?.parse::<u64>().ok();
        let (user, system) = (next()?, next()?);
        Some(Ticks { busy, all: busy + idle + wait + steal, own: user + system })
    }

    /// CPUs that other programs used between two moments, on `cpus` CPUs.
    fn others(self, before: Ticks, cpus: f64) -> Option<f64> {
        let all = self.all.checked_sub(before.all).filter(|all| *all > 0)?;
        let own = self.own.saturating_sub(before.own);
        let busy = self.busy.saturating_sub(before.busy).saturating_sub(own);
        Some(busy as f64 / all as f64 * cpus)
    }
}

/// CPUs that other programs use now, measured over this time, in which the caller does nothing.
/// None if the kernel does not tell.
pub fn others(over: Duration) -> Option<f64> {
    let before = Ticks::now()?;
    thread::sleep(over);
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let cpus = stat.lines().filter(|line| is_cpu(line)).count();
    Ticks::now()?.others(before, cpus as f64)
}

fn is_cpu(line: &str) -> bool {
    let number = line.strip_prefix("cpu").and_then(|rest| rest.split(' ').next());
    number.is_some_and(|number| number.parse::<u32>().is_ok())
}

/// Waits until other programs leave the machine alone, as long as `patience` at most.
///
/// # Errors
///
/// [`LabError::Busy`] if they do not; [`LabError::Stopped`] after a signal.
pub fn wait(
    patience: Duration,
    say: &dyn Progress,
    interrupted: &AtomicBool,
) -> Result<(), LabError> {
    let most = (patience.as_secs_f64() / MOMENT.as_secs_f64()).ceil() as u32;
    wait_for(most, &mut || others(MOMENT), say, interrupted)
}

fn wait_for(
    most: u32,
    others: &mut dyn FnMut() -> Option<f64>,
    say: &dyn Progress,
    interrupted: &AtomicBool,
) -> Result<(), LabError> {
    let mut quiet = 0;
    let mut last = 0.0;
    // A machine that is quiet from the beginning needs no patience.
    for moment in 0..most.max(QUIET_MOMENTS) {
        if interrupted.load(Ordering::Relaxed) {
            return Err(LabError::Stopped);
        }
        // Where the kernel does not tell, there is nothing to wait for.
        let Some(cpus) = others() else { return Ok(()) };
        last = cpus;
        quiet = if cpus <= QUIET_CPUS { quiet + 1 } else { 0 };
        if quiet >= QUIET_MOMENTS {
            return Ok(());
        }
        if quiet == 0 && moment % MESSAGE_EVERY == 0 {
            say.say(&format!(
                "waiting for a quiet machine: other programs use {cpus:.1} CPUs (quiet: {QUIET_CPUS})"
            ));
        }
    }
    Err(LabError::Busy { cpus: last })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::executor::Silent;

    const OWN: &str = "7 (a ) b) S 1 7 7 0 -1 4194560 100 0 0 0 30 12 0 0 20 0 1 0 5 6 7";

    #[test]
    fn the_labs_own_time_is_not_somebody_elses() {
        let stat =
            |user: u64, idle: u64| format!("cpu  {user} 0 50 {idle} 5 0 0 0 0 0\ncpu0 1 2\n");
        let before = Ticks::parse(&stat(100, 1000), OWN).unwrap();
        assert_eq!(before, Ticks { busy: 150, all: 1155, own: 42 });
        // Of 100 ticks on two CPUs 60 were busy, 50 of them the lab's.
        let after = Ticks::parse(&stat(160, 1040), OWN).unwrap();
        let own = Ticks { own: before.own + 50, ..after };
        assert!((after.others(before, 2.0).unwrap() - 1.2).abs() < 1e-9);
        assert!((own.others(before, 2.0).unwrap() - 0.2).abs() < 1e-9);
        assert!(Ticks::parse("cpu 1 2", OWN).is_none() && before.others(before, 2.0).is_none());
    }

    #[test]
    fn this_machine_tells_what_others_use() {
        let cpus = others(Duration::from_millis(100)).unwrap();
        assert!((0.0..10_000.0).contains(&cpus), "{cpus}");
    }

    /// What each call says.
    struct Heard(RefCell<Vec<String>>);

    impl Progress for Heard {
        fn say(&self, text: &str) {
            self.0.borrow_mut().push(text.to_owned());
        }
    }

    #[test]
    fn it_waits_until_the_machine_stays_quiet() {
        let go = AtomicBool::new(false);
        let loads = [1.0, 0.0, 0.0, 0.9, 0.0, 0.1, 0.0, 0.0, 0.0, 9.0];
        let mut at = 0;
        let mut next = || {
            at += 1;
            Some(loads[at - 1])
        };
        let heard = Heard(RefCell::default());
        wait_for(100, &mut next, &heard, &go).unwrap();
        assert_eq!(at, 9, "five quiet moments in a row");
        assert!(heard.0.borrow()[0].contains("other programs use 1.0 CPUs"));
    }

    #[test]
    fn it_does_not_wait_for_ever_and_a_signal_ends_it() {
        let busy = &mut || Some(1.5);
        let error = wait_for(20, busy, &Silent, &AtomicBool::new(false)).unwrap_err();
        assert!(error.to_string().contains("1.5 CPUs"), "{error}");
        let error = wait_for(20, busy, &Silent, &AtomicBool::new(true)).unwrap_err();
        assert!(matches!(error, LabError::Stopped));
        wait_for(0, &mut || Some(0.0), &Silent, &AtomicBool::new(false)).unwrap();
        wait_for(20, &mut || None, &Silent, &AtomicBool::new(false)).unwrap();
    }
}
