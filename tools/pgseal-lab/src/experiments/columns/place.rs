//! The database of a step, and the queries of a step.

use super::plan::with_keys;
use super::scenario::{self, Scenario};
use crate::error::LabError;
use crate::plan::{Arm, Case};
use crate::tpch;

/// The scenario and database of one arm in one case.
pub struct Place {
    /// Id of the case.
    pub case: String,
    /// Id of the arm.
    pub arm: String,
    /// The arm's scenario.
    pub scenario: Box<dyn Scenario>,
    /// Whether the tables have primary and foreign keys.
    pub keys: bool,
    /// Name of the database.
    pub database: String,
}

impl Place {
    /// The place of an arm in a case.
    ///
    /// # Errors
    ///
    /// [`LabError::Usage`] if there is no such scenario, [`LabError::Plan`] for a plan of another
    /// experiment.
    pub fn new(case: &Case, arm: &Arm) -> Result<Self, LabError> {
        let id: String = arm.required("scenario")?;
        let scenario = scenario::named(&id).ok_or_else(|| {
            LabError::Usage(format!("arm {}: {id}: there is no such scenario", arm.id))
        })?;
        let keys = with_keys(case)?;
        let tail = if keys { "_keys" } else { "" };
        let database = format!("tpch_{}{tail}", arm.id.replace('-', "_"));
        Ok(Self { case: case.id.clone(), arm: arm.id.clone(), scenario, keys, database })
    }
}

/// A query with its setup and cleanup statements.
pub struct Question {
    /// Statements to run before.
    pub before: Vec<String>,
    /// The statement that returns the answer.
    pub select: String,
    /// Statements to run after.
    pub after: Vec<String>,
    /// Indexes of the fields in the ORDER BY.
    pub ordered_by: Vec<usize>,
}

impl Question {
    /// A query of TPC-H.
    ///
    /// # Errors
    ///
    /// [`LabError::Usage`] if there is no query with this number.
    pub fn of(number: u32, scale: f64) -> Result<Self, LabError> {
        let query = tpch::query(number, scale)
            .ok_or_else(|| LabError::Usage(format!("query {number}: there is no such query")))?;
        Ok(Self {
            before: query.before,
            select: query.select,
            after: query.after,
            ordered_by: query.ordered_by.to_vec(),
        })
    }

    /// A join of every order line with its order.
    pub fn join() -> Self {
        let select = "SELECT count(*) FROM lineitem JOIN orders ON l_orderkey = o_orderkey";
        let (before, after, ordered_by) = (vec![], vec![], vec![]);
        Self { before, select: select.to_owned(), after, ordered_by }
    }
}
