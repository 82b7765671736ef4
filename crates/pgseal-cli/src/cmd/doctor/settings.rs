//! Checks of the server's settings.

use super::context::Context;
use super::files::unfinished;
use super::postgres::{file_stem, guard_is_off};
use super::verdict::{Verdict, fail, ok, skip, warn};

pub fn guard(context: &Context) -> Verdict {
    // The last step of encrypt adds the guard module, that of decrypt removes it.
    if let Some(verdict) = unfinished(context) {
        return verdict;
    }
    let Some(list) = context.setting("shared_preload_libraries") else {
        return skip(context.no_settings());
    };
    if guard_is_off(context) {
        return fail("PGSEAL_GUARD=off in the server's environment");
    }
    judge_guard(list)
}

fn judge_guard(list: &str) -> Verdict {
    if list.split(',').any(|entry| file_stem(entry) == "pgseal_guard") {
        ok(format!("shared_preload_libraries = '{list}'"))
    } else {
        fail(format!("shared_preload_libraries = '{list}': pgseal_guard is not in it"))
    }
}

/// The verdict on a setting that must be on if the suite needs full-page images.
fn needed(context: &Context, is_on: bool, saw: String) -> Verdict {
    match (is_on, context.suite_needs(pgseal_core::Suite::needs_full_page_images)) {
        (true, _) => ok(saw),
        (false, Some(false)) => warn(format!("{saw}; the suite does without")),
        (false, _) => fail(saw),
    }
}

pub fn checksums(context: &Context) -> Verdict {
    match context.checksums {
        None => skip("pg_controldata says nothing of them"),
        // Without them wal_log_hints is enough, but not for a suite without authentication.
        Some(0) if context.suite_needs(pgseal_core::Suite::needs_data_checksums) == Some(true) => {
            needed(context, false, "off, and this suite needs them".to_owned())
        }
        Some(0) => match context.setting("wal_log_hints") {
            None => skip(format!("off; wal_log_hints: {}", context.no_settings())),
            Some(value) => {
                needed(context, value == "on", format!("off, and wal_log_hints is {value}"))
            }
        },
        Some(version) => needed(context, true, format!("on, version {version}")),
    }
}

pub fn full_page_writes(context: &Context) -> Verdict {
    let is_standby = context.dir.root.join("standby.signal").exists();
    match context.setting("full_page_writes") {
        Some("on") if is_standby && context.full_page_images == Some(false) => {
            needed(context, false, "on here, off on the primary at its last checkpoint".to_owned())
        }
        None => skip(context.no_settings()),
        Some(value) => needed(context, value == "on", value.to_owned()),
    }
}

pub fn fsync(context: &Context) -> Verdict {
    match context.setting("fsync") {
        None => skip(context.no_settings()),
        Some("on") => ok("on"),
        Some(value) => warn(format!("{value}: a power cut can damage the cluster beyond repair")),
    }
}

pub fn io_method(context: &Context) -> Verdict {
    match context.setting("io_method") {
        None => skip(context.no_settings()),
        Some(method @ ("sync" | "worker")) => ok(method),
        Some(method) => fail(format!("{method}: the server refuses to start with it")),
    }
}

pub fn log_statements(context: &Context) -> Verdict {
    if context.settings.is_err() {
        return skip(context.no_settings());
    }
    judge_log(|name| context.setting(name))
}

fn judge_log<'a>(setting: impl Fn(&str) -> Option<&'a str>) -> Verdict {
    let number = |name| setting(name).and_then(|value| value.parse::<f64>().ok());
    let mut saw = Vec::new();
    if let Some(what @ ("mod" | "all")) = setting("log_statement") {
        saw.push(format!("log_statement = {what}: rows that statements hold are in the log"));
    }
    // Without parameters, the logged texts of prepared statements contain few values.
    let has_parameters = number("log_parameter_max_length") != Some(0.0);
    for name in ["log_min_duration_statement", "log_min_duration_sample"] {
        if let Some(ms) = number(name).filter(|ms| *ms >= 0.0 && has_parameters) {
            saw.push(format!("{name} = {ms} logs statements and their parameters"));
        }
    }
    if number("log_transaction_sample_rate").is_some_and(|rate| rate > 0.0) {
        saw.push("log_transaction_sample_rate logs all statements of some transactions".to_owned());
    }
    if number("log_parameter_max_length_on_error").is_some_and(|length| length != 0.0) {
        saw.push(
            "log_parameter_max_length_on_error logs parameters of failed statements".to_owned(),
        );
    }
    match saw.is_empty() {
        true => ok("no statements but those that fail, without their parameters"),
        false => warn(saw.join("; ")),
    }
}

pub fn connections(context: &Context) -> Verdict {
    match (context.setting("listen_addresses"), context.setting("ssl")) {
        (Some(addresses), Some(ssl)) => judge_connections(addresses, ssl),
        _ => skip(context.no_settings()),
    }
}

fn judge_connections(addresses: &str, ssl: &str) -> Verdict {
    let is_local = |address: &str| matches!(address, "" | "localhost" | "127.0.0.1" | "::1");
    let all_local = addresses.split(',').map(str::trim).all(is_local);
    let saw = format!("listen_addresses = '{addresses}', ssl = {ssl}");
    if all_local || ssl == "on" { ok(saw) } else { warn(saw) }
}

#[cfg(test)]
mod tests {
    use super::super::verdict::State;
    use super::*;

    #[test]
    fn the_guard_is_found_by_name_or_path() {
        for list in
            ["pgseal_guard", "a, pgseal_guard", "/x/y/pgseal_guard.so,b", "\"pgseal_guard\""]
        {
            assert_eq!(judge_guard(list).state, State::Ok, "{list}");
        }
        for list in ["", "pg_stat_statements", "not_pgseal_guard"] {
            assert_eq!(judge_guard(list).state, State::Fail, "{list}");
        }
    }

    #[test]
    fn logs_that_hold_rows_are_named() {
        let judge = |settings: &[(&str, &'static str)]| {
            judge_log(|name| settings.iter().find(|(known, _)| *known == name).map(|(_, v)| *v))
        };
        let quiet = [("log_statement", "ddl"), ("log_min_duration_statement", "-1")];
        assert_eq!(judge(&quiet).state, State::Ok);
        let cases: [&[(&str, &str)]; 5] = [
            &[("log_statement", "all")],
            &[("log_min_duration_statement", "0"), ("log_parameter_max_length", "-1")],
            &[("log_min_duration_sample", "100")],
            &[("log_transaction_sample_rate", "0.5")],
            &[("log_parameter_max_length_on_error", "-1")],
        ];
        for case in cases {
            let verdict = judge(case);
            assert_eq!(verdict.state, State::Warn, "{case:?}");
            assert!(verdict.saw.contains(case[0].0), "{verdict:?}");
        }
        let without = [("log_min_duration_statement", "250"), ("log_parameter_max_length", "0")];
        assert_eq!(judge(&without).state, State::Ok);
    }

    #[test]
    fn open_ports_without_tls_are_named() {
        assert_eq!(judge_connections("localhost", "off").state, State::Ok);
        assert_eq!(judge_connections("", "off").state, State::Ok);
        assert_eq!(judge_connections("*", "on").state, State::Ok);
        for addresses in ["*", "localhost, 10.0.0.1", "0.0.0.0"] {
            assert_eq!(judge_connections(addresses, "off").state, State::Warn, "{addresses}");
        }
    }
}
