//! Generates rows one by one in the format of `dbgen`: fields separated by `|`, which no field
//! contains.

use std::collections::HashSet;
use std::fmt::{Display, Write};
use std::ops::ControlFlow;

use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};

use super::schema::{TABLES, Table};

/// Passes each row of a table to `take`, until `take` returns `Break`.
///
/// The scale factor is that of TPC-H, clause 4.1.3: 1 is about 1 GB in all. A row has `|` between
/// its fields, but no `|` at the end and no line feed.
///
/// # Errors
///
/// Errors of `take`.
pub fn each_row<E>(
    table: &Table,
    scale: f64,
    take: &mut dyn FnMut(&str) -> Result<ControlFlow<()>, E>,
) -> Result<ControlFlow<()>, E> {
    match table.name {
        "region" => hand(RegionGenerator::new(scale, 1, 1).iter(), take),
        "nation" => hand(NationGenerator::new(scale, 1, 1).iter(), take),
        "supplier" => hand(SupplierGenerator::new(scale, 1, 1).iter(), take),
        "customer" => hand(CustomerGenerator::new(scale, 1, 1).iter(), take),
        "part" => hand(PartGenerator::new(scale, 1, 1).iter(), take),
        "partsupp" => hand(PartSuppGenerator::new(scale, 1, 1).iter(), take),
        "orders" => hand(OrderGenerator::new(scale, 1, 1).iter(), take),
        _ => hand(LineItemGenerator::new(scale, 1, 1).iter(), take),
    }
}

fn hand<R: Display, E>(
    rows: impl Iterator<Item = R>,
    take: &mut dyn FnMut(&str) -> Result<ControlFlow<()>, E>,
) -> Result<ControlFlow<()>, E> {
    let mut line = String::with_capacity(256);
    for row in rows {
        line.clear();
        // Writing to a string does not fail.
        let _ = write!(line, "{row}");
        if take(line.strip_suffix('|').unwrap_or(&line))?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}

/// Whether the primary keys are unique at a scale factor. Below 0.01 the four suppliers of a part
/// (TPC-H, clause 4.2.3) are not always distinct.
pub fn keys_hold(scale: f64) -> bool {
    if scale >= 0.01 {
        return true;
    }
    let mut before = HashSet::new();
    let partsupp = TABLES.iter().find(|table| table.name == "partsupp");
    partsupp.is_some_and(|table| {
        let end = each_row::<std::convert::Infallible>(table, scale, &mut |row| {
            let key: Vec<&str> = row.split('|').take(2).collect();
            let new = before.insert(key.join("|"));
            Ok(if new { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        });
        matches!(end, Ok(ControlFlow::Continue(())))
    })
}

/// An amount of data, generated or loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Volume {
    /// Number of rows.
    pub rows: u64,
    /// Number of fields in all rows.
    pub fields: u64,
    /// Bytes of the rows as `dbgen` writes them, with the separator after the last field and the
    /// line feed.
    pub bytes: u64,
}

impl Volume {
    /// The volume of all tables at a scale factor. Counting generates all rows: 6 s at scale 1.
    pub fn of(scale: f64) -> Self {
        let mut volume = Self::default();
        for table in TABLES {
            let _ = each_row::<std::convert::Infallible>(table, scale, &mut |row| {
                volume.add(table, row);
                Ok(ControlFlow::Continue(()))
            });
        }
        volume
    }

    /// Adds a row of a table.
    pub fn add(&mut self, table: &Table, row: &str) {
        self.rows += 1;
        self.fields += table.columns.len() as u64;
        self.bytes += row.len() as u64 + 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows_of(table: &Table, scale: f64) -> Vec<String> {
        let mut rows = Vec::new();
        let end = each_row::<()>(table, scale, &mut |row| {
            rows.push(row.to_owned());
            Ok(ControlFlow::Continue(()))
        });
        assert_eq!(end, Ok(ControlFlow::Continue(())));
        rows
    }

    /// Row counts of TPC-H 3.0.1, clause 4.2.5, at scale 0.01.
    #[test]
    fn each_table_has_the_rows_of_its_scale_and_each_row_the_fields_of_its_table() {
        let expected = [5, 25, 100, 1500, 2000, 8000, 15_000];
        let mut volume = Volume::default();
        for (place, table) in TABLES.iter().enumerate() {
            let rows = rows_of(table, 0.01);
            match expected.get(place) {
                Some(count) => assert_eq!(rows.len(), *count, "{}", table.name),
                None => assert!((59_000..61_000).contains(&rows.len()), "{}", rows.len()),
            }
            for row in &rows {
                assert_eq!(row.split('|').count(), table.columns.len(), "{row}");
                assert!(!row.contains('\\'), "COPY would take it for an escape: {row}");
                volume.add(table, row);
            }
        }
        assert_eq!(Volume::of(0.01), volume);
    }

    #[test]
    fn keys_do_not_hold_at_every_small_scale() {
        assert!(!keys_hold(0.001) && !keys_hold(0.005));
        assert!(keys_hold(0.008) && keys_hold(0.01) && keys_hold(1.0));
    }

    #[test]
    fn a_break_ends_the_table_and_an_error_is_handed_on() {
        let mut seen = 0;
        let end = each_row::<()>(&TABLES[7], 0.01, &mut |_| {
            seen += 1;
            Ok(if seen == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        });
        assert_eq!((end, seen), (Ok(ControlFlow::Break(())), 3));
        assert_eq!(each_row(&TABLES[0], 0.01, &mut |_| Err("full")), Err("full"));
    }
}
