//! No modules of a crate use each other in a circle, but for those listed here with their reasons.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeSet;
use std::path::Path;

use pgseal_testkit::modules::Modules;

/// The root of each crate, below the workspace.
const CRATES: [&str; 12] = [
    "crates/pgseal-cli/src/main.rs",
    "crates/pgseal-column/src/lib.rs",
    "crates/pgseal-convert/src/lib.rs",
    "crates/pgseal-core/src/lib.rs",
    "crates/pgseal-keys/src/lib.rs",
    "crates/pgseal-pgdata/src/lib.rs",
    "crates/pgseal-plugin/src/lib.rs",
    "crates/pgseal-provider-kmip/src/main.rs",
    "crates/pgseal-provider-tpm2/src/main.rs",
    "crates/pgseal-provider-vault/src/main.rs",
    "crates/pgseal-tls/src/lib.rs",
    "server/pgseal-preload/src/lib.rs",
];

/// Modules that may use each other, of a crate, and why.
struct Allowed(&'static str, &'static [&'static str], &'static str);

const ALLOWED: &[Allowed] = &[
    Allowed(
        "crates/pgseal-column/src/lib.rs",
        &["crate::aes", "crate::aes::instructions"],
        "the cipher with the processor's instructions works on the blocks of aes, which chooses it",
    ),
    Allowed(
        "crates/pgseal-core/src/lib.rs",
        &["crate::error", "crate::header"],
        "a message names the format version; reading a header returns an error",
    ),
    Allowed(
        "crates/pgseal-core/src/lib.rs",
        &[
            "crate::file",
            "crate::file::cells",
            "crate::file::inplace",
            "crate::file::operation",
            "crate::file::paged",
            "crate::file::paged::blocks",
            "crate::file::paged::tags",
            "crate::file::sectored",
            "crate::file::spans",
            "crate::file::stream",
            "crate::file::wal",
            "crate::file::wal::rows",
        ],
        "an open file calls its layout, and each layout works on the types of the open file",
    ),
    Allowed(
        "crates/pgseal-keys/src/lib.rs",
        &[
            "crate::argon",
            "crate::body",
            "crate::error",
            "crate::kek",
            "crate::keyring",
            "crate::provider",
            "crate::provider::command",
            "crate::provider::fd",
            "crate::provider::file",
            "crate::provider::passphrase",
            "crate::provider::plugin",
            "crate::provider::plugin::locate",
            "crate::store",
            "crate::summary",
            "crate::wrap",
        ],
        "KeyError names the provider that failed, and all of them return KeyError",
    ),
    Allowed(
        "crates/pgseal-keys/src/lib.rs",
        &["crate::escrow", "crate::escrow::shares"],
        "an escrow copy is cut into shares, and a share is a type of the copy",
    ),
    Allowed(
        "server/pgseal-preload/src/lib.rs",
        &["crate::file::config", "crate::file::config::change", "crate::file::config::record"],
        "the two parts of config.rs use the state of the record that config.rs keeps",
    ),
    Allowed(
        "server/pgseal-preload/src/lib.rs",
        &["crate::os::log", "crate::os::real"],
        "the log writes with the C library's own write, and a function missing there is logged",
    ),
];

fn is_of(allowed: &Allowed, root: &str, circle: &BTreeSet<String>) -> bool {
    allowed.0 == root && circle.iter().all(|name| allowed.1.contains(&name.as_str()))
}

#[test]
fn no_modules_use_each_other_in_a_circle() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    for root in CRATES {
        let modules = Modules::read(&workspace.join(root)).unwrap();
        assert!(modules.count() > 5, "{root}: the modules are not found");
        found.extend(modules.circles().into_iter().map(|circle| (root, circle)));
    }
    for (root, circle) in &found {
        let allowed = ALLOWED.iter().any(|allowed| is_of(allowed, root, circle));
        assert!(allowed, "{root}: these modules use each other in a circle: {circle:?}");
    }
    for allowed in ALLOWED {
        let Allowed(root, modules, reason) = allowed;
        let is_there = found.iter().any(|(root, circle)| is_of(allowed, root, circle));
        assert!(
            is_there,
            "{root}: {modules:?}: no circle any more ({reason}): take it off the list"
        );
    }
}
