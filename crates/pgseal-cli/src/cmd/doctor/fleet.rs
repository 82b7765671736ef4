//! `pgseal doctor --fleet`: many clusters in one table, and what is wrong with them by check.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::verdict::{State, exit_status};
use crate::diff;
use crate::error::CliError;
use crate::hosts::{Asking, Target};
use crate::out::{self, Out, count};

/// How many names of clusters stand behind a check.
const MAX_NAMES: usize = 8;

/// The options of a fleet.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Check each cluster in this file (-: standard input), one a line: HOST (the directory that
    /// PGDATA names there), HOST:DIR, or a directory of this machine
    #[arg(long, value_name = "FILE")]
    #[arg(conflicts_with_all = ["dir", "pgdata", "provider", "keyring", "bindir", "backup"])]
    fleet: Option<PathBuf>,
    /// With --fleet: how many clusters are asked at once
    #[arg(long, value_name = "N", default_value_t = 16, requires = "fleet")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=512))]
    jobs: u16,
    /// With --fleet: how long each of them may take
    #[arg(long, value_name = "SECONDS", default_value_t = 60, requires = "fleet")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=3600))]
    timeout: u16,
    /// With --fleet: an option for ssh, as "ssh -o" takes it; may be repeated
    #[arg(long, value_name = "OPTION", requires = "fleet")]
    ssh_option: Vec<String>,
    /// With --fleet: what runs pgseal on the other machines, for the shell there
    #[arg(long, value_name = "COMMAND", default_value = "pgseal", requires = "fleet")]
    remote: String,
}

/// What is shown of `pgseal doctor --json`. Another version may say more.
#[derive(Debug, Deserialize, Serialize)]
struct Answer {
    data_directory: String,
    ok: u64,
    warnings: u64,
    failures: u64,
    skipped: u64,
    checks: Vec<Row>,
}

#[derive(Debug, Deserialize, Serialize)]
struct Row {
    id: String,
    state: State,
    saw: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

#[derive(Debug, Serialize)]
struct Cluster {
    target: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    report: Option<Answer>,
    /// Why there is no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Cluster {
    fn state(&self) -> State {
        match &self.report {
            None => State::Fail,
            Some(report) if report.failures > 0 => State::Fail,
            Some(report) if report.warnings > 0 => State::Warn,
            Some(_) => State::Ok,
        }
    }
}

#[derive(Debug, Serialize)]
struct Fleet {
    clusters_ok: u64,
    clusters_with_warnings: u64,
    clusters_with_failures: u64,
    clusters_without_answer: u64,
    clusters: Vec<Cluster>,
}

impl Options {
    /// Asks all clusters, if there is a fleet. The exit status is the worst of them; one without an
    /// answer counts as a failure.
    pub fn run(&self, quiet: bool, json: bool) -> Result<Option<u8>, CliError> {
        let Some(list) = &self.fleet else { return Ok(None) };
        let targets = Target::list(list)?;
        let asking = Asking {
            words: &["doctor", "--json"],
            timeout: Duration::from_secs(self.timeout.into()),
            at_once: self.jobs.into(),
            ssh_options: self.ssh_option.clone(),
            remote: self.remote.clone(),
        };
        let is_hidden = quiet || json || !io::stderr().is_terminal();
        let bar = out::progress_bar(targets.len() as u64, is_hidden, "{pos} of {len} clusters");
        let answers = asking.ask_all::<Answer>(&targets, &|| bar.inc(1))?;
        bar.finish_and_clear();
        let mut fleet = Fleet {
            clusters_ok: 0,
            clusters_with_warnings: 0,
            clusters_with_failures: 0,
            clusters_without_answer: 0,
            clusters: Vec::with_capacity(targets.len()),
        };
        for (target, answer) in targets.into_iter().zip(answers) {
            let (report, error) = match answer {
                Ok(report) => (Some(report), None),
                Err(why) => (None, Some(why)),
            };
            let cluster = Cluster { target: target.name, report, error };
            *match (&cluster.report, cluster.state()) {
                (None, _) => &mut fleet.clusters_without_answer,
                (_, State::Fail) => &mut fleet.clusters_with_failures,
                (_, State::Warn) => &mut fleet.clusters_with_warnings,
                _ => &mut fleet.clusters_ok,
            } += 1;
            fleet.clusters.push(cluster);
        }
        let mut out = Out::new();
        if json {
            out.json(&fleet)?;
        } else {
            print(&mut out, &fleet, quiet)?;
        }
        out.flush()?;
        let failed = fleet.clusters_with_failures + fleet.clusters_without_answer;
        Ok(Some(exit_status(failed, fleet.clusters_with_warnings)))
    }
}

fn print(out: &mut Out, fleet: &Fleet, quiet: bool) -> io::Result<()> {
    let shown: Vec<&Cluster> =
        fleet.clusters.iter().filter(|cluster| !quiet || cluster.state() != State::Ok).collect();
    let names: Vec<String> = shown.iter().map(|cluster| diff::shown(&cluster.target)).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    for (cluster, name) in shown.iter().zip(&names) {
        let state = cluster.state().shown();
        match &cluster.report {
            Some(report) => {
                let bad = report.checks.iter().filter(|row| is_bad(row));
                let ids: Vec<String> = bad.map(|row| diff::shown(&row.id)).collect();
                let Answer { ok, warnings, failures, .. } = report;
                let line = format!(
                    "{state:<5} {name:width$}  {ok:>3} ok {warnings:>3} warn {failures:>3} fail  {}",
                    ids.join(" ")
                );
                writeln!(out, "{}", line.trim_end())?;
            }
            None => {
                let why = cluster.error.as_deref().unwrap_or_default();
                writeln!(out, "{state:<5} {name:width$}  no answer: {why}")?;
            }
        }
    }
    print_checks(out, fleet)?;
    if quiet && shown.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\n{}: {} ok, {} with warnings, {} with failures, {} without an answer",
        count(fleet.clusters.len() as u64, "cluster"),
        fleet.clusters_ok,
        fleet.clusters_with_warnings,
        fleet.clusters_with_failures,
        fleet.clusters_without_answer
    )
}

fn is_bad(row: &Row) -> bool {
    matches!(row.state, State::Warn | State::Fail)
}

/// The clusters on which a check is not well.
#[derive(Default)]
struct Found<'a> {
    clusters: Vec<&'a str>,
    fix: Option<&'a str>,
}

/// Which check is not well, on how many clusters, and how to mend it: failures first, and what is
/// most frequent first.
fn print_checks(out: &mut Out, fleet: &Fleet) -> io::Result<()> {
    let mut checks: BTreeMap<(&str, bool), Found<'_>> = BTreeMap::new();
    for cluster in &fleet.clusters {
        for row in cluster.report.iter().flat_map(|report| &report.checks).filter(|row| is_bad(row))
        {
            let found = checks.entry((&row.id, row.state == State::Fail)).or_default();
            found.clusters.push(&cluster.target);
            found.fix = found.fix.or(row.fix.as_deref());
        }
    }
    let mut checks: Vec<_> = checks.into_iter().collect();
    checks.sort_by_key(|((_, is_failure), found)| {
        (!is_failure, std::cmp::Reverse(found.clusters.len()))
    });
    if !checks.is_empty() {
        writeln!(out)?;
    }
    for ((id, is_failure), Found { clusters, fix }) in checks {
        let state = if is_failure { State::Fail } else { State::Warn }.shown();
        let named: Vec<String> =
            clusters.iter().take(MAX_NAMES).map(|name| diff::shown(name)).collect();
        let more = match clusters.len().saturating_sub(MAX_NAMES) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let on = count(clusters.len() as u64, "cluster");
        writeln!(out, "{state:<5} {:<20} on {on}: {}{more}", diff::shown(id), named.join(" "))?;
        if let Some(fix) = fix {
            writeln!(out, "      {:<20} fix: {}", "", diff::shown(fix))?;
        }
    }
    Ok(())
}
