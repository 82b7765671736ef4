//! Decides what a call may do with a file, from facts alone: nothing is opened, loaded or written
//! here.
//!
//! "Fail closed" can be audited in this file alone. `plan.rs` gathers the facts about a path, calls
//! [`decide`], and fetches the keys. A file of a sealed class is sealed or refused, for each
//! program of PostgreSQL; each case that passes has its reason beside it.

use pgseal_core::FileKind;
use pgseal_pgdata::{Class, Policy};

use crate::place::program::Role;

/// The facts that decide about the file at a path.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// Which program asks.
    pub role: Role,
    /// The class of the file in a sealed data directory; `None`: the path lies in no such
    /// directory.
    pub class: Option<Class>,
    /// The file has the name of a server's lock file, `postmaster.pid`.
    pub is_lock_file: bool,
    /// The call makes the file if there is none (`O_CREAT`).
    pub creates: bool,
    /// The call empties the file (`O_TRUNC`).
    pub truncates: bool,
    /// A conversion of the data directory was interrupted: some files are sealed and some plain.
    pub is_half_converted: bool,
    /// The guard module is loaded, or this process needs none.
    pub is_guarded: bool,
    /// The kind as which a copy is sealed (a base backup, archived WAL), if program and name say
    /// that the file is such a copy.
    pub copy: Option<FileKind>,
}

/// What a call does with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The real call, unchanged.
    Pass,
    /// The real call, after the keys of the data directory are loaded.
    PassWithKeys,
    /// If the first bytes say that the file is sealed, it is opened as a sealed file, else by the
    /// real call.
    AsFound,
    /// The real call creates the lock file of a server, which is plain, once the server's keys,
    /// buffers and shared memory are ready.
    Lock,
    /// The file is sealed, or will be.
    Seal {
        /// The kind as which it is sealed if it is a copy; `None`: its class decides.
        copy: Option<FileKind>,
        /// An existing plain file is read as it is.
        reads_plain: bool,
    },
    /// The call fails.
    Refuse(Refusal),
}

/// Why a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Some files of the data directory are sealed and some plain.
    HalfConverted,
    /// A server without the guard module.
    NoGuard,
    /// The class of the file is refused, for this reason.
    OfClass(&'static str),
}

/// The verdict that follows from the facts.
pub fn decide(facts: &Facts) -> Verdict {
    // The executable is no program of PostgreSQL: it sees the sealed bytes.
    if facts.role == Role::Bystander {
        return Verdict::Pass;
    }
    let Some(class) = facts.class else { return outside(facts) };
    // Every program reads these files first; its own error message would not say what to do. The
    // keys of such a directory are refused as well, and with them every file of a sealed class.
    if facts.is_half_converted && matches!(class, Class::Version | Class::Control) {
        return Verdict::Refuse(Refusal::HalfConverted);
    }
    if class == Class::Postmaster && facts.is_lock_file && facts.creates {
        return Verdict::Lock;
    }
    // The first file that a server makes after it has loaded its modules is postmaster.opts:
    // nothing else has begun yet.
    if class == Class::Postmaster && facts.creates && !facts.is_guarded {
        return Verdict::Refuse(Refusal::NoGuard);
    }
    match class.policy() {
        Policy::Seal { .. } if !facts.is_guarded => Verdict::Refuse(Refusal::NoGuard),
        Policy::Seal { reads_plain, .. } => {
            // Received WAL in a directory with its own keyring has no class there.
            let copy = facts.copy.filter(|_| class == Class::Unknown);
            Verdict::Seal { copy, reads_plain }
        }
        Policy::Refuse(reason) if facts.creates => Verdict::Refuse(Refusal::OfClass(reason)),
        // An existing file of this class was made without pgseal, and may be read and removed.
        Policy::Refuse(_) => Verdict::Pass,
        // These programs change a data directory before they have read all of it.
        Policy::Plain(_) if class == Class::Control && facts.role.needs_keys_first() => {
            Verdict::PassWithKeys
        }
        // Earlier versions sealed timeline history.
        Policy::Plain(_) if class == Class::TimelineHistory && !facts.truncates => Verdict::AsFound,
        // The class holds no user data, or programs other than PostgreSQL must read it.
        Policy::Plain(_) => Verdict::Pass,
    }
}

/// The verdict on a path outside every sealed data directory.
fn outside(facts: &Facts) -> Verdict {
    let is_server = matches!(facts.role, Role::Server | Role::Standalone);
    if is_server && facts.is_lock_file && facts.creates {
        return Verdict::Lock;
    }
    match facts.copy {
        Some(kind) if facts.creates => Verdict::Seal { copy: Some(kind), reads_plain: true },
        // A file that is truncated and is no copy will hold nothing sealed.
        _ if facts.truncates => Verdict::Pass,
        _ => Verdict::AsFound,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use pgseal_pgdata::Fork;

    use super::*;

    const ROLES: [Role; 11] = [
        Role::Bystander,
        Role::Tool,
        Role::Initdb,
        Role::BaseBackup,
        Role::Server,
        Role::Standalone,
        Role::Walker,
        Role::Resetwal,
        Role::CombineBackup,
        Role::Upgrade,
        Role::ReceiveWal,
    ];

    const PASS: Verdict = Verdict::Pass;
    const FOUND: Verdict = Verdict::AsFound;
    const REFUSED: Verdict = Verdict::Refuse(Refusal::OfClass(Class::DynamicSharedMemory.reason()));

    const SEALED: [Verdict; 4] = [Verdict::Seal { copy: None, reads_plain: false }; 4];
    const SEALED_IF_NEW: [Verdict; 4] = [Verdict::Seal { copy: None, reads_plain: true }; 4];
    const PLAIN: [Verdict; 4] = [PASS; 4];

    const fn relation(fork: Fork, temporary: bool) -> Class {
        Class::Relation { fork, temporary }
    }

    /// Each class with its four verdicts: on a call without O_CREAT and O_TRUNC, with O_CREAT, with
    /// O_TRUNC, and with both. They hold for programs without a rule of their own.
    const TABLE: [(Class, [Verdict; 4]); 39] = [
        (relation(Fork::Main, false), SEALED),
        (relation(Fork::Fsm, false), SEALED),
        (relation(Fork::Vm, false), SEALED),
        (relation(Fork::Init, false), SEALED),
        (relation(Fork::Main, true), SEALED),
        (relation(Fork::Fsm, true), SEALED),
        (relation(Fork::Vm, true), SEALED),
        (relation(Fork::Init, true), SEALED),
        (Class::IncrementalRelation, SEALED),
        (Class::TempFile, SEALED),
        (Class::Wal, SEALED),
        (Class::WalSummary, SEALED),
        (Class::TimelineHistory, [FOUND, FOUND, PASS, PASS]),
        (Class::BackupHistory, PLAIN),
        (Class::ArchiveStatus, PLAIN),
        (Class::Slru, SEALED),
        (Class::RelationMap, SEALED),
        (Class::Control, PLAIN),
        (Class::TwoPhase, SEALED),
        (Class::ReplicationSlotState, SEALED),
        (Class::LogicalSpill, SEALED),
        (Class::LogicalSnapshot, SEALED),
        (Class::LogicalMapping, SEALED),
        (Class::ReplicationOrigin, SEALED),
        (Class::ExportedSnapshot, SEALED),
        (Class::Statistics, SEALED),
        (Class::StatementTexts, SEALED),
        (Class::RelcacheInit, SEALED),
        (Class::Version, PLAIN),
        (Class::Config, PLAIN),
        (Class::BackupLabel, PLAIN),
        (Class::Postmaster, PLAIN),
        (Class::ServerLog, PLAIN),
        (Class::UpgradeReport, PLAIN),
        (Class::TlsFile, PLAIN),
        (Class::DynamicSharedMemory, [PASS, REFUSED, PASS, REFUSED]),
        (Class::Own, PLAIN),
        (Class::TablespaceLink, PLAIN),
        (Class::Unknown, SEALED_IF_NEW),
    ];

    /// The ordinary case: a whole data directory, a guarded server.
    fn ordinary(role: Role, class: Option<Class>, creates: bool, truncates: bool) -> Facts {
        Facts {
            role,
            class,
            is_lock_file: false,
            creates,
            truncates,
            is_half_converted: false,
            is_guarded: true,
            copy: None,
        }
    }

    const FLAGS: [(bool, bool); 4] = [(false, false), (true, false), (false, true), (true, true)];

    /// All combinations of facts.
    fn all_facts() -> Vec<Facts> {
        let mut all = Vec::new();
        for role in ROLES {
            for class in TABLE.map(|(class, _)| Some(class)).into_iter().chain([None]) {
                for (creates, truncates) in FLAGS {
                    for bits in 0..8_u8 {
                        for copy in [None, Some(FileKind::Wal), Some(FileKind::Stream)] {
                            all.push(Facts {
                                is_lock_file: bits & 1 != 0,
                                is_half_converted: bits & 2 != 0,
                                is_guarded: bits & 4 == 0,
                                copy,
                                ..ordinary(role, class, creates, truncates)
                            });
                        }
                    }
                }
            }
        }
        all
    }

    #[test]
    fn every_class_role_and_flag_has_its_verdict() {
        for (class, row) in TABLE {
            for role in ROLES {
                for ((creates, truncates), of_class) in FLAGS.into_iter().zip(row) {
                    let wanted = match (role, class) {
                        (Role::Bystander, _) => PASS,
                        (Role::Walker | Role::Resetwal | Role::CombineBackup, Class::Control) => {
                            Verdict::PassWithKeys
                        }
                        _ => of_class,
                    };
                    let facts = ordinary(role, Some(class), creates, truncates);
                    assert_eq!(decide(&facts), wanted, "{facts:?}");
                }
            }
        }
    }

    /// The match makes a new class fail to compile here until the table above has it.
    #[test]
    fn no_class_is_missing() {
        for (class, _) in TABLE {
            match class {
                Class::Relation {
                    fork: Fork::Main | Fork::Fsm | Fork::Vm | Fork::Init, ..
                }
                | Class::IncrementalRelation
                | Class::TempFile
                | Class::Wal
                | Class::WalSummary
                | Class::TimelineHistory
                | Class::BackupHistory
                | Class::ArchiveStatus
                | Class::Slru
                | Class::RelationMap
                | Class::Control
                | Class::TwoPhase
                | Class::ReplicationSlotState
                | Class::LogicalSpill
                | Class::LogicalSnapshot
                | Class::LogicalMapping
                | Class::ReplicationOrigin
                | Class::ExportedSnapshot
                | Class::Statistics
                | Class::StatementTexts
                | Class::RelcacheInit
                | Class::Version
                | Class::Config
                | Class::BackupLabel
                | Class::Postmaster
                | Class::ServerLog
                | Class::UpgradeReport
                | Class::TlsFile
                | Class::DynamicSharedMemory
                | Class::Own
                | Class::TablespaceLink
                | Class::Unknown => {}
            }
        }
        let different: HashSet<Class> = TABLE.iter().map(|(class, _)| *class).collect();
        assert_eq!(different.len(), TABLE.len());
    }

    /// Fail closed: for every other combination of facts, a program of PostgreSQL gets a file of a
    /// sealed class sealed or not at all, and a server without the guard module gets none.
    #[test]
    fn a_file_of_a_sealed_class_never_passes() {
        for facts in all_facts() {
            let row = TABLE.iter().find(|(class, _)| Some(*class) == facts.class);
            let is_sealed = row.is_some_and(|(_, row)| [SEALED, SEALED_IF_NEW].contains(row));
            if facts.role == Role::Bystander || !is_sealed {
                continue;
            }
            let verdict = decide(&facts);
            if facts.is_guarded {
                assert!(matches!(verdict, Verdict::Seal { .. }), "{facts:?}: {verdict:?}");
            } else {
                assert_eq!(verdict, Verdict::Refuse(Refusal::NoGuard), "{facts:?}");
            }
        }
    }

    #[test]
    fn other_programs_see_each_file_as_it_is() {
        for facts in all_facts().iter().filter(|facts| facts.role == Role::Bystander) {
            assert_eq!(decide(facts), PASS, "{facts:?}");
        }
    }

    #[test]
    fn a_half_converted_directory_is_refused_by_what_is_read_first() {
        for facts in all_facts() {
            let first = matches!(facts.class, Some(Class::Version | Class::Control));
            let wanted = facts.is_half_converted && first && facts.role != Role::Bystander;
            let refused = decide(&facts) == Verdict::Refuse(Refusal::HalfConverted);
            assert_eq!(refused, wanted, "{facts:?}");
        }
    }

    #[test]
    fn a_server_without_the_guard_module_is_refused_by_what_it_makes_first() {
        for facts in all_facts() {
            if facts.role != Role::Bystander && facts.class == Some(Class::Postmaster) {
                let wanted = facts.creates && !facts.is_lock_file && !facts.is_guarded;
                let refused = decide(&facts) == Verdict::Refuse(Refusal::NoGuard);
                assert_eq!(refused, wanted, "{facts:?}");
            }
        }
    }

    #[test]
    fn a_lock_file_is_made_by_a_server_that_is_ready() {
        for facts in all_facts() {
            let is_server = matches!(facts.role, Role::Server | Role::Standalone);
            let locks = match facts.class {
                Some(class) => class == Class::Postmaster && facts.role != Role::Bystander,
                None => is_server,
            };
            let wanted = locks && facts.is_lock_file && facts.creates;
            assert_eq!(decide(&facts) == Verdict::Lock, wanted, "{facts:?}");
        }
    }

    #[test]
    fn a_copy_is_sealed_where_it_is_made() {
        for facts in all_facts() {
            let active = facts.role != Role::Bystander;
            let wanted = match facts.class {
                Some(class) => class == Class::Unknown && facts.is_guarded,
                None => facts.creates && decide(&facts) != Verdict::Lock,
            };
            let wanted = facts.copy.filter(|_| wanted && active);
            let found = match decide(&facts) {
                Verdict::Seal { copy, .. } => copy,
                _ => None,
            };
            assert_eq!(found, wanted, "{facts:?}");
        }
    }

    #[test]
    fn outside_every_data_directory_a_sealed_file_is_opened_as_one() {
        for role in ROLES.into_iter().filter(|role| *role != Role::Bystander) {
            let verdicts =
                FLAGS.map(|(creates, truncates)| decide(&ordinary(role, None, creates, truncates)));
            assert_eq!(verdicts, [FOUND, FOUND, PASS, PASS], "{role:?}");
        }
    }
}
