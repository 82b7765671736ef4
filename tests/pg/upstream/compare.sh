#!/usr/bin/env bash
# compare.sh [--major N] SUITE...   (core, isolation, modules, recovery, src/bin/pg_rewind, ...)
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
# without FILE: its lines, sorted, but those of what is skipped.
without() {
    awk -v skipped="$skipped" 'BEGIN { count = split(skipped, names, "\n"); for (i = 1; i <= count; i++) known[names[i]] = 1 }
        { name = $0; sub(/[ \t].*/, "", name) } !(name in known)' "$1" | sort
}

[ $# -gt 0 ] || die "which suites? (core, isolation, recovery, ...)"
worst=0
for name in "$@"; do
    suite=${name//\//.}
    # Per test where there is such a list (TAP), else per result line.
    file=results.tsv
    [ ! -e "$results/$suite-$major-plain/tests.tsv" ] || file=tests.tsv
    plain=$results/$suite-$major-plain/$file
    sealed=$results/$suite-$major-sealed/$file
    [ -s "$plain" ] || die "no results of the plain run of $suite on PostgreSQL $major"
    [ -s "$sealed" ] || die "no results of the sealed run of $suite on PostgreSQL $major"
    # The words of a line's name: of TAP the file without its suffix, of modules the test.
    skipped=$(sed -nE "s#^$name/(.*)\$#\1#p" <<<"$known" | sed 's/\.pl$//')
    differences=$(
        diff <(without "$plain") <(without "$sealed") || true
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
