//! `pgseal encrypt`, `decrypt` and `rekey`: they rewrite the data directory of a stopped server in
//! place, in another form. `pgseal-convert` does the work.
//!
//! Each command makes a `run::Run`. It checks the cluster and the files (`cluster`, `files`),
//! converts, handles the keyring (`keyring`) and prints the report (`report`).

mod cluster;
pub mod decrypt;
pub mod encrypt;
mod files;
mod keyring;
pub mod rekey;
mod report;
mod run;
