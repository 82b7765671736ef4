//! The text of `spec/hooks.md`.

use std::fmt::Write as _;

use pgseal::calls::symbols::{FAMILIES, Treatment};

const HEAD: &str = "\
# The calls of the C library that touch files

Generated from `server/pgseal-preload/src/calls/symbols.rs` by `make spec`; do not edit.

Every function of the C library that touches files belongs to one family below. A *hooked* one is exported by
`libpgseal.so`, and each call ends in a verdict: seal, pass or refuse. A *passed* one is left alone, for the reason
given. A program of PostgreSQL that imports a *refused* one, or one whose name says that it touches files and that no
family names, does not start (exit status 127, and a line that names the function); nor does one with a library that
does. A module is not loaded if it, or a library that comes with it, imports one: `dlopen` fails, `dlerror` and the log
say why, and the client that asked for it sees that text. Only functions count, not variables, and only the C library's
(by the version that the symbol is asked for with; where there is none, by who defines it) and those of libaio and
liburing; a module that uses io_uring itself is refused. What cannot be seen this way: system calls without the C
library, and libraries that the C library loads itself (NSS, iconv). An administrator who has looked at a module names
it in `PGSEAL_ALLOW_MODULES`; each load then writes a warning.

`make hooks-audit` holds the same table against the imports of all programs and modules of the installed PostgreSQL
versions; [libraries.md](libraries.md) lists the libraries that Debian's extension packages need.

A test is a program in `server/pgseal-preload/tests/apps` (`.c`), run with and without the library in a plain and in a
sealed data directory, a test file of the same crate (`.rs`), or a scenario in `tests/pgseal-scenarios/scenarios` (`.rs`).
";

/// The document, with one line end at its end.
pub fn text() -> String {
    let mut text = HEAD.to_owned();
    for treatment in [Treatment::Hooked, Treatment::Passed, Treatment::Refused] {
        let title = match treatment {
            Treatment::Hooked => "Hooked",
            Treatment::Passed => "Passed",
            Treatment::Refused => "Refused",
        };
        let _ = write!(
            text,
            "\n## {title}\n\n| family | functions | verdicts and reason | tests |\n|---|---|---|---|\n"
        );
        for family in FAMILIES.iter().filter(|family| family.treatment == treatment) {
            let code = |names: &[&str]| {
                names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" ")
            };
            let (symbols, tests) = (code(family.symbols), code(family.tests));
            let _ = writeln!(text, "| {} | {symbols} | {} | {tests} |", family.name, family.why);
        }
    }
    text
}
