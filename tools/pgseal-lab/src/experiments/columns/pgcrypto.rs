//! The study's scenarios: every field wrapped in a function of PostgreSQL's extension `pgcrypto`.

use super::scenario::{CopyWay, Extension, MicroSql, Scenario, quote};
use crate::tpch::Column;

/// 32 bytes: AES-256, as for sealed columns and instances. The key is in every statement, as usual
/// with pgcrypto; the data are generated, so the key need not be secret.
const KEY: &str = "a key that everybody can read 32";

const PGCRYPTO: Extension = Extension {
    name: "pgcrypto",
    remedy: "install the contrib modules of this PostgreSQL (Debian and PGDG: part of postgresql-NN; \
             RPM: postgresqlNN-contrib)",
};

/// Rows per batch when rows are copied from the staging table to the encrypted table.
const BATCH_ROWS: u64 = 20_000;
/// Rows per batch where a value takes about 0.2 ms, so that the time budget is noticed in time.
const SLOW_BATCH_ROWS: u64 = 200;

/// `encrypt(value, key, 'aes')`: AES-CBC with an initialization vector of zeroes (so deterministic)
/// and PKCS padding, no integrity.
#[derive(Debug)]
pub struct Raw {
    /// Stored as text of hexadecimal digits instead of bytea. The study's storage grew 3.8-fold,
    /// which only this explains.
    pub hex: bool,
}

impl Raw {
    fn encrypted(&self, bytes: &str) -> String {
        let cast = if self.hex { "::text" } else { "" };
        format!("encrypt({bytes}, '{KEY}', 'aes'){cast}")
    }

    fn decrypted(&self, name: &str) -> String {
        let cast = if self.hex { "::bytea" } else { "" };
        format!("decrypt({name}{cast}, '{KEY}', 'aes')")
    }
}

impl Scenario for Raw {
    fn id(&self) -> &'static str {
        if self.hex { "raw-hex" } else { "raw" }
    }

    fn title(&self) -> &'static str {
        if self.hex { "pgcrypto raw AES, hex text" } else { "pgcrypto raw AES, bytea" }
    }

    fn extension(&self) -> Option<Extension> {
        Some(PGCRYPTO)
    }

    fn sql_type(&self, _column: &Column) -> String {
        if self.hex { "text" } else { "bytea" }.to_owned()
    }

    fn literal(&self, _column: &Column, field: &str, out: &mut String) {
        out.push_str("encrypt(");
        quote(field, out);
        out.push_str(", '");
        out.push_str(KEY);
        out.push_str(if self.hex { "', 'aes')::text" } else { "', 'aes')" });
    }

    fn copy(&self) -> CopyWay {
        CopyWay::Staged { batch_rows: BATCH_ROWS }
    }

    fn stored(&self, _column: &Column, text: &str) -> String {
        self.encrypted(&format!("convert_to({text}, 'UTF8')"))
    }

    fn read(&self, column: &Column) -> Option<String> {
        let clear = self.decrypted(column.name);
        Some(format!("convert_from({clear}, 'UTF8')::{}", column.sql_type.sql()))
    }

    fn micro(&self) -> Option<MicroSql> {
        Some(MicroSql {
            encrypt_int8: self.encrypted("int8send(i)"),
            // SQL has no function to convert the eight bytes back; the cost of a conversion is left
            // out.
            decrypt_int8: self.decrypted("ei"),
            encrypt_text16: self.encrypted("t::bytea"),
            decrypt_text16: format!("convert_from({}, 'UTF8')", self.decrypted("et")),
            thin: 1,
        })
    }
}

/// `pgp_sym_encrypt(value, password)`: a packet of OpenPGP (RFC 4880) with its own session key from
/// a password hashed over and over, for every single value.
#[derive(Debug)]
pub struct Pgp;

impl Scenario for Pgp {
    fn id(&self) -> &'static str {
        "pgp"
    }

    fn title(&self) -> &'static str {
        "pgcrypto PGP"
    }

    fn extension(&self) -> Option<Extension> {
        Some(PGCRYPTO)
    }

    fn sql_type(&self, _column: &Column) -> String {
        "bytea".to_owned()
    }

    fn literal(&self, _column: &Column, field: &str, out: &mut String) {
        out.push_str("pgp_sym_encrypt(");
        quote(field, out);
        out.push_str(", '");
        out.push_str(KEY);
        out.push_str("')");
    }

    fn copy(&self) -> CopyWay {
        CopyWay::Staged { batch_rows: SLOW_BATCH_ROWS }
    }

    fn stored(&self, _column: &Column, text: &str) -> String {
        format!("pgp_sym_encrypt({text}, '{KEY}')")
    }

    fn read(&self, column: &Column) -> Option<String> {
        let clear = format!("pgp_sym_decrypt({}, '{KEY}')", column.name);
        Some(format!("{clear}::{}", column.sql_type.sql()))
    }

    fn micro(&self) -> Option<MicroSql> {
        Some(MicroSql {
            encrypt_int8: format!("pgp_sym_encrypt(i::text, '{KEY}')"),
            decrypt_int8: format!("pgp_sym_decrypt(ei, '{KEY}')::bigint"),
            encrypt_text16: format!("pgp_sym_encrypt(t, '{KEY}')"),
            decrypt_text16: format!("pgp_sym_decrypt(et, '{KEY}')"),
            thin: 200,
        })
    }

    fn is_queried(&self) -> bool {
        false
    }

    fn has_keys(&self) -> bool {
        // Two encryptions of one value differ, so that a foreign key finds no match.
        false
    }
}
