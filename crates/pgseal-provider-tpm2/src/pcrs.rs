//! Platform configuration registers, which hold what the machine booted.

use std::collections::BTreeSet;
use std::fmt;

use pgseal_plugin::{Failure, configuration};

/// The banks that are taken. SHA-1 is too weak for a policy.
const BANKS: [&str; 3] = ["sha256", "sha384", "sha512"];
/// A TPM of a PC has PCRs 0 to 23 (PC Client Platform TPM Profile).
const MAX_PCR: u8 = 23;
/// Every program can reset these two, so a policy over them protects nothing.
const RESETTABLE: [u8; 2] = [16, 23];

/// PCRs of one bank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pcrs {
    bank: &'static str,
    numbers: BTreeSet<u8>,
}

impl Pcrs {
    /// `sha256:0,7`.
    pub(crate) fn parse(text: &str) -> Result<Pcrs, Failure<'static>> {
        let usual = || configuration("pcrs: give a bank and numbers from 0 to 23: sha256:0,7");
        let (bank, list) = text.split_once(':').ok_or_else(usual)?;
        let bank = BANKS
            .into_iter()
            .find(|known| *known == bank)
            .ok_or_else(|| configuration("pcrs: the bank is one of sha256, sha384 and sha512"))?;
        let mut numbers = BTreeSet::new();
        for word in list.split(',') {
            let is_number = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
            let number = word.parse().ok().filter(|number| is_number && *number <= MAX_PCR);
            let number = number.ok_or_else(usual)?;
            if RESETTABLE.contains(&number) {
                return Err(configuration(format!(
                    "pcrs: every program can reset PCR {number}, so it protects nothing"
                )));
            }
            if !numbers.insert(number) {
                return Err(configuration(format!("pcrs: {number} stands twice")));
            }
        }
        Ok(Pcrs { bank, numbers })
    }

    /// Fails if the TPM does not have all of these PCRs. A policy over PCRs that are not there
    /// would always hold.
    ///
    /// `text` is what `tpm2_pcrread` says of them: a line for the bank, then one for each PCR.
    pub(crate) fn expect_in(&self, text: &str) -> Result<(), Failure<'static>> {
        let mut found = BTreeSet::new();
        let mut is_bank = false;
        for line in text.lines() {
            match line.trim().split_once(':') {
                Some((bank, "")) => is_bank = bank == self.bank,
                Some((number, value)) if is_bank && value.trim().starts_with("0x") => {
                    found.extend(number.trim().parse::<u8>());
                }
                _ => {}
            }
        }
        match self.numbers.is_subset(&found) {
            true => Ok(()),
            false => Err(configuration(format!(
                "pcrs: the TPM does not have all of {self}; 'tpm2_getcap pcrs' lists what it has"
            ))),
        }
    }
}

impl fmt::Display for Pcrs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.numbers.iter().map(u8::to_string).collect();
        write!(f, "{}:{}", self.bank, numbers.join(","))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn selections() {
        for (text, same) in [
            ("sha256:7", "sha256:7"),
            ("sha384:14,0,7", "sha384:0,7,14"),
            ("sha512:22", "sha512:22"),
        ] {
            assert_eq!(Pcrs::parse(text).unwrap().to_string(), same);
        }
        for bad in [
            "",
            "7",
            "sha256",
            "sha256:",
            "sha1:7",
            "SHA256:7",
            "sha256:24",
            "sha256:-1",
            "sha256:+7",
            "sha256:7,",
            "sha256:7,7",
            "sha256:07x",
            "sha256:16",
            "sha256:0,23",
            "sha256:7+sha384:7",
        ] {
            assert!(Pcrs::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_policy_needs_pcrs_that_are_there() {
        let pcrs = Pcrs::parse("sha256:0,7").unwrap();
        let both = "  sha256:\n    0 : 0x00FF\n    7 : 0xAA\n";
        assert!(pcrs.expect_in(both).is_ok());
        for text in [
            "",
            "  sha256:\n",
            "  sha256:\n    7 : 0xAA\n",
            "  sha1:\n    0 : 0x00\n    7 : 0x00\n",
            "  sha256:\n    0 : 0x00\n  sha384:\n    7 : 0x00\n",
        ] {
            assert!(pcrs.expect_in(text).is_err(), "{text}");
        }
    }
}
