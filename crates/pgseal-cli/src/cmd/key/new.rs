//! `pgseal key new`: makes a random key.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::ValueHint;
use pgseal_keys::generate_raw_key;
use serde::Serialize;

use crate::error::CliError;
use crate::out::Out;
use crate::{audit, exit, out, private_file};

/// Make a new random key: 32 bytes as 64 hexadecimal digits
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Write it into a new file of mode 0600 instead of printing it
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// Print JSON: the file, and not the key
    #[arg(long, requires = "output")]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Made {
    file: String,
    /// What names this key to other commands: -K.
    provider: Option<String>,
}

pub fn run(args: &Args) -> Result<u8, CliError> {
    // A printed key has no place.
    audit::using_at(args.output.as_deref().unwrap_or(Path::new("-")));
    audit::begin()?;
    let key = generate_raw_key()?;
    match &args.output {
        Some(path) => {
            private_file::write_new(path, &private_file::KEY, &[key.as_bytes(), b"\n"])?;
            if args.json {
                let full = std::path::absolute(path).ok();
                let provider =
                    full.and_then(|path| path.to_str().map(|path| format!("file:{path}")));
                let mut out = Out::new();
                out.json(&Made { file: path.display().to_string(), provider })?;
                out.flush()?;
            }
        }
        None => {
            out::secret(key.as_bytes())?;
            out::secret(b"\n")?;
        }
    }
    Ok(exit::SOUND)
}
