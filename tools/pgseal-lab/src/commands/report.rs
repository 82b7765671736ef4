//! `pgseal-lab report`.

use std::path::PathBuf;

use pgseal_lab::report::{self, Entry};
use pgseal_lab::{LabError, store};

use crate::exit;
use crate::output::print;

/// Arguments of `report`.
#[derive(Debug, clap::Args)]
pub struct ReportArgs {
    /// The --output of a run, or one experiment's directory in it
    dir: PathBuf,
    /// Print the results and all that follows from them as JSON
    #[arg(long)]
    json: bool,
    /// Print every case, what is missing, and all warnings
    #[arg(long, short)]
    verbose: bool,
}

pub fn run(args: &ReportArgs) -> Result<u8, LabError> {
    let mut entries = Vec::new();
    for dir in report::directories(&args.dir)? {
        let entry = Entry::read(&dir)?;
        report::write_entry(&dir, &entry)?;
        entries.push(entry);
    }
    // The directory of a single experiment has no page over several experiments.
    let single = args.dir.join(store::RESULTS).exists();
    let summary = if single {
        args.dir.join(report::HTML)
    } else {
        report::write_summary(&args.dir, &entries)?
    };
    print_entries(&entries, args.json, args.verbose)?;
    eprintln!("lab: report: {}", summary.display());
    Ok(exit::SOUND)
}

/// The findings of each experiment on standard output, or all of it; or JSON.
pub fn print_entries(entries: &[Entry], json: bool, verbose: bool) -> Result<(), LabError> {
    let mut out = Vec::new();
    for entry in entries {
        if json {
            out.extend(report::json_of(entry)?);
        } else {
            out.extend(report::text_of(entry, verbose).into_bytes());
            out.push(b'\n');
        }
    }
    print(&out)
}
