//! `pgseal provider test`: the conformance suite of plugins.

use std::io::Write;

use pgseal_keys::Provider;
use pgseal_keys::provider::conformance::{self, Report, Verdict};

use crate::error::CliError;
use crate::out::Out;
use crate::{audit, exit};

/// Test a plugin, with the key store and the key that the URI names
///
/// Wraps and unwraps random keys, changes wrapped keys, and sends requests that are wrong. The
/// store's key and all keyrings stay as they are. If the plugin keeps anchors, one anchor of a
/// random name stays in the store.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit status: 0 if the plugin passes, 1 if a check fails")]
pub struct Args {
    /// The key store, as -K takes it: NAME:...
    #[arg(value_name = "URI")]
    uri: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<u8, CliError> {
    let provider = Provider::parse_typed(&args.uri)?;
    let Some(plugin) = provider.plugin() else {
        return Err(CliError::Usage(format!(
            "{}: this provider is built in; the suite tests plugins (pgseal provider list)",
            Provider::shown(&args.uri)
        )));
    };
    audit::asking(&args.uri);
    audit::begin()?;
    let report = conformance::run(plugin)?;
    let mut out = Out::new();
    if args.json {
        out.json(&serde_json::json!({ "passed": report.passed(), "report": report }))?;
    } else {
        print(&report, &mut out)?;
    }
    out.flush()?;
    Ok(if report.passed() { exit::SOUND } else { exit::DAMAGE })
}

fn print(report: &Report, out: &mut Out) -> Result<(), CliError> {
    writeln!(out, "Plugin  {}", report.program.display())?;
    if let Some(plugin) = &report.plugin {
        writeln!(out, "Store   {}", plugin.store)?;
        writeln!(out, "Key     {}", plugin.key)?;
    }
    for check in &report.checks {
        let word = match check.verdict {
            Verdict::Pass => "pass",
            Verdict::Fail => "FAIL",
            Verdict::Skip => "skip",
        };
        let detail = match check.detail.as_str() {
            "" => String::new(),
            detail => format!(": {detail}"),
        };
        writeln!(out, "{word}  {}{detail}", check.name)?;
    }
    let failed = report.checks.iter().filter(|check| check.verdict == Verdict::Fail).count();
    match failed {
        0 => writeln!(out, "All checks passed: pgseal can use this key store.")?,
        1 => writeln!(out, "1 check failed: do not use this key store with pgseal.")?,
        _ => writeln!(out, "{failed} checks failed: do not use this key store with pgseal.")?,
    }
    Ok(())
}
