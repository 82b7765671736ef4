//! The program `pgseal`: seals a PostgreSQL data directory, runs PostgreSQL's programs on it, and
//! looks after it.
#![forbid(unsafe_code)]

mod bindir;
mod cmd;
mod datadir;
mod error;
mod exit;
mod keys;
mod library;
mod out;
mod scan;
mod storage;
mod zeros;

use std::process::ExitCode;

fn main() -> ExitCode {
    exit::finish(cmd::dispatch())
}
