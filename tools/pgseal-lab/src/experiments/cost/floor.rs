//! What the bare cipher alone costs, measured between the slices: the least that sealing can cost.

use rustix::time::{ClockId, clock_gettime};

use super::load::pin;
use crate::error::LabError;
use crate::experiments::modes::algorithm::{Algorithm, Direction};
use crate::experiments::modes::awslc;

/// Bytes of a page of PostgreSQL.
pub const PAGE_BYTES: f64 = 8192.0;
/// Processor time of one measurement, in seconds: other programs do not count.
const TIME_S: f64 = 0.004;
/// Pages from one look at the clock to the next.
const PAGES: u64 = 16;

/// Seconds of processor time that AWS-LC takes to open one page under a suite, on these CPUs; none: AWS-LC has no such
/// cipher of its own.
///
/// # Errors
/// When the measuring thread cannot be pinned.
pub fn seconds_per_page(suite: &str, cpus: &[usize]) -> Result<Option<f64>, LabError> {
    let named = |one: &Algorithm| one.title().eq_ignore_ascii_case(suite);
    let Some(algorithm) = Algorithm::all().into_iter().find(named) else { return Ok(None) };
    let measured = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            pin(cpus)?;
            Ok(measure(algorithm))
        });
        thread.join().unwrap_or(Ok(None))
    });
    measured.map_err(LabError::io(std::path::Path::new("a thread"), "pin it to its CPUs"))
}

fn measure(algorithm: Algorithm) -> Option<f64> {
    let mut work = awslc::cipher(algorithm, Direction::Decrypt, PAGE_BYTES as usize).ok()?;
    // The first pages warm the tables and the buffers.
    work.repeat(PAGES).ok()?;
    let (begin, mut pages) = (used_s(), 0);
    loop {
        work.repeat(PAGES).ok()?;
        pages += PAGES;
        let used = used_s() - begin;
        if used >= TIME_S {
            return Some(used / pages as f64);
        }
    }
}

/// Processor time of this thread.
fn used_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_has_a_floor_and_a_name_that_is_none_has_none() {
        let gcm = seconds_per_page("aes-256-gcm", &[]).unwrap().unwrap();
        assert!((1e-8..1e-2).contains(&gcm), "{gcm}");
        assert_eq!(seconds_per_page("gocryptfs", &[]).unwrap(), None);
    }
}
