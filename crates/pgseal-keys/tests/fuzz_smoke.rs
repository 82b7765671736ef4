//! The fuzz targets of key material over their seeds and what small changes make of them, for toolchains
//! without libFuzzer.

#[path = "../../../fuzz/keys.rs"]
mod bodies;
#[cfg(feature = "escrow")]
#[path = "../../../fuzz/escrow.rs"]
mod escrow;
#[allow(dead_code)]
#[path = "../../../fuzz/smoke.rs"]
mod smoke;
#[allow(dead_code)]
#[path = "../../pgseal-preload/src/texts.rs"]
mod texts;

#[test]
fn keyrings() {
    smoke::run("keyring", 1500, bodies::keyring);
}

#[test]
fn frames() {
    smoke::run("frame", 1500, bodies::frame);
}

#[test]
fn files_of_clusters() {
    smoke::run("cluster", 1500, bodies::cluster);
}

#[cfg(feature = "escrow")]
#[test]
fn escrow_copies() {
    smoke::run("escrow", 500, escrow::escrow);
}
