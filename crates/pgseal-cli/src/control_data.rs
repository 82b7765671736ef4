//! Parses the output of `pg_controldata`.

use pgseal_convert::Facts;

/// The values of the control file of a data directory.
#[derive(Clone, Debug)]
pub struct ControlData {
    /// `shut down`, `in production`, ...
    pub state: String,
    /// Bytes of a page.
    pub block_len: u32,
    /// The version of data checksums: 0 is off; from PostgreSQL 19 on there are states between off
    /// and on.
    pub checksum_version: u32,
    /// Whether `full_page_writes` was on at the last checkpoint.
    pub full_page_writes: bool,
    /// The values that a conversion needs.
    pub facts: Facts,
}

impl ControlData {
    /// Parses the output; `None` if a value is missing.
    pub fn parse(text: &str) -> Option<ControlData> {
        let value = |name: &str| {
            text.lines().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                (key.trim() == name).then(|| value.trim().to_owned())
            })
        };
        let number = |name: &str| value(name)?.parse::<u32>().ok();
        let checksum_version = number("Data page checksum version")?;
        Some(ControlData {
            state: value("Database cluster state")?,
            block_len: number("Database block size")?,
            checksum_version,
            full_page_writes: value("Latest checkpoint's full_page_writes")? == "on",
            facts: Facts {
                catalog_version: number("Catalog version number")?,
                checksums: checksum_version == 1,
                segment_pages: number("Blocks per segment of large relation")?,
            },
        })
    }

    /// Whether the server was shut down cleanly, so that no recovery is needed.
    pub fn is_clean(&self) -> bool {
        matches!(self.state.as_str(), "shut down" | "shut down in recovery")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_pg_controldata_are_read() {
        let text = "pg_control version number:            1300\n\
                    Catalog version number:               202209061\n\
                    Database cluster state:               shut down in recovery\n\
                    Latest checkpoint's full_page_writes: on\n\
                    Database block size:                  8192\n\
                    Blocks per segment of large relation: 131072\n\
                    Data page checksum version:           1\n";
        let read = ControlData::parse(text).unwrap();
        assert!(read.is_clean());
        let facts = Facts { catalog_version: 202_209_061, checksums: true, segment_pages: 131_072 };
        assert_eq!((read.block_len, read.checksum_version, read.facts), (8192, 1, facts));
        assert!(ControlData::parse("").is_none());
        assert!(
            !ControlData::parse(&text.replace("shut down in recovery", "in production"))
                .unwrap()
                .is_clean()
        );
    }
}
