//! The figures of study 4, as ratios.

use crate::published::{ColumnsTpch, columns_tpch};

const PLAIN: &str = "plain";
const RAW: &str = "pgcrypto raw AES";
const PGP: &str = "pgcrypto PGP";

/// The study's figures.
pub struct Study {
    rows: Vec<ColumnsTpch>,
}

impl Study {
    /// The published figures.
    pub fn published() -> Self {
        Self { rows: columns_tpch() }
    }

    fn value(&self, measure: &str, scenario: &str, keys: bool) -> Option<f64> {
        let is = |row: &&ColumnsTpch| {
            row.measure == measure && row.scenario == scenario && row.keys == keys
        };
        self.rows.iter().find(is).map(|row| row.value)
    }

    /// Seconds of the study's whole load.
    pub fn load_s(&self, raw: bool, keys: bool) -> Option<f64> {
        self.value("load_total", if raw { RAW } else { PLAIN }, keys)
    }

    /// Raw AES relative to plain, for the whole load.
    pub fn load_ratio(&self, keys: bool) -> Option<f64> {
        Some(self.load_s(true, keys)? / self.load_s(false, keys)?)
    }

    /// PGP relative to raw AES, for the volume that was loaded with PGP.
    pub fn pgp_over_raw(&self) -> Option<f64> {
        Some(self.value("load_1.12GB", PGP, false)? / self.value("load_1.12GB", RAW, false)?)
    }

    /// Gigabytes on disk.
    pub fn storage_gb(&self, raw: bool, keys: bool) -> Option<f64> {
        self.value("storage", if raw { RAW } else { PLAIN }, keys)
    }

    /// Raw AES relative to plain, for the size on disk.
    pub fn storage_ratio(&self, keys: bool) -> Option<f64> {
        Some(self.storage_gb(true, keys)? / self.storage_gb(false, keys)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratios_that_the_study_names() {
        let study = Study::published();
        let of = |value: Option<f64>| (value.unwrap() * 10.0).round() / 10.0;
        assert_eq!((of(study.load_ratio(false)), of(study.load_ratio(true))), (4.1, 7.8));
        assert_eq!((of(study.storage_ratio(false)), of(study.storage_ratio(true))), (3.8, 4.1));
        assert_eq!(of(study.pgp_over_raw()), 43.6);
    }
}
