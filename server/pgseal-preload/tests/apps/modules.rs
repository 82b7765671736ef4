//! The audit of modules: what they import, and the libraries that they need.

use std::path::{Path, PathBuf};

use crate::support::{Arena, SEALED, finish};

/// Builds a library with its own soname, which finds the libraries beside it.
fn library(arena: &Arena, name: &str, options: &[&str]) -> PathBuf {
    let soname = format!("-Wl,-soname,{name}");
    let mut all = vec!["-shared", "-fPIC", "-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN", &soname];
    all.extend(options);
    arena.compile("load_module", name, &all)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Modules that a program loads with dlopen: the good module works, also when only the program's
/// own RUNPATH finds it; the bad module is refused before its constructor runs, and dlerror says
/// why.
#[test]
fn modules_are_looked_at_before_they_are_loaded() {
    let arena = Arena::new();
    let program = arena.compile("load", "load", &["-Wl,-rpath,$ORIGIN,--enable-new-dtags"]);
    let good = library(&arena, "good.so", &[]);
    let bad = library(&arena, "libbad.so", &["-DPAST_THE_SEAL"]);
    library(&arena, "libfound.so", &[]);

    let args = [text(&good), "libfound.so", "/no/such.so"];
    let expected = arena.run_plain(&program, &args);
    assert!(expected.stdout.contains("libfound.so: loaded 42"), "{}", expected.stderr);
    let seen = arena.run_sealed(&program, &args);
    assert_eq!(seen.stdout, expected.stdout, "{}", seen.stderr);
    assert!(seen.stderr.contains("dlerror: /no/such.so: cannot open"), "{}", seen.stderr);

    // By its path, and by a name that only the linker's search finds.
    for name in [text(&bad), "libbad.so"] {
        let seen = arena.run_sealed(&program, &[name]);
        assert!(seen.stdout.contains("libbad.so: refused 0"), "{}", seen.stdout);
        assert!(seen.stdout.contains("asked again: nothing"), "{}", seen.stdout);
        assert!(!seen.stdout.contains("constructor"), "{}", seen.stdout);
        let why =
            format!("\"{name}\" uses aio_write which pgseal does not handle; it is not loaded");
        assert!(seen.stderr.contains(&format!("dlerror: pgseal: {why}")), "{}", seen.stderr);
        assert!(seen.stderr.contains(&format!("pgseal: ERROR: {why}")), "{}", seen.stderr);
        assert!(!seen.stderr.contains("No such file"), "{}", seen.stderr);
    }
    let seen = arena.run_bystander(&program, &[text(&bad)]);
    assert!(seen.stdout.contains("libbad.so: loaded"), "{}", seen.stdout);
}

/// A variable of the C library is no call, whatever its name and whatever the module says about its
/// kind.
#[test]
fn a_variable_is_no_call() {
    let arena = Arena::new();
    let program = arena.compile("load", "load", &[]);
    for (name, options) in
        [("said.so", &["-DVARIABLE"][..]), ("silent.so", &["-DVARIABLE", "-nostdlib"])]
    {
        let module = library(&arena, name, options);
        let expected = arena.run_plain(&program, &[text(&module)]);
        assert!(expected.stdout.contains(": loaded 42"), "{name}: {}", expected.stderr);
        let seen = arena.run_sealed(&program, &[text(&module)]);
        assert_eq!(seen.stdout, expected.stdout, "{name}: {}", seen.stderr);
        assert_eq!(seen.stderr, "", "{name}");
    }
    // A module that tells neither the kind nor the version of its imports is refused nevertheless.
    let module = library(&arena, "bad.so", &["-DPAST_THE_SEAL", "-nostdlib"]);
    let seen = arena.run_sealed(&program, &[text(&module)]);
    assert!(seen.stdout.contains("/bad.so: refused 0"), "{}{}", seen.stdout, seen.stderr);
}

/// A function of another library with the same name is not taken for the C library's, if the
/// versions tell them apart.
#[test]
fn a_function_of_another_library_is_fine() {
    let arena = Arena::new();
    let program = arena.compile("load", "load", &[]);
    let map = arena.tmp.path().join("versions");
    std::fs::write(&map, "OWN_1.0 { global: fts_children; answer; local: *; };\n").unwrap();
    let script = format!("-Wl,--version-script={}", text(&map));
    let own = library(&arena, "libown.so", &["-DDEFINES=fts_children", &script]);
    let module = library(&arena, "uses.so", &["-DCALLS=fts_children", text(&own)]);
    let seen = arena.run_sealed(&program, &[text(&module)]);
    assert!(seen.stdout.contains("/uses.so: loaded"), "{}", seen.stderr);
    assert_eq!(seen.stderr, "");
}

/// The libraries that a module needs are checked as well, recursively, and also at the start of a
/// program.
#[test]
fn the_libraries_of_a_module_are_looked_at() {
    let arena = Arena::new();
    let program = arena.compile("load", "load", &[]);
    let bad = library(&arena, "libbad.so", &["-DPAST_THE_SEAL"]);
    let middle = library(&arena, "libmiddle.so", &[text(&bad)]);
    let module = library(&arena, "module.so", &[text(&middle)]);
    let seen = arena.run_sealed(&program, &[text(&module)]);
    assert!(seen.stdout.contains("/module.so: refused 0"), "{}", seen.stdout);
    assert!(!seen.stdout.contains("constructor"), "{}", seen.stdout);
    let why = format!("module.so\" needs \"{}\", which uses aio_write", text(&bad));
    assert!(seen.stderr.contains(&why), "{}", seen.stderr);

    let linked = ["-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN", text(&middle)];
    let program = arena.compile("open_write", "linked", &linked);
    let seen = arena.run_sealed(&program, &[SEALED[0]]);
    assert_eq!(seen.status.code(), Some(127), "{}", seen.stderr);
    let why = format!("\"linked\" needs \"{}\", which uses aio_write", text(&bad));
    assert!(seen.stderr.contains(&why), "{}", seen.stderr);
    assert!(!arena.sealed().join(SEALED[0]).exists());
}

/// Only the administrator can allow a module or a library, by its name.
#[test]
fn the_administrator_may_let_a_module_in() {
    let arena = Arena::new();
    let program = arena.compile("load", "load", &[]);
    let bad = library(&arena, "libbad.so", &["-DPAST_THE_SEAL"]);
    let module = library(&arena, "module.so", &[text(&bad)]);
    for names in ["module.so", "x:libbad.so", text(&module), text(&bad)] {
        let mut command = arena.preloaded(&program, &[text(&module)]);
        let seen = finish(command.env("PGSEAL_ALLOW_MODULES", names));
        assert!(seen.stdout.contains("/module.so: loaded"), "{names}: {}", seen.stderr);
        assert!(seen.stderr.contains("pgseal: WARNING: \""), "{names}: {}", seen.stderr);
        assert!(seen.stderr.contains("because PGSEAL_ALLOW_MODULES names it"), "{}", seen.stderr);
    }
    for names in ["module", "/x/module.so", "bad.so", ""] {
        let mut command = arena.preloaded(&program, &[text(&module)]);
        let seen = finish(command.env("PGSEAL_ALLOW_MODULES", names));
        assert!(seen.stdout.contains("/module.so: refused"), "{names}: {}", seen.stderr);
    }
    // Changes of the environment by code in the process have no effect.
    let seen = arena.run_sealed(&program, &["PGSEAL_ALLOW_MODULES=module.so", text(&module)]);
    assert!(seen.stdout.contains("/module.so: refused"), "{}", seen.stderr);
}

/// A child needs no symbol look-up between `fork` and `exec`: the lock of the linker may be held
/// forever.
#[test]
fn a_child_needs_no_linker_to_execute_a_program() {
    let arena = Arena::new();
    let (app, options) = ("exec_while_loading", ["-shared", "-fPIC", "-DLIBRARY"]);
    let library = arena.compile(app, "slow.so", &options);
    let program = arena.compile(app, app, &["-pthread"]);
    let expected = arena.run_plain(&program, &[text(&library)]);
    assert!(expected.stdout.ends_with("= 0\n"), "{} {}", expected.stdout, expected.stderr);
    for run in [Arena::run_sealed, Arena::run_bystander] {
        let seen = run(&arena, &program, &[text(&library)]);
        assert_eq!(seen.stdout, expected.stdout, "{}", seen.stderr);
    }
}

/// A server without the guard module gets no ring either: reads through a ring would bypass the
/// hooks.
#[test]
fn a_process_on_a_sealed_directory_gets_no_ring() {
    let arena = Arena::new();
    let program = arena.compile("rings", "rings", &[]);
    let seen = arena.run_sealed(&program, &[]);
    let enosys = format!("= -{} ", libc::ENOSYS);
    assert_eq!(seen.stdout.matches(&enosys).count(), 3, "{}", seen.stdout);
    let message =
        "io_uring would read and write sealed files past the seal; set io_method = worker";
    let why = seen.stderr.matches(message).count();
    assert!(why > 0, "{}", seen.stderr);
}
