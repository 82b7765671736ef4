//! The experiment on columns, end to end in its smallest profile, on the installed PostgreSQL.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use pgseal_lab::cluster::tools_of;
use pgseal_lab::context::ordinary_account;
use pgseal_lab::experiments::columns::Columns;
use pgseal_lab::results::{Results, Sample};
use pgseal_lab::runner::Run;
use pgseal_lab::{
    Analysis, Arm, Context, Environment, Experiment, Plan, Profile, Progress, Warning,
};
use pgseal_testkit::install;
use tempfile::TempDir;

/// A short directory of the servers' user, and the programs of this tree.
fn context() -> (TempDir, Context) {
    let dir = tempfile::Builder::new().prefix("lab").tempdir_in("/tmp").unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let built = pgseal_testkit::built_programs().unwrap();
    let output_dir = dir.path().join("output");
    fs::create_dir(&output_dir).unwrap();
    let context = Context {
        bindir: pgseal_testkit::bindir().unwrap(),
        pgseal: built.pgseal,
        lab: env!("CARGO_BIN_EXE_pgseal-lab").into(),
        work_dir: dir.path().to_owned(),
        output_dir,
        library: built.library,
        guard: built.guard,
        cpus: None,
        account: ordinary_account().unwrap(),
    };
    tools_of(&context).unwrap().give(dir.path()).unwrap();
    (dir, context)
}

fn plan_of(settings: &[&str]) -> Plan {
    let mut profile = Profile::load(&Columns, "tiny").unwrap();
    for setting in settings {
        profile.set(setting).unwrap();
    }
    Columns.plan(&profile, &Environment::look(Path::new("/tmp"), None)).unwrap()
}

/// Shown when a test fails.
struct Shown(Instant);

impl Progress for Shown {
    fn say(&self, text: &str) {
        eprintln!("{:8.2} {text}", self.0.elapsed().as_secs_f64());
    }
}

fn run(plan: &Plan, context: &Context) -> Results {
    let mut executor = Columns.executor(plan, context).unwrap();
    let run = Run {
        plan,
        environment: &Environment::look(&context.work_dir, Some(&context.bindir)),
        output: &context.output_dir,
        resume: false,
        command: "",
        progress: &Shown(Instant::now()),
        limit: None,
        interrupted: &AtomicBool::new(false),
        after_case: &mut |_, _| Ok(()),
    };
    run.walk(executor.as_mut()).unwrap()
}

fn one<'a>(results: &'a Results, case: &'a str, arm: &'a str) -> &'a Sample {
    let found = results.of(case, arm).next();
    found.unwrap_or_else(|| panic!("{case}, {arm}: {:?}", results.missing))
}

fn pg_config(context: &Context, what: &str) -> PathBuf {
    let mut command = Command::new(context.bindir.join("pg_config"));
    let output = command.arg(what).output().unwrap();
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
}

fn has_pgcrypto(context: &Context) -> bool {
    pg_config(context, "--sharedir").join("extension/pgcrypto.control").is_file()
}

/// The installed PostgreSQL once more, below `root`, without one extension: it finds its files by
/// where its programs are.
fn bindir_without(context: &Context, root: &Path, extension: &str) -> PathBuf {
    let bindir = pg_config(context, "--bindir");
    let (sharedir, libdir) = (pg_config(context, "--sharedir"), pg_config(context, "--pkglibdir"));
    let prefix = bindir.ancestors().find(|prefix| sharedir.starts_with(prefix)).unwrap();
    let moved = |path: &Path| root.join("pg").join(path.strip_prefix(prefix).unwrap());
    let link_all = |from: &Path, except: &str| {
        fs::create_dir_all(moved(from)).unwrap();
        for entry in fs::read_dir(from).unwrap().flatten() {
            let name = entry.file_name().into_string().unwrap();
            if !name.starts_with(except) {
                symlink(entry.path(), moved(from).join(name)).unwrap();
            }
        }
    };
    link_all(&sharedir, "extension");
    link_all(&sharedir.join("extension"), extension);
    link_all(&libdir, extension);
    fs::create_dir_all(moved(&bindir)).unwrap();
    for program in ["postgres", "initdb", "psql", "pgbench", "pg_isready"] {
        install(&bindir.join(program), &moved(&bindir).join(program)).unwrap();
    }
    moved(&bindir)
}

/// Uses this tree's own extension, if it is built: its scenarios are measured then.
fn with_own_extension(context: &mut Context, root: &Path) -> bool {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let version = Command::new(context.bindir.join("pg_config")).arg("--version").output().unwrap();
    let version = String::from_utf8(version.stdout).unwrap();
    let major = version.trim_start_matches("PostgreSQL ").split(['.', ' ', '\n']).next().unwrap();
    let module = tree.join("target/extension").join(major).join("pgseal.so");
    if !module.is_file() {
        return false;
    }
    let (bindir, sharedir) = (pg_config(context, "--bindir"), pg_config(context, "--sharedir"));
    let libdir = pg_config(context, "--pkglibdir");
    let prefix = bindir.ancestors().find(|prefix| sharedir.starts_with(prefix)).unwrap();
    let moved = |path: &Path| root.join("pg").join(path.strip_prefix(prefix).unwrap());
    context.bindir = bindir_without(context, root, "pgseal.");
    let extension = moved(&sharedir).join("extension");
    let to_copy = [
        (module, moved(&libdir).join("pgseal.so")),
        (tree.join("server/extension/pgseal.control"), extension.join("pgseal.control")),
        (tree.join("server/extension/pgseal--1.0.sql"), extension.join("pgseal--1.0.sql")),
    ];
    for (from, to) in to_copy {
        // A link, if the installation has an older one.
        let _ = fs::remove_file(&to);
        install(&from, &to).unwrap();
    }
    true
}

/// Nothing is missing; without the extension, nothing but its scenarios.
fn nothing_is_missing(results: &Results, extension: bool) {
    let missing: Vec<_> = results
        .missing
        .iter()
        .filter(|missing| extension || !missing.what.contains("extension pgseal"))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Every arm of these cases gave the same answer; returns how many answers had rows.
fn answers_are_the_same(plan: &Plan, results: &Results, tail: &str) -> usize {
    let cases: Vec<_> = plan.cases.iter().map(|case| &case.id).collect();
    let queries =
        cases.iter().filter(|id| id.starts_with('q') && id.ends_with("-keys") != tail.is_empty());
    let mut with_rows = 0;
    for case in queries {
        let is_there = |arm: &&Arm| results.missing_of(case, &arm.id).is_none();
        let arms: Vec<_> = plan.arms_of(plan.case(case).unwrap()).filter(is_there).collect();
        assert!(arms.len() >= 3, "{case}: {arms:?}");
        let answer = |arm: &str| one(results, case, arm).facts["answer_sha256"].clone();
        assert!(arms.iter().all(|arm| answer(&arm.id) == answer("plain")), "{case}");
        with_rows += usize::from(one(results, case, "plain").extra["answer_rows"] > 0.0);
    }
    with_rows
}

/// Every load but PGP's got all rows in.
fn loads_are_complete(plan: &Plan, results: &Results, cases: &[&str]) {
    for case in cases {
        for arm in plan.arms_of(plan.case(case).unwrap()).filter(|arm| arm.id != "pgp") {
            if results.missing_of(case, &arm.id).is_some() {
                continue;
            }
            let sample = one(results, case, &arm.id);
            let rows = |sample: &Sample| sample.facts["rows_counted"].clone();
            assert_eq!(sample.extra["measured_share"], 1.0, "{case}, {}", arm.id);
            assert_eq!(rows(sample), rows(one(results, case, "plain")));
            assert!(sample.extra["at_100_percent_s"] <= sample.value);
        }
    }
}

/// The parts of a size sum up to it; returns it.
fn size_of(results: &Results, case: &str, arm: &str) -> f64 {
    let sample = one(results, case, arm);
    let is_part = |name: &str| name.starts_with("table_") || name.starts_with("index_");
    let parts: f64 =
        sample.extra.iter().filter(|(name, _)| is_part(name)).map(|(_, bytes)| bytes).sum();
    assert_eq!(parts, sample.value, "{case}, {arm}");
    assert_eq!(sample.extra["tables_bytes"] + sample.extra["indexes_bytes"], sample.value);
    sample.value
}

#[test]
fn every_scenario_answers_all_22_queries_as_plain_tables_do_and_sizes_sum_up() {
    let (dir, mut context) = context();
    assert!(has_pgcrypto(&context), "contrib is part of what scripts/setup.sh installs");
    // Where it is not built (`make build`), its scenarios are only seen to be missing.
    let extension = with_own_extension(&mut context, dir.path());
    // Where AES hides the keys, query 20 takes quadratic time.
    let plan = plan_of(&["scale=0.0003"]);
    let results = run(&plan, &context);
    assert!(results.finished);
    nothing_is_missing(&results, extension);
    let with_rows = answers_are_the_same(&plan, &results, "");
    assert!(with_rows >= 10, "{with_rows}");
    loads_are_complete(&plan, &results, &["insert", "copy"]);

    // That one was stopped, and says so.
    let pgp = one(&results, "insert", "pgp");
    assert!(pgp.extra["measured_share"] < 1.0 && pgp.value > pgp.extra["measured_s"], "{pgp:?}");
    assert!(results.warnings.iter().any(|warning| matches!(
        warning,
        Warning::Extrapolated { case, arm, .. } if case == "insert" && arm == "pgp"
    )));

    let size = |arm: &str| size_of(&results, "size", arm);
    assert_eq!(size("plain"), size("plain-again"));
    assert!(size("plain") < size("raw") && size("raw") < size("raw-hex"));
    assert!(size("plain") < size("sealed-instance"));
    let server = |arm: &str| one(&results, "size", arm).extra["server_bytes"];
    assert_eq!(server("plain"), server("sealed-instance"));

    for case in ["encrypt-int8", "decrypt-int8", "encrypt-text16", "decrypt-text16"] {
        for arm in ["raw", "raw-hex", "pgp"] {
            assert!(one(&results, case, arm).extra["with_scan_ns"] > 0.0, "{case}, {arm}");
        }
    }
    let exhibits = Columns.exhibits(&results, &Analysis::of(&results)).unwrap();
    assert!(exhibits.findings.len() >= 5 && exhibits.charts.len() >= 2);
}

#[test]
fn keys_hold_on_ciphertext_and_are_weighed() {
    let (_dir, context) = context();
    let plan = plan_of(&[
        "scale=0.008",
        "keys=true",
        "queries=[1, 3, 5]",
        "scenarios=[\"raw\", \"sealed-instance\"]",
    ]);
    let results = run(&plan, &context);
    nothing_is_missing(&results, false);
    loads_are_complete(&plan, &results, &["insert-keys", "copy-keys"]);
    assert_eq!(answers_are_the_same(&plan, &results, "-keys"), 3);
    for arm in ["plain", "raw", "sealed-instance"] {
        assert!(size_of(&results, "size", arm) < size_of(&results, "size-keys", arm));
        let parts = &one(&results, "size-keys", arm).extra;
        assert!(parts["index_lineitem_pkey_bytes"] > 0.0 && parts["indexes_bytes"] > 0.0);
        assert!(one(&results, "lookup-keys", arm).value > 0.0);
        assert_eq!(
            one(&results, "join-keys", arm).facts,
            one(&results, "join-keys", "plain").facts
        );
    }
}

#[test]
fn an_extension_that_is_not_installed_is_missing_with_a_remedy_and_the_rest_goes_on() {
    let (dir, mut context) = context();
    context.bindir = bindir_without(&context, dir.path(), "pgcrypto");
    let plan = plan_of(&["queries=[1]", "scenarios=[\"raw\"]"]);
    let results = run(&plan, &context);
    assert!(results.finished);
    let missing: Vec<_> = results.missing.iter().filter(|missing| missing.case == "q1").collect();
    assert_eq!(missing.len(), 1, "{:?}", results.missing);
    assert_eq!(missing[0].arm.as_deref(), Some("raw"));
    assert!(missing[0].what.contains("pgcrypto") && missing[0].remedy.contains("contrib"));
    assert!(one(&results, "q1", "plain").value > 0.0);
}
