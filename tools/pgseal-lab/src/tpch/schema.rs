//! The eight tables of TPC-H 3.0.1, clause 1.4.1, with the keys of clause 1.4.2.

/// A column's type in PostgreSQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SqlType {
    /// `integer`.
    Int,
    /// `bigint`.
    BigInt,
    /// `numeric(15,2)`, the specification's decimal.
    Numeric,
    /// `date`.
    Date,
    /// `char(n)`.
    Char(u16),
    /// `varchar(n)`.
    Varchar(u16),
}

impl SqlType {
    /// The type's name in SQL.
    pub fn sql(self) -> String {
        match self {
            Self::Int => "int".to_owned(),
            Self::BigInt => "bigint".to_owned(),
            Self::Numeric => "numeric(15,2)".to_owned(),
            Self::Date => "date".to_owned(),
            Self::Char(length) => format!("char({length})"),
            Self::Varchar(length) => format!("varchar({length})"),
        }
    }

    /// Whether SQL writes values of this type without quotes.
    pub fn is_number(self) -> bool {
        matches!(self, Self::Int | Self::BigInt | Self::Numeric)
    }
}

/// One column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// The column's name, unique in the whole schema.
    pub name: &'static str,
    /// The column's type if nothing is encrypted.
    pub sql_type: SqlType,
    /// Whether the column says something about a person or somebody's earnings. These columns are
    /// sealed when only sensitive columns are. The choice is this project's, not the
    /// specification's.
    pub sensitive: bool,
}

/// A reference to the primary key of another table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForeignKey {
    /// The referencing columns, in the order of `references`.
    pub columns: &'static [&'static str],
    /// The referenced table.
    pub table: &'static str,
    /// The referenced table's primary key.
    pub references: &'static [&'static str],
}

/// One table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Table {
    /// The table's name.
    pub name: &'static str,
    /// The table's columns, in order.
    pub columns: &'static [Column],
    /// Columns of the primary key.
    pub primary_key: &'static [&'static str],
    /// The foreign keys.
    pub foreign_keys: &'static [ForeignKey],
}

const fn open(name: &'static str, sql_type: SqlType) -> Column {
    Column { name, sql_type, sensitive: false }
}

const fn sensitive(name: &'static str, sql_type: SqlType) -> Column {
    Column { name, sql_type, sensitive: true }
}

const fn to(
    columns: &'static [&'static str],
    table: &'static str,
    references: &'static [&'static str],
) -> ForeignKey {
    ForeignKey { columns, table, references }
}

use SqlType::{BigInt, Char, Date, Int, Numeric, Varchar};

/// All tables, each after the tables that its foreign keys reference.
pub const TABLES: &[Table] = &[
    Table {
        name: "region",
        columns: &[
            open("r_regionkey", Int),
            open("r_name", Char(25)),
            open("r_comment", Varchar(152)),
        ],
        primary_key: &["r_regionkey"],
        foreign_keys: &[],
    },
    Table {
        name: "nation",
        columns: &[
            open("n_nationkey", Int),
            open("n_name", Char(25)),
            open("n_regionkey", Int),
            open("n_comment", Varchar(152)),
        ],
        primary_key: &["n_nationkey"],
        foreign_keys: &[to(&["n_regionkey"], "region", &["r_regionkey"])],
    },
    Table {
        name: "supplier",
        columns: &[
            open("s_suppkey", Int),
            sensitive("s_name", Char(25)),
            sensitive("s_address", Varchar(40)),
            open("s_nationkey", Int),
            sensitive("s_phone", Char(15)),
            sensitive("s_acctbal", Numeric),
            open("s_comment", Varchar(101)),
        ],
        primary_key: &["s_suppkey"],
        foreign_keys: &[to(&["s_nationkey"], "nation", &["n_nationkey"])],
    },
    Table {
        name: "customer",
        columns: &[
            open("c_custkey", Int),
            sensitive("c_name", Varchar(25)),
            sensitive("c_address", Varchar(40)),
            open("c_nationkey", Int),
            sensitive("c_phone", Char(15)),
            sensitive("c_acctbal", Numeric),
            open("c_mktsegment", Char(10)),
            open("c_comment", Varchar(117)),
        ],
        primary_key: &["c_custkey"],
        foreign_keys: &[to(&["c_nationkey"], "nation", &["n_nationkey"])],
    },
    Table {
        name: "part",
        columns: &[
            open("p_partkey", Int),
            open("p_name", Varchar(55)),
            open("p_mfgr", Char(25)),
            open("p_brand", Char(10)),
            open("p_type", Varchar(25)),
            open("p_size", Int),
            open("p_container", Char(10)),
            open("p_retailprice", Numeric),
            open("p_comment", Varchar(23)),
        ],
        primary_key: &["p_partkey"],
        foreign_keys: &[],
    },
    Table {
        name: "partsupp",
        columns: &[
            open("ps_partkey", Int),
            open("ps_suppkey", Int),
            open("ps_availqty", Int),
            sensitive("ps_supplycost", Numeric),
            open("ps_comment", Varchar(199)),
        ],
        primary_key: &["ps_partkey", "ps_suppkey"],
        foreign_keys: &[
            to(&["ps_partkey"], "part", &["p_partkey"]),
            to(&["ps_suppkey"], "supplier", &["s_suppkey"]),
        ],
    },
    Table {
        name: "orders",
        columns: &[
            open("o_orderkey", BigInt),
            open("o_custkey", Int),
            open("o_orderstatus", Char(1)),
            sensitive("o_totalprice", Numeric),
            open("o_orderdate", Date),
            open("o_orderpriority", Char(15)),
            sensitive("o_clerk", Char(15)),
            open("o_shippriority", Int),
            open("o_comment", Varchar(79)),
        ],
        primary_key: &["o_orderkey"],
        foreign_keys: &[to(&["o_custkey"], "customer", &["c_custkey"])],
    },
    Table {
        name: "lineitem",
        columns: &[
            open("l_orderkey", BigInt),
            open("l_partkey", Int),
            open("l_suppkey", Int),
            open("l_linenumber", Int),
            open("l_quantity", Numeric),
            sensitive("l_extendedprice", Numeric),
            sensitive("l_discount", Numeric),
            open("l_tax", Numeric),
            open("l_returnflag", Char(1)),
            open("l_linestatus", Char(1)),
            open("l_shipdate", Date),
            open("l_commitdate", Date),
            open("l_receiptdate", Date),
            open("l_shipinstruct", Char(25)),
            open("l_shipmode", Char(10)),
            open("l_comment", Varchar(44)),
        ],
        primary_key: &["l_orderkey", "l_linenumber"],
        foreign_keys: &[
            to(&["l_orderkey"], "orders", &["o_orderkey"]),
            to(&["l_partkey", "l_suppkey"], "partsupp", &["ps_partkey", "ps_suppkey"]),
        ],
    },
];

impl Table {
    /// The column of this name.
    pub fn column(&self, name: &str) -> Option<&'static Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// The ALTER TABLE statements that add the primary key and the foreign keys.
    pub fn add_keys(&self) -> Vec<String> {
        let primary =
            format!("ALTER TABLE {} ADD PRIMARY KEY ({})", self.name, self.primary_key.join(", "));
        let foreign = self.foreign_keys.iter().map(|key| {
            format!(
                "ALTER TABLE {} ADD FOREIGN KEY ({}) REFERENCES {} ({})",
                self.name,
                key.columns.join(", "),
                key.table,
                key.references.join(", ")
            )
        });
        std::iter::once(primary).chain(foreign).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_name_columns_that_exist_and_tables_that_come_before() {
        for (place, table) in TABLES.iter().enumerate() {
            assert!(table.primary_key.iter().all(|name| table.column(name).is_some()));
            for key in table.foreign_keys {
                assert!(key.columns.iter().all(|name| table.column(name).is_some()), "{key:?}");
                let other = TABLES.iter().position(|other| other.name == key.table).unwrap();
                assert!(other < place, "{key:?}");
                assert_eq!(TABLES[other].primary_key, key.references);
            }
        }
    }

    #[test]
    fn each_table_has_the_columns_of_the_specification() {
        let counts: Vec<_> = TABLES.iter().map(|table| table.columns.len()).collect();
        assert_eq!(counts, [3, 4, 7, 8, 9, 5, 9, 16]);
    }
}
