//! The figures that the four studies published, from `tools/pgseal-lab/published/`. They are never
//! mixed with measured figures: reports show them as
//! [`Origin::Study`](crate::exhibits::Origin::Study).

use serde::Deserialize;
use serde::de::DeserializeOwned;

const AES_MODES: &str = include_str!("../published/aes_modes.csv");
const TLS_CIPHERS: &str = include_str!("../published/tls_ciphers.csv");
const OPENSSL_SPEED: &str = include_str!("../published/openssl_speed_2013.csv");
const PUBLIC_KEY: &str = include_str!("../published/openssl_speed_2013_public_key.csv");
const COLUMNS_TPCH: &str = include_str!("../published/columns_tpch.csv");

/// Study 1: speed of one AES mode.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct AesMode {
    /// `ecb`, `cbc`, `cfb`, `ofb`, `ctr`.
    pub mode: String,
    /// Length of the key in bits.
    pub key_bits: u32,
    /// `encrypt` or `decrypt`.
    pub direction: String,
    /// Whether the CPU's AES instructions were used.
    #[serde(deserialize_with = "yes_or_no")]
    pub aes_instructions: bool,
    /// Bytes per call.
    pub block_bytes: u32,
    /// Thousands of bytes a second.
    pub kilobytes_per_second: f64,
}

/// Study 2: throughput with one TLS cipher.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct TlsCipher {
    /// OpenSSL's name of the cipher; `none (hostnossl)`: no TLS.
    pub cipher: String,
    /// Length of the key in bits; 0: no TLS.
    pub bits: u32,
    /// Transactions of a run.
    pub transactions_in_60_s: u64,
    /// Transactions a second.
    pub tps_including_connecting: f64,
    /// Transactions a second.
    pub tps_excluding_connecting: f64,
}

/// Study 2: `openssl speed` of one algorithm, thousands of bytes a second.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct OpensslSpeed {
    /// `openssl speed`'s name.
    pub algorithm: String,
    /// With 16 bytes per call.
    #[serde(rename = "16")]
    pub of_16: f64,
    /// With 64 bytes per call.
    #[serde(rename = "64")]
    pub of_64: f64,
    /// With 256 bytes per call.
    #[serde(rename = "256")]
    pub of_256: f64,
    /// With 1024 bytes per call.
    #[serde(rename = "1024")]
    pub of_1024: f64,
    /// With 8192 bytes per call.
    #[serde(rename = "8192")]
    pub of_8192: f64,
}

/// Study 2: `openssl speed` of one signature algorithm.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct PublicKeySpeed {
    /// `rsa` or `dsa`.
    pub algorithm: String,
    /// Length of the key in bits.
    pub bits: u32,
    /// Seconds of a signature.
    pub sign_seconds: f64,
    /// Seconds of a verification.
    pub verify_seconds: f64,
    /// Signatures a second.
    pub sign_per_second: f64,
    /// Verifications a second.
    pub verify_per_second: f64,
}

/// Study 4: one figure.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ColumnsTpch {
    /// `load_total`, `load_1.12GB`, `storage`, ...
    pub measure: String,
    /// `plain`, `pgcrypto PGP`, `pgcrypto raw AES`.
    pub scenario: String,
    /// Whether tables had primary and foreign keys.
    #[serde(deserialize_with = "yes_or_no")]
    pub keys: bool,
    /// The figure, in `unit`.
    pub value: f64,
    /// `s` or `GB`.
    pub unit: String,
}

/// Study 1.
pub fn aes_modes() -> Vec<AesMode> {
    rows(AES_MODES)
}

/// Study 2.
pub fn tls_ciphers() -> Vec<TlsCipher> {
    rows(TLS_CIPHERS)
}

/// Study 2, symmetric ciphers and hashes.
pub fn openssl_speed() -> Vec<OpensslSpeed> {
    rows(OPENSSL_SPEED)
}

/// Study 2, signatures.
pub fn public_key_speed() -> Vec<PublicKeySpeed> {
    rows(PUBLIC_KEY)
}

/// Study 4.
pub fn columns_tpch() -> Vec<ColumnsTpch> {
    rows(COLUMNS_TPCH)
}

/// All rows that can be parsed; a test checks that every row can.
fn rows<T: DeserializeOwned>(text: &str) -> Vec<T> {
    csv::Reader::from_reader(text.as_bytes()).into_deserialize().filter_map(Result::ok).collect()
}

fn yes_or_no<'de, D: serde::Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    let text = String::deserialize(from)?;
    match text.as_str() {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(serde::de::Error::custom(format!("{text}: neither yes nor no"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> usize {
        text.lines().count() - 1
    }

    #[test]
    fn every_row_of_every_file_is_understood() {
        assert_eq!(aes_modes().len(), lines(AES_MODES));
        assert_eq!(tls_ciphers().len(), lines(TLS_CIPHERS));
        assert_eq!(openssl_speed().len(), lines(OPENSSL_SPEED));
        assert_eq!(public_key_speed().len(), lines(PUBLIC_KEY));
        assert_eq!(columns_tpch().len(), lines(COLUMNS_TPCH));
    }

    #[test]
    fn figures_named_in_the_studies_text_are_there() {
        let tls = tls_ciphers();
        let of = |cipher: &str| {
            tls.iter().find(|row| row.cipher == cipher).unwrap().tps_excluding_connecting
        };
        // "12 to 27 % of the throughput"
        let cost = |cipher| 1.0 - of(cipher) / of("none (hostnossl)");
        assert!((0.11..0.13).contains(&cost("RC4-SHA")));
        assert!((0.26..0.28).contains(&cost("DHE-RSA-AES256-SHA")));
        let columns = columns_tpch();
        let storage = |scenario: &str, keys| {
            let found = columns.iter().find(|row| {
                row.measure == "storage" && row.scenario == scenario && row.keys == keys
            });
            found.unwrap().value
        };
        // "3.8 to 4 times"
        assert!(
            (3.7..3.8).contains(&(storage("pgcrypto raw AES", false) / storage("plain", false)))
        );
    }
}
