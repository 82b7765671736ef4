//! Runs the fuzz targets of key material over their seeds and over mutated seeds, on toolchains
//! without libFuzzer.

#[path = "../../../tests/fuzz/keys.rs"]
mod bodies;
#[cfg(feature = "escrow")]
#[path = "../../../tests/fuzz/escrow.rs"]
mod escrow;
#[allow(dead_code)]
#[path = "../../../tests/fuzz/smoke.rs"]
mod smoke;

use std::path::Path;

use pgseal_keys::anchor::State;
use pgseal_keys::audit::Check;
use pgseal_keys::config_record::ConfigRecord;
use pgseal_keys::control::open_controls;
use pgseal_keys::manifest::Manifest;
use pgseal_keys::{Clusters, Keyring, handover, renewal};

#[test]
fn keyrings() {
    smoke::expect_accepted("keyring", |seed| Keyring::parse(seed, Path::new("seed")).is_ok());
    smoke::run("keyring", 1500, bodies::keyring);
}

#[test]
fn frames() {
    smoke::expect_accepted("frame", |seed| handover::decode(seed).is_ok());
    smoke::run("frame", 1500, bodies::frame);
}

#[test]
fn files_of_clusters() {
    let accepts = |seed: &[u8]| {
        let text = core::str::from_utf8(seed).unwrap_or_default();
        Clusters::parse(text, Path::new("seed")).is_ok()
    };
    smoke::expect_accepted("cluster", accepts);
    smoke::run("cluster", 1500, bodies::cluster);
}

#[test]
fn audit_trails() {
    let accepts = |seed: &[u8]| {
        let mut check = Check::new(None);
        let lines = seed.strip_suffix(b"\n").unwrap_or(seed).split(|byte| *byte == b'\n');
        lines.for_each(|line| check.take(line).unwrap());
        check.findings.is_empty()
    };
    smoke::expect_accepted("audit", accepts);
    smoke::run("audit", 1500, bodies::audit);
}

#[test]
fn records_of_configurations() {
    smoke::expect_accepted("config_record", |seed| ConfigRecord::decode(seed).is_ok());
    smoke::run("config_record", 1500, bodies::config_record);
}

#[test]
fn manifests() {
    smoke::expect_accepted("manifest", |seed| Manifest::decode(seed).is_ok());
    smoke::run("manifest", 1500, bodies::manifest);
}

#[test]
fn control_records() {
    let frame = smoke::seeds("frame");
    let opens = |seed: &[u8]| {
        let mut unlocked =
            frame.iter().filter_map(|frame| handover::decode(frame).ok()?.unlocked());
        unlocked.any(|unlocked| open_controls(seed, &unlocked.keys).is_ok())
    };
    smoke::expect_accepted("control_record", opens);
    smoke::run("control_record", 1500, bodies::control_record);
}

#[test]
fn renewals() {
    let keys = bodies::renewal_keys();
    smoke::expect_accepted("renewal", |seed| renewal::open(seed, &keys).is_ok());
    smoke::run("renewal", 1500, bodies::renewal);
}

#[test]
fn anchors() {
    let accepts =
        |seed: &[u8]| core::str::from_utf8(seed).is_ok_and(|s| s.parse::<State>().is_ok());
    smoke::expect_accepted("anchor", accepts);
    smoke::run("anchor", 1500, bodies::anchor);
}

#[cfg(feature = "escrow")]
#[test]
fn escrow_copies() {
    smoke::run("escrow", 500, escrow::escrow);
}
