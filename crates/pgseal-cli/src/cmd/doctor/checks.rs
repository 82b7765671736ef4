//! The table of checks. `docs/doctor.md` shows it; a test keeps the two in step.

use super::context::Context;
use super::verdict::Verdict;
use super::{files, keys, memory, postgres, settings, trail};

/// One check.
pub struct Check {
    /// Its name, for programs.
    pub id: &'static str,
    /// What it checks, for docs/doctor.md.
    pub what: &'static str,
    /// How to fix it.
    pub fix: &'static str,
    /// The check itself.
    pub run: fn(&Context) -> Verdict,
}

const fn check(
    id: &'static str,
    what: &'static str,
    fix: &'static str,
    run: fn(&Context) -> Verdict,
) -> Check {
    Check { id, what, fix, run }
}

/// All checks, in the order in which they are made.
pub const CHECKS: &[Check] = &[
    check(
        "postgresql-version",
        "The major version of PostgreSQL is one that pgseal is tested with",
        "use PostgreSQL 15 to 18; docs/versions.md",
        postgres::version,
    ),
    check(
        "server",
        "Whether a server runs, and its processes can be looked at",
        "run pgseal doctor as the server's user or as root",
        postgres::server,
    ),
    check(
        "conversion",
        "No conversion (encrypt, decrypt, rekey) is unfinished",
        "run that command to its end, or go back with pgseal decrypt --yes-write-plain DIR; docs/convert.md",
        files::conversion,
    ),
    check(
        "renewal",
        "No renewal of the data key or change of the suite waits for the server",
        "pgseal key renew --finish DIR; docs/keys.md",
        files::renewal,
    ),
    check(
        "library",
        "The library libpgseal.so is where the program expects it",
        "install pgseal anew (make install), or set PGSEAL_LIBRARY to the path of libpgseal.so",
        postgres::library,
    ),
    check(
        "library-version",
        "The library is of the same version as the program; the running server has not an older one",
        "install program and library of one version, then restart the server",
        postgres::library_version,
    ),
    check(
        "library-loaded",
        "The library is loaded in every process of the server",
        "stop the server and start it with: pgseal run -- pg_ctl -D DIR start (or pgseal env for services)",
        postgres::library_loaded,
    ),
    check(
        "audit",
        "The server's program passes the library's audit of file calls",
        "use a newer pgseal, or report the program and its version",
        postgres::audit,
    ),
    check(
        "guard",
        "The guard module is in shared_preload_libraries and not switched off",
        "shared_preload_libraries = 'pgseal_guard' in postgresql.conf (unset PGSEAL_GUARD), then restart",
        settings::guard,
    ),
    check(
        "environment",
        "No variable of the server's environment lets other programs see plain content",
        "unset PGSEAL_PROGRAMS and PGSEAL_UNSEALED_COPY for the server unless it must be so, then restart",
        postgres::environment,
    ),
    check(
        "anchor",
        "The server has an anchor, which tells an older copy of the whole data directory",
        "set PGSEAL_ANCHOR for the server, then pgseal anchor accept DIR and restart; docs/anchor.md",
        postgres::anchor,
    ),
    check(
        "accelerators",
        "Reading and writing of tags is not slowed down for a test",
        "unset PGSEAL_ACCELERATORS for the server, then restart",
        postgres::accelerators,
    ),
    check(
        "watched-pages",
        "The server remembers the newest version of every page of its relations",
        "set PGSEAL_WATCHED_GB for the server to the size of the relations in GiB, then restart; docs/reference.md",
        postgres::watched_pages,
    ),
    check(
        "modules",
        "No module may be loaded that the library would refuse",
        "unset PGSEAL_ALLOW_MODULES for the server unless it must be so, then restart; docs/modules.md",
        postgres::modules,
    ),
    check(
        "key",
        "The keyring is there, the provider answers, the key is right, the header of every file opens",
        "see what pgseal key check DIR says; docs/keys.md",
        keys::key,
    ),
    check(
        "key-place",
        "A key file is not in the data directory, nor on its disk",
        "keep the key in a key store or on another disk: pgseal key rotate DIR -K NEW",
        keys::key_place,
    ),
    check(
        "escrow",
        "There is an escrow copy of the keyring, and it holds all keys in use",
        "pgseal key backup DIR -o FILE; print it and keep it apart; docs/keys.md",
        keys::escrow,
    ),
    check(
        "recipients",
        "The key of each recipient that can be asked for opens the keyring",
        "see what pgseal key check DIR says; docs/keys.md",
        keys::recipients,
    ),
    check(
        "policy",
        "The keys meet the policy of this machine (/etc/pgseal/policy.conf)",
        "see what pgseal key policy DIR says; docs/keys.md",
        keys::policy,
    ),
    check(
        "audit-trail",
        "Every destination of the audit trail would take a line, and the last verification of its file found nothing",
        "see what pgseal audit test says, as the server's user, and pgseal audit verify FILE -D DIR; docs/audit.md",
        trail::audit_trail,
    ),
    check(
        "backups",
        "The files of the backups that were named open with the keys",
        "see what pgseal key check PATH says; keep old keys as long as their backups",
        keys::backups,
    ),
    check(
        "configuration",
        "The configuration lies outside of the data directory, or is locked: else whoever writes the directory decides what the server runs",
        "pgseal config lock DIR, unless tools write the configuration; or keep it outside of the data directory; docs/config.md",
        files::configuration,
    ),
    check(
        "permissions",
        "Only the owner may enter the data directory and read the keyring",
        "chmod 700 DIR DIR/pgseal; chmod 600 DIR/pgseal/*; chown both to the server's user",
        files::permissions,
    ),
    check(
        "plain-files",
        "No file of a class that is sealed is plain, in the data directory, pg_wal or tablespaces",
        "pgseal status DIR lists them; remove what is not the server's, restore the rest",
        files::plain,
    ),
    check(
        "file-keys",
        "No file key has sealed 2^31 writes, half of what it may (NIST SP 800-38D, 8.3)",
        "pgseal reseal DIR --due; for a stopped server: pgseal rekey DIR; docs/keys.md",
        files::file_keys,
    ),
    check(
        "suite",
        "No file was made in a suite that new files do not get any more",
        "pgseal reseal DIR --rewrite; for a stopped server: pgseal rekey DIR; docs/keys.md",
        files::suite,
    ),
    check(
        "unreadable",
        "Every file and directory can be read, and every link leads somewhere",
        "run pgseal doctor as the server's user or as root; mount what a link leads to",
        files::unreadable,
    ),
    check(
        "file-system",
        "The file system is one that PostgreSQL and pgseal are known to work well on",
        "move the data directory to ext4 or XFS on a disk of the machine",
        files::file_system,
    ),
    check(
        "checksums",
        "Data checksums are on, or with GCM and AEGIS wal_log_hints is, to survive torn pages",
        "wal_log_hints = on in postgresql.conf (not for CTR), or stop the server, then: pgseal run -- pg_checksums --enable -D DIR",
        settings::checksums,
    ),
    check(
        "full-page-writes",
        "full_page_writes is on, for the same reason",
        "full_page_writes = on in postgresql.conf; for a standby, of its primary, too",
        settings::full_page_writes,
    ),
    check("fsync", "fsync is on", "fsync = on in postgresql.conf", settings::fsync),
    check(
        "io-method",
        "io_method (18 and later) passes through the C library",
        "io_method = worker in postgresql.conf, then restart",
        settings::io_method,
    ),
    check(
        "log-statements",
        "The server's log, which is plain, is not told statements or their parameters",
        "log_statement = none or ddl; log_min_duration_statement = -1 or log_parameter_max_length = 0",
        settings::log_statements,
    ),
    check(
        "connections",
        "Connections from other machines are encrypted",
        "pgseal tls init DIR; docs/tls.md",
        settings::connections,
    ),
    check(
        "memory-lock",
        "The keys in the server's processes are locked in memory, and in no core dump",
        "raise the limit: LimitMEMLOCK=1M in the systemd unit, or ulimit -l 1024 before the start",
        memory::memory_lock,
    ),
    check(
        "core-dumps",
        "The server leaves no core dump: it could hold keys and rows",
        "LimitCORE=0 in the systemd unit, or ulimit -c 0; no core_pattern that pipes to a program",
        memory::core_dumps,
    ),
    check(
        "swap",
        "There is no swap, or it is encrypted",
        "encrypt swap (crypttab with a random key), use zram, or swapoff -a",
        memory::swap,
    ),
    check(
        "hibernation",
        "The machine cannot write its memory to a plain disk",
        "systemctl mask hibernate.target hybrid-sleep.target; no resume= for the kernel",
        memory::hibernation,
    ),
];

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::CHECKS;

    fn table() -> String {
        let mut text = String::from("| check | what is looked at | fix |\n|---|---|---|\n");
        for check in CHECKS {
            let fix = check.fix.replace('|', "\\|");
            writeln!(text, "| `{}` | {} | {fix} |", check.id, check.what).unwrap();
        }
        text
    }

    /// `PGSEAL_BLESS=1` writes the table anew.
    #[test]
    fn the_documentation_has_the_same_table() {
        const BEGIN: &str = "<!-- checks: from the code -->\n";
        const END: &str = "<!-- /checks -->";
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/doctor.md");
        let doc = std::fs::read_to_string(path).unwrap();
        let (before, rest) = doc.split_once(BEGIN).unwrap();
        let (listed, after) = rest.split_once(END).unwrap();
        if std::env::var_os("PGSEAL_BLESS").is_some() {
            std::fs::write(path, [before, BEGIN, &table(), END, after].concat()).unwrap();
            return;
        }
        assert_eq!(listed, table());
    }

    #[test]
    fn names_are_unique_and_every_fix_says_something() {
        for (at, check) in CHECKS.iter().enumerate() {
            assert!(CHECKS[..at].iter().all(|other| other.id != check.id), "{}", check.id);
            assert!(check.fix.len() > 10 && check.what.len() > 10, "{}", check.id);
        }
    }
}
