//! One database per scenario, with and without keys: tables, keys, views that decrypt.

use super::scenario::{CopyWay, Scenario};
use crate::cluster::Target;
use crate::error::LabError;
use crate::tpch::{TABLES, Table};

/// Schema of the tables.
pub const DATA: &str = "data";
/// Schema of the views that decrypt.
pub const CLEAR: &str = "clear";

/// Drops and creates the database, empty, on the server of `server`.
///
/// Tables are in the schema `data`. Where a scenario encrypts in SQL functions, the schema `clear`
/// has a view for each table, with the same name, that decrypts every column. The planner replaces
/// the view's columns with their expressions, so that a query over the views is planned as if
/// `decrypt()` were written around each column. Statistics and indexes of the tables cannot be used
/// for these expressions. The search path of queries has `clear` first.
///
/// # Errors
///
/// [`LabError::Missing`] if the scenario's extension is not installed; else the error of the
/// server.
pub fn create(
    server: &Target<'_>,
    database: &Target<'_>,
    scenario: &dyn Scenario,
    keys: bool,
) -> Result<(), LabError> {
    let name = database.database;
    drop(server, name)?;
    let mut session = server.session()?;
    if let Some(extension) = scenario.extension() {
        let there = session.query(&format!(
            "SELECT count(*) FROM pg_available_extensions WHERE name = '{}'",
            extension.name
        ))?;
        if there.rows.trim() == "0" {
            return Err(LabError::missing(
                format!("{} (extension {})", scenario.title(), extension.name),
                "this PostgreSQL has no such extension in pg_available_extensions",
                extension.remedy,
            ));
        }
    }
    session.script(&format!("CREATE DATABASE {name} TEMPLATE template0"))?;
    let mut path = vec![DATA, "public"];
    if has_views(scenario) {
        path.insert(0, CLEAR);
    }
    let path = format!("search_path = {}", path.join(", "));
    for setting in scenario.settings().iter().chain([&path]) {
        session.script(&format!("ALTER DATABASE {name} SET {setting}"))?;
    }
    let statements = definition(scenario, keys);
    database.session()?.script(&statements.join(";\n"))?;
    Ok(())
}

/// Drops the database if it exists.
///
/// # Errors
///
/// The error of the server.
pub fn drop(server: &Target<'_>, name: &str) -> Result<(), LabError> {
    server.session()?.script(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"))?;
    Ok(())
}

fn has_views(scenario: &dyn Scenario) -> bool {
    TABLES.iter().flat_map(|table| table.columns).any(|column| scenario.read(column).is_some())
}

/// The statements that create the tables in an empty database.
fn definition(scenario: &dyn Scenario, keys: bool) -> Vec<String> {
    let mut statements = vec![format!("CREATE SCHEMA {DATA}"), format!("CREATE SCHEMA {CLEAR}")];
    if let Some(extension) = scenario.extension() {
        statements.push(format!("CREATE EXTENSION {} SCHEMA public", extension.name));
    }
    statements.extend(scenario.setup());
    statements.push(format!("SET search_path = {DATA}, public"));
    statements.extend(TABLES.iter().map(|table| create_table(scenario, table)));
    if keys {
        // Keys are created before any row, as in the study, so that loading maintains their
        // indexes.
        statements.extend(TABLES.iter().flat_map(Table::add_keys));
    }
    if has_views(scenario) {
        statements.extend(TABLES.iter().map(|table| create_view(scenario, table)));
    }
    statements
}

fn create_table(scenario: &dyn Scenario, table: &Table) -> String {
    let columns: Vec<_> = table
        .columns
        .iter()
        .map(|column| format!("{} {}", column.name, scenario.sql_type(column)))
        .collect();
    format!("CREATE TABLE {} ({})", table.name, columns.join(", "))
}

fn create_view(scenario: &dyn Scenario, table: &Table) -> String {
    let columns: Vec<_> = table
        .columns
        .iter()
        .map(|column| match scenario.read(column) {
            Some(clear) => format!("{clear} AS {}", column.name),
            None => column.name.to_owned(),
        })
        .collect();
    let (name, columns) = (table.name, columns.join(", "));
    format!("CREATE VIEW {CLEAR}.{name} AS SELECT {columns} FROM {DATA}.{name}")
}

/// Creates the staging table that COPY fills first, all columns text; none if the scenario needs no
/// staging table.
pub fn create_stage(scenario: &dyn Scenario, table: &Table) -> Option<String> {
    let CopyWay::Staged { .. } = scenario.copy() else { return None };
    let columns: Vec<_> =
        table.columns.iter().map(|column| format!("{} text", column.name)).collect();
    Some(format!("CREATE TEMP TABLE stage_{} ({})", table.name, columns.join(", ")))
}

/// The statement that encrypts rows of the staging table into the final table.
pub fn insert_from_stage(scenario: &dyn Scenario, table: &Table) -> String {
    let values: Vec<_> =
        table.columns.iter().map(|column| scenario.stored(column, column.name)).collect();
    let name = table.name;
    format!("INSERT INTO {DATA}.{name} SELECT {} FROM stage_{name}", values.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::columns::scenario;

    #[test]
    fn plain_databases_have_tables_and_no_views() {
        let plain = scenario::named("plain").unwrap();
        let statements = definition(plain.as_ref(), false);
        assert!(!has_views(plain.as_ref()));
        assert!(statements.iter().all(|statement| !statement.contains("KEY")));
        assert_eq!(create_stage(plain.as_ref(), &TABLES[0]), None);
        let keys = definition(plain.as_ref(), true);
        assert_eq!(keys.len() - statements.len(), 8 + 8);
    }

    #[test]
    fn views_decrypt_every_column_to_its_plain_type() {
        let raw = scenario::named("raw").unwrap();
        let view = create_view(raw.as_ref(), &TABLES[0]);
        assert!(view.starts_with("CREATE VIEW clear.region AS SELECT convert_from(decrypt("));
        assert!(view.contains("::char(25) AS r_name"), "{view}");
        let table = create_table(raw.as_ref(), &TABLES[0]);
        assert_eq!(table, "CREATE TABLE region (r_regionkey bytea, r_name bytea, r_comment bytea)");
    }
}
