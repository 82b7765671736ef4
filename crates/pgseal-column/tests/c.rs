//! Tests the C interface from C, compares the header with the library, and checks which symbols a
//! shared object that contains the library exports.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use pgseal_column::header::MAX_PLAIN_BYTES;
use pgseal_column::{ABI, ColumnError, KEY_BYTES, MAX_SHORT_TYPE_CODE, RawMode, WRAPPED_BYTES};

const DIR: &str = env!("CARGO_MANIFEST_DIR");
const HEADER: &str = include_str!("../include/pgseal_column.h");

/// The newest static library that cargo built beside this test. There may be several, because a
/// build with other features of the dependencies has another name.
fn library() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let entries = std::fs::read_dir(exe.parent().unwrap()).unwrap().map(|entry| entry.unwrap());
    let archives = entries.filter(|entry| {
        let name = entry.file_name().into_string().unwrap_or_default();
        name.starts_with("libpgseal_column") && name.ends_with(".a")
    });
    let newest = archives.max_by_key(|entry| entry.metadata().unwrap().modified().unwrap());
    newest.expect("no libpgseal_column.a; run 'cargo build -p pgseal-column'").path()
}

fn compile(source: &str, output: &Path, options: &[&str]) {
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-D_DEFAULT_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-g"]);
    cc.arg("-I").arg(Path::new(DIR).join("include")).args(options);
    cc.arg(Path::new(DIR).join("tests/c").join(source)).arg(library());
    let made = cc.args(["-lpthread", "-ldl", "-lm", "-o"]).arg(output).output().unwrap();
    assert!(made.status.success(), "{source}: {}", String::from_utf8_lossy(&made.stderr));
}

fn run(program: &Path) {
    let ran = Command::new(program).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success() && out == "0 failed\n", "{out}{err}");
}

#[test]
fn every_function_from_c() {
    let tmp = tempfile::tempdir().unwrap();
    let program = tmp.path().join("api");
    compile("api.c", &program, &[]);
    run(&program);
    // The program calls every function of the header.
    let api = std::fs::read_to_string(Path::new(DIR).join("tests/c/api.c")).unwrap();
    let functions = functions();
    assert!(functions.len() > 30, "{functions:?}");
    for function in &functions {
        assert!(api.contains(function), "{function} is not tested from C");
    }
}

#[test]
fn every_function_from_c_with_sanitizers() {
    let tmp = tempfile::tempdir().unwrap();
    let program = tmp.path().join("api");
    compile("api.c", &program, &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]);
    run(&program);
}

/// The names that the header declares as functions.
fn functions() -> Vec<String> {
    let declared = HEADER.split("extern ").skip(1).filter(|text| !text.starts_with("\"C\""));
    declared
        .map(|text| {
            let name = text.split('(').next().unwrap();
            name.rsplit([' ', '*', '\t', '\n']).next().unwrap().to_owned()
        })
        .collect()
}

/// The numbers that the header gives to names.
fn numbers() -> BTreeMap<String, i64> {
    let text: String = HEADER.split("/*").map(|part| part.rsplit("*/").next().unwrap()).collect();
    let mut numbers = BTreeMap::new();
    let words: Vec<&str> = text.split([' ', ',', '\t', '\n']).filter(|w| !w.is_empty()).collect();
    for three in words.windows(3) {
        if three[1] == "=" {
            numbers.insert(three[0].to_owned(), three[2].parse().unwrap());
        } else if three[0] == "#define" && three[2].parse::<i64>().is_ok() {
            numbers.insert(three[1].to_owned(), three[2].parse().unwrap());
        }
    }
    numbers
}

#[test]
fn the_header_has_the_numbers_of_the_library() {
    let numbers = numbers();
    let number = |name: &str| numbers[&format!("PGSEAL_COLUMN_{name}")];
    let names = [
        "NULL_POINTER",
        "BUFFER_TOO_SMALL",
        "KEY_LENGTH",
        "BAD_ARGUMENT",
        "TOO_LONG",
        "DOMAIN",
        "NOT_SEALED",
        "OTHER_MODE",
        "OTHER_VERSION",
        "NOT_AUTHENTIC",
        "BAD_RAW",
        "WRONG_KEK",
        "WRAP_DAMAGED",
        "WRAP_FORMAT",
        "NO_RANDOM",
        "NO_MEMORY",
        "INTERNAL",
    ];
    for (name, error) in names.iter().zip(ColumnError::ALL) {
        assert_eq!(number(name), i64::from(error.code()), "{name}");
        assert_eq!(name.replace('_', ""), format!("{error:?}").to_uppercase());
    }
    let modes = [
        ("RAW_CBC", RawMode::Cbc),
        ("RAW_ECB", RawMode::Ecb),
        ("RAW_CBC_NOPAD", RawMode::CbcNoPad),
        ("RAW_ECB_NOPAD", RawMode::EcbNoPad),
    ];
    for (name, mode) in modes {
        assert_eq!(number(name), i64::from(mode.number()), "{name}");
    }
    assert_eq!(number("ABI"), i64::from(ABI));
    assert_eq!(number("TYPE_MAX"), i64::from(MAX_SHORT_TYPE_CODE));
    assert_eq!(number("KEY_BYTES"), KEY_BYTES as i64);
    assert_eq!(number("WRAPPED_BYTES"), WRAPPED_BYTES as i64);
    assert_eq!(number("MAX_PLAIN"), MAX_PLAIN_BYTES as i64);
}

/// A server process also loads libcrypto, so the shared object must export nothing of this library,
/// of AWS-LC or of Rust.
#[test]
fn a_shared_object_exports_its_own_names_only() {
    let tmp = tempfile::tempdir().unwrap();
    let object = tmp.path().join("module.so");
    let options = ["-shared", "-fPIC", "-Wl,--exclude-libs,ALL", "-Wl,--gc-sections"];
    compile("module.c", &object, &options);
    let nm = Command::new("nm").args(["-D", "--defined-only"]).arg(&object).output().unwrap();
    let names = String::from_utf8(nm.stdout).unwrap();
    let names: Vec<&str> = names.lines().filter_map(|line| line.split(' ').next_back()).collect();
    assert_eq!(names, ["module_entry"]);
    // It does not import any cipher either. Weak symbols (w) are hooks that may be missing.
    let nm = Command::new("nm").args(["-D", "--undefined-only"]).arg(&object).output().unwrap();
    let names = String::from_utf8(nm.stdout).unwrap();
    let foreign: Vec<&str> = names
        .lines()
        .filter(|line| line.contains(" U "))
        .filter(|line| !line.contains("@GLIBC_") && !line.contains("@GCC_"))
        .collect();
    assert_eq!(foreign, Vec::<&str>::new());
}
