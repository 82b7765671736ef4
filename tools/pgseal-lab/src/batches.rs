//! Ratio of two arms that were measured by turns in many short blocks, with an interval that stays
//! honest although one block resembles the next one.
//!
//! The method is that of batch means: neighbouring blocks are put together into at least
//! [`LEAST_BATCHES`] batches of equal length; each batch gives one log-ratio; their mean has
//! Student's t interval. What lasts for a few blocks (a clock that changes, a neighbour on the
//! host) lies within a batch, so the batches are nearly independent where the blocks are not.

use crate::stats::Ratio;

/// The fewest batches of a run that has as many blocks; there are fewer than twice as many.
pub const LEAST_BATCHES: usize = 20;
/// The fewest blocks for an interval.
pub const LEAST_BLOCKS: usize = 5;

/// Ratio of `over` to `under`, which were measured in the same blocks, in the order of the blocks:
/// the geometric mean of the batches' ratios, with its 95 % interval. The interval is not a number
/// below [`LEAST_BLOCKS`] blocks.
pub fn ratio(over: &[f64], under: &[f64]) -> Ratio {
    let blocks = over.len().min(under.len());
    let batch = batch_of(blocks);
    let logs: Vec<f64> = over
        .chunks_exact(batch)
        .zip(under.chunks_exact(batch))
        .map(|(over, under)| (over.iter().sum::<f64>() / under.iter().sum::<f64>()).ln())
        .collect();
    let count = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / count;
    let value = mean.exp();
    if blocks < LEAST_BLOCKS {
        return Ratio { value, low: f64::NAN, high: f64::NAN };
    }
    let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let half = t_975(count - 1.0) * (variance / count).sqrt();
    Ratio { value, low: (mean - half).exp(), high: (mean + half).exp() }
}

/// Width of an interval in percent of the ratio; infinite without an interval.
pub fn width_percent(found: &Ratio) -> f64 {
    let width = (found.high - found.low) / found.value * 100.0;
    if width.is_finite() { width } else { f64::INFINITY }
}

/// Blocks in one batch.
fn batch_of(blocks: usize) -> usize {
    (blocks / LEAST_BATCHES).max(1)
}

/// The 97.5 % quantile of Student's t distribution: the expansion of Abramowitz and Stegun, 26.7.5.
fn t_975(freedom: f64) -> f64 {
    let z = 1.959_963_985_f64;
    let terms = [
        (z.powi(3) + z) / 4.0,
        (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0,
        (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0,
        (79.0 * z.powi(9) + 776.0 * z.powi(7) + 1482.0 * z.powi(5)
            - 1920.0 * z.powi(3)
            - 945.0 * z)
            / 92_160.0,
    ];
    terms.iter().rev().fold(0.0, |sum, term| (sum + term) / freedom) + z
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::SplitMix64;

    /// Values of a table of the distribution.
    #[test]
    fn quantiles_of_students_t() {
        for (freedom, quantile) in
            [(4.0, 2.776), (5.0, 2.571), (10.0, 2.228), (19.0, 2.093), (30.0, 2.042), (1e9, 1.960)]
        {
            assert!((t_975(freedom) - quantile).abs() < 1e-3, "{freedom}: {}", t_975(freedom));
        }
    }

    #[test]
    fn batches_have_equal_lengths_and_all_blocks_but_a_few_count() {
        assert_eq!([1, 5, 39, 40, 59, 60, 1000].map(batch_of), [1, 1, 1, 2, 2, 3, 50]);
        let under = vec![2.0; 1000];
        let over = vec![3.0; 1000];
        let found = ratio(&over, &under);
        assert!((found.value - 1.5).abs() < 1e-12 && width_percent(&found) < 1e-9, "{found:?}");
        assert!(ratio(&over[..4], &under[..4]).low.is_nan());
        assert!(width_percent(&ratio(&[], &[])).is_infinite());
    }

    /// A machine: `blocks` pairs of rates whose logs follow a common disturbance and each its own
    /// one, an autoregression with this correlation from one block to the next.
    struct Machine {
        random: SplitMix64,
        correlation: f64,
        spread: f64,
        own: [f64; 2],
        common: f64,
    }

    impl Machine {
        fn new(seed: u64, correlation: f64, spread: f64) -> Self {
            Self { random: SplitMix64(seed), correlation, spread, own: [0.0; 2], common: 0.0 }
        }

        /// Nearly normal, of variance 1: the sum of twelve even numbers.
        fn normal(&mut self) -> f64 {
            (0..12).map(|_| self.random.below(1 << 30) as f64 / f64::from(1 << 30)).sum::<f64>()
                - 6.0
        }

        fn block(&mut self, true_ratio: f64) -> (f64, f64) {
            let fresh = (1.0 - self.correlation.powi(2)).sqrt() * self.spread;
            for at in 0..2 {
                self.own[at] = self.correlation * self.own[at] + fresh * self.normal();
            }
            self.common += 0.05 * self.normal();
            let rate = |log: f64, common: f64| 1000.0 * (log + common).exp();
            (true_ratio * rate(self.own[0], self.common), rate(self.own[1], self.common))
        }
    }

    /// The share of runs whose interval holds the true ratio; each of as many blocks.
    fn covered(correlation: f64, blocks: usize, interval: fn(&[f64], &[f64]) -> Ratio) -> f64 {
        let runs = 600;
        let held = (0..runs).filter(|run| {
            let mut machine = Machine::new(*run, correlation, 0.08);
            let (over, under): (Vec<f64>, Vec<f64>) =
                (0..blocks).map(|_| machine.block(1.1)).unzip();
            let found = interval(&over, &under);
            found.low <= 1.1 && 1.1 <= found.high
        });
        held.count() as f64 / runs as f64
    }

    #[test]
    fn ninety_five_of_a_hundred_intervals_hold_the_truth() {
        for (correlation, blocks) in [(0.0, 10), (0.0, 30), (0.0, 400), (0.3, 400), (0.6, 800)] {
            let share = covered(correlation, blocks, ratio);
            assert!((0.92..=0.98).contains(&share), "{correlation} {blocks}: {share}");
        }
    }

    /// Without batches, blocks that resemble each other would give intervals that are too narrow.
    #[test]
    fn blocks_taken_one_by_one_would_promise_too_much() {
        let one_by_one = |over: &[f64], under: &[f64]| {
            let logs: Vec<f64> = over.iter().zip(under).map(|(o, u)| (o / u).ln()).collect();
            let count = logs.len() as f64;
            let mean = logs.iter().sum::<f64>() / count;
            let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (count - 1.0);
            let half = 1.96 * (variance / count).sqrt();
            Ratio { value: mean.exp(), low: (mean - half).exp(), high: (mean + half).exp() }
        };
        let share = covered(0.6, 800, one_by_one);
        assert!(share < 0.80, "{share}");
    }

    /// The same arm twice, and the run ends as soon as the interval is narrow enough, which it is
    /// asked after 20, 22, 25, ... blocks, as the runner does.
    #[test]
    fn an_end_at_a_narrow_interval_keeps_the_promise() {
        let runs = 400;
        let mut held = 0;
        for run in 0..runs {
            let mut machine = Machine::new(run + 10_000, 0.3, 0.05);
            let (mut over, mut under) = (Vec::new(), Vec::new());
            let mut next = 20;
            let found = loop {
                let (one, other) = machine.block(1.0);
                over.push(one);
                under.push(other);
                if over.len() < next {
                    continue;
                }
                next = (next + 1).max(next * 11 / 10);
                let found = ratio(&over, &under);
                if width_percent(&found) <= 2.0 || over.len() > 5000 {
                    break found;
                }
            };
            held += usize::from(found.low <= 1.0 && 1.0 <= found.high);
        }
        let share = held as f64 / runs as f64;
        assert!((0.91..=0.98).contains(&share), "{share}");
    }
}
