#!/usr/bin/env bash
# run-tree.sh [--resume] [--sealed-first] [--name NAME] [--only SUITE[,SUITE...]] [MAJOR...]
#
# Runs all tests of PostgreSQL's source tree against plain and sealed servers and compares the
# results: the core and isolation tests, the regression and isolation tests of contrib, procedural
# languages and test modules, and every TAP suite of src/test, src/bin, contrib and
# src/interfaces/libpq. Each difference must have its reason in skip.tsv. If a suite fails, the
# others still run; the last line names the suites that failed. --resume leaves out suites whose
# results were the same before. --sealed-first runs a suite against the plain server only if the
# sealed run did not pass completely: this takes half the time, but does not detect a test that only
# a sealed run skips. Takes hours for one major. Default: 15, 17 and 18. Results:
# build/results/NAME/MAJOR.tsv (default NAME: tree), and beside it the output of each suite.
set -euo pipefail
. "$(dirname "$0")/../../scripts/lib.sh"
cd "$PGSEAL_ROOT"
HERE=tests/upstream

resume='' only='' sealed_first='' name=tree
read_options "resume:resume sealed-first:sealed_first name=name only=only" "$@"
results=build/results/$name
majors=("${REST[@]}")
[ ${#majors[@]} -gt 0 ] || majors=(15 17 18)

# suites MAJOR: prints one suite per line. The suites ssl, ldap and kerberos need other kinds of
# servers and skip themselves.
suites() {
    local src version rest
    read -r version rest <"${PGSEAL_CACHE:-build/upstream}/current-$1"
    src=${PGSEAL_CACHE:-build/upstream}/$version/src
    printf '%s\n' core isolation modules
    (cd "$src" && find src/test src/bin contrib src/interfaces -path '*/t/*.pl' -printf '%h\n' | sort -u |
        sed -E 's#/t$##; s#^src/test/(authentication|icu|kerberos|ldap|locale|recovery|ssl|subscription|postmaster)$#\1#' |
        grep -vE '^src/test/(perl|regress)$')
}

# run SUITE MODE: runs one suite.
run() {
    case "$1" in
    core | isolation | modules) "$HERE/run-$1.sh" --major "$major" --mode "$2" ;;
    *) "$HERE/run-tap.sh" --major "$major" --mode "$2" --limit 5400 "$1" ;;
    esac
}

# judge SUITE: runs the suite, sets verdict, and writes the output to $log.
judge() {
    local status=0
    verdict=same
    if [ -n "$sealed_first" ] && run "$1" sealed >"$log" 2>&1 &&
        ! tail -n 1 "$log" | grep -qE ' [1-9][0-9]* known|all [0-9]+ files skipped'; then
        verdict=passed
        return
    fi
    # A failure on both servers is no difference, so compare.sh decides and not the exit status.
    run "$1" plain >"$log" 2>&1 || say "the plain run failed" >>"$log"
    [ -n "$sealed_first" ] || run "$1" sealed >>"$log" 2>&1 || say "the sealed run failed" >>"$log"
    "$HERE/compare.sh" --major "$major" "$1" >>"$log" 2>&1 || status=$?
    case "$status" in 0) ;; 3) verdict=skipped ;; *) verdict=different ;; esac
}

mkdir -p "$results"
failed=()
for major in "${majors[@]}"; do
    [ "$(pg_config_of "$major")" ] || scripts/postgres-versions.sh fetch "$major"
    "$HERE/fetch.sh" "$major"
    list=$results/$major.tsv
    [ -n "$resume" ] || [ -n "$only" ] || : >"$list"
    touch "$list"
    mapfile -t all < <(suites "$major")
    left=${#all[@]}
    for suite in "${all[@]}"; do
        left=$((left - 1))
        case ",$only," in ,, | *",$suite,"*) ;; *) continue ;; esac
        if [ -n "$resume" ] && grep -qE "^$suite"$'\t(same|skipped'"${sealed_first:+|passed}"$')\t' "$list"; then continue; fi
        start=$SECONDS
        log=$results/$major-${suite//\//.}.log
        judge "$suite"
        awk -F '\t' -v suite="$suite" '$1 != suite' "$list" >"$list.new"
        mv "$list.new" "$list"
        printf '%s\t%s\t%s\n' "$suite" "$verdict" "$(tail -n 1 "$log")" >>"$list"
        say "$major: $suite: $verdict ($((SECONDS - start)) s; $left left): $(tail -n 1 "$log")"
        if [ "$verdict" = different ]; then
            failed+=("$major:$suite")
            tail -n 12 "$log"
        fi
    done
    say "$major: of $(wc -l <"$list") suites $(grep -c $'\tsame\t' "$list" || true) the same," \
        "$(grep -c $'\tpassed\t' "$list" || true) passed sealed," \
        "$(grep -c $'\tskipped\t' "$list" || true) skipped by PostgreSQL itself"
done
[ ${#failed[@]} = 0 ] || die "different, with no reason in skip.tsv: ${failed[*]}"
