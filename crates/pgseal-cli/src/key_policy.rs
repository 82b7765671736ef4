//! How the keys of a cluster stand against the policy of this machine (`/etc/pgseal/policy.conf`).
//!
//! What a rule is judged by comes from the keyring, which is authenticated only where the caller
//! has unlocked it, and from what this machine remembers outside of the data directory
//! ([`crate::memory`]). The record of escrow copies in the data directory meets no rule.

use std::time::{SystemTime, UNIX_EPOCH};

use pgseal_keys::{Clusters, KeyPolicy, Keyring, RULES, RecipientSummary, kind_of, seconds_of};
use serde::Serialize;

use crate::memory::{self, Drill, EscrowCopy};
use crate::out::count;

const DAY: i64 = 86400;

/// What the rules are judged by.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Seconds since 1970.
    pub now: i64,
    /// When the keyring was made.
    pub created: String,
    /// When the active data key was made.
    pub data_key_since: String,
    /// When the keyring last got another key, as far as this machine remembers.
    pub rotated: Option<String>,
    /// Further keys that open the keyring.
    pub recipients: Vec<RecipientSummary>,
    /// Who has a key, and its provider's URI.
    pub sources: Vec<(String, String)>,
    /// The generations of data keys.
    pub generations: Vec<u32>,
    /// The escrow copies that this machine remembers.
    pub copies: Vec<EscrowCopy>,
    /// The last check with an escrow copy that this machine remembers.
    pub drill: Option<Drill>,
    /// Whether this machine has a directory to remember in.
    pub remembers: bool,
}

impl Facts {
    /// Gathers them. Nothing in the keyring is authenticated by this.
    pub fn of(keyring: &Keyring) -> Facts {
        let summary = keyring.summary();
        let is_active = |number: u32| number == summary.active_generation;
        let active = summary.generations.iter().find(|entry| is_active(entry.generation));
        let memory = memory::of(keyring.id());
        let mut sources = vec![("the keyring".to_owned(), summary.provider.clone())];
        for recipient in &summary.recipients {
            sources.push((format!("recipient {}", recipient.name), recipient.provider.clone()));
        }
        let clusters = Clusters::from_environment();
        // A file that is refused is an error of its own wherever a key is asked for.
        let registered = clusters.providers_of(keyring.id(), keyring.datadir());
        for provider in registered.unwrap_or_default() {
            let uri = provider.to_string();
            if sources.iter().all(|(_, known)| *known != uri) {
                sources.push(("the cluster's file".to_owned(), uri));
            }
        }
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Facts {
            now: i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX),
            data_key_since: active.map(|entry| entry.created.clone()).unwrap_or_default(),
            // A keyring that was restored later has got its key then.
            rotated: memory.rotated.filter(|when| *when >= summary.created),
            created: summary.created,
            sources,
            generations: summary.generations.iter().map(|entry| entry.generation).collect(),
            recipients: summary.recipients,
            copies: memory.escrow,
            drill: memory.drill,
            remembers: memory::directory().is_some(),
        }
    }

    /// How long ago a time was, in seconds; `None` for a time that is a day or more in the future.
    pub fn age(&self, time: &str) -> Option<u64> {
        let age = self.now.checked_sub(seconds_of(time)?)?;
        if age <= -DAY {
            return None;
        }
        u64::try_from(age.max(0)).ok()
    }

    /// The escrow copies that hold all generations, or not.
    pub fn copies_that_hold(&self, all: bool) -> usize {
        self.copies.iter().filter(|copy| self.holds_all(&copy.generations) == all).count()
    }

    fn holds_all(&self, held: &[u32]) -> bool {
        self.generations.iter().all(|number| held.contains(number))
    }
}

/// Whether a rule is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It is met.
    Met,
    /// It is not met.
    Broken,
    /// Nothing that can be trusted shows that it is met.
    Unknown,
    /// The policy has no such rule.
    Unset,
}

impl State {
    /// For a list.
    pub fn shown(self) -> &'static str {
        match self {
            State::Met => "met",
            State::Broken => "NOT MET",
            State::Unknown => "NOT SHOWN",
            State::Unset => "no rule",
        }
    }
}

/// One rule.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name in the policy.
    pub rule: &'static str,
    /// What the policy wants.
    pub wanted: Option<String>,
    /// Whether it is met.
    pub state: State,
    /// How the cluster stands, in words.
    pub found: String,
    /// How many whole days are left, or, below 0, since when it is overdue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub days_left: Option<i64>,
}

impl Row {
    /// Whether a rule is set and cannot be shown to be met.
    pub fn is_open(&self) -> bool {
        matches!(self.state, State::Broken | State::Unknown)
    }
}

/// The policy of this machine, and how a cluster stands.
#[derive(Clone, Debug, Serialize)]
pub struct Look {
    /// The file.
    pub file: String,
    /// Why the file is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// All rules, also those that are not set.
    pub rules: Vec<Row>,
}

impl Look {
    /// Looks at the policy; `None` if there is none.
    pub fn at(keyring: &Keyring, facts: &Facts) -> Option<Look> {
        let path = KeyPolicy::path();
        let file = path.display().to_string();
        match KeyPolicy::load(&path, keyring.datadir()) {
            Ok(None) => None,
            Ok(Some(policy)) => Some(Look { file, error: None, rules: judge(&policy, facts) }),
            Err(error) => Some(Look { file, error: Some(error.to_string()), rules: Vec::new() }),
        }
    }

    /// The names of the rules that cannot be shown to be met.
    pub fn open_rules(&self) -> Vec<&'static str> {
        self.rules.iter().filter(|row| row.is_open()).map(|row| row.rule).collect()
    }

    /// How many rules are set.
    pub fn set_rules(&self) -> usize {
        self.rules.iter().filter(|row| row.state != State::Unset).count()
    }
}

/// Judges all rules.
pub fn judge(policy: &KeyPolicy, facts: &Facts) -> Vec<Row> {
    RULES.iter().map(|rule| judge_one(rule, policy, facts)).collect()
}

fn judge_one(rule: &'static str, policy: &KeyPolicy, facts: &Facts) -> Row {
    match rule {
        "rotate-days" => rotation(rule, policy.rotate_days, facts),
        "renew-days" => {
            let since = &facts.data_key_since;
            let found = |age: &str| format!("the active data key is of {since}, {age}");
            aged(rule, policy.renew_days, facts, since, found)
        }
        "min-recipients" => {
            let names: Vec<&str> =
                facts.recipients.iter().map(|recipient| recipient.name.as_str()).collect();
            let found = match names.as_slice() {
                [] => "there is no recipient".to_owned(),
                names => {
                    format!("{}: {}", count(names.len() as u64, "recipient"), names.join(", "))
                }
            };
            let is_met = |least: &u32| names.len() as u64 >= u64::from(*least);
            let wanted = policy.min_recipients;
            row(rule, wanted.map(|n| n.to_string()), wanted.as_ref().map(is_met), found)
        }
        "providers" => {
            let allowed = policy.providers.as_ref();
            let is_allowed = |uri: &str| {
                allowed.is_none_or(|kinds| kinds.iter().any(|kind| kind == kind_of(uri)))
            };
            let shown = |wanted: bool| {
                let of_them = facts.sources.iter().filter(|(_, uri)| is_allowed(uri) == wanted);
                let words = of_them.map(|(who, uri)| format!("{who}: {}", shown_kind(uri)));
                words.collect::<Vec<_>>().join(", ")
            };
            let forbidden = shown(false);
            let is_met = allowed.map(|_| forbidden.is_empty());
            let found = if forbidden.is_empty() { shown(true) } else { forbidden };
            row(rule, allowed.map(|kinds| kinds.join(", ")), is_met, found)
        }
        "escrow" => escrow(rule, policy.escrow, facts),
        _ => drill(rule, policy.drill_days, facts),
    }
}

/// The kind of a provider, which an attacker may have named.
fn shown_kind(uri: &str) -> String {
    kind_of(uri).chars().take(32).flat_map(char::escape_debug).collect()
}

fn row(rule: &'static str, wanted: Option<String>, is_met: Option<bool>, found: String) -> Row {
    let state = match is_met {
        None => State::Unset,
        Some(true) => State::Met,
        Some(false) => State::Broken,
    };
    Row { rule, wanted, state, found, days_left: None }
}

/// The row of a rule about a time.
fn aged(
    rule: &'static str,
    most: Option<u32>,
    facts: &Facts,
    since: &str,
    found: impl FnOnce(&str) -> String,
) -> Row {
    let wanted = most.map(|days| format!("{days} days"));
    let Some(age) = facts.age(since) else {
        let found = found("which is in the future: is the clock right?");
        let state = if most.is_some() { State::Unknown } else { State::Unset };
        return Row { rule, wanted, state, found, days_left: None };
    };
    let days = i64::try_from(age).unwrap_or(i64::MAX) / DAY;
    let found = found(&format!("{} ago", count(days.unsigned_abs(), "day")));
    // 30 days are over when the 31st begins.
    let is_met = most.map(|most| age <= u64::from(most) * DAY.unsigned_abs());
    let left = most.map(|most| (i64::from(most) * DAY).saturating_sub_unsigned(age));
    Row { days_left: left.map(|left| left.div_euclid(DAY)), ..row(rule, wanted, is_met, found) }
}

fn rotation(rule: &'static str, most: Option<u32>, facts: &Facts) -> Row {
    if let Some(rotated) = &facts.rotated {
        let found = |age: &str| format!("the keyring got another key {rotated}, {age}");
        return aged(rule, most, facts, rotated, found);
    }
    let created = &facts.created;
    let found = |age: &str| {
        format!("no rotation is remembered on this machine; the keyring is of {created}, {age}")
    };
    let mut row = aged(rule, most, facts, created, found);
    if row.state == State::Broken {
        // It may have been rotated on another machine.
        row.state = State::Unknown;
    }
    row
}

const NO_MEMORY: &str = "there is no /var/lib/pgseal to remember it in (docs/monitoring.md)";

fn escrow(rule: &'static str, wanted: Option<()>, facts: &Facts) -> Row {
    let wanted = wanted.map(|()| "required".to_owned());
    let whole = facts.copies.iter().rev().find(|copy| facts.holds_all(&copy.generations));
    let found = match (whole, facts.copies.last()) {
        (Some(copy), _) => format!("a copy of {}, opened by {}", copy.made, copy.opened_by),
        (None, Some(copy)) => format!("the last copy, of {}, lacks data keys", copy.made),
        (None, None) if facts.remembers => {
            "this machine remembers none; pgseal key check DIR --escrow FILE shows it one"
                .to_owned()
        }
        (None, None) => NO_MEMORY.to_owned(),
    };
    let mut row = row(rule, wanted.clone(), wanted.map(|_| whole.is_some()), found);
    if row.state == State::Broken && facts.copies.is_empty() {
        row.state = State::Unknown;
    }
    row
}

fn drill(rule: &'static str, most: Option<u32>, facts: &Facts) -> Row {
    let wanted = || most.map(|days| format!("{days} days"));
    let Some(last) = &facts.drill else {
        let found = match facts.remembers {
            true => "this machine remembers none: pgseal key check DIR --escrow FILE".to_owned(),
            false => NO_MEMORY.to_owned(),
        };
        let state = if most.is_some() { State::Unknown } else { State::Unset };
        return Row { rule, wanted: wanted(), state, found, days_left: None };
    };
    let when = &last.when;
    if !facts.holds_all(&last.generations) {
        let found = format!("the last one, {when}, was before the newest data key");
        return row(rule, wanted(), most.map(|_| false), found);
    }
    aged(rule, most, facts, when, |age| format!("the last one was {when}, {age}"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// 2026-03-01.
    const NOW: i64 = 1_772_323_200;

    fn facts() -> Facts {
        assert_eq!(seconds_of("2026-03-01T00:00:00Z"), Some(NOW));
        Facts {
            now: NOW,
            created: "2026-01-30T00:00:00Z".to_owned(),
            data_key_since: "2026-02-01T00:00:00Z".to_owned(),
            sources: vec![("the keyring".to_owned(), "file:/k".to_owned())],
            generations: vec![1, 2],
            remembers: true,
            ..Facts::default()
        }
    }

    fn judged(rule: &str, facts: &Facts) -> Row {
        let policy = KeyPolicy::parse(rule, Path::new("/p")).unwrap();
        let name = rule.split(' ').next().unwrap();
        judge(&policy, facts).into_iter().find(|row| row.rule == name).unwrap()
    }

    #[test]
    fn every_rule_has_a_row_and_none_is_set_by_itself() {
        let rows = judge(&KeyPolicy::default(), &facts());
        let names: Vec<&str> = rows.iter().map(|row| row.rule).collect();
        assert_eq!(names, RULES);
        assert!(rows.iter().all(|row| row.state == State::Unset && row.wanted.is_none()));
    }

    #[test]
    fn times_are_judged_to_the_day() {
        let row = judged("renew-days = 28", &facts());
        assert_eq!((row.state, row.days_left), (State::Met, Some(0)));
        let row = judged("renew-days = 27", &facts());
        assert_eq!((row.state, row.days_left), (State::Broken, Some(-1)));
        assert!(row.found.contains("28 days ago"), "{}", row.found);
        let later = Facts { data_key_since: "2026-03-03T00:00:00Z".to_owned(), ..facts() };
        assert_eq!(judged("renew-days = 5", &later).state, State::Unknown);
        let skewed = Facts { data_key_since: "2026-03-01T12:00:00Z".to_owned(), ..facts() };
        assert_eq!(judged("renew-days = 5", &skewed).state, State::Met);
    }

    #[test]
    fn a_rotation_that_nobody_remembers_is_not_invented() {
        let row = judged("rotate-days = 29", &facts());
        assert_eq!((row.state, row.days_left), (State::Unknown, Some(-1)));
        // No key is longer in the keyring than there is the keyring.
        assert_eq!(judged("rotate-days = 30", &facts()).state, State::Met);
        let rotated = |when: &str| Facts { rotated: Some(when.to_owned()), ..facts() };
        assert_eq!(judged("rotate-days = 29", &rotated("2026-02-20T00:00:00Z")).state, State::Met);
        let row = judged("rotate-days = 5", &rotated("2026-02-20T00:00:00Z"));
        assert_eq!((row.state, row.days_left), (State::Broken, Some(-4)));
    }

    #[test]
    fn recipients_and_kinds_are_counted() {
        assert_eq!(judged("min-recipients = 1", &facts()).state, State::Broken);
        let mut with = facts();
        with.recipients.push(RecipientSummary {
            name: "next".to_owned(),
            created: "2026-02-01T00:00:00Z".to_owned(),
            provider: "vault:transit/x".to_owned(),
            store_key: None,
        });
        with.sources.push(("recipient next".to_owned(), "vault:transit/x".to_owned()));
        assert_eq!(judged("min-recipients = 1", &with).state, State::Met);
        assert_eq!(judged("providers = vault, file", &with).state, State::Met);
        let row = judged("providers = vault", &with);
        assert_eq!((row.state, row.found.as_str()), (State::Broken, "the keyring: file"));
    }

    #[test]
    fn copies_and_drills_are_those_that_this_machine_remembers() {
        let row = judged("escrow = required", &facts());
        assert_eq!(row.state, State::Unknown);
        let nowhere = Facts { remembers: false, ..facts() };
        assert!(judged("escrow = required", &nowhere).found.contains("no /var/lib/pgseal"));
        assert_eq!(judged("drill-days = 9", &nowhere).state, State::Unknown);
        let copy = |generations: &[u32]| EscrowCopy {
            made: "2026-02-10T00:00:00Z".to_owned(),
            opened_by: "a passphrase".to_owned(),
            generations: generations.to_vec(),
        };
        let with = |copies: Vec<EscrowCopy>| Facts { copies, ..facts() };
        assert_eq!(judged("escrow = required", &with(vec![copy(&[1])])).state, State::Broken);
        let whole = with(vec![copy(&[1, 2]), copy(&[1])]);
        assert_eq!(judged("escrow = required", &whole).state, State::Met);
        assert_eq!((whole.copies_that_hold(true), whole.copies_that_hold(false)), (1, 1));
        let drilled = |generations: &[u32]| {
            let when = "2026-02-25T00:00:00Z".to_owned();
            Facts { drill: Some(Drill { when, generations: generations.to_vec() }), ..facts() }
        };
        assert_eq!(judged("drill-days = 4", &drilled(&[1, 2])).state, State::Met);
        assert_eq!(judged("drill-days = 3", &drilled(&[1, 2])).state, State::Broken);
        assert_eq!(judged("drill-days = 4", &drilled(&[1])).state, State::Broken);
    }
}
