//! Third-party modules in a sealed cluster: some must work as on a plain server; others are
//! refused, with messages to the client and in the log.

use std::path::{Path, PathBuf};
use std::process::Command;

use pgseal_scenarios::Node;

const MARKER: &str = "canary-extensions-Wv3q";

/// Runs the same SQL on a plain server, on a sealed server, and on the sealed server after a crash.
fn same_as_plain(test: &str, extension: &str, prepare: &str, ask: &str) {
    let mut plain = Node::plain(&[]);
    plain.start();
    if !plain.has_extensions(&[extension], test) {
        return;
    }
    plain.sql(prepare);
    let truth = plain.sql(ask);
    plain.stop();
    let mut node = Node::sealed(&[]);
    node.start();
    node.sql(prepare);
    assert_eq!(node.sql(ask), truth);
    node.kill9();
    node.start();
    assert_eq!(node.sql(ask), truth);
    node.stop();
    assert!(!node.log().contains("does not handle"), "{}", node.log());
    node.assert_sound(MARKER);
}

/// PostGIS loads a hundred libraries: GDAL, curl, HDF5, many of them in C++.
#[test]
#[ignore = "long: make test-scenarios"]
fn postgis() {
    same_as_plain(
        "postgis",
        "postgis_raster",
        &format!(
            "create extension postgis;; create extension postgis_topology;; create extension postgis_raster;;
             create table place (id int primary key, name text, at geometry(Point, 4326));;
             insert into place select g, '{MARKER}' || g, ST_SetSRID(ST_MakePoint(g % 180, g % 90), 4326)
                 from generate_series(1, 5000) g;;
             create index on place using gist (at);;
             select topology.CreateTopology('net', 4326);;
             create table image (r raster);;
             insert into image select ST_AddBand(ST_MakeEmptyRaster(50, 50, 0, 0, 1), '8BUI'::text, 7, 0)"
        ),
        "set enable_seqscan = off;; set postgis.gdal_enabled_drivers = 'ENABLE_ALL';;
         select count(*) from place where at && ST_MakeEnvelope(10, 10, 30, 30, 4326);;
         select ST_AsText(ST_Transform(at, 3857), 2) from place where id = 77;;
         select round(ST_Area(ST_Buffer(at, 1))::numeric, 4) from place where id = 5;;
         select (ST_SummaryStats(r)).sum from image;;
         select length(ST_AsPNG(r)) > 0 from image;;
         select name, srid from topology.topology;;
         select count(*) from place where name like '%77'",
    );
}

/// PL/sh writes each function to a file made by `mkstemp`, and runs that file.
#[test]
#[ignore = "long: make test-scenarios"]
fn plsh() {
    same_as_plain(
        "plsh",
        "plsh",
        &format!(
            "create extension plsh;;
             create function joined(text, text) returns text language plsh as '#!/bin/sh
echo \"$1-$2\"';;
             create table t as select joined('{MARKER}', g::text) v from generate_series(1, 20) g"
        ),
        "select count(*), max(v) from t;; select joined('a', 'b')",
    );
}

/// pgfincore reports the page cache of the sealed file.
#[test]
#[ignore = "long: make test-scenarios"]
fn pgfincore() {
    same_as_plain(
        "pgfincore",
        "pgfincore",
        &format!(
            "create extension pgfincore;;
             create table t as select g, '{MARKER}' || repeat('x', 500) v from generate_series(1, 20000) g;;
             checkpoint;; create table answers (n int, v text);;
             insert into answers select 1, sum(rel_os_pages)::text || (sum(pages_mem) = sum(rel_os_pages)) from pgfincore('t');;
             select count(*) from pgfadvise_dontneed('t');;
             insert into answers select 2, (sum(pages_mem) < 50)::text from pgfincore('t');;
             select count(*) from pgfadvise_willneed('t')"
        ),
        "select * from answers order by n",
    );
}

/// Builds a module that imports a file call that bypasses sealing.
fn bad_module(node: &Node) -> PathBuf {
    let (source, module) = (node.file("bad.c"), node.file("bad.so"));
    let text = "int aio_write(void *);\nint answer(void) { return aio_write(0); }\n";
    std::fs::write(&source, text).expect("it can be written");
    let made =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&module).arg(&source).status();
    assert!(made.expect("cc runs").success());
    module
}

fn load(node: &Node, module: &Path) -> String {
    node.try_sql(&format!("load '{}'", module.display())).expect_err("it has no magic block")
}

/// The client is told why the module is refused. Only the administrator can allow it.
#[test]
fn the_client_of_a_refused_module_reads_why() {
    let mut node = Node::sealed(&[]);
    let module = bad_module(&node);
    node.start();
    let said = load(&node, &module);
    let why = "uses aio_write which pgseal does not handle; it is not loaded";
    assert!(said.contains("could not load library") && said.contains(why), "{said}");
    assert!(said.contains("PGSEAL_ALLOW_MODULES"), "{said}");
    assert!(!said.contains("No such file"), "{said}");
    assert!(node.log().contains(why), "{}", node.log());
    let said = node.try_sql("load '/no/such.so'").expect_err("there is none");
    assert!(said.contains("could not access file"), "{said}");
    node.stop();

    node.set_env("PGSEAL_ALLOW_MODULES", "other.so:bad.so");
    node.start();
    // The library now allows the module, and the server refuses it because it has no magic block.
    let said = load(&node, &module);
    assert!(said.contains("missing magic block"), "{said}");
    let warning = "because PGSEAL_ALLOW_MODULES names it";
    assert!(node.log().contains(warning), "{}", node.log());
    let doctor = node.pgseal(&["doctor", &node.data().display().to_string()]);
    assert!(
        doctor.text.contains("PGSEAL_ALLOW_MODULES lets in other.so:bad.so"),
        "{}",
        doctor.text
    );
    node.stop();
}
