//! Values of options that shells can complete: suites, and where a key comes from.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, PossibleValuesParser, StringValueParser, TypedValueParser};
use clap::{Arg, Command, Error};
use pgseal_core::Suite;

/// The names of the suites, and the short ones of those with 256 bits.
pub fn suite() -> impl TypedValueParser<Value = Suite> {
    let values = Suite::ALL.map(|suite| {
        let value = PossibleValue::new(suite.name());
        match suite {
            Suite::Aes256Gcm => value.alias("gcm"),
            Suite::Aes256Xts => value.alias("xts"),
            Suite::Aes256Ctr => value.alias("ctr"),
            Suite::Aegis256X2 => value.alias("aegis"),
            _ => value,
        }
    });
    PossibleValuesParser::new(values).try_map(|name| {
        let suite = name.parse::<Suite>()?;
        suite.check_approved()?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(suite)
    })
}

/// Where a key comes from: any text is taken, and shells offer how one begins.
#[derive(Clone, Copy, Debug)]
pub struct KeySource;

impl TypedValueParser for KeySource {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let begin = ["env:", "file:", "command:", "passphrase:"];
        Some(Box::new(begin.into_iter().map(PossibleValue::new)))
    }
}
