#!/usr/bin/env bash
# spec.sh write|check: writes or checks the generated parts of spec/. The example program hooks_md
# of pgseal-preload makes hooks.md from the library's symbol table.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$PGSEAL_ROOT"

action=${1:-}
[ "$action" = check ] && [ ! -e spec/hooks.md ] && exit 0
[ -e server/pgseal-preload/examples/hooks_md.rs ] || die "server/pgseal-preload/examples/hooks_md.rs is missing"
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
