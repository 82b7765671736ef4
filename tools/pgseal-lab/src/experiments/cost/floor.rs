//! What the bare cipher alone costs, measured between the slices: the least that sealing can cost.

use pgseal_crypto::{open_aegis, seal_aegis};
use rustix::time::{ClockId, clock_gettime};

use super::load::pin;
use crate::error::LabError;
use crate::experiments::modes::algorithm::{Algorithm, Direction};
use crate::experiments::modes::awslc;

/// The suite whose cipher is not AWS-LC's.
const AEGIS: &str = "aegis-256x2";
/// Bytes of a page of PostgreSQL.
pub const PAGE_BYTES: f64 = 8192.0;
/// Processor time of one measurement, in seconds: other programs do not count.
const TIME_S: f64 = 0.004;
/// Pages from one look at the clock to the next.
const PAGES: u64 = 16;

/// Seconds of processor time that the cipher takes to open one page under a suite, on these CPUs:
/// AWS-LC's, or libaegis's; none: they have no such cipher of their own.
///
/// # Errors
/// When the measuring thread cannot be pinned.
pub fn seconds_per_page(suite: &str, cpus: &[usize]) -> Result<Option<f64>, LabError> {
    let named = |one: &Algorithm| one.title().eq_ignore_ascii_case(suite);
    let algorithm = Algorithm::all().into_iter().find(named);
    if algorithm.is_none() && suite != AEGIS {
        return Ok(None);
    }
    let measured = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            pin(cpus)?;
            Ok(match algorithm {
                Some(algorithm) => of_awslc(algorithm),
                None => of_libaegis(),
            })
        });
        thread.join().unwrap_or(Ok(None))
    });
    measured.map_err(LabError::io(std::path::Path::new("a thread"), "pin it to its CPUs"))
}

fn of_awslc(algorithm: Algorithm) -> Option<f64> {
    let mut work = awslc::cipher(algorithm, Direction::Decrypt, PAGE_BYTES as usize).ok()?;
    measure(|| work.repeat(PAGES).ok())
}

/// A page is opened in place, so each look at the clock has as many sealed pages of its own.
fn of_libaegis() -> Option<f64> {
    let (key, nonce, aad) = ([7; 32], [9; 32], [3; 32]);
    let mut sealed = vec![0; PAGE_BYTES as usize];
    let tag = seal_aegis(&key, &nonce, &aad, &vec![5; sealed.len()], &mut sealed).ok()?;
    let mut pages = sealed.repeat(PAGES as usize);
    let (mut used, mut opened) = (0.0, 0);
    while used < TIME_S {
        pages.chunks_mut(sealed.len()).for_each(|page| page.copy_from_slice(&sealed));
        let begin = used_s();
        for page in pages.chunks_mut(sealed.len()) {
            open_aegis(&key, &nonce, &aad, &tag, page).ok()?;
        }
        used += used_s() - begin;
        opened += PAGES;
    }
    Some(used / opened as f64)
}

/// Processor time of a page, of work that handles [`PAGES`] of them.
fn measure(mut work: impl FnMut() -> Option<()>) -> Option<f64> {
    // The first pages warm the tables and the buffers.
    work()?;
    let (begin, mut pages) = (used_s(), 0);
    loop {
        work()?;
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
        let aegis = seconds_per_page("aegis-256x2", &[]).unwrap().unwrap();
        assert!((1e-8..1e-2).contains(&aegis), "{aegis}");
        assert_eq!(seconds_per_page("gocryptfs", &[]).unwrap(), None);
    }
}
