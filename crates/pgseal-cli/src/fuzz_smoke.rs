//! Runs the fuzz targets of the program over their seeds and small changes of them, on toolchains
//! without libFuzzer.

#[path = "../../../tests/fuzz/cli.rs"]
mod bodies;
#[allow(dead_code)]
#[path = "../../../tests/fuzz/smoke.rs"]
mod smoke;

#[test]
fn files_of_a_server() {
    smoke::run("server_files", 1000, bodies::server_files);
}

#[test]
fn words_of_pg_controldata() {
    smoke::run("control", 2000, bodies::control);
}

#[test]
fn configuration() {
    smoke::run("conf", 2000, bodies::conf);
}
