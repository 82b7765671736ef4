//! Waiting for a condition.

use std::thread::sleep;
use std::time::Duration;

/// How long to wait for a condition. The limit is a number of checks, not a time: if the machine is
/// suspended for a while, the wait does not end early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    looks: u64,
    pause: Duration,
}

impl Patience {
    /// Checks every 20 ms, as often as this takes to fill this many seconds.
    pub const fn seconds(seconds: u64) -> Self {
        Self::every(Duration::from_millis(20), seconds)
    }

    /// Checks every `pause`, as often as this takes to fill this many seconds; at least once.
    pub const fn every(pause: Duration, seconds: u64) -> Self {
        let pause_ms = if pause.as_millis() == 0 { 1 } else { pause.as_millis() as u64 };
        Self { looks: seconds * 1000 / pause_ms + 1, pause }
    }

    /// Calls `ask` until it returns a value; `None`: it returned none in time.
    pub fn wait_for<T>(self, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
        for look in 0..self.looks {
            if look > 0 {
                sleep(self.pause);
            }
            let answer = ask();
            if answer.is_some() {
                return answer;
            }
        }
        None
    }

    /// Waits until a condition holds; `false`: it did not hold in time.
    pub fn wait_until(self, mut holds: impl FnMut() -> bool) -> bool {
        self.wait_for(|| holds().then_some(())).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_counted_and_the_last_answer_counts() {
        let three = Patience { looks: 3, pause: Duration::ZERO };
        let mut looks = 0;
        let at_third = three.wait_for(|| {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(at_third, Some(3));
        let mut looks = 0;
        assert!(!three.wait_until(|| {
            looks += 1;
            looks > 3
        }));
        assert_eq!(looks, 3);
        assert_eq!(Patience::seconds(1).looks, 51);
        assert!(Patience::seconds(0).wait_until(|| true));
    }
}
