//! The summary in words, and the first screen.

use super::Data;
use crate::answer::{Answer, Question, Subject};
use crate::cost::{Cost, change, verdict_words};
use crate::exhibits::Finding;
use crate::experiments::columns::Columns;
use crate::plan::{Arm, Case};
use crate::report::format::{quantity, significant};

/// The arms of the summary, the first is the first screen's; the tables have all of them.
const MAIN: [&str; 4] = ["sealed-det", "sealed-some", "raw", "sealed-instance"];

pub fn all(data: &Data<'_>) -> Vec<Finding> {
    let found = [
        loads(data, "insert", "to load with INSERTs"),
        loads(data, "copy", "to load with COPY"),
        storage(data),
        queries(data, false),
        queries(data, true),
        each(data, "lookup-keys", "to find an order by its key", Some("Keys no longer help.")),
        each(data, "join-keys", "to join all lines with their orders", None),
        pgp(data),
        worth_of_keys(data),
        micro(data),
        answers(data),
    ];
    found.into_iter().flatten().collect()
}

/// The first screen: the deterministic way to seal all columns, else the first arm that was
/// measured.
pub fn answer(data: &Data<'_>) -> Option<Answer> {
    let arm = main_arms(data).first().copied()?;
    let load = data.study.load_ratio(false);
    let size = data.study.storage_ratio(false);
    let mut cases: Vec<(&str, &str, Option<f64>)> = vec![
        ("insert", "load, INSERTs", load),
        ("copy", "load, COPY", None),
        ("size", "size on disk", size),
    ];
    for (id, name) in [("q1", "query 1"), ("q3", "query 3"), ("q5", "query 5")] {
        cases.push((id, name, None));
    }
    cases.push(("lookup-keys", "look-ups by key", None));
    let study = load.map(|times| format!("load {}, raw AES", change(times))).unwrap_or_default();
    let name = match arm.id.as_str() {
        "sealed-det" => "sealed columns, all",
        _ => arm.title.as_str(),
    };
    let (results, analysis) = (data.results, data.analysis);
    let (subject, experiment, base) = (Subject::Columns, &Columns, "plain");
    Question { subject, experiment, results, analysis, base, arm: (arm, name), cases, study }
        .answer()
}

/// The main arms that were measured; if there are none, all that were.
fn main_arms<'a>(data: &Data<'a>) -> Vec<&'a Arm> {
    let plan = &data.results.plan;
    let measured = |arm: &&Arm| {
        let other = arm.id != "plain" && !arm.again;
        other && plan.cases.iter().any(|case| data.arm(&case.id, &arm.id).is_some())
    };
    let main = MAIN.iter().filter_map(|id| plan.arm(id)).filter(measured).collect::<Vec<_>>();
    if main.is_empty() { plan.arms.iter().filter(measured).collect() } else { main }
}

fn beside(mut all: Vec<Finding>, study: Option<String>) -> Vec<Finding> {
    if let Some(first) = all.first_mut() {
        first.study = study;
    }
    all
}

/// What each main arm costs in a case.
fn each(data: &Data<'_>, case: &str, place: &str, study: Option<&str>) -> Vec<Finding> {
    let Some(case) = data.results.plan.case(case) else { return Vec::new() };
    let one = |arm: &Arm| {
        let cost = data.analysis.cost(case, &arm.id)?;
        let share = data.extrapolated(&case.id, &arm.id);
        let place =
            if share.is_some() { format!("{place} (extrapolated)") } else { place.to_owned() };
        Some(Finding::new(cost.sentence(&arm.title, &place)))
    };
    let all = main_arms(data).into_iter().filter_map(one).collect();
    beside(all, study.map(str::to_owned))
}

fn loads(data: &Data<'_>, case: &str, place: &str) -> Vec<Finding> {
    let study = match (case, data.study.load_ratio(false)) {
        ("insert", Some(times)) => format!("pgcrypto raw AES took {} as long.", change(times)),
        _ => "The study did not measure COPY.".to_owned(),
    };
    each(data, case, place, Some(&study))
}

fn pgp(data: &Data<'_>) -> Vec<Finding> {
    let one = || {
        let case = data.results.plan.case("insert")?;
        let cost = data.analysis.cost(case, "pgp")?;
        let how = match data.extrapolated("insert", "pgp") {
            Some(_) => "to load with INSERTs (extrapolated)",
            None => "to load with INSERTs",
        };
        Some(Finding::new(cost.sentence("pgcrypto's PGP", how)))
    };
    let theirs = data.study.pgp_over_raw();
    let theirs = theirs.map(|times| format!("PGP took {} as long as raw AES.", change(times)));
    beside(one().into_iter().collect(), theirs)
}

fn storage(data: &Data<'_>) -> Vec<Finding> {
    let Some(case) = data.results.plan.case("size") else { return Vec::new() };
    let one = |arm: &Arm| {
        // The sizes of a round are the same every time, so one round is enough.
        let arm_bytes = data.median(&case.id, &arm.id)?;
        let times = arm_bytes / data.median(&case.id, "plain")?;
        let text = match times {
            2.0.. => {
                format!("{} needs {} times as much space on disk.", arm.title, significant(times))
            }
            _ => {
                let percent = (times - 1.0) * 100.0;
                format!("{} needs {percent:.0} % more space on disk.", arm.title)
            }
        };
        (times >= 0.995).then(|| Finding::new(text))
    };
    let all = main_arms(data).into_iter().filter_map(one).collect();
    let theirs = data.study.storage_ratio(false).map(|times| {
        format!(
            "pgcrypto raw AES needed {} as much; only text of hexadecimal digits explains it.",
            change(times)
        )
    });
    beside(all, theirs)
}

/// The geometric mean over the queries.
fn queries(data: &Data<'_>, keys: bool) -> Vec<Finding> {
    let cases: Vec<&Case> = data.queries(keys);
    let with = if keys { " with keys" } else { "" };
    let one = |arm: &Arm| {
        let costs: Vec<Cost> =
            cases.iter().filter_map(|case| data.analysis.cost(case, &arm.id)).collect();
        let (mean, _) = data.mean_ratio(keys, &arm.id)?;
        let widest = costs.iter().map(|cost| cost.noise_floor).fold(1.0, f64::max);
        let title = &arm.title;
        let verdict = costs.first()?.verdict;
        let text = if costs.iter().any(Cost::differs) {
            match mean {
                2.0.. => format!(
                    "{title}: queries{with} take {} times as long, in the geometric mean.",
                    significant(mean)
                ),
                _ => format!(
                    "{title}: queries{with} take {:.1} % {} time, in the geometric mean.",
                    (mean - 1.0).abs() * 100.0,
                    if mean >= 1.0 { "more" } else { "less" }
                ),
            }
        } else {
            format!("{title}, queries{with}: {}.", verdict_words(verdict, widest))
        };
        Some(Finding::new(text))
    };
    let all = main_arms(data).into_iter().filter_map(one).collect();
    beside(all, Some("Queries become slower; the mean is not given.".to_owned()))
}

fn worth_of_keys(data: &Data<'_>) -> Vec<Finding> {
    let pairs = data.queries(false);
    let mut all = Vec::new();
    for arm in main_arms(data) {
        let slower = pairs.iter().filter(|case| {
            let without = data.median(&case.id, &arm.id);
            let with = data.median(&format!("{}-keys", case.id), &arm.id);
            with.zip(without).is_some_and(|(with, without)| with > without)
        });
        let slower = slower.count();
        if slower > 0 {
            let queries = if slower == 1 { "query takes" } else { "queries take" };
            all.push(Finding::new(format!(
                "{}: {slower} {queries} longer with keys than without.",
                arm.title
            )));
        }
    }
    let theirs = "With raw AES, three of the five queries got slower with keys: predicates wrap the column \
                  in a function, so no key serves them.";
    beside(all, Some(theirs.to_owned()))
}

fn micro(data: &Data<'_>) -> Vec<Finding> {
    let mut all = Vec::new();
    for (case, what) in [
        ("encrypt-int8", "Encrypting one bigint in SQL"),
        ("decrypt-int8", "Decrypting one bigint in SQL"),
        ("encrypt-text16", "Encrypting a short text in SQL"),
        ("decrypt-text16", "Decrypting a short text in SQL"),
    ] {
        for arm in main_arms(data) {
            if let Some(nanos) = data.median(case, &arm.id) {
                let time = quantity(nanos * 1e-9, "s");
                all.push(Finding::new(format!("{what} takes {time} with {}.", arm.title)));
            }
        }
    }
    all
}

fn answers(data: &Data<'_>) -> Vec<Finding> {
    let compared = data
        .results
        .samples
        .iter()
        .filter(|sample| sample.facts.contains_key("answer_sha256"))
        .count();
    let text =
        || format!("All {compared} answers equal those of the plain tables, digit for digit.");
    (compared > 0).then(|| Finding::new(text())).into_iter().collect()
}
