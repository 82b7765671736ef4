//! Loads rows in the study's way (INSERTs) and with COPY, up to a time budget.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::database::{create_stage, insert_from_stage};
use super::scenario::{CopyWay, Scenario};
use crate::cluster::Session;
use crate::error::LabError;
use crate::tpch::{TABLES, Table, Volume, each_row};

/// What to load.
#[derive(Debug, Clone, Copy)]
pub struct Load<'a> {
    /// How values are written.
    pub scenario: &'a dyn Scenario,
    /// Scale factor.
    pub scale: f64,
    /// The volume of all rows at that scale.
    pub total: Volume,
    /// Whether to load with COPY instead of INSERTs.
    pub copy: bool,
    /// Size of the rows of one INSERT, in bytes.
    pub bulk_bytes: u64,
    /// The time after which loading stops; none: load all.
    pub budget: Option<Duration>,
    /// Load only this many tables, from the first.
    pub tables: usize,
}

/// The result of a load.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// Seconds until the last row was stored.
    pub seconds: f64,
    /// The loaded volume.
    pub volume: Volume,
    /// Whether the budget ended the load.
    pub stopped: bool,
    /// The seconds at which each twentieth of the total volume was reached.
    pub twentieths_s: Vec<f64>,
}

impl Loaded {
    /// The estimated seconds of a complete load, in proportion to the number of fields: each field
    /// is one encrypted value, and most of the cost is per value.
    pub fn extrapolated_s(&self, total: Volume) -> f64 {
        if self.stopped && self.volume.fields > 0 {
            self.seconds * total.fields as f64 / self.volume.fields as f64
        } else {
            self.seconds
        }
    }

    /// The loaded share of the fields, out of 1.
    pub fn share(&self, total: Volume) -> f64 {
        self.volume.fields as f64 / total.fields.max(1) as f64
    }
}

/// Tracks time and volume while rows are sent.
struct Meter<'a> {
    load: &'a Load<'a>,
    begin: Instant,
    volume: Volume,
    twentieths_s: Vec<f64>,
    stopped: bool,
}

impl Meter<'_> {
    fn row(&mut self, table: &Table, row: &str) {
        self.volume.add(table, row);
    }

    /// Called where a load may stop: records the progress and checks the budget. The rows that the
    /// server has not yet read fit into a pipe.
    fn pause(&mut self) -> ControlFlow<()> {
        let elapsed = self.begin.elapsed();
        let total = self.load.total.bytes.max(1);
        while self.volume.bytes * 20 >= (self.twentieths_s.len() as u64 + 1) * total
            && self.twentieths_s.len() < 20
        {
            self.twentieths_s.push(elapsed.as_secs_f64());
        }
        self.stopped = self.load.budget.is_some_and(|budget| elapsed > budget)
            && self.volume.fields < self.load.total.fields;
        if self.stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl Load<'_> {
    /// Loads the tables, each in one transaction: makes the rows, writes them as SQL and has psql
    /// send them.
    ///
    /// # Errors
    ///
    /// The error of the server.
    pub fn run(&self, session: &mut Session) -> Result<Loaded, LabError> {
        session.script(&format!("SET search_path = {}, public", super::database::DATA))?;
        let tables = TABLES.get(..self.tables).unwrap_or(TABLES);
        for table in tables.iter().filter(|_| self.copy) {
            if let Some(stage) = create_stage(self.scenario, table) {
                session.script(&stage)?;
            }
        }
        let mut meter = Meter {
            load: self,
            begin: Instant::now(),
            volume: Volume::default(),
            twentieths_s: Vec::new(),
            stopped: false,
        };
        for table in tables {
            session.script("BEGIN")?;
            match self.scenario.copy() {
                _ if !self.copy => self.inserts(table, session, &mut meter)?,
                CopyWay::Direct => self.copy_direct(table, session, &mut meter)?,
                CopyWay::Staged { batch_rows } => {
                    self.copy_staged(table, batch_rows, session, &mut meter)?;
                }
            }
            session.script("COMMIT")?;
            if meter.stopped {
                break;
            }
        }
        let seconds = meter.begin.elapsed().as_secs_f64();
        let Meter { volume, stopped, mut twentieths_s, .. } = meter;
        if volume.bytes >= self.total.bytes {
            // Only now is the last row stored.
            twentieths_s.truncate(19);
            twentieths_s.push(seconds);
        }
        Ok(Loaded { seconds, volume, stopped, twentieths_s })
    }

    /// Sends `INSERT INTO t VALUES (...), (...), ...`, each with rows of `bulk_bytes` in total. The
    /// size counts the content of the rows, not the text of the statement, so that every scenario
    /// sends the same rows in one statement.
    fn inserts(
        &self,
        table: &Table,
        session: &mut Session,
        meter: &mut Meter<'_>,
    ) -> Result<(), LabError> {
        let head = format!("INSERT INTO {} VALUES\n", table.name);
        session.feed(|out| {
            let mut bulk = String::with_capacity(1 << 16);
            let mut bulk_bytes = 0;
            let _ = each_row::<io::Error>(table, self.scale, &mut |row| {
                bulk.push_str(if bulk.is_empty() { &head } else { ",\n" });
                self.tuple(table, row, &mut bulk);
                bulk_bytes += row.len() as u64 + 2;
                meter.row(table, row);
                if bulk_bytes < self.bulk_bytes {
                    return Ok(ControlFlow::Continue(()));
                }
                send(&mut bulk, out)?;
                bulk_bytes = 0;
                Ok(meter.pause())
            })?;
            if !bulk.is_empty() {
                send(&mut bulk, out)?;
                let _ = meter.pause();
            }
            Ok(())
        })?;
        Ok(())
    }

    fn tuple(&self, table: &Table, row: &str, out: &mut String) {
        let mut before = '(';
        for (column, field) in table.columns.iter().zip(row.split('|')) {
            out.push(before);
            self.scenario.literal(column, field, out);
            before = ',';
        }
        out.push(')');
    }

    fn copy_direct(
        &self,
        table: &Table,
        session: &mut Session,
        meter: &mut Meter<'_>,
    ) -> Result<(), LabError> {
        let copy = format!("COPY {} FROM STDIN (DELIMITER '|')", table.name);
        session.copy_in(&copy, |out| {
            let mut sent = 0;
            let _ = each_row::<io::Error>(table, self.scale, &mut |row| {
                line(row, out)?;
                meter.row(table, row);
                sent += 1;
                // Reading the clock for each row would cost more than some rows do.
                let pause = sent % 128 == 0;
                Ok(if pause { meter.pause() } else { ControlFlow::Continue(()) })
            })?;
            let _ = meter.pause();
            Ok(())
        })?;
        Ok(())
    }

    fn copy_staged(
        &self,
        table: &Table,
        batch_rows: u64,
        session: &mut Session,
        meter: &mut Meter<'_>,
    ) -> Result<(), LabError> {
        let mut batch = Vec::new();
        let mut rows = 0;
        let _ = each_row::<LabError>(table, self.scale, &mut |row| {
            // Writing to memory cannot fail.
            let _ = line(row, &mut batch);
            meter.row(table, row);
            rows += 1;
            if rows < batch_rows {
                return Ok(ControlFlow::Continue(()));
            }
            rows = 0;
            self.batch(table, &mut batch, session)?;
            Ok(meter.pause())
        })?;
        if !batch.is_empty() {
            self.batch(table, &mut batch, session)?;
            let _ = meter.pause();
        }
        Ok(())
    }

    fn batch(
        &self,
        table: &Table,
        batch: &mut Vec<u8>,
        session: &mut Session,
    ) -> Result<(), LabError> {
        let stage = format!("stage_{}", table.name);
        let copy = format!("COPY {stage} FROM STDIN (DELIMITER '|')");
        session.copy_in(&copy, |out| out.write_all(batch))?;
        batch.clear();
        let insert = insert_from_stage(self.scenario, table);
        session.script(&format!("{insert}; TRUNCATE {stage}"))?;
        Ok(())
    }
}

fn send(bulk: &mut String, out: &mut dyn Write) -> io::Result<()> {
    bulk.push_str(";\n");
    out.write_all(bulk.as_bytes())?;
    bulk.clear();
    Ok(())
}

fn line(row: &str, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(row.as_bytes())?;
    out.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::columns::scenario;

    #[test]
    fn what_was_stopped_is_extrapolated_by_fields() {
        let total = Volume { rows: 100, fields: 1000, bytes: 9000 };
        let mut loaded = Loaded {
            seconds: 3.0,
            volume: Volume { rows: 20, fields: 250, bytes: 1000 },
            stopped: true,
            twentieths_s: vec![],
        };
        assert_eq!((loaded.extrapolated_s(total), loaded.share(total)), (12.0, 0.25));
        loaded.stopped = false;
        assert_eq!(loaded.extrapolated_s(total), 3.0);
    }

    #[test]
    fn a_row_becomes_a_tuple_with_every_field_wrapped() {
        let plain = scenario::named("plain").unwrap();
        let raw = scenario::named("raw").unwrap();
        let tuple = |scenario: &dyn Scenario| {
            let total = Volume::default();
            let load = Load {
                scenario,
                scale: 1.0,
                total,
                copy: false,
                bulk_bytes: 4096,
                budget: None,
                tables: 8,
            };
            let mut out = String::new();
            load.tuple(&TABLES[0], "0|AFRICA|it's far", &mut out);
            out
        };
        assert_eq!(tuple(plain.as_ref()), "(0,'AFRICA','it''s far')");
        let wrapped = tuple(raw.as_ref());
        assert_eq!(wrapped.matches("encrypt('").count(), 3, "{wrapped}");
        assert!(wrapped.contains("'it''s far'"), "{wrapped}");
    }

    #[test]
    fn the_meter_notes_twentieths_and_stops_at_the_budget() {
        let plain = scenario::named("plain").unwrap();
        let total = Volume { rows: 100, fields: 300, bytes: 2000 };
        let load = Load {
            scenario: plain.as_ref(),
            scale: 1.0,
            total,
            copy: true,
            bulk_bytes: 4096,
            budget: Some(Duration::ZERO),
            tables: 8,
        };
        let mut meter = Meter {
            load: &load,
            begin: Instant::now(),
            volume: Volume::default(),
            twentieths_s: vec![],
            stopped: false,
        };
        for _ in 0..10 {
            meter.row(&TABLES[0], "0|AFRICA|far far a");
        }
        std::thread::sleep(Duration::from_millis(1));
        assert!(meter.pause().is_break() && meter.stopped);
        assert_eq!(meter.twentieths_s.len(), 2);
    }
}
