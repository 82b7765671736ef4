//! `pgseal provider list`: the plugins that are installed.

use std::io::Write;
use std::path::PathBuf;

use pgseal_keys::provider::{directory, installed};
use serde::Serialize;

use crate::error::CliError;
use crate::exit;
use crate::out::Out;

/// List the installed plugins. Runs none of them
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Listing {
    directory: PathBuf,
    plugins: Vec<String>,
}

pub fn run(args: &Args) -> Result<u8, CliError> {
    let listing = Listing { directory: directory()?, plugins: installed()? };
    let mut out = Out::new();
    if args.json {
        out.json(&listing)?;
    } else if listing.plugins.is_empty() {
        writeln!(out, "{}: there are no plugins", listing.directory.display())?;
    } else {
        for name in &listing.plugins {
            writeln!(out, "{name}:")?;
        }
    }
    out.flush()?;
    Ok(exit::SOUND)
}
