//! Checks a server that was started on an image.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::time::{Duration, Instant};

use pgseal_cluster::Patience;
use pgseal_scenarios::Node;
use pgseal_scenarios::backup::base_backup_command;

use crate::findings::Findings;
use crate::machine::{change_suite, rewrite};
use crate::phase::of_mark;
use crate::workload::{BUILDER, TELLERS, Workload};

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
    // Statistics are not synced at a stop, and are no loss.
    let is_made_anew = ["zeroing out page", "PostgreSQL makes it anew", "pg_stat/pgstat.stat"]
        .iter()
        .any(|words| line.contains(words));
    !is_made_anew && DAMAGE.iter().any(|word| line.contains(word))
}

/// The lines that a client got, without the warnings about a torn free space map that the server,
/// also a plain one, makes anew.
fn without_maps_made_anew(said: &str) -> Vec<&str> {
    let mut kept: Vec<&str> = Vec::new();
    for line in said.lines() {
        if line.contains("_fsm; zeroing out page") {
            kept.pop_if(|before| before.contains("page verification failed"));
        } else {
            kept.push(line);
        }
    }
    kept
}

/// What is known of an image.
pub struct Case<'a> {
    /// What the clients did in the whole run.
    pub workload: &'a Workload,
    /// The marks before the cut.
    pub acknowledged: &'a [u64],
    /// Whether the server is sealed.
    pub sealed: bool,
    /// Whether the server is a standby, which has to be promoted.
    pub is_standby: bool,
    /// The suite that the server was changing to.
    pub changes_to: Option<&'a str>,
    /// The seed of the cut. For some seeds more is checked.
    pub seed: u64,
}

impl Case<'_> {
    /// The suite that the server is changed to at the end, if that is checked for this seed.
    fn finishes_change(&self) -> Option<&str> {
        self.changes_to.filter(|_| self.seed.is_multiple_of(4))
    }
}

/// The main fork of an unlogged relation that PostgreSQL, also a plain one, could not make anew.
fn left_of_unlogged(log: &str) -> Option<String> {
    let (_, rest) = log.split_once("FATAL:  could not create file \"base/")?;
    let (path, rest) = rest.split_once('"')?;
    let is_main = path.bytes().all(|byte| byte.is_ascii_digit() || byte == b'/');
    (is_main && rest.starts_with(": File exists")).then(|| format!("base/{path}"))
}

/// Starts the server on the current image and uses the server. Returns what is wrong.
pub fn image(node: &mut Node, case: &Case<'_>, figures: &mut Findings) -> Vec<String> {
    let mut found = Vec::new();
    node.clear_log();
    // A cut while PostgreSQL makes its lock file leaves nothing in it, and the administrator
    // removes it.
    let lock = node.file("postmaster.pid");
    if fs::read(&lock).is_ok_and(|bytes| bytes.iter().all(|byte| *byte == 0)) {
        fs::remove_file(&lock).expect("it can be removed");
    }
    let start = Instant::now();
    let try_start =
        |node: &mut Node| if case.sealed { node.try_start() } else { node.try_start_bare() };
    let mut started = try_start(node);
    if let Err(log) = &started
        && let Some(left) = left_of_unlogged(log)
    {
        // PostgreSQL removes the main fork of an unlogged relation before recovery if there is an
        // init fork, and makes it from that one after recovery. If the cut left the main fork
        // without the init fork, redo makes the latter, and the administrator removes the former.
        let left = node.file(&left);
        fs::remove_file(&left).expect("it can be removed");
        started = try_start(node);
    }
    if let Err(log) = started {
        return vec![format!("the server does not start:\n{log}")];
    }
    figures.spent("start", start);
    let start = Instant::now();
    if case.is_standby && !promote(node) {
        found.push("the standby cannot be promoted".to_owned());
    }
    let known_files = use_server(node, case, &mut found);
    let log = node.log();
    found.extend(log.lines().filter(|line| is_damage(line)).map(|line| format!("log: {line}")));
    figures.spent("queries", start);
    let mut known_files = known_files;
    if let Some(suite) = case.finishes_change() {
        let start = Instant::now();
        known_files = finish_change(node, suite, &mut found);
        figures.spent("change of the suite", start);
    }
    let can_backup = case.sealed || !node.pgseal_program().is_file();
    if case.seed.is_multiple_of(8) && can_backup && node.sql("show max_wal_senders") != "0" {
        let start = Instant::now();
        let target = node.home().join("backup");
        // A torn database that `CREATE DATABASE` was copying may remain, unknown to the catalogs. A
        // backup of a plain server warns about its checksums, too, so checksums are not verified
        // here.
        let moved = node.home().join("backup_ts");
        let mut backup = base_backup_command(node, &target);
        let backup = backup.arg("--no-verify-checksums");
        for name in ["ts", "ts2"] {
            let place = node.data().with_file_name(name);
            let map = format!("{}={}", place.display(), moved.join(name).display());
            backup.args(["--tablespace-mapping", &map]);
        }
        let backup = backup.output().expect("pg_basebackup runs");
        if !backup.status.success() {
            let said = String::from_utf8_lossy(&backup.stderr).into_owned();
            let server = node.log().split_off(log.len());
            found.push(format!("base backup: {said}{server}"));
        }
        let _ = fs::remove_dir_all(&target);
        let _ = fs::remove_dir_all(&moved);
        figures.spent("backup", start);
    }
    let start = Instant::now();
    node.stop();
    figures.spent("stop", start);
    if case.sealed {
        let start = Instant::now();
        found.extend(unsound(node, &known_files));
        figures.spent("verify", start);
    }
    found
}

/// Promotes a standby, if it still is one; `false`: it does not end its recovery. Replay may cancel
/// a query that waits for the promotion, so none does.
pub fn promote(node: &Node) -> bool {
    Patience::every(Duration::from_millis(50), 60).wait_until(|| {
        let _ = node.try_sql("select pg_promote(false) where pg_is_in_recovery()");
        node.try_sql("select not pg_is_in_recovery()").as_deref() == Ok("t")
    })
}

/// The files that the catalogs know: databases, and the relations of this one.
const KNOWN_FILES: &str = "select 'base/' || oid from pg_database where datconnlimit <> -2 union all \
    select pg_relation_filepath(oid) from pg_class \
    where pg_relation_filepath(oid) is not null union all \
    select regexp_replace(pg_relation_filepath('pg_class'), '[^/]*$', '1259')";

/// Finishes a change of the suite that was cut off, with the same commands. Returns the files that
/// the catalogs know then.
fn finish_change(node: &Node, suite: &str, found: &mut Vec<String>) -> HashSet<String> {
    change_suite(node, suite);
    let (_, said) = rewrite(node, &["--pages-per-second", "0"]);
    let known: HashSet<String> = node.sql(KNOWN_FILES).lines().map(str::to_owned).collect();
    let left = said.lines().filter_map(|line| line.strip_prefix("  "));
    found.extend(
        left.filter(|name| !name.starts_with("and ") && !is_left_behind(name, &known))
            .map(|name| format!("{name} is still in an older suite:\n{said}")),
    );
    if !said.contains("made anew in") || said.contains("could not be made anew") {
        found.push(format!("the change of the suite does not end:\n{said}"));
    }
    let wrong = node.sql("select check_all()");
    found.extend(without_maps_made_anew(&wrong).into_iter().map(str::to_owned));
    known
}

/// Queries and changes the data in one session. Returns the files that the catalogs know.
fn use_server(node: &Node, case: &Case<'_>, found: &mut Vec<String>) -> HashSet<String> {
    let mut session = node.session();
    let mut ask = |sql: &str| match session.run(sql) {
        Some(said) if !["ERROR:", "FATAL:", "PANIC:"].iter().any(|word| said.contains(word)) => {
            said
        }
        said => {
            found.push(format!("{sql}\n{}", said.as_deref().unwrap_or("the connection is gone")));
            String::new()
        }
    };
    let there = ask("select client || ' ' || max(n) from ledger group by client");
    let steps = ask("select coalesce(max(n), 0) || ' ' || count(*) from step");
    // The check writes as well, and is made again when a change of the suite has been finished.
    let wrong = match case.finishes_change() {
        Some(_) => ask("begin; select check_all(); rollback"),
        None => ask("select check_all()"),
    };
    let known_files = ask(KNOWN_FILES);
    match case.seed.is_multiple_of(4) {
        true => ask("vacuum (analyze)"),
        false => ask("vacuum (analyze) account, ledger, step, shrinking, scratch, pg_class"),
    };
    ask("checkpoint");
    let mut last: HashMap<u64, u64> = HashMap::new();
    for (client, n) in case.acknowledged.iter().copied().map(of_mark) {
        last.insert(client, n);
    }
    let there: HashMap<u64, u64> = there.lines().filter_map(pair).collect();
    for client in 0..TELLERS {
        let known = last.get(&client).copied().unwrap_or(0);
        let have = there.get(&client).copied().unwrap_or(0);
        if have < known || have > case.workload.begun[client as usize].min(known + 1) {
            found.push(format!("client {client}: {known} acknowledged, {have} there"));
        }
    }
    let known = last.get(&BUILDER).copied().unwrap_or(0);
    match pair(&steps) {
        Some((have, count)) if have == count && (known..=known + 1).contains(&have) => {}
        other => found.push(format!("steps: {known} acknowledged, {other:?} there")),
    }
    found.extend(without_maps_made_anew(&wrong).into_iter().map(str::to_owned));
    known_files.lines().map(str::to_owned).collect()
}

/// What `pgseal verify` reports about files that the catalogs know. Files that were being created
/// at the cut remain, torn and unknown to the catalogs; this happens on a plain server, too. The
/// files of a database that was being dropped (invalid, `datconnlimit` -2) also remain, and nobody
/// syncs them any more.
fn unsound(node: &Node, known: &HashSet<String>) -> Vec<String> {
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
fn is_left_behind(path: &str, known: &HashSet<String>) -> bool {
    let Some((database, file)) = path.rsplit_once('/') else { return false };
    let relation = file.split(['_', '.']).next().unwrap_or_default();
    let is_known = known.contains(&format!("{database}/{relation}"));
    if database.starts_with("pg_tblspc/") {
        // Only the database of the tests has relations in tablespaces.
        return !is_known;
    }
    if database == "global" {
        return !is_known;
    }
    let is_ours = known.contains(&format!("{database}/1259"));
    database.starts_with("base/") && (!known.contains(database) || is_ours && !is_known)
}

fn pair(line: &str) -> Option<(u64, u64)> {
    let (first, second) = line.split_once(' ')?;
    Some((first.parse().ok()?, second.parse().ok()?))
}
