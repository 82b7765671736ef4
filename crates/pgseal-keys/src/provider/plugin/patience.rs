//! How long a key store is waited for.

use std::env;
use std::thread;
use std::time::{Duration, Instant};

use crate::error::KeyError;
use crate::{notify, wrap};

/// The environment variable that says how long to wait for a key store, in seconds.
pub const PROVIDER_WAIT: &str = "PGSEAL_PROVIDER_WAIT";

/// The longest that one run of a plugin may take.
const ATTEMPT: Duration = Duration::from_secs(15);
const DEFAULT_TOTAL_S: u64 = 30;
const MAX_TOTAL_S: u64 = 86_400;
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// By how much systemd is asked to extend the time for the start: for one run of the plugin of each
/// of 17 sources, and a pause.
const EXTENSION: Duration = Duration::from_secs(300);

/// How long one run of a plugin may take, and how long a store that cannot be reached is asked
/// again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    attempt: Duration,
    total: Duration,
}

impl Patience {
    /// Given limits.
    #[must_use]
    pub fn new(attempt: Duration, total: Duration) -> Patience {
        Patience { attempt, total }
    }

    /// 15 s for each run; in all what [`PROVIDER_WAIT`] says, 30 s by default.
    ///
    /// # Errors
    /// [`KeyError::StoreConfiguration`] if the variable is not a number of seconds up to a day.
    pub fn from_environment() -> Result<Patience, KeyError> {
        let Some(text) = env::var_os(PROVIDER_WAIT).filter(|text| !text.is_empty()) else {
            return Ok(Patience::new(ATTEMPT, Duration::from_secs(DEFAULT_TOTAL_S)));
        };
        let seconds = text.to_str().and_then(|text| text.parse::<u64>().ok());
        match seconds.filter(|seconds| *seconds <= MAX_TOTAL_S) {
            Some(seconds) => Ok(Patience::new(ATTEMPT, Duration::from_secs(seconds))),
            None => Err(KeyError::StoreConfiguration {
                provider: PROVIDER_WAIT.to_owned(),
                what: format!("it is not a number of seconds from 0 to {MAX_TOTAL_S}"),
            }),
        }
    }

    /// As long for each run, but only one.
    #[must_use]
    pub fn once(self) -> Patience {
        Patience { total: Duration::ZERO, ..self }
    }

    pub(super) fn attempt(self) -> Duration {
        self.attempt
    }

    /// Calls `ask` until it gives another result than [`KeyError::StoreDown`], or the time is over.
    /// The pauses double, up to 10 s, and vary, so that many servers that start together do not ask
    /// together. Says on standard error that the store is waited for, and that it answers again,
    /// and to systemd, before each pause, why the service is not ready.
    pub(crate) fn repeat<T>(
        self,
        shown: &str,
        mut ask: impl FnMut() -> Result<T, KeyError>,
    ) -> Result<T, KeyError> {
        let deadline = Instant::now() + self.total;
        let mut pause = FIRST_PAUSE;
        let mut is_first = true;
        loop {
            let result = ask();
            let Err(KeyError::StoreDown { what, .. }) = &result else {
                if !is_first {
                    eprintln!("pgseal: {shown}: the store answers");
                    notify::no_longer_waiting();
                }
                return result;
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return result;
            }
            let why = format!(
                "waiting for the key store of {shown}: {what}; for {} s more at most",
                left.as_secs_f32().ceil()
            );
            notify::waiting(&why, EXTENSION);
            if is_first {
                eprintln!(
                    "pgseal: {shown}: {what}; trying again for {} s",
                    left.as_secs_f32().ceil()
                );
                is_first = false;
            }
            let mut random = [0; 1];
            wrap::random(&mut random)?;
            let share = 0.5 + f64::from(random[0]) / 512.0;
            thread::sleep(pause.mul_f64(share).min(left));
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}
