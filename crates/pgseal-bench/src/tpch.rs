//! A small TPC-H database as one SQL script with its rows inline, for `psql`.
//!
//! The rows go from here through a pipe into COPY, so no plain file of them ever lies on disk.

use std::fmt::Display;
use std::io::{self, Write};

use tpchgen::csv::{
    CustomerCsv, LineItemCsv, NationCsv, OrderCsv, PartCsv, PartSuppCsv, RegionCsv, SupplierCsv,
};
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};

/// The tables of TPC-H 3.0.1, clause 1.4, with keys added after loading.
const SCHEMA: &str = "\
CREATE TABLE region (r_regionkey int, r_name char(25), r_comment varchar(152));
CREATE TABLE nation (n_nationkey int, n_name char(25), n_regionkey int, n_comment varchar(152));
CREATE TABLE supplier (s_suppkey int, s_name char(25), s_address varchar(40), s_nationkey int,
    s_phone char(15), s_acctbal numeric(15,2), s_comment varchar(101));
CREATE TABLE customer (c_custkey int, c_name varchar(25), c_address varchar(40), c_nationkey int,
    c_phone char(15), c_acctbal numeric(15,2), c_mktsegment char(10), c_comment varchar(117));
CREATE TABLE part (p_partkey int, p_name varchar(55), p_mfgr char(25), p_brand char(10),
    p_type varchar(25), p_size int, p_container char(10), p_retailprice numeric(15,2),
    p_comment varchar(23));
CREATE TABLE partsupp (ps_partkey int, ps_suppkey int, ps_availqty int,
    ps_supplycost numeric(15,2), ps_comment varchar(199));
CREATE TABLE orders (o_orderkey bigint, o_custkey int, o_orderstatus char(1),
    o_totalprice numeric(15,2), o_orderdate date, o_orderpriority char(15), o_clerk char(15),
    o_shippriority int, o_comment varchar(79));
CREATE TABLE lineitem (l_orderkey bigint, l_partkey int, l_suppkey int, l_linenumber int,
    l_quantity numeric(15,2), l_extendedprice numeric(15,2), l_discount numeric(15,2),
    l_tax numeric(15,2), l_returnflag char(1), l_linestatus char(1), l_shipdate date,
    l_commitdate date, l_receiptdate date, l_shipinstruct char(25), l_shipmode char(10),
    l_comment varchar(44));
";

const KEYS: &str = "\
ALTER TABLE region ADD PRIMARY KEY (r_regionkey);
ALTER TABLE nation ADD PRIMARY KEY (n_nationkey);
ALTER TABLE supplier ADD PRIMARY KEY (s_suppkey);
ALTER TABLE customer ADD PRIMARY KEY (c_custkey);
ALTER TABLE part ADD PRIMARY KEY (p_partkey);
ALTER TABLE partsupp ADD PRIMARY KEY (ps_partkey, ps_suppkey);
ALTER TABLE orders ADD PRIMARY KEY (o_orderkey);
ALTER TABLE lineitem ADD PRIMARY KEY (l_orderkey, l_linenumber);
ALTER TABLE orders ADD FOREIGN KEY (o_custkey) REFERENCES customer;
ALTER TABLE lineitem ADD FOREIGN KEY (l_orderkey) REFERENCES orders;
ANALYZE;
";

/// Writes the script for the scale factor (1 is about 1 GB of rows).
///
/// # Errors
///
/// Those of the writer, a pipe that psql closed for example.
pub fn write_sql(out: &mut impl Write, scale: f64) -> io::Result<()> {
    out.write_all(b"\\set ON_ERROR_STOP on\n\\set QUIET on\nSET client_min_messages = warning;\n")?;
    out.write_all(SCHEMA.as_bytes())?;
    copy(out, "region", RegionGenerator::new(scale, 1, 1).iter().map(RegionCsv::new))?;
    copy(out, "nation", NationGenerator::new(scale, 1, 1).iter().map(NationCsv::new))?;
    copy(out, "supplier", SupplierGenerator::new(scale, 1, 1).iter().map(SupplierCsv::new))?;
    copy(out, "customer", CustomerGenerator::new(scale, 1, 1).iter().map(CustomerCsv::new))?;
    copy(out, "part", PartGenerator::new(scale, 1, 1).iter().map(PartCsv::new))?;
    copy(out, "partsupp", PartSuppGenerator::new(scale, 1, 1).iter().map(PartSuppCsv::new))?;
    copy(out, "orders", OrderGenerator::new(scale, 1, 1).iter().map(OrderCsv::new))?;
    copy(out, "lineitem", LineItemGenerator::new(scale, 1, 1).iter().map(LineItemCsv::new))?;
    out.write_all(KEYS.as_bytes())
}

fn copy<R: Display>(
    out: &mut impl Write,
    table: &str,
    rows: impl Iterator<Item = R>,
) -> io::Result<()> {
    writeln!(out, "COPY {table} FROM STDIN (FORMAT csv);")?;
    for row in rows {
        writeln!(out, "{row}")?;
    }
    out.write_all(b"\\.\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row counts of TPC-H 3.0.1, clause 4.2.5, at scale 0.01.
    #[test]
    fn each_table_has_the_rows_of_its_scale() {
        let mut script = Vec::new();
        write_sql(&mut script, 0.01).unwrap();
        let script = String::from_utf8(script).unwrap();
        let rows_of = |table: &str| {
            let (_, rest) = script.split_once(&format!("COPY {table} FROM STDIN")).unwrap();
            rest.lines().skip(1).take_while(|line| *line != "\\.").count()
        };
        for (table, rows) in [
            ("region", 5),
            ("nation", 25),
            ("supplier", 100),
            ("customer", 1500),
            ("part", 2000),
            ("partsupp", 8000),
            ("orders", 15_000),
        ] {
            assert_eq!(rows_of(table), rows, "{table}");
        }
        let items = rows_of("lineitem");
        assert!((59_000..61_000).contains(&items), "{items}");
    }

    #[test]
    fn the_same_scale_gives_the_same_rows() {
        let script = || {
            let mut script = Vec::new();
            write_sql(&mut script, 0.001).unwrap();
            script
        };
        assert_eq!(script(), script());
    }
}
