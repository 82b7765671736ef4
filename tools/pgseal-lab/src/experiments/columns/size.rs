//! Bytes on disk, by table and by index.

use std::fs;
use std::path::Path;

use crate::cluster::Target;
use crate::error::LabError;
use crate::executor::Observation;

/// Every relation of the schema `data`: kind (`table` or `index`), name, file path without segment
/// and fork, size in bytes as the server reports it. Tables include their TOAST tables and TOAST
/// indexes.
const RELATIONS: &str = "\
    SELECT 'table', c.relname, pg_relation_filepath(f.oid), pg_total_relation_size(c.oid) \
             - pg_indexes_size(c.oid) \
      FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
      JOIN LATERAL (SELECT c.oid \
                    UNION ALL SELECT c.reltoastrelid WHERE c.reltoastrelid <> 0 \
                    UNION ALL SELECT i.indexrelid FROM pg_index i \
                              WHERE i.indrelid = c.reltoastrelid) f ON true \
     WHERE n.nspname = 'data' AND c.relkind = 'r' \
    UNION ALL \
    SELECT 'index', c.relname, pg_relation_filepath(c.oid), pg_total_relation_size(c.oid) \
      FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
     WHERE n.nspname = 'data' AND c.relkind = 'i' \
    ORDER BY 1, 2, 3";

/// Total size of the tables with their indexes and TOAST tables.
const TOTAL: &str = "\
    SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) \
      FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
     WHERE n.nspname = 'data' AND c.relkind = 'r'";

/// Measures the length of all files of tables and indexes. `extra` has the length of each
/// (`table_..._bytes`, `index_..._bytes`), their sums (`tables_bytes`, `indexes_bytes`) and the
/// size that the server reports (`server_bytes`).
///
/// # Errors
///
/// [`LabError::Broken`] if the parts do not add up to the total, or the files of a plain cluster
/// have another size than the server reports.
pub fn measure(
    database: &Target<'_>,
    data_dir: &Path,
    sealed: bool,
) -> Result<Observation, LabError> {
    let name = database.database;
    let mut session = database.session()?;
    let listed = session.query(RELATIONS)?.rows;
    let wanted =
        || LabError::Output { command: "psql".to_owned(), wanted: "size in bytes".to_owned() };
    let total: u64 = session.query(TOTAL)?.rows.trim().parse().map_err(|_| wanted())?;
    let mut seen = Observation::default();
    for sum in ["tables_bytes", "indexes_bytes"] {
        seen.extra.insert(sum.to_owned(), 0.0);
    }
    let (mut server, mut disk) = (0, 0);
    let mut before = String::new();
    for line in listed.lines() {
        let mut fields = line.split('|');
        let (Some(kind), Some(relation), Some(file), Some(bytes)) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            return Err(wanted());
        };
        let bytes: u64 = bytes.parse().map_err(|_| wanted())?;
        let key = format!("{kind}_{relation}_bytes");
        // A table with a TOAST table has several rows, each with the total size.
        if key != before {
            server += bytes;
        }
        let length = length_of(&data_dir.join(file))?;
        disk += length;
        let sum = if kind == "index" { "indexes_bytes" } else { "tables_bytes" };
        *seen.extra.entry(sum.to_owned()).or_default() += length as f64;
        *seen.extra.entry(key.clone()).or_default() += length as f64;
        before = key;
    }
    let must = |what: &str, expected: u64, found: u64| {
        if expected == found {
            return Ok(());
        }
        Err(LabError::Broken {
            what: format!("{name}: {what}"),
            expected: format!("{expected} bytes"),
            found: format!("{found} bytes"),
        })
    };
    must("the sizes of tables and indexes summed up", total, server)?;
    if !sealed {
        must("the lengths of their files summed up", total, disk)?;
    }
    seen.extra.insert("server_bytes".to_owned(), total as f64);
    seen.facts.insert("sizes".to_owned(), "sum up to the total".to_owned());
    seen.value = disk as f64;
    Ok(seen)
}

/// Length of a relation's files: all forks, all segments.
fn length_of(path: &Path) -> Result<u64, LabError> {
    let mut length = 0;
    for fork in ["", "_fsm", "_vm", "_init"] {
        for segment in 0.. {
            let mut file = path.as_os_str().to_owned();
            file.push(fork);
            if segment > 0 {
                file.push(format!(".{segment}"));
            }
            match fs::metadata(Path::new(&file)) {
                Ok(found) => length += found.len(),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => break,
                Err(error) => {
                    return Err(LabError::io(Path::new(&file), "look at the file's size")(error));
                }
            }
        }
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forks_and_segments_count_and_files_of_others_do_not() {
        let dir = tempfile::tempdir().unwrap();
        for (name, length) in
            [("16384", 10), ("16384.1", 7), ("16384.3", 1000), ("16384_fsm", 5), ("163841", 1000)]
        {
            fs::write(dir.path().join(name), vec![0; length]).unwrap();
        }
        assert_eq!(length_of(&dir.path().join("16384")).unwrap(), 22);
        assert_eq!(length_of(&dir.path().join("2")).unwrap(), 0);
    }
}
