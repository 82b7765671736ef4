#!/usr/bin/env bash
# compare.sh [--major N] SUITE...   (core, isolation, modules, recovery, src/bin/pg_rewind, ...)
#
# Compares the results of the sealed run of each suite with those of the plain run, test by test.
# Both must have run the same tests with the same verdicts, except the tests that skip.tsv names,
# which must fail in the sealed run. Tests that fail in both runs are listed, since they prove
# nothing. Exit status: 0 the same, 1 different, 3 PostgreSQL itself skipped all tests.
set -euo pipefail
. "$(dirname "$0")/../../scripts/lib.sh"

results=$PGSEAL_ROOT/build/results
known=$(awk -F '\t' '!/^#/ { print $1 }' "$PGSEAL_ROOT/tests/upstream/skip.tsv")
major=$(default_major)
read_options "major=major" "$@"

# lines SUITE MODE: prints the lines to compare: files and tests with their verdicts.
lines() {
    local dir=$results/$1-$major-$2
    [ -s "$dir/results.tsv" ] || die "no results of the $2 run of $1 on PostgreSQL $major"
    sed -E 's/^([^\t]*)\.pl\t/\1\t/' "$dir/results.tsv"
    # TAP suites also have a list of single tests: "FILE NUMBER TAB ok".
    cat "$dir/tests.tsv" 2>/dev/null || true
}

# without SKIPPED: sorts standard input and removes the lines of the files and tests in SKIPPED.
without() {
    awk -v skipped="$1" 'BEGIN { count = split(skipped, names, "\n"); for (i = 1; i <= count; i++) known[names[i]] = 1 }
        { name = $0; sub(/[ \t].*/, "", name) } !(name in known)' | sort
}

[ ${#REST[@]} -gt 0 ] || die "which suites? (core, isolation, recovery, ...)"
worst=0
for name in "${REST[@]}"; do
    suite=${name//\//.}
    plain=$(lines "$suite" plain)
    sealed=$(lines "$suite" sealed)
    if ! cut -f 2 <<<"$plain"$'\n'"$sealed" | grep -vx skipped >/dev/null; then
        say "$suite on $major: PostgreSQL itself skips all of it"
        [ "$worst" != 0 ] || worst=3
        continue
    fi
    # The first word of the lines to remove: the file without its suffix (TAP), or the test
    # (modules).
    skipped=$(sed -nE "s#^$name/(.*)\$#\1#p" <<<"$known" | sed 's/\.pl$//')
    stale=$(awk -F '\t' '$2 == "ok, though in skip.tsv" { print $1 }' <<<"$sealed" | paste -sd ' ')
    differences=$(diff <(without "$skipped" <<<"$plain") <(without "$skipped" <<<"$sealed") || true)
    both=$(comm -12 <(without "$skipped" <<<"$plain" | grep -P '\t(?!ok$|skipped$)') \
        <(without "$skipped" <<<"$sealed") | cut -f 1 | paste -sd ',')
    if [ -n "$differences$stale" ]; then
        worst=1
        say "$suite on $major: plain (<) and sealed (>) differ:"
        grep '^[<>]' <<<"$differences" | head -n 40 || true
        [ -z "$stale" ] || say "these pass, though skip.tsv names them: $stale"
    else
        say "$suite on $major: $(wc -l <<<"$sealed") results, sealed and plain the same${skipped:+, but for what skip.tsv names}${both:+; fail on both: $both}"
    fi
done
exit "$worst"
