//! pgseal's own column types. INSERT and COPY are unchanged, and so are queries over deterministic
//! types: their input and output functions encrypt and decrypt, they compare, and they cast to
//! their plain types. Randomised types have no order and no equality, so queries use views that
//! cast.

use super::scenario::{Extension, MicroSql, Scenario};
use crate::tpch::{Column, SqlType};

const PGSEAL: Extension = Extension {
    name: "pgseal",
    remedy: "build and install pgseal's extension for this PostgreSQL (make -C extension install)",
};

/// Which columns are sealed, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sealed {
    /// Every column: numbers and dates format-preserving (FF1), text deterministic and
    /// authenticated.
    Deterministic,
    /// Every column randomised and authenticated (AES-GCM).
    Random,
    /// Only the columns with personal data or prices, deterministic.
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
            // The padding of char(n) need not be kept.
            SqlType::Char(_) | SqlType::Varchar(_) => format!("sealed_text{random}"),
        }
    }

    fn read(&self, column: &Column) -> Option<String> {
        // Randomised types have no order and no equality, so queries use casts to the plain types.
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
        // Two encryptions of one value differ, so keys do not work.
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
