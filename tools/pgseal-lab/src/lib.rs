//! The lab: measures what encryption costs on the machine at hand, with the method of four
//! published studies, and says how far the figures can be trusted.
//!
//! A [`Profile`](profile::Profile) and the machine make a [`Plan`](plan::Plan); the
//! [`runner`] walks it in rounds, each round all arms in a random order, and hands every step to an
//! [`Executor`](executor::Executor); samples become [`Results`](results::Results), these an
//! [`Analysis`](analysis::Analysis), and both together the [`Exhibits`](exhibits::Exhibits) that
//! [`report`] shows. Each part works alone: statistics and reports are tested on recorded results
//! and on the [`mock`] executor. `docs/lab.md` describes the method for those who read the figures.
//!
//! `unsafe` is confined to three modules of [`experiments::modes`], which call cryptographic
//! libraries.
#![deny(unsafe_code)]

pub mod advise;
pub mod analysis;
pub mod answer;
pub mod batches;
pub mod cluster;
pub mod compare;
pub mod context;
pub mod cost;
pub mod environment;
pub mod error;
pub mod executor;
pub mod exhibits;
pub mod experiments;
pub mod mock;
pub mod plan;
pub mod profile;
pub mod published;
pub mod quiet;
pub mod report;
pub mod results;
pub mod runner;
pub mod session;
pub mod stats;
pub mod store;
pub mod tpch;
pub mod warning;

pub use analysis::Analysis;
pub use context::Context;
pub use environment::Environment;
pub use error::LabError;
pub use executor::{Executor, Observation, Progress, Step};
pub use exhibits::Exhibits;
pub use experiments::Experiment;
pub use plan::{Arm, Better, Case, Plan};
pub use profile::Profile;
pub use results::{Missing, Results, Sample};
pub use warning::Warning;
