//! Reads names of imported functions, one a line, and prints those that the symbol table refuses or
//! does not know although their names say that they touch files. Exit status 1 if there are any.
//! `scripts/hooks-audit.sh` feeds it.

use std::io::{self, BufRead};
use std::process::ExitCode;

use pgseal::symbols::{Treatment, may_touch_files, treatment_of};

fn main() -> io::Result<ExitCode> {
    let (mut hooked, mut passed, mut bad) = (0, 0, 0);
    for line in io::stdin().lock().lines() {
        let line = line?;
        let name = line.trim();
        match treatment_of(name) {
            Some(Treatment::Hooked) => hooked += 1,
            Some(Treatment::Passed) => passed += 1,
            Some(Treatment::Refused) => {
                println!("{name}: refused by the table");
                bad += 1;
            }
            None if may_touch_files(name) => {
                println!("{name}: in no family of the table");
                bad += 1;
            }
            None => {}
        }
    }
    eprintln!("{hooked} hooked, {passed} passed, {bad} refused or unknown");
    Ok(if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
