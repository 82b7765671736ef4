#!/usr/bin/env bash
# scenarios.sh [NAME...]: the scenario tests that drive whole servers: the executable files
# tests/pg/scenarios/*.sh, each as an ordinary user (as-user.sh), with the built programs. NAME: only those.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$PGSEAL_ROOT"

count=0
for script in tests/pg/scenarios/*.sh; do
    [ -x "$script" ] || continue
    name=$(basename "$script" .sh)
    if [ $# -gt 0 ]; then case " $* " in *" $name "*) ;; *) continue ;; esac; fi
    say "scenario $name"
    scripts/as-user.sh -- "$script" || die "scenario $name failed"
    count=$((count + 1))
done
say "scenarios: $count scripts passed"
