//! `pgseal key policy`: how the keys of a cluster stand against the policy of this machine.

use std::io::{self, Write};
use std::path::Path;

use pgseal_keys::{KeyPolicy, Keyring};
use serde::Serialize;

use crate::error::CliError;
use crate::given_dir::GivenPath;
use crate::key_policy::{Facts, Row, judge};
use crate::keyring_place::KeyringPlace;
use crate::keys::{self, PresentKey};
use crate::out::Out;
use crate::{audit, exit, scan};

const EXAMPLES: &str = "\
Examples:
  pgseal key policy --set rotate-days=365 --set min-recipients=1 --set escrow=required
  pgseal key policy /srv/postgres/data
  pgseal key policy /etc/pgseal/columns/keyring
  pgseal key policy --json DIR | jq '.rules[] | select(.state != \"met\")'

Rules: rotate-days, renew-days, min-recipients, providers (as in vault,file), escrow (required) and
drill-days; docs/keys.md explains them. They hold for every cluster of this machine and stand in
/etc/pgseal/policy.conf, which only root may write.

Exit status: 0 every rule is met; 1 one is not met, or nothing shows that it is; 3 there is no policy;
12 others can write its file; 10 to 17 as for every command that needs the key: pgseal --help.";

/// Show the key policy of this machine, and how a cluster stands against it
///
/// Opens the keyring, so that what it says is authenticated. A server may run.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    path: GivenPath,
    #[command(flatten)]
    key: PresentKey,
    /// Ask for no key: nothing then authenticates what the keyring says
    #[arg(long, conflicts_with = "provider")]
    no_key: bool,
    /// First write a rule into the policy; "off" takes it out. May be repeated. Needs no DIR
    #[arg(long, value_name = "NAME=VALUE", value_parser = rule)]
    set: Vec<(String, String)>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn rule(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("NAME=VALUE is wanted")?;
    Ok((name.trim_ascii().to_owned(), value.trim_ascii().to_owned()))
}

/// What is printed.
#[derive(Debug, Serialize)]
struct Report {
    /// Of a keyring in a data directory.
    data_directory: Option<String>,
    keyring: String,
    keyring_id: String,
    /// The file of the policy.
    policy: String,
    /// Whether there is that file.
    exists: bool,
    /// Whether a key authenticated what the keyring says.
    authenticated: bool,
    /// Whether every rule is met.
    met: bool,
    rules: Vec<Row>,
}

pub fn run(args: &Args) -> Result<u8, CliError> {
    let file = KeyPolicy::path();
    // As root, before it becomes the owner of a data directory.
    if !args.set.is_empty() {
        let rules: Vec<String> =
            args.set.iter().map(|(name, value)| format!("{name}={value}")).collect();
        audit::changing_policy(&file, rules.join(", "))?;
        KeyPolicy::change(&file, &args.set)?;
    }
    let path = match args.path.path("key policy") {
        Err(_) if !args.set.is_empty() => return written(args, &file.display().to_string()),
        path => path?,
    };
    let place = KeyringPlace::open(&path)?;
    let keyring = place.load()?;
    if let Some(dir) = place.datadir() {
        // A keyring of another cluster, put in the place of this one's, may well meet the policy.
        scan::one_file(&dir.root.join("global/pg_filenode.map")).expect_keyring(&keyring)?;
    }
    if !args.no_key {
        keyring.unlock(&keys::kek(&keyring, args.key.provider.as_deref())?)?;
    }
    let root = place.datadir().map(|dir| dir.root.as_path());
    let policy = KeyPolicy::load(&file, root)?;
    let report = Report::of(root, &keyring, policy.as_ref(), &file.display().to_string(), args);
    let mut out = Out::new();
    if args.json {
        out.json(&report)?;
    } else {
        report.print(&mut out)?;
    }
    out.flush()?;
    match policy.filter(|policy| !policy.is_empty()) {
        None => Err(CliError::NoPolicy { path: file }),
        Some(_) if report.met => Ok(exit::SOUND),
        Some(_) => Ok(exit::DAMAGE),
    }
}

/// After `--set` without a data directory.
fn written(args: &Args, file: &str) -> Result<u8, CliError> {
    let mut out = Out::new();
    if args.json {
        out.json(&serde_json::json!({ "policy": file, "exists": true }))?;
    } else {
        writeln!(out, "{file} is written. How a cluster stands: pgseal key policy DIR")?;
    }
    out.flush()?;
    Ok(exit::SOUND)
}

impl Report {
    fn of(
        root: Option<&Path>,
        keyring: &Keyring,
        policy: Option<&KeyPolicy>,
        file: &str,
        args: &Args,
    ) -> Report {
        let rules = judge(policy.unwrap_or(&KeyPolicy::default()), &Facts::of(keyring));
        Report {
            data_directory: root.map(|root| root.display().to_string()),
            keyring: keyring.path().display().to_string(),
            keyring_id: keyring.id().to_string(),
            policy: file.to_owned(),
            exists: policy.is_some(),
            authenticated: !args.no_key,
            met: policy.is_some_and(|policy| !policy.is_empty()) && !rules.iter().any(Row::is_open),
            rules,
        }
    }

    fn print(&self, out: &mut Out) -> io::Result<()> {
        let there = if self.exists { "" } else { ", which is not there" };
        writeln!(out, "Policy    {}{there}", self.policy)?;
        match &self.data_directory {
            Some(dir) => writeln!(out, "Cluster   {dir}, keyring {}", self.keyring_id)?,
            None => writeln!(out, "Keyring   {}, {}", self.keyring, self.keyring_id)?,
        }
        if !self.authenticated {
            writeln!(out, "          NOT AUTHENTICATED: no key was asked for")?;
        }
        for row in &self.rules {
            let wanted = row.wanted.as_ref().map(|text| format!(" = {text}")).unwrap_or_default();
            let rule = format!("{}{wanted}", row.rule);
            let left = match row.days_left {
                Some(left) if left >= 0 => format!(" (days left: {left})"),
                Some(left) => format!(" (days overdue: {})", left.unsigned_abs()),
                None => String::new(),
            };
            writeln!(out, "{:<9} {rule:<26} {}{left}", row.state.shown(), row.found)?;
        }
        Ok(())
    }
}
