//! The program `pgseal-lab`: measures what encryption costs on this machine, and recommends
//! settings.
#![forbid(unsafe_code)]

mod commands;
mod exit;
mod output;

use std::process::ExitCode;

fn main() -> ExitCode {
    exit::finish(commands::dispatch())
}
