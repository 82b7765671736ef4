//! The colours of series: one for each arm, the same in every chart of a page.

use std::collections::BTreeMap;

use super::Entry;
use crate::exhibits::{Chart, Series};

/// Number of colours in the style sheet. None of them is red, which means: worse than it should be.
const COLORS: usize = 10;

/// The colour of each arm.
#[derive(Debug, Default)]
pub struct Colors(BTreeMap<String, usize>);

impl Colors {
    /// Gives each arm of all charts a colour that no other arm of the same chart has.
    pub fn of(entries: &[Entry]) -> Colors {
        let charts: Vec<&Chart> = entries.iter().flat_map(|entry| &entry.exhibits.charts).collect();
        Colors::of_charts(&charts)
    }

    fn of_charts(charts: &[&Chart]) -> Colors {
        let mut colors = Colors::default();
        for chart in charts {
            for series in &chart.series {
                let key = key_of(series);
                if !colors.0.contains_key(&key) {
                    let color = colors.free(charts, &key);
                    colors.0.insert(key, color);
                }
            }
        }
        colors
    }

    /// The colour that the fewest arms have, of those that no arm beside this one has.
    fn free(&self, charts: &[&Chart], key: &str) -> usize {
        let beside = charts.iter().filter(|chart| chart.series.iter().any(|s| key_of(s) == key));
        let taken: Vec<usize> = beside
            .flat_map(|chart| &chart.series)
            .filter_map(|series| self.0.get(&key_of(series)).copied())
            .collect();
        let uses = |color: &usize| self.0.values().filter(|known| *known == color).count();
        let free = (0..COLORS).filter(|color| !taken.contains(color)).min_by_key(uses);
        free.unwrap_or(taken.len() % COLORS)
    }

    /// The colour of an arm.
    pub fn of_key(&self, key: &str) -> Option<usize> {
        self.0.get(key).copied()
    }

    /// The colour of a series.
    pub fn of_series(&self, series: &Series) -> usize {
        self.of_key(&key_of(series)).unwrap_or(0)
    }
}

/// What a series shows: its arm, else its name without the mark of a study.
pub fn key_of(series: &Series) -> String {
    match series.arm.as_str() {
        "" => series.name.replace("(study)", "").trim().to_lowercase(),
        arm => arm.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exhibits::{Axis, ChartKind, Origin};

    fn chart(names: &[&str]) -> Chart {
        let series = names.iter().map(|name| Series {
            name: (*name).to_owned(),
            origin: if name.contains("study") { Origin::Study } else { Origin::Measured },
            ..Series::default()
        });
        Chart {
            id: "one".to_owned(),
            title: String::new(),
            kind: ChartKind::Lines,
            x: Axis::default(),
            y: Axis::default(),
            series: series.collect(),
            note: None,
        }
    }

    #[test]
    fn an_arm_keeps_its_colour_and_shares_it_with_none_beside_it() {
        let charts = [
            chart(&["CTR", "GCM", "CTR (study)"]),
            chart(&["GCM", "XTS"]),
            chart(&["a", "b", "c", "d", "e", "f", "g", "h", "XTS", "CTR"]),
        ];
        let colors = Colors::of_charts(&charts.iter().collect::<Vec<_>>());
        for chart in &charts {
            let mut seen: BTreeMap<usize, String> = BTreeMap::new();
            for series in &chart.series {
                let key = key_of(series);
                let known = seen.entry(colors.of_series(series)).or_insert_with(|| key.clone());
                assert_eq!(*known, key);
            }
        }
        assert_eq!(colors.of_series(&charts[0].series[0]), colors.of_series(&charts[0].series[2]));
    }
}
