//! NV indices: places in the TPM's own memory.

use std::fmt;
use std::ops::RangeInclusive;

use pgseal_plugin::{Failure, configuration};

use crate::handle;

/// `NV_INDEX_FIRST` to `NV_INDEX_LAST` (Part 2, section 7.5).
const HANDLES: RangeInclusive<u32> = 0x0100_0000..=0x01ff_ffff;

/// The handle of an NV index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Index(u32);

impl Index {
    /// `0x1800016`.
    pub(crate) fn parse(text: &str) -> Result<Index, Failure<'static>> {
        match handle::parse(text).filter(|handle| HANDLES.contains(handle)) {
            Some(handle) => Ok(Index(handle)),
            None => Err(configuration(
                "anchor: give an NV index; those of the owner are 0x1800000 to 0x1bfffff",
            )),
        }
    }

    /// Whether `tpm2_getcap handles-nv-index`, which writes `- 0x1800016` for each, lists it.
    pub(crate) fn is_in(self, list: &str) -> bool {
        list.lines()
            .any(|line| line.trim().strip_prefix("- ").and_then(handle::parse) == Some(self.0))
    }
}

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn handles_of_indices() {
        let index = Index::parse("0x01800016").unwrap();
        assert_eq!(index.to_string(), "0x1800016");
        assert!(index.is_in("- 0x1500001\n- 0x1800016\n"));
        for list in ["", "- 0x18000160\n", "- 0x180001\n", "0x1800016"] {
            assert!(!index.is_in(list), "{list}");
        }
        for bad in ["", "1800016", "0x", "0xffffff", "0x2000000", "0x81000001", "0x+1800016"] {
            assert!(Index::parse(bad).is_err(), "{bad}");
        }
    }
}
