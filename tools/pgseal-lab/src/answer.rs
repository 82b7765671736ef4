//! The first screen of a report: for each subject a tile, and rows of the one table below the
//! tiles.

use serde::{Deserialize, Serialize};

use crate::analysis::{Analysis, Verdict};
use crate::cost::{Cost, change};
use crate::exhibits::{Cell, Tone};
use crate::experiments::Experiment;
use crate::plan::{Arm, Case};
use crate::report::format::{quantity, significant};
use crate::results::Results;

/// What a tile is about; in the order of the tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// The sealed instance.
    Instance,
    /// TLS.
    Connections,
    /// Sealed columns.
    Columns,
    /// The bare cipher.
    Cipher,
}

impl Subject {
    /// All of them.
    pub const ALL: [Subject; 4] =
        [Subject::Instance, Subject::Connections, Subject::Columns, Subject::Cipher];

    /// Heading of the tile.
    pub fn title(self) -> &'static str {
        match self {
            Subject::Instance => "Instance",
            Subject::Connections => "Connections",
            Subject::Columns => "Columns",
            Subject::Cipher => "Cipher",
        }
    }

    /// The experiment that measures it.
    pub fn experiment(self) -> &'static str {
        match self {
            Subject::Instance => "instance",
            Subject::Connections => "tls",
            Subject::Columns => "columns",
            Subject::Cipher => "modes",
        }
    }
}

/// The answer of one experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// What it is about.
    pub subject: Subject,
    /// The arm whose cost this is.
    pub arm: String,
    /// The cost as one range: `0 to +17 % time`.
    pub range: String,
    /// The drawing; none: there is no range to draw.
    pub bar: Option<Bar>,
    /// The study's figure, in a few words.
    pub study: String,
    /// The verdict, in five words.
    pub verdict: String,
    /// Bad only for what is worse than it should be.
    pub tone: Tone,
    /// Rows of the table.
    pub lines: Vec<Line>,
}

/// The arm beside its baseline, whose length is 1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bar {
    /// Name of the baseline.
    pub base: String,
    /// Name of the arm.
    pub arm: String,
    /// What the arm is in charts, so that it has their colour.
    pub id: String,
    /// Lower end of the arm's range.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// One row of the table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// The work.
    pub what: String,
    /// The arm.
    pub arm: String,
    /// The baseline's value with its unit.
    pub base: String,
    /// The arm's value with its unit.
    pub value: String,
    /// What it costs.
    pub cost: Cell,
    /// The study's figure; empty: none.
    pub study: String,
}

/// What an answer is made of.
pub struct Question<'a> {
    /// What it is about.
    pub subject: Subject,
    /// The experiment.
    pub experiment: &'a dyn Experiment,
    /// Its results.
    pub results: &'a Results,
    /// Their analysis.
    pub analysis: &'a Analysis,
    /// Name of the baseline: `plain`.
    pub base: &'a str,
    /// The arm to speak of, with a short name.
    pub arm: (&'a Arm, &'a str),
    /// Ids of the cases, each with its short name and the study's cost.
    pub cases: Vec<(&'a str, &'a str, Option<f64>)>,
    /// The study's figure for the tile.
    pub study: String,
}

impl Question<'_> {
    /// The answer; none if no case was measured.
    pub fn answer(&self) -> Option<Answer> {
        let mut lines = Vec::new();
        let mut times = Vec::new();
        let mut state = State::default();
        for (id, name, study) in &self.cases {
            let Some(case) = self.results.plan.case(id) else { continue };
            let Some(line) = self.line(case, name, *study) else { continue };
            lines.push(line);
            state.add(self, case);
            // Bytes are no time: they stand in the table alone.
            if let Some(cost) = self.analysis.cost(case, &self.arm.0.id)
                && case.unit != "bytes"
            {
                times.push(if cost.differs() { cost.times } else { 1.0 });
            }
        }
        let low = times.iter().copied().fold(f64::INFINITY, f64::min);
        let high = times.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (base, arm, id) = (self.base.to_owned(), self.arm.1.to_owned(), self.arm.0.id.clone());
        let bar = || Bar { base, arm, id, low, high };
        let (verdict, tone) = state.verdict(self.analysis.is_too_noisy());
        (!lines.is_empty()).then(|| Answer {
            subject: self.subject,
            arm: self.arm.1.to_owned(),
            range: range(low, high, state.differs > 0),
            bar: (!times.is_empty()).then(bar),
            study: self.study.clone(),
            verdict: verdict.to_owned(),
            tone,
            lines,
        })
    }

    fn line(&self, case: &Case, name: &str, study: Option<f64>) -> Option<Line> {
        let (plan, analysis) = (&self.results.plan, self.analysis);
        let base = &plan.baseline_of(case)?.id;
        let value = |arm: &str| Some(quantity(analysis.median(&case.id, arm)?, &case.unit));
        let arm = &self.arm.0.id;
        Some(Line {
            what: name.to_owned(),
            arm: self.arm.1.to_owned(),
            base: value(base)?,
            value: value(arm)?,
            cost: cost_cell(self.experiment, analysis, case, arm),
            study: study.map(change).unwrap_or_default(),
        })
    }
}

/// What the cases of an answer show.
#[derive(Default)]
struct State {
    cases: usize,
    differs: usize,
    too_few: usize,
    withheld: usize,
    beyond: usize,
}

impl State {
    fn add(&mut self, question: &Question<'_>, case: &Case) {
        let arm = &question.arm.0.id;
        let Some(found) = question.analysis.arm(&case.id, arm) else { return };
        self.cases += 1;
        match found.verdict {
            Verdict::Better | Verdict::Worse => self.differs += 1,
            Verdict::TooFew => self.too_few += 1,
            Verdict::Withheld => self.withheld += 1,
            _ => {}
        }
        let cost = question.analysis.cost(case, arm);
        self.beyond +=
            usize::from(cost.is_some_and(|cost| is_beyond(question.experiment, case, arm, &cost)));
    }

    /// Always five words.
    fn verdict(&self, too_noisy: bool) -> (&'static str, Tone) {
        if too_noisy {
            return ("Too noisy here to tell", Tone::Faint);
        }
        if self.withheld == self.cases {
            return ("Cannot be true, measure again", Tone::Faint);
        }
        if self.too_few + self.withheld == self.cases {
            return ("Too few rounds to tell", Tone::Faint);
        }
        if self.beyond > 0 {
            return ("Costs more than it should", Tone::Bad);
        }
        if self.differs > 0 {
            return ("Costs what it should cost", Tone::Plain);
        }
        ("No cost beyond the noise", Tone::Good)
    }
}

/// `0 to +17 % time`, `1.2 to 4.1 times the time`.
pub fn range(low: f64, high: f64, differs: bool) -> String {
    if !(low.is_finite() && high.is_finite()) {
        return "no figure".to_owned();
    }
    if !differs {
        return "not distinguishable".to_owned();
    }
    if high >= 2.0 {
        return match significant(low) == significant(high) {
            true => format!("{} times the time", significant(high)),
            false => format!("{} to {} times the time", significant(low), significant(high)),
        };
    }
    let percent = |times: f64| match ((times - 1.0) * 100.0).round() {
        0.0 => "0".to_owned(),
        percent => format!("{percent:+.0}"),
    };
    match percent(low) == percent(high) {
        true => format!("{} % time", percent(high)),
        false => format!("{} to {} % time", percent(low), percent(high)),
    }
}

/// Whether a cost is more than it should be, and more than noise.
pub fn is_beyond(experiment: &dyn Experiment, case: &Case, arm: &str, cost: &Cost) -> bool {
    let most = experiment.most(case, arm);
    cost.verdict == Verdict::Worse && most.is_some_and(|most| cost.times > most)
}

/// How a cost is emphasised: red only for what is worse than it should be.
pub fn tone_of(experiment: &dyn Experiment, case: &Case, arm: &str, cost: &Cost) -> Tone {
    match cost.verdict {
        _ if is_beyond(experiment, case, arm, cost) => Tone::Bad,
        Verdict::Better => Tone::Good,
        Verdict::Worse => Tone::Plain,
        _ => Tone::Faint,
    }
}

/// The cell of what an arm costs in a case: `+7.1 %`, `not distinguishable (noise 18 %)`,
/// `withheld`.
pub fn cost_cell(experiment: &dyn Experiment, analysis: &Analysis, case: &Case, arm: &str) -> Cell {
    let Some(found) = analysis.arm(&case.id, arm).filter(|found| found.n > 0) else {
        return Cell::missing("not measured");
    };
    if let Some(why) = &found.withheld {
        return Cell::text("withheld").hint(why).tone(Tone::Faint);
    }
    let Some(cost) = analysis.cost(case, arm) else {
        return Cell::text("baseline").tone(Tone::Faint);
    };
    let mut hint = format!("{} against the baseline", cost.change());
    if !cost.interval().is_empty() {
        hint += &format!("; 95 % interval {}", cost.interval());
    }
    hint += &format!("; noise {:.1} %", cost.noise_percent());
    if let Some(most) = experiment.most(case, arm) {
        hint += &format!("; should be at most {}", change(most));
    }
    let text = match cost.verdict {
        Verdict::TooFew => format!("{} (too few rounds)", cost.change()),
        _ => cost.words(),
    };
    Cell::number(cost.times, text).hint(hint).tone(tone_of(experiment, case, arm, &cost))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_short() {
        assert_eq!(range(1.0, 1.171, true), "0 to +17 % time");
        assert_eq!(range(0.9, 1.0, true), "-10 to 0 % time");
        assert_eq!(range(1.17, 1.17, true), "+17 % time");
        assert_eq!(range(1.0, 4.12, true), "1.00 to 4.12 times the time");
        assert_eq!(range(1.0, 1.0, false), "not distinguishable");
        assert_eq!(range(f64::INFINITY, f64::NEG_INFINITY, true), "no figure");
    }

    #[test]
    fn every_verdict_has_five_words() {
        let states = [
            State { cases: 1, differs: 1, beyond: 1, ..State::default() },
            State { cases: 1, differs: 1, ..State::default() },
            State { cases: 1, ..State::default() },
            State { cases: 1, too_few: 1, ..State::default() },
            State { cases: 1, withheld: 1, ..State::default() },
        ];
        let mut seen = std::collections::BTreeSet::new();
        for (state, noisy) in states.iter().flat_map(|state| [(state, true), (state, false)]) {
            let (words, tone) = state.verdict(noisy);
            assert_eq!(words.split(' ').count(), 5, "{words}");
            assert!(!noisy || tone == Tone::Faint, "noise is no fault of an arm");
            seen.insert(words);
        }
        assert_eq!(seen.len(), 6);
    }
}
