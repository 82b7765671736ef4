//! `pgseal key show`: prints a keyring without its keys.

use std::io::{self, Write};
use std::path::Path;

use pgseal_keys::{GenerationState, Keyring, KeyringSummary, Provider, RecipientSummary};

use crate::datadir::DataDir;
use crate::error::CliError;
use crate::given_dir::GivenPath;
use crate::out::{self, Out};
use crate::{as_owner, exit, keys};

/// Show a keyring: identity, suite, provider, generations. Needs no key and shows none
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    path: GivenPath,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<u8, CliError> {
    let path = &args.path.path("key show")?;
    let keyring = if path.is_file() {
        as_owner::step_down_beside(path)?;
        Keyring::load(path)?
    } else {
        keys::own_keyring(&DataDir::open(path)?)?
    };
    let summary = keyring.summary();
    let mut out = Out::new();
    if args.json {
        out.json(&summary)?;
    } else {
        print(&mut out, keyring.path(), &summary)?;
    }
    out.flush()?;
    Ok(exit::SOUND)
}

fn print(out: &mut Out, path: &Path, summary: &KeyringSummary) -> io::Result<()> {
    writeln!(out, "Keyring     {}", path.display())?;
    writeln!(out, "Identity    {}", summary.keyring_id)?;
    writeln!(out, "Created     {}", summary.created)?;
    writeln!(out, "Suite       {}", summary.suite)?;
    if !summary.older_suites.is_empty() {
        let older = summary.older_suites.join(", ");
        writeln!(out, "Older       {older}: files that were made with it stay in it")?;
    }
    writeln!(out, "Provider    {}", Provider::shown(&summary.provider))?;
    if let Some(key) = &summary.store_key {
        writeln!(out, "Store key   {key}")?;
    }
    if let Some(pass) = &summary.passphrase {
        writeln!(
            out,
            "Derivation  {}, {} MiB, {}, {}",
            pass.kdf,
            pass.memory_kib / 1024,
            out::count(pass.passes.into(), "pass").replace("passs", "passes"),
            out::count(pass.lanes.into(), "lane"),
        )?;
    }
    for RecipientSummary { name, created, provider, store_key } in &summary.recipients {
        let key = store_key.as_ref().map(|key| format!(" ({key})")).unwrap_or_default();
        let provider = Provider::shown(provider);
        writeln!(out, "Recipient   {name}: {provider}{key}, since {created}")?;
    }
    for generation in &summary.generations {
        let state = match generation.state {
            GenerationState::Active => "active: new files get it",
            GenerationState::Retired => "retired: kept for the files that have it",
        };
        let (number, created) = (generation.generation, &generation.created);
        writeln!(out, "Generation  {number}, created {created}, {state}")?;
    }
    Ok(())
}
