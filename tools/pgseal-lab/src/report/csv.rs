//! `results.csv`: one line for each figure of each sample, warm-ups too.

use std::path::Path;

use super::CSV;
use crate::error::LabError;
use crate::results::{Results, Sample};

const HEAD: [&str; 13] = [
    "experiment",
    "plan_hash",
    "case",
    "case_title",
    "arm",
    "arm_title",
    "round",
    "place",
    "warmup",
    "measure",
    "unit",
    "value",
    "load",
];

/// CSV in long format: one figure per line. `measure` is `value`, in the case's unit, or the name
/// of a further figure, which ends in the figure's unit.
///
/// # Errors
///
/// None in practice: the CSV is written to memory.
pub fn csv_of(results: &Results) -> Result<Vec<u8>, LabError> {
    let failed = |error: csv::Error| {
        LabError::io(Path::new(CSV), "write the results")(std::io::Error::other(error))
    };
    let mut out = csv::Writer::from_writer(Vec::new());
    out.write_record(HEAD).map_err(failed)?;
    let counted = results.samples.iter().map(|sample| (sample, false));
    for (sample, warmup) in results.warmups.iter().map(|sample| (sample, true)).chain(counted) {
        let unit = results.plan.case(&sample.case).map_or("", |case| case.unit.as_str());
        let figures = std::iter::once(("value", unit, sample.value))
            .chain(sample.extra.iter().map(|(name, value)| (name.as_str(), "", *value)));
        for (measure, unit, value) in figures {
            out.write_record(record(results, sample, warmup, (measure, unit, value)))
                .map_err(failed)?;
        }
    }
    out.into_inner().map_err(|error| failed(error.into_error().into()))
}

fn record(
    results: &Results,
    sample: &Sample,
    warmup: bool,
    (measure, unit, value): (&str, &str, f64),
) -> [String; 13] {
    let plan = &results.plan;
    [
        results.experiment.clone(),
        results.plan_hash.clone(),
        sample.case.clone(),
        plan.case(&sample.case).map(|case| case.title.clone()).unwrap_or_default(),
        sample.arm.clone(),
        plan.arm(&sample.arm).map(|arm| arm.title.clone()).unwrap_or_default(),
        sample.round.to_string(),
        sample.place.to_string(),
        warmup.to_string(),
        measure.to_owned(),
        unit.to_owned(),
        value.to_string(),
        sample.load.to_string(),
    ]
}
