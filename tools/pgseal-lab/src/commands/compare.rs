//! `pgseal-lab compare`.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use pgseal_lab::LabError;
use pgseal_lab::analysis::Verdict;
use pgseal_lab::compare::{Comparison, Row};
use pgseal_lab::cost::{change, verdict_words};
use pgseal_lab::report;
use pgseal_lab::report::format::{quantity, ratio_text};

use crate::exit;
use crate::output::{print, print_json};

const EXAMPLES: &str = "\
Exit status: 0 nothing is worse beyond the noise, 1 something is, 2 the plans are not the same.";

/// Compare two runs of the same plan, the second against the first
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct CompareArgs {
    /// The --output of the first run, or one experiment's directory in it
    first: PathBuf,
    /// Of the second run
    second: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &CompareArgs) -> Result<u8, LabError> {
    let mut found = Vec::new();
    for (first, second) in pairs(&args.first, &args.second)? {
        let (one, two) = (report::read_results(&first)?, report::read_results(&second)?);
        found.push(Comparison::of((&one, &first), (&two, &second))?);
    }
    if args.json {
        print_json(&found)?;
    } else {
        print(found.iter().map(text_of).collect::<String>())?;
    }
    Ok(if found.iter().any(Comparison::is_worse) { exit::WORSE } else { exit::SOUND })
}

/// The directories of the experiments that are in both runs.
fn pairs(first: &Path, second: &Path) -> Result<Vec<(PathBuf, PathBuf)>, LabError> {
    let (ones, twos) = (report::directories(first)?, report::directories(second)?);
    if let ([one], [two]) = (ones.as_slice(), twos.as_slice()) {
        return Ok(vec![(one.clone(), two.clone())]);
    }
    let pairs: Vec<_> = ones
        .into_iter()
        .filter_map(|one| {
            let two = twos.iter().find(|two| two.file_name() == one.file_name())?;
            Some((one, two.clone()))
        })
        .collect();
    if pairs.is_empty() {
        return Err(LabError::Usage(format!(
            "{} and {}: no experiment is in both",
            first.display(),
            second.display()
        )));
    }
    Ok(pairs)
}

fn text_of(comparison: &Comparison) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{}: second against first", comparison.experiment);
    for (name, before, after) in &comparison.differing {
        let _ = writeln!(out, "  other {name}: {before} -> {after}");
    }
    let wide = |of: fn(&Row) -> usize| comparison.rows.iter().map(of).max().unwrap_or(0);
    let (case, arm) = (wide(|row| row.case.len()), wide(|row| row.arm.len()));
    let _ = writeln!(
        out,
        "  {:case$}  {:arm$}  {:>12} {:>12}  {:24}  {:>11}  verdict",
        "case", "arm", "first", "second", "ratio (95 %)", "cost"
    );
    for row in &comparison.rows {
        let verdict = verdict_words(row.verdict, row.noise_floor);
        let _ = writeln!(
            out,
            "  {:case$}  {:arm$}  {:>12} {:>12}  {:24}  {:>11}  {verdict}",
            row.case,
            row.arm,
            quantity(row.first, &row.unit),
            quantity(row.second, &row.unit),
            ratio_text(&row.ratio),
            row.times.map(change).unwrap_or_default(),
        );
    }
    let worse = comparison.rows.iter().filter(|row| row.verdict == Verdict::Worse);
    let most =
        worse.max_by(|one, other| one.times.unwrap_or(1.0).total_cmp(&other.times.unwrap_or(1.0)));
    let _ = write!(out, "{}: {}", comparison.experiment, comparison.summary().words());
    if let Some(row) = most {
        let times = row.times.map(change).unwrap_or_default();
        let _ =
            write!(out, " Most: {} in {}, {times} time against its baseline.", row.arm, row.case);
    }
    out.push_str("\n\n");
    out
}
