//! pgseal's own column types. INSERT and COPY stay as they are, and so do queries over deterministic
//! types: these read and write themselves, compare, and cast to their plain types. Randomised ones have
//! no order and no equality, so that queries go over views that cast.

use super::scenario::{Extension, MicroSql, Scenario};
use crate::tpch::{Column, SqlType};

const PGSEAL: Extension = Extension {
    name: "pgseal",
    remedy: "build and install pgseal's extension for this PostgreSQL (make -C extension install)",
};

/// What is sealed, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sealed {
    /// Every column: numbers and dates format-preserving (FF1), text deterministic and authenticated.
    Deterministic,
    /// Every column randomised and authenticated (AES-GCM).
    Random,
    /// Only the columns that say something about a person or a price, deterministic.
    Sensitive,
}

impl Sealed {
    fn seals(self, column: &Column) -> bool {
        self != Self::Sensitive || column.sensitive
    }
}

impl Scenario for Sealed {
    fn id(&self) -> &'static str {
        match self {
            Self::Deterministic => "sealed-det",
            Self::Random => "sealed-random",
            Self::Sensitive => "sealed-some",
        }
    }

    fn title(&self) -> &'static str {
        match self {
            Self::Deterministic => "Sealed columns, deterministic/format-preserving",
            Self::Random => "Sealed columns, randomised",
            Self::Sensitive => "Only the sensitive columns",
        }
    }

    fn extension(&self) -> Option<Extension> {
        Some(PGSEAL)
    }

    fn setup(&self) -> Vec<String> {
        vec!["SELECT pgseal.create_domain('default')".to_owned()]
    }

    fn needs_column_key(&self) -> bool {
        true
    }

    fn sql_type(&self, column: &Column) -> String {
        if !self.seals(column) {
            return column.sql_type.sql();
        }
        let random = if *self == Self::Random { "_random" } else { "" };
        match column.sql_type {
            SqlType::Int => format!("sealed_int4{random}"),
            SqlType::BigInt => format!("sealed_int8{random}"),
            SqlType::Numeric => format!("sealed_numeric{random}(15,2)"),
            SqlType::Date => format!("sealed_date{random}"),
            // There is no padding to keep.
            SqlType::Char(_) | SqlType::Varchar(_) => format!("sealed_text{random}"),
        }
    }

    fn read(&self, column: &Column) -> Option<String> {
        // Randomised values have no order and no equality: queries go over casts to the plain types.
        let plain = match column.sql_type {
            SqlType::Char(_) | SqlType::Varchar(_) => "text".to_owned(),
            other => other.sql(),
        };
        (*self == Self::Random).then(|| format!("{}::{plain}", column.name))
    }

    fn micro(&self) -> Option<MicroSql> {
        let random = match self {
            Self::Deterministic => "",
            Self::Random => "_random",
            Self::Sensitive => return None,
        };
        Some(MicroSql {
            encrypt_int8: format!("i::sealed_int8{random}"),
            decrypt_int8: "ei::bigint".to_owned(),
            encrypt_text16: format!("t::sealed_text{random}"),
            decrypt_text16: "et::text".to_owned(),
            thin: 1,
        })
    }

    fn has_keys(&self) -> bool {
        // Two encryptions of one value differ.
        *self != Self::Random
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tpch::TABLES;

    #[test]
    fn the_sensitive_ones_are_some_and_keys_stay_plain() {
        let columns: Vec<_> = TABLES.iter().flat_map(|table| table.columns).collect();
        let sealed: Vec<_> = columns
            .iter()
            .filter(|column| Sealed::Sensitive.sql_type(column).starts_with("sealed_"))
            .map(|column| column.name)
            .collect();
        assert!(sealed.len() > 5 && sealed.len() < columns.len() / 2, "{sealed:?}");
        assert!(sealed.iter().all(|name| !name.ends_with("key")), "{sealed:?}");
        let all = |kind: Sealed| {
            columns.iter().all(|column| kind.sql_type(column).starts_with("sealed_"))
        };
        assert!(all(Sealed::Deterministic) && all(Sealed::Random));
    }
}
