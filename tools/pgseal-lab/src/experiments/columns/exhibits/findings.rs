//! The summary in words.

use super::{Data, listed, times};
use crate::exhibits::Finding;
use crate::report::format::quantity;

pub fn all(data: &Data<'_>) -> Vec<Finding> {
    let found = [
        loads(data, "insert", false),
        loads(data, "copy", false),
        pgp(data),
        loads(data, "insert-keys", true),
        loads(data, "copy-keys", true),
        storage(data),
        queries(data, false),
        queries(data, true),
        worth_of_keys(data),
        lookups(data),
        micro(data),
        answers(data),
    ];
    found.into_iter().flatten().collect()
}

/// `pgcrypto raw AES, bytea 4.12 times, ...`, for all arms except PGP, which has its own finding.
fn ratios(data: &Data<'_>, case: &str) -> Vec<String> {
    data.others(case)
        .into_iter()
        .filter(|arm| arm.id != "pgp")
        .filter_map(|arm| {
            let share = data.extrapolated(case, &arm.id);
            let note = share.map_or_else(String::new, |share| {
                format!(" (extrapolated from {:.0} %)", share * 100.0)
            });
            Some(format!("{} {}{note}", arm.title, times(data.ratio(case, &arm.id)?)))
        })
        .collect()
}

fn loads(data: &Data<'_>, case: &str, keys: bool) -> Option<Finding> {
    let plain_s = data.median(case, "plain")?;
    let ratios = ratios(data, case);
    if ratios.is_empty() {
        return None;
    }
    let volume = data.extra(case, "plain", "total_volume_bytes")?;
    let (way, with) = (
        if case.starts_with("insert") { "INSERTs in bulks of the study's 4 kB" } else { "COPY" },
        if keys { " with primary and foreign keys" } else { "" },
    );
    let text = format!(
        "Loading {} of rows by {way}{with} takes {} plain; {} as long.",
        quantity(volume, "bytes"),
        quantity(plain_s, "s"),
        listed(&ratios)
    );
    let study = match (case.starts_with("insert"), data.study.load_ratio(keys)) {
        (true, Some(ratio)) => format!(
            "The study loaded 10 GB in {:.0} s plain, and {} as long with pgcrypto raw AES.",
            data.study.load_s(false, keys)?,
            times(ratio)
        ),
        _ => "The study did not measure COPY.".to_owned(),
    };
    Some(Finding::with_study(text, study))
}

fn pgp(data: &Data<'_>) -> Option<Finding> {
    let (pgp_s, ratio) = (data.median("insert", "pgp")?, data.ratio("insert", "pgp")?);
    let how = match data.extrapolated("insert", "pgp") {
        Some(share) => format!(
            "was stopped after {} with {:.1} % of the fields in; all of them would take about {}",
            quantity(data.extra("insert", "pgp", "measured_s")?, "s"),
            share * 100.0,
            quantity(pgp_s, "s")
        ),
        None => format!("takes {}", quantity(pgp_s, "s")),
    };
    let over_raw = data
        .median("insert", "raw")
        .map_or_else(String::new, |raw_s| format!(", {} as long as raw AES", times(pgp_s / raw_s)));
    Some(Finding::with_study(
        format!(
            "The same load with pgcrypto's PGP {how}: {} as long as plain{over_raw}.",
            times(ratio)
        ),
        format!(
            "8 hours for 1.12 GB, where raw AES took 11 minutes: {} as long.",
            times(data.study.pgp_over_raw()?)
        ),
    ))
}

fn storage(data: &Data<'_>) -> Option<Finding> {
    let mut parts = Vec::new();
    for (case, with) in [("size", "without keys"), ("size-keys", "with keys")] {
        let Some(plain) = data.median(case, "plain") else { continue };
        let ratios = ratios(data, case);
        if !ratios.is_empty() {
            let plain = quantity(plain, "bytes");
            parts.push(format!("On disk, {with}: plain {plain}; {} as large.", listed(&ratios)));
        }
    }
    (!parts.is_empty()).then_some(())?;
    let study = format!(
        "13 GB plain and 49 GB with pgcrypto raw AES, {} as large; with keys {}. Only storage as text of \
         hexadecimal digits explains this.",
        times(data.study.storage_ratio(false)?),
        times(data.study.storage_ratio(true)?)
    );
    Some(Finding::with_study(parts.join(" "), study))
}

fn queries(data: &Data<'_>, keys: bool) -> Option<Finding> {
    let cases = data.queries(keys);
    let first = cases.first()?;
    let means: Vec<String> = data
        .others(&first.id)
        .into_iter()
        .filter_map(|arm| {
            let (mean, count) = data.mean_ratio(keys, &arm.id)?;
            let note = if count < cases.len() {
                format!(" (over the {count} that it answered)")
            } else {
                String::new()
            };
            Some(format!("{} {}{note}", arm.title, times(mean)))
        })
        .collect();
    (!means.is_empty()).then(|| {
        Finding::with_study(
            format!(
                "The {} queries{}, geometric mean of the times against plain: {}.",
                cases.len(),
                if keys { " with keys" } else { "" },
                listed(&means)
            ),
            "Queries become slower; the mean is not given.",
        )
    })
}

fn worth_of_keys(data: &Data<'_>) -> Option<Finding> {
    let pairs = data.queries(false);
    let mut parts = Vec::new();
    for arm in &data.results.plan.arms {
        let faster_or_slower: Vec<f64> = pairs
            .iter()
            .filter_map(|case| {
                let without = data.median(&case.id, &arm.id)?;
                Some(data.median(&format!("{}-keys", case.id), &arm.id)? / without)
            })
            .collect();
        if faster_or_slower.is_empty() || arm.again {
            continue;
        }
        let slower = faster_or_slower.iter().filter(|ratio| **ratio > 1.0).count();
        parts.push(format!("{} {slower} of {}", arm.title, faster_or_slower.len()));
    }
    (!parts.is_empty()).then(|| {
        Finding::with_study(
            format!("Queries that take longer with keys than without: {}.", listed(&parts)),
            "With raw AES, three of the five queries got slower with keys: predicates wrap the column in \
             a function, so no key serves them.",
        )
    })
}

fn lookups(data: &Data<'_>) -> Option<Finding> {
    let case = "lookup-keys";
    let rate = quantity(data.median(case, "plain")?, "1/s");
    let slower: Vec<String> = data
        .others(case)
        .into_iter()
        .filter_map(|arm| {
            let share = data.ratio(case, &arm.id)?;
            Some(if share < 0.1 {
                format!("{} {}", arm.title, quantity(data.median(case, &arm.id)?, "1/s"))
            } else {
                format!("{} {:.0} % of that", arm.title, share * 100.0)
            })
        })
        .collect();
    let joins = ratios(data, "join-keys");
    let joins = if joins.is_empty() {
        String::new()
    } else {
        format!(" Joining every line with its order by key: {} as long as plain.", listed(&joins))
    };
    (!slower.is_empty()).then(|| {
        Finding::with_study(
            format!("Orders found by primary key: plain {rate}; {}.{joins}", listed(&slower)),
            "Keys no longer help.",
        )
    })
}

fn micro(data: &Data<'_>) -> Option<Finding> {
    let mut parts = Vec::new();
    for (case, what) in [
        ("encrypt-int8", "encrypting one bigint"),
        ("decrypt-int8", "decrypting one"),
        ("encrypt-text16", "encrypting a text of 16 bytes"),
        ("decrypt-text16", "decrypting one"),
    ] {
        let costs: Vec<String> = data
            .others(case)
            .into_iter()
            .filter_map(|arm| Some(format!("{} {:.0} ns", arm.title, data.median(case, &arm.id)?)))
            .collect();
        if !costs.is_empty() {
            parts.push(format!("{what}: {}", listed(&costs)));
        }
    }
    (!parts.is_empty()).then(|| Finding::new(format!("Per value, in SQL: {}.", parts.join("; "))))
}

fn answers(data: &Data<'_>) -> Option<Finding> {
    let compared = data
        .results
        .samples
        .iter()
        .filter(|sample| sample.facts.contains_key("answer_sha256"))
        .count();
    (compared > 0).then(|| {
        Finding::new(format!(
            "All {compared} answers are the same as those of the plain tables, row for row and digit for \
             digit."
        ))
    })
}
