//! Medians, ratios of medians, and their confidence intervals.

use serde::{Deserialize, Serialize};

/// Resamples of a bootstrap; enough for two digits of a 95 % interval.
const RESAMPLES: usize = 5000;
/// More values than this are not resampled for the interval of their median.
const MANY: usize = 200;

/// The middle value, or the mean of the two middle values; NaN for an empty slice.
pub fn median(values: &[f64]) -> f64 {
    median_of(&mut values.to_vec())
}

/// [`median`] in place, without a copy: resampling calls this millions of times.
fn median_of(sorted: &mut [f64]) -> f64 {
    sorted.sort_unstable_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match (sorted.get(half), sorted.len() % 2) {
        (None, _) => f64::NAN,
        (Some(middle), 1) => *middle,
        (Some(upper), _) => sorted.get(half.wrapping_sub(1)).map_or(*upper, |l| (l + upper) / 2.0),
    }
}

/// A ratio with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Median of one arm over the median of the other.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// Ratio of the medians of `over` and `under`, which were measured in the same rounds. The interval
/// is a percentile bootstrap over whole rounds, so that a disturbance of both arms in a round
/// affects both. The same samples always give the same interval.
pub fn ratio(over: &[f64], under: &[f64]) -> Ratio {
    let rounds = over.len().min(under.len());
    let value = median(over) / median(under);
    if rounds < 2 {
        return Ratio { value, low: f64::NAN, high: f64::NAN };
    }
    interval(value, |random| {
        let picks = picks(random, rounds);
        resampled(over, &picks) / resampled(under, &picks)
    })
}

/// Ratio of the medians of two runs without common rounds: each run is resampled separately.
pub fn ratio_of_runs(over: &[f64], under: &[f64]) -> Ratio {
    let value = median(over) / median(under);
    if over.len() < 2 || under.len() < 2 {
        return Ratio { value, low: f64::NAN, high: f64::NAN };
    }
    interval(value, |random| {
        let above = resampled(over, &picks(random, over.len()));
        above / resampled(under, &picks(random, under.len()))
    })
}

/// `median(a) / median(b) / (median(c) / median(d))` of two runs, with `over` = (a, b) of one run
/// and `under` = (c, d) of the other. The rounds of a and b are resampled together, and so are
/// those of c and d.
pub fn ratio_of_ratios(over: (&[f64], &[f64]), under: (&[f64], &[f64])) -> Ratio {
    let first = over.0.len().min(over.1.len());
    let second = under.0.len().min(under.1.len());
    let value = median(over.0) / median(over.1) / (median(under.0) / median(under.1));
    if first < 2 || second < 2 {
        return Ratio { value, low: f64::NAN, high: f64::NAN };
    }
    interval(value, |random| {
        let a = picks(random, first);
        let b = picks(random, second);
        resampled(over.0, &a)
            / resampled(over.1, &a)
            / (resampled(under.0, &b) / resampled(under.1, &b))
    })
}

fn picks(random: &mut SplitMix64, count: usize) -> Vec<usize> {
    (0..count).map(|_| random.below(count)).collect()
}

fn resampled(values: &[f64], picks: &[usize]) -> f64 {
    let mut picked: Vec<f64> = picks.iter().filter_map(|at| values.get(*at).copied()).collect();
    median_of(&mut picked)
}

fn interval(value: f64, mut once: impl FnMut(&mut SplitMix64) -> f64) -> Ratio {
    let mut random = SplitMix64(0x9E37_79B9_7F4A_7C15);
    let mut found: Vec<f64> = (0..RESAMPLES).map(|_| once(&mut random)).collect();
    found.sort_by(f64::total_cmp);
    Ratio { value, low: percentile(&found, 0.025), high: percentile(&found, 0.975) }
}

/// 95 % percentile bootstrap interval of the median; NaN for fewer than two values. The same values
/// always give the same interval.
pub fn median_interval(values: &[f64]) -> (f64, f64) {
    if values.len() < 2 {
        return (f64::NAN, f64::NAN);
    }
    if values.len() > MANY {
        // As good, and at once: the binomial interval of the ranks (Conover 1999, 3.2).
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let away = 0.98 / (sorted.len() as f64).sqrt();
        return (percentile(&sorted, 0.5 - away), percentile(&sorted, 0.5 + away));
    }
    let found = interval(f64::NAN, |random| resampled(values, &picks(random, values.len())));
    (found.low, found.high)
}

fn percentile(sorted: &[f64], share: f64) -> f64 {
    let index = (share * sorted.len().saturating_sub(1) as f64).round() as usize;
    sorted.get(index).copied().unwrap_or(f64::NAN)
}

/// SplitMix64 (Steele, Lea, Flood 2014), for the order of arms and for resamples; not for secrets.
#[derive(Debug, Clone)]
pub struct SplitMix64(pub u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// Shuffles the items.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert!(median(&[]).is_nan());
        assert_eq!(median(&[3.0]), 3.0);
        assert_eq!(median(&[9.0, 1.0, 5.0]), 5.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 100.0]), 3.0);
    }

    #[test]
    fn a_difference_in_every_round_is_outside_the_interval_of_no_difference() {
        let plain: Vec<f64> = (0..15).map(|i| 100.0 + f64::from(i % 5)).collect();
        let slower: Vec<f64> = plain.iter().map(|v| v * 1.2).collect();
        let found = ratio(&slower, &plain);
        assert!((found.value - 1.2).abs() < 1e-9);
        assert!(found.low > 1.1 && found.low <= found.value && found.value <= found.high);
        let same = ratio(&plain, &plain);
        assert_eq!((same.low, same.value, same.high), (1.0, 1.0, 1.0));
    }

    #[test]
    fn noise_in_one_arm_widens_the_interval() {
        let plain = [100.0; 9];
        let noisy = [80.0, 120.0, 90.0, 115.0, 100.0, 85.0, 110.0, 95.0, 130.0];
        let found = ratio(&noisy, &plain);
        assert!(found.low < 0.95 && found.high > 1.05, "{found:?}");
    }

    /// 9 values: the bounds of the exact interval of the median are its 2nd and 8th value
    /// (binomial, 96.1 %); the bootstrap must not leave them.
    #[test]
    fn the_interval_of_a_median_lies_within_the_exact_one() {
        let values = [3.0, 1.0, 4.0, 1.5, 5.0, 9.0, 2.0, 6.0, 5.5];
        let (low, high) = median_interval(&values);
        assert!((1.5..=4.0).contains(&low) && (4.0..=6.0).contains(&high), "{low} {high}");
        assert!(low < 4.0 && high > 4.0);
        assert!(median_interval(&[1.0]).0.is_nan());
    }

    #[test]
    fn the_interval_of_a_median_of_many_values_comes_from_their_ranks() {
        let values: Vec<f64> = (0..400).map(|at| f64::from((at * 7) % 400)).collect();
        let (low, high) = median_interval(&values);
        assert!((low - 180.0).abs() <= 2.0 && (high - 219.0).abs() <= 2.0, "{low} {high}");
    }

    #[test]
    fn a_machine_that_is_twice_as_fast_changes_the_times_and_not_their_ratio() {
        let plain = [10.0, 10.1, 9.9, 10.2, 9.8, 10.0, 10.1];
        let sealed = plain.map(|value| value * 1.1);
        let half = |values: [f64; 7]| values.map(|value| value / 2.0);
        let times = ratio_of_runs(&half(sealed), &sealed);
        assert!((times.value - 0.5).abs() < 1e-9 && times.high < 0.53);
        let cost = ratio_of_ratios((&half(sealed), &half(plain)), (&sealed, &plain));
        assert!((cost.value - 1.0).abs() < 1e-9, "{cost:?}");
        assert!(cost.low <= 1.0 && cost.high >= 1.0);
        assert!(ratio_of_runs(&[1.0], &plain).low.is_nan());
    }

    #[test]
    fn every_order_comes_up() {
        let mut random = SplitMix64(1);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..200 {
            let mut items = [0, 1, 2];
            random.shuffle(&mut items);
            seen.insert(items);
        }
        assert_eq!(seen.len(), 6);
    }
}
