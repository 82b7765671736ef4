//! `pgseal lab` and `pgseal advise` become `pgseal-lab`: arguments and exit status pass through,
//! and only the program beside `pgseal`, or the one that `PGSEAL_LAB` names, is run.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// Prints its own path and its arguments, one to a line.
const SCRIPT: &str = "#!/bin/sh\nprintf '%s\\n' \"$0\" \"$@\"\nexit 7\n";

/// A copy of `pgseal` in a directory of its own.
struct Installed {
    temp: TempDir,
}

impl Installed {
    fn new() -> Installed {
        let installed = Installed { temp: tempfile::tempdir().unwrap() };
        for dir in ["bin", "elsewhere"] {
            fs::create_dir(installed.path(dir)).unwrap();
        }
        pgseal_testkit::install(
            Path::new(env!("CARGO_BIN_EXE_pgseal")),
            &installed.path("bin/pgseal"),
        )
        .unwrap();
        fs::write(installed.path("script"), SCRIPT).unwrap();
        installed
    }

    fn path(&self, name: &str) -> PathBuf {
        self.temp.path().canonicalize().unwrap().join(name)
    }

    /// Puts a `pgseal-lab` into one of the directories.
    fn lab(&self, dir: &str) -> PathBuf {
        let lab = self.path(dir).join("pgseal-lab");
        pgseal_testkit::install(&self.path("script"), &lab).unwrap();
        lab
    }

    /// Without `PGSEAL_LAB`, in the directory `elsewhere`, which is also the first of `PATH`.
    fn pgseal(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.path("bin/pgseal"));
        let path = std::env::var("PATH").unwrap();
        command
            .args(args)
            .current_dir(self.path("elsewhere"))
            .env("PATH", format!("{}:.:{path}", self.path("elsewhere").display()))
            .env_remove("PGSEAL_LAB");
        command
    }
}

fn ran(done: &Output) -> Vec<String> {
    assert_eq!(done.status.code(), Some(7), "{done:?}");
    String::from_utf8_lossy(&done.stdout).lines().map(str::to_owned).collect()
}

/// Nothing was run; the text of the one line that says why.
fn refused(done: &Output) -> String {
    assert_eq!(done.status.code(), Some(20), "{done:?}");
    assert!(done.stdout.is_empty(), "{done:?}");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

#[test]
fn arguments_and_exit_status_pass_through() {
    let installed = Installed::new();
    let lab = installed.lab("bin");
    for (given, expected) in [
        (&["lab"] as &[&str], &[] as &[&str]),
        (&["lab", "--help"], &["--help"]),
        (&["lab", "-h"], &["-h"]),
        (&["lab", "--version"], &["--version"]),
        (
            &["lab", "modes", "--quick", "--set=a=\"b c\"", "-o", ""],
            &["modes", "--quick", "--set=a=\"b c\"", "-o", ""],
        ),
        (
            &["lab", "report", "--allow-cost", "--", "-dir"],
            &["report", "--allow-cost", "--", "-dir"],
        ),
        (&["advise"], &["advise"]),
        (&["advise", "--help"], &["advise", "--help"]),
        (&["advise", "--results", "dir"], &["advise", "--results", "dir"]),
    ] {
        let done = installed.pgseal(given).output().unwrap();
        let mut wanted = vec![lab.to_str().unwrap().to_owned()];
        wanted.extend(expected.iter().map(|&argument| argument.to_owned()));
        assert_eq!(ran(&done), wanted, "{given:?}");
    }
}

#[test]
fn without_the_lab_the_package_is_named_and_no_other_program_is_run() {
    let installed = Installed::new();
    installed.lab("elsewhere");
    for command in ["lab", "advise"] {
        let said = refused(&installed.pgseal(&[command]).output().unwrap());
        let beside = installed.path("bin/pgseal-lab");
        assert!(said.contains(beside.to_str().unwrap()), "{said}");
        assert!(said.contains("package pgseal-lab") && said.contains("make install"), "{said}");
    }
}

#[test]
fn the_variable_names_another_program_by_its_absolute_path() {
    let installed = Installed::new();
    let other = installed.lab("elsewhere");
    installed.lab("bin");
    let with = |value: &Path| {
        installed.pgseal(&["lab", "modes"]).env("PGSEAL_LAB", value).output().unwrap()
    };
    assert_eq!(ran(&with(&other)), [other.to_str().unwrap(), "modes"]);
    // The working directory may be a data directory.
    for wrong in [Path::new("pgseal-lab"), Path::new("./pgseal-lab"), &installed.path("none")] {
        let said = refused(&with(wrong));
        assert!(said.contains("PGSEAL_LAB"), "{said}");
    }
    let beside = installed.path("bin/pgseal-lab");
    assert_eq!(ran(&with(Path::new("")))[0], beside.to_str().unwrap(), "empty counts as unset");
}
