//! Power cuts under a whole server. A test records a run of the server change by change, builds
//! disks that a power cut at random moments of the run could have left, and starts the server on
//! each. Every acknowledged transaction must be there, the data must be consistent, and the server
//! must be usable and allow a backup. The plain server is the control.
//!
//! `PGSEAL_POWER_IMAGES` is the number of images that each test checks, `PGSEAL_POWER_SEED` the
//! first seed, `PGSEAL_POWER_SECONDS` the length of the recorded run, `PGSEAL_POWER_SUITE` the
//! suite of the tests that have none in their name, and `PGSEAL_POWER_KEEP` a directory that gets
//! each image with a finding. At its end a test prints how many images there were of each kind.

#![allow(clippy::panic, reason = "a test ends where a step fails")]

#[path = "power/aim.rs"]
mod aim;
#[path = "power/convert.rs"]
mod convert;
#[path = "power/ext4.rs"]
mod ext4;
#[path = "power/findings.rs"]
mod findings;
#[path = "power/judge.rs"]
mod judge;
#[path = "power/machine.rs"]
mod machine;
#[path = "power/phase.rs"]
mod phase;
#[path = "power/standby.rs"]
mod standby;
#[path = "power/workload.rs"]
mod workload;

use convert::Conversion;
use findings::Findings;
use machine::{HintBits, Kind, Limit, cuts};

/// Asserts that no cut loses anything.
fn loses_nothing(test: &str, findings: Option<Findings>) {
    if let Some(findings) = findings {
        findings.end(test);
    }
}

/// Asserts that there is a finding with these words.
fn is_found_out(test: &str, findings: Option<Findings>, words: &str) {
    if let Some(findings) = findings {
        findings.print(test);
        assert!(findings.has(words), "{test}: {} images, and nothing was found", findings.images());
    }
}

/// A server that is cut off while clients use it.
fn server(test: &str, kind: Kind) {
    loses_nothing(test, cuts(test, kind, Limit::all()));
}

#[test]
fn gcm() {
    server("power::gcm", Kind::sealed("aes-256-gcm"));
}

/// Without data checksums, `wal_log_hints` alone has full-page images written for hint bits.
#[test]
#[ignore = "long: make test-power"]
fn gcm_without_checksums() {
    let kind = Kind { hint_bits: HintBits::WalLogHints, ..Kind::sealed("aes-256-gcm") };
    server("power::gcm_without_checksums", kind);
}

/// Control of the test before: without full-page images for hint bits a page of which only hint
/// bits had changed is lost if the power is cut between page and tag.
#[test]
#[ignore = "long: make test-power"]
fn hint_bits_that_are_not_logged_are_found_out() {
    let test = "power::hint_bits_that_are_not_logged_are_found_out";
    let kind = Kind { hint_bits: HintBits::NotLogged, ..Kind::sealed("aes-256-gcm") };
    let words = "does not authenticate";
    let limit = Limit::first(300, words).of_kind("between page and tag");
    is_found_out(test, cuts(test, kind, limit), words);
}

#[test]
fn xts() {
    server("power::xts", Kind::sealed("aes-256-xts"));
}

/// Cuts while all relations get new file keys, while the writes under a key are counted in a
/// header, and while the next keys are announced. The server goes on with files of two keys by
/// itself.
#[test]
#[ignore = "long: make test-power"]
fn in_a_resealing() {
    let test = "power::in_a_resealing";
    let limit = Limit::all().of_kind("in a resealing");
    loses_nothing(test, cuts(test, Kind::sealed("aes-256-gcm"), limit));
}

/// Cuts while the suite of new files changes, and while relations are made anew in it, beside
/// clients. Some images are changed to the end with the same commands.
fn change_of_suite(test: &str, from: &'static str, to: &'static str, cuts_at: &'static str) {
    let kind = Kind { changes_to: Some(to), ..Kind::sealed(from) };
    loses_nothing(test, cuts(test, kind, Limit::all().of_kind(cuts_at)));
}

#[test]
#[ignore = "long: make test-power"]
fn in_a_change_of_suite() {
    let (from, to) = ("aes-256-xts", "aes-256-gcm");
    change_of_suite("power::in_a_change_of_suite", from, to, "in a change of the suite");
}

#[test]
#[ignore = "long: make test-power"]
fn in_a_rewrite_with_tags() {
    let (from, to) = ("aes-256-xts", "aes-256-gcm");
    change_of_suite("power::in_a_rewrite_with_tags", from, to, "while relations are made anew");
}

#[test]
#[ignore = "long: make test-power"]
fn in_a_rewrite_without_tags() {
    let (from, to) = ("aes-128-gcm", "aes-256-xts");
    change_of_suite("power::in_a_rewrite_without_tags", from, to, "while relations are made anew");
}

#[test]
#[ignore = "long: make test-power"]
fn ctr() {
    server("power::ctr", Kind::sealed("aes-256-ctr"));
}

#[test]
#[ignore = "long: make test-power"]
fn aegis() {
    server("power::aegis", Kind::sealed("aegis-256x2"));
}

#[test]
#[ignore = "long: make test-power"]
fn gcm_with_minimal_wal() {
    let kind = Kind { wal_level: "minimal", ..Kind::sealed("aes-256-gcm") };
    server("power::gcm_with_minimal_wal", kind);
}

#[test]
#[ignore = "long: make test-power"]
fn xts_with_minimal_wal() {
    let kind = Kind { wal_level: "minimal", ..Kind::sealed("aes-256-xts") };
    server("power::xts_with_minimal_wal", kind);
}

#[test]
#[ignore = "long: make test-power"]
fn plain() {
    server("power::plain", Kind::PLAIN);
}

#[test]
#[ignore = "long: make test-power"]
fn plain_with_minimal_wal() {
    server("power::plain_with_minimal_wal", Kind { wal_level: "minimal", ..Kind::PLAIN });
}

/// Control of the method: a server with `fsync = off` loses acknowledged transactions, and the test
/// must notice.
#[test]
fn a_server_that_does_not_sync_is_found_out() {
    let test = "power::a_server_that_does_not_sync_is_found_out";
    let kind = Kind { fsync: "off", ..Kind::PLAIN };
    is_found_out(test, cuts(test, kind, Limit::first(15, "")), "");
}

fn conversion(test: &str, from: Kind, command: &'static str, options: &'static [&'static str]) {
    let conversion = Conversion { command, options };
    loses_nothing(test, convert::cuts(test, from, conversion, Limit::all()));
}

#[test]
#[ignore = "long: make test-power"]
fn encrypt() {
    conversion("power::encrypt", Kind::PLAIN, "encrypt", &[]);
}

#[test]
#[ignore = "long: make test-power"]
fn rekey() {
    conversion("power::rekey", Kind::chosen(), "rekey", &["--suite", "aes-128-xts"]);
}

#[test]
#[ignore = "long: make test-power"]
fn decrypt() {
    conversion("power::decrypt", Kind::chosen(), "decrypt", &[]);
}

#[test]
#[ignore = "long: make test-power"]
fn standby() {
    let test = "power::standby";
    loses_nothing(test, standby::cuts(test, Kind::chosen(), Limit::all()));
}

#[test]
#[ignore = "long: make test-power"]
fn plain_standby() {
    let test = "power::plain_standby";
    loses_nothing(test, standby::cuts(test, Kind::PLAIN, Limit::all()));
}

#[test]
#[ignore = "long: make test-power"]
fn on_ext4() {
    let test = "power::on_ext4";
    loses_nothing(test, ext4::cuts(test, Kind::chosen(), Limit::all()));
}

#[test]
#[ignore = "long: make test-power"]
fn plain_on_ext4() {
    let test = "power::plain_on_ext4";
    loses_nothing(test, ext4::cuts(test, Kind::PLAIN, Limit::all()));
}

/// Orders of writes that are broken on purpose.
mod broken {
    use super::{
        Conversion, Kind, Limit, convert, cuts, ext4, is_found_out, loses_nothing, standby,
    };

    /// How many images may be judged until the first finding.
    const IMAGES: u64 = 300;

    fn broken(order: &'static str) -> Kind {
        Kind { broken: Some(order), ..Kind::sealed("aes-256-gcm") }
    }

    fn server(order: &'static str, cuts_at: &'static str, words: &'static str) {
        let test = format!("power::broken, {order}");
        let limit = Limit::first(IMAGES, words).of_kind(cuts_at);
        is_found_out(&test, cuts(&test, broken(order), limit), words);
    }

    #[test]
    #[ignore = "long: make test-power-broken"]
    fn position_before_sync() {
        server("PositionBeforeSync", "behind entries of WAL", "recovery ended at");
    }

    #[test]
    #[ignore = "long: make test-power-broken"]
    fn control_unsynced() {
        server("ControlUnsynced", "at a control file", "pgseal/control\"");
    }

    #[test]
    #[ignore = "long: make test-power-broken"]
    fn manifest_behind_control() {
        server("ManifestBehindControl", "in a clean stop", "pgseal/manifest\"");
    }

    #[test]
    #[ignore = "long: make test-power-broken"]
    fn new_file_unsynced() {
        server("NewFileUnsynced", "at a file of pgseal", "/pgseal/");
    }

    #[test]
    #[ignore = "long: make test-power-broken"]
    fn converted_unsynced() {
        let test = "power::broken, ConvertedUnsynced";
        let rekey = Conversion { command: "rekey", options: &[] };
        let limit = Limit::first(IMAGES, "");
        is_found_out(test, convert::cuts(test, broken("ConvertedUnsynced"), rekey, limit), "");
    }

    /// PostgreSQL's own temporary names have the place of the final name, so a rename rewrites only
    /// the history of a timeline, which becomes plain. It opens in both forms.
    #[test]
    #[ignore = "long: make test-power-broken"]
    fn place_after_rename_loses_nothing() {
        let test = "power::broken, PlaceAfterRename";
        let limit = Limit::all().of_kind("in a promotion");
        loses_nothing(test, standby::cuts(test, broken("PlaceAfterRename"), limit));
    }

    /// A page and its tag may reach the disk in any order: if one of them is missing the page is
    /// torn, and recovery takes it from the WAL.
    #[test]
    #[ignore = "long: make test-power-broken"]
    fn tag_before_page_loses_nothing() {
        let test = "power::broken, TagBeforePage";
        loses_nothing(test, cuts(test, broken("TagBeforePage"), Limit::all()));
    }

    /// Without `sync_file_range` behind it a header may be lost as well, and cuts lose it in any
    /// case.
    #[test]
    #[ignore = "long: make test-power-broken"]
    fn header_behind_range_loses_nothing() {
        let test = "power::broken, HeaderBehindRange";
        loses_nothing(test, ext4::cuts(test, broken("HeaderBehindRange"), Limit::all()));
    }
}
