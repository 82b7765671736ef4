//! The conformance suite of plugins: `pgseal provider test URI` (`spec/provider-plugin.md`).
//!
//! Each check runs the plugin at least once, on the real store, as pgseal does. The suite wraps
//! random keys that protect nothing.

mod checks;
mod suite;

use std::path::PathBuf;

use pgseal_plugin::Description;
use serde::Serialize;

use super::Provider;
use super::plugin::Plugin;
use crate::error::KeyError;

use suite::Suite;
pub use suite::{Check, Verdict};

/// All checks of one plugin and store.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The URI, without secrets.
    pub uri: String,
    /// The program of the plugin.
    pub program: PathBuf,
    /// What the plugin says of itself; `None` if it could not.
    pub plugin: Option<Description>,
    /// The checks, in order.
    pub checks: Vec<Check>,
}

impl Report {
    /// Whether no check failed.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.checks.iter().all(|check| check.verdict != Verdict::Fail)
    }
}

/// Runs the whole suite.
///
/// # Errors
/// [`KeyError`] if the plugin is not installed or not safe to run; what the plugin does wrong is in
/// the report.
pub fn run(plugin: &Plugin) -> Result<Report, KeyError> {
    let suite = Suite { program: plugin.program()?, uri: plugin.uri().to_owned() };
    let (plugin, checks) = checks::all(&suite, plugin.name());
    Ok(Report { uri: Provider::shown(&suite.uri), program: suite.program, plugin, checks })
}
