//! Scenarios: how a column is stored, how a value is written and how it is read.
//!
//! A scenario answers for each column of the TPC-H schema; the loader, the databases and the
//! queries do not know about ciphers. A new scenario implements [`Scenario`] and is added to
//! [`all`].

use std::fmt::Debug;

use super::pgcrypto::{Pgp, Raw};
use super::sealed::Sealed;
use crate::tpch::Column;

/// The server that holds the scenario's database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Home {
    /// The plain server.
    Plain,
    /// The server whose whole data directory is sealed.
    Sealed,
}

/// How COPY loads the scenario's tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyWay {
    /// COPY into the table itself.
    Direct,
    /// COPY calls no function, so rows go into a temporary text table first, and from there in
    /// batches by `INSERT ... SELECT` with the encrypting function around each column.
    Staged {
        /// Rows of one batch.
        batch_rows: u64,
    },
}

/// An extension that must be installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extension {
    /// As `CREATE EXTENSION` takes it.
    pub name: &'static str,
    /// What to install.
    pub remedy: &'static str,
}

/// The operations of the microbenchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Micro {
    /// Encrypt a `bigint`.
    EncryptInt8,
    /// Decrypt a `bigint`.
    DecryptInt8,
    /// Encrypt a `text` of 16 bytes.
    EncryptText16,
    /// Decrypt a `text` of 16 bytes.
    DecryptText16,
}

impl Micro {
    /// All operations, in the order of the report.
    pub const ALL: [Self; 4] =
        [Self::EncryptInt8, Self::DecryptInt8, Self::EncryptText16, Self::DecryptText16];

    /// The operation's part of a case name.
    pub fn id(self) -> &'static str {
        match self {
            Self::EncryptInt8 => "encrypt-int8",
            Self::DecryptInt8 => "decrypt-int8",
            Self::EncryptText16 => "encrypt-text16",
            Self::DecryptText16 => "decrypt-text16",
        }
    }

    /// The operation's name for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::EncryptInt8 => "Encrypt one bigint",
            Self::DecryptInt8 => "Decrypt one bigint",
            Self::EncryptText16 => "Encrypt one text of 16 bytes",
            Self::DecryptText16 => "Decrypt one text of 16 bytes",
        }
    }
}

/// Expressions of the microbenchmark, over a table with the columns `i bigint` and `t text`, and
/// their encrypted values `ei` and `et`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MicroSql {
    /// Encrypts `i`.
    pub encrypt_int8: String,
    /// Decrypts `ei`.
    pub decrypt_int8: String,
    /// Encrypts `t`.
    pub encrypt_text16: String,
    /// Decrypts `et`.
    pub decrypt_text16: String,
    /// Only one of this many rows of the profile's `micro_rows` is measured; above 1 for slow
    /// scenarios.
    pub thin: u64,
}

impl MicroSql {
    /// The expression to time.
    pub fn expression(&self, what: Micro) -> &str {
        match what {
            Micro::EncryptInt8 => &self.encrypt_int8,
            Micro::DecryptInt8 => &self.decrypt_int8,
            Micro::EncryptText16 => &self.encrypt_text16,
            Micro::DecryptText16 => &self.decrypt_text16,
        }
    }
}

/// One way to store the columns. The default methods are those of plain columns.
pub trait Scenario: Debug {
    /// Short name, unique; also the arm's id.
    fn id(&self) -> &'static str;

    /// The scenario's name for people.
    fn title(&self) -> &'static str;

    /// The server of its databases.
    fn home(&self) -> Home {
        Home::Plain
    }

    /// The extension that must be installed.
    fn extension(&self) -> Option<Extension> {
        None
    }

    /// Statements that prepare a new database, after `CREATE EXTENSION`.
    fn setup(&self) -> Vec<String> {
        Vec::new()
    }

    /// Settings (`name = value`) of every session of its databases.
    fn settings(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether the server needs a key provider (`pgseal.provider`, `pgseal.helper`).
    fn needs_column_key(&self) -> bool {
        false
    }

    /// The column's type.
    fn sql_type(&self, column: &Column) -> String {
        column.sql_type.sql()
    }

    /// Writes a field as a literal for INSERT.
    fn literal(&self, column: &Column, field: &str, out: &mut String) {
        plain_literal(column, field, out);
    }

    /// How COPY loads the tables.
    fn copy(&self) -> CopyWay {
        CopyWay::Direct
    }

    /// For [`CopyWay::Staged`]: the value to store, from this expression of type text.
    fn stored(&self, column: &Column, text: &str) -> String {
        format!("{text}::{}", column.sql_type.sql())
    }

    /// An expression that decrypts the column, for a view with the table's name; none: queries read
    /// the table itself.
    fn read(&self, _column: &Column) -> Option<String> {
        None
    }

    /// Expressions for the microbenchmark.
    fn micro(&self) -> Option<MicroSql> {
        None
    }

    /// Whether the study's queries can be run in reasonable time.
    fn is_queried(&self) -> bool {
        true
    }

    /// Whether the scenario is also measured with primary and foreign keys.
    fn has_keys(&self) -> bool {
        true
    }
}

/// Writes a number unchanged and anything else quoted.
pub fn plain_literal(column: &Column, field: &str, out: &mut String) {
    if column.sql_type.is_number() {
        out.push_str(field);
    } else {
        quote(field, out);
    }
}

/// Writes an SQL string literal, with `standard_conforming_strings` on.
pub fn quote(field: &str, out: &mut String) {
    out.push('\'');
    for (place, part) in field.split('\'').enumerate() {
        if place > 0 {
            out.push_str("''");
        }
        out.push_str(part);
    }
    out.push('\'');
}

/// Plain columns on a plain server: the baseline.
#[derive(Debug)]
struct Plain;

impl Scenario for Plain {
    fn id(&self) -> &'static str {
        "plain"
    }

    fn title(&self) -> &'static str {
        "Plain"
    }
}

/// Plain columns on a sealed server.
#[derive(Debug)]
struct SealedInstance;

impl Scenario for SealedInstance {
    fn id(&self) -> &'static str {
        "sealed-instance"
    }

    fn title(&self) -> &'static str {
        "Sealed instance, plain columns"
    }

    fn home(&self) -> Home {
        Home::Sealed
    }
}

/// All scenarios, the baseline first.
pub fn all() -> Vec<Box<dyn Scenario>> {
    vec![
        Box::new(Plain),
        Box::new(Pgp),
        Box::new(Raw { hex: false }),
        Box::new(Raw { hex: true }),
        Box::new(SealedInstance),
        Box::new(Sealed::Deterministic),
        Box::new(Sealed::Random),
        Box::new(Sealed::Sensitive),
    ]
}

/// The scenario of an arm's attribute `scenario`.
pub fn named(id: &str) -> Option<Box<dyn Scenario>> {
    all().into_iter().find(|scenario| scenario.id() == id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tpch::SqlType;

    #[test]
    fn literals_are_quoted_unless_they_are_numbers() {
        let column = |sql_type| Column { name: "c", sql_type, sensitive: false };
        let literal = |sql_type, field| {
            let mut out = String::new();
            plain_literal(&column(sql_type), field, &mut out);
            out
        };
        assert_eq!(literal(SqlType::Numeric, "17.00"), "17.00");
        assert_eq!(literal(SqlType::Date, "1996-03-13"), "'1996-03-13'");
        assert_eq!(literal(SqlType::Varchar(9), "it's ''"), "'it''s '''''");
    }

    #[test]
    fn names_are_unique_and_the_baseline_is_first() {
        let names: Vec<_> = all().iter().map(|scenario| scenario.id()).collect();
        let unique: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!((names[0], unique.len()), ("plain", names.len()));
        assert!(named("raw").is_some() && named("other").is_none());
    }
}
