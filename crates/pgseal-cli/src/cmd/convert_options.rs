//! What `pgseal encrypt`, `decrypt` and `rekey` can all be told.

use std::path::PathBuf;

/// What all conversions can be told.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The data directory of a stopped server
    pub dir: PathBuf,
    /// Only check whether it can be done, every page included; change nothing
    #[arg(long, conflicts_with = "skip_check")]
    pub check: bool,
    /// Do not read everything before the first change. Damage that is met on the way is reported
    /// at the end (exit status 1)
    #[arg(long)]
    pub skip_check: bool,
    /// Go on although pages are damaged. They stay pages that PostgreSQL reports as damaged
    #[arg(long)]
    pub keep_damaged: bool,
    /// Threads; default: one for each processor
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub jobs: Option<u16>,
    /// Where the programs of PostgreSQL are, if not in PATH or where Debian has them
    #[arg(long, value_name = "DIR")]
    pub bindir: Option<PathBuf>,
    /// The server's postgresql.conf, if it is neither in the data directory nor where Debian has it
    #[arg(long, value_name = "FILE")]
    pub config_file: Option<PathBuf>,
    /// Print errors only
    #[arg(short, long)]
    pub quiet: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
