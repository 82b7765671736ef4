//! The 22 queries, from the templates of the crate `tpchgen` with the validation values of TPC-H
//! 3.0.1, clauses 2.4.1.4 to 2.4.22.4.

use tpchgen::q_and_a::queries;

/// A query ready to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// 1 to 22.
    pub number: u32,
    /// Statements to run before `select`, not timed: the CREATE VIEW of query 15.
    pub before: Vec<String>,
    /// The SELECT statement, without a semicolon.
    pub select: String,
    /// Statements to run after `select`: the DROP VIEW of query 15.
    pub after: Vec<String>,
    /// Indexes, from 0, of the result columns in the ORDER BY; empty: no ORDER BY. Rows with equal
    /// values in these columns may come in any order.
    pub ordered_by: &'static [usize],
}

/// The query of this number, 1 to 22. The text of query 11 depends on the scale factor.
pub fn query(number: u32, scale: f64) -> Option<Query> {
    let template = queries::query(i32::try_from(number).ok()?)?;
    let values = validation_values(number, scale)?;
    let text = fill(template, &values)
        // PostgreSQL does not accept a precision for the days of an interval.
        .replace(" day (3)", " day")
        .replace("revenue:s", "revenue0");
    let statements: Vec<String> = text
        .split(';')
        .map(str::trim)
        .filter(|statement| !statement.is_empty())
        .map(|statement| statement.replacen("create view", "create temp view", 1))
        .collect();
    let place = statements.iter().position(|statement| statement.starts_with("select"))?;
    Some(Query {
        number,
        before: statements[..place].to_vec(),
        select: statements[place].clone(),
        after: statements[place + 1..].to_vec(),
        ordered_by: ordered_by(number),
    })
}

/// Replaces the placeholders `:1`, `:2`, ... with values.
fn fill(template: &str, values: &[String]) -> String {
    let mut text = template.to_owned();
    // In descending order, so that `:1` does not match the beginning of `:10`.
    for (place, value) in values.iter().enumerate().rev() {
        text = text.replace(&format!(":{}", place + 1), value);
    }
    text
}

fn validation_values(number: u32, scale: f64) -> Option<Vec<String>> {
    let values: &[&str] = match number {
        1 => &["90"],
        2 => &["15", "BRASS", "EUROPE"],
        3 => &["BUILDING", "1995-03-15"],
        4 => &["1993-07-01"],
        5 => &["ASIA", "1994-01-01"],
        6 => &["1994-01-01", "0.06", "24"],
        7 => &["FRANCE", "GERMANY"],
        8 => &["BRAZIL", "AMERICA", "ECONOMY ANODIZED STEEL"],
        9 => &["green"],
        10 => &["1993-10-01"],
        // Clause 2.4.11.3: FRACTION is 0.0001 / SF.
        11 => return Some(vec!["GERMANY".to_owned(), format!("{:.10}", 0.0001 / scale)]),
        12 => &["MAIL", "SHIP", "1994-01-01"],
        13 => &["special", "requests"],
        14 => &["1995-09-01"],
        15 => &["1996-01-01"],
        16 => &["Brand#45", "MEDIUM POLISHED", "49", "14", "23", "45", "19", "3", "36", "9"],
        17 => &["Brand#23", "MED BOX"],
        18 => &["300"],
        19 => &["Brand#12", "Brand#23", "Brand#34", "1", "10", "20"],
        20 => &["forest", "1994-01-01", "CANADA"],
        21 => &["SAUDI ARABIA"],
        22 => &["13", "31", "23", "29", "30", "18", "17"],
        _ => return None,
    };
    Some(values.iter().map(|value| (*value).to_owned()).collect())
}

/// The columns of each query's `order by`, see [`Query::ordered_by`].
fn ordered_by(number: u32) -> &'static [usize] {
    match number {
        1 | 13 => &[0, 1],
        2 => &[0, 2, 1, 3],
        3 => &[1, 2],
        4 | 8 | 12 | 15 | 20 | 22 => &[0],
        5 | 11 => &[1],
        7 => &[0, 1, 2],
        9 => &[0, 1],
        10 => &[2],
        16 => &[3, 0, 1, 2],
        18 => &[4, 3],
        21 => &[1, 0],
        // Queries 6, 14, 17 and 19 return one row.
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_22_have_no_place_left_to_fill_and_one_select() {
        for number in 1..=22 {
            let query = query(number, 0.01).unwrap();
            for text in query.before.iter().chain([&query.select]).chain(&query.after) {
                let left = text
                    .split(':')
                    .skip(1)
                    .any(|rest| rest.starts_with(|letter: char| letter.is_ascii_alphanumeric()));
                assert!(!left && !text.contains("day (3)"), "{text}");
            }
            assert_eq!(query.ordered_by.is_empty(), !query.select.contains("order by"));
            assert_eq!(
                (query.before.len(), query.after.len()),
                match number {
                    15 => (1, 1),
                    _ => (0, 0),
                }
            );
        }
        assert_eq!(query(0, 1.0), None);
        assert_eq!(query(23, 1.0), None);
    }

    #[test]
    fn the_fraction_of_query_11_falls_with_the_scale() {
        assert!(query(11, 1.0).unwrap().select.contains("* 0.0001000000"));
        assert!(query(11, 0.1).unwrap().select.contains("* 0.0010000000"));
    }

    #[test]
    fn ten_values_do_not_mix_with_one() {
        let select = query(16, 1.0).unwrap().select;
        assert!(select.contains("p_size in (49, 14, 23, 45, 19, 3, 36, 9)"), "{select}");
    }
}
