#!/usr/bin/env bash
# spec.sh write|check: the generated parts of spec/. hooks.md comes from the library's symbol table, through
# the example program hooks_md of pgseal-preload.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$PGSEAL_ROOT"

action=${1:-}
[ "$action" = check ] && [ ! -e spec/hooks.md ] && exit 0
[ -e crates/pgseal-preload/examples/hooks_md.rs ] || die "crates/pgseal-preload/examples/hooks_md.rs is missing"
text=$(cargo run --quiet --locked -p pgseal-preload --example hooks_md)
case "$action" in
write)
    printf '%s\n' "$text" >spec/hooks.md
    say "wrote spec/hooks.md"
    ;;
check)
    diff -u spec/hooks.md <(printf '%s\n' "$text") | head -n 40 ||
        die "spec/hooks.md is not what the symbol table says; run 'make spec'"
    say "spec: hooks.md agrees with the symbol table"
    ;;
*) die "write or check?" ;;
esac
