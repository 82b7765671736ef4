//! Answers of queries, and their comparison.

use std::collections::BTreeMap;

use aws_lc_rs::digest::{SHA256, digest};

/// The answer of a query: its rows, fields separated by `|`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rows {
    rows: Vec<String>,
    ordered_by: Vec<usize>,
}

impl Rows {
    /// Parses the output of psql, one row per line; `ordered_by` are the indexes of the fields in
    /// the query's ORDER BY. Blanks at the end of a field are ignored: char(n) pads, a text column
    /// does not.
    pub fn new(text: &str, ordered_by: &[usize]) -> Self {
        let trimmed = |row: &str| row.split('|').map(str::trim_end).collect::<Vec<_>>().join("|");
        Self { rows: text.lines().map(trimmed).collect(), ordered_by: ordered_by.to_vec() }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// SHA-256 in hexadecimal of what must be equal in every scenario: all rows with all fields as
    /// text (numerics too), regardless of order, and the sequence of the ORDER BY fields. Rows that
    /// are equal in the ORDER BY fields may come in any order.
    pub fn digest(&self) -> String {
        let mut sorted: Vec<&str> = self.rows.iter().map(String::as_str).collect();
        sorted.sort_unstable();
        let text = format!("{}\n\n{}", sorted.join("\n"), self.keys().join("\n"));
        let hash = digest(&SHA256, text.as_bytes());
        hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn keys(&self) -> Vec<String> {
        if self.ordered_by.is_empty() {
            return Vec::new();
        }
        let of = |row: &String| {
            let fields: Vec<&str> = row.split('|').collect();
            let key: Vec<&str> =
                self.ordered_by.iter().filter_map(|at| fields.get(*at).copied()).collect();
            key.join("|")
        };
        self.rows.iter().map(of).collect()
    }

    /// The first difference in a few words; none if the answers are equal.
    pub fn difference(&self, other: &Self) -> Option<String> {
        if self.digest() == other.digest() {
            return None;
        }
        if self.len() != other.len() {
            return Some(format!("{} rows, not {}", other.len(), self.len()));
        }
        let mut count: BTreeMap<&str, i64> = BTreeMap::new();
        for row in &self.rows {
            *count.entry(row).or_default() += 1;
        }
        for row in &other.rows {
            *count.entry(row).or_default() -= 1;
        }
        let odd = count.iter().find(|(_, count)| **count < 0).map(|(row, _)| *row);
        Some(match odd {
            Some(row) => format!("the row {row}"),
            None => "the same rows in another order".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(one: &str, other: &str, ordered_by: &[usize]) -> bool {
        let (one, other) = (Rows::new(one, ordered_by), Rows::new(other, ordered_by));
        let same = one.digest() == other.digest();
        assert_eq!(one.difference(&other).is_none(), same);
        same
    }

    #[test]
    fn order_counts_only_where_the_query_orders() {
        assert!(same("a|1\nb|2\n", "b|2\na|1\n", &[]));
        assert!(!same("a|1\nb|2\n", "b|2\na|1\n", &[1]));
        // Rows equal in the ORDER BY field may come in any order.
        assert!(same("a|1\nb|1\nc|2\n", "b|1\na|1\nc|2\n", &[1]));
    }

    #[test]
    fn numbers_are_compared_to_the_last_digit_and_rows_are_counted() {
        assert!(!same("1.00\n", "1.0\n", &[]));
        assert!(!same("1\n1\n2\n", "1\n2\n2\n", &[]));
        assert!(!same("1\n", "1\n1\n", &[]));
        assert!(same("", "", &[0]));
        assert!(same("EUROPE   |1\n", "EUROPE|1\n", &[0]));
    }
}
