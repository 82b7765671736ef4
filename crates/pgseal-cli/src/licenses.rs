//! `pgseal --licenses`: the licences of pgseal, and those of everything that is linked into it.

use std::fs;
use std::io::Write;
use std::path::Path;

use crate::error::CliError;
use crate::out::Out;
use crate::{exit, library};

const APACHE: &str = include_str!("../../../LICENSE-APACHE");
const MIT: &str = include_str!("../../../LICENSE-MIT");

/// The file with the texts of the crates, which the build makes from the lock file
/// (scripts/notices.sh).
const NOTICES: &str = "THIRD-PARTY-NOTICES.txt";

/// Where it is, from the directory of the program: as installed, and in a build tree.
const PLACES: [&str; 2] = ["../share/doc/pgseal", "../notices"];

/// Prints the texts. An error if the file with those of the crates is not there.
pub fn print() -> Result<u8, CliError> {
    let program = library::program()?;
    let dir = program.parent().unwrap_or(Path::new("/"));
    let path =
        library::existing(&PLACES.map(|place| dir.join(place).join(NOTICES))).ok_or_else(|| {
            CliError::NoLibrary(format!(
                "{}: {NOTICES} is in none of {} from this program; install it (make install)",
                program.display(),
                PLACES.join(", ")
            ))
        })?;
    let notices = fs::read(&path).map_err(CliError::io(&path, "read"))?;
    let mut out = Out::new();
    writeln!(out, "pgseal is under Apache-2.0 or MIT, at your choice.\n\n{MIT}\n{APACHE}")?;
    out.write_all(&notices)?;
    out.flush()?;
    Ok(exit::SOUND)
}
