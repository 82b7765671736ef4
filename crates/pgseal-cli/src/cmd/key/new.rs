//! `pgseal key new`: makes a random key.

use std::path::PathBuf;

use pgseal_keys::generate_raw_key;

use crate::error::CliError;
use crate::{exit, out, private_file};

/// Make a new random key: 32 bytes as 64 hexadecimal digits
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Write it into a new file of mode 0600 instead of printing it
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub fn run(args: &Args) -> Result<u8, CliError> {
    let key = generate_raw_key()?;
    match &args.output {
        Some(path) => {
            private_file::write_new(path, &private_file::KEY, &[key.as_bytes(), b"\n"])?;
        }
        None => {
            out::secret(key.as_bytes())?;
            out::secret(b"\n")?;
        }
    }
    Ok(exit::SOUND)
}
