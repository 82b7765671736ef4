//! Checks a server that was started on an image.

use std::collections::{HashMap, HashSet};
use std::fs;

use pgseal_scenarios::Node;
use pgseal_scenarios::backup::base_backup_command;

use crate::workload::{BUILDER, TELLERS, Workload, of_mark};

/// Words in the server's log that point to damage.
const DAMAGE: [&str; 7] = [
    "PANIC",
    "does not authenticate",
    "damaged",
    "invalid page",
    "restore it",
    "could not read",
    "could not open file",
];

/// Whether a line of the log reports damage that a power cut must not cause. Torn pages of free
/// space and visibility maps are no damage: the plain server ("zeroing out page") and the sealed
/// server both rebuild them.
fn is_damage(line: &str) -> bool {
    let is_made_anew =
        ["zeroing out page", "PostgreSQL makes it anew"].iter().any(|words| line.contains(words));
    !is_made_anew && DAMAGE.iter().any(|word| line.contains(word))
}

/// The findings of all images.
#[derive(Debug, Default)]
pub struct Findings {
    texts: Vec<String>,
    new: bool,
}

impl Findings {
    /// Adds the findings of one image.
    pub fn add(&mut self, found: Vec<String>, image: impl FnOnce() -> String) {
        self.new = !found.is_empty();
        if self.new {
            let text = format!("{}:\n  {}", image(), found.join("\n  "));
            eprintln!("{text}");
            self.texts.push(text);
        }
    }

    /// Whether the last image had a finding.
    pub fn is_new(&self) -> bool {
        self.new
    }

    /// Whether no image had a finding.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// Ends the test; fails if there are findings.
    pub fn end(self, test: &str, images: u64) {
        let count = self.texts.len();
        assert!(count == 0, "{count} of {images} images:\n{}", self.texts.join("\n"));
        eprintln!("{test}: {images} images, nothing lost");
    }
}

/// Starts the server on the current image and uses the server. Returns what is wrong.
pub fn image(
    node: &mut Node,
    workload: &Workload,
    acknowledged: &[u64],
    sealed: bool,
    seed: u64,
) -> Vec<String> {
    let mut found = Vec::new();
    if let Err(log) = node.try_start() {
        return vec![format!("the server does not start:\n{log}")];
    }
    let mut last: HashMap<u64, u64> = HashMap::new();
    for (client, n) in acknowledged.iter().copied().map(of_mark) {
        last.insert(client, n);
    }
    let mut ask = |sql: &str| match node.try_sql(sql) {
        Ok(rows) => rows,
        Err(error) => {
            found.push(format!("{sql}\n{error}"));
            String::new()
        }
    };
    let there = ask("select client || ' ' || max(n) from ledger group by client");
    let steps = ask("select coalesce(max(n), 0) || ' ' || count(*) from step");
    let wrong = ask("select check_all()");
    let known_files =
        ask("select 'base/' || oid from pg_database where datconnlimit <> -2 union all \
         select pg_relation_filepath(oid) from pg_class \
         where pg_relation_filepath(oid) is not null union all \
         select regexp_replace(pg_relation_filepath('pg_class'), '[^/]*$', '1259')");
    ask("vacuum (analyze)");
    ask("checkpoint");
    let known_files: HashSet<&str> = known_files.lines().collect();
    let there: HashMap<u64, u64> = there.lines().filter_map(pair).collect();
    for client in 0..TELLERS {
        let known = last.get(&client).copied().unwrap_or(0);
        let have = there.get(&client).copied().unwrap_or(0);
        if have < known || have > workload.begun[client as usize].min(known + 1) {
            found.push(format!("client {client}: {known} acknowledged, {have} there"));
        }
    }
    let known = last.get(&BUILDER).copied().unwrap_or(0);
    match pair(&steps) {
        Some((have, count)) if have == count && (known..=known + 1).contains(&have) => {}
        other => found.push(format!("steps: {known} acknowledged, {other:?} there")),
    }
    found.extend(wrong.lines().map(str::to_owned));
    let log = node.log();
    found.extend(log.lines().filter(|line| is_damage(line)).map(|line| format!("log: {line}")));
    if seed.is_multiple_of(4) {
        let target = node.home().join("backup");
        // A torn database that `CREATE DATABASE` was copying may remain, unknown to the catalogs. A
        // backup of a plain server warns about its checksums, too, so checksums are not verified
        // here.
        let mut backup = base_backup_command(node, &target);
        let backup = backup.arg("--no-verify-checksums").output().expect("pg_basebackup runs");
        if !backup.status.success() {
            let said = String::from_utf8_lossy(&backup.stderr).into_owned();
            let server = node.log().split_off(log.len());
            found.push(format!("base backup: {said}{server}"));
        }
        let _ = fs::remove_dir_all(&target);
    }
    node.stop();
    if sealed {
        found.extend(unsound(node, &known_files));
    }
    found
}

/// What `pgseal verify` reports about files that the catalogs know. Files that were being created
/// at the cut remain, torn and unknown to the catalogs; this happens on a plain server, too. The
/// files of a database that was being dropped (invalid, `datconnlimit` -2) also remain, and nobody
/// syncs them any more.
fn unsound(node: &Node, known: &HashSet<&str>) -> Vec<String> {
    let verify = node.pgseal(&["verify", "--list", &node.data().display().to_string()]);
    let failed: Vec<&str> =
        verify.text.lines().filter_map(|line| line.strip_prefix("FAILED")).map(str::trim).collect();
    let mut found: Vec<String> = failed
        .iter()
        .filter(|line| !is_left_behind(line.split(':').next().unwrap_or_default(), known))
        .map(|line| format!("verify: {line}"))
        .collect();
    if failed.is_empty() && (verify.code != 0 || !verify.text.ends_with("Sound.\n")) {
        found.push(format!("verify: {}", verify.text));
    }
    found
}

/// Whether the catalogs do not know a file: its database is unknown, or its relation is unknown in
/// the database of the tests.
fn is_left_behind(path: &str, known: &HashSet<&str>) -> bool {
    let Some((database, file)) = path.rsplit_once('/') else { return false };
    let relation = file.split(['_', '.']).next().unwrap_or_default();
    let is_ours = known.contains(format!("{database}/1259").as_str());
    database.starts_with("base/")
        && (!known.contains(database)
            || is_ours && !known.contains(format!("{database}/{relation}").as_str()))
}

fn pair(line: &str) -> Option<(u64, u64)> {
    let (first, second) = line.split_once(' ')?;
    Some((first.parse().ok()?, second.parse().ok()?))
}
