//! Stops a conversion between two steps, never within one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::error::ConvertError;

/// Whether a conversion goes on or stops. All its threads and a signal handler share this.
#[derive(Debug)]
pub struct Control {
    stop: Arc<AtomicBool>,
    /// Number of steps until the conversion stops by itself, so that tests can stop it anywhere.
    steps_left: AtomicU64,
}

impl Default for Control {
    fn default() -> Control {
        Control { stop: Arc::default(), steps_left: AtomicU64::new(u64::MAX) }
    }
}

impl Control {
    /// A control that stops the conversion before step number `steps`, counted from 0.
    #[must_use]
    pub fn with_steps(steps: u64) -> Control {
        Control { steps_left: AtomicU64::new(steps), ..Control::default() }
    }

    /// The flag that a signal handler sets to stop the conversion.
    #[must_use]
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// Stops the conversion before the next step.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Must be called before each step that changes something, and in long loops.
    ///
    /// # Errors
    /// [`ConvertError::Stopped`].
    pub fn step(&self) -> Result<(), ConvertError> {
        let spend = |left: u64| left.checked_sub(u64::from(left != u64::MAX));
        let spent = self.steps_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend);
        if spent.is_err() || self.stop.load(Ordering::Relaxed) {
            return Err(ConvertError::Stopped);
        }
        Ok(())
    }
}
