//! A small database as one SQL script for `psql`, with the rows inline after COPY statements.

use std::io::{self, Write};
use std::ops::ControlFlow;

use super::rows::each_row;
use super::schema::TABLES;

/// Writes the script for the scale factor (1 is about 1 GB of rows): tables, rows, then keys.
///
/// # Errors
///
/// Errors of the writer, for example of a pipe that psql closed.
pub fn write_sql(out: &mut impl Write, scale: f64) -> io::Result<()> {
    out.write_all(b"\\set ON_ERROR_STOP on\n\\set QUIET on\nSET client_min_messages = warning;\n")?;
    for table in TABLES {
        writeln!(out, "{};", table.create())?;
    }
    for table in TABLES {
        writeln!(out, "COPY {} FROM STDIN (DELIMITER '|');", table.name)?;
        let _ = each_row::<io::Error>(table, scale, &mut |row| {
            out.write_all(row.as_bytes())?;
            out.write_all(b"\n")?;
            Ok(ControlFlow::Continue(()))
        })?;
        out.write_all(b"\\.\n")?;
    }
    for statement in TABLES.iter().flat_map(super::Table::add_keys) {
        writeln!(out, "{statement};")?;
    }
    out.write_all(b"ANALYZE;\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_scale_gives_the_same_script_with_every_table_in_it() {
        let script = || {
            let mut script = Vec::new();
            write_sql(&mut script, 0.001).unwrap();
            String::from_utf8(script).unwrap()
        };
        let text = script();
        assert_eq!(text, script());
        for table in TABLES {
            assert!(text.contains(&format!("COPY {} FROM STDIN", table.name)));
        }
        assert!(text.contains("ADD FOREIGN KEY (l_partkey, l_suppkey) REFERENCES partsupp"));
    }
}
