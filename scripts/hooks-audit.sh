#!/usr/bin/env bash
# hooks-audit.sh [PATH...]: holds the library's symbol table against every function that the programs and modules
# of each PostgreSQL here import, and those of each PATH (a program, a module, or a directory of them). Fails with
# the list of those that the table refuses, or does not know although their names say that they touch files. This
# looks at whole installations from the outside; the library does the same at start-up with the running program.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$PGSEAL_ROOT"

command -v nm >/dev/null || die "nm (binutils) is missing; run scripts/setup.sh build"
cargo build --quiet --locked -p pgseal-preload --example symbol_check
check=$(cargo metadata --format-version 1 --no-deps | sed -E 's/.*"target_directory":"([^"]*)".*/\1/')/debug/examples/symbol_check

# The functions of the C library and of liburing that the files named on standard input import.
imports() {
    while IFS= read -r file; do
        nm -D --undefined-only "$file" 2>/dev/null || true
    done | awk '{ print $NF }' | grep -E '@GLIBC_|^(io_|__io_)|@LIBURING' | cut -d @ -f 1 | sort -u || true
}

# Files of $2... under the name $1.
audit() {
    local name=$1 files names found
    shift
    files=$(find -L "$@" -type f \( -perm /111 -o -name '*.so' \) 2>/dev/null | sort)
    [ -n "$files" ] || die "$name: no program and no module in $*"
    names=$(imports <<<"$files")
    if found=$("$check" 2>"$counts" <<<"$names"); then
        say "$name: $(wc -l <<<"$files") files, $(cat "$counts")"
    else
        say "$name: $(cat "$counts")"
        while IFS= read -r line; do
            say "  $line"
            # Who imports it.
            while IFS= read -r file; do
                if nm -D --undefined-only "$file" 2>/dev/null | grep -E " ${line%%:*}(@|$)" >/dev/null; then
                    say "    $file"
                fi
            done <<<"$files"
        done <<<"$found"
        failed=1
    fi
}

counts=$(mktemp)
trap 'rm -f "$counts"' EXIT
failed=0
for config in $(pg_configs); do
    audit "PostgreSQL $(pg_major "$config"), programs" "$("$config" --bindir)"
    audit "PostgreSQL $(pg_major "$config"), modules" "$("$config" --pkglibdir)"
done
for path in "$@"; do
    audit "$path" "$path"
done
if [ "$failed" != 0 ]; then
    die "add the functions to a family of crates/pgseal-preload/src/symbols.rs, with the reason, or hook them"
fi
