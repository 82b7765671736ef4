//! Measures the nanoseconds per value of encryption functions, in SQL over many rows.

use super::scenario::{Micro, MicroSql, Scenario};
use crate::cluster::{Session, Target};
use crate::error::LabError;
use crate::executor::Observation;

/// Creates and fills the table of the microbenchmark, in a database from
/// [`super::database::create`].
///
/// # Errors
///
/// The error of the server.
pub fn fill(database: &Target<'_>, sql: &MicroSql, rows: u64) -> Result<(), LabError> {
    let MicroSql { encrypt_int8, encrypt_text16, .. } = sql;
    let rows = rows_of(sql, rows);
    let statements = [
        // Arbitrary bigints and 16 letters; the same in every run.
        "CREATE TABLE data.plain_values AS \
         SELECT g * 7919 * (g % 1000003) AS i, \
                substr(md5(g::text), 1, 16) AS t \
           FROM generate_series(1, "
            .to_owned()
            + &format!("{rows}::bigint) g"),
        format!(
            "CREATE TABLE data.micro AS \
             SELECT i, t, {encrypt_int8} AS ei, {encrypt_text16} AS et FROM data.plain_values"
        ),
        "VACUUM ANALYZE data.micro".to_owned(),
    ];
    let mut session = database.session()?;
    for statement in statements {
        session.script(&statement)?;
    }
    Ok(())
}

fn rows_of(sql: &MicroSql, rows: u64) -> u64 {
    (rows / sql.thin.max(1)).max(100)
}

/// Measures nanoseconds per value: the time of a query that calls the function for each row, minus
/// the time of the same query over the plain column. One server process runs both, one after the
/// other.
///
/// # Errors
///
/// The error of the server; [`LabError::Broken`] if decryption does not return the original value.
pub fn measure(
    database: &Target<'_>,
    scenario: &dyn Scenario,
    what: Micro,
    rows: u64,
) -> Result<Observation, LabError> {
    let Some(sql) = scenario.micro() else {
        return Err(LabError::missing(
            scenario.title(),
            "has no function of its own",
            "nothing to be done",
        ));
    };
    let rows = rows_of(&sql, rows) as f64;
    let mut session = database.session()?;
    session.script("SET max_parallel_workers_per_gather = 0")?;
    let column = match what {
        Micro::EncryptInt8 => "i",
        Micro::DecryptInt8 => "ei",
        Micro::EncryptText16 => "t",
        Micro::DecryptText16 => "et",
    };
    let expression = sql.expression(what);
    let mut count = |of: &str| timed_count(&mut session, of, rows);
    count(column)?;
    let bare_s = count(column)?;
    let all_s = count(expression)?;
    let ns = |seconds: f64| seconds * 1e9 / rows;
    let mut seen = Observation::of((ns(all_s) - ns(bare_s)).max(0.0));
    seen.extra.insert("with_scan_ns".to_owned(), ns(all_s));
    seen.extra.insert("scan_ns".to_owned(), ns(bare_s));
    seen.extra.insert("values_per_step".to_owned(), rows);
    seen.facts.insert("expression".to_owned(), hide_key(expression));
    Ok(seen)
}

fn timed_count(session: &mut Session, expression: &str, rows: f64) -> Result<f64, LabError> {
    let answer = session.query(&format!("SELECT count({expression}) FROM data.micro"))?;
    if answer.rows.trim().parse() == Ok(rows) {
        return Ok(answer.seconds);
    }
    Err(LabError::Broken {
        what: format!("count({})", hide_key(expression)),
        expected: format!("{rows}"),
        found: answer.rows.trim().to_owned(),
    })
}

/// Shortens the key in an expression: it is long, but not secret.
fn hide_key(expression: &str) -> String {
    let mut shown = String::new();
    for (place, part) in expression.split('\'').enumerate() {
        if place > 0 {
            shown.push('\'');
        }
        shown.push_str(if place % 2 == 1 && part.len() > 16 { "key" } else { part });
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::columns::scenario;

    #[test]
    fn the_slow_ones_run_over_fewer_values() {
        let pgp = scenario::named("pgp").unwrap().micro().unwrap();
        let raw = scenario::named("raw").unwrap().micro().unwrap();
        assert_eq!((rows_of(&raw, 1_000_000), rows_of(&pgp, 1_000_000)), (1_000_000, 5000));
        assert_eq!(rows_of(&pgp, 1000), 100);
    }

    #[test]
    fn keys_are_not_shown() {
        let raw = scenario::named("raw").unwrap().micro().unwrap();
        assert_eq!(hide_key(&raw.encrypt_int8), "encrypt(int8send(i), 'key', 'aes')");
    }
}
