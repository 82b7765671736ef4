#!/usr/bin/env bash
# check-shell.sh: shellcheck over every shell script of the project.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$PGSEAL_ROOT"

if ! command -v shellcheck >/dev/null; then
    [ -z "${CI:-}" ] || die "shellcheck is missing; run scripts/setup.sh lint"
    warn "shellcheck is not installed: shell scripts not checked (scripts/setup.sh lint)"
    exit 0
fi
mapfile -t files < <(
    find .ci scripts tests server/guard crates tools packaging -name target -prune -o -type f \
        \( -name '*.sh' -o -path '.ci/run' \) -print 2>/dev/null | sort
)
shellcheck -x -P SCRIPTDIR -S warning "${files[@]}"
say "shell: ${#files[@]} scripts, no warning"
