//! Maps values to positions on an axis.

/// An axis from `low` at `start` to `high` at `end`, in pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    /// Whether the axis is logarithmic.
    pub log: bool,
    /// Smallest value.
    pub low: f64,
    /// Largest value.
    pub high: f64,
    /// Position of the smallest value.
    pub start: f64,
    /// Position of the largest value.
    pub end: f64,
}

impl Scale {
    /// A scale that covers all values; with `from_zero`, a linear scale also covers 0.
    pub fn over(
        values: impl Iterator<Item = f64>,
        log: bool,
        from_zero: bool,
        (start, end): (f64, f64),
    ) -> Self {
        let usable = |value: &f64| value.is_finite() && (!log || *value > 0.0);
        let (low, high) = values
            .filter(usable)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |range, v| (range.0.min(v), range.1.max(v)));
        let (low, high) = match (low.is_finite(), log) {
            (false, true) => (1.0, 10.0),
            (false, false) => (0.0, 1.0),
            (true, true) if low == high => (low / 2.0, high * 2.0),
            (true, false) if low == high && low == 0.0 => (0.0, 1.0),
            (true, false) if low == high => (low.min(0.0), high.max(0.0)),
            (true, _) => (low, high),
        };
        let low = if from_zero && !log { low.min(0.0) } else { low };
        Self { log, low, high, start, end }
    }

    /// Widens a linear scale to whole steps of its ticks.
    #[must_use]
    pub fn nice(mut self, ticks: usize) -> Self {
        if self.log {
            return self;
        }
        let step = step_of(self.low, self.high, ticks);
        self.low = (self.low / step).floor() * step;
        self.high = (self.high / step).ceil() * step;
        self
    }

    /// Position of a value.
    pub fn at(&self, value: f64) -> f64 {
        let of = |value: f64| if self.log { value.max(f64::MIN_POSITIVE).ln() } else { value };
        let span = of(self.high) - of(self.low);
        let share = if span == 0.0 { 0.5 } else { (of(value) - of(self.low)) / span };
        self.start + share.clamp(-0.02, 1.02) * (self.end - self.start)
    }

    /// About `count` round values on the axis. For bytes, the step between them is a power of two.
    pub fn ticks(&self, count: usize, unit: &str) -> Vec<f64> {
        if self.log {
            return self.log_ticks(count, matches!(unit, "bytes" | "B"));
        }
        let step = match unit {
            "bytes" | "B" => binary_step(self.high - self.low, count),
            _ => step_of(self.low, self.high, count),
        };
        let first = (self.low / step).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        (first..=last.min(first + 50)).map(|at| at as f64 * step).collect()
    }

    fn log_ticks(&self, count: usize, binary: bool) -> Vec<f64> {
        let base: f64 = if binary { 2.0 } else { 10.0 };
        let power = |value: f64| value.ln() / base.ln();
        let (first, last) =
            ((power(self.low) - 1e-9).ceil() as i32, (power(self.high) + 1e-9).floor() as i32);
        let every = ((last - first).max(1) as usize).div_ceil(count.max(1)) as i32;
        let mut ticks: Vec<f64> =
            (first..=last).filter(|at| at.rem_euclid(every) == 0).map(|at| base.powi(at)).collect();
        if ticks.len() < 3 && !binary {
            ticks = (first - 1..=last)
                .flat_map(|at| [1.0, 2.0, 5.0].map(|digit| digit * base.powi(at)))
                .filter(|tick| (self.low..=self.high).contains(tick))
                .collect();
        }
        ticks
    }
}

fn step_of(low: f64, high: f64, count: usize) -> f64 {
    let raw = ((high - low) / count.max(1) as f64).max(f64::MIN_POSITIVE);
    let power = 10_f64.powf(raw.log10().floor());
    let digit = raw / power;
    let nice = [1.0, 2.0, 2.5, 5.0].into_iter().find(|nice| digit <= nice + 1e-9).unwrap_or(10.0);
    nice * power
}

fn binary_step(span: f64, count: usize) -> f64 {
    2_f64.powf((span / count.max(1) as f64).max(1.0).log2().ceil())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn over(values: &[f64], log: bool) -> Scale {
        Scale::over(values.iter().copied(), log, true, (0.0, 100.0))
    }

    #[test]
    fn a_linear_axis_begins_at_zero_and_ends_at_a_round_value() {
        let scale = over(&[3.0, 9.4], false).nice(5);
        assert_eq!((scale.low, scale.high), (0.0, 10.0));
        assert_eq!(scale.ticks(5, ""), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(scale.at(5.0), 50.0);
    }

    #[test]
    fn a_logarithmic_axis_has_powers() {
        let scale = over(&[16.0, 16_384.0], true);
        assert!((scale.at(512.0) - 50.0).abs() < 1e-9);
        assert_eq!(scale.ticks(5, "bytes"), [16.0, 64.0, 256.0, 1024.0, 4096.0, 16_384.0]);
        assert_eq!(over(&[1.0, 1000.0], true).ticks(4, ""), [1.0, 10.0, 100.0, 1000.0]);
        assert_eq!(over(&[2.0, 40.0], true).ticks(4, ""), [2.0, 5.0, 10.0, 20.0]);
    }

    #[test]
    fn nothing_at_all_still_makes_an_axis() {
        let scale = over(&[], false).nice(5);
        assert!(scale.high > scale.low);
        assert!(over(&[f64::NAN], true).at(3.0).is_finite());
        assert!(over(&[0.0, 0.0], false).nice(4).at(0.0).is_finite());
    }
}
