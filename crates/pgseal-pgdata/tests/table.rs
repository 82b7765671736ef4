//! The table of classes agrees with the classifier, and the policies with their rules.

use std::collections::HashSet;

use pgseal_core::FileKind;
use pgseal_pgdata::{Class, Fork, KeyScope, Policy, TABLE, classify};

#[test]
fn every_example_is_of_its_class() {
    for row in &TABLE {
        assert_eq!(classify(row.example.as_bytes()), row.class, "{}", row.example);
        assert_eq!(row.name, row.class.name());
        assert_eq!(row.policy, row.class.policy());
        assert_eq!(row.reason, row.class.reason());
        assert!(!row.reason.is_empty() && row.reason.is_ascii() && !row.reason.ends_with('.'));
    }
}

#[test]
fn names_are_kebab_case_and_unique() {
    let names: HashSet<&str> = TABLE.iter().map(|row| row.name).collect();
    assert_eq!(names.len(), TABLE.len());
    for name in names {
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{name}");
    }
}

/// Which classes stay plain is a promise to users: a change also needs a change of the threat
/// model.
#[test]
fn only_the_listed_classes_are_plain_or_refused() {
    let named = |wanted: fn(&Policy) -> bool| -> Vec<&str> {
        TABLE.iter().filter(|row| wanted(&row.policy)).map(|row| row.name).collect()
    };
    assert_eq!(
        named(|policy| matches!(policy, Policy::Plain(_))),
        [
            "timeline-history",
            "backup-history",
            "archive-status",
            "control",
            "version",
            "config",
            "backup-label",
            "postmaster",
            "server-log",
            "upgrade-report",
            "tls-file",
            "own",
            "tablespace-link",
        ]
    );
    assert_eq!(named(|policy| matches!(policy, Policy::Refuse(_))), ["dynamic-shared-memory"]);
    assert_eq!(
        named(|policy| matches!(policy, Policy::Seal { reads_plain: true, .. })),
        ["unknown"]
    );
    assert_eq!(
        named(|policy| matches!(policy, Policy::Seal { scope: KeyScope::Ephemeral, .. })),
        ["temporary-relation", "temp-file"]
    );
    assert_eq!(named(|policy| matches!(policy, Policy::Seal { kind: FileKind::Wal, .. })), ["wal"]);
    assert_eq!(
        named(|policy| matches!(policy, Policy::Seal { kind: FileKind::Sectored, .. })),
        ["slru", "relation-map", "logical-mapping"]
    );
    assert_eq!(
        named(|policy| matches!(policy, Policy::Seal { kind: FileKind::Relation, .. })),
        ["relation", "temporary-relation"]
    );
}

#[test]
fn all_forks_of_a_relation_have_its_policy() {
    for temporary in [false, true] {
        let main = Class::Relation { fork: Fork::Main, temporary };
        for fork in [Fork::Fsm, Fork::Vm, Fork::Init] {
            let class = Class::Relation { fork, temporary };
            assert_eq!(class.policy(), main.policy());
            assert_eq!(class.name(), main.name());
        }
    }
}
