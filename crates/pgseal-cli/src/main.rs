//! The program `pgseal`: seals a PostgreSQL data directory, runs PostgreSQL's programs on it, and
//! looks after it.
#![forbid(unsafe_code)]

mod anchor;
mod as_owner;
mod audit;
mod bindir;
mod child;
mod cluster;
mod cmd;
mod conf_text;
mod config_files;
mod config_record;
mod control_data;
mod control_record;
mod counters;
mod datadir;
mod diff;
mod environment;
mod error;
mod escrow_record;
mod exit;
#[cfg(test)]
mod fuzz_smoke;
mod given_dir;
mod guard_conf;
mod help_text;
mod hosts;
mod json_file;
mod key_ahead;
mod key_policy;
mod keyring_place;
mod keys;
mod library;
mod licenses;
mod locks;
mod manifest;
mod memory;
mod out;
mod private_file;
mod proc;
mod records;
mod register;
mod relation_names;
mod rewrite;
mod scan;
mod server_files;
mod small_file;
mod stopped;
mod storage;
mod values;
mod zeros;

use std::process::ExitCode;

use rustix::process::DumpableBehavior;

fn main() -> ExitCode {
    // This process holds keys: it leaves no core dump, and other processes of the user cannot read
    // its memory. Programs that it starts or becomes are not affected. If the kernel refuses, the
    // keys are as safe as those of any other program.
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    as_owner::invoker();
    exit::finish(audit::finish(cmd::dispatch()))
}
