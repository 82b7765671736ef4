//! `symbol_check program|module FILE...`: checks the imports of each file, as the library does
//! before the file is loaded, and prints `FILE: FUNCTION` for each function that the symbol table
//! refuses, or does not know although its name suggests that it touches files. Exit status 1 if
//! there are any. For `scripts/hooks-audit.sh`.
//!
//! `symbol_check list FILE...`: prints a line for each file with the number of hooked functions,
//! the number of passed functions, and the names of the refused functions, separated by tabs. For
//! `scripts/libraries.sh`.

use std::ffi::CString;
use std::process::ExitCode;

use pgseal::calls::audit::{self, Imports};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (is_program, lists) = match arguments.next().as_deref() {
        Some("program") => (true, false),
        Some("module") => (false, false),
        Some("list") => (false, true),
        _ => {
            eprintln!("symbol_check program|module|list FILE...");
            return ExitCode::from(2);
        }
    };
    let mut sum = Imports::default();
    let mut files = 0;
    for file in arguments {
        let Some(imports) = CString::new(file.as_bytes())
            .ok()
            .and_then(|path| audit::imports_of(&path, is_program))
        else {
            // The file is no object for this machine: for example a script.
            continue;
        };
        files += 1;
        if lists {
            let bad: Vec<&str> = imports.bad.iter().map(String::as_str).collect();
            let (hooked, passed) = (imports.hooked.len(), imports.passed.len());
            println!("{file}\t{hooked}\t{passed}\t{}", bad.join(" "));
            continue;
        }
        for name in &imports.bad {
            println!("{file}: {name}");
        }
        sum.add(imports);
    }
    let count = |names: &std::collections::BTreeSet<String>| names.len();
    eprintln!(
        "{files} files, {} hooked, {} passed, {} refused or unknown",
        count(&sum.hooked),
        count(&sum.passed),
        count(&sum.bad)
    );
    if sum.bad.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
