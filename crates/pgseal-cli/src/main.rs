//! The program `pgseal`: seals a PostgreSQL data directory, runs PostgreSQL's programs on it, and
//! looks after it.
#![forbid(unsafe_code)]

mod as_owner;
mod bindir;
mod child;
mod cmd;
mod conf_text;
mod config_files;
mod control_data;
mod counters;
mod datadir;
mod diff;
mod error;
mod escrow_record;
mod exit;
#[cfg(test)]
mod fuzz_smoke;
mod guard_conf;
mod keys;
mod library;
mod out;
mod private_file;
mod proc;
mod register;
mod scan;
mod server_files;
mod small_file;
mod storage;
mod zeros;

use std::process::ExitCode;

use rustix::process::DumpableBehavior;

fn main() -> ExitCode {
    // Keys pass through this process: no core dump, and no other process of the user reads its
    // memory. A program that it becomes or starts is as before. Where the kernel has no such
    // switch the keys are no worse off than those of any other program.
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    as_owner::invoker();
    exit::finish(cmd::dispatch())
}
