#!/usr/bin/env bash
# compare.sh [--major N] SUITE...   (core, isolation, recovery, ...)
#
# Holds the results of the sealed run of each suite against those of the plain run, test for test. They must
# be of the same tests and the same verdicts; TAP files that skip.tsv names may differ.
set -euo pipefail
. "$(dirname "$0")/../../../scripts/lib.sh"

results=$PGSEAL_ROOT/build/results
known=$(awk -F '\t' '!/^#/ { print $1 }' "$PGSEAL_ROOT/tests/pg/upstream/skip.tsv")
major=$(default_major)
if [ "${1:-}" = --major ]; then
    major=${2:-}
    shift 2
fi
[ $# -gt 0 ] || die "which suites? (core, isolation, recovery, ...)"
worst=0
for suite in "$@"; do
    # Per test where there is such a list (TAP), else per result line.
    file=results.tsv
    [ ! -e "$results/$suite-$major-plain/tests.tsv" ] || file=tests.tsv
    plain=$results/$suite-$major-plain/$file
    sealed=$results/$suite-$major-sealed/$file
    [ -s "$plain" ] || die "no results of the plain run of $suite on PostgreSQL $major"
    [ -s "$sealed" ] || die "no results of the sealed run of $suite on PostgreSQL $major"
    skipped=$(sed -nE "s#^$suite/(.*)\.pl\$#\1#p" <<<"$known")
    differences=$(
        diff <(grep -vE "^(${skipped//$'\n'/|}) " "$plain" | sort) \
            <(grep -vE "^(${skipped//$'\n'/|}) " "$sealed" | sort) || true
    )
    if [ -n "$differences" ]; then
        worst=1
        say "$suite on $major: plain (<) and sealed (>) differ:"
        grep '^[<>]' <<<"$differences" | head -n 40
    else
        say "$suite on $major: $(wc -l <"$sealed") results, sealed and plain the same${skipped:+ (but for the files in skip.tsv)}"
    fi
done
exit "$worst"
